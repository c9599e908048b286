#include "strategy/replicas.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/lists.h"
#include "sim/simulate.h"

int32_t hop_replica_rows(const struct hop_cost_table *cost)
{
    return (int32_t)fmin(fmax(cost->micro_batch_samples, 1), INT32_MAX);
}

/* Bytes of a block with one sample of one micro-batch. */
static double block_bytes(const struct hop_cost_table *cost, int32_t d, int32_t block)
{
    const struct hop_part part = {.device = d,
                                  .lo = block,
                                  .hi = block + 1,
                                  .sample_hi = 1.0 / hop_replica_rows(cost),
                                  .tensor_hi = 1};
    return hop_price_part_memory(cost, &part, 1);
}

/* A device that cannot hold the block that is cheapest there. */
static hop_status refuse_device(const struct hop_cost_table *cost, const char *strategy, int32_t d,
                                struct hop_error *err)
{
    const struct hop_cost_device *const device = &cost->devices[d];
    double least = INFINITY;
    for (int32_t b = 0; b < cost->blocks; b++)
        least = fmin(least, block_bytes(cost, d, b));
    if (least <= device->memory)
        return HOP_OK;
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: %s cannot hold one block with one sample, and %s gives it that: %.4g "
                    "bytes needed, %.4g there, %.4g too many; leave it out",
                    device->name, strategy, least, device->memory, least - device->memory);
}

/* A block that fits no device: names the one where it comes closest. */
static hop_status refuse_block(const struct hop_cost_table *cost, int32_t block,
                               const int32_t *devices, int32_t count, struct hop_error *err)
{
    int32_t closest = devices[0];
    double missing = INFINITY;
    for (int32_t i = 0; i < count; i++) {
        const double more = block_bytes(cost, devices[i], block) - cost->devices[devices[i]].memory;
        if (more < missing) {
            missing = more;
            closest = devices[i];
        }
    }
    if (missing <= 0)
        return HOP_OK;
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: no device can hold block %d with one sample; %s comes closest: %.4g "
                    "bytes needed, %.4g there, %.4g too many; use a smaller micro-batch or a "
                    "device with more memory",
                    block, cost->devices[closest].name, block_bytes(cost, closest, block),
                    cost->devices[closest].memory, missing);
}

static hop_status refuse_all(const struct hop_cost_table *cost, const char *strategy,
                             const int32_t *devices, int32_t count, struct hop_error *err)
{
    double needed = 0, there = 0;
    int32_t largest = devices[0];
    for (int32_t i = 0; i < count; i++) {
        there += cost->devices[devices[i]].memory;
        if (cost->devices[devices[i]].memory > cost->devices[largest].memory)
            largest = devices[i];
    }
    for (int32_t b = 0; b < cost->blocks; b++)
        needed += block_bytes(cost, largest, b) - cost->devices[largest].fixed_bytes;
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: %s finds no stages of %d devices that fit their memory: the blocks with "
                    "one sample are %.4g bytes, and a copy is on each replica of a stage; the "
                    "devices have %.4g together, and %s, the largest, %.4g; use a smaller "
                    "micro-batch or more devices",
                    strategy, count, needed, there, cost->devices[largest].name,
                    cost->devices[largest].memory);
}

hop_status hop_replica_refuse(const struct hop_plan_request *request, const char *strategy,
                              const int32_t *devices, int32_t count, bool all,
                              struct hop_error *err)
{
    const struct hop_cost_table *const cost = request->cost;
    if (all && count > (int64_t)cost->blocks * hop_replica_rows(cost))
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %d devices share %d blocks of %d samples and %s gives each a block "
                        "and a sample; take devices out of the cluster or set plan.devices: auto",
                        count, cost->blocks, hop_replica_rows(cost), strategy);
    for (int32_t i = 0; i < count && all; i++)
        HOP_TRY(refuse_device(cost, strategy, devices[i], err));
    for (int32_t b = 0; b < cost->blocks; b++)
        HOP_TRY(refuse_block(cost, b, devices, count, err));
    return refuse_all(cost, strategy, devices, count, err);
}

void hop_plan_add_replica(struct hop_plan *plan, const struct hop_part *replica, int32_t row_lo,
                          int32_t row_hi, int32_t rows)
{
    struct hop_part *const part = &plan->parts[plan->part_count++];
    *part = *replica;
    part->sample_lo = (double)row_lo / rows;
    part->sample_hi = (double)row_hi / rows;
    part->tensor_hi = part->micro_hi = 1;
    part->gradient = HOP_GRADIENT_BACKPROP;
}

/* The most micro-batches, in_flight at most, that fit the device; 0: none do. */
static int32_t fitting(const struct hop_cost_table *cost, const struct hop_part *part)
{
    int32_t kept = part->in_flight;
    while (kept > 0 && hop_price_part_memory(cost, part, kept) > cost->devices[part->device].memory)
        kept--;
    return kept;
}

static hop_status limit_stage(struct hop_plan *plan, const struct hop_cost_table *cost, int32_t p,
                              struct hop_error *err)
{
    const struct hop_part *const part = &plan->parts[p];
    const int32_t kept = fitting(cost, part);
    const double needed = hop_price_part_memory(cost, part, 1);
    const double memory = cost->devices[part->device].memory;
    if (kept < 1)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %s cannot hold blocks [%d, %d) with one micro-batch kept: %.4g "
                        "bytes needed, %.4g there, %.4g too many; use a smaller micro-batch or "
                        "more devices",
                        cost->devices[part->device].name, part->lo, part->hi, needed, memory,
                        needed - memory);
    for (int32_t q = 0; q < plan->part_count; q++)
        if (plan->parts[q].stage == part->stage && plan->parts[q].in_flight > kept)
            plan->parts[q].in_flight = kept;
    return HOP_OK;
}

