/* All message buffers of a device, sized once for the largest pass of any schedule. */
#include "runtime/executor_internal.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/estimator.h"

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t largest_probe_batch(const struct hop_executor *executor)
{
    int32_t largest = 1;
    for (int32_t r = 0; r < executor->route_count; r++)
        for (int32_t p = 0; p < executor->part_count; p++)
            largest = larger(largest, hop_schedule_probe_batch(&executor->routes[r].schedule,
                                                               executor->parts[p].index));
    return largest;
}

/* Of a micro-batch's rows that one part handles. */
static size_t most_tokens(const struct hop_executor *executor)
{
    int32_t most = 0;
    for (int32_t p = 0; p < executor->part_count; p++)
        most = larger(most, executor->config.part_limits[executor->parts[p].index].tokens);
    return (size_t)most;
}

static size_t buffer_bytes(const struct hop_executor *executor, enum hop_payload payload)
{
    const struct hop_executor_config *const config = &executor->config;
    const size_t hidden_states =
        most_tokens(executor) * (size_t)config->model.hidden * hop_dtype_size(config->dtype);
    const size_t copies = payload == HOP_PROBE_ACTIVATION ? (size_t)executor->passes : 1;
    return hop_align(hidden_states * copies);
}

static void widen_ring(struct hop_ring *ring, const struct hop_route *route,
                       enum hop_payload payload)
{
    if (route->receive_width[payload] > 0)
        ring->receives = larger(ring->receives, route->window);
    if (route->send_width[payload] > 0)
        ring->sends = larger(ring->sends, route->window);
    ring->receive_width = larger(ring->receive_width, route->receive_width[payload]);
    ring->send_width = larger(ring->send_width, route->send_width[payload]);
    ring->locals = larger(ring->locals, route->local_slots[payload]);
    ring->gathers = ring->gathers || route->gathers[payload];
}

static hop_status create_ring(struct hop_executor *executor, enum hop_payload payload,
                              struct hop_error *err)
{
    struct hop_ring *const ring = &executor->rings[payload];
    ring->bytes = buffer_bytes(executor, payload);
    for (int32_t r = 0; r < executor->route_count; r++)
        widen_ring(ring, &executor->routes[r], payload);
    const size_t buffers = (size_t)ring->receives + (size_t)ring->sends + (size_t)ring->locals +
                           (ring->gathers ? 1 : 0);
    HOP_TRY(hop_calloc_aligned(&ring->memory, buffers, ring->bytes, err));
    executor->held += buffers * ring->bytes;
    HOP_TRY(hop_calloc(&ring->receive, (size_t)ring->receives * (size_t)ring->receive_width,
                       sizeof *ring->receive, err));
    return hop_calloc(&ring->send, (size_t)ring->sends * (size_t)ring->send_width,
                      sizeof *ring->send, err);
}

void *hop_ring_receive(const struct hop_ring *ring, int32_t slot)
{
    return ring->memory + (size_t)slot * ring->bytes;
}

void *hop_ring_send(const struct hop_ring *ring, int32_t slot)
{
    return hop_ring_receive(ring, ring->receives + slot);
}

void *hop_ring_local(const struct hop_ring *ring, int32_t slot)
{
    return hop_ring_receive(ring, ring->receives + ring->sends + slot);
}

void *hop_ring_gather(const struct hop_ring *ring)
{
    return hop_ring_local(ring, ring->locals);
}

static size_t parameter_count(const struct hop_executor *executor)
{
    size_t count = 0;
    for (int32_t p = 0; p < executor->part_count; p++)
        count += hop_stage_parameters(executor->parts[p].stage)->count;
    return count;
}

static hop_status create_numbers(struct hop_executor *executor, struct hop_probe_numbers *numbers,
                                 struct hop_error *err)
{
    const size_t batches = (size_t)executor->micro_batches, values = (size_t)executor->values;
    numbers->stride = (size_t)numbers->probes * values;
    HOP_TRY(hop_calloc(&numbers->told, batches * numbers->stride, sizeof(float), err));
    HOP_TRY(hop_calloc(&numbers->computed, batches * numbers->stride, sizeof(double), err));
    HOP_TRY(hop_calloc(&numbers->base, batches * values, sizeof(double), err));
    return hop_calloc(&numbers->told_base, batches * values, sizeof(float), err);
}

static void free_numbers(struct hop_probe_numbers *numbers)
{
    free(numbers->told);
    free(numbers->computed);
    free(numbers->base);
    free(numbers->told_base);
}

