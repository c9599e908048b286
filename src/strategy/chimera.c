/* Chimera: pipelines in both directions over the same devices, so that one fills the bubbles of the
 * other. Every device holds a stage of each, which is the price: the weights are there twice (2f
 * times with 2f pipelines). Equal shares by averaged costs, as GPipe's. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/lists.h"
#include "schedule/price.h"
#include "sim/simulate.h"
#include "strategy/balance.h"
#include "strategy/chimera_slots.h"
#include "strategy/crew.h"
#include "strategy/parts.h"
#include "strategy/pipedream_flush.h"
#include "strategy/systems.h"

/* Schedule */

static hop_status check_shape(const struct hop_plan *plan, struct hop_error *err)
{
    const int32_t pipelines = hop_plan_pipelines(plan), stages = hop_plan_stages(plan, 0);
    HOP_TRY(hop_plan_check(plan, err));
    if (!hop_chimera_fits(stages, pipelines))
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d pipelines of %d stages; chimera needs an even number of "
                        "stages and of pipelines, and half the pipelines must divide half the "
                        "stages",
                        pipelines, stages);
    for (int32_t i = 0; i < pipelines; i++)
        if (hop_plan_stages(plan, i) != stages)
            return hop_fail(err, HOP_INPUT,
                            "schedule: pipeline %d has %d stages and pipeline 0 has %d; chimera's "
                            "have equally many",
                            i, hop_plan_stages(plan, i), stages);
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient != HOP_GRADIENT_BACKPROP)
            return hop_fail(err, HOP_INPUT, "schedule: part %d is %s; chimera runs backward on all",
                            p, hop_gradient_names[plan->parts[p].gradient]);
    return HOP_OK;
}

static int32_t place_part(const struct hop_plan *plan, int32_t p, int32_t micro_batches,
                          bool doubled, struct hop_slot *slots)
{
    const struct hop_part *const part = &plan->parts[p];
    const struct hop_range range = hop_part_micro_batches(part, micro_batches);
    int32_t count = 0;
    for (int32_t m = range.lo; m < range.hi; m++) {
        const struct hop_chimera_place place =
            hop_chimera_place(hop_plan_stages(plan, 0), hop_plan_pipelines(plan), doubled,
                              part->stage, m - range.lo, range.hi - range.lo);
        slots[count++] =
            (struct hop_slot){{.kind = HOP_FORWARD, .part = p, .micro_batch = m}, place.forward};
        slots[count++] =
            (struct hop_slot){{.kind = HOP_BACKWARD, .part = p, .micro_batch = m}, place.backward};
    }
    return count;
}

static hop_status schedule_slots(const struct hop_plan *plan, int32_t micro_batches, bool doubled,
                                 struct hop_schedule *out, struct hop_error *err)
{
    struct hop_slot *slots;
    int32_t count = 0;
    HOP_TRY(hop_calloc(&slots, 2 * (size_t)hop_plan_stages(plan, 0) * (size_t)micro_batches,
                       sizeof *slots, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        count += place_part(plan, p, micro_batches, doubled, slots + count);
    const hop_status status = hop_schedule_from_slots(plan, micro_batches, slots, count, out, err);
    free(slots);
    return status;
}

static hop_status seconds_of(const struct hop_plan *plan, const struct hop_schedule *schedule,
                             const struct hop_cost_table *cost, double *seconds,
                             struct hop_error *err)
{
    struct hop_simulation simulation;
    HOP_TRY(hop_simulate(plan, schedule, cost, NULL, &simulation, err));
    *seconds = simulation.makespan;
    hop_simulation_free(&simulation);
    return HOP_OK;
}

/* Does the device hold what its parts keep? Parts that say what they keep (in_flight) may not keep
 * more. */
static bool fits(const struct hop_plan *plan, const struct hop_schedule *schedule,
                 const struct hop_cost_table *cost, int32_t device)
{
    double bytes = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->device != device)
            continue;
        const int32_t kept = hop_schedule_slots(schedule, p);
        if (part->in_flight && kept > part->in_flight)
            return false;
        bytes += hop_price_part_memory(cost, part, kept) -
                 (bytes > 0 ? cost->devices[device].fixed_bytes : 0);
    }
    return bytes <= cost->devices[device].memory;
}

static bool all_fit(const struct hop_plan *plan, const struct hop_schedule *schedule,
                    const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < plan->devices; d++)
        if (!fits(plan, schedule, cost, d))
            return false;
    return true;
}

