/* Chimera: pipelines in both directions over the same devices, so that one fills the bubbles of the
 * other. Every device holds a stage of each, which is the price: the weights are there twice (2f
 * times with 2f pipelines). Equal shares by averaged costs, as GPipe's. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "strategy/chimera_schedule.h"
#include "strategy/chimera_slots.h"
#include "strategy/crew.h"
#include "strategy/parts.h"
#include "strategy/pipedream_flush.h"
#include "strategy/systems.h"

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

/* wholes: micro-batches that are not cut between pipelines. */
static void add_parts(const struct hop_crew *crew, const int32_t *counts, int32_t pipelines,
                      int32_t wholes, struct hop_plan *plan)
{
    for (int32_t i = 0; i < pipelines; i++) {
        for (int32_t s = 0, lo = 0; s < crew->count; lo += counts[s], s++) {
            const int32_t device = hop_chimera_device(crew->count, pipelines, i, s);
            hop_plan_add_stage(plan, crew->devices[device], lo, lo + counts[s],
                               HOP_GRADIENT_BACKPROP);
            struct hop_part *const part = &plan->parts[plan->part_count - 1];
            part->pipeline = i;
            part->stage = s;
            part->micro_lo = share_before(i, pipelines, wholes);
            part->micro_hi = share_before(i + 1, pipelines, wholes);
        }
    }
}

static hop_status build(const struct hop_plan_request *request, const struct hop_crew *crew,
                        const int32_t *counts, int32_t pipelines, int32_t wholes,
                        struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    HOP_TRY(hop_plan_begin_exact(request, hop_strategy_chimera.name, pipelines * crew->count, &plan,
                                 err));
    add_parts(crew, counts, pipelines, wholes, &plan);
    const hop_status status = hop_crew_price(&hop_strategy_chimera, request->cost, &plan, err);
    if (status != HOP_OK)
        hop_plan_free(&plan);
    else
        *out = plan;
    return status;
}

static hop_status try_whole(const struct hop_plan_request *request, const struct hop_crew *crew,
                            const int32_t *counts, int32_t pipelines, struct hop_plan *best,
                            struct hop_error *err)
{
    struct hop_plan plan;
    HOP_TRY(build(request, crew, counts, pipelines, request->micro_batches, &plan, err));
    hop_plan_keep(request, &plan, best);
    return HOP_OK;
}

/* Backward halving: as micro-batches of half the rows whose forwards come in pairs, so only where
 * those are doubled. Without pairs it would be a finer cut, which is not the planner's to choose.
 * The closed form does not know it. */
static hop_status try_halves(const struct hop_plan_request *request, const struct hop_crew *crew,
                             const int32_t *counts, int32_t pipelines, struct hop_plan *best,
                             struct hop_error *err)
{
    struct hop_plan_request finer = *request;
    struct hop_plan plan;
    bool paired;
    if (!request->halves || request->objective == HOP_OBJECTIVE_FORMULA ||
        request->micro_batches <= crew->count)
        return HOP_OK;
    finer.cost = request->halves;
    finer.micro_batches *= 2;
    HOP_TRY(build(&finer, crew, counts, pipelines, request->micro_batches, &plan, err));
    const hop_status status = hop_chimera_is_doubled(&plan, finer.cost, &paired, err);
    if (status == HOP_OK && paired)
        hop_plan_keep(request, &plan, best);
    else
        hop_plan_free(&plan);
    return status;
}

/* That neither fits is no failure; then *err says why the whole ones do not. */
static hop_status try_both(const struct hop_plan_request *request, const struct hop_crew *crew,
                           const int32_t *counts, int32_t pipelines, struct hop_plan *best,
                           struct hop_error *err)
{
    struct hop_error reason = {0};
    hop_status status = try_whole(request, crew, counts, pipelines, best, err);
    if (status != HOP_OK && status != HOP_INFEASIBLE)
        return status;
    status = try_halves(request, crew, counts, pipelines, best, &reason);
    if (status == HOP_OK || status == HOP_INFEASIBLE)
        return HOP_OK;
    *err = reason;
    return status;
}

/* Two pipelines, or more as long as each has a micro-batch. The reason why nothing fits is that of
 * two. */
static hop_status search(const struct hop_plan_request *request, const struct hop_crew *crew,
                         const int32_t *counts, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan best = {0};
    for (int32_t n = 2; n <= crew->count && (n == 2 || n <= request->micro_batches); n += 2) {
        struct hop_error reason = {0};
        if (!hop_chimera_fits(crew->count, n))
            continue;
        const hop_status status = try_both(request, crew, counts, n, &best, &reason);
        if (n == 2 || status != HOP_OK)
            *err = reason;
        if (status != HOP_OK) {
            hop_plan_free(&best);
            return status;
        }
    }
    if (!best.parts)
        return HOP_INFEASIBLE;
    *out = best;
    return HOP_OK;
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
    HOP_TRY_DONE(hop_crew_balance(&crew, request->cost, counts, err));
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
    .schedule = hop_chimera_schedule,
    .formula = formula_chimera,
};
