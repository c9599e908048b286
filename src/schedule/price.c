#include "schedule/price.h"

#include <math.h>

#include "schedule/estimator.h"

static hop_status check_part(const struct hop_cost_table *cost, const struct hop_plan *plan,
                             int32_t p, struct hop_error *err)
{
    const struct hop_part *const part = &plan->parts[p];
    if (part->device < 0 || part->device >= cost->device_count)
        return hop_fail(err, HOP_INPUT, "plan: part %d is on device %d; the cost table has %d", p,
                        part->device, cost->device_count);
    if (part->lo < 0 || part->lo > part->hi || part->hi > cost->blocks)
        return hop_fail(err, HOP_INPUT,
                        "plan: part %d holds blocks [%d, %d); the cost table has blocks [0, %d)", p,
                        part->lo, part->hi, cost->blocks);
    if (part->gradient == HOP_GRADIENT_BACKPROP &&
        !isfinite(hop_cost_backward(cost, part->device, part->lo, part->hi)))
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: part %d runs backward on %s, which has no backward times; add "
                        "`backward` to the cost table or choose another device",
                        p, cost->devices[part->device].name);
    return HOP_OK;
}

hop_status hop_price_check(const struct hop_cost_table *cost, const struct hop_plan *plan,
                           struct hop_error *err)
{
    if (cost->blocks != plan->blocks || cost->device_count != plan->devices)
        return hop_fail(err, HOP_INPUT,
                        "plan: it is for %d blocks and %d devices, the cost table for %d and %d",
                        plan->blocks, plan->devices, cost->blocks, cost->device_count);
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY(check_part(cost, plan, p, err));
    return HOP_OK;
}

static double share(const struct hop_part *part)
{
    return (part->sample_hi - part->sample_lo) * (part->tensor_hi - part->tensor_lo);
}

/* Of the adapters of a block, on a shard: its slice of the factors that shards split, and all of
 * those that they share. Either kind is one of the two factors of every adapter. */
static double held_share(const struct hop_part *part)
{
    return (1 + (part->tensor_hi - part->tensor_lo)) / 2;
}

/* With the output layer behind the last zeroth-order part, where the plan compares exit probes with
 * the loss there. */
static double forward_seconds(const struct hop_cost_table *cost, const struct hop_plan *plan,
                              int32_t p)
{
    const struct hop_part *const part = &plan->parts[p];
    const double seconds = share(part) * hop_cost_forward(cost, part->device, part->lo, part->hi);
    if (hop_plan_has_exit_base(plan) && p == hop_plan_last_zeroth_order(plan))
        return seconds + cost->devices[part->device].exit_forward;
    return seconds;
}

static double probe_seconds(const struct hop_cost_table *cost, const struct hop_plan *plan,
                            const struct hop_task *task)
{
    const struct hop_part *const part = &plan->parts[task->part];
    const int32_t passes = (task->probe_hi - task->probe_lo) * hop_plan_passes(plan);
    if (passes < 1)
        return 0;
    const double seconds =
        share(part) * hop_cost_probe(cost, part->device, part->lo, part->hi, passes);
    if (task->kind == HOP_EXIT_PROBE && task->part == hop_plan_last_zeroth_order(plan))
        return seconds + passes * cost->devices[part->device].exit_forward;
    return seconds;
}

/* None of a DELTA that makes derivatives of tangents. */
static double feedback_seconds(const struct hop_cost_table *cost, const struct hop_plan *plan,
                               const struct hop_part *part)
{
    const int32_t first = hop_plan_feedback_lo(plan), lo = first > part->lo ? first : part->lo;
    return lo < part->hi ? hop_cost_feedback(cost, part->device, lo, part->hi) : 0;
}

double hop_price_task(const struct hop_cost_table *cost, const struct hop_plan *plan,
                      const struct hop_task *task)
{
    const struct hop_part *const part = &plan->parts[task->part];
    const int32_t device = part->device, lo = part->lo, hi = part->hi;
    switch (task->kind) {
    case HOP_FORWARD:
        return forward_seconds(cost, plan, task->part);
    case HOP_BACKWARD:
        return share(part) * hop_cost_backward(cost, device, lo, hi);
    case HOP_PROBE:
    case HOP_EXIT_PROBE:
        return probe_seconds(cost, plan, task);
    case HOP_DELTA:
        return share(part) * feedback_seconds(cost, plan, part);
    case HOP_STEP:
        return held_share(part) * hop_cost_step(cost, device, lo, hi);
    default:
        return 0;
    }
}