/* Probes of the largest message of derivatives; a base loss is one. */
static int32_t largest_arrival(const struct hop_executor *executor)
{
    int32_t largest = 1;
    for (int32_t r = 0; r < executor->route_count; r++) {
        const struct hop_route *const route = &executor->routes[r];
        for (int32_t i = 0; i < route->derivative_count; i++) {
            const struct hop_transfer *const t = &route->transfers.items[route->derivatives[i]];
            largest = larger(largest, t->probe_hi - t->probe_lo);
        }
    }
    return largest;
}

static hop_status create_arrivals(struct hop_executor *executor, struct hop_error *err)
{
    int32_t derivatives = 1;
    for (int32_t r = 0; r < executor->route_count; r++)
        derivatives = larger(derivatives, executor->routes[r].derivative_count);
    executor->arrival = (size_t)largest_arrival(executor) * (size_t)executor->values;
    HOP_TRY(hop_calloc(&executor->derivative_wires, (size_t)derivatives,
                       sizeof *executor->derivative_wires, err));
    return hop_calloc(&executor->arrivals, (size_t)derivatives * executor->arrival, sizeof(float),
                      err);
}

/* Losses, derivatives and scores of one pass. */
static hop_status create_results(struct hop_executor *executor, struct hop_error *err)
{
    const struct hop_plan *const plan = executor->plan;
    const size_t batches = (size_t)executor->micro_batches, values = (size_t)executor->values;
    const size_t passes = (size_t)executor->passes;
    const size_t probes = (size_t)larger(plan->probes, plan->exit_probes);
    HOP_TRY(create_arrivals(executor, err));
    HOP_TRY(create_numbers(executor, &executor->probes, err));
    HOP_TRY(create_numbers(executor, &executor->exits, err));
    HOP_TRY(hop_calloc(&executor->probe_list, passes, sizeof *executor->probe_list, err));
    HOP_TRY(hop_calloc(&executor->pass_loss, 2 * values, sizeof(double), err));
    HOP_TRY(hop_calloc(&executor->loss, batches, sizeof(double), err));
    HOP_TRY(hop_calloc(&executor->exit_loss, batches, sizeof(double), err));
    HOP_TRY(hop_calloc(&executor->square, parameter_count(executor), sizeof(double), err));
    HOP_TRY(hop_calloc(&executor->coefficients, probes * values, sizeof(float), err));
    const size_t rows = batches > passes ? batches : passes;
    return hop_calloc(&executor->scores, rows * (size_t)executor->config.limits.labels,
                      sizeof(float), err);
}

bool hop_executor_has_head(const struct hop_executor *executor)
{
    for (int32_t p = 0; p < executor->part_count; p++)
        if (executor->parts[p].head)
            return true;
    return false;
}

/* What a head picks from. */
static hop_status create_picks(struct hop_executor *executor, struct hop_error *err)
{
    const struct hop_executor_config *const config = &executor->config;
    const size_t sequences = (size_t)config->limits.sequences;
    if (config->cache == 0 || !hop_executor_has_head(executor))
        return HOP_OK;
    HOP_TRY(hop_calloc(&executor->logits, sequences * (size_t)config->model.vocabulary,
                       sizeof(float), err));
    return hop_calloc(&executor->picked, sequences * (size_t)executor->micro_batches,
                      sizeof(int32_t), err);
}

hop_status hop_executor_buffers_create(struct hop_executor *executor, struct hop_error *err)
{
    executor->values =
        executor->plan->directions == HOP_PER_SAMPLE ? executor->config.limits.sequences : 1;
    executor->passes = hop_plan_passes(executor->plan) * largest_probe_batch(executor);
    for (int p = 0; p < HOP_PAYLOADS; p++)
        if (p != HOP_DERIVATIVE && p != HOP_BASE_LOSS)
            HOP_TRY(create_ring(executor, (enum hop_payload)p, err));
    HOP_TRY(hop_slice_create(&executor->config.limits, &executor->slice, err));
    HOP_TRY(create_picks(executor, err));
    return create_results(executor, err);
}

void hop_executor_buffers_free(struct hop_executor *executor)
{
    for (int p = 0; p < HOP_PAYLOADS; p++) {
        free(executor->rings[p].memory);
        free(executor->rings[p].receive);
        free(executor->rings[p].send);
    }
    hop_slice_free(&executor->slice);
    free(executor->derivative_wires);
    free(executor->arrivals);
    free_numbers(&executor->probes);
    free_numbers(&executor->exits);
    free(executor->probe_list);
    free(executor->pass_loss);
    free(executor->loss);
    free(executor->exit_loss);
    free(executor->square);
    free(executor->coefficients);
    free(executor->scores);
    free(executor->logits);
    free(executor->picked);
}