hop_status hop_replica_price(struct hop_plan *plan, const struct hop_cost_table *cost,
                             struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY(limit_stage(plan, cost, p, err));
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        part->forward_seconds = (part->sample_hi - part->sample_lo) *
                                hop_cost_forward(cost, part->device, part->lo, part->hi);
        part->memory_bytes = hop_price_part_memory(cost, part, part->in_flight);
        part->memory_limit = cost->devices[part->device].memory;
    }
    return HOP_OK;
}

hop_status hop_replica_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                struct hop_error *err)
{
    (void)cost;
    (void)probes;
    return hop_schedule_one_f_one_b(plan, micro_batches, NULL, out, err);
}

hop_status hop_replica_time(struct hop_plan *plan, const struct hop_cost_table *cost,
                            struct hop_error *err)
{
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    HOP_TRY(hop_replica_schedule(plan, cost, plan->micro_batches, 0, &schedule, err));
    const hop_status status = hop_simulate(plan, &schedule, cost, NULL, &simulation, err);
    hop_schedule_free(&schedule);
    if (status != HOP_OK)
        return status;
    plan->simulated_seconds = simulation.makespan;
    hop_simulation_free(&simulation);
    return HOP_OK;
}

static int32_t count_stages(const struct hop_plan *plan)
{
    int32_t last = -1;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->pipeline != 0 || part->tensor_hi - part->tensor_lo < 1 ||
            part->gradient != HOP_GRADIENT_BACKPROP)
            return 0;
        last = part->stage > last ? part->stage : last;
    }
    return last + 1;
}

/* devices: scratch (parts). */
static struct hop_pipeline_step stage_step(const struct hop_plan *plan,
                                           const struct hop_cost_table *cost, int32_t stage,
                                           int32_t *devices)
{
    struct hop_pipeline_step step = {0};
    double bytes = 0;
    int32_t count = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->stage != stage)
            continue;
        const double share = part->sample_hi - part->sample_lo;
        const double forward = hop_cost_forward(cost, part->device, part->lo, part->hi);
        const double backward = hop_cost_backward(cost, part->device, part->lo, part->hi);
        step.forward = fmax(step.forward, share * forward);
        step.backward = fmax(step.backward, share * backward);
        if (count == 0)
            for (int32_t b = part->lo; b < part->hi; b++)
                bytes += cost->gradient_bytes[b];
        devices[count++] = part->device;
    }
    step.reduce = count > 1 ? hop_price_all_reduce(cost, devices, count, bytes) : 0;
    return step;
}

/* What one part sends to, or gets from, the parts of another stage. */
static double part_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost,
                           const struct hop_part *part, int32_t other, bool sends, double bytes,
                           enum hop_cut cut)
{
    double seconds = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const peer = &plan->parts[p];
        const double share =
            fmin(part->sample_hi, peer->sample_hi) - fmax(part->sample_lo, peer->sample_lo);
        if (peer->stage != other || (cut == HOP_CUT_PIECES && share <= 0))
            continue;
        const double link = hop_cost_link(cost, sends ? part->device : peer->device,
                                          sends ? peer->device : part->device,
                                          cut == HOP_CUT_WHOLE ? bytes : share * bytes);
        seconds = cut == HOP_CUT_PIECES && cost->shared_nic ? seconds + link : fmax(seconds, link);
    }
    return seconds;
}

static double direction_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                int32_t from, int32_t to, double bytes, enum hop_cut cut)
{
    double seconds = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->stage == from)
            seconds = fmax(seconds, part_seconds(plan, cost, part, to, true, bytes, cut));
        if (part->stage == to)
            seconds = fmax(seconds, part_seconds(plan, cost, part, from, false, bytes, cut));
    }
    return seconds;
}

/* Bytes of the tensor behind a stage. */
static double boundary(const struct hop_plan *plan, const struct hop_cost_table *cost,
                       int32_t stage)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].stage == stage && cost->blocks > 1)
            return cost->boundary_bytes[plan->parts[p].hi > 0 ? plan->parts[p].hi - 1 : 0];
    return 0;
}

hop_status hop_replica_steps(const struct hop_plan *plan, const struct hop_cost_table *cost,
                             enum hop_cut cut, struct hop_pipeline_step **steps, int32_t *count,
                             struct hop_error *err)
{
    const int32_t stages = count_stages(plan);
    int32_t *devices;
    struct hop_pipeline_step *list;
    HOP_TRY(hop_calloc(&devices, (size_t)plan->part_count, sizeof *devices, err));
    const hop_status status = hop_calloc(&list, 2 * (size_t)stages + 1, sizeof *list, err);
    for (int32_t s = 0; s < stages && status == HOP_OK; s++) {
        list[2 * s] = stage_step(plan, cost, s, devices);
        if (s + 1 == stages)
            break;
        const double bytes = boundary(plan, cost, s);
        list[2 * s + 1].forward = direction_seconds(plan, cost, s, s + 1, bytes, cut);
        list[2 * s + 1].backward = direction_seconds(plan, cost, s + 1, s, bytes, cut);
    }
    free(devices);
    if (status != HOP_OK)
        return status;
    *steps = list;
    *count = stages > 0 ? 2 * stages - 1 : 0;
    return HOP_OK;
}
