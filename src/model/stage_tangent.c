/* Tangents of a stage's output, around the micro-batch kept in a slot.
 *
 * Forward-mode differentiation: beside the kept activations of every operation, the tangents of its
 * inputs become those of its outputs. The tangents of the residual stream, d, run through the
 * blocks in the memory that a forward of as many copies takes. NULL stands for tangents that are
 * zero, in front of the first adapter. The two norms' outputs and silu(gate) * up are computed
 * again, as in backward. */
#include <string.h>

#include "model/stage_internal.h"

/* What one block's tangents work with. */
struct pass {
    struct hop_stage *stage;
    const struct hop__run *run;  /* all tangents one after the other */
    const struct hop__run *once; /* the micro-batch itself */
    int32_t count;
    size_t i; /* block */
    struct hop__block_memory kept, moved;
    const void *h; /* input of the block */
    void *x;       /* (T, hidden or intermediate) what projections read, computed again */
};

static bool adapted(const struct pass *pass, enum hop_target first, int n)
{
    for (int p = 0; p < n; p++)
        if (hop__stage_rank(pass->stage, pass->i, first + (unsigned)p) > 0)
            return true;
    return false;
}

static hop_status project(const struct pass *pass, const void *x, const void *dx,
                          enum hop_target first, void *const *dy, int n, const void *residual,
                          struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    struct hop_projection_tangent projections[3];
    struct hop_lora loras[3];
    for (int p = 0; p < n; p++) {
        const enum hop_target target = first + (unsigned)p;
        projections[p] = (struct hop_projection_tangent){
            .weight = stage->blocks[pass->i].weights[target],
            .lora = hop__stage_lora(stage, pass->run, pass->i, target, &loras[p]),
            .u = pass->kept.u[target],
            .dy = dy[p]};
        hop__stage_directions(stage, pass->run, pass->i, target, &projections[p]);
    }
    return stage->ops->project_tangent(stage->backend, stage->config.dtype, pass->count,
                                       (int64_t)pass->once->rows, x, dx, projections, n, residual,
                                       err);
}

/* Tangents behind a norm of d, and the norm's own output for the n adapters behind it. */
static hop_status norm(const struct pass *pass, enum hop_norm which, const void *x,
                       const float *rstd, const void *d, enum hop_target first, int n,
                       struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    if (adapted(pass, first, n))
        HOP_TRY(hop__stage_norm(stage, pass->i, which, pass->once, x, pass->x, NULL, err));
    if (!d)
        return HOP_OK;
    return stage->ops->rmsnorm_tangent(stage->backend, stage->config.dtype, pass->count,
                                       (int64_t)pass->once->rows, stage->config.model.hidden, x,
                                       stage->blocks[pass->i].gains[which], rstd, d,
                                       pass->moved.normed, err);
}

/* Of the attention output, from d in front of the block. */
static hop_status attention_core(const struct pass *pass, const void *d, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop_model_config *const model = &stage->config.model;
    const struct hop__block_memory *const kept = &pass->kept, *const moved = &pass->moved;
    const struct hop_attention shape = hop__attention_shape(stage, pass->once);
    void *const dqkv[] = {moved->q, moved->k, moved->v};
    HOP_TRY(norm(pass, HOP_INPUT_NORM, pass->h, kept->rstd1, d, HOP_Q_PROJ, 3, err));
    HOP_TRY(project(pass, pass->x, d ? moved->normed : NULL, HOP_Q_PROJ, dqkv, 3, NULL, err));
    HOP_TRY(hop__stage_rotate(stage, pass->run, model->heads, moved->q, err));
    HOP_TRY(hop__stage_rotate(stage, pass->run, model->kv_heads, moved->k, err));
    return stage->ops->attention_tangent(stage->backend, stage->config.dtype, &shape, pass->count,
                                         kept->q, kept->k, kept->v, kept->attention, kept->lse,
                                         moved->q, moved->k, moved->v, moved->attention, err);
}

/* *d in front of the block becomes that after the attention residual. */
static hop_status attention_half(const struct pass *pass, const void **d, struct hop_error *err)
{
    const bool moves = *d || adapted(pass, HOP_Q_PROJ, 3);
    void *const mid = pass->moved.mid;
    if (!moves && !adapted(pass, HOP_O_PROJ, 1))
        return HOP_OK;
    if (moves)
        HOP_TRY(attention_core(pass, *d, err));
    HOP_TRY(project(pass, pass->kept.attention, moves ? pass->moved.attention : NULL, HOP_O_PROJ,
                    &mid, 1, *d, err));
    *d = mid;
    return HOP_OK;
}

/* Of silu(gate) * up, from d after the attention residual. */
static hop_status feed_forward_core(const struct pass *pass, const void *d, struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__block_memory *const kept = &pass->kept, *const moved = &pass->moved;
    const int64_t n = (int64_t)(pass->once->rows * stage->layout.intermediate);
    void *const dgate_up[] = {moved->gate, moved->up};
    HOP_TRY(norm(pass, HOP_POST_ATTENTION_NORM, kept->mid, kept->rstd2, d, HOP_GATE_PROJ, 2, err));
    HOP_TRY(
        project(pass, pass->x, d ? moved->normed : NULL, HOP_GATE_PROJ, dgate_up, 2, NULL, err));
    return stage->ops->swiglu_tangent(stage->backend, stage->config.dtype, pass->count, n,
                                      kept->gate, kept->up, moved->gate, moved->up, moved->act,
                                      err);
}

