#include "cluster/cost_model.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/string.h"
#include "cluster/cost_internal.h"

/* Of one micro-batch. */
static double token_count(const struct hop_workload *w)
{
    return (double)w->samples * w->tokens;
}

static double projection_operations(const struct hop_workload *w)
{
    double elements = 0;
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        elements +=
            (double)hop_target_in(&w->model, target) * (double)hop_target_out(&w->model, target);
    return 2 * token_count(w) * elements;
}

/* Scores and their products with the values; the causal mask leaves half of either. */
static double attention_operations(const struct hop_workload *w)
{
    const double features = (double)w->model.heads * w->model.head_dim;
    return 2 * token_count(w) * w->tokens * features;
}

/* All blocks are alike in what hop__cost_lora() says. */
static double parameter_count(const struct hop_workload *w, bool bp)
{
    const struct hop_lora_config lora = hop__cost_lora(w, bp);
    return (double)hop_lora_parameters(&w->model, &lora, 0, 1);
}

/* A core is merged into the second of its factors before it is used. */
static double lora_operations(const struct hop_workload *w, bool bp)
{
    const struct hop_lora_config lora = hop__cost_lora(w, bp);
    return 2 * token_count(w) * (double)hop_lora_plain_parameters(&w->model, &lora, 0, 1);
}

static double block_operations(const struct hop_workload *w, bool bp)
{
    return projection_operations(w) + attention_operations(w) + lora_operations(w, bp);
}

double hop_block_operations(const struct hop_workload *workload)
{
    return block_operations(workload, true);
}

/* The projections whose products are added to the residual stream. */
static const enum hop_target into_stream[] = {HOP_O_PROJ, HOP_DOWN_PROJ};
enum { INTO_STREAM = sizeof into_stream / sizeof *into_stream };

/* dB = delta u^T, and with v = B^T delta, dA = v x^T; a core follows from dB. */
double hop_feedback_operations(const struct hop_workload *workload)
{
    const struct hop_lora_config lora = hop__cost_lora(workload, false);
    double elements = 0;
    for (int i = 0; i < INTO_STREAM; i++) {
        const double rank = hop_lora_rank(&lora, 0, into_stream[i]);
        const double in = (double)hop_target_in(&workload->model, into_stream[i]);
        const double out = (double)hop_target_out(&workload->model, into_stream[i]);
        elements += rank * (lora.core > 0 ? out : 2 * out + in);
    }
    return 2 * token_count(workload) * elements;
}

double hop_head_operations(const struct hop_workload *workload)
{
    const double rows = (double)workload->samples * workload->labels;
    return 2 * rows * (double)hop_model_embed_parameters(&workload->model);
}

static double boundary_bytes(const struct hop_workload *w)
{
    return token_count(w) * w->model.hidden * (double)hop_dtype_size(w->dtype);
}

/* Seconds of a part of the model on a device: limited by arithmetic, or by reading or writing
 * memory. */
struct seconds {
    double arithmetic, traffic;
};

static struct seconds seconds(const struct hop_device *device, double operations, double bytes)
{
    return (struct seconds){
        .arithmetic = operations / (device->rate * 1e12),
        .traffic = device->memory_bandwidth > 0 ? bytes / device->memory_bandwidth : 0};
}

static double slower(struct seconds s)
{
    return s.arithmetic > s.traffic ? s.arithmetic : s.traffic;
}

static void add_to_all(double *values, int32_t n, double amount)
{
    for (int32_t i = 0; i < n; i++)
        values[i] += amount;
}

/* The norms, the softmax and such are `overhead`'s. */
static void price_blocks(const struct hop_workload *w, const struct hop_device *device,
                         struct hop_cost_device *out)
{
    const int32_t n = w->model.blocks;
    const double weights = hop__cost_weight_bytes(w, 1, false, false);
    const struct seconds block = seconds(device, block_operations(w, device->bp), weights);
    const double forward = device->overhead + slower(block);
    add_to_all(out->forward, n, forward);
    add_to_all(out->probe, n, device->probe_ratio * (device->overhead + block.arithmetic));
    if (out->backward)
        add_to_all(out->backward, n, device->backward_ratio * forward);
}

