#include "strategy/pipeline_refusal.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "strategy/order.h"

static hop_status check_backward(const struct hop_pipeline *pipeline, struct hop_error *err)
{
    if (pipeline->request->devices == HOP_DEVICES_AUTO)
        return HOP_OK;
    for (int32_t d = 0; d < pipeline->cost->device_count; d++) {
        const struct hop_cost_device *const device = &pipeline->cost->devices[d];
        if (device->bp && !device->backward)
            return hop_fail(err, HOP_INFEASIBLE,
                            "plan: %s is BP-capable but its costs have no backward times; measure "
                            "them, set bp: false, or set plan.devices: auto to leave it out",
                            device->name);
    }
    return HOP_OK;
}

hop_status hop_pipeline_check(const struct hop_pipeline *pipeline, const char *strategy,
                              struct hop_error *err)
{
    HOP_TRY(check_backward(pipeline, err));
    if (pipeline->devices == pipeline->front_devices)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no BP-capable device holds a block; %s needs one at the end of the "
                        "pipeline (set bp: true for a device whose backend can run backward)",
                        strategy);
    if (pipeline->request->devices != HOP_DEVICES_AUTO && pipeline->devices > pipeline->blocks)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: %d devices share %d blocks and each needs one; take devices out of "
                        "the cluster or set plan.devices: auto to leave some out",
                        pipeline->devices, pipeline->blocks);
    return HOP_OK;
}

static double block_bytes(const struct hop_pipeline *pipeline, int32_t type, int32_t block)
{
    const struct hop_device_type *const t = &pipeline->types[type];
    return hop_cost_memory(pipeline->cost, t->devices[0], block, block + 1,
                           hop_pipeline_least(pipeline, type));
}

static const struct hop_cost_device *device_of(const struct hop_pipeline *pipeline, int32_t type)
{
    return &pipeline->cost->devices[pipeline->types[type].devices[0]];
}

/* A block that no device can hold: named with the device that comes closest. */
static hop_status refuse_block(const struct hop_pipeline *pipeline, int32_t block,
                               struct hop_error *err)
{
    int32_t closest = 0;
    double least = INFINITY;
    for (int32_t t = 0; t < pipeline->type_count; t++) {
        const double over = block_bytes(pipeline, t, block) - device_of(pipeline, t)->memory;
        if (over < least) {
            least = over;
            closest = t;
        }
    }
    if (least <= 0)
        return HOP_OK;
    const struct hop_cost_device *const device = device_of(pipeline, closest);
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: block %d needs %.4g bytes, more than any device has; %s comes closest "
                    "with %.4g, %.4g too few; use a smaller micro-batch or a larger device",
                    block, block_bytes(pipeline, closest, block), device->name, device->memory,
                    least);
}

/* A device that must take part and can hold none of the blocks. */
static hop_status refuse_device(const struct hop_pipeline *pipeline, int32_t type,
                                struct hop_error *err)
{
    double least = INFINITY;
    for (int32_t b = 0; b < pipeline->blocks; b++)
        least = fmin(least, block_bytes(pipeline, type, b));
    const struct hop_cost_device *const device = device_of(pipeline, type);
    if (least <= device->memory)
        return HOP_OK;
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: %s cannot hold a single block: the smallest needs %.4g bytes, %.4g are "
                    "there, %.4g too few; set plan.devices: auto to leave it out",
                    device->name, least, device->memory, least - device->memory);
}

/* The most blocks from the first on that a line of all devices can hold, each device as many as it
 * can: a later start never ends earlier. */
static int32_t most_blocks(const struct hop_pipeline *pipeline, const struct hop_order *order,
                           int32_t *reach)
{
    int32_t most = 0;
    for (int32_t s = 0; s < order->states; s++) {
        most = reach[s] > most ? reach[s] : most;
        for (int32_t t = 0; t < order->types; t++) {
            const int32_t to = order->next[s * order->types + t];
            if (to < 0)
                continue;
            const int32_t kept = hop_pipeline_least(pipeline, t);
            const int32_t end =
                reach[s] == pipeline->blocks
                    ? pipeline->blocks
                    : pipeline->types[t].longest[kept * pipeline->blocks + reach[s]];
            if (end > reach[to])
                reach[to] = end;
        }
    }
    return most;
}

static hop_status refuse_total(const struct hop_pipeline *pipeline, struct hop_error *err)
{
    struct hop_order order = {0};
    int32_t *reach = NULL;
    double bytes = 0;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_order_line(pipeline, false, pipeline->front_devices > 0, &order, err));
    HOP_TRY_DONE(hop_calloc(&reach, (size_t)order.states, sizeof *reach, err));
    const int32_t most = most_blocks(pipeline, &order, reach);
    for (int32_t b = most; b < pipeline->blocks; b++)
        bytes += device_of(pipeline, 0)->state_bytes[b];
    if (most < pipeline->blocks)
        status = hop_fail(err, HOP_INFEASIBLE,
                          "plan: the %d devices together hold blocks [0, %d) of the %d at most; "
                          "the others need %.4g bytes more; use a smaller micro-batch, or devices "
                          "with more memory",
                          pipeline->devices, most, pipeline->blocks, bytes);
done:
    hop_order_free(&order);
    free(reach);
    return status;
}

hop_status hop_pipeline_refuse(const struct hop_pipeline *pipeline, bool all, bool least,
                               struct hop_error *err)
{
    for (int32_t b = 0; b < pipeline->blocks; b++)
        HOP_TRY(refuse_block(pipeline, b, err));
    for (int32_t t = 0; all && t < pipeline->type_count; t++)
        HOP_TRY(refuse_device(pipeline, t, err));
    HOP_TRY(refuse_total(pipeline, err));
    if (pipeline->exit_probes > 0)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no split of the %d blocks fits with an output layer on the last "
                        "BP-free device (%.4g bytes on %s), which exit probes need; set "
                        "zo.early_exit: auto or 0, or use a smaller micro-batch",
                        pipeline->blocks, device_of(pipeline, 0)->exit_bytes,
                        device_of(pipeline, 0)->name);
    if (pipeline->front_kept > 0 && pipeline->front_devices > 0)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no split of the %d blocks fits the memory of the %d devices with "
                        "what BP-free ones keep for the estimator %s; set plan.devices: auto, use "
                        "a smaller micro-batch, or zo.estimator: difference, which keeps nothing "
                        "there",
                        pipeline->blocks, pipeline->devices,
                        hop_estimator_names[pipeline->estimator]);
    if (least)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no split of the %d blocks fits with the micro-batches that the "
                        "formula's schedule keeps; set objective: simulated, which keeps fewer "
                        "where memory is short, or use a smaller micro-batch",
                        pipeline->blocks);
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: no split of the %d blocks into one run a device fits the memory of the "
                    "%d devices; set plan.devices: auto, or use a smaller micro-batch",
                    pipeline->blocks, pipeline->devices);
}
