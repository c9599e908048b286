/* DAPPLE: replicated stages on devices that are taken to be alike. The planner sees their mean: a
 * block costs its forward and backward averaged over the devices, a link of a machine, or between
 * machines, the average of those. Only memory is that of each device. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "strategy/crew.h"
#include "strategy/dapple_search.h"
#include "strategy/replicas.h"
#include "strategy/systems.h"

/* Transfers of at least this part of the computation are worth the longer warm-up: in the paper it
 * gains 2 % at a ratio of 0.03, nothing at 0.06, 31 % at 0.10. */
static const double notable_acr = 0.1;

struct crew {
    const struct hop_cost_table *cost;
    int32_t *devices, count; /* machine by machine */
    int32_t rows;
    double *sums;  /* storage of the problem's sums */
    double *bytes; /* (count, 2, blocks + 1) state and activations of the first so many blocks */
    struct hop_dapple_problem problem;
    struct hop_dapple_stage *stages;
    int32_t stage_count;
};

static void free_crew(struct crew *crew)
{
    free(crew->devices);
    free(crew->sums);
    free(crew->bytes);
    free(crew->problem.machines.ends);
    free(crew->stages);
}

static hop_status choose_devices(const struct hop_plan_request *request, struct crew *crew,
                                 struct hop_error *err)
{
    const int64_t most = (int64_t)request->cost->blocks * crew->rows;
    struct hop_crew members;
    HOP_TRY(hop_crew_create(request, hop_strategy_dapple.name, false, &members, err));
    crew->devices = members.devices;
    crew->count = members.count;
    if (request->devices == HOP_DEVICES_AUTO && crew->count > most)
        crew->count = (int32_t)most;
    if (crew->count > HOP_CARDS_MOST)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "plan: %d devices take part and dapple plans for %d at most; take devices "
                        "out of the cluster",
                        crew->count, HOP_CARDS_MOST);
    return HOP_OK;
}

/* Devices of a machine side by side, machines as the cost table meets them. */
static hop_status sort_by_machine(struct crew *crew, struct hop_error *err)
{
    struct hop_card_machines *const machines = &crew->problem.machines;
    const int32_t *const machine = crew->cost->machine;
    int32_t placed = 0;
    HOP_TRY(hop_calloc(&machines->ends, (size_t)crew->count, sizeof *machines->ends, err));
    while (placed < crew->count) {
        const int32_t now = machine[crew->devices[placed]];
        for (int32_t i = placed; i < crew->count; i++) {
            const int32_t device = crew->devices[i];
            if (machine[device] != now)
                continue;
            for (int32_t j = i; j > placed; j--)
                crew->devices[j] = crew->devices[j - 1];
            crew->devices[placed++] = device;
        }
        machines->ends[machines->count++] = placed;
    }
    return HOP_OK;
}

/* The mean of the links inside machines, or between them. */
static struct hop_dapple_link mean_link(const struct crew *crew, bool inside)
{
    const struct hop_cost_table *const cost = crew->cost;
    struct hop_dapple_link link = {0};
    int32_t count = 0;
    for (int32_t i = 0; i < crew->count; i++)
        for (int32_t j = 0; j < crew->count; j++) {
            const int32_t a = crew->devices[i], b = crew->devices[j];
            if (i == j || (cost->machine[a] == cost->machine[b]) != inside)
                continue;
            link.latency += hop_cost_link(cost, a, b, 0);
            link.seconds_per_byte += 1 / cost->bandwidth[a * cost->device_count + b];
            count++;
        }
    if (count > 0) {
        link.latency /= count;
        link.seconds_per_byte /= count;
    }
    return link;
}

