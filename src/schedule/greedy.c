/* What the greedy scheduler knows of a plan before it plays it. */
#include "schedule/greedy.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/greedy_internal.h"
#include "schedule/price.h"

static int32_t divide_up(int32_t a, int32_t b)
{
    return a > 0 ? (a - 1) / b + 1 : 0;
}

static hop_status create_arrays(struct hop_greedy *greedy, struct hop_error *err)
{
    const size_t parts = (size_t)greedy->part_capacity;
    const size_t devices = (size_t)greedy->cost->device_count;
    const size_t probes = (size_t)divide_up(greedy->probes, greedy->probe_batch);
    const size_t inputs = (2 + probes) * (size_t)greedy->micro_batches;
    HOP_TRY(hop_calloc(&greedy->parts, parts, sizeof *greedy->parts, err));
    HOP_TRY(hop_calloc(&greedy->stages, parts, sizeof *greedy->stages, err));
    HOP_TRY(hop_calloc(&greedy->arrivals, parts, inputs * sizeof *greedy->arrivals, err));
    HOP_TRY(hop_calloc(&greedy->devices, devices, sizeof *greedy->devices, err));
    HOP_TRY(hop_calloc(&greedy->round, devices, sizeof *greedy->round, err));
    HOP_TRY(hop_agenda_create((int32_t)devices, &greedy->agenda, err));
    return hop_network_create(greedy->cost, &greedy->network, err);
}

hop_status hop_greedy_create(const struct hop_cost_table *cost, int32_t parts,
                             int32_t micro_batches, int32_t probes, int32_t probe_batch,
                             struct hop_greedy **out, struct hop_error *err)
{
    if (parts < 1 || micro_batches < 1 || probes < 0 || probe_batch < 0)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d parts, %d micro-batches and %d probes, %d at once; at least "
                        "1, 1, 0 and 0 are needed",
                        parts, micro_batches, probes, probe_batch);
    if (probes > INT32_MAX / micro_batches)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d probes of each of %d micro-batches are too many; use fewer",
                        probes, micro_batches);
    struct hop_greedy *greedy;
    HOP_TRY(hop_calloc(&greedy, 1, sizeof *greedy, err));
    greedy->cost = cost;
    greedy->part_capacity = parts;
    greedy->micro_batches = micro_batches;
    greedy->probes = probes;
    greedy->probe_batch = probe_batch > 0 && probe_batch < probes ? probe_batch : probes;
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

struct hop_task hop_greedy_task(const struct hop_greedy *greedy, int32_t part,
                                enum hop_task_kind kind, int32_t number)
{
    struct hop_task task = {.kind = kind, .part = part, .micro_batch = number};
    if (kind == HOP_STEP)
        task.micro_batch = -1;
    if (kind != HOP_PROBE)
        return task;
    task.micro_batch = number / greedy->probe_tasks;
    task.probe_lo = number % greedy->probe_tasks * greedy->probe_batch;
    task.probe_hi = task.probe_lo + greedy->probe_batch;
    if (task.probe_hi > greedy->probes)
        task.probe_hi = greedy->probes;
    return task;
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
            .in_flight = from->gradient == HOP_GRADIENT_BACKPROP && from->in_flight > 0
                             ? from->in_flight
                             : INT32_MAX,
            .zeroth_order = from->gradient == HOP_GRADIENT_ZEROTH_ORDER,
            .sends_gradient = previous >= 0 && from->gradient == HOP_GRADIENT_BACKPROP &&
                              plan->parts[previous].gradient == HOP_GRADIENT_BACKPROP,
        };
        greedy->devices[from->device].first = p;
    }
}