/* The tensor between block cut - 1 and block cut. In front of block 0 there is only the embedding,
 * whose output has the size of every hidden state. */
static double boundary(const struct hop_cost_table *cost, int32_t cut)
{
    if (cost->blocks < 2)
        return 0;
    return cost->boundary_bytes[cut > 0 ? cut - 1 : 0];
}

static double rounds(const struct hop_cost_table *cost, int32_t count, double slowest)
{
    const double turns = count == 2 && cost->half_duplex ? 2 : 1;
    return turns * (count - 1) * slowest;
}

/* Of the links between any two of the devices. */
static double slowest_link(const struct hop_cost_table *cost, const int32_t *devices, int32_t count,
                           double bytes)
{
    double slowest = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < count; j++)
            slowest = fmax(slowest, hop_cost_link(cost, devices[i], devices[j], bytes));
    return slowest;
}

double hop_price_all_gather(const struct hop_cost_table *cost, const int32_t *devices,
                            int32_t count, double bytes)
{
    return rounds(cost, count, slowest_link(cost, devices, count, bytes / count));
}

double hop_price_all_reduce(const struct hop_cost_table *cost, const int32_t *devices,
                            int32_t count, double bytes)
{
    return 2 * hop_price_all_gather(cost, devices, count, bytes);
}

/* Bytes of the gradients that are added up. */
static double reduced_bytes(const struct hop_cost_table *cost,
                            const struct hop_reduction *reduction)
{
    double bytes = 0;
    for (int32_t b = reduction->lo; b < reduction->hi; b++)
        bytes += cost->gradient_bytes[b];
    if (reduction->factors == HOP_FACTORS_ALL)
        return bytes;
    return bytes * (reduction->tensor_hi - reduction->tensor_lo) / 2;
}

double hop_price_reduction(const struct hop_cost_table *cost, const struct hop_reduction *reduction)
{
    return hop_price_all_reduce(cost, reduction->devices, reduction->count,
                                reduced_bytes(cost, reduction));
}

static double ring_share(int32_t count)
{
    return (double)(count - 1) / count;
}

double hop_price_reduction_bytes(const struct hop_cost_table *cost,
                                 const struct hop_reduction *reduction)
{
    return 2 * ring_share(reduction->count) * reduced_bytes(cost, reduction);
}

enum { EXCHANGES_PER_BLOCK = 2 };

static bool is_exchanged(const struct hop_task *task)
{
    return task->kind == HOP_FORWARD || task->kind == HOP_BACKWARD;
}

/* Passes of a ring over the tensor. */
static int32_t passes(const struct hop_plan *plan)
{
    return plan->collective == HOP_ALL_GATHER ? 1 : 2;
}

/* The slowest link between two shards of the part's gang. */
static double slowest_in_gang(const struct hop_cost_table *cost, const struct hop_plan *plan,
                              int32_t part, double bytes)
{
    double slowest = 0;
    for (int32_t p = -1; (p = hop_plan_shard(plan, part, p)) >= 0;)
        for (int32_t q = -1; (q = hop_plan_shard(plan, part, q)) >= 0;)
            slowest = fmax(
                slowest, hop_cost_link(cost, plan->parts[p].device, plan->parts[q].device, bytes));
    return slowest;
}

double hop_price_exchange(const struct hop_cost_table *cost, const struct hop_plan *plan,
                          const struct hop_task *task)
{
    const struct hop_part *const part = &plan->parts[task->part];
    const int32_t shards = hop_plan_shards(plan, task->part);
    double seconds = 0;
    if (shards < 2 || !is_exchanged(task))
        return 0;
    for (int32_t b = part->lo; b < part->hi; b++) {
        const double bytes = (part->sample_hi - part->sample_lo) * boundary(cost, b) / shards;
        seconds += rounds(cost, shards, slowest_in_gang(cost, plan, task->part, bytes));
    }
    return EXCHANGES_PER_BLOCK * passes(plan) * seconds;
}

double hop_price_exchange_bytes(const struct hop_cost_table *cost, const struct hop_plan *plan,
                                const struct hop_task *task)
{
    const struct hop_part *const part = &plan->parts[task->part];
    const int32_t shards = hop_plan_shards(plan, task->part);
    double bytes = 0;
    if (shards < 2 || !is_exchanged(task))
        return 0;
    for (int32_t b = part->lo; b < part->hi; b++)
        bytes += (part->sample_hi - part->sample_lo) * boundary(cost, b);
    return EXCHANGES_PER_BLOCK * passes(plan) * ring_share(shards) * bytes;
}