/* Replaces *schedule by the order with doubled forwards where that fits and is faster. */
static hop_status try_doubled(const struct hop_plan *plan, const struct hop_cost_table *cost,
                              int32_t micro_batches, struct hop_schedule *schedule,
                              struct hop_error *err)
{
    struct hop_schedule doubled;
    double seconds, doubled_seconds;
    hop_status status = HOP_OK;
    HOP_TRY(schedule_slots(plan, micro_batches, true, &doubled, err));
    if (all_fit(plan, &doubled, cost)) {
        HOP_TRY_DONE(seconds_of(plan, schedule, cost, &seconds, err));
        HOP_TRY_DONE(seconds_of(plan, &doubled, cost, &doubled_seconds, err));
        if (doubled_seconds < seconds) {
            const struct hop_schedule slower = *schedule;
            *schedule = doubled;
            doubled = slower;
        }
    }
done:
    hop_schedule_free(&doubled);
    return status;
}

static hop_status schedule_chimera(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                   int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                   struct hop_error *err)
{
    struct hop_schedule schedule;
    (void)probes;
    if (micro_batches < 1)
        return hop_fail(err, HOP_INPUT, "schedule: %d micro-batches; at least 1 is needed",
                        micro_batches);
    HOP_TRY(check_shape(plan, err));
    HOP_TRY(schedule_slots(plan, micro_batches, false, &schedule, err));
    const hop_status status = micro_batches > hop_plan_stages(plan, 0)
                                  ? try_doubled(plan, cost, micro_batches, &schedule, err)
                                  : HOP_OK;
    if (status != HOP_OK)
        hop_schedule_free(&schedule);
    else
        *out = schedule;
    return status;
}

/* Closed form */

/* A device's forwards (backwards) of one micro-batch of each pipeline, averaged over the pipelines:
 * the formula knows equal stages, so the slowest device counts. */
static double mean_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost,
                           enum hop_task_kind kind)
{
    double slowest = 0;
    for (int32_t d = 0; d < plan->devices; d++) {
        double sum = 0;
        for (int32_t p = 0; p < plan->part_count; p++) {
            const struct hop_task task = {.kind = kind, .part = p};
            if (plan->parts[p].device == d)
                sum += hop_price_task(cost, plan, &task);
        }
        slowest = fmax(slowest, sum / hop_plan_pipelines(plan));
    }
    return slowest;
}

/* The longest transfer between two stages. */
static double transfer_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    double slowest = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const int32_t next = hop_plan_next(plan, p);
        if (next < 0)
            continue;
        const struct hop_part *const from = &plan->parts[p], *const to = &plan->parts[next];
        slowest = fmax(slowest, hop_cost_link(cost, from->device, to->device,
                                              cost->boundary_bytes[from->hi - 1]));
    }
    return slowest;
}

/* T = (F + C_p2p) C_f + (B + C_p2p) C_b + AR. One unit of D micro-batches has C_f = D and C_b = D +
 * D/f - 2 on its critical path (2D - 2 with two pipelines). Every unit behind it adds two forwards
 * and its own backwards. In a last unit of fewer the fullest pipeline counts, and no path is
 * shorter than one micro-batch's. */
static double formula_chimera(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    const int32_t devices = hop_plan_stages(plan, 0), pipelines = hop_plan_pipelines(plan);
    const int32_t bubbles = devices / (pipelines / 2) - 2;
    const int32_t before = (plan->micro_batches - 1) / devices;
    const int32_t rest = plan->micro_batches - before * devices;
    const int32_t last = (rest + pipelines - 1) / pipelines * pipelines;
    const double forwards = devices + 2.0 * before;
    const double backwards = (double)before * (devices + bubbles) + fmax(last + bubbles, devices);
    const double transfer = transfer_seconds(plan, cost);
    return (mean_seconds(plan, cost, HOP_FORWARD) + transfer) * forwards +
           (mean_seconds(plan, cost, HOP_BACKWARD) + transfer) * backwards +
           hop_pipedream_reduce_seconds(plan, cost);
}

/* Planner */

static double all_blocks(const struct hop_cost_table *cost, int32_t device)
{
    return hop_cost_forward(cost, device, 0, cost->blocks) +
           hop_cost_backward(cost, device, 0, cost->blocks);
}

static void drop_slowest(const struct hop_cost_table *cost, struct hop_crew *crew)
{
    int32_t slowest = 0;
    for (int32_t i = 1; i < crew->count; i++)
        if (all_blocks(cost, crew->devices[i]) >= all_blocks(cost, crew->devices[slowest]))
            slowest = i;
    crew->count--;
    for (int32_t i = slowest; i < crew->count; i++)
        crew->devices[i] = crew->devices[i + 1];
}

/* An even number of devices. */
static hop_status pair_up(const struct hop_plan_request *request, struct hop_crew *crew,
                          struct hop_error *err)
{
    if (crew->count == 1)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: only %s can take part; chimera needs an even number of devices, 2 "
                        "at least",
                        request->cost->devices[crew->devices[0]].name);
    if (crew->count % 2 && request->devices != HOP_DEVICES_AUTO)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %d devices take part; chimera needs an even number; take one out of "
                        "the cluster or set plan.devices: auto to leave the slowest out",
                        crew->count);
    if (crew->count % 2)
        drop_slowest(request->cost, crew);
    return HOP_OK;
}

