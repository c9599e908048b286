#include "schedule/estimator.h"

static bool is_zeroth_order(const struct hop_plan *plan, int32_t part)
{
    return plan->parts[part].gradient == HOP_GRADIENT_ZEROTH_ORDER;
}

int32_t hop_plan_last_zeroth_order(const struct hop_plan *plan)
{
    int32_t last = -1;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (is_zeroth_order(plan, p) &&
            (last < 0 || plan->parts[p].stage > plan->parts[last].stage))
            last = p;
    return last;
}

int32_t hop_plan_feedback_lo(const struct hop_plan *plan)
{
    if (plan->estimator != HOP_FEEDBACK)
        return plan->blocks;
    const int32_t last = hop_plan_last_zeroth_order(plan);
    if (last < 0)
        return plan->blocks;
    const int32_t hi = plan->parts[last].hi, depth = plan->feedback_blocks;
    return depth > 0 && depth < hi ? hi - depth : 0;
}

bool hop_plan_runs_probes(const struct hop_plan *plan, int32_t part)
{
    switch (plan->estimator) {
    case HOP_BOUNDARY:
        return is_zeroth_order(plan, part);
    case HOP_FEEDBACK:
        return false;
    default:
        return hop_plan_has_zeroth_order(plan);
    }
}

bool hop_plan_runs_exit_probes(const struct hop_plan *plan, int32_t part)
{
    return hop_estimator_has_exit(plan->estimator) && is_zeroth_order(plan, part);
}

int32_t hop_estimator_passes(enum hop_estimator estimator)
{
    return estimator == HOP_CENTRAL ? 2 : 1;
}

int32_t hop_plan_passes(const struct hop_plan *plan)
{
    return hop_estimator_passes(plan->estimator);
}

enum hop_task_kind hop_plan_gradient_task(const struct hop_plan *plan, int32_t part)
{
    if (plan->parts[part].gradient == HOP_GRADIENT_BACKPROP)
        return HOP_BACKWARD;
    const bool takes_delta =
        is_zeroth_order(plan, part) &&
        (plan->parts[part].hi > hop_plan_feedback_lo(plan) || hop_plan_keeps_tangents(plan, part));
    return takes_delta ? HOP_DELTA : HOP_TASK_KINDS;
}

bool hop_plan_keeps_tangents(const struct hop_plan *plan, int32_t part)
{
    return plan->estimator == HOP_BOUNDARY && plan->probes > 0 &&
           part == hop_plan_last_zeroth_order(plan);
}

bool hop_plan_keeps(const struct hop_plan *plan, int32_t part)
{
    return hop_plan_frees(plan, part) != HOP_TASK_KINDS;
}

enum hop_task_kind hop_plan_frees(const struct hop_plan *plan, int32_t part)
{
    if (is_zeroth_order(plan, part) && plan->estimator == HOP_BOUNDARY)
        return plan->probes > 0 ? HOP_PROBE : HOP_TASK_KINDS;
    return hop_plan_gradient_task(plan, part);
}

enum hop_task_kind hop_plan_derivative_task(const struct hop_plan *plan, int32_t *part)
{
    const int32_t last = hop_plan_last_zeroth_order(plan);
    if (last < 0 || plan->estimator == HOP_FEEDBACK)
        return HOP_TASK_KINDS;
    *part = plan->estimator == HOP_BOUNDARY ? last : hop_plan_head(plan, last);
    return plan->estimator == HOP_BOUNDARY ? HOP_DELTA : HOP_PROBE;
}

/* Two-sided differences need no base. */
static bool compares_exits(const struct hop_plan *plan, enum hop_exit_base base)
{
    return plan->exit_probes > 0 && plan->estimator == HOP_DIFFERENCE && plan->exit_base == base &&
           hop_plan_has_zeroth_order(plan);
}

bool hop_plan_has_exit_base(const struct hop_plan *plan)
{
    return compares_exits(plan, HOP_EXIT_OWN);
}

bool hop_plan_sends_base_loss(const struct hop_plan *plan)
{
    return compares_exits(plan, HOP_EXIT_FULL_MODEL);
}

bool hop_estimator_has_exit(enum hop_estimator estimator)
{
    return estimator == HOP_DIFFERENCE || estimator == HOP_CENTRAL;
}
