/* Asteroid: replicated stages on unlike devices, each with as many samples of a micro-batch as its
 * speed and memory are good for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "strategy/asteroid_latency.h"
#include "strategy/asteroid_search.h"
#include "strategy/crew.h"
#include "strategy/replicas.h"
#include "strategy/systems.h"

/* The most sets of devices that are searched; beyond that, of each kind of optional devices all or
 * none. */
enum { SETS_MOST = 256 };

struct crew {
    const struct hop_plan_request *request;
    int32_t *devices, count; /* by falling memory */
    int32_t *kind;           /* (count) first device that is like it; -1: not optional */
    int32_t *left_out;       /* (count) how many of that kind stay out, where it is the first */
    int32_t *chosen;         /* scratch (count) */
    struct hop_asteroid_stage *stages; /* scratch (count) */
    bool all, whole_kinds;
    struct hop_plan best;
};

static void free_crew(struct crew *crew)
{
    free(crew->devices);
    free(crew->kind);
    free(crew->left_out);
    free(crew->chosen);
    free(crew->stages);
    hop_plan_free(&crew->best);
}

static bool equal(const double *a, const double *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i] < b[i] || a[i] > b[i])
            return false;
    return true;
}

static bool equal_links(const struct hop_cost_table *cost, int32_t a, int32_t b)
{
    const int32_t n = cost->device_count;
    for (int32_t d = 0; d < n; d++) {
        if (d == a || d == b)
            continue;
        if (!equal(&cost->bandwidth[a * n + d], &cost->bandwidth[b * n + d], 1) ||
            !equal(&cost->bandwidth[d * n + a], &cost->bandwidth[d * n + b], 1) ||
            !equal(&cost->latency[a * n + d], &cost->latency[b * n + d], 1) ||
            !equal(&cost->latency[d * n + a], &cost->latency[d * n + b], 1))
            return false;
    }
    return true;
}

static bool alike(const struct hop_cost_table *cost, int32_t a, int32_t b)
{
    const struct hop_cost_device *const x = &cost->devices[a], *const y = &cost->devices[b];
    const int32_t n = cost->blocks;
    return x->bp == y->bp && equal(x->forward, y->forward, n) &&
           equal(x->backward, y->backward, n) && equal(x->state_bytes, y->state_bytes, n) &&
           equal(x->activation_bytes, y->activation_bytes, n) &&
           equal(&x->fixed_bytes, &y->fixed_bytes, 1) && equal(&x->memory, &y->memory, 1) &&
           equal_links(cost, a, b);
}

/* Equal ones stay in the order of the cost table. */
static void sort_by_memory(struct crew *crew)
{
    const struct hop_cost_device *const devices = crew->request->cost->devices;
    for (int32_t i = 1; i < crew->count; i++) {
        const int32_t device = crew->devices[i];
        int32_t at = i;
        for (; at > 0 && devices[crew->devices[at - 1]].memory < devices[device].memory; at--)
            crew->devices[at] = crew->devices[at - 1];
        crew->devices[at] = device;
    }
}

static void find_kinds(struct crew *crew)
{
    const struct hop_cost_table *const cost = crew->request->cost;
    double sets = 1;
    for (int32_t i = 0; i < crew->count; i++) {
        crew->kind[i] = crew->all || cost->devices[crew->devices[i]].bp ? -1 : i;
        for (int32_t j = 0; j < i && crew->kind[i] == i; j++)
            if (crew->kind[j] == j && alike(cost, crew->devices[i], crew->devices[j]))
                crew->kind[i] = j;
    }
    for (int32_t i = 0; i < crew->count; i++) {
        int32_t members = 0;
        for (int32_t j = 0; j < crew->count; j++)
            members += crew->kind[j] == i;
        sets *= members + 1;
    }
    crew->whole_kinds = sets > SETS_MOST;
}

static hop_status create_crew(const struct hop_plan_request *request, struct crew *crew,
                              struct hop_error *err)
{
    const size_t count = (size_t)request->cost->device_count;
    struct hop_crew members;
    crew->request = request;
    crew->all =
        request->devices == HOP_DEVICES_ALL ||
        (request->devices == HOP_DEVICES_DEFAULT && request->objective == HOP_OBJECTIVE_FORMULA);
    HOP_TRY(hop_calloc(&crew->kind, count, sizeof *crew->kind, err));
    HOP_TRY(hop_calloc(&crew->left_out, count, sizeof *crew->left_out, err));
    HOP_TRY(hop_calloc(&crew->chosen, count, sizeof *crew->chosen, err));
    HOP_TRY(hop_calloc(&crew->stages, count, sizeof *crew->stages, err));
    HOP_TRY(hop_crew_create(request, hop_strategy_asteroid.name, false, &members, err));
    crew->devices = members.devices;
    crew->count = members.count;
    sort_by_memory(crew);
    find_kinds(crew);
    return HOP_OK;
}