/* Whole micro-batches, as evenly as can be: of fewer micro-batches no pipeline gets more than of
 * all. */
static double share_before(int32_t pipeline, int32_t pipelines, int32_t micro_batches)
{
    const double even = (double)pipeline / pipelines;
    return micro_batches < pipelines ? even : round(even * micro_batches) / micro_batches;
}

static void add_parts(const struct hop_crew *crew, const int32_t *counts, int32_t pipelines,
                      struct hop_plan *plan)
{
    for (int32_t i = 0; i < pipelines; i++) {
        for (int32_t s = 0, lo = 0; s < crew->count; lo += counts[s], s++) {
            const int32_t device = hop_chimera_device(crew->count, pipelines, i, s);
            hop_plan_add_stage(plan, crew->devices[device], lo, lo + counts[s],
                               HOP_GRADIENT_BACKPROP);
            struct hop_part *const part = &plan->parts[plan->part_count - 1];
            part->pipeline = i;
            part->stage = s;
            part->micro_lo = share_before(i, pipelines, plan->micro_batches);
            part->micro_hi = share_before(i + 1, pipelines, plan->micro_batches);
        }
    }
}

static hop_status build(const struct hop_plan_request *request, const struct hop_crew *crew,
                        const int32_t *counts, int32_t pipelines, struct hop_plan *out,
                        struct hop_error *err)
{
    struct hop_plan plan;
    HOP_TRY(
        hop_plan_begin(request, hop_strategy_chimera.name, pipelines * crew->count, &plan, err));
    plan.probes = plan.exit_probes = 0;
    add_parts(crew, counts, pipelines, &plan);
    const hop_status status = hop_crew_price(&hop_strategy_chimera, request->cost, &plan, err);
    if (status != HOP_OK)
        hop_plan_free(&plan);
    else
        *out = plan;
    return status;
}

static double value_of(const struct hop_plan_request *request, const struct hop_plan *plan)
{
    return request->objective == HOP_OBJECTIVE_FORMULA ? plan->formula_seconds
                                                       : plan->simulated_seconds;
}

/* Keeps the better of the two; of equal ones *best. */
static void keep(const struct hop_plan_request *request, struct hop_plan *plan,
                 struct hop_plan *best)
{
    if (best->parts && value_of(request, plan) >= value_of(request, best)) {
        hop_plan_free(plan);
        return;
    }
    hop_plan_free(best);
    *best = *plan;
}

/* Two pipelines, or more as long as each has a micro-batch. The reason why nothing fits is that of
 * two. */
static hop_status search(const struct hop_plan_request *request, const struct hop_crew *crew,
                         const int32_t *counts, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan best = {0}, plan;
    for (int32_t n = 2; n <= crew->count && (n == 2 || n <= request->micro_batches); n += 2) {
        struct hop_error reason = {0};
        if (!hop_chimera_fits(crew->count, n))
            continue;
        const hop_status status = build(request, crew, counts, n, &plan, n == 2 ? err : &reason);
        if (status == HOP_OK)
            keep(request, &plan, &best);
        else if (status != HOP_INFEASIBLE) {
            hop_plan_free(&best);
            return n == 2 ? status : hop_fail(err, status, "%s", reason.message);
        }
    }
    if (!best.parts)
        return HOP_INFEASIBLE;
    *out = best;
    return HOP_OK;
}

static hop_status deal(const struct hop_plan_request *request, const struct hop_crew *crew,
                       int32_t *counts, struct hop_error *err)
{
    double *seconds;
    HOP_TRY(hop_calloc(&seconds, (size_t)request->cost->blocks, sizeof *seconds, err));
    hop_crew_average(crew, request->cost, seconds);
    const hop_status status = hop_balance(seconds, request->cost->blocks, crew->count, counts, err);
    free(seconds);
    return status;
}

static hop_status plan_chimera(const struct hop_plan_request *request, struct hop_plan *out,
                               struct hop_error *err)
{
    struct hop_crew crew = {0};
    int32_t *counts = NULL;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY_DONE(hop_crew_create(request, hop_strategy_chimera.name, false, &crew, err));
    HOP_TRY_DONE(hop_crew_limit(request, &crew, err));
    HOP_TRY_DONE(pair_up(request, &crew, err));
    HOP_TRY_DONE(hop_calloc(&counts, (size_t)crew.count, sizeof *counts, err));
    HOP_TRY_DONE(deal(request, &crew, counts, err));
    HOP_TRY_DONE(search(request, &crew, counts, out, err));
done:
    free(counts);
    hop_crew_free(&crew);
    return status;
}

const struct hop_strategy hop_strategy_chimera = {
    .name = "chimera",
    .summary = "pipelines in both directions, two stages on every device",
    .plan = plan_chimera,
    .schedule = schedule_chimera,
    .formula = formula_chimera,
};
