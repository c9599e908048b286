/* All message buffers of a device, sized once for the largest pass of any schedule. */
#include "runtime/executor_internal.h"

#include <stdlib.h>

#include "base/memory.h"

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
    const size_t copies =
        payload == HOP_PROBE_ACTIVATION ? (size_t)largest_probe_batch(executor) : 1;
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

/* Losses, derivatives and scores of one pass. */
static hop_status create_results(struct hop_executor *executor, struct hop_error *err)
{
    const size_t batches = (size_t)executor->micro_batches, probes = (size_t)executor->probes;
    const size_t labels = (size_t)executor->config.limits.labels;
    int32_t derivatives = 1;
    for (int32_t r = 0; r < executor->route_count; r++)
        derivatives = larger(derivatives, executor->routes[r].derivative_count);
    HOP_TRY(hop_calloc(&executor->derivative_wires, (size_t)derivatives,
                       sizeof *executor->derivative_wires, err));
    HOP_TRY(hop_calloc(&executor->arrivals, (size_t)derivatives * probes, sizeof(float), err));
    HOP_TRY(hop_calloc(&executor->derivatives, batches * probes, sizeof(float), err));
    HOP_TRY(hop_calloc(&executor->probe_loss, batches * probes, sizeof(double), err));
    HOP_TRY(hop_calloc(&executor->loss, batches, sizeof(double), err));
    HOP_TRY(hop_calloc(&executor->square, parameter_count(executor), sizeof(double), err));
    const size_t planned = (size_t)executor->plan->probes;
    HOP_TRY(hop_calloc(&executor->directions, planned, sizeof(uint16_t), err));
    HOP_TRY(hop_calloc(&executor->coefficients, planned, sizeof(float), err));
    for (size_t q = 0; q < planned; q++)
        executor->directions[q] = (uint16_t)q;
    const size_t rows = batches > probes ? batches : probes;
    return hop_calloc(&executor->scores, rows * labels, sizeof(float), err);
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
    for (int p = 0; p < HOP_PAYLOADS; p++)
        if (p != HOP_DERIVATIVE)
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
    free(executor->derivatives);
    free(executor->probe_loss);
    free(executor->loss);
    free(executor->square);
    free(executor->directions);
    free(executor->coefficients);
    free(executor->scores);
    free(executor->logits);
    free(executor->picked);
}