/* Rows of the table are read and written as hidden states; nothing flows back into it. */
static void price_embedding(const struct hop_workload *w, const struct hop_device *device,
                            struct hop_cost_device *out)
{
    const double lookup = seconds(device, 0, 2 * boundary_bytes(w)).traffic;
    out->forward[0] += lookup;
    out->probe[0] += device->probe_ratio * lookup;
}

/* Backward of the head is one product of the same size: its weights are frozen and it is never
 * recomputed. BP-free devices pay their slow ratio for it as for all else. */
static void price_head(const struct hop_workload *w, const struct hop_device *device,
                       struct hop_cost_device *out)
{
    const int32_t last = w->model.blocks - 1;
    const double weights = hop__cost_weight_bytes(w, 0, false, true);
    const struct seconds head = seconds(device, hop_head_operations(w), weights);
    out->exit_forward = slower(head);
    out->forward[last] += slower(head);
    out->probe[last] += device->probe_ratio * head.arithmetic;
    if (out->backward)
        out->backward[last] += slower(head) * (device->bp ? 1 : device->backward_ratio);
}

/* delta and the inputs of the projections are read, those of down_proj made again from gate and up.
 */
static double feedback_bytes(const struct hop_workload *w)
{
    enum { AGAIN = 3 };
    const struct hop_lora_config lora = hop__cost_lora(w, false);
    double elements = 0;
    for (int i = 0; i < INTO_STREAM; i++) {
        const double in = (double)hop_target_in(&w->model, into_stream[i]);
        const double reads = into_stream[i] == HOP_DOWN_PROJ ? 1 + AGAIN : 1;
        if (hop_lora_rank(&lora, 0, into_stream[i]) > 0)
            elements += reads * in + (double)w->model.hidden;
    }
    return token_count(w) * elements * (double)hop_dtype_size(w->dtype);
}

static void price_feedback(const struct hop_workload *w, const struct hop_device *device,
                           struct hop_cost_device *out)
{
    add_to_all(out->feedback, w->model.blocks,
               slower(seconds(device, hop_feedback_operations(w), feedback_bytes(w))));
}

/* AdamW reads values, gradients and both moments, and writes all four (the gradient as zero). */
static void price_step(const struct hop_workload *w, const struct hop_device *device,
                       struct hop_cost_device *out)
{
    add_to_all(out->step, w->model.blocks,
               seconds(device, 0, 8 * sizeof(float) * parameter_count(w, device->bp)).traffic);
}

static hop_status check_device(const struct hop_device *device, struct hop_error *err)
{
    const struct {
        const char *key;
        double value;
        bool needed;
    } figures[] = {{"rate", device->rate, true},
                   {"probe_ratio", device->probe_ratio, true},
                   {"backward_ratio", device->backward_ratio, device->bp}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (figures[i].needed && !(isfinite(figures[i].value) && figures[i].value > 0))
            return hop_fail(err, HOP_INPUT,
                            "device '%s': %s is %g; a number above 0 is needed to price its work",
                            device->name, figures[i].key, figures[i].value);
    return HOP_OK;
}

/* A BP-free device without a backward_ratio cannot run backward at all. */
static hop_status fill_device(const struct hop_workload *w, const struct hop_device *device,
                              struct hop_cost_device *out, struct hop_error *err)
{
    HOP_TRY(check_device(device, err));
    HOP_TRY(hop_string_copy(&out->name, device->name, err));
    if (device->backward_ratio > 0)
        HOP_TRY(hop_calloc(&out->backward, (size_t)w->model.blocks, sizeof(double), err));
    out->bp = device->bp;
    out->memory = device->memory > 0 ? device->memory : INFINITY;
    out->idle_watts = device->idle_watts;
    out->busy_watts = device->busy_watts;
    price_blocks(w, device, out);
    price_embedding(w, device, out);
    price_head(w, device, out);
    price_step(w, device, out);
    price_feedback(w, device, out);
    return HOP_OK;
}

/* An emulated device without a host stands for a board of its own. */
static bool is_own_board(const struct hop_device *device)
{
    return device->emulate && (!device->host || !*device->host);
}

static bool share_machine(const struct hop_device *a, const struct hop_device *b)
{
    if (is_own_board(a) || is_own_board(b))
        return false;
    if (hop_device_is_local(a) || hop_device_is_local(b))
        return hop_device_is_local(a) && hop_device_is_local(b);
    return strcasecmp(a->host, b->host) == 0;
}

/* The number of a machine is that of its first device. */
static void number_machines(const struct hop_cluster *cluster, struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        int32_t first = 0;
        while (first < d && !share_machine(&cluster->devices[first], &cluster->devices[d]))
            first++;
        cost->machine[d] = first;
    }
}

