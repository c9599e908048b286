/* What the greedy scheduler knows of a plan before it plays it. */
#include "schedule/greedy.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "schedule/greedy_internal.h"
#include "schedule/price.h"

static int32_t divide_up(int32_t a, int32_t b)
{
    return a > 0 ? (a - 1) / b + 1 : 0;
}

/* Probes that one task runs at once. */
static int32_t batch_of(const struct hop_greedy *greedy, int32_t way)
{
    const int32_t probes = greedy->probes[way], batch = greedy->probe_batch;
    return batch > 0 && batch < probes ? batch : probes;
}

static hop_status create_arrays(struct hop_greedy *greedy, struct hop_error *err)
{
    const size_t parts = (size_t)greedy->part_capacity;
    const size_t devices = (size_t)greedy->cost->device_count;
    size_t inputs = 2;
    for (int32_t w = 0; w < HOP_GREEDY_WAYS; w++)
        inputs += (size_t)divide_up(greedy->probes[w], batch_of(greedy, w));
    inputs *= (size_t)greedy->micro_batches;
    HOP_TRY(hop_calloc(&greedy->parts, parts, sizeof *greedy->parts, err));
    HOP_TRY(hop_calloc(&greedy->stages, parts, sizeof *greedy->stages, err));
    HOP_TRY(hop_calloc(&greedy->arrivals, parts, inputs * sizeof *greedy->arrivals, err));
    HOP_TRY(hop_calloc(&greedy->devices, devices, sizeof *greedy->devices, err));
    HOP_TRY(hop_calloc(&greedy->round, devices, sizeof *greedy->round, err));
    HOP_TRY(hop_agenda_create((int32_t)devices, &greedy->agenda, err));
    return hop_network_create(greedy->cost, &greedy->network, err);
}

static hop_status check_counts(int32_t parts, int32_t micro_batches, int32_t probes,
                               int32_t exit_probes, int32_t probe_batch, struct hop_error *err)
{
    if (parts < 1 || micro_batches < 1 || probes < 0 || exit_probes < 0 || probe_batch < 0)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d parts, %d micro-batches, %d probes and %d exit probes, %d at "
                        "once; at least 1, 1, 0, 0 and 0 are needed",
                        parts, micro_batches, probes, exit_probes, probe_batch);
    if (probes > INT32_MAX / micro_batches || exit_probes > INT32_MAX / micro_batches)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d probes and %d exit probes of each of %d micro-batches are "
                        "too many; use fewer",
                        probes, exit_probes, micro_batches);
    return HOP_OK;
}

hop_status hop_greedy_create(const struct hop_cost_table *cost, int32_t parts,
                             int32_t micro_batches, int32_t probes, int32_t exit_probes,
                             int32_t probe_batch, struct hop_greedy **out, struct hop_error *err)
{
    HOP_TRY(check_counts(parts, micro_batches, probes, exit_probes, probe_batch, err));
    struct hop_greedy *greedy;
    HOP_TRY(hop_calloc(&greedy, 1, sizeof *greedy, err));
    greedy->cost = cost;
    greedy->part_capacity = parts;
    greedy->micro_batches = micro_batches;
    greedy->probes[HOP_GREEDY_PROBES] = probes;
    greedy->probes[HOP_GREEDY_EXITS] = exit_probes;
    greedy->probe_batch = probe_batch;
    const hop_status status = create_arrays(greedy, err);
    if (status != HOP_OK) {
        hop_greedy_free(greedy);
        return status;
    }
    *out = greedy;
    return HOP_OK;
}

void hop_greedy_free(struct hop_greedy *greedy)
{
    if (!greedy)
        return;
    free(greedy->parts);
    free(greedy->stages);
    free(greedy->arrivals);
    free(greedy->devices);
    free(greedy->round);
    hop_agenda_free(&greedy->agenda);
    hop_network_free(&greedy->network);
    free(greedy);
}

int32_t hop_greedy_way(enum hop_task_kind kind)
{
    switch (kind) {
    case HOP_PROBE:
        return HOP_GREEDY_PROBES;
    case HOP_EXIT_PROBE:
        return HOP_GREEDY_EXITS;
    default:
        return -1;
    }
}

