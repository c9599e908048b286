/* AccPar with all types. The devices are split in two again and again; a split is of type I, each
 * half then takes its rows of every micro-batch and needs the whole model in its memory, if that is
 * faster than to share the tensors (types II and III), which everything below a split then does. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "strategy/accpar_plan.h"
#include "strategy/parts.h"
#include "strategy/replicas.h"
#include "strategy/systems.h"

struct search {
    const struct hop_accpar_team *team;
    struct hop_accpar_gang *gangs, *trial; /* (devices) */
    int32_t count;
    struct hop_plan plan; /* of the gangs; no parts: they do not fit */
    double seconds;       /* by the objective; INFINITY where they do not fit */
};

/* Keeps the plan of the trial gangs if it is faster. */
static hop_status offer(struct search *search, int32_t count, bool *taken, struct hop_error *err)
{
    struct hop_plan plan;
    *taken = false;
    const hop_status status = hop_accpar_plan(search->team, hop_strategy_accpar_full.name,
                                              search->trial, count, &plan, err);
    if (status == HOP_INFEASIBLE)
        return HOP_OK;
    if (status != HOP_OK)
        return status;
    if (!(hop_plan_value(search->team->request, &plan) < search->seconds)) {
        hop_plan_free(&plan);
        return HOP_OK;
    }
    hop_plan_free(&search->plan);
    search->plan = plan;
    search->seconds = hop_plan_value(search->team->request, &plan);
    search->count = count;
    for (int32_t i = 0; i < count; i++)
        search->gangs[i] = search->trial[i];
    *taken = true;
    return HOP_OK;
}

static double rate(const struct hop_accpar_team *team, int32_t lo, int32_t hi)
{
    double sum = 0;
    for (int32_t i = lo; i < hi; i++)
        sum += team->rates[i];
    return sum;
}

/* Rows in proportion to the rates, at least one for either half. */
static int32_t middle_row(const struct hop_accpar_team *team, const struct hop_accpar_gang *gang,
                          int32_t middle)
{
    const int32_t rows = gang->row_hi - gang->row_lo;
    const double share = rate(team, gang->lo, middle) / rate(team, gang->lo, gang->hi);
    return gang->row_lo + (int32_t)fmin(fmax(round(share * rows), 1), rows - 1);
}

static void split(struct search *search, int32_t g)
{
    const struct hop_accpar_gang gang = search->gangs[g];
    const int32_t middle = hop_accpar_middle(search->team->devices, gang.lo, gang.hi);
    const int32_t row = middle_row(search->team, &gang, middle);
    for (int32_t i = 0; i < search->count; i++)
        search->trial[i < g ? i : i + 1] = search->gangs[i];
    search->trial[g] = (struct hop_accpar_gang){gang.lo, middle, gang.row_lo, row};
    search->trial[g + 1] = (struct hop_accpar_gang){middle, gang.hi, row, gang.row_hi};
}

static bool splits(const struct hop_accpar_gang *gang)
{
    return gang->hi - gang->lo > 1 && gang->row_hi - gang->row_lo > 1;
}

/* A gang that was split is looked at again: its first half stands in its place. */
static hop_status descend(struct search *search, struct hop_error *err)
{
    for (int32_t g = 0; g < search->count;) {
        bool taken = false;
        if (splits(&search->gangs[g])) {
            split(search, g);
            HOP_TRY(offer(search, search->count + 1, &taken, err));
        }
        g += !taken;
    }
    return HOP_OK;
}

static hop_status run(struct search *search, struct hop_error *err)
{
    const struct hop_accpar_team *const team = search->team;
    const size_t devices = (size_t)team->count;
    struct hop_error reason = {0};
    bool taken;
    HOP_TRY(hop_calloc(&search->gangs, devices, sizeof *search->gangs, err));
    HOP_TRY(hop_calloc(&search->trial, devices, sizeof *search->trial, err));
    search->trial[0] = (struct hop_accpar_gang){0, team->count, 0, team->rows};
    search->gangs[0] = search->trial[0];
    search->count = 1;
    HOP_TRY(offer(search, 1, &taken, &reason));
    HOP_TRY(descend(search, err));
    if (search->plan.parts)
        return HOP_OK;
    *err = reason;
    return HOP_INFEASIBLE;
}

static hop_status plan_accpar_full(const struct hop_plan_request *request, struct hop_plan *out,
                                   struct hop_error *err)
{
    struct hop_accpar_team team;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(hop_accpar_team_create(request, hop_strategy_accpar_full.name, &team, err));
    struct search search = {.team = &team, .seconds = INFINITY};
    const hop_status status = run(&search, err);
    if (status == HOP_OK)
        *out = search.plan;
    else
        hop_plan_free(&search.plan);
    free(search.gangs);
    free(search.trial);
    hop_accpar_team_free(&team);
    return status;
}

const struct hop_strategy hop_strategy_accpar_full = {
    .name = "accpar-full",
    .summary = "AccPar that also shares the samples, where memory holds copies of the model",
    .plan = plan_accpar_full,
    .schedule = hop_replica_schedule,
    .formula = hop_accpar_formula,
};
