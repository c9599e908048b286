/* Forward of the blocks, kept for backward or not. */
#include <math.h>
#include <string.h>

#include "model/stage_internal.h"

/* Sets up projection `target` of block i that writes y; returns it for further wiring. */
static void set_projection(const struct hop_stage *stage, const struct hop__run *run, size_t i,
                           enum hop_target target, const struct hop__block_memory *memory, void *y,
                           struct hop_lora *lora, struct hop_projection *out)
{
    *out = (struct hop_projection){.weight = stage->blocks[i].weights[target],
                                   .bias = stage->blocks[i].biases[target],
                                   .lora = hop__stage_lora(stage, run, i, target, lora),
                                   .y = y,
                                   .u = memory->u[target]};
}

static hop_status project(struct hop_stage *stage, size_t i, const struct hop__run *run,
                          const struct hop__block_memory *memory, const void *x,
                          enum hop_target first, void *const *y, int n, const void *residual,
                          struct hop_error *err)
{
    struct hop_projection projections[3];
    struct hop_lora loras[3];
    for (int p = 0; p < n; p++)
        set_projection(stage, run, i, first + (unsigned)p, memory, y[p], &loras[p],
                       &projections[p]);
    return stage->ops->project_forward(stage->backend, stage->config.dtype, (int64_t)run->rows, x,
                                       projections, n, residual, err);
}

hop_status hop__stage_norm(struct hop_stage *stage, size_t i, enum hop_norm which,
                           const struct hop__run *run, const void *x, void *y, float *rstd,
                           struct hop_error *err)
{
    return stage->ops->rmsnorm_forward(stage->backend, stage->config.dtype, (int64_t)run->rows,
                                       stage->config.model.hidden, x, stage->blocks[i].gains[which],
                                       stage->config.model.norm_eps, y, rstd, err);
}

hop_status hop__stage_rotate(struct hop_stage *stage, const struct hop__run *run, int32_t heads,
                             void *x, struct hop_error *err)
{
    const int32_t head_dim = stage->config.model.head_dim;
    return stage->ops->rope_forward(stage->backend, stage->config.dtype, (int64_t)run->rows, heads,
                                    head_dim, (int64_t)heads * head_dim, run->position, run->cosine,
                                    run->sine, x, err);
}

struct hop_attention hop__attention_shape(const struct hop_stage *stage, const struct hop__run *run)
{
    const struct hop_model_config *const model = &stage->config.model;
    const int32_t group = stage->whole.heads / stage->whole.kv_heads;
    return (struct hop_attention){.sequences = run->sequences,
                                  .heads = model->heads,
                                  .kv_heads = model->kv_heads,
                                  .head_dim = model->head_dim,
                                  .group = group,
                                  .first = stage->first_head % group,
                                  .q_offset = run->q_offset,
                                  .kv_offset = run->kv_offset,
                                  .q_stride = (int64_t)stage->layout.heads_out,
                                  .kv_stride = (int64_t)stage->layout.kv_out,
                                  .scale = 1 / sqrtf((float)model->head_dim)};
}

/* Of the shards whose results are added up, one adds the stream. */
static const void *residual(const struct hop_stage *stage, const void *stream)
{
    return hop_shard_is_first(&stage->config.shard) ? stream : NULL;
}

static hop_status attention_half(struct hop_stage *stage, size_t i, const struct hop__run *run,
                                 const struct hop__block_memory *memory, const void *h,
                                 struct hop_error *err)
{
    const struct hop_model_config *const model = &stage->config.model;
    const struct hop_attention shape = hop__attention_shape(stage, run);
    void *const qkv[] = {memory->q, memory->k, memory->v};
    HOP_TRY(hop__stage_norm(stage, i, HOP_INPUT_NORM, run, h, memory->normed, memory->rstd1, err));
    HOP_TRY(project(stage, i, run, memory, memory->normed, HOP_Q_PROJ, qkv, 3, NULL, err));
    HOP_TRY(hop__stage_rotate(stage, run, model->heads, memory->q, err));
    HOP_TRY(hop__stage_rotate(stage, run, model->kv_heads, memory->k, err));
    if (run->place)
        HOP_TRY(hop__cached_attention(stage, i, run, memory, err));
    else
        HOP_TRY(stage->ops->attention_forward(stage->backend, stage->config.dtype, &shape,
                                              memory->q, memory->keys, memory->values,
                                              memory->attention, memory->lse, err));
    HOP_TRY(project(stage, i, run, memory, memory->attention, HOP_O_PROJ, &memory->mid, 1,
                    residual(stage, h), err));
    return hop__stage_reduce(stage, run, memory->mid, err);
}

