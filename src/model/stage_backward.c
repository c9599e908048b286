/* Backward of the micro-batch kept in a slot.
 *
 * The gradient of the residual stream, d, is updated in place from the last block to the first. The
 * two norms' outputs and silu(gate) * up are computed again: they cost passes over memory, no
 * matrix products, and keeping them would take a third more memory. */
#include <string.h>

#include "model/stage_internal.h"

/* What one block's backward works with. */
struct pass {
    struct hop_stage *stage;
    const struct hop__run *run;
    size_t i; /* block */
    struct hop__block_memory kept;
    const void *h; /* input of the block */
    void *d;       /* (T, hidden) gradient of the stream, in and out */
    void *dnormed; /* (T, wide) */
    char *work;
    bool stops_here; /* nobody wants the gradient of h */
};

static float *gradient_or_null(const struct pass *pass, bool wanted, size_t offset)
{
    return wanted ? pass->stage->gradients + offset : NULL;
}

/* Backward of n projections of the same x from their dy; dx may be NULL. */
static hop_status project_back(const struct pass *pass, const void *x, enum hop_target first,
                               const void *const *dy, int n, void *dx, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__block *const block = &stage->blocks[pass->i];
    struct hop_projection projections[3];
    struct hop_lora loras[3];
    for (int p = 0; p < n; p++) {
        const enum hop_target target = first + (unsigned)p;
        projections[p] = (struct hop_projection){
            .weight = block->weights[target],
            .lora = hop__stage_lora(stage, pass->run, pass->i, target, &loras[p]),
            .u = pass->kept.u[target],
            .dy = dy[p],
            .da = gradient_or_null(pass, hop__stage_trains_first(stage, pass->i, target),
                                   block->a[target]),
            .db = gradient_or_null(pass, hop__stage_trains(stage, pass->i, target),
                                   block->b[target])};
    }
    return stage->ops->project_backward(stage->backend, stage->config.dtype,
                                        (int64_t)pass->run->rows, x, projections, n, dx, err);
}

/* The output of a norm again, where some adapter behind it trains. */
static hop_status norm_again(const struct pass *pass, enum hop_norm which, const void *x,
                             bool wanted, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    if (!wanted)
        return HOP_OK;
    return stage->ops->rmsnorm_forward(stage->backend, stage->config.dtype,
                                       (int64_t)pass->run->rows, stage->config.model.hidden, x,
                                       stage->blocks[pass->i].gains[which],
                                       stage->config.model.norm_eps, pass->kept.normed, NULL, err);
}

/* d += gradient through the norm of dnormed. */
static hop_status norm_back(const struct pass *pass, enum hop_norm which, const void *x,
                            const float *rstd, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    return stage->ops->rmsnorm_backward(
        stage->backend, stage->config.dtype, (int64_t)pass->run->rows, stage->config.model.hidden,
        x, stage->blocks[pass->i].gains[which], rstd, pass->dnormed, pass->d, err);
}

static bool trains_any(const struct pass *pass, enum hop_target first, enum hop_target last)
{
    for (enum hop_target target = first; target <= last; target++)
        if (hop__stage_trains(pass->stage, pass->i, target))
            return true;
    return false;
}

static hop_status feed_forward_back(const struct pass *pass, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__block_memory *const kept = &pass->kept;
    const size_t n = pass->run->rows * stage->layout.intermediate;
    void *const act = pass->work, *const dact = pass->work + n * stage->layout.element;
    const void *const dgate_up[] = {kept->gate, kept->up};
    const void *const d = pass->d;
    if (hop__stage_trains(stage, pass->i, HOP_DOWN_PROJ))
        HOP_TRY(stage->ops->swiglu_forward(stage->backend, stage->config.dtype, (int64_t)n,
                                           kept->gate, kept->up, act, err));
    HOP_TRY(project_back(pass, act, HOP_DOWN_PROJ, &d, 1, dact, err));
    /* The slot is consumed: gate and up become their gradients. */
    HOP_TRY(stage->ops->swiglu_backward(stage->backend, stage->config.dtype, (int64_t)n, kept->gate,
                                        kept->up, dact, kept->gate, kept->up, err));
    HOP_TRY(norm_again(pass, HOP_POST_ATTENTION_NORM, kept->mid,
                       trains_any(pass, HOP_GATE_PROJ, HOP_UP_PROJ), err));
    HOP_TRY(project_back(pass, kept->normed, HOP_GATE_PROJ, dgate_up, 2, pass->dnormed, err));
    HOP_TRY(hop__stage_reduce(stage, pass->run, pass->dnormed, err));
    return norm_back(pass, HOP_POST_ATTENTION_NORM, kept->mid, kept->rstd2, err);
}

static hop_status rotate_back(const struct pass *pass, int32_t heads, void *dx,
                              struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const int32_t head_dim = stage->config.model.head_dim;
    return stage->ops->rope_backward(stage->backend, stage->config.dtype, (int64_t)pass->run->rows,
                                     heads, head_dim, (int64_t)heads * head_dim,
                                     pass->run->position, pass->run->cosine, pass->run->sine, dx,
                                     err);
}

/* Gradient of q, k, v (at work) from that of the attention output (at dnormed). */
static hop_status attention_core_back(const struct pass *pass, void *const *dqkv,
                                      struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop_model_config *const model = &stage->config.model;
    const struct hop__block_memory *const kept = &pass->kept;
    const struct hop_attention shape = hop__attention_shape(stage, pass->run);
    HOP_TRY(stage->ops->attention_backward(stage->backend, stage->config.dtype, &shape, kept->q,
                                           kept->k, kept->v, kept->attention, kept->lse,
                                           pass->dnormed, dqkv[0], dqkv[1], dqkv[2], err));
    HOP_TRY(rotate_back(pass, model->heads, dqkv[0], err));
    return rotate_back(pass, model->kv_heads, dqkv[1], err);
}

