#include "strategy/crew.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "sim/simulate.h"

static hop_status add_device(const struct hop_plan_request *request, int32_t d, const char *system,
                             bool fixed, struct hop_crew *crew, struct hop_error *err)
{
    const struct hop_cost_device *const device = &request->cost->devices[d];
    if (fixed ? request->fixed_blocks[d] == 0 : request->bp_only && !device->bp)
        return HOP_OK;
    if (!device->backward && !fixed && request->devices == HOP_DEVICES_AUTO)
        return HOP_OK;
    if (!device->backward)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %s has no backward times and %s runs backward on every device; "
                        "measure them, or leave BP-free devices out (bp_only)",
                        device->name, system);
    crew->devices[crew->count++] = d;
    return HOP_OK;
}

hop_status hop_crew_create(const struct hop_plan_request *request, const char *system, bool fixed,
                           struct hop_crew *out, struct hop_error *err)
{
    struct hop_crew crew = {0};
    hop_status status = HOP_OK;
    HOP_TRY(
        hop_calloc(&crew.devices, (size_t)request->cost->device_count, sizeof *crew.devices, err));
    for (int32_t d = 0; d < request->cost->device_count; d++)
        HOP_TRY_DONE(add_device(request, d, system, fixed && request->fixed_blocks, &crew, err));
    if (crew.count == 0)
        status = hop_fail(err, HOP_INFEASIBLE,
                          "plan: no device can run backward; %s needs at least one", system);
done:
    if (status != HOP_OK)
        hop_crew_free(&crew);
    else
        *out = crew;
    return status;
}

void hop_crew_free(struct hop_crew *crew)
{
    if (!crew)
        return;
    free(crew->devices);
    *crew = (struct hop_crew){0};
}

hop_status hop_crew_limit(const struct hop_plan_request *request, struct hop_crew *crew,
                          struct hop_error *err)
{
    const int32_t blocks = request->cost->blocks;
    if (crew->count <= blocks)
        return HOP_OK;
    if (request->devices != HOP_DEVICES_AUTO)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %d devices share %d blocks and each needs one; take devices out of "
                        "the cluster or set plan.devices: auto to leave some out",
                        crew->count, blocks);
    crew->count = blocks;
    return HOP_OK;
}

void hop_crew_average(const struct hop_crew *crew, const struct hop_cost_table *cost,
                      double *seconds)
{
    for (int32_t b = 0; b < cost->blocks; b++) {
        seconds[b] = 0;
        for (int32_t i = 0; i < crew->count; i++) {
            const struct hop_cost_device *const device = &cost->devices[crew->devices[i]];
            seconds[b] += device->forward[b] + device->backward[b];
        }
        seconds[b] /= crew->count;
    }
}

double hop_crew_memory(const struct hop_plan *plan, const struct hop_cost_table *cost,
                       int32_t device)
{
    double bytes = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->device == device)
            bytes += hop_price_part_memory(cost, part, part->in_flight) -
                     (bytes > 0 ? cost->devices[device].fixed_bytes : 0);
    }
    return bytes;
}

static hop_status check_memory(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t device, struct hop_error *err)
{
    const double needed = hop_crew_memory(plan, cost, device);
    const double there = cost->devices[device].memory;
    int32_t blocks = 0, kept = 0, parts = 0;
    if (needed <= there)
        return HOP_OK;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->device != device)
            continue;
        blocks += part->hi - part->lo;
        kept = part->in_flight > kept ? part->in_flight : kept;
        parts++;
    }
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: %s cannot hold %d blocks in %d part%s with up to %d micro-batches kept, "
                    "as %s does: %.4g bytes needed, %.4g there, %.4g too many; use smaller "
                    "micro-batches or devices with more memory",
                    cost->devices[device].name, blocks, parts, parts == 1 ? "" : "s", kept,
                    plan->strategy, needed, there, needed - there);
}

static void price_parts(const struct hop_schedule *schedule, const struct hop_cost_table *cost,
                        struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        const struct hop_task forward = {.kind = HOP_FORWARD, .part = p};
        part->in_flight = hop_schedule_slots(schedule, p);
        part->forward_seconds = hop_price_task(cost, plan, &forward);
        part->memory_bytes = hop_price_part_memory(cost, part, part->in_flight);
        part->memory_limit = cost->devices[part->device].memory;
    }
}

hop_status hop_crew_price(const struct hop_strategy *strategy, const struct hop_cost_table *cost,
                          struct hop_plan *plan, struct hop_error *err)
{
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    hop_status status = HOP_OK;
    HOP_TRY(hop_price_check(cost, plan, err));
    HOP_TRY(strategy->schedule(plan, cost, plan->micro_batches, 0, &schedule, err));
    price_parts(&schedule, cost, plan);
    for (int32_t d = 0; d < plan->devices; d++)
        HOP_TRY_DONE(check_memory(plan, cost, d, err));
    HOP_TRY_DONE(hop_simulate(plan, &schedule, cost, NULL, &simulation, err));
    plan->simulated_seconds = simulation.makespan;
    hop_simulation_free(&simulation);
    plan->formula_seconds = strategy->formula ? strategy->formula(plan, cost) : NAN;
done:
    hop_schedule_free(&schedule);
    return status;
}
