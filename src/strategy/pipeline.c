#include "strategy/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "strategy/parts.h"

enum { ROWS = 6 }; /* running sums of a type */

static bool is_usable(const struct hop_plan_request *request, const struct hop_cost_device *device)
{
    return device->bp ? device->backward != NULL : !request->bp_only;
}

static bool same(const double *a, const double *b, int32_t blocks)
{
    return memcmp(a, b, (size_t)blocks * sizeof *a) == 0;
}

static bool same_figures(const struct hop_cost_device *a, const struct hop_cost_device *b,
                         int32_t blocks)
{
    if (a->bp != b->bp || a->fixed_bytes != b->fixed_bytes || a->memory != b->memory ||
        !same(a->forward, b->forward, blocks) || !same(a->probe, b->probe, blocks) ||
        !same(a->step, b->step, blocks) || !same(a->feedback, b->feedback, blocks) ||
        !same(a->state_bytes, b->state_bytes, blocks) ||
        !same(a->activation_bytes, b->activation_bytes, blocks) ||
        a->exit_forward != b->exit_forward || a->exit_bytes != b->exit_bytes)
        return false;
    return !a->bp || same(a->backward, b->backward, blocks);
}

static bool same_link(const struct hop_cost_table *cost, int32_t a, int32_t b, int32_t c, int32_t d)
{
    const int32_t first = a * cost->device_count + b, second = c * cost->device_count + d;
    return cost->bandwidth[first] == cost->bandwidth[second] &&
           cost->latency[first] == cost->latency[second];
}

/* Does the cost table stay as it is when a and b change places? */
static bool interchangeable(const struct hop_cost_table *cost, int32_t a, int32_t b)
{
    if (!same_figures(&cost->devices[a], &cost->devices[b], cost->blocks) ||
        !same_link(cost, a, b, b, a))
        return false;
    for (int32_t c = 0; c < cost->device_count; c++)
        if (c != a && c != b && !(same_link(cost, a, c, b, c) && same_link(cost, c, a, c, b)))
            return false;
    return true;
}

static void add_device(struct hop_pipeline *pipeline, int32_t device, int32_t first_type)
{
    struct hop_device_type *const types = pipeline->types;
    int32_t t = first_type;
    while (t < pipeline->type_count &&
           !interchangeable(pipeline->cost, types[t].devices[0], device))
        t++;
    if (t == pipeline->type_count) {
        types[t].devices = pipeline->indices + (size_t)t * (size_t)pipeline->cost->device_count;
        types[t].bp = pipeline->cost->devices[device].bp;
        pipeline->type_count++;
    }
    types[t].devices[types[t].count++] = device;
    pipeline->devices++;
}

static void add_devices(struct hop_pipeline *pipeline, bool bp)
{
    const int32_t first_type = pipeline->type_count;
    for (int32_t d = 0; d < pipeline->cost->device_count; d++) {
        const struct hop_cost_device *const device = &pipeline->cost->devices[d];
        if (device->bp == bp && is_usable(pipeline->request, device))
            add_device(pipeline, d, first_type);
    }
}

/* Tasks that so many probes take. */
static int32_t count_tasks(const struct hop_pipeline *pipeline, int32_t probes)
{
    const int32_t batch = pipeline->request->probe_batch;
    const int32_t each = batch > 0 && batch < probes ? batch : probes;
    return each ? (probes - 1) / each + 1 : 0;
}

static void count_probes(struct hop_pipeline *pipeline)
{
    const int32_t batch = pipeline->request->probe_batch;
    const int32_t more = (pipeline->probe_tasks = count_tasks(pipeline, pipeline->probes)) - 1;
    pipeline->last_probes = pipeline->probes - (more > 0 ? more * batch : 0);
    pipeline->exit_tasks = count_tasks(pipeline, pipeline->exit_probes);
}

static bool feeds(const struct hop_pipeline *pipeline)
{
    return pipeline->front == HOP_GRADIENT_ZEROTH_ORDER && pipeline->estimator == HOP_FEEDBACK;
}

/* Which parts keep micro-batches for feedback to some blocks depends on where the last of them
 * ends, which a search from the front does not know yet: for more than one block all do, as if it
 * were to all blocks, so that in a tight memory a plan that fits may be left out. */
static bool keeps_everywhere(const struct hop_pipeline *pipeline)
{
    return feeds(pipeline) && pipeline->request->feedback_blocks != 1;
}

bool hop_pipeline_feeds_all(const struct hop_pipeline *pipeline)
{
    return feeds(pipeline) && pipeline->request->feedback_blocks == 0;
}

/* Of the tasks of one kind of a micro-batch: the first pass of each, and the others. */
static double pass_seconds(double forward, double more, int32_t tasks, int32_t passes)
{
    return tasks * forward + (passes - tasks) * more;
}

