/* What the tasks of a pass compute. A part runs its rows of a micro-batch only. */
#include <math.h>

#include "runtime/executor_internal.h"
#include "schedule/estimator.h"
#include "train/zo.h"

/* Its part's rows of a task's micro-batch. */
static const struct hop_batch *batch_of(const struct hop_executor_pass *pass,
                                        const struct hop_task *task)
{
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    const struct hop_part *const part = &pass->executor->plan->parts[task->part];
    return hop_slice_take(&pass->executor->slice, batch, hop_part_rows(part, batch->sequences));
}

hop_status hop_pass_check_loss(const struct hop_executor_pass *pass, int32_t micro_batch,
                               double loss, struct hop_error *err)
{
    if (isfinite(loss))
        return HOP_OK;
    return hop_fail(err, HOP_NUMERIC,
                    "step %lld: the loss of micro-batch %d is not finite; lower "
                    "train.learning_rate or zo.epsilon, or use train.dtype f32",
                    (long long)pass->step, micro_batch);
}

/* The label log-probabilities of a micro-batch stand together, whichever parts computed them. */
static float *scores_of(const struct hop_executor_pass *pass, const struct hop_task *task)
{
    const struct hop_executor *const executor = pass->executor;
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    const struct hop_part *const part = &executor->plan->parts[task->part];
    const size_t first = (size_t)task->micro_batch * (size_t)executor->config.limits.labels;
    return executor->scores + first +
           hop_slice_labels(batch, hop_part_rows(part, batch->sequences)).lo;
}

static hop_status add_loss(struct hop_executor_pass *pass, const struct hop_task *task,
                           const struct hop_batch *batch, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const float *const scores = scores_of(pass, task);
    const double loss =
        batch->label_total > 0 ? hop_loss(scores, (size_t)batch->labels, batch->label_total) : 0;
    HOP_TRY(hop_pass_check_loss(pass, task->micro_batch, loss, err));
    /* Every shard has computed it. */
    if (hop_shard_is_first(&hop_pass_part(pass, task)->shard))
        executor->loss[task->micro_batch] += loss;
    if (!pass->route->schedule.training || !hop_plan_has_zeroth_order(executor->plan))
        return HOP_OK;
    return hop_pass_take_base(pass, &executor->probes, task->micro_batch, scores, err);
}

/* The loss of the exit's own model, which exit probes are compared with. */
static hop_status add_exit_loss(struct hop_executor_pass *pass, const struct hop_task *task,
                                struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    HOP_TRY(
        hop_pass_take_base(pass, &executor->exits, task->micro_batch, scores_of(pass, task), err));
    const double *const base =
        executor->exits.base + (size_t)task->micro_batch * (size_t)executor->values;
    for (int32_t v = 0; v < hop_pass_values(pass, task->micro_batch); v++)
        executor->exit_loss[task->micro_batch] += base[v];
    return HOP_OK;
}

static hop_status pick(struct hop_executor *executor, int32_t sequences, int32_t *picked,
                       struct hop_error *err)
{
    const int32_t vocabulary = executor->config.model.vocabulary;
    for (int32_t s = 0; s < sequences; s++) {
        const float *const logits = executor->logits + (size_t)s * (size_t)vocabulary;
        picked[s] = hop_likeliest(logits, vocabulary);
        if (!isfinite(logits[picked[s]]))
            return hop_fail(err, HOP_NUMERIC,
                            "the logits of an answer are not finite; the model or its adapters "
                            "are broken");
    }
    return HOP_OK;
}

/* Places and picks of a micro-batch stand together, whichever parts decode its sequences. */
static hop_status run_decode(struct hop_executor_pass *pass, const struct hop_task *task,
                             struct hop_executor_part *part, const void *input, void *output,
                             struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_batch *const batch = batch_of(pass, task);
    const struct hop_range rows = hop_part_rows(&executor->plan->parts[task->part],
                                                pass->batches[task->micro_batch].sequences);
    const size_t at =
        (size_t)task->micro_batch * (size_t)executor->config.limits.sequences + (size_t)rows.lo;
    const struct hop_continuation call = {.sequences = batch->sequences,
                                          .tokens = batch->tokens,
                                          .ids = batch->ids,
                                          .offset = batch->offset,
                                          .past = pass->places->past + at,
                                          .place = pass->places->place + at};
    if (batch->sequences == 0)
        return HOP_OK;
    HOP_TRY(hop_stage_continue(part->stage, &call, input, output, executor->logits, err));
    return part->head ? pick(executor, batch->sequences, executor->picked + at, err) : HOP_OK;
}

static hop_status run_forward(struct hop_executor_pass *pass, const struct hop_task *task,
                              struct hop_executor_part *part, const void *input, void *output,
                              struct hop_error *err)
{
    const struct hop_plan *const plan = pass->executor->plan;
    const bool training = pass->route->schedule.training;
    if (pass->places)
        return run_decode(pass, task, part, input, output, err);
    const struct hop_batch *const batch = batch_of(pass, task);
    if (batch->tokens == 0)
        return HOP_OK;
    const bool keep = training && hop_plan_keeps(plan, task->part);
    const bool exit = training && part->exit && hop_plan_has_exit_base(plan);
    const int32_t slot = keep ? hop_kept_take(&part->slots, task->micro_batch) : -1;
    if (part->probed)
        part->probed[task->micro_batch] = 0;
    HOP_TRY(hop_stage_forward(part->stage, batch, slot, input, output,
                              part->head || exit ? scores_of(pass, task) : NULL, err));
    if (exit)
        return add_exit_loss(pass, task, err);
    return part->head ? add_loss(pass, task, batch, err) : HOP_OK;
}

static hop_status run_backward(struct hop_executor_pass *pass, const struct hop_task *task,
                               struct hop_executor_part *part, const void *input, void *output,
                               struct hop_error *err)
{
    const struct hop_batch *const batch = batch_of(pass, task);
    if (batch->tokens == 0)
        return HOP_OK;
    hop_kept_release(&part->slots, task->micro_batch);
    return hop_stage_backward(part->stage, batch, part->slots.of[task->micro_batch], input, output,
                              err);
}

static hop_status run_step(struct hop_executor_pass *pass, const struct hop_task *task,
                           struct hop_executor_part *part)
{
    if (pass->executor->plan->parts[task->part].gradient == HOP_GRADIENT_ZEROTH_ORDER)
        hop_pass_add_estimates(pass, part);
    return HOP_OK;
}

hop_status hop_pass_compute(struct hop_executor_pass *pass, const struct hop_task *task,
                            const void *input, void *output, struct hop_error *err)
{
    struct hop_executor_part *const part = hop_pass_part(pass, task);
    switch (task->kind) {
    case HOP_FORWARD:
        return run_forward(pass, task, part, input, output, err);
    case HOP_BACKWARD:
        return run_backward(pass, task, part, input, output, err);
    case HOP_PROBE:
        return pass->executor->plan->estimator == HOP_BOUNDARY
                   ? hop_pass_tangent(pass, task, part, input, output, err)
                   : hop_pass_probe(pass, task, part, input, output, err);
    case HOP_EXIT_PROBE:
        return hop_pass_probe(pass, task, part, input, output, err);
    case HOP_DELTA:
        return hop_pass_delta(pass, task, part, input, output, err);
    case HOP_STEP:
        return run_step(pass, task, part);
    default:
        return hop_fail(err, HOP_UNSUPPORTED, "task %s cannot be run",
                        hop_task_kind_names[task->kind]);
    }
}