static hop_status feed_forward_half(struct hop_stage *stage, size_t i, const struct hop__run *run,
                                    const struct hop__block_memory *memory, void *out,
                                    struct hop_error *err)
{
    const int64_t n = (int64_t)(run->rows * stage->layout.intermediate);
    void *const gate_up[] = {memory->gate, memory->up};
    HOP_TRY(hop__stage_norm(stage, i, HOP_POST_ATTENTION_NORM, run, memory->mid, memory->normed,
                            memory->rstd2, err));
    HOP_TRY(project(stage, i, run, memory, memory->normed, HOP_GATE_PROJ, gate_up, 2, NULL, err));
    HOP_TRY(stage->ops->swiglu_forward(stage->backend, stage->config.dtype, n, memory->gate,
                                       memory->up, memory->act, err));
    HOP_TRY(project(stage, i, run, memory, memory->act, HOP_DOWN_PROJ, &out, 1,
                    residual(stage, memory->mid), err));
    return hop__stage_reduce(stage, run, out, err);
}

hop_status hop__block_forward(struct hop_stage *stage, size_t i, const struct hop__run *run,
                              const struct hop__block_memory *memory, const void *h, void *out,
                              struct hop_error *err)
{
    HOP_TRY(attention_half(stage, i, run, memory, h, err));
    return feed_forward_half(stage, i, run, memory, out, err);
}

/* Where block i reads its input, and where the last one writes. */
static void *block_input(const struct hop_stage *stage, int32_t slot, size_t i, void *last)
{
    if (i == stage->layout.blocks)
        return last;
    return slot >= 0 ? hop__stage_kept_input(stage, slot, i)
                     : hop__scratch(stage, stage->layout.scratch.stream);
}

/* Stores the address of the hidden states in front of the first block. Host memory that nobody
 * needs later is used where it is. */
static hop_status take_input(struct hop_stage *stage, const struct hop__run *run, int32_t slot,
                             const void *input, void *last, const void **h, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    void *const to = block_input(stage, slot, 0, last);
    *h = to;
    if (config->embed)
        return stage->ops->embed_forward(stage->backend, config->dtype, stage->embed,
                                         (int32_t)run->rows, run->ids, to, err);
    if (stage->ops->host_memory && slot < 0) {
        *h = input;
        return HOP_OK;
    }
    return stage->ops->write(stage->backend, to, input,
                             run->rows * stage->layout.hidden * stage->layout.element, err);
}

static hop_status run_blocks(struct hop_stage *stage, const struct hop__run *run, int32_t slot,
                             void *last, const void **h, struct hop_error *err)
{
    for (size_t i = 0; i < stage->layout.blocks; i++) {
        const struct hop__block_memory memory = hop__stage_memory(stage, slot, i, run->rows);
        void *const out = block_input(stage, slot, i + 1, last);
        HOP_TRY(hop__block_forward(stage, i, run, &memory, *h, out, err));
        *h = out;
    }
    return HOP_OK;
}

hop_status hop__stage_body(struct hop_stage *stage, const struct hop__run *run, int32_t slot,
                           const void *input, void *output, const void **h, struct hop_error *err)
{
    const bool wanted = output && !stage->config.head;
    const bool direct = wanted && stage->ops->host_memory;
    void *const last = direct ? output : hop__scratch(stage, stage->layout.scratch.stream);
    HOP_TRY(take_input(stage, run, slot, input, last, h, err));
    HOP_TRY(run_blocks(stage, run, slot, last, h, err));
    if (direct || !wanted)
        return HOP_OK;
    return stage->ops->read(stage->backend, output, *h,
                            run->rows * stage->layout.hidden * stage->layout.element, err);
}

hop_status hop__stage_forward(struct hop_stage *stage, const struct hop_batch *batch,
                              const struct hop__run *run, int32_t slot, const void *input,
                              void *output, float *logprob, struct hop_error *err)
{
    const void *h;
    HOP_TRY(hop__stage_body(stage, run, slot, input, output, &h, err));
    const bool exits = stage->config.exit && logprob;
    return stage->config.head || exits ? hop__head_forward(stage, batch, run, slot, h, logprob, err)
                                       : HOP_OK;
}

static hop_status check_slot(const struct hop_stage *stage, int32_t slot, struct hop_error *err)
{
    if (slot >= stage->config.slots)
        return hop_fail(err, HOP_INTERNAL, "slot %d of a stage with %d", slot, stage->config.slots);
    if (slot >= 0 && stage->slot_used[slot])
        return hop_fail(err, HOP_INTERNAL, "slot %d still holds a micro-batch", slot);
    return HOP_OK;
}

hop_status hop_stage_forward(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                             const void *input, void *output, float *logprob, struct hop_error *err)
{
    struct hop__run run;
    HOP_TRY(check_slot(stage, slot, err));
    HOP_TRY(hop__stage_run(stage, batch, 1, &run, err));
    HOP_TRY(hop__stage_forward(stage, batch, &run, slot, input, output, logprob, err));
    if (slot >= 0)
        stage->slot_used[slot] = true;
    return HOP_OK;
}
