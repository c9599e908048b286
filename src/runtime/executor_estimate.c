/* From derivatives to gradients: equation 2 of the method. */
#include <string.h>

#include "runtime/executor_internal.h"
#include "schedule/estimator.h"

/* Derivatives of exit probes against the full model come without its loss. */
static double base_share(const struct hop_executor_pass *pass,
                         const struct hop_probe_numbers *numbers, int32_t micro_batch, size_t v)
{
    const struct hop_executor *const executor = pass->executor;
    const size_t at = (size_t)micro_batch * (size_t)executor->values + v;
    if (numbers != &executor->exits || !hop_plan_sends_base_loss(executor->plan))
        return 0;
    return (double)executor->probes.told_base[at] / (double)executor->config.epsilon;
}

/* Adds the part of the mean that these probes have; `first` is the direction of probe 0. */
static void add_estimate(struct hop_executor_pass *pass, struct hop_parameters *parameters,
                         const struct hop_probe_numbers *numbers, int32_t micro_batch,
                         int32_t first, int32_t probes)
{
    const struct hop_executor *const executor = pass->executor;
    const struct hop_plan *const plan = executor->plan;
    const size_t values = (size_t)hop_pass_values(pass, micro_batch);
    const float *const g = numbers->told + (size_t)micro_batch * numbers->stride;
    const float all = (float)(plan->probes + plan->exit_probes);
    const struct hop_direction_set set = {
        .seed = executor->config.seed,
        .step = (uint32_t)pass->step,
        .micro_batch = (uint16_t)micro_batch,
        .first = (uint16_t)first,
        .count = probes,
        .samples = plan->directions == HOP_PER_SAMPLE ? (int32_t)values : 0,
        .distribution = executor->config.distribution};
    for (size_t i = 0; i < (size_t)probes * values; i++)
        executor->coefficients[i] =
            (float)((double)g[i] - base_share(pass, numbers, micro_batch, i % values)) / all;
    hop_parameters_add_estimate(parameters, &set, executor->coefficients);
}

/* Micro-batch after micro-batch, whatever the order the derivatives came in. */
void hop_pass_add_estimates(struct hop_executor_pass *pass, struct hop_executor_part *part)
{
    const struct hop_executor *const executor = pass->executor;
    const struct hop_plan *const plan = executor->plan;
    struct hop_parameters *const parameters = hop_stage_parameters(part->stage);
    int32_t from;
    if (hop_plan_derivative_task(plan, &from) == HOP_TASK_KINDS)
        return;
    for (int32_t m = 0; m < pass->route->schedule.micro_batches; m++) {
        add_estimate(pass, parameters, &executor->probes, m, 0, plan->probes);
        if (plan->exit_probes > 0)
            add_estimate(pass, parameters, &executor->exits, m, plan->probes, plan->exit_probes);
    }
}

/* Stored with the stride of the largest schedule; callers get them packed. Returns how many. */
static int32_t pack(const struct hop_executor_pass *pass, struct hop_probe_numbers *numbers,
                    int32_t probes)
{
    size_t n = 0;
    for (int32_t m = 0; m < pass->route->schedule.micro_batches; m++) {
        const size_t values = (size_t)hop_pass_values(pass, m), count = (size_t)probes * values;
        double *const from = numbers->computed + (size_t)m * numbers->stride;
        for (size_t i = 0; i < count; i++)
            from[i] -= base_share(pass, numbers, m, i % values);
        memmove(numbers->computed + n, from, count * sizeof *from);
        n += count;
    }
    return (int32_t)n;
}

void hop_pass_collect_derivatives(struct hop_executor_pass *pass, struct hop_pass *out)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_schedule *const schedule = &pass->route->schedule;
    const int32_t last = hop_plan_last_zeroth_order(executor->plan);
    int32_t from = -1;
    if (!schedule->training || last < 0)
        return;
    if (hop_plan_derivative_task(executor->plan, &from) != HOP_TASK_KINDS &&
        executor->part_of[from] >= 0) {
        out->derivatives = pack(pass, &executor->probes, schedule->probes);
        out->derivative = executor->probes.computed;
    }
    if (schedule->exit_probes > 0 && executor->part_of[last] >= 0) {
        out->exit_derivatives = pack(pass, &executor->exits, schedule->exit_probes);
        out->exit_derivative = executor->exits.computed;
        out->exit_losses = schedule->micro_batches;
        out->exit_loss = executor->exit_loss;
    }
}
