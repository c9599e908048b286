/* Half a micro-batch by the table's own rule: a share s of the samples costs s times as much. */
#include <math.h>

#include "cluster/cost.h"

static void halve(double *values, int32_t count)
{
    for (int32_t i = 0; values && i < count; i++)
        values[i] /= 2;
}

static void halve_device(struct hop_cost_device *device, int32_t blocks)
{
    halve(device->forward, blocks);
    halve(device->backward, blocks);
    halve(device->probe, blocks);
    halve(device->feedback, blocks);
    halve(&device->exit_forward, 1);
    halve(device->activation_bytes, blocks);
}

hop_status hop_cost_halve(const struct hop_cost_table *cost, struct hop_cost_table *out,
                          struct hop_error *err)
{
    if (fmod(cost->micro_batch_samples, 2) != 0)
        return hop_fail(err, HOP_INPUT, "a micro-batch of %g samples has no halves",
                        cost->micro_batch_samples);
    json_t *const object = hop_cost_json(cost);
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory while copying a cost table");
    const hop_status status = hop_cost_parse(object, "cost table", out, err);
    json_decref(object);
    if (status != HOP_OK)
        return status;
    for (int32_t d = 0; d < out->device_count; d++)
        halve_device(&out->devices[d], out->blocks);
    halve(out->boundary_bytes, out->blocks - 1);
    out->micro_batch_samples /= 2;
    return HOP_OK;
}