static double backward_seconds(const struct hop_pipeline *pipeline,
                               const struct hop_cost_device *device, int32_t block)
{
    if (device->bp)
        return device->backward[block];
    return hop_pipeline_feeds_all(pipeline) ? device->feedback[block] : 0;
}

static void sum_figures(const struct hop_pipeline *pipeline, struct hop_device_type *type)
{
    const struct hop_cost_device *const device = &pipeline->cost->devices[type->devices[0]];
    const bool probed = !type->bp || pipeline->through;
    const int32_t tasks = probed ? pipeline->probe_tasks : 0;
    const int32_t probes = probed ? pipeline->probes : 0, passes = pipeline->passes;
    const int32_t last = probed ? pipeline->last_probes : 0;
    const int32_t exits = type->bp ? 0 : pipeline->exit_tasks;
    const int32_t exit_probes = type->bp ? 0 : pipeline->exit_probes;
    for (int32_t b = 0; b < pipeline->blocks; b++) {
        const double forward = device->forward[b], more = device->probe[b];
        type->forward[b + 1] = type->forward[b] + forward;
        type->backward[b + 1] = type->backward[b] + backward_seconds(pipeline, device, b);
        type->probe[b + 1] = type->probe[b] + pass_seconds(forward, more, tasks, passes * probes);
        type->last_probe[b + 1] =
            type->last_probe[b] + pass_seconds(forward, more, last > 0, passes * last);
        type->exit[b + 1] =
            type->exit[b] + pass_seconds(forward, more, exits, passes * exit_probes);
        const bool trained = type->bp || pipeline->front != HOP_GRADIENT_NONE;
        type->step[b + 1] = type->step[b] + (trained ? device->step[b] : 0);
    }
}

/* Adds the bytes in the order hop_cost_memory() does, so that both agree to the last bit. */
static int32_t longest_run(const struct hop_pipeline *pipeline,
                           const struct hop_cost_device *device, int32_t lo, int32_t kept)
{
    double state = 0, activation = 0;
    int32_t hi = lo;
    for (; hi < pipeline->blocks; hi++) {
        state += device->state_bytes[hi];
        activation += device->activation_bytes[hi];
        if (device->fixed_bytes + state + (kept ? kept * activation : 0) > device->memory)
            break;
    }
    return hi;
}

static void fill_longest(const struct hop_pipeline *pipeline, struct hop_device_type *type,
                         int32_t most_kept)
{
    const struct hop_cost_device *const device = &pipeline->cost->devices[type->devices[0]];
    for (int32_t kept = 0; kept <= most_kept; kept++)
        for (int32_t lo = 0; lo < pipeline->blocks; lo++)
            type->longest[kept * pipeline->blocks + lo] = longest_run(pipeline, device, lo, kept);
}

static void place_type(struct hop_pipeline *pipeline, int32_t t, int32_t *longest, size_t stride)
{
    struct hop_device_type *const type = &pipeline->types[t];
    const size_t row = (size_t)pipeline->blocks + 1;
    double *const base = pipeline->storage + (size_t)t * ROWS * row;
    type->forward = base;
    type->backward = base + row;
    type->probe = base + 2 * row;
    type->last_probe = base + 3 * row;
    type->exit = base + 4 * row;
    type->step = base + 5 * row;
    type->longest = longest + (size_t)t * stride;
}

/* No stage keeps more, by either objective. */
static int32_t most_kept(const struct hop_pipeline *pipeline)
{
    const int32_t most = 2 * (pipeline->devices - pipeline->front_devices) - 1;
    return most < pipeline->micro_batches ? most : pipeline->micro_batches;
}

static hop_status add_types(struct hop_pipeline *pipeline, struct hop_error *err)
{
    const size_t devices = (size_t)pipeline->cost->device_count, blocks = (size_t)pipeline->blocks;
    const size_t stride = 2 * devices * blocks; /* up to 2 G - 1 are kept */
    HOP_TRY(hop_calloc(&pipeline->types, devices, sizeof *pipeline->types, err));
    HOP_TRY(hop_calloc(&pipeline->storage, devices * ROWS * (blocks + 1), sizeof *pipeline->storage,
                       err));
    HOP_TRY(hop_calloc(&pipeline->indices, devices * (devices + stride), sizeof *pipeline->indices,
                       err));
    add_devices(pipeline, false);
    pipeline->front_types = pipeline->type_count;
    pipeline->front_devices = pipeline->devices;
    add_devices(pipeline, true);
    for (int32_t t = 0; t < pipeline->type_count; t++) {
        place_type(pipeline, t, pipeline->indices + devices * devices, stride);
        sum_figures(pipeline, &pipeline->types[t]);
        fill_longest(pipeline, &pipeline->types[t],
                     pipeline->types[t].bp ? most_kept(pipeline) : pipeline->front_kept);
    }
    return HOP_OK;
}

