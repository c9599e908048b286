/* HDP, as HetPipe: groups of devices, a pipeline of the whole model in each, data parallelism
 * between them. Here the groups are synchronous: they share the micro-batches of a mini-batch, add
 * up the adapters' gradients at its end and step together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "strategy/crew.h"
#include "strategy/hdp_groups.h"
#include "strategy/hdp_partition.h"
#include "strategy/parts.h"
#include "strategy/pipedream_flush.h"
#include "strategy/systems.h"

/* Shares found by the closed form are improved by so many simulations, where those are short. */
enum { MOST_TRIES = 64, MOST_TRIED_TASKS = 1 << 14 };

/* The pipeline of a group: for 1, 2, ... micro-batches its best stages. From as many micro-batches
 * as devices on they are the same, as no stage keeps more. */
struct team {
    int32_t *devices, count;
    struct hop_hdp_stage *stages; /* (count, count): row k - 1 for k micro-batches */
    double *seconds;              /* the same: of a stage; the first is INFINITY: nothing fits */
};

/* The groups of a deal, and how many micro-batches each takes. */
struct teams {
    struct team *items;
    int32_t count;
    int32_t *shares;
};

static void free_teams(struct teams *teams)
{
    for (int32_t g = 0; teams->items && g < teams->count; g++) {
        free(teams->items[g].devices);
        free(teams->items[g].stages);
        free(teams->items[g].seconds);
    }
    free(teams->items);
    free(teams->shares);
    *teams = (struct teams){0};
}

static hop_status solve_row(const struct hop_cost_table *cost, struct team *team,
                            int32_t micro_batches, struct hop_error *err)
{
    const int32_t row = (micro_batches - 1) * team->count;
    struct hop_hdp_stage *const stages = &team->stages[row];
    double slowest;
    HOP_TRY(
        hop_hdp_partition(cost, team->devices, team->count, micro_batches, stages, &slowest, err));
    if (isinf(slowest)) {
        team->seconds[row] = INFINITY;
        return HOP_OK;
    }
    for (int32_t q = 0; q < team->count; q++)
        team->seconds[row + q] =
            hop_cost_forward(cost, stages[q].device, stages[q].lo, stages[q].hi) +
            hop_cost_backward(cost, stages[q].device, stages[q].lo, stages[q].hi);
    return HOP_OK;
}

static hop_status create_team(const struct hop_plan_request *request, const struct hop_crew *crew,
                              const struct hop_hdp_groups *groups, int32_t g, struct team *team,
                              struct hop_error *err)
{
    HOP_TRY(hop_calloc(&team->devices, (size_t)crew->count, sizeof *team->devices, err));
    for (int32_t i = 0; i < crew->count; i++)
        if (groups->of[i] == g)
            team->devices[team->count++] = crew->devices[i];
    const size_t cells = (size_t)team->count * (size_t)team->count;
    HOP_TRY(hop_calloc(&team->stages, cells, sizeof *team->stages, err));
    HOP_TRY(hop_calloc(&team->seconds, cells, sizeof *team->seconds, err));
    for (int32_t k = 1; k <= team->count && k <= request->micro_batches; k++)
        HOP_TRY(solve_row(request->cost, team, k, err));
    return HOP_OK;
}

static int32_t row_of(const struct team *team, int32_t micro_batches)
{
    return ((micro_batches < team->count ? micro_batches : team->count) - 1) * team->count;
}

/* T_r(n). */
static double team_seconds(const struct team *team, int32_t micro_batches)
{
    const double *const seconds = &team->seconds[row_of(team, micro_batches)];
    return isinf(seconds[0]) ? INFINITY
                             : hop_pipedream_latency(seconds, team->count, micro_batches);
}

/* One micro-batch each, then one by one to the group that is done first with one more: as no T_r
 * falls, no other shares have a smaller maximum. False: nothing fits. */
static bool deal_shares(struct teams *teams, int32_t micro_batches)
{
    if (micro_batches < teams->count)
        return false;
    for (int32_t g = 0; g < teams->count; g++) {
        teams->shares[g] = 1;
        if (isinf(team_seconds(&teams->items[g], 1)))
            return false;
    }
    for (int32_t left = micro_batches - teams->count; left > 0; left--) {
        int32_t first = -1;
        double least = INFINITY;
        for (int32_t g = 0; g < teams->count; g++) {
            const double seconds = team_seconds(&teams->items[g], teams->shares[g] + 1);
            if (seconds < least) {
                least = seconds;
                first = g;
            }
        }
        if (first < 0)
            return false;
        teams->shares[first]++;
    }
    return true;
}

