/* Adapter gradients from one gradient of hidden states taken for that of every block's output.
 *
 * o_proj and down_proj are added to the residual stream, so that the gradient of the stream is the
 * gradient of what they compute: with delta in its place, two products of matrices a projection. */
#include "model/stage_internal.h"

/* What one block's gradients work with. */
struct pass {
    struct hop_stage *stage;
    const struct hop__run *run;
    size_t i; /* block */
    struct hop__block_memory kept;
    const void *delta; /* (T, hidden) */
};

/* Adds to the gradients of a projection of x. */
static hop_status add_gradient(const struct pass *pass, enum hop_target target, const void *x,
                               struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__block *const block = &stage->blocks[pass->i];
    const bool core = hop_lora_has_core(&stage->config.lora, stage->config.lo + (int32_t)pass->i);
    struct hop_lora lora;
    const struct hop_projection projection = {
        .weight = block->weights[target],
        .lora = hop__stage_lora(stage, pass->run, pass->i, target, &lora),
        .u = pass->kept.u[target],
        .dy = pass->delta,
        .da = core ? NULL : stage->gradients + block->a[target],
        .db = stage->gradients + block->b[target]};
    return stage->ops->adapter_gradient(stage->backend, stage->config.dtype,
                                        (int64_t)pass->run->rows, x, &projection, err);
}

static hop_status block_feedback(const struct pass *pass, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__block_memory *const kept = &pass->kept;
    const int64_t n = (int64_t)(pass->run->rows * stage->layout.intermediate);
    if (hop__stage_rank(stage, pass->i, HOP_O_PROJ) > 0)
        HOP_TRY(add_gradient(pass, HOP_O_PROJ, kept->attention, err));
    if (hop__stage_rank(stage, pass->i, HOP_DOWN_PROJ) == 0)
        return HOP_OK;
    HOP_TRY(stage->ops->swiglu_forward(stage->backend, stage->config.dtype, n, kept->gate, kept->up,
                                       kept->act, err));
    return add_gradient(pass, HOP_DOWN_PROJ, kept->act, err);
}

/* Host memory is read where it is. */
static hop_status take_delta(struct hop_stage *stage, const struct hop__run *run, const void *delta,
                             const void **d, struct hop_error *err)
{
    const size_t bytes = run->rows * stage->layout.hidden * stage->layout.element;
    void *const stream = hop__scratch(stage, stage->layout.scratch.stream);
    *d = stage->ops->host_memory ? delta : stream;
    if (stage->ops->host_memory)
        return HOP_OK;
    return stage->ops->write(stage->backend, stream, delta, bytes, err);
}

static hop_status check_call(const struct hop_stage *stage, int32_t slot, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    if (!hop__stage_holds(stage, slot))
        return hop_fail(err, HOP_INTERNAL, "feedback to slot %d, which holds no micro-batch", slot);
    if (config->gradient != HOP_GRADIENT_ZEROTH_ORDER || config->head)
        return hop_fail(err, HOP_INTERNAL, "feedback to blocks %d to %d, which backpropagate",
                        config->lo, config->hi);
    return HOP_OK;
}

hop_status hop_stage_feedback(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                              int32_t lo, const void *delta, struct hop_error *err)
{
    struct hop__run run;
    const void *d;
    HOP_TRY(check_call(stage, slot, err));
    HOP_TRY(hop__stage_run(stage, batch, 1, &run, err));
    HOP_TRY(take_delta(stage, &run, delta, &d, err));
    const int32_t first = lo > stage->config.lo ? lo - stage->config.lo : 0;
    for (size_t i = (size_t)first; i < stage->layout.blocks; i++) {
        const struct pass pass = {.stage = stage,
                                  .run = &run,
                                  .i = i,
                                  .kept = hop__stage_memory(stage, slot, i, run.rows),
                                  .delta = d};
        HOP_TRY(block_feedback(&pass, err));
    }
    return hop__stage_fetch_gradients(stage, err);
}