double hop_price_span(const struct hop_cost_table *cost, const struct hop_plan *plan,
                      const struct hop_task *task)
{
    if (!is_exchanged(task))
        return hop_price_task(cost, plan, task);
    double slowest = 0;
    struct hop_task shard = *task;
    for (int32_t p = -1; (p = hop_plan_shard(plan, task->part, p)) >= 0;) {
        shard.part = p;
        slowest = fmax(slowest, hop_price_task(cost, plan, &shard));
    }
    return slowest + hop_price_exchange(cost, plan, task);
}

/* Derivatives of one probe: one of the micro-batch, or one of every sample. */
static double derivatives(const struct hop_cost_table *cost, const struct hop_plan *plan)
{
    return plan->directions == HOP_PER_SAMPLE ? cost->micro_batch_samples : 1;
}

double hop_price_bytes(const struct hop_cost_table *cost, const struct hop_plan *plan,
                       const struct hop_transfer *transfer)
{
    const struct hop_part *const from = &plan->parts[transfer->from_part];
    const double samples = transfer->sample_hi - transfer->sample_lo;
    const int32_t probes = transfer->probe_hi - transfer->probe_lo;
    switch (transfer->payload) {
    case HOP_ACTIVATION:
        return samples * boundary(cost, from->hi);
    case HOP_GRADIENT:
        return samples * boundary(cost, from->lo);
    case HOP_PROBE_ACTIVATION:
        return samples * boundary(cost, from->hi) * (probes * hop_plan_passes(plan));
    case HOP_DERIVATIVE:
        return (double)sizeof(float) * probes * derivatives(cost, plan);
    case HOP_BASE_LOSS:
        return (double)sizeof(float) * derivatives(cost, plan);
    default:
        return 0;
    }
}

double hop_price_transfer(const struct hop_cost_table *cost, const struct hop_plan *plan,
                          const struct hop_transfer *transfer)
{
    return hop_cost_link(cost, transfer->from_device, transfer->to_device,
                         hop_price_bytes(cost, plan, transfer));
}

double hop_price_part_memory(const struct hop_cost_table *cost, const struct hop_part *part,
                             int32_t in_flight)
{
    if (share(part) == 1)
        return hop_cost_memory(cost, part->device, part->lo, part->hi, in_flight);
    const double fixed = cost->devices[part->device].fixed_bytes;
    const double held = hop_cost_memory(cost, part->device, part->lo, part->hi, 0);
    const double kept = hop_cost_memory(cost, part->device, part->lo, part->hi, in_flight) - held;
    return fixed + (part->tensor_hi - part->tensor_lo) * (held - fixed) + share(part) * kept;
}

/* The tangents of a micro-batch are one boundary tensor a probe. */
double hop_price_memory(const struct hop_cost_table *cost, const struct hop_plan *plan, int32_t p,
                        int32_t in_flight, int32_t pending)
{
    const struct hop_part *const part = &plan->parts[p];
    double bytes = hop_price_part_memory(cost, part, in_flight);
    if (plan->exit_probes > 0 && hop_plan_runs_exit_probes(plan, p) &&
        p == hop_plan_last_zeroth_order(plan))
        bytes += cost->devices[part->device].exit_bytes;
    if (pending > 0)
        bytes += boundary(cost, part->hi) * plan->probes * pending;
    return bytes;
}

static int32_t between(int32_t low, int32_t value, int32_t high)
{
    if (value < low)
        return low;
    return value > high ? high : value;
}

int32_t hop_in_flight_least(int32_t backprop_stages, int32_t i, int32_t micro_batches)
{
    return between(1, backprop_stages - i, micro_batches);
}

int32_t hop_in_flight_most(int32_t backprop_stages, int32_t i, int32_t micro_batches)
{
    return between(1, 2 * (backprop_stages - i) - 1, micro_batches);
}

/* Backprop stages of the part's pipeline from this one on: G - i. */
static int32_t backprop_from(const struct hop_plan *plan, int32_t p)
{
    int32_t count = 0;
    for (; p >= 0; p = hop_plan_next(plan, p))
        count += plan->parts[p].gradient == HOP_GRADIENT_BACKPROP;
    return count;
}