static hop_status average_blocks(struct crew *crew, struct hop_error *err)
{
    const struct hop_cost_table *const cost = crew->cost;
    const size_t row = (size_t)cost->blocks + 1;
    HOP_TRY(hop_calloc(&crew->sums, 3 * row, sizeof *crew->sums, err));
    double *const forward = crew->sums, *const backward = forward + row,
                  *const gradients = backward + row;
    for (int32_t b = 0; b < cost->blocks; b++) {
        double f = 0, g = 0;
        for (int32_t i = 0; i < crew->count; i++) {
            f += cost->devices[crew->devices[i]].forward[b];
            g += cost->devices[crew->devices[i]].backward[b];
        }
        forward[b + 1] = forward[b] + f / crew->count;
        backward[b + 1] = backward[b] + g / crew->count;
        gradients[b + 1] = gradients[b] + cost->gradient_bytes[b];
    }
    crew->problem.forward = forward;
    crew->problem.backward = backward;
    crew->problem.gradients = gradients;
    return HOP_OK;
}

/* As hop_price_part_memory(), of `kept` micro-batches: those times the share of a replica. */
static double held_bytes(const struct crew *crew, int32_t i, int32_t lo, int32_t hi, double kept)
{
    const size_t row = (size_t)crew->cost->blocks + 1;
    const double *const state = crew->bytes + 2 * (size_t)i * row, *const activation = state + row;
    const bool whole = lo == 0 && hi == crew->cost->blocks;
    return crew->cost->devices[crew->devices[i]].fixed_bytes + state[hi] - state[lo] -
           (whole ? crew->cost->tied_bytes : 0) + kept * (activation[hi] - activation[lo]);
}

/* Does every device hold the blocks and its samples of so many micro-batches? */
static bool stage_fits(const void *context, int32_t lo, int32_t hi, hop_cards cards, int32_t kept)
{
    const struct crew *const crew = context;
    const double share = hop_dapple_share(&crew->problem, hop_cards_count(cards));
    for (int32_t i = 0; i < crew->count; i++)
        if (cards & hop_card(i) && held_bytes(crew, i, lo, hi, share * kept) >
                                       crew->cost->devices[crew->devices[i]].memory)
            return false;
    return true;
}

static hop_status sum_bytes(struct crew *crew, struct hop_error *err)
{
    const struct hop_cost_table *const cost = crew->cost;
    const size_t row = (size_t)cost->blocks + 1;
    HOP_TRY(hop_calloc(&crew->bytes, 2 * (size_t)crew->count * row, sizeof *crew->bytes, err));
    for (int32_t i = 0; i < crew->count; i++) {
        const struct hop_cost_device *const device = &cost->devices[crew->devices[i]];
        double *const state = crew->bytes + 2 * (size_t)i * row, *const activation = state + row;
        for (int32_t b = 0; b < cost->blocks; b++) {
            state[b + 1] = state[b] + device->state_bytes[b];
            activation[b + 1] = activation[b] + device->activation_bytes[b];
        }
    }
    return HOP_OK;
}

static hop_status create_crew(const struct hop_plan_request *request, struct crew *crew,
                              struct hop_error *err)
{
    const struct hop_cost_table *const cost = request->cost;
    crew->cost = cost;
    crew->rows = hop_replica_rows(cost);
    HOP_TRY(choose_devices(request, crew, err));
    HOP_TRY(sort_by_machine(crew, err));
    HOP_TRY(average_blocks(crew, err));
    HOP_TRY(sum_bytes(crew, err));
    HOP_TRY(hop_calloc(&crew->stages, (size_t)crew->count, sizeof *crew->stages, err));
    crew->problem.layers = cost->blocks;
    crew->problem.micro_batches = request->micro_batches;
    crew->problem.rows = crew->rows;
    crew->problem.boundary = cost->boundary_bytes;
    crew->problem.inside = mean_link(crew, true);
    crew->problem.between = mean_link(crew, false);
    crew->problem.shared_nic = cost->shared_nic;
    crew->problem.fits = stage_fits;
    crew->problem.context = crew;
    return HOP_OK;
}