static hop_status attention_back(const struct pass *pass, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__stage_layout *const layout = &stage->layout;
    const size_t q_bytes = pass->run->rows * layout->heads_out * layout->element;
    const size_t kv_bytes = pass->run->rows * layout->kv_out * layout->element;
    void *const dqkv[] = {pass->work, pass->work + q_bytes, pass->work + q_bytes + kv_bytes};
    const void *const dy[] = {dqkv[0], dqkv[1], dqkv[2]};
    const void *const d = pass->d;
    const bool trains = trains_any(pass, HOP_Q_PROJ, HOP_V_PROJ);
    const bool deeper = trains || !pass->stops_here;
    HOP_TRY(project_back(pass, pass->kept.attention, HOP_O_PROJ, &d, 1,
                         deeper ? pass->dnormed : NULL, err));
    if (!deeper)
        return HOP_OK;
    HOP_TRY(attention_core_back(pass, dqkv, err));
    HOP_TRY(norm_again(pass, HOP_INPUT_NORM, pass->h, trains, err));
    HOP_TRY(project_back(pass, pass->kept.normed, HOP_Q_PROJ, dy, 3,
                         pass->stops_here ? NULL : pass->dnormed, err));
    if (pass->stops_here)
        return HOP_OK;
    HOP_TRY(hop__stage_reduce(stage, pass->run, pass->dnormed, err));
    return norm_back(pass, HOP_INPUT_NORM, pass->h, pass->kept.rstd1, err);
}

/* The gradient behind the last block into d. */
static hop_status take_gradient(struct hop_stage *stage, const struct hop_batch *batch,
                                int32_t slot, const void *doutput, void *d, struct hop_error *err)
{
    const struct hop__stage_layout *const layout = &stage->layout;
    const size_t bytes = (size_t)batch->tokens * layout->hidden * layout->element;
    if (!stage->config.head)
        return stage->ops->write(stage->backend, d, doutput, bytes, err);
    const size_t n = hop__head_rows(stage, batch, 1);
    return stage->ops->gather_backward(stage->backend, stage->config.dtype, (int64_t)n,
                                       stage->config.model.hidden,
                                       hop__stage_kept_head(stage, slot),
                                       hop__index(stage, layout->index.row), batch->tokens, d, err);
}

static hop_status run_blocks(struct hop_stage *stage, const struct hop__run *run, int32_t slot,
                             void *d, bool wants_input, struct hop_error *err)
{
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    for (size_t i = stage->layout.blocks; i-- > 0;) {
        const struct pass pass = {.stage = stage,
                                  .run = run,
                                  .i = i,
                                  .kept = hop__stage_memory(stage, slot, i, run->rows),
                                  .h = hop__stage_kept_input(stage, slot, i),
                                  .d = d,
                                  .dnormed = hop__scratch(stage, scratch->dnormed),
                                  .work = hop__scratch(stage, scratch->work),
                                  .stops_here = i == 0 && !wants_input};
        HOP_TRY(feed_forward_back(&pass, err));
        HOP_TRY(attention_back(&pass, err));
    }
    return HOP_OK;
}

/* Shards go equally deep, whichever of them passes the gradient of the input on. */
static bool goes_to_input(const struct hop_stage *stage, const void *dinput)
{
    return !stage->config.embed && (dinput || !hop_shard_is_whole(&stage->config.shard));
}

static hop_status run_backward(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                               const void *doutput, void *dinput, struct hop_error *err)
{
    const size_t bytes = (size_t)batch->tokens * stage->layout.hidden * stage->layout.element;
    const bool wants_input = goes_to_input(stage, dinput);
    const bool trains =
        stage->config.gradient == HOP_GRADIENT_BACKPROP && stage->parameters.count > 0;
    const bool direct = wants_input && dinput && stage->ops->host_memory;
    void *const d = direct ? dinput : hop__scratch(stage, stage->layout.scratch.stream);
    struct hop__run run;
    if (!wants_input && !trains)
        return HOP_OK;
    HOP_TRY(hop__stage_run(stage, batch, 1, &run, err));
    HOP_TRY(take_gradient(stage, batch, slot, doutput, d, err));
    HOP_TRY(run_blocks(stage, &run, slot, d, wants_input, err));
    if (trains)
        HOP_TRY(hop__stage_fetch_gradients(stage, err));
    if (wants_input && dinput && !direct)
        return stage->ops->read(stage->backend, dinput, d, bytes, err);
    return HOP_OK;
}

hop_status hop_stage_backward(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                              const void *doutput, void *dinput, struct hop_error *err)
{
    const bool lost = stage->config.head && !hop__stage_keeps_loss(&stage->config);
    if (!hop__stage_holds(stage, slot))
        return hop_fail(err, HOP_INTERNAL, "backward of slot %d, which holds no micro-batch", slot);
    if (lost || !hop_ops_bp_capable(stage->ops))
        return hop_fail(err, HOP_INTERNAL,
                        "backward of slot %d, which keeps no more than forward "
                        "operations need",
                        slot);
    stage->slot_used[slot] = false;
    return run_backward(stage, batch, slot, doutput, dinput, err);
}