/* *d after the attention residual becomes that behind the block, at `out`. */
static hop_status feed_forward_half(const struct pass *pass, const void **d, void *out,
                                    struct hop_error *err)
{
    struct hop_stage *const stage = pass->stage;
    const struct hop__block_memory *const kept = &pass->kept;
    const int64_t n = (int64_t)(pass->once->rows * stage->layout.intermediate);
    const bool moves = *d || adapted(pass, HOP_GATE_PROJ, 2);
    const bool down = adapted(pass, HOP_DOWN_PROJ, 1);
    if (!moves && !down)
        return HOP_OK;
    if (moves)
        HOP_TRY(feed_forward_core(pass, *d, err));
    if (down)
        HOP_TRY(stage->ops->swiglu_forward(stage->backend, stage->config.dtype, n, kept->gate,
                                           kept->up, pass->x, err));
    HOP_TRY(
        project(pass, pass->x, moves ? pass->moved.act : NULL, HOP_DOWN_PROJ, &out, 1, *d, err));
    *d = out;
    return HOP_OK;
}

/* `last` is where the last block writes. */
static hop_status run_blocks(struct hop_stage *stage, const struct hop__run *run,
                             const struct hop__run *once, int32_t slot, const void **d, void *last,
                             struct hop_error *err)
{
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    const size_t blocks = stage->layout.blocks;
    for (size_t i = 0; i < blocks; i++) {
        const struct pass pass = {.stage = stage,
                                  .run = run,
                                  .once = once,
                                  .count = (int32_t)(run->rows / once->rows),
                                  .i = i,
                                  .kept = hop__stage_memory(stage, slot, i, once->rows),
                                  .moved = hop__stage_memory(stage, -1, i, run->rows),
                                  .h = hop__stage_kept_input(stage, slot, i),
                                  .x = hop__scratch(stage, scratch->again)};
        void *const out = i + 1 < blocks ? hop__scratch(stage, scratch->stream) : last;
        HOP_TRY(attention_half(&pass, d, err));
        HOP_TRY(feed_forward_half(&pass, d, out, err));
    }
    return HOP_OK;
}

/* Host memory is read where it is. */
static hop_status take_input(struct hop_stage *stage, const void *input, size_t bytes,
                             const void **d, struct hop_error *err)
{
    void *const stream = hop__scratch(stage, stage->layout.scratch.stream);
    *d = input;
    if (!input || stage->ops->host_memory)
        return HOP_OK;
    *d = stream;
    return stage->ops->write(stage->backend, stream, input, bytes, err);
}

static hop_status give_output(struct hop_stage *stage, const void *d, size_t bytes, void *output,
                              struct hop_error *err)
{
    if (!d)
        memset(output, 0, bytes);
    else if (!stage->ops->host_memory)
        return stage->ops->read(stage->backend, output, d, bytes, err);
    else if (d != output)
        memcpy(output, d, bytes);
    return HOP_OK;
}

static hop_status check_call(const struct hop_stage *stage, int32_t slot,
                             const struct hop_probe_set *set, struct hop_error *err)
{
    if (!hop__stage_holds(stage, slot))
        return hop_fail(err, HOP_INTERNAL, "tangents around slot %d, which holds no micro-batch",
                        slot);
    if (!stage->config.tangents)
        return hop_fail(err, HOP_INTERNAL, "tangents of a stage that was created without them");
    if (set->count > stage->config.probes)
        return hop_fail(err, HOP_INTERNAL, "%d tangents in a call of at most %d", set->count,
                        stage->config.probes);
    return HOP_OK;
}

hop_status hop_stage_tangent(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                             const struct hop_probe_set *set, const void *input, void *output,
                             struct hop_error *err)
{
    struct hop__run run;
    const void *d;
    HOP_TRY(check_call(stage, slot, set, err));
    HOP_TRY(hop__stage_run(stage, batch, set->count, &run, err));
    if (run.rows == 0)
        return HOP_OK;
    struct hop__run once = run;
    once.rows = (size_t)batch->tokens;
    once.sequences = batch->sequences;
    once.q_offset = once.kv_offset = batch->offset;
    const size_t bytes = run.rows * stage->layout.hidden * stage->layout.element;
    void *const stream = hop__scratch(stage, stage->layout.scratch.stream);
    HOP_TRY(hop__stage_fill(stage, batch, set, HOP__DIRECTIONS, &run, err));
    HOP_TRY(take_input(stage, input, bytes, &d, err));
    HOP_TRY(
        run_blocks(stage, &run, &once, slot, &d, stage->ops->host_memory ? output : stream, err));
    return give_output(stage, d, bytes, output, err);
}