/* *found: do all groups hold the model, and is there a micro-batch for each? */
static hop_status create_teams(const struct hop_plan_request *request, const struct hop_crew *crew,
                               const struct hop_hdp_groups *groups, struct teams *out, bool *found,
                               struct hop_error *err)
{
    struct teams teams = {.count = groups->count};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&teams.items, (size_t)teams.count, sizeof *teams.items, err));
    HOP_TRY_DONE(hop_calloc(&teams.shares, (size_t)teams.count, sizeof *teams.shares, err));
    for (int32_t g = 0; g < teams.count; g++)
        HOP_TRY_DONE(create_team(request, crew, groups, g, &teams.items[g], err));
    *found = deal_shares(&teams, request->micro_batches);
    *out = teams;
    return HOP_OK;
done:
    free_teams(&teams);
    return status;
}

static void add_team(const struct teams *teams, int32_t g, int32_t before, int32_t micro_batches,
                     struct hop_plan *plan)
{
    const struct team *const team = &teams->items[g];
    const struct hop_hdp_stage *const stages = &team->stages[row_of(team, teams->shares[g])];
    for (int32_t q = 0; q < team->count; q++) {
        hop_plan_add_stage(plan, stages[q].device, stages[q].lo, stages[q].hi,
                           HOP_GRADIENT_BACKPROP);
        struct hop_part *const part = &plan->parts[plan->part_count - 1];
        part->pipeline = g;
        part->stage = q;
        part->micro_lo = (double)before / micro_batches;
        part->micro_hi = (double)(before + teams->shares[g]) / micro_batches;
    }
}

static hop_status build(const struct hop_plan_request *request, const struct teams *teams,
                        struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    int32_t parts = 0, before = 0;
    for (int32_t g = 0; g < teams->count; g++)
        parts += teams->items[g].count;
    HOP_TRY(hop_plan_begin_exact(request, hop_strategy_hdp.name, parts, &plan, err));
    for (int32_t g = 0; g < teams->count; before += teams->shares[g], g++)
        add_team(teams, g, before, request->micro_batches, &plan);
    const hop_status status = hop_crew_price(&hop_strategy_hdp, request->cost, &plan, err);
    if (status != HOP_OK)
        hop_plan_free(&plan);
    else
        *out = plan;
    return status;
}

/* Moves one micro-batch from a group to another if the simulation is shorter then. */
static hop_status try_move(const struct hop_plan_request *request, struct teams *teams,
                           int32_t from, int32_t to, bool *better, struct hop_plan *best,
                           struct hop_error *err)
{
    struct hop_plan plan;
    *better = false;
    if (teams->shares[from] < 2 || isinf(team_seconds(&teams->items[to], teams->shares[to] + 1)))
        return HOP_OK;
    teams->shares[from]--;
    teams->shares[to]++;
    HOP_TRY(build(request, teams, &plan, err));
    *better = hop_plan_keep(request, &plan, best);
    if (!*better) {
        teams->shares[from]++;
        teams->shares[to]--;
    }
    return HOP_OK;
}

/* The closed form knows no transfers. */
static hop_status improve_shares(const struct hop_plan_request *request, struct teams *teams,
                                 struct hop_plan *best, struct hop_error *err)
{
    int32_t tries = MOST_TRIES, pairs = teams->count * teams->count;
    if ((int64_t)request->micro_batches * best->part_count > MOST_TRIED_TASKS)
        return HOP_OK;
    for (int32_t pair = 0, since = 0; since < pairs && tries > 0; pair = (pair + 1) % pairs) {
        bool better = false;
        const int32_t from = pair / teams->count, to = pair % teams->count;
        since++;
        if (from == to)
            continue;
        do {
            HOP_TRY(try_move(request, teams, from, to, &better, best, err));
            since = better ? 0 : since;
        } while (better && --tries > 0);
        tries--;
    }
    return HOP_OK;
}

