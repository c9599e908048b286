/* What the tasks of a pass compute. A part runs its rows of a micro-batch only. */
#include <math.h>

#include "runtime/executor_internal.h"
#include "train/zo.h"

/* Its part's rows of a task's micro-batch. */
static const struct hop_batch *batch_of(const struct hop_executor_pass *pass,
                                        const struct hop_task *task)
{
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    const struct hop_part *const part = &pass->executor->plan->parts[task->part];
    return hop_slice_take(&pass->executor->slice, batch, hop_part_rows(part, batch->sequences));
}

static hop_status loss_of(const struct hop_executor_pass *pass, const struct hop_batch *batch,
                          const float *logprob, double *loss, struct hop_error *err)
{
    *loss =
        batch->label_total > 0 ? hop_loss(logprob, (size_t)batch->labels, batch->label_total) : 0;
    if (isfinite(*loss))
        return HOP_OK;
    return hop_fail(err, HOP_NUMERIC,
                    "step %lld: the loss of micro-batch %d is not finite; lower "
                    "train.learning_rate or zo.epsilon, or use train.dtype f32",
                    (long long)pass->step, batch->micro_batch);
}

static int32_t take_slot(struct hop_executor_part *part, int32_t micro_batch)
{
    int32_t slot = 0;
    while (part->slot_busy[slot])
        slot++;
    part->slot_busy[slot] = true;
    part->slot_of[micro_batch] = slot;
    return slot;
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
    double loss;
    HOP_TRY(loss_of(pass, batch, scores_of(pass, task), &loss, err));
    /* Every shard has computed it. */
    if (hop_shard_is_first(&hop_pass_part(pass, task)->shard))
        pass->executor->loss[task->micro_batch] += loss;
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
    const struct hop_executor *const executor = pass->executor;
    if (pass->places)
        return run_decode(pass, task, part, input, output, err);
    const struct hop_batch *const batch = batch_of(pass, task);
    const bool keep = pass->route->schedule.training &&
                      executor->plan->parts[task->part].gradient == HOP_GRADIENT_BACKPROP;
    if (pass->places)
        return run_decode(pass, task, part, input, output, err);
    if (batch->tokens == 0)
        return HOP_OK;
    const int32_t slot = keep ? take_slot(part, task->micro_batch) : -1;
    HOP_TRY(hop_stage_forward(part->stage, batch, slot, input, output, scores_of(pass, task), err));
    return part->head ? add_loss(pass, task, batch, err) : HOP_OK;
}

static hop_status run_backward(struct hop_executor_pass *pass, const struct hop_task *task,
                               struct hop_executor_part *part, const void *input, void *output,
                               struct hop_error *err)
{
    const struct hop_batch *const batch = batch_of(pass, task);
    if (batch->tokens == 0)
        return HOP_OK;
    const int32_t slot = part->slot_of[task->micro_batch];
    part->slot_busy[slot] = false;
    return hop_stage_backward(part->stage, batch, slot, input, output, err);
}

/* Probes beyond the plan's Q are those of the rounding check of the first step. */
static void fill_probes(struct hop_executor_pass *pass, const struct hop_task *task)
{
    const struct hop_executor *const executor = pass->executor;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++)
        executor->probe_list[q - task->probe_lo] =
            q < executor->plan->probes
                ? (struct hop_probe){.direction = (uint16_t)q, .epsilon = executor->config.epsilon}
                : (struct hop_probe){
                      .direction = 0,
                      .epsilon = (float)((double)executor->config.epsilon * (1 + HOP_ZO_TAU))};
}

static hop_status probe_results(struct hop_executor_pass *pass, const struct hop_task *task,
                                const float *logprob, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    const size_t at = (size_t)task->micro_batch * (size_t)executor->probes;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++) {
        const float *const scores = logprob + (size_t)(q - task->probe_lo) * (size_t)batch->labels;
        double *const loss = &executor->probe_loss[at + (size_t)q];
        double derivative;
        HOP_TRY(loss_of(pass, batch, scores, loss, err));
        hop_zo_derivatives(executor->loss[task->micro_batch], loss, 1,
                           (double)executor->config.epsilon, &derivative);
        executor->derivatives[at + (size_t)q] = (float)derivative;
    }
    return HOP_OK;
}

static hop_status run_probe(struct hop_executor_pass *pass, const struct hop_task *task,
                            struct hop_executor_part *part, const void *input, void *output,
                            struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    fill_probes(pass, task);
    const struct hop_probe_set set = {.seed = executor->config.seed,
                                      .step = (uint32_t)pass->step,
                                      .count = task->probe_hi - task->probe_lo,
                                      .probes = executor->probe_list};
    HOP_TRY(hop_stage_probe(part->stage, &pass->batches[task->micro_batch], &set, input, output,
                            executor->scores, err));
    return part->head ? probe_results(pass, task, executor->scores, err) : HOP_OK;
}

/* Equation 2 of the method, micro-batch after micro-batch whatever the order the derivatives came
 * in. */
static void add_estimates(struct hop_executor_pass *pass, struct hop_parameters *parameters)
{
    const struct hop_executor *const executor = pass->executor;
    const int32_t probes = executor->plan->probes;
    for (int32_t m = 0; m < pass->route->schedule.micro_batches; m++) {
        const float *const g = executor->derivatives + (size_t)m * (size_t)executor->probes;
        for (int32_t q = 0; q < probes; q++)
            executor->coefficients[q] = g[q] / (float)probes;
        hop_parameters_add_directions(parameters, executor->config.seed, (uint32_t)pass->step,
                                      (uint16_t)m, executor->directions, executor->coefficients,
                                      probes);
    }
}

static hop_status run_step(struct hop_executor_pass *pass, const struct hop_task *task,
                           struct hop_executor_part *part)
{
    if (pass->executor->plan->parts[task->part].gradient == HOP_GRADIENT_ZEROTH_ORDER)
        add_estimates(pass, hop_stage_parameters(part->stage));
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
        return run_probe(pass, task, part, input, output, err);
    case HOP_STEP:
        return run_step(pass, task, part);
    default:
        return hop_fail(err, HOP_UNSUPPORTED, "task %s cannot be run",
                        hop_task_kind_names[task->kind]);
    }
}
