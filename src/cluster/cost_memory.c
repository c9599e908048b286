/* Memory of the cost table: the size table of a stage taken apart by differences, so that
 *
 *     fixed + sum(state) + in_flight * sum(activation) = hop_stage_bytes() + moments + rings
 *
 * for every part, up to the padding of arrays. */
#include "cluster/cost_internal.h"

#include "base/memory.h"
#include "model/stage.h"

/* What a device does with its part. */
struct role {
    bool bp, probes;
};

/* One term of the sum above: of a block, a table, or an empty part. */
struct term {
    double held, kept;
};

static struct hop_stage_config stage_of(const struct hop_workload *w, const struct role *role,
                                        int32_t blocks, bool embed, bool head)
{
    return (struct hop_stage_config){
        .model = w->model,
        .lora = hop_lora_widened(&w->lora),
        .dtype = w->dtype,
        .hi = blocks,
        .embed = embed,
        .head = head,
        .gradient = role->bp ? HOP_GRADIENT_BACKPROP : HOP_GRADIENT_ZEROTH_ORDER,
        .limits = w->limits,
        .slots = role->bp ? 1 : 0,
        .probes = role->probes ? w->probe_batch : 0,
        .cache = w->cache,
        .cache_sequences = w->cache_sequences,
    };
}

double hop__cost_weight_bytes(const struct hop_workload *workload, int32_t blocks, bool embed,
                              bool head)
{
    const struct role role = {.bp = true};
    const struct hop_stage_config config = stage_of(workload, &role, blocks, embed, head);
    return (double)hop_stage_bytes(&config).weights;
}

static struct term measure(const struct hop_workload *w, const struct role *role, int32_t blocks,
                           bool embed, bool head)
{
    const struct hop_stage_config config = stage_of(w, role, blocks, embed, head);
    const struct hop_stage_bytes bytes = hop_stage_bytes(&config);
    return (struct term){.held = (double)bytes.weights + (double)bytes.parameters +
                                 (double)bytes.scratch,
                         .kept = (double)bytes.kept};
}

static struct term minus(struct term a, struct term b)
{
    return (struct term){a.held - b.held, a.kept - b.kept};
}

/* First and second moments of AdamW. */
static double moment_bytes(const struct hop_workload *w)
{
    return 2 * sizeof(float) * (double)hop_lora_block_parameters(&w->model, &w->lora);
}

/* Message buffers towards one neighbour: hidden states one way, their gradients the other, and the
 * hidden states of a PROBE. */
static double ring_bytes(const struct hop_workload *w, const struct role *role)
{
    const size_t tensor =
        (size_t)w->limits.tokens * (size_t)w->model.hidden * hop_dtype_size(w->dtype);
    const size_t plain = hop_align(tensor) * (role->bp ? 2 : 1);
    const size_t probes = role->probes ? hop_align(tensor * (size_t)w->probe_batch) : 0;
    return (double)w->window * (double)(plain + probes);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* fixed_bytes has the rings of a part with two neighbours. What the ends of the pipeline have less
 * is taken off the end blocks, as far as they stay an amount of memory. */
static void spare_rings(const struct hop_workload *w, const struct role *role,
                        const struct hop_cost_table *cost, struct hop_cost_device *device)
{
    const double rings = ring_bytes(w, role);
    double *const first = &device->state_bytes[0], *const last =
                                                       &device->state_bytes[cost->blocks - 1];
    device->fixed_bytes += 2 * rings;
    *first = larger(*first - rings, 0);
    *last = larger(*last - rings, cost->tied_bytes);
}

static void fill_device(const struct hop_workload *w, const struct role *role,
                        const struct hop_cost_table *cost, struct hop_cost_device *device)
{
    const int32_t last = cost->blocks - 1;
    const struct term empty = measure(w, role, 0, false, false);
    const struct term block = minus(measure(w, role, 1, false, false), empty);
    const struct term embed = minus(measure(w, role, 0, true, false), empty);
    const struct term head = minus(measure(w, role, 0, false, true), empty);
    for (int32_t b = 0; b < cost->blocks; b++) {
        device->state_bytes[b] = block.held + moment_bytes(w);
        device->activation_bytes[b] = block.kept;
    }
    device->state_bytes[0] += embed.held;
    device->state_bytes[last] += head.held;
    device->activation_bytes[last] += head.kept;
    device->fixed_bytes = empty.held;
    spare_rings(w, role, cost, device);
}

static bool any_bp_free(const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp)
            return true;
    return false;
}

/* Where one device probes, the probes pass through all. */
void hop__cost_fill_memory(const struct hop_workload *workload, struct hop_cost_table *cost)
{
    const bool probes = any_bp_free(cost);
    cost->tied_bytes = hop__cost_weight_bytes(workload, 0, true, false) +
                       hop__cost_weight_bytes(workload, 0, false, true) -
                       hop__cost_weight_bytes(workload, 0, true, true);
    for (int32_t d = 0; d < cost->device_count; d++) {
        struct hop_cost_device *const device = &cost->devices[d];
        const struct role role = {.bp = device->bp, .probes = probes};
        fill_device(workload, &role, cost, device);
    }
}