struct hop_task hop_greedy_task(const struct hop_greedy *greedy, int32_t part,
                                enum hop_task_kind kind, int32_t number)
{
    struct hop_task task = {.kind = kind, .part = part, .micro_batch = number};
    if (kind == HOP_STEP)
        task.micro_batch = -1;
    if (hop_greedy_way(kind) < 0)
        return task;
    const struct hop_greedy_probes *const way = &greedy->way[hop_greedy_way(kind)];
    task.micro_batch = number / way->tasks;
    task.probe_lo = number % way->tasks * way->batch;
    task.probe_hi = task.probe_lo + way->batch;
    if (task.probe_hi > way->probes)
        task.probe_hi = way->probes;
    return task;
}

static void count_probes(struct hop_greedy *greedy, int32_t way, bool runs)
{
    const int32_t probes = runs ? greedy->probes[way] : 0;
    const int32_t batch = batch_of(greedy, way);
    greedy->way[way] = (struct hop_greedy_probes){probes, batch, divide_up(probes, batch)};
}

/* What the plan's estimator asks for. */
static void read_estimator(struct hop_greedy *greedy)
{
    const struct hop_plan *const plan = greedy->plan;
    int32_t maker;
    greedy->last = hop_plan_last_zeroth_order(plan);
    const bool runs = greedy->last >= 0;
    greedy->derived_by = hop_plan_derivative_task(plan, &maker);
    count_probes(greedy, HOP_GREEDY_PROBES, runs && hop_plan_runs_probes(plan, greedy->last));
    count_probes(greedy, HOP_GREEDY_EXITS, runs && hop_plan_runs_exit_probes(plan, greedy->last));
    greedy->base_losses = greedy->way[HOP_GREEDY_EXITS].tasks > 0 && hop_plan_sends_base_loss(plan);
}

static bool probes_here(const struct hop_greedy *greedy, int32_t way, int32_t p)
{
    if (p < 0 || !greedy->way[way].tasks)
        return false;
    return way == HOP_GREEDY_PROBES ? hop_plan_runs_probes(greedy->plan, p)
                                    : hop_plan_runs_exit_probes(greedy->plan, p);
}

/* Who takes a gradient, and which part keeps what: nothing for probes that are not there. */
static void read_gradients(struct hop_greedy *greedy, int32_t p)
{
    const struct hop_plan *const plan = greedy->plan;
    struct hop_greedy_part *const part = &greedy->parts[p];
    const bool probed = greedy->way[HOP_GREEDY_PROBES].tasks > 0;
    part->gradient = hop_plan_gradient_task(plan, p);
    if (part->gradient == HOP_DELTA && plan->estimator == HOP_BOUNDARY && !probed)
        part->gradient = HOP_TASK_KINDS;
    part->frees = hop_plan_frees(plan, p);
    if (part->frees == HOP_PROBE && !probed)
        part->frees = HOP_TASK_KINDS;
    part->in_flight = part->frees != HOP_TASK_KINDS && plan->parts[p].in_flight > 0
                          ? plan->parts[p].in_flight
                          : INT32_MAX;
    part->pending = part->gradient == HOP_DELTA && plan->parts[p].pending > 0
                        ? plan->parts[p].pending
                        : INT32_MAX;
}

static void read_ways(struct hop_greedy *greedy, int32_t p)
{
    struct hop_greedy_part *const part = &greedy->parts[p];
    for (int32_t w = 0; w < HOP_GREEDY_WAYS; w++) {
        const bool here = probes_here(greedy, w, p);
        part->way[w].receives = here && probes_here(greedy, w, part->previous);
        part->way[w].sends = here && probes_here(greedy, w, part->next);
    }
    struct hop_greedy_probing *const probes = &part->way[HOP_GREEDY_PROBES];
    probes->derives = greedy->derived_by == HOP_PROBE && part->next < 0;
    probes->after_forward = part->next < 0 || part->frees == HOP_PROBE;
    struct hop_greedy_probing *const exits = &part->way[HOP_GREEDY_EXITS];
    exits->derives = exits->after_forward = p == greedy->last;
}

static void connect(struct hop_greedy *greedy)
{
    const struct hop_plan *const plan = greedy->plan;
    for (int32_t p = 0; p < plan->part_count; p++)
        greedy->stages[plan->parts[p].stage] = p;
    for (int32_t d = 0; d < greedy->cost->device_count; d++)
        greedy->devices[d] = (struct hop_greedy_device){.first = -1};
    for (int32_t p = plan->part_count - 1; p >= 0; p--) {
        const struct hop_part *const from = &plan->parts[p];
        struct hop_greedy_part *const part = &greedy->parts[p];
        const int32_t stage = from->stage;
        const int32_t previous = stage > 0 ? greedy->stages[stage - 1] : -1;
        *part = (struct hop_greedy_part){
            .device = from->device,
            .previous = previous,
            .next = stage + 1 < plan->part_count ? greedy->stages[stage + 1] : -1,
            .next_here = greedy->devices[from->device].first,
            .zeroth_order = from->gradient == HOP_GRADIENT_ZEROTH_ORDER,
        };
        greedy->devices[from->device].first = p;
        read_gradients(greedy, p);
        read_ways(greedy, p);
    }
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_greedy_part *const part = &greedy->parts[p];
        part->sends_gradient = part->gradient != HOP_TASK_KINDS && part->previous >= 0 &&
                               greedy->parts[part->previous].gradient != HOP_TASK_KINDS;
    }
}

