/* GPipe: every device runs forward and backward of an equal share, all forwards of a mini-batch
 * before its backwards. The planner is the published one: it knows the cost of the blocks, not that
 * devices differ, so a block costs its forward and backward averaged over the devices. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/lists.h"
#include "strategy/crew.h"
#include "strategy/fixed_plan.h"
#include "strategy/parts.h"
#include "strategy/systems.h"

static double formula_gpipe(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    double sum = 0, forward = 0, backward = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const double f = hop_cost_forward(cost, part->device, part->lo, part->hi);
        const double b = hop_cost_backward(cost, part->device, part->lo, part->hi);
        sum += f + b;
        forward = fmax(forward, f);
        backward = fmax(backward, b);
    }
    return sum + (plan->micro_batches - 1) * (forward + backward);
}

static hop_status schedule_gpipe(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                 int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                 struct hop_error *err)
{
    (void)cost;
    (void)probes;
    HOP_TRY(hop_crew_check_plan(plan, hop_strategy_gpipe.name, err));
    return hop_schedule_fill_drain(plan, micro_batches, out, err);
}

static hop_status build(const struct hop_plan_request *request, const struct hop_crew *crew,
                        const int32_t *counts, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    int32_t lo = 0;
    HOP_TRY(hop_plan_begin_exact(request, hop_strategy_gpipe.name, crew->count, &plan, err));
    for (int32_t i = 0; i < crew->count; i++) {
        hop_plan_add_stage(&plan, crew->devices[i], lo, lo + counts[i], HOP_GRADIENT_BACKPROP);
        lo += counts[i];
    }
    const hop_status status = hop_crew_price(&hop_strategy_gpipe, request->cost, &plan, err);
    if (status != HOP_OK)
        hop_plan_free(&plan);
    else
        *out = plan;
    return status;
}

static hop_status plan_gpipe(const struct hop_plan_request *request, struct hop_plan *out,
                             struct hop_error *err)
{
    struct hop_crew crew = {0};
    int32_t *counts = NULL;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(hop_fixed_blocks_check(request, err));
    HOP_TRY(hop_crew_create(request, hop_strategy_gpipe.name, true, &crew, err));
    HOP_TRY_DONE(hop_crew_limit(request, &crew, err));
    HOP_TRY_DONE(hop_calloc(&counts, (size_t)crew.count, sizeof *counts, err));
    HOP_TRY_DONE(hop_crew_deal(&crew, request, counts, err));
    HOP_TRY_DONE(build(request, &crew, counts, out, err));
done:
    free(counts);
    hop_crew_free(&crew);
    return status;
}

const struct hop_strategy hop_strategy_gpipe = {
    .name = "gpipe",
    .summary = "equal shares on every device, all forwards before all backwards",
    .uses_fixed_blocks = true,
    .plan = plan_gpipe,
    .schedule = schedule_gpipe,
    .formula = formula_gpipe,
};