static void count_tasks(struct hop_greedy *greedy, int32_t p)
{
    const enum hop_gradient gradient = greedy->plan->parts[p].gradient;
    struct hop_greedy_part *const part = &greedy->parts[p];
    const size_t m = (size_t)greedy->micro_batches, probes = m * (size_t)greedy->probe_tasks;
    double *const arrival = greedy->arrivals + (size_t)p * (2 * m + probes);
    part->wanted[HOP_FORWARD] = greedy->micro_batches;
    part->wanted[HOP_BACKWARD] = gradient == HOP_GRADIENT_BACKPROP ? greedy->micro_batches : 0;
    part->wanted[HOP_PROBE] = (int32_t)probes;
    part->wanted[HOP_STEP] = gradient != HOP_GRADIENT_NONE;
    part->arrival[HOP_FORWARD] = arrival;
    part->arrival[HOP_BACKWARD] = arrival + m;
    part->arrival[HOP_PROBE] = arrival + 2 * m;
}

static double task_seconds(const struct hop_greedy *greedy, int32_t p, enum hop_task_kind kind,
                           int32_t number)
{
    if (!greedy->parts[p].wanted[kind])
        return 0;
    const struct hop_task task = hop_greedy_task(greedy, p, kind, number);
    return hop_price_task(greedy->cost, greedy->plan, &task);
}

static void price_tasks(struct hop_greedy *greedy, int32_t p)
{
    struct hop_greedy_part *const part = &greedy->parts[p];
    const enum hop_task_kind kinds[] = {HOP_FORWARD, HOP_BACKWARD, HOP_PROBE, HOP_STEP};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        part->seconds[kinds[k]] = task_seconds(greedy, p, kinds[k], 0);
    part->last_probe = task_seconds(greedy, p, HOP_PROBE, greedy->probe_tasks - 1);
    const int32_t batches = greedy->micro_batches;
    const double work =
        batches * (part->seconds[HOP_FORWARD] + part->seconds[HOP_BACKWARD] + part->last_probe) +
        part->seconds[HOP_STEP] +
        (part->wanted[HOP_PROBE] ? part->wanted[HOP_PROBE] - batches : 0) *
            part->seconds[HOP_PROBE];
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
    if (part->next >= 0)
        part->send[HOP_ACTIVATION] = message_seconds(greedy, HOP_ACTIVATION, p, part->next, 0);
    if (part->sends_gradient)
        part->send[HOP_GRADIENT] = message_seconds(greedy, HOP_GRADIENT, p, part->previous, 0);
}

static void price_probe_messages(struct hop_greedy *greedy, int32_t p)
{
    struct hop_greedy_part *const part = &greedy->parts[p];
    const int32_t head = greedy->stages[greedy->plan->part_count - 1];
    const int32_t most = greedy->probe_batch;
    const int32_t rest = greedy->probes - (greedy->probe_tasks - 1) * greedy->probe_batch;
    if (part->next >= 0) {
        part->send[HOP_PROBE_ACTIVATION] =
            message_seconds(greedy, HOP_PROBE_ACTIVATION, p, part->next, most);
        part->send_last_probe = message_seconds(greedy, HOP_PROBE_ACTIVATION, p, part->next, rest);
    }
    if (part->zeroth_order) {
        part->send[HOP_DERIVATIVE] = message_seconds(greedy, HOP_DERIVATIVE, head, p, most);
        part->last_derivative = message_seconds(greedy, HOP_DERIVATIVE, head, p, rest);
    }
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
    greedy->probe_tasks =
        hop_plan_has_zeroth_order(plan) ? divide_up(greedy->probes, greedy->probe_batch) : 0;
    hop_agenda_clear(&greedy->agenda);
    hop_network_clear(&greedy->network);
    connect(greedy);
    for (int32_t p = 0; p < plan->part_count; p++) {
        count_tasks(greedy, p);
        price_tasks(greedy, p);
        price_messages(greedy, p);
        if (greedy->probe_tasks)
            price_probe_messages(greedy, p);
    }
}

double hop_greedy_makespan(struct hop_greedy *greedy, const struct hop_plan *plan, double limit)
{
    greedy->lists = NULL;
    hop_greedy_begin(greedy, plan);
    return hop_greedy_play(greedy, limit) ? greedy->makespan : INFINITY;
}
