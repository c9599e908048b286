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
#include "strategy/fixed_plan.h"
#include "strategy/parts.h"
#include "strategy/systems.h"

/* The devices that take part, as the cost table lists them, and their blocks. */
struct line_up {
    int32_t *devices, *counts;
    int32_t count;
    double *block_seconds;
};

static void free_line_up(struct line_up *line)
{
    free(line->devices);
    free(line->counts);
    free(line->block_seconds);
}

static hop_status create_line_up(const struct hop_cost_table *cost, struct line_up *line,
                                 struct hop_error *err)
{
    const size_t devices = (size_t)cost->device_count;
    HOP_TRY(hop_calloc(&line->devices, devices, sizeof *line->devices, err));
    HOP_TRY(hop_calloc(&line->counts, devices, sizeof *line->counts, err));
    return hop_calloc(&line->block_seconds, (size_t)cost->blocks, sizeof *line->block_seconds, err);
}

/* A device without backward times stays out where any may; elsewhere it is an error. */
static hop_status add_device(const struct hop_plan_request *request, int32_t d,
                             struct line_up *line, struct hop_error *err)
{
    const struct hop_cost_device *const device = &request->cost->devices[d];
    const bool fixed = request->fixed_blocks != NULL;
    if (fixed ? request->fixed_blocks[d] == 0 : request->bp_only && !device->bp)
        return HOP_OK;
    if (!device->backward && !fixed && request->devices == HOP_DEVICES_AUTO)
        return HOP_OK;
    if (!device->backward)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %s has no backward times and gpipe runs backward on every device; "
                        "measure them, or leave BP-free devices out (bp_only)",
                        device->name);
    if (fixed)
        line->counts[line->count] = request->fixed_blocks[d];
    line->devices[line->count++] = d;
    return HOP_OK;
}

static hop_status check_count(const struct hop_plan_request *request, struct line_up *line,
                              struct hop_error *err)
{
    const int32_t blocks = request->cost->blocks;
    if (line->count == 0)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no device can run backward; gpipe needs at least one");
    if (line->count <= blocks)
        return HOP_OK;
    if (request->devices != HOP_DEVICES_AUTO)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %d devices share %d blocks and each needs one; take devices out of "
                        "the cluster or set plan.devices: auto to leave some out",
                        line->count, blocks);
    line->count = blocks;
    return HOP_OK;
}

static void average_blocks(const struct hop_cost_table *cost, struct line_up *line)
{
    for (int32_t b = 0; b < cost->blocks; b++) {
        for (int32_t i = 0; i < line->count; i++) {
            const struct hop_cost_device *const device = &cost->devices[line->devices[i]];
            line->block_seconds[b] += device->forward[b] + device->backward[b];
        }
        line->block_seconds[b] /= line->count;
    }
}

static hop_status deal_blocks(const struct hop_plan_request *request, struct line_up *line,
                              struct hop_error *err)
{
    for (int32_t d = 0; d < request->cost->device_count; d++)
        HOP_TRY(add_device(request, d, line, err));
    HOP_TRY(check_count(request, line, err));
    if (request->fixed_blocks)
        return HOP_OK;
    average_blocks(request->cost, line);
    return hop_balance(line->block_seconds, request->cost->blocks, line->count, line->counts, err);
}

/* Every stage keeps all micro-batches until the flush. */
static hop_status price(const struct hop_cost_table *cost, struct hop_plan *plan,
                        struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        part->in_flight = plan->micro_batches;
        part->forward_seconds = hop_cost_forward(cost, part->device, part->lo, part->hi);
        part->memory_bytes = hop_price_memory(cost, part, part->in_flight);
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

static hop_status build(const struct hop_plan_request *request, const struct line_up *line,
                        struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    int32_t lo = 0;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin(request, hop_strategy_gpipe.name, line->count, &plan, err));
    plan.probes = plan.exit_probes = 0;
    for (int32_t i = 0; i < line->count; i++) {
        hop_plan_add_stage(&plan, line->devices[i], lo, lo + line->counts[i],
                           HOP_GRADIENT_BACKPROP);
        lo += line->counts[i];
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
    struct line_up line = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(hop_fixed_blocks_check(request, err));
    HOP_TRY_DONE(create_line_up(request->cost, &line, err));
    HOP_TRY_DONE(deal_blocks(request, &line, err));
    HOP_TRY_DONE(build(request, &line, out, err));
done:
    free_line_up(&line);
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