static double formula_asteroid(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    return hop_replica_formula(plan, cost, HOP_CUT_WHOLE, hop_asteroid_latency);
}

/* Devices without a sample are left out. */
static void add_stage(const struct hop_asteroid_problem *problem,
                      const struct hop_asteroid_stage *stage, int32_t s, int32_t stages,
                      struct hop_plan *plan)
{
    int32_t row = 0;
    for (int32_t i = 0; i < stage->count; i++) {
        const struct hop_part part = {.device = problem->devices[stage->first + i],
                                      .stage = s,
                                      .lo = stage->lo,
                                      .hi = stage->hi,
                                      .in_flight =
                                          hop_asteroid_kept(stages - s, problem->micro_batches)};
        const int32_t end = row + stage->samples[i];
        if (end > row)
            hop_plan_add_replica(plan, &part, row, end, problem->rows);
        row = end;
    }
}

static hop_status build(const struct crew *crew, const struct hop_asteroid_problem *problem,
                        int32_t stages, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin_exact(crew->request, hop_strategy_asteroid.name, problem->count, &plan,
                                 err));
    for (int32_t s = 0; s < stages; s++)
        add_stage(problem, &crew->stages[s], s, stages, &plan);
    HOP_TRY_DONE(hop_replica_price(&plan, problem->cost, err));
    HOP_TRY_DONE(hop_replica_time(&plan, problem->cost, err));
    plan.formula_seconds = formula_asteroid(&plan, problem->cost);
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}

/* Keeps the best pipeline of so many stages if it is better than all before. */
static hop_status offer(struct crew *crew, const struct hop_asteroid_problem *problem,
                        const struct hop_asteroid_search *search, int32_t stages,
                        struct hop_error *err)
{
    struct hop_plan plan;
    if (!isfinite(hop_asteroid_seconds(search, stages)))
        return HOP_OK;
    hop_asteroid_stages(search, stages, crew->stages);
    const hop_status status = build(crew, problem, stages, &plan, err);
    if (status == HOP_INFEASIBLE)
        return HOP_OK;
    HOP_TRY(status);
    hop_plan_keep(crew->request, &plan, &crew->best);
    return HOP_OK;
}

/* Plans for the devices that left_out leaves. */
static hop_status plan_set(struct crew *crew, struct hop_error *err)
{
    struct hop_asteroid_problem problem = {.cost = crew->request->cost,
                                           .devices = crew->chosen,
                                           .micro_batches = crew->request->micro_batches,
                                           .rows = hop_replica_rows(crew->request->cost),
                                           .idle = crew->all ? HOP_ASTEROID_IDLE_NEVER
                                                             : HOP_ASTEROID_IDLE_OUT};
    struct hop_asteroid_search *search;
    for (int32_t i = 0; i < crew->count; i++) {
        int32_t after = 0;
        for (int32_t j = i + 1; j < crew->count && crew->kind[i] >= 0; j++)
            after += crew->kind[j] == crew->kind[i];
        if (crew->kind[i] < 0 || after >= crew->left_out[crew->kind[i]])
            crew->chosen[problem.count++] = crew->devices[i];
    }
    if (problem.count == 0)
        return HOP_OK;
    HOP_TRY(hop_asteroid_search(&problem, &search, err));
    hop_status status = HOP_OK;
    for (int32_t p = 1; p <= hop_asteroid_most_stages(search) && status == HOP_OK; p++)
        status = offer(crew, &problem, search, p, err);
    hop_asteroid_search_free(search);
    return status;
}

/* The next set of optional devices to leave out; false: that was the last. */
static bool next_set(struct crew *crew)
{
    for (int32_t i = 0; i < crew->count; i++) {
        int32_t members = 0;
        for (int32_t j = 0; j < crew->count; j++)
            members += crew->kind[j] == i;
        if (members == 0)
            continue;
        if (crew->left_out[i] < members) {
            crew->left_out[i] += crew->whole_kinds ? members : 1;
            return true;
        }
        crew->left_out[i] = 0;
    }
    return false;
}

static hop_status plan_asteroid(const struct hop_plan_request *request, struct hop_plan *out,
                                struct hop_error *err)
{
    struct crew crew = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY_DONE(create_crew(request, &crew, err));
    do
        HOP_TRY_DONE(plan_set(&crew, err));
    while (next_set(&crew));
    if (crew.best.parts) {
        *out = crew.best;
        memset(&crew.best, 0, sizeof crew.best);
    } else {
        status = hop_replica_refuse(request, hop_strategy_asteroid.name, crew.devices, crew.count,
                                    crew.all, err);
    }
done:
    free_crew(&crew);
    return status;
}

const struct hop_strategy hop_strategy_asteroid = {
    .name = "asteroid",
    .summary = "replicated stages, samples shared out by speed and memory",
    .plan = plan_asteroid,
    .schedule = hop_replica_schedule,
    .formula = formula_asteroid,
};