static void set_link(struct hop_cost_table *cost, int32_t from, int32_t to, double bandwidth,
                     double latency)
{
    const size_t link = (size_t)from * (size_t)cost->device_count + (size_t)to;
    cost->bandwidth[link] = bandwidth > 0 ? bandwidth : INFINITY;
    cost->latency[link] = latency;
}

static void fill_network(const struct hop_cluster *cluster, struct hop_cost_table *cost)
{
    number_machines(cluster, cost);
    for (int32_t from = 0; from < cost->device_count; from++)
        for (int32_t to = 0; to < cost->device_count; to++)
            if (cost->machine[from] != cost->machine[to])
                set_link(cost, from, to, cluster->bandwidth, cluster->latency);
    for (size_t i = 0; i < cluster->link_count; i++) {
        const struct hop_link *const link = &cluster->links[i];
        set_link(cost, link->from, link->to, link->bandwidth, link->latency);
    }
    cost->half_duplex = cluster->half_duplex;
    cost->shared_nic = cluster->shared_nic;
}

static void fill_messages(const struct hop_workload *w, struct hop_cost_table *cost)
{
    add_to_all(cost->boundary_bytes, cost->blocks - 1, boundary_bytes(w));
    add_to_all(cost->gradient_bytes, cost->blocks, sizeof(float) * parameter_count(w, true));
}

static hop_status check_workload(const struct hop_workload *w, struct hop_error *err)
{
    if (w->samples < 1 || w->tokens < 1 || w->labels < 0 || w->probe_batch < 1 || w->window < 0 ||
        w->passes < 0)
        return hop_fail(err, HOP_INPUT,
                        "workload of %d samples, %d tokens, %d labels, %d probes at once, %d "
                        "buffers; samples, tokens and probes must be at least 1, the others 0",
                        w->samples, w->tokens, w->labels, w->probe_batch, w->window);
    if (hop_dtype_size(w->dtype) == 0)
        return hop_fail(err, HOP_INPUT, "workload: the element type must be f32 or bf16");
    return HOP_OK;
}

hop_status hop_cost_from_model(const struct hop_workload *workload,
                               const struct hop_cluster *cluster, struct hop_cost_table *out,
                               struct hop_error *err)
{
    struct hop_cost_table cost;
    HOP_TRY(check_workload(workload, err));
    HOP_TRY(hop_cost_create(workload->model.blocks, (int32_t)cluster->count, &cost, err));
    hop_status status = HOP_OK;
    cost.micro_batch_samples = workload->samples;
    cost.tensor_units = workload->model.heads;
    for (int32_t d = 0; d < cost.device_count; d++)
        HOP_TRY_DONE(fill_device(workload, &cluster->devices[d], &cost.devices[d], err));
    hop__cost_fill_memory(workload, &cost);
    fill_messages(workload, &cost);
    fill_network(cluster, &cost);
    *out = cost;
    return HOP_OK;
done:
    hop_cost_free(&cost);
    return status;
}