/* Messages that the STEP of a zeroth-order part needs. */
static int32_t count_derivatives(const struct hop_greedy *greedy)
{
    const struct hop_greedy_probes *const way = greedy->way;
    const int32_t of_probes = greedy->derived_by == HOP_DELTA ? way[HOP_GREEDY_PROBES].tasks > 0
                                                              : way[HOP_GREEDY_PROBES].tasks;
    return greedy->micro_batches * (of_probes + way[HOP_GREEDY_EXITS].tasks + greedy->base_losses);
}

static void count_tasks(struct hop_greedy *greedy, int32_t p)
{
    struct hop_greedy_part *const part = &greedy->parts[p];
    const int32_t m = greedy->micro_batches;
    int32_t tasks[HOP_GREEDY_WAYS];
    for (int32_t w = 0; w < HOP_GREEDY_WAYS; w++)
        tasks[w] = m * greedy->way[w].tasks;
    double *const arrival =
        greedy->arrivals + (size_t)p * (2 * (size_t)m + (size_t)tasks[HOP_GREEDY_PROBES] +
                                        (size_t)tasks[HOP_GREEDY_EXITS]);
    part->wanted[HOP_FORWARD] = m;
    if (part->gradient != HOP_TASK_KINDS)
        part->wanted[part->gradient] = m;
    if (probes_here(greedy, HOP_GREEDY_PROBES, p))
        part->wanted[HOP_PROBE] = tasks[HOP_GREEDY_PROBES];
    if (probes_here(greedy, HOP_GREEDY_EXITS, p))
        part->wanted[HOP_EXIT_PROBE] = tasks[HOP_GREEDY_EXITS];
    part->wanted[HOP_STEP] = greedy->plan->parts[p].gradient != HOP_GRADIENT_NONE;
    part->derivatives = part->zeroth_order ? count_derivatives(greedy) : 0;
    part->arrival[HOP_FORWARD] = arrival;
    part->arrival[HOP_BACKWARD] = part->arrival[HOP_DELTA] = arrival + m;
    part->arrival[HOP_PROBE] = arrival + 2 * m;
    part->arrival[HOP_EXIT_PROBE] = arrival + 2 * m + tasks[HOP_GREEDY_PROBES];
}

static double task_seconds(const struct hop_greedy *greedy, int32_t p, enum hop_task_kind kind,
                           int32_t number)
{
    if (!greedy->parts[p].wanted[kind])
        return 0;
    const struct hop_task task = hop_greedy_task(greedy, p, kind, number);
    return hop_price_task(greedy->cost, greedy->plan, &task);
}

/* Seconds of all PROBEs or EXIT_PROBEs but the last of every micro-batch. */
static double more_probes(const struct hop_greedy_part *part, enum hop_task_kind kind,
                          int32_t batches)
{
    const int32_t wanted = part->wanted[kind];
    return (wanted ? wanted - batches : 0) * part->seconds[kind];
}

static void price_tasks(struct hop_greedy *greedy, int32_t p)
{
    static const enum hop_task_kind kinds[] = {HOP_FORWARD,    HOP_BACKWARD, HOP_PROBE,
                                               HOP_EXIT_PROBE, HOP_DELTA,    HOP_STEP};
    struct hop_greedy_part *const part = &greedy->parts[p];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        part->seconds[kinds[k]] = task_seconds(greedy, p, kinds[k], 0);
    struct hop_greedy_probing *const probes = &part->way[HOP_GREEDY_PROBES];
    struct hop_greedy_probing *const exits = &part->way[HOP_GREEDY_EXITS];
    probes->last = task_seconds(greedy, p, HOP_PROBE, greedy->way[HOP_GREEDY_PROBES].tasks - 1);
    exits->last = task_seconds(greedy, p, HOP_EXIT_PROBE, greedy->way[HOP_GREEDY_EXITS].tasks - 1);
    const int32_t batches = greedy->micro_batches;
    const double work = batches * (part->seconds[HOP_FORWARD] + part->seconds[HOP_BACKWARD] +
                                   probes->last + part->seconds[HOP_DELTA] + exits->last) +
                        part->seconds[HOP_STEP] + more_probes(part, HOP_PROBE, batches) +
                        more_probes(part, HOP_EXIT_PROBE, batches);
    greedy->devices[part->device].work += work;
    greedy->devices[part->device].left += work;
}

