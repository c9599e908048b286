#include "strategy/closed_forms.h"

#include <math.h>

#include "schedule/bound.h"
#include "schedule/estimator.h"

double hop_head_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_plan_times times;
    struct hop_error unused = {0};
    struct hop_plan published = *plan;
    published.exit_probes = 0;
    if (hop_plan_times_create(&published, cost, &times, &unused) != HOP_OK)
        return NAN;
    const double seconds = hop_bound_head(&times.times);
    hop_plan_times_free(&times);
    return seconds;
}

double hop_tail_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    double sum = 0, slowest = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const double forward = hop_cost_forward(cost, part->device, part->lo, part->hi);
        sum += forward;
        if (part->gradient == HOP_GRADIENT_BACKPROP)
            sum += hop_cost_backward(cost, part->device, part->lo, part->hi);
        else
            slowest = fmax(slowest, forward);
    }
    const double passes = (1.0 + hop_plan_passes(plan) * plan->probes) * plan->micro_batches;
    return slowest > 0 ? sum + (passes - 1) * slowest : sum;
}
