/* GPipe: every device runs forward and backward of an equal share, all forwards of a mini-batch
 * before its backwards. The planner is the published one: it knows the cost of the blocks, not that
 * devices differ, so a block costs its forward and backward averaged over the devices. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/lists.h"
#include "schedule/price.h"
#include "sim/simulate.h"
#include "strategy/balance.h"
#include "strategy/crew.h"
#include "strategy/fixed_plan.h"
#include "strategy/parts.h"
#include "strategy/systems.h"

static hop_status deal_blocks(const struct hop_plan_request *request, const struct hop_crew *crew,
                              int32_t *counts, struct hop_error *err)
{
    double *seconds;
    for (int32_t i = 0; request->fixed_blocks && i < crew->count; i++)
        counts[i] = request->fixed_blocks[crew->devices[i]];
    if (request->fixed_blocks)
        return HOP_OK;
    HOP_TRY(hop_calloc(&seconds, (size_t)request->cost->blocks, sizeof *seconds, err));
    hop_crew_average(crew, request->cost, seconds);
    const hop_status status = hop_balance(seconds, request->cost->blocks, crew->count, counts, err);
    free(seconds);
    return status;
}

/* Every stage keeps all micro-batches until the flush. */
static hop_status price(const struct hop_cost_table *cost, struct hop_plan *plan,
                        struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        part->in_flight = plan->micro_batches;
        part->forward_seconds = hop_cost_forward(cost, part->device, part->lo, part->hi);
        part->memory_bytes = hop_price_part_memory(cost, part, part->in_flight);
        part->memory_limit = cost->devices[part->device].memory;
        if (part->memory_bytes > part->memory_limit)
            return hop_fail(err, HOP_INFEASIBLE,
                            "plan: %s cannot hold blocks [%d, %d) with all %d micro-batches kept, "
                            "as gpipe does: %.4g bytes needed, %.4g there, %.4g too many; use "
                            "smaller or fewer micro-batches",
                            cost->devices[part->device].name, part->lo, part->hi, part->in_flight,
                            part->memory_bytes, part->memory_limit,
                            part->memory_bytes - part->memory_limit);
    }
    return HOP_OK;
}

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

static hop_status check_gradients(const struct hop_plan *plan, struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient != HOP_GRADIENT_BACKPROP)
            return hop_fail(err, HOP_INPUT, "schedule: part %d is %s; gpipe runs backward on all",
                            p, hop_gradient_names[plan->parts[p].gradient]);
    return HOP_OK;
}

static hop_status schedule_gpipe(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                 int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                 struct hop_error *err)
{
    (void)cost;
    (void)probes;
    HOP_TRY(hop_plan_check(plan, err));
    HOP_TRY(check_gradients(plan, err));
    return hop_schedule_fill_drain(plan, micro_batches, out, err);
}

static hop_status simulate(const struct hop_cost_table *cost, struct hop_plan *plan,
                           struct hop_error *err)
{
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    HOP_TRY(schedule_gpipe(plan, cost, plan->micro_batches, 0, &schedule, err));
    const hop_status status = hop_simulate(plan, &schedule, cost, NULL, &simulation, err);
    hop_schedule_free(&schedule);
    if (status != HOP_OK)
        return status;
    plan->simulated_seconds = simulation.makespan;
    hop_simulation_free(&simulation);
    return HOP_OK;
}

static hop_status build(const struct hop_plan_request *request, const struct hop_crew *crew,
                        const int32_t *counts, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    int32_t lo = 0;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin(request, hop_strategy_gpipe.name, crew->count, &plan, err));
    plan.probes = plan.exit_probes = 0;
    for (int32_t i = 0; i < crew->count; i++) {
        hop_plan_add_stage(&plan, crew->devices[i], lo, lo + counts[i], HOP_GRADIENT_BACKPROP);
        lo += counts[i];
    }
    HOP_TRY_DONE(price(request->cost, &plan, err));
    HOP_TRY_DONE(simulate(request->cost, &plan, err));
    plan.formula_seconds = formula_gpipe(&plan, request->cost);
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
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
    HOP_TRY_DONE(deal_blocks(request, &crew, counts, err));
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
