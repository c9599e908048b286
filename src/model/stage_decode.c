/* Decoding with the key/value cache: each call appends to it and returns the last logits. */
#include <string.h>

#include "model/stage_internal.h"

static size_t cache_bytes(const struct hop_stage *stage)
{
    return (size_t)stage->config.cache * stage->layout.kv_out * stage->layout.element;
}

/* Scratch memory, but with keys and values of the run behind those of earlier calls. */
static struct hop__block_memory cached_memory(const struct hop_stage *stage, size_t i, size_t rows,
                                              int32_t past)
{
    struct hop__block_memory memory = hop__stage_memory(stage, -1, i, rows);
    char *const keys =
        (char *)hop__scratch(stage, stage->layout.scratch.cache) + 2 * i * cache_bytes(stage);
    char *const values = keys + cache_bytes(stage);
    const size_t behind = (size_t)past * stage->layout.kv_out * stage->layout.element;
    memory.k = keys + behind;
    memory.v = values + behind;
    memory.keys = keys;
    memory.values = values;
    return memory;
}

static struct hop__run decode_run(struct hop_stage *stage, const int32_t *ids, int32_t n,
                                  int32_t past)
{
    const struct hop__index_layout *const index = &stage->layout.index;
    int32_t *const position = hop__index(stage, index->position);
    int32_t *const q_offset = hop__index(stage, index->q_offset);
    int32_t *const kv_offset = hop__index(stage, index->kv_offset);
    for (int32_t i = 0; i < n; i++)
        position[i] = past + i;
    q_offset[0] = kv_offset[0] = 0;
    q_offset[1] = n;
    kv_offset[1] = past + n;
    return (struct hop__run){.rows = (size_t)n,
                             .sequences = 1,
                             .groups = 1,
                             .ids = ids,
                             .position = position,
                             .q_offset = q_offset,
                             .kv_offset = kv_offset,
                             .past = past};
}

/* The next n tokens of a call; `future` more follow. */
static hop_status run_piece(struct hop_stage *stage, const int32_t *ids, int32_t n, int32_t past,
                            int32_t future, struct hop_error *err)
{
    struct hop__run run = decode_run(stage, ids, n, past);
    run.future = future;
    HOP_TRY(hop__stage_rotation(stage, (size_t)n, &run, err));
    void *const stream = hop__scratch(stage, stage->layout.scratch.stream);
    HOP_TRY(stage->ops->embed_forward(stage->backend, stage->config.dtype, stage->embed, n, ids,
                                      stream, err));
    for (size_t i = 0; i < stage->layout.blocks; i++) {
        const struct hop__block_memory memory = cached_memory(stage, i, (size_t)n, past);
        HOP_TRY(hop__block_forward(stage, i, &run, &memory, stream, stream, err));
    }
    return HOP_OK;
}

/* n bf16 numbers at the front of a float array become its n floats: from the back, in place. */
static void widen(float *logits, size_t n)
{
    const char *const narrow = (const char *)logits;
    for (size_t i = n; i-- > 0;) {
        uint16_t bits;
        memcpy(&bits, narrow + i * sizeof bits, sizeof bits);
        logits[i] = hop_bf16_to_f32(bits);
    }
}

/* Logits of row `row` of the stream. */
static hop_status read_logits(struct hop_stage *stage, int32_t row, float *logits,
                              struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    const size_t vocabulary = (size_t)config->model.vocabulary;
    char *const stream = hop__scratch(stage, scratch->stream);
    void *const normed = hop__scratch(stage, scratch->normed);
    const struct hop_projection head = {.weight = stage->head,
                                        .y = hop__scratch(stage, scratch->logits)};
    HOP_TRY(stage->ops->rmsnorm_forward(
        stage->backend, config->dtype, 1, config->model.hidden,
        stream + (size_t)row * stage->layout.hidden * stage->layout.element, stage->final_gain,
        config->model.norm_eps, normed, NULL, err));
    HOP_TRY(
        stage->ops->project_forward(stage->backend, config->dtype, 1, normed, &head, 1, NULL, err));
    HOP_TRY(
        stage->ops->read(stage->backend, logits, head.y, vocabulary * stage->layout.element, err));
    if (config->dtype == HOP_F32)
        return HOP_OK;
    widen(logits, vocabulary);
    return HOP_OK;
}

hop_status hop_stage_decode(struct hop_stage *stage, const int32_t *ids, int32_t n, int32_t past,
                            float *logits, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    const int32_t piece = config->limits.tokens;
    if (!config->embed || !config->head || config->cache == 0)
        return hop_fail(err, HOP_INTERNAL,
                        "decoding needs embedding, head and a cache in one stage");
    if (n < 1 || past < 0 || past > config->cache - n)
        return hop_fail(err, HOP_INPUT,
                        "%d tokens after %d do not fit a cache of %d positions; ask for fewer", n,
                        past, config->cache);
    int32_t last = 0;
    for (int32_t begin = 0; begin < n; begin += piece) {
        const int32_t count = n - begin < piece ? n - begin : piece;
        HOP_TRY(run_piece(stage, ids + begin, count, past + begin, n - begin - count, err));
        last = count - 1;
    }
    return read_logits(stage, last, logits, err);
}
