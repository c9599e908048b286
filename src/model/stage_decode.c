/* Decoding with the key/value cache: each call appends to it. */
#include <string.h>

#include "model/stage_internal.h"

/* The cache of block i begins with the keys of its first sequence, then its values. */
static char *cached_keys(const struct hop_stage *stage, size_t i, int32_t place)
{
    const struct hop__stage_layout *const layout = &stage->layout;
    const size_t bytes = (size_t)stage->config.cache * layout->kv_out * layout->element;
    char *const cache = hop__scratch(stage, layout->scratch.cache);
    return cache + 2 * (i * layout->cached + (size_t)place) * bytes;
}

/* The new rows of one sequence, behind those that are there. */
static hop_status store(struct hop_stage *stage, int32_t n, int32_t past, const char *from,
                        char *cache, struct hop_error *err)
{
    const size_t row = stage->layout.kv_out * stage->layout.element;
    return stage->ops->gather_forward(
        stage->backend, stage->config.dtype, n, (int64_t)stage->layout.kv_out, from,
        hop__index(stage, stage->layout.index.ascending), cache + (size_t)past * row, err);
}

static hop_status attend(struct hop_stage *stage, size_t i, const struct hop__run *run, int32_t s,
                         const struct hop__block_memory *memory, struct hop_error *err)
{
    const struct hop__stage_layout *const layout = &stage->layout;
    const size_t first = (size_t)run->q_offset[s];
    const int32_t n = run->q_offset[s + 1] - run->q_offset[s], past = run->past[s];
    const int32_t queries[] = {0, n}, known[] = {0, past + n};
    const size_t q = first * layout->heads_out * layout->element;
    const size_t kv = first * layout->kv_out * layout->element;
    char *const keys = cached_keys(stage, i, run->place[s]);
    char *const values = keys + (size_t)stage->config.cache * layout->kv_out * layout->element;
    struct hop_attention shape = hop__attention_shape(stage, run);
    shape.sequences = 1;
    shape.q_offset = queries;
    shape.kv_offset = known;
    HOP_TRY(store(stage, n, past, (const char *)memory->k + kv, keys, err));
    HOP_TRY(store(stage, n, past, (const char *)memory->v + kv, values, err));
    return stage->ops->attention_forward(stage->backend, stage->config.dtype, &shape,
                                         (const char *)memory->q + q, keys, values,
                                         (char *)memory->attention + q, NULL, err);
}

hop_status hop__cached_attention(struct hop_stage *stage, size_t i, const struct hop__run *run,
                                 const struct hop__block_memory *memory, struct hop_error *err)
{
    for (int32_t s = 0; s < run->sequences; s++)
        HOP_TRY(attend(stage, i, run, s, memory, err));
    return HOP_OK;
}

static hop_status check_sequence(const struct hop_stage *stage, const struct hop_continuation *call,
                                 int32_t s, struct hop_error *err)
{
    const int32_t n = call->offset[s + 1] - call->offset[s], past = call->past[s];
    if (call->place[s] < 0 || (size_t)call->place[s] >= stage->layout.cached)
        return hop_fail(err, HOP_INTERNAL, "sequence %d of a cache of %zu", call->place[s],
                        stage->layout.cached);
    if (n < 1 || past < 0 || past > stage->config.cache - n)
        return hop_fail(err, HOP_INPUT,
                        "%d tokens after %d do not fit a cache of %d positions; ask for fewer", n,
                        past, stage->config.cache);
    return HOP_OK;
}

static hop_status check_call(const struct hop_stage *stage, const struct hop_continuation *call,
                             struct hop_error *err)
{
    const struct hop_batch_limits *const limits = &stage->config.limits;
    if (call->sequences < 1 || (size_t)call->sequences > stage->layout.decoded ||
        call->tokens > limits->tokens || call->offset[call->sequences] != call->tokens)
        return hop_fail(err, HOP_INTERNAL,
                        "%d sequences with %d tokens to decode do not fit the stage's buffers",
                        call->sequences, call->tokens);
    for (int32_t s = 0; s < call->sequences; s++)
        HOP_TRY(check_sequence(stage, call, s, err));
    return HOP_OK;
}

