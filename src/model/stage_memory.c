/* Where the tensors of a call lie. */
#include <string.h>

#include "model/stage_internal.h"

static char *slot_block(const struct hop_stage *stage, int32_t slot, size_t i)
{
    return stage->kept + (size_t)slot * stage->layout.kept_bytes + i * stage->layout.kept.bytes;
}

bool hop__stage_holds(const struct hop_stage *stage, int32_t slot)
{
    return slot >= 0 && slot < stage->config.slots && stage->slot_used[slot];
}

void hop_stage_release(struct hop_stage *stage, int32_t slot)
{
    if (hop__stage_holds(stage, slot))
        stage->slot_used[slot] = false;
}

void *hop__stage_kept_input(const struct hop_stage *stage, int32_t slot, size_t i)
{
    return slot_block(stage, slot, i) + stage->layout.kept.h;
}

void *hop__stage_kept_head(const struct hop_stage *stage, int32_t slot)
{
    return stage->kept + (size_t)slot * stage->layout.kept_bytes + stage->layout.kept_head;
}

static float *floats(char *base, size_t offset)
{
    return (float *)(void *)(base + offset);
}

static struct hop__block_memory slot_memory(const struct hop_stage *stage, int32_t slot, size_t i)
{
    const struct hop__kept_layout *const kept = &stage->layout.kept;
    char *const base = slot_block(stage, slot, i);
    struct hop__block_memory memory = {
        .normed = hop__scratch(stage, stage->layout.scratch.normed),
        .q = base + kept->q,
        .k = base + kept->k,
        .v = base + kept->v,
        .attention = base + kept->attention,
        .mid = base + kept->mid,
        .gate = base + kept->gate,
        .up = base + kept->up,
        .act = hop__scratch(stage, stage->layout.scratch.work),
        .keys = base + kept->k,
        .values = base + kept->v,
        .rstd1 = floats(base, kept->rstd1),
        .lse = floats(base, kept->lse),
        .rstd2 = floats(base, kept->rstd2),
    };
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        if (hop__stage_rank(stage, i, target) > 0)
            memory.u[target] = floats(base, kept->u[target]);
    return memory;
}

/* q, k, v and gate, up take turns in `work`; attention overwrites the norm it came from, the
 * residual stream is updated in place. */
static struct hop__block_memory scratch_memory(const struct hop_stage *stage, size_t rows)
{
    const struct hop__stage_layout *const layout = &stage->layout;
    char *const work = hop__scratch(stage, layout->scratch.work);
    char *const k = work + rows * layout->heads_out * layout->element;
    char *const v = k + rows * layout->kv_out * layout->element;
    void *const normed = hop__scratch(stage, layout->scratch.normed);
    return (struct hop__block_memory){
        .normed = normed,
        .q = work,
        .k = k,
        .v = v,
        .attention = normed,
        .mid = hop__scratch(stage, layout->scratch.stream),
        .gate = work,
        .up = work + rows * layout->intermediate * layout->element,
        .act = work,
        .keys = k,
        .values = v,
    };
}

struct hop__block_memory hop__stage_memory(const struct hop_stage *stage, int32_t slot, size_t i,
                                           size_t rows)
{
    return slot >= 0 ? slot_memory(stage, slot, i) : scratch_memory(stage, rows);
}

static void repeat(int32_t *to, const int32_t *from, size_t n, size_t copies)
{
    for (size_t c = 0; c < copies; c++)
        memcpy(to + c * n, from, n * sizeof *to);
}

/* Offsets of `copies` runs of the same sequences. */
static const int32_t *repeat_offsets(const struct hop_batch *batch, int32_t copies, int32_t *to)
{
    for (int32_t c = 0; c < copies; c++)
        for (int32_t s = 0; s < batch->sequences; s++)
            to[c * batch->sequences + s] = c * batch->tokens + batch->offset[s];
    to[copies * batch->sequences] = copies * batch->tokens;
    return to;
}

static bool fits(const struct hop_stage *stage, const struct hop_batch *batch, int32_t copies)
{
    const struct hop_batch_limits *const limits = &stage->config.limits;
    const int32_t most = stage->config.probes > 1 ? stage->config.probes : 1;
    return batch->sequences >= 0 && batch->sequences <= limits->sequences && batch->tokens >= 0 &&
           batch->tokens <= limits->tokens && batch->labels >= 0 &&
           batch->labels <= limits->labels && copies >= 1 && copies <= most;
}

static void repeat_run(struct hop_stage *stage, const struct hop_batch *batch, int32_t copies,
                       struct hop__run *out)
{
    const struct hop__index_layout *const index = &stage->layout.index;
    const size_t tokens = (size_t)batch->tokens;
    repeat(hop__index(stage, index->position), batch->position, tokens, (size_t)copies);
    out->position = hop__index(stage, index->position);
    if (stage->config.embed) {
        repeat(hop__index(stage, index->ids), batch->ids, tokens, (size_t)copies);
        out->ids = hop__index(stage, index->ids);
    }
    out->q_offset = repeat_offsets(batch, copies, hop__index(stage, index->q_offset));
    out->kv_offset = out->q_offset;
}

hop_status hop__stage_run(struct hop_stage *stage, const struct hop_batch *batch, int32_t copies,
                          struct hop__run *out, struct hop_error *err)
{
    if (!fits(stage, batch, copies))
        return hop_fail(err, HOP_INTERNAL,
                        "a micro-batch of %d sequences, %d tokens, %d labels in %d copies does not "
                        "fit the stage's buffers",
                        batch->sequences, batch->tokens, batch->labels, copies);
    *out = (struct hop__run){.rows = (size_t)copies * (size_t)batch->tokens,
                             .sequences = copies * batch->sequences,
                             .groups = 1,
                             .ids = batch->ids,
                             .position = batch->position,
                             .q_offset = batch->offset,
                             .kv_offset = batch->offset};
    if (copies > 1)
        repeat_run(stage, batch, copies, out);
    return hop__stage_rotation(stage, (size_t)batch->tokens, out, err);
}

hop_status hop__stage_zero(struct hop_stage *stage, void *memory, size_t bytes,
                           struct hop_error *err)
{
    static const char zeros[4096];
    if (stage->ops->host_memory) {
        memset(memory, 0, bytes);
        return HOP_OK;
    }
    for (size_t done = 0; done < bytes; done += sizeof zeros) {
        const size_t n = bytes - done < sizeof zeros ? bytes - done : sizeof zeros;
        HOP_TRY(stage->ops->write(stage->backend, (char *)memory + done, zeros, n, err));
    }
    return HOP_OK;
}
