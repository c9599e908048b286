#include "strategy/accpar_team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "strategy/accpar_shares.h"
#include "strategy/crew.h"
#include "strategy/replicas.h"

void hop_accpar_team_free(struct hop_accpar_team *team)
{
    if (!team)
        return;
    free(team->devices);
    free(team->rates);
    free(team->caps);
    free(team->units);
    *team = (struct hop_accpar_team){0};
}

static hop_status allocate(struct hop_accpar_team *team, struct hop_error *err)
{
    const size_t devices = (size_t)team->request->cost->device_count;
    HOP_TRY(hop_calloc(&team->devices, devices, sizeof *team->devices, err));
    HOP_TRY(hop_calloc(&team->rates, devices, sizeof *team->rates, err));
    HOP_TRY(hop_calloc(&team->caps, devices, sizeof *team->caps, err));
    return hop_calloc(&team->units, devices, sizeof *team->units, err);
}

static bool same(const double *a, const double *b, int32_t blocks)
{
    return memcmp(a, b, (size_t)blocks * sizeof *a) == 0;
}

static bool same_figures(const struct hop_cost_table *cost, int32_t a, int32_t b)
{
    const struct hop_cost_device *const x = &cost->devices[a], *const y = &cost->devices[b];
    const int32_t blocks = cost->blocks;
    return x->memory == y->memory && x->fixed_bytes == y->fixed_bytes &&
           same(x->forward, y->forward, blocks) && same(x->backward, y->backward, blocks) &&
           same(x->state_bytes, y->state_bytes, blocks) &&
           same(x->activation_bytes, y->activation_bytes, blocks);
}

/* Types are numbered as they first appear. */
static void add(struct hop_accpar_team *team, int32_t device)
{
    const struct hop_cost_table *const cost = team->request->cost;
    int32_t types = 0, type = -1;
    for (int32_t i = 0; i < team->count; i++) {
        const struct hop_accpar_device *const other = &team->devices[i];
        types = other->type >= types ? other->type + 1 : types;
        if (type < 0 && same_figures(cost, other->device, device))
            type = other->type;
    }
    team->devices[team->count++] = (struct hop_accpar_device){
        .device = device, .bp = cost->devices[device].bp, .type = type < 0 ? types : type};
}

static double seconds_on(const struct hop_accpar_team *team, int32_t member)
{
    const struct hop_cost_table *const cost = team->request->cost;
    const int32_t device = team->devices[member].device;
    return hop_cost_forward(cost, device, 0, cost->blocks) +
           hop_cost_backward(cost, device, 0, cost->blocks);
}

/* Devices that take no time at all are told apart from the others, not from each other. */
static void rate(struct hop_accpar_team *team)
{
    static const double least = 1e-9;
    double slowest = 0;
    for (int32_t i = 0; i < team->count; i++)
        slowest = fmax(slowest, seconds_on(team, i));
    for (int32_t i = 0; i < team->count; i++)
        team->rates[i] = slowest > 0 ? 1 / fmax(seconds_on(team, i), least * slowest) : 1;
}

hop_status hop_accpar_team_create(const struct hop_plan_request *request, const char *strategy,
                                  struct hop_accpar_team *out, struct hop_error *err)
{
    struct hop_accpar_team team = {.request = request};
    struct hop_crew crew;
    hop_status status = HOP_OK;
    HOP_TRY(hop_crew_create(request, strategy, false, &crew, err));
    HOP_TRY_DONE(allocate(&team, err));
    for (int32_t i = 0; i < crew.count; i++)
        add(&team, crew.devices[i]);
    hop_accpar_sort(team.devices, team.count);
    rate(&team);
    team.rows = hop_replica_rows(request->cost);
    team.whole = request->cost->tensor_units > 0 ? request->cost->tensor_units : HOP_ACCPAR_UNITS;
    *out = team;
    team = (struct hop_accpar_team){0};
done:
    hop_crew_free(&crew);
    hop_accpar_team_free(&team);
    return status;
}

/* The part of a member with so many units, the first of them `first`. */
static struct hop_part part_of(const struct hop_accpar_team *team,
                               const struct hop_accpar_gang *gang, int32_t member, int32_t first,
                               int32_t units)
{
    return (struct hop_part){.device = team->devices[member].device,
                             .hi = team->request->cost->blocks,
                             .sample_lo = (double)gang->row_lo / team->rows,
                             .sample_hi = (double)gang->row_hi / team->rows,
                             .tensor_lo = (double)first / team->whole,
                             .tensor_hi = (double)(first + units) / team->whole,
                             .micro_hi = 1,
                             .gradient = HOP_GRADIENT_BACKPROP,
                             .in_flight = 1};
}

static double memory_of(const struct hop_accpar_team *team, const struct hop_accpar_gang *gang,
                        int32_t member, int32_t units)
{
    const struct hop_part part = part_of(team, gang, member, 0, units);
    return hop_price_part_memory(team->request->cost, &part, 1);
}

/* The most units that the member's memory holds. */
static int32_t cap(const struct hop_accpar_team *team, const struct hop_accpar_gang *gang,
                   int32_t member)
{
    const double memory = team->request->cost->devices[team->devices[member].device].memory;
    int32_t low = 0, high = team->whole;
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (memory_of(team, gang, member, middle) <= memory)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static hop_status too_small(const struct hop_accpar_team *team, const struct hop_accpar_gang *gang,
                            struct hop_error *err)
{
    const struct hop_accpar_device *const first = &team->devices[gang->lo];
    const double fixed = team->request->cost->devices[first->device].fixed_bytes;
    const double whole = memory_of(team, gang, gang->lo, team->whole) - fixed;
    int64_t held = 0;
    for (int32_t i = gang->lo; i < gang->hi; i++)
        held += team->caps[i];
    const double part = (double)held / team->whole;
    if (part >= 1)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %d devices share the tensors of the model and not every one has "
                        "room for its least share, 1/%d; take devices out or set plan.devices: "
                        "auto",
                        gang->hi - gang->lo, team->whole);
    return hop_fail(
        err, HOP_INFEASIBLE,
        "plan: %d devices that share all tensors hold %.3g %% of the model (%s: %.3g %%) "
        "with one micro-batch kept, %.4g of %.4g bytes too few; use more devices or a "
        "smaller micro-batch",
        gang->hi - gang->lo, 100 * part, team->request->cost->devices[first->device].name,
        100 * (double)team->caps[gang->lo] / team->whole, (1 - part) * whole, whole);
}

hop_status hop_accpar_add_gang(const struct hop_accpar_team *team,
                               const struct hop_accpar_gang *gang, struct hop_plan *plan,
                               struct hop_error *err)
{
    const int32_t least = team->request->devices == HOP_DEVICES_ALL, n = gang->hi - gang->lo;
    for (int32_t i = gang->lo; i < gang->hi; i++)
        team->caps[i] = cap(team, gang, i);
    if (!hop_accpar_deal(&team->rates[gang->lo], &team->caps[gang->lo], n, team->whole, least,
                         &team->units[gang->lo]))
        return too_small(team, gang, err);
    int32_t first = 0;
    for (int32_t i = gang->lo; i < gang->hi; i++) {
        if (team->units[i] > 0)
            plan->parts[plan->part_count++] = part_of(team, gang, i, first, team->units[i]);
        first += team->units[i];
    }
    return HOP_OK;
}
