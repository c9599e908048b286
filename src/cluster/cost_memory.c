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
    bool bp;
    bool keeps, tangents; /* for backward, tangents or feedback */
    int32_t passes;       /* that a PROBE runs at once; 0: there are none */
};

/* One term of the sum above: of a block, a table, or an empty part. */
struct term {
    double held, kept;
};

struct hop_lora_config hop__cost_lora(const struct hop_workload *workload, bool bp)
{
    const struct hop_lora_config *const lora = &workload->lora;
    const bool everywhere = lora->core_hi > lora->core_lo;
    struct hop_lora_config plain = *lora;
    plain.core = plain.core_lo = plain.core_hi = 0;
    plain = hop_lora_widened(&plain);
    if (lora->core == 0 || (bp && !everywhere))
        return plain;
    plain.core = lora->core;
    plain.core_hi = workload->model.blocks;
    return plain;
}

static struct role role_of(const struct hop_workload *w, bool bp, bool has_bp_free)
{
    const bool probes =
        w->front == HOP_FRONT_PROBES ? has_bp_free : w->front == HOP_FRONT_TANGENTS && !bp;
    const bool feedback = w->front == HOP_FRONT_FEEDBACK && !bp;
    const bool tangents = w->front == HOP_FRONT_TANGENTS && !bp;
    return (struct role){.bp = bp,
                         .keeps = bp || tangents || feedback,
                         .tangents = tangents,
                         .passes = probes ? w->probe_batch * (w->passes > 1 ? w->passes : 1) : 0};
}

static struct hop_stage_config stage_of(const struct hop_workload *w, const struct role *role,
                                        int32_t blocks, bool embed, bool head)
{
    return (struct hop_stage_config){
        .model = w->model,
        .lora = hop__cost_lora(w, role->bp),
        .dtype = w->dtype,
        .hi = blocks,
        .embed = embed,
        .head = head,
        .gradient = role->bp ? HOP_GRADIENT_BACKPROP : HOP_GRADIENT_ZEROTH_ORDER,
        .limits = w->limits,
        .slots = role->keeps,
        .probes = role->passes,
        .per_sample = w->per_sample && !role->bp,
        .tangents = role->tangents,
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

/* An output layer behind a stage that has none: `held` alone, for nothing flows back from it. */
static double exit_bytes(const struct hop_workload *w, const struct role *role)
{
    struct hop_stage_config config = stage_of(w, role, 1, false, false);
    const struct hop_stage_bytes plain = hop_stage_bytes(&config);
    config.exit = true;
    const struct hop_stage_bytes bytes = hop_stage_bytes(&config);
    return (double)bytes.weights - (double)plain.weights + (double)bytes.scratch -
           (double)plain.scratch;
}

static struct term minus(struct term a, struct term b)
{
    return (struct term){a.held - b.held, a.kept - b.kept};
}

/* First and second moments of AdamW. */
static double moment_bytes(const struct hop_workload *w, const struct role *role)
{
    const struct hop_lora_config lora = hop__cost_lora(w, role->bp);
    return 2 * sizeof(float) * (double)hop_lora_parameters(&w->model, &lora, 0, 1);
}

/* Message buffers towards one neighbour: hidden states one way, their gradients the other where the
 * stage keeps what they are for, and the hidden states or tangents of a PROBE. */
static double ring_bytes(const struct hop_workload *w, const struct role *role)
{
    const size_t tensor =
        (size_t)w->limits.tokens * (size_t)w->model.hidden * hop_dtype_size(w->dtype);
    const size_t plain = hop_align(tensor) * (role->keeps ? 2 : 1);
    const size_t probes = hop_align(tensor * (size_t)role->passes);
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
        device->state_bytes[b] = block.held + moment_bytes(w, role);
        device->activation_bytes[b] = block.kept;
    }
    device->state_bytes[0] += embed.held;
    device->state_bytes[last] += head.held;
    device->activation_bytes[last] += head.kept;
    device->fixed_bytes = empty.held;
    device->exit_bytes = larger(exit_bytes(w, role), 0);
    spare_rings(w, role, cost, device);
}

static bool any_bp_free(const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp)
            return true;
    return false;
}

/* Where one device runs perturbed forwards, they pass through all. */
void hop__cost_fill_memory(const struct hop_workload *workload, struct hop_cost_table *cost)
{
    const bool bp_free = any_bp_free(cost);
    cost->tied_bytes = hop__cost_weight_bytes(workload, 0, true, false) +
                       hop__cost_weight_bytes(workload, 0, false, true) -
                       hop__cost_weight_bytes(workload, 0, true, true);
    for (int32_t d = 0; d < cost->device_count; d++) {
        struct hop_cost_device *const device = &cost->devices[d];
        const struct role role = role_of(workload, device->bp, bp_free);
        fill_device(workload, &role, cost, device);
    }
}
