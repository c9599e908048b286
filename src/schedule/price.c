#include "schedule/price.h"

#include <math.h>

static double share(const struct hop_part *part)
{
    return (part->sample_hi - part->sample_lo) * (part->tensor_hi - part->tensor_lo);
}

double hop_price_task(const struct hop_cost_table *cost, const struct hop_plan *plan,
                      const struct hop_task *task)
{
    const struct hop_part *const part = &plan->parts[task->part];
    const int32_t device = part->device, lo = part->lo, hi = part->hi;
    switch (task->kind) {
    case HOP_FORWARD:
        return share(part) * hop_cost_forward(cost, device, lo, hi);
    case HOP_BACKWARD:
        return share(part) * hop_cost_backward(cost, device, lo, hi);
    case HOP_PROBE:
    case HOP_EXIT_PROBE:
        return share(part) * hop_cost_probe(cost, device, lo, hi, task->probe_hi - task->probe_lo);
    case HOP_STEP:
        return hop_cost_step(cost, device, lo, hi);
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

static double samples(const struct hop_part *a, const struct hop_part *b)
{
    const double lo = fmax(a->sample_lo, b->sample_lo), hi = fmin(a->sample_hi, b->sample_hi);
    return fmax(hi - lo, 0);
}

double hop_price_bytes(const struct hop_cost_table *cost, const struct hop_plan *plan,
                       const struct hop_transfer *transfer)
{
    const struct hop_part *const from = &plan->parts[transfer->from_part];
    const struct hop_part *const to = &plan->parts[transfer->to_part];
    const int32_t probes = transfer->probe_hi - transfer->probe_lo;
    switch (transfer->payload) {
    case HOP_ACTIVATION:
        return samples(from, to) * boundary(cost, from->hi);
    case HOP_GRADIENT:
        return samples(from, to) * boundary(cost, from->lo);
    case HOP_PROBE_ACTIVATION:
        return samples(from, to) * boundary(cost, from->hi) * probes;
    case HOP_DERIVATIVE:
        return (double)sizeof(float) * probes;
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

double hop_price_memory(const struct hop_cost_table *cost, const struct hop_part *part,
                        int32_t in_flight)
{
    return hop_cost_memory(cost, part->device, part->lo, part->hi, in_flight);
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

/* The most micro-batches whose activations fit beside the rest, at most `most`; -1: not even 0. */
static int32_t fitting(const struct hop_cost_table *cost, const struct hop_part *part, int32_t most)
{
    int32_t n = most;
    while (n >= 0 && hop_price_memory(cost, part, n) > part->memory_limit)
        n--;
    return n;
}

static hop_status too_big(const struct hop_cost_table *cost, const struct hop_part *part,
                          int32_t in_flight, struct hop_error *err)
{
    const double needed = hop_price_memory(cost, part, in_flight);
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: %s cannot hold blocks [%d, %d) with %d micro-batches kept: %.4g bytes "
                    "needed, %.4g there, %.4g too many; use fewer blocks there, a smaller "
                    "micro-batch or more devices",
                    cost->devices[part->device].name, part->lo, part->hi, in_flight, needed,
                    part->memory_limit, needed - part->memory_limit);
}

static hop_status price_part(struct hop_plan *plan, const struct hop_cost_table *cost, int32_t p,
                             int32_t fewest, struct hop_error *err)
{
    struct hop_part *const part = &plan->parts[p];
    int32_t least = 0, most = 0;
    if (part->gradient == HOP_GRADIENT_BACKPROP) {
        const int32_t stages = backprop_from(plan, p);
        least = fewest > 0 ? fewest : hop_in_flight_least(stages, 0, plan->micro_batches);
        most = hop_in_flight_most(stages, 0, plan->micro_batches);
    }
    part->memory_limit = cost->devices[part->device].memory;
    part->forward_seconds = share(part) * hop_cost_forward(cost, part->device, part->lo, part->hi);
    const int32_t kept = fitting(cost, part, most);
    if (kept < least)
        return too_big(cost, part, least, err);
    part->in_flight = kept;
    part->memory_bytes = hop_price_memory(cost, part, kept);
    return HOP_OK;
}

hop_status hop_plan_price(struct hop_plan *plan, const struct hop_cost_table *cost, int32_t fewest,
                          struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY(price_part(plan, cost, p, fewest, err));
    return HOP_OK;
}