/* The best plan of one deal; *best is left as it is where that is better. */
static hop_status try_deal(const struct hop_plan_request *request, const struct hop_crew *crew,
                           enum hop_hdp_policy policy, int32_t k, struct hop_plan *best,
                           struct hop_error *err)
{
    struct hop_hdp_groups groups;
    struct teams teams = {0};
    struct hop_plan plan = {0};
    bool found = false;
    hop_status status = HOP_OK;
    HOP_TRY(hop_hdp_deal(request->cost, crew, policy, k, &groups, err));
    if (groups.count < 2 && k != 1)
        goto done;
    HOP_TRY_DONE(create_teams(request, crew, &groups, &teams, &found, err));
    if (!found)
        goto done;
    HOP_TRY_DONE(build(request, &teams, &plan, err));
    if (request->objective == HOP_OBJECTIVE_SIMULATED)
        HOP_TRY_DONE(improve_shares(request, &teams, &plan, err));
    hop_plan_keep(request, &plan, best);
    plan = (struct hop_plan){0};
done:
    hop_plan_free(&plan);
    free_teams(&teams);
    hop_hdp_groups_free(&groups);
    return status;
}

static hop_status refuse(const struct hop_cost_table *cost, const struct hop_crew *crew,
                         struct hop_error *err)
{
    double needed = 0, there = 0;
    const struct hop_cost_device *largest = NULL;
    for (int32_t b = 0; b < cost->blocks; b++) {
        double least = INFINITY;
        for (int32_t i = 0; i < crew->count; i++) {
            const struct hop_cost_device *const device = &cost->devices[crew->devices[i]];
            least = fmin(least, device->state_bytes[b] + device->activation_bytes[b]);
        }
        needed += least;
    }
    for (int32_t i = 0; i < crew->count; i++) {
        const struct hop_cost_device *const device = &cost->devices[crew->devices[i]];
        there += fmax(device->memory - device->fixed_bytes, 0);
        if (!largest || device->memory > largest->memory)
            largest = device;
    }
    if (needed > there)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: a group of hdp holds the whole model, and not even the group of all "
                        "%d devices does: %d blocks need %.4g bytes, %.4g are there (most on %s), "
                        "%.4g too few; use a smaller micro-batch or devices with more memory",
                        crew->count, cost->blocks, needed, there, largest->name, needed - there);
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: a group of hdp holds the whole model, and no split of the %d blocks "
                    "fits even the group of all %d devices (%.4g bytes, most on %s, with %.4g "
                    "needed at least); use a smaller micro-batch or devices with more memory",
                    cost->blocks, crew->count, there, largest->name, needed);
}

/* Two groups at least; one of all devices only where nothing else fits. */
static hop_status search(const struct hop_plan_request *request, struct hop_crew *crew,
                         struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan best = {0};
    hop_status status = HOP_OK;
    for (enum hop_hdp_policy policy = 0; policy < HOP_HDP_BALANCED; policy++)
        HOP_TRY_DONE(try_deal(request, crew, policy, 0, &best, err));
    for (int32_t k = 2; k <= crew->count && k <= request->micro_batches; k++)
        HOP_TRY_DONE(try_deal(request, crew, HOP_HDP_BALANCED, k, &best, err));
    if (!best.parts) {
        HOP_TRY_DONE(hop_crew_limit(request, crew, err));
        HOP_TRY_DONE(try_deal(request, crew, HOP_HDP_BALANCED, 1, &best, err));
    }
    if (!best.parts)
        return refuse(request->cost, crew, err);
    *out = best;
    return HOP_OK;
done:
    hop_plan_free(&best);
    return status;
}

static hop_status plan_hdp(const struct hop_plan_request *request, struct hop_plan *out,
                           struct hop_error *err)
{
    struct hop_crew crew = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY_DONE(hop_crew_create(request, hop_strategy_hdp.name, false, &crew, err));
    HOP_TRY_DONE(search(request, &crew, out, err));
done:
    hop_crew_free(&crew);
    return status;
}

const struct hop_strategy hop_strategy_hdp = {
    .name = "hdp",
    .summary = "groups of devices, a pipeline in each, data parallelism between them",
    .plan = plan_hdp,
    .schedule = hop_pipedream_schedule,
    .formula = hop_pipedream_formula,
};
