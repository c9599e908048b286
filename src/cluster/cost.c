#include "cluster/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static hop_status create_device(struct hop_cost_device *device, int32_t blocks,
                                struct hop_error *err)
{
    const size_t n = (size_t)blocks;
    HOP_TRY(hop_calloc(&device->forward, n, sizeof(double), err));
    HOP_TRY(hop_calloc(&device->probe, n, sizeof(double), err));
    HOP_TRY(hop_calloc(&device->step, n, sizeof(double), err));
    HOP_TRY(hop_calloc(&device->feedback, n, sizeof(double), err));
    HOP_TRY(hop_calloc(&device->state_bytes, n, sizeof(double), err));
    HOP_TRY(hop_calloc(&device->activation_bytes, n, sizeof(double), err));
    device->memory = INFINITY;
    device->idle_watts = device->busy_watts = NAN;
    return HOP_OK;
}

static hop_status create_network(struct hop_cost_table *cost, struct hop_error *err)
{
    const size_t n = (size_t)cost->device_count;
    HOP_TRY(hop_calloc(&cost->bandwidth, n * n, sizeof(double), err));
    HOP_TRY(hop_calloc(&cost->latency, n * n, sizeof(double), err));
    HOP_TRY(hop_calloc(&cost->machine, n, sizeof(int32_t), err));
    for (size_t i = 0; i < n * n; i++)
        cost->bandwidth[i] = INFINITY;
    for (int32_t d = 0; d < cost->device_count; d++)
        cost->machine[d] = d;
    return HOP_OK;
}

hop_status hop_cost_create(int32_t blocks, int32_t devices, struct hop_cost_table *out,
                           struct hop_error *err)
{
    if (blocks < 1 || devices < 1)
        return hop_fail(err, HOP_INPUT,
                        "a cost table of %d blocks and %d devices; each must be at least 1", blocks,
                        devices);
    struct hop_cost_table cost = {
        .micro_batch_samples = 1, .blocks = blocks, .device_count = devices};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&cost.devices, (size_t)devices, sizeof *cost.devices, err));
    for (int32_t d = 0; d < devices; d++)
        HOP_TRY_DONE(create_device(&cost.devices[d], blocks, err));
    HOP_TRY_DONE(hop_calloc(&cost.boundary_bytes, (size_t)blocks - 1, sizeof(double), err));
    HOP_TRY_DONE(hop_calloc(&cost.gradient_bytes, (size_t)blocks, sizeof(double), err));
    HOP_TRY_DONE(create_network(&cost, err));
    *out = cost;
    return HOP_OK;
done:
    hop_cost_free(&cost);
    return status;
}

static void free_device(struct hop_cost_device *device)
{
    free(device->name);
    free(device->forward);
    free(device->backward);
    free(device->probe);
    free(device->step);
    free(device->feedback);
    free(device->state_bytes);
    free(device->activation_bytes);
}

void hop_cost_free(struct hop_cost_table *cost)
{
    if (!cost)
        return;
    for (int32_t d = 0; cost->devices && d < cost->device_count; d++)
        free_device(&cost->devices[d]);
    free(cost->devices);
    free(cost->boundary_bytes);
    free(cost->gradient_bytes);
    free(cost->bandwidth);
    free(cost->latency);
    free(cost->machine);
    *cost = (struct hop_cost_table){0};
}

int32_t hop_cost_find(const struct hop_cost_table *cost, const char *name)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (strcmp(cost->devices[d].name, name) == 0)
            return d;
    return -1;
}

hop_status hop_cost_names(const struct hop_cost_table *cost, const char ***out,
                          struct hop_error *err)
{
    const char **names;
    HOP_TRY(hop_calloc(&names, (size_t)cost->device_count, sizeof *names, err));
    for (int32_t d = 0; d < cost->device_count; d++)
        names[d] = cost->devices[d].name;
    *out = names;
    return HOP_OK;
}

static double sum(const double *values, int32_t lo, int32_t hi)
{
    double total = 0;
    for (int32_t i = lo; i < hi; i++)
        total += values[i];
    return total;
}

double hop_cost_forward(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi)
{
    return sum(cost->devices[device].forward, lo, hi);
}

double hop_cost_backward(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi)
{
    const double *const backward = cost->devices[device].backward;
    if (!backward)
        return lo < hi ? INFINITY : 0;
    return sum(backward, lo, hi);
}

double hop_cost_probe(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi,
                      int32_t probes)
{
    return hop_cost_forward(cost, device, lo, hi) +
           (probes - 1) * sum(cost->devices[device].probe, lo, hi);
}

double hop_cost_step(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi)
{
    return sum(cost->devices[device].step, lo, hi);
}

double hop_cost_feedback(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi)
{
    return sum(cost->devices[device].feedback, lo, hi);
}

double hop_cost_memory(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi,
                       int32_t in_flight)
{
    const struct hop_cost_device *const d = &cost->devices[device];
    const double kept = in_flight > 0 ? in_flight * sum(d->activation_bytes, lo, hi) : 0;
    const double tied = lo == 0 && hi == cost->blocks ? cost->tied_bytes : 0;
    return d->fixed_bytes + sum(d->state_bytes, lo, hi) + kept - tied;
}

double hop_cost_link(const struct hop_cost_table *cost, int32_t from, int32_t to, double bytes)
{
    if (from == to)
        return 0;
    const size_t link = (size_t)from * (size_t)cost->device_count + (size_t)to;
    return cost->latency[link] + bytes / cost->bandwidth[link];
}