/* Micro-batches that a part keeps, at least and at most, and those of which it keeps tangents. */
struct limits {
    int32_t least, most, least_pending, most_pending;
};

static struct limits limits_of(const struct hop_plan *plan, int32_t p, int32_t fewest)
{
    if (!hop_plan_keeps(plan, p))
        return (struct limits){0};
    const struct hop_range range = hop_part_micro_batches(&plan->parts[p], plan->micro_batches);
    const int32_t batches = range.hi > range.lo ? range.hi - range.lo : 1;
    if (plan->parts[p].gradient != HOP_GRADIENT_BACKPROP) {
        const bool tangents = hop_plan_keeps_tangents(plan, p);
        return (struct limits){1, batches, tangents, tangents ? batches : 0};
    }
    const int32_t stages = backprop_from(plan, p);
    return (struct limits){fewest > 0 ? fewest : hop_in_flight_least(stages, 0, batches),
                           hop_in_flight_most(stages, 0, batches), 0, 0};
}

/* Bytes of the device that the other parts on it leave: those before keep what they were given,
 * those behind the least. */
static double memory_left(const struct hop_plan *plan, const struct hop_cost_table *cost, int32_t p,
                          int32_t fewest)
{
    const struct hop_cost_device *const device = &cost->devices[plan->parts[p].device];
    double left = device->memory;
    for (int32_t q = 0; q < plan->part_count; q++) {
        const struct hop_part *const other = &plan->parts[q];
        if (q == p || other->device != plan->parts[p].device)
            continue;
        const struct limits limits = limits_of(plan, q, fewest);
        const int32_t kept = q < p ? other->in_flight : limits.least;
        const int32_t pending = q < p ? other->pending : limits.least_pending;
        left -= hop_price_memory(cost, plan, q, kept, pending) - device->fixed_bytes;
    }
    return left;
}

/* The most micro-batches whose activations fit beside the rest, at most `most`; -1: not even 0. */
static int32_t fitting(const struct hop_cost_table *cost, const struct hop_plan *plan, int32_t p,
                       const struct limits *limits, double left)
{
    int32_t n = limits->most;
    while (n >= 0 && hop_price_memory(cost, plan, p, n, limits->least_pending) > left)
        n--;
    return n;
}

/* The same of micro-batches whose tangents fit beside `kept`. */
static int32_t fitting_pending(const struct hop_cost_table *cost, const struct hop_plan *plan,
                               int32_t p, const struct limits *limits, int32_t kept, double left)
{
    int32_t n = limits->most_pending;
    while (n > limits->least_pending && hop_price_memory(cost, plan, p, kept, n) > left)
        n--;
    return n;
}

static hop_status too_big(const struct hop_cost_table *cost, const struct hop_plan *plan, int32_t p,
                          const struct limits *limits, double left, struct hop_error *err)
{
    const struct hop_part *const part = &plan->parts[p];
    const double needed = hop_price_memory(cost, plan, p, limits->least, limits->least_pending);
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: %s cannot hold blocks [%d, %d) with %d micro-batches kept: %.4g bytes "
                    "needed, %.4g there, %.4g too many; use fewer blocks there, a smaller "
                    "micro-batch or more devices",
                    cost->devices[part->device].name, part->lo, part->hi, limits->least, needed,
                    left, needed - left);
}

/* Activations come first: forwards that wait starve the stages behind, probes that wait do not. */
static hop_status price_part(struct hop_plan *plan, const struct hop_cost_table *cost, int32_t p,
                             int32_t fewest, struct hop_error *err)
{
    struct hop_part *const part = &plan->parts[p];
    const struct limits limits = limits_of(plan, p, fewest);
    const double left = memory_left(plan, cost, p, fewest);
    part->memory_limit = cost->devices[part->device].memory;
    part->forward_seconds = forward_seconds(cost, plan, p);
    const int32_t kept = fitting(cost, plan, p, &limits, left);
    if (kept < limits.least)
        return too_big(cost, plan, p, &limits, left, err);
    part->in_flight = kept;
    part->pending = fitting_pending(cost, plan, p, &limits, kept, left);
    part->memory_bytes = hop_price_memory(cost, plan, p, kept, part->pending);
    return HOP_OK;
}

hop_status hop_plan_price(struct hop_plan *plan, const struct hop_cost_table *cost, int32_t fewest,
                          struct hop_error *err)
{
    HOP_TRY(hop_price_check(cost, plan, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY(price_part(plan, cost, p, fewest, err));
    return HOP_OK;
}