static double message_seconds(const struct hop_greedy *greedy, enum hop_payload payload,
                              int32_t from, int32_t to, int32_t probes)
{
    const struct hop_transfer transfer = {.payload = payload,
                                          .from_device = greedy->parts[from].device,
                                          .to_device = greedy->parts[to].device,
                                          .from_part = from,
                                          .to_part = to,
                                          .probe_hi = probes,
                                          .sample_hi = 1};
    return hop_price_transfer(greedy->cost, greedy->plan, &transfer);
}

static void price_messages(struct hop_greedy *greedy, int32_t p)
{
    struct hop_greedy_part *const part = &greedy->parts[p];
    const int32_t head = greedy->stages[greedy->plan->part_count - 1];
    if (part->next >= 0)
        part->send_activation = message_seconds(greedy, HOP_ACTIVATION, p, part->next, 0);
    if (part->sends_gradient)
        part->send_gradient = message_seconds(greedy, HOP_GRADIENT, p, part->previous, 0);
    if (part->zeroth_order && greedy->base_losses)
        part->base_loss = message_seconds(greedy, HOP_BASE_LOSS, head, p, 0);
}

/* A DELTA sends those of all probes at once. */
static void price_derivatives(struct hop_greedy *greedy, int32_t p, int32_t way, int32_t most,
                              int32_t rest)
{
    const bool by_delta = way == HOP_GREEDY_PROBES && greedy->derived_by == HOP_DELTA;
    const int32_t head = greedy->stages[greedy->plan->part_count - 1];
    const int32_t maker = way == HOP_GREEDY_EXITS || by_delta ? greedy->last : head;
    const int32_t all = greedy->way[way].probes;
    struct hop_greedy_probing *const probing = &greedy->parts[p].way[way];
    probing->derivative = message_seconds(greedy, HOP_DERIVATIVE, maker, p, by_delta ? all : most);
    probing->derivative_last =
        message_seconds(greedy, HOP_DERIVATIVE, maker, p, by_delta ? all : rest);
}

static void price_probe_messages(struct hop_greedy *greedy, int32_t p, int32_t w)
{
    const struct hop_greedy_probes *const way = &greedy->way[w];
    struct hop_greedy_part *const part = &greedy->parts[p];
    struct hop_greedy_probing *const probing = &part->way[w];
    const int32_t most = way->batch, rest = way->probes - (way->tasks - 1) * way->batch;
    if (probing->sends) {
        probing->send = message_seconds(greedy, HOP_PROBE_ACTIVATION, p, part->next, most);
        probing->send_last = message_seconds(greedy, HOP_PROBE_ACTIVATION, p, part->next, rest);
    }
    if (part->zeroth_order)
        price_derivatives(greedy, p, w, most, rest);
}

hop_status hop_greedy_check(const struct hop_plan *plan, struct hop_error *err)
{
    if (hop_plan_is_line(plan))
        return HOP_OK;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "schedule: the greedy order is for one pipeline with one whole part a stage; "
                    "this plan has several pipelines, replicas or shards");
}

void hop_greedy_begin(struct hop_greedy *greedy, const struct hop_plan *plan)
{
    greedy->plan = plan;
    greedy->makespan = 0;
    read_estimator(greedy);
    hop_agenda_clear(&greedy->agenda);
    hop_network_clear(&greedy->network);
    connect(greedy);
    for (int32_t p = 0; p < plan->part_count; p++) {
        count_tasks(greedy, p);
        price_tasks(greedy, p);
        price_messages(greedy, p);
        for (int32_t w = 0; w < HOP_GREEDY_WAYS; w++)
            if (greedy->way[w].tasks)
                price_probe_messages(greedy, p, w);
    }
}

double hop_greedy_makespan(struct hop_greedy *greedy, const struct hop_plan *plan, double limit)
{
    greedy->lists = NULL;
    hop_greedy_begin(greedy, plan);
    return hop_greedy_play(greedy, limit) ? greedy->makespan : INFINITY;
}