static double formula_dapple(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_error err = {0};
    struct hop_pipeline_step *steps;
    int32_t count;
    if (hop_replica_steps(plan, cost, HOP_CUT_PIECES, &steps, &count, &err) != HOP_OK)
        return NAN;
    const double seconds = count ? hop_pivot_seconds(steps, count, plan->micro_batches) : NAN;
    free(steps);
    return seconds;
}

/* P_A keeps S - i micro-batches, P_B 2 (S - i) - 1. */
static hop_status is_communication_notable(const struct crew *crew, bool *notable,
                                           struct hop_error *err)
{
    struct hop_pipeline_step *steps;
    HOP_TRY(hop_calloc(&steps, 2 * (size_t)crew->stage_count, sizeof *steps, err));
    hop_dapple_steps(&crew->problem, crew->stages, crew->stage_count, steps);
    *notable = hop_dapple_acr(steps, 2 * crew->stage_count - 1) >= notable_acr;
    free(steps);
    return HOP_OK;
}

/* Samples are split evenly, in whole rows. */
static void add_stage(const struct crew *crew, int32_t s, int32_t kept, struct hop_plan *plan)
{
    const struct hop_dapple_stage *const stage = &crew->stages[s];
    const int32_t replicas = hop_cards_count(stage->cards);
    int64_t replica = 0;
    for (int32_t i = 0; i < crew->count; i++) {
        if (!(stage->cards & hop_card(i)))
            continue;
        const struct hop_part part = {.device = crew->devices[i],
                                      .stage = s,
                                      .lo = stage->lo,
                                      .hi = stage->hi,
                                      .in_flight = kept};
        hop_plan_add_replica(plan, &part, (int32_t)(replica * crew->rows / replicas),
                             (int32_t)((replica + 1) * crew->rows / replicas), crew->rows);
        replica++;
    }
}

static hop_status build(const struct hop_plan_request *request, const struct crew *crew,
                        struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    bool notable = false;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin(request, hop_strategy_dapple.name, crew->count, &plan, err));
    plan.probes = plan.exit_probes = 0;
    HOP_TRY_DONE(is_communication_notable(crew, &notable, err));
    for (int32_t s = 0; s < crew->stage_count; s++)
        add_stage(crew, s,
                  notable ? hop_in_flight_most(crew->stage_count, s, plan.micro_batches)
                          : hop_in_flight_least(crew->stage_count, s, plan.micro_batches),
                  &plan);
    HOP_TRY_DONE(hop_replica_price(&plan, request->cost, err));
    HOP_TRY_DONE(hop_replica_time(&plan, request->cost, err));
    plan.formula_seconds = formula_dapple(&plan, request->cost);
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}

/* Stages that memory keeps from warming up wait for each other, so they are the second choice. */
static hop_status find_stages(struct crew *crew, struct hop_error *err)
{
    double seconds;
    HOP_TRY(hop_dapple_search(&crew->problem, crew->stages, &crew->stage_count, &seconds, err));
    if (crew->stage_count > 0)
        return HOP_OK;
    crew->problem.one_kept = true;
    return hop_dapple_search(&crew->problem, crew->stages, &crew->stage_count, &seconds, err);
}

static hop_status plan_dapple(const struct hop_plan_request *request, struct hop_plan *out,
                              struct hop_error *err)
{
    struct crew crew = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY_DONE(create_crew(request, &crew, err));
    HOP_TRY_DONE(find_stages(&crew, err));
    if (crew.stage_count == 0)
        status = hop_replica_refuse(request, hop_strategy_dapple.name, crew.devices, crew.count,
                                    true, err);
    else
        status = build(request, &crew, out, err);
done:
    free_crew(&crew);
    return status;
}

const struct hop_strategy hop_strategy_dapple = {
    .name = "dapple",
    .summary = "replicated stages, planned as if all devices were alike",
    .plan = plan_dapple,
    .schedule = hop_replica_schedule,
    .formula = formula_dapple,
};
