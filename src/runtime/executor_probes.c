/* PROBEs and EXIT_PROBEs of perturbed adapters: losses, and the differences between them. */
#include "runtime/executor_internal.h"
#include "schedule/estimator.h"
#include "train/zo.h"

bool hop_plan_part_exits(const struct hop_plan *plan, int32_t part)
{
    return plan->exit_probes > 0 && hop_plan_runs_exit_probes(plan, part) &&
           part == hop_plan_last_zeroth_order(plan);
}

int32_t hop_pass_values(const struct hop_executor_pass *pass, int32_t micro_batch)
{
    return pass->executor->plan->directions == HOP_PER_SAMPLE ? pass->batches[micro_batch].sequences
                                                              : 1;
}

struct hop_range hop_pass_value_rows(const struct hop_executor_pass *pass, int32_t micro_batch,
                                     int32_t v)
{
    if (pass->executor->plan->directions == HOP_PER_SAMPLE)
        return (struct hop_range){v, v + 1};
    return (struct hop_range){0, pass->batches[micro_batch].sequences};
}

hop_status hop_pass_losses(const struct hop_executor_pass *pass, int32_t micro_batch,
                           const float *logprob, double *losses, struct hop_error *err)
{
    const struct hop_batch *const batch = &pass->batches[micro_batch];
    const int32_t values = hop_pass_values(pass, micro_batch);
    for (int32_t v = 0; v < values; v++) {
        const struct hop_range labels =
            hop_slice_labels(batch, hop_pass_value_rows(pass, micro_batch, v));
        losses[v] =
            hop_loss(logprob + labels.lo, (size_t)(labels.hi - labels.lo), batch->label_total);
        HOP_TRY(hop_pass_check_loss(pass, micro_batch, losses[v], err));
    }
    return HOP_OK;
}

hop_status hop_pass_take_base(struct hop_executor_pass *pass, struct hop_probe_numbers *numbers,
                              int32_t micro_batch, const float *logprob, struct hop_error *err)
{
    const size_t at = (size_t)micro_batch * (size_t)pass->executor->values;
    const int32_t values = hop_pass_values(pass, micro_batch);
    HOP_TRY(hop_pass_losses(pass, micro_batch, logprob, numbers->base + at, err));
    for (int32_t v = 0; v < values; v++)
        numbers->told_base[at + (size_t)v] = (float)numbers->base[at + (size_t)v];
    return HOP_OK;
}

void hop_pass_put_derivative(const struct hop_executor_pass *pass,
                             struct hop_probe_numbers *numbers, int32_t micro_batch, int32_t q,
                             int32_t v, double derivative)
{
    const size_t at = (size_t)micro_batch * numbers->stride +
                      (size_t)q * (size_t)hop_pass_values(pass, micro_batch) + (size_t)v;
    numbers->computed[at] = derivative;
    numbers->told[at] = (float)derivative;
}

/* Probes beyond the plan's Q are those of the rounding check of the first step; directions beyond
 * it are those of exit probes. */
static struct hop_probe probe_of(const struct hop_executor *executor, enum hop_task_kind kind,
                                 int32_t q)
{
    const int32_t probes = executor->plan->probes;
    const float epsilon = executor->config.epsilon;
    const double tau = hop_zo_tau(hop_plan_passes(executor->plan));
    if (kind == HOP_EXIT_PROBE)
        return (struct hop_probe){.direction = (uint16_t)(probes + q), .epsilon = epsilon};
    if (q < probes)
        return (struct hop_probe){.direction = (uint16_t)q, .epsilon = epsilon};
    return (struct hop_probe){.direction = 0, .epsilon = (float)((double)epsilon * (1 + tau))};
}

/* Two-sided probes are two passes: forth, then back. Returns how many passes there are. */
static int32_t fill_probes(struct hop_executor *executor, const struct hop_task *task)
{
    const int32_t passes = hop_plan_passes(executor->plan);
    struct hop_probe *to = executor->probe_list;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++)
        for (int32_t p = 0; p < passes; p++, to++) {
            *to = probe_of(executor, task->kind, q);
            to->epsilon = p == 0 ? to->epsilon : -to->epsilon;
        }
    return passes * (task->probe_hi - task->probe_lo);
}