static hop_status make_run(struct hop_stage *stage, const struct hop_continuation *call,
                           int32_t future, struct hop__run *out, struct hop_error *err)
{
    const struct hop__index_layout *const index = &stage->layout.index;
    int32_t *const position = hop__index(stage, index->position);
    int32_t *const ascending = hop__index(stage, index->ascending);
    for (int32_t s = 0; s < call->sequences; s++)
        for (int32_t t = call->offset[s]; t < call->offset[s + 1]; t++)
            position[t] = call->past[s] + t - call->offset[s];
    for (int32_t t = 0; t < call->tokens; t++)
        ascending[t] = t;
    *out = (struct hop__run){.rows = (size_t)call->tokens,
                             .sequences = call->sequences,
                             .groups = 1,
                             .ids = call->ids,
                             .position = position,
                             .q_offset = call->offset,
                             .kv_offset = call->offset,
                             .past = call->past,
                             .place = call->place,
                             .future = future};
    return hop__stage_rotation(stage, out->rows, out, err);
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

/* The last row of every sequence, normed, in `work`. */
static hop_status norm_last_rows(struct hop_stage *stage, const struct hop__run *run, const void *h,
                                 struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    int32_t *const row = hop__index(stage, stage->layout.index.row);
    void *const last = hop__scratch(stage, scratch->normed);
    for (int32_t s = 0; s < run->sequences; s++)
        row[s] = run->q_offset[s + 1] - 1;
    HOP_TRY(stage->ops->gather_forward(stage->backend, config->dtype, run->sequences,
                                       config->model.hidden, h, row, last, err));
    return stage->ops->rmsnorm_forward(
        stage->backend, config->dtype, run->sequences, config->model.hidden, last,
        stage->final_gain, config->model.norm_eps, hop__scratch(stage, scratch->work), NULL, err);
}

static hop_status read_logits(struct hop_stage *stage, const struct hop__run *run, const void *h,
                              float *logits, struct hop_error *err)
{
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    const size_t n = (size_t)run->sequences * (size_t)stage->config.model.vocabulary;
    const struct hop_projection head = {.weight = stage->head,
                                        .y = hop__scratch(stage, scratch->logits)};
    HOP_TRY(norm_last_rows(stage, run, h, err));
    HOP_TRY(stage->ops->project_forward(stage->backend, stage->config.dtype, run->sequences,
                                        hop__scratch(stage, scratch->work), &head, 1, NULL, err));
    HOP_TRY(stage->ops->read(stage->backend, logits, head.y, n * stage->layout.element, err));
    if (stage->config.dtype != HOP_F32)
        widen(logits, n);
    return HOP_OK;
}

hop_status hop_stage_continue(struct hop_stage *stage, const struct hop_continuation *call,
                              const void *input, void *output, float *logits, struct hop_error *err)
{
    struct hop__run run;
    const void *h;
    HOP_TRY(check_call(stage, call, err));
    HOP_TRY(make_run(stage, call, 0, &run, err));
    HOP_TRY(hop__stage_body(stage, &run, -1, input, output, &h, err));
    return stage->config.head ? read_logits(stage, &run, h, logits, err) : HOP_OK;
}

/* One sequence in calls of what the stage can take at once. */
hop_status hop_stage_decode(struct hop_stage *stage, const int32_t *ids, int32_t n, int32_t past,
                            float *logits, struct hop_error *err)
{
    const int32_t whole[] = {0, n}, first = 0;
    const struct hop_continuation all = {
        .sequences = 1, .tokens = n, .offset = whole, .past = &past, .place = &first};
    const void *h = NULL;
    struct hop__run run;
    if (!stage->config.embed || !stage->config.head || stage->config.cache == 0)
        return hop_fail(err, HOP_INTERNAL,
                        "decoding needs embedding, head and a cache in one stage");
    HOP_TRY(check_sequence(stage, &all, 0, err));
    for (int32_t begin = 0; begin < n;) {
        const int32_t most = stage->config.limits.tokens;
        const int32_t count = n - begin < most ? n - begin : most;
        const int32_t piece[] = {0, count}, before = past + begin;
        const struct hop_continuation call = {.sequences = 1,
                                              .tokens = count,
                                              .ids = ids + begin,
                                              .offset = piece,
                                              .past = &before,
                                              .place = &first};
        begin += count;
        HOP_TRY(make_run(stage, &call, n - begin, &run, err));
        HOP_TRY(hop__stage_body(stage, &run, -1, NULL, NULL, &h, err));
        if (begin == n)
            return read_logits(stage, &run, h, logits, err);
    }
    return HOP_OK;
}

int32_t hop_likeliest(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}