static void set_estimator(struct hop_pipeline *pipeline, int32_t probes)
{
    const int32_t exit_probes = pipeline->request->exit_probes;
    const bool tangents = pipeline->estimator == HOP_BOUNDARY && probes > 0;
    pipeline->probes = feeds(pipeline) ? 0 : probes;
    pipeline->exit_probes = exit_probes > 0 ? exit_probes : 0;
    pipeline->through = hop_estimator_has_exit(pipeline->estimator);
    pipeline->front_kept = keeps_everywhere(pipeline) || tangents;
}

hop_status hop_pipeline_create(const struct hop_plan_request *request, int32_t probes,
                               enum hop_gradient front, struct hop_pipeline *out,
                               struct hop_error *err)
{
    struct hop_pipeline pipeline = {.request = request,
                                    .cost = request->cost,
                                    .blocks = request->cost->blocks,
                                    .micro_batches = request->micro_batches,
                                    .passes = hop_estimator_passes(request->estimator),
                                    .front = front,
                                    .estimator = request->estimator};
    if (front == HOP_GRADIENT_ZEROTH_ORDER)
        set_estimator(&pipeline, probes);
    count_probes(&pipeline);
    const hop_status status = add_types(&pipeline, err);
    if (status != HOP_OK)
        hop_pipeline_free(&pipeline);
    else
        *out = pipeline;
    return status;
}

void hop_pipeline_free(struct hop_pipeline *pipeline)
{
    if (!pipeline)
        return;
    free(pipeline->types);
    free(pipeline->storage);
    free(pipeline->indices);
    *pipeline = (struct hop_pipeline){0};
}

bool hop_pipeline_fits(const struct hop_pipeline *pipeline, int32_t type, int32_t lo, int32_t hi,
                       int32_t kept)
{
    const struct hop_device_type *const t = &pipeline->types[type];
    const int32_t device = t->devices[0];
    if (hi <= t->longest[kept * pipeline->blocks + lo])
        return true;
    /* Only the whole model counts its tied weights once. */
    return lo == 0 && hi == pipeline->blocks &&
           hop_cost_memory(pipeline->cost, device, lo, hi, kept) <=
               pipeline->cost->devices[device].memory;
}

double hop_pipeline_last_bytes(const struct hop_pipeline *pipeline, int32_t type, int32_t hi)
{
    const struct hop_device_type *const t = &pipeline->types[type];
    double bytes = 0;
    if (pipeline->exit_probes > 0)
        bytes += pipeline->cost->devices[t->devices[0]].exit_bytes;
    if (pipeline->estimator == HOP_BOUNDARY && hi < pipeline->blocks)
        bytes += pipeline->probes * pipeline->cost->boundary_bytes[hi - 1];
    return bytes;
}

bool hop_pipeline_fits_last(const struct hop_pipeline *pipeline, int32_t type, int32_t lo,
                            int32_t hi)
{
    const int32_t device = pipeline->types[type].devices[0];
    const int32_t kept = pipeline->front_kept || feeds(pipeline);
    const double bytes = hop_cost_memory(pipeline->cost, device, lo, hi, kept) +
                         hop_pipeline_last_bytes(pipeline, type, hi);
    return bytes <= pipeline->cost->devices[device].memory;
}

int32_t hop_pipeline_kept(const struct hop_pipeline *pipeline, int32_t type, int32_t lo, int32_t hi,
                          int32_t most)
{
    const struct hop_cost_device *const device =
        &pipeline->cost->devices[pipeline->types[type].devices[0]];
    if (isinf(device->memory))
        return most;
    int32_t kept = most;
    while (kept > 1 && !hop_pipeline_fits(pipeline, type, lo, hi, kept))
        kept--;
    return kept;
}

void hop_pipeline_fill(const struct hop_pipeline *pipeline, const struct hop_run *runs,
                       int32_t count, struct hop_plan *plan)
{
    plan->part_count = 0;
    for (int32_t i = 0; i < count; i++) {
        const struct hop_device_type *const type = &pipeline->types[runs[i].type];
        int32_t taken = 0;
        for (int32_t j = 0; j < i; j++)
            taken += runs[j].type == runs[i].type;
        hop_plan_add_stage(plan, type->devices[taken], runs[i].lo, runs[i].hi,
                           type->bp ? HOP_GRADIENT_BACKPROP : pipeline->front);
    }
    const bool probed = count && runs[0].type < pipeline->front_types;
    plan->probes = probed ? pipeline->probes : 0;
    plan->exit_probes = probed ? pipeline->exit_probes : 0;
}