/* Of exit probes that are compared with the full model the STEPs subtract its loss. */
static double compared_with(const struct hop_executor *executor,
                            const struct hop_probe_numbers *numbers, const struct hop_task *task,
                            int32_t v)
{
    if (task->kind == HOP_EXIT_PROBE && !hop_plan_has_exit_base(executor->plan))
        return 0;
    return numbers->base[(size_t)task->micro_batch * (size_t)executor->values + (size_t)v];
}

/* Where an exit does not compute its own loss, the mean of its probes stands for it. */
static void note_exit_loss(struct hop_executor *executor, const struct hop_task *task, double loss)
{
    const int32_t passes = hop_plan_passes(executor->plan) * executor->plan->exit_probes;
    if (task->kind == HOP_EXIT_PROBE && !hop_plan_has_exit_base(executor->plan))
        executor->exit_loss[task->micro_batch] += loss / passes;
}

/* Losses of a probe's passes at executor->pass_loss. */
static hop_status take_losses(struct hop_executor_pass *pass, const struct hop_task *task,
                              const float *logprob, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const size_t labels = (size_t)pass->batches[task->micro_batch].labels;
    const int32_t values = hop_pass_values(pass, task->micro_batch);
    for (int32_t p = 0; p < hop_plan_passes(executor->plan); p++) {
        double *const losses = executor->pass_loss + p * executor->values;
        HOP_TRY(
            hop_pass_losses(pass, task->micro_batch, logprob + (size_t)p * labels, losses, err));
        for (int32_t v = 0; v < values; v++)
            note_exit_loss(executor, task, losses[v]);
    }
    return HOP_OK;
}

static void take_derivatives(struct hop_executor_pass *pass, struct hop_probe_numbers *numbers,
                             const struct hop_task *task, int32_t q, double epsilon)
{
    const struct hop_executor *const executor = pass->executor;
    const double *const plus = executor->pass_loss, *const minus = plus + executor->values;
    const int32_t values = hop_pass_values(pass, task->micro_batch);
    for (int32_t v = 0; v < values; v++) {
        double g;
        if (hop_plan_passes(executor->plan) == 2)
            g = hop_zo_central(plus[v], minus[v], epsilon);
        else
            hop_zo_derivatives(compared_with(executor, numbers, task, v), &plus[v], 1, epsilon, &g);
        hop_pass_put_derivative(pass, numbers, task->micro_batch, q, v, g);
    }
}

static hop_status probe_results(struct hop_executor_pass *pass, const struct hop_task *task,
                                const float *logprob, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const int32_t passes = hop_plan_passes(executor->plan);
    const size_t labels = (size_t)passes * (size_t)pass->batches[task->micro_batch].labels;
    struct hop_probe_numbers *const numbers =
        task->kind == HOP_EXIT_PROBE ? &executor->exits : &executor->probes;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++) {
        const int32_t at = q - task->probe_lo;
        HOP_TRY(take_losses(pass, task, logprob + (size_t)at * labels, err));
        take_derivatives(pass, numbers, task, q, (double)executor->probe_list[at * passes].epsilon);
    }
    return HOP_OK;
}

hop_status hop_pass_probe(struct hop_executor_pass *pass, const struct hop_task *task,
                          struct hop_executor_part *part, const void *input, void *output,
                          struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const bool ends = task->kind == HOP_EXIT_PROBE ? part->exit : part->head;
    const struct hop_probe_set set = {.seed = executor->config.seed,
                                      .step = (uint32_t)pass->step,
                                      .count = fill_probes(executor, task),
                                      .probes = executor->probe_list,
                                      .distribution = executor->config.distribution};
    HOP_TRY(hop_stage_probe(part->stage, &pass->batches[task->micro_batch], &set, input, output,
                            ends ? executor->scores : NULL, err));
    return ends ? probe_results(pass, task, executor->scores, err) : HOP_OK;
}
