/* Hidden states, derivatives and base losses on their way into and out of the tasks of a pass. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/executor_internal.h"
#include "schedule/estimator.h"

/* Where a message lies in the buffer of a task. */
struct region {
    size_t offset, bytes;
};

static const struct hop_transfer *transfer_at(const struct hop_executor_pass *pass, int32_t index)
{
    return &pass->route->transfers.items[index];
}

size_t hop_pass_token_bytes(const struct hop_executor_pass *pass)
{
    const struct hop_executor_config *const config = &pass->executor->config;
    return (size_t)config->model.hidden * hop_dtype_size(config->dtype);
}

/* Probes lie one after the other, each with all rows of each of its passes. */
static struct region probe_region(const struct hop_executor_pass *pass,
                                  const struct hop_transfer *t, const struct hop_task *task)
{
    const size_t passes = (size_t)hop_plan_passes(pass->executor->plan);
    const size_t bytes =
        passes * (size_t)pass->batches[t->micro_batch].tokens * hop_pass_token_bytes(pass);
    return (struct region){(size_t)(t->probe_lo - task->probe_lo) * bytes,
                           (size_t)(t->probe_hi - t->probe_lo) * bytes};
}

static struct region row_region(const struct hop_executor_pass *pass, const struct hop_transfer *t,
                                const struct hop_task *task)
{
    const struct hop_batch *const batch = &pass->batches[t->micro_batch];
    const struct hop_part *const part = &pass->executor->plan->parts[task->part];
    const struct hop_range own = hop_slice_tokens(batch, hop_part_rows(part, batch->sequences));
    const struct hop_range range =
        hop_slice_tokens(batch, hop_share_range(t->sample_lo, t->sample_hi, batch->sequences));
    return (struct region){(size_t)(range.lo - own.lo) * hop_pass_token_bytes(pass),
                           (size_t)(range.hi - range.lo) * hop_pass_token_bytes(pass)};
}

static struct region region_of(const struct hop_executor_pass *pass, const struct hop_transfer *t,
                               const struct hop_task *task)
{
    return t->payload == HOP_PROBE_ACTIVATION ? probe_region(pass, t, task)
                                              : row_region(pass, t, task);
}

/* Emulated messages tell when they arrive. */
static bool is_timed(const struct hop_executor_pass *pass, const struct hop_transfer *t)
{
    const int32_t other = t->from_device == pass->route->device ? t->to_device : t->from_device;
    return pass->emulation && hop_emulation_is_timed(pass->emulation, other);
}

static hop_status start_send(struct hop_executor_pass *pass, int32_t index, const void *bytes,
                             size_t n, struct hop_wire *wire, struct hop_error *err)
{
    struct hop_transport *const transport = pass->executor->transport;
    const struct hop_transfer *const t = transfer_at(pass, index);
    const int rank = hop_pass_rank(pass, t->to_device);
    if (is_timed(pass, t)) {
        wire->arrival =
            hop_emulation_send(pass->emulation, t, pass->batches[t->micro_batch].sequences);
        HOP_TRY(hop_send_start(transport, HOP_CHANNEL_TIMES, rank, index, &wire->arrival,
                               sizeof wire->arrival, &wire->time, err));
    }
    return hop_send_in_turn(transport, HOP_CHANNEL_DATA, rank, index, bytes, n, &wire->data, err);
}

static hop_status start_receive(struct hop_executor_pass *pass, int32_t index, void *bytes,
                                size_t n, struct hop_wire *wire, struct hop_error *err)
{
    struct hop_transport *const transport = pass->executor->transport;
    const struct hop_transfer *const t = transfer_at(pass, index);
    const int rank = hop_pass_rank(pass, t->from_device);
    if (is_timed(pass, t))
        HOP_TRY(hop_receive_start(transport, HOP_CHANNEL_TIMES, rank, index, &wire->arrival,
                                  sizeof wire->arrival, &wire->time, err));
    return hop_receive_in_turn(transport, HOP_CHANNEL_DATA, rank, index, bytes, n, &wire->data,
                               err);
}

/* What an emulated device had to wait for holds up its clock. */
static hop_status await_request(struct hop_executor_pass *pass, struct hop_request *request,
                                const char *what, struct hop_error *err)
{
    bool done = false;
    if (pass->emulation)
        HOP_TRY(hop_request_test(pass->executor->transport, request, &done, err));
    if (done)
        return HOP_OK;
    HOP_TRY(hop_request_wait(pass->executor->transport, request, what, err));
    if (pass->emulation)
        hop_emulation_arrived(pass->emulation, hop_clock_now());
    return HOP_OK;
}

/* A message that tells its arrival time counts from then. */
static hop_status await_message(struct hop_executor_pass *pass, int32_t index,
                                struct hop_wire *wire, const char *what, struct hop_error *err)
{
    struct hop_transport *const transport = pass->executor->transport;
    if (!is_timed(pass, transfer_at(pass, index)))
        return await_request(pass, &wire->data, what, err);
    HOP_TRY(hop_request_wait(transport, &wire->data, what, err));
    HOP_TRY(hop_request_wait(transport, &wire->time, what, err));
    hop_emulation_arrived(pass->emulation, wire->arrival);
    return HOP_OK;
}

/* Receives */

static struct hop_ring *ring_of(const struct hop_executor_pass *pass, const struct hop_port *port)
{
    return &pass->executor->rings[port->payload];
}

static struct hop_wire *receive_wires(const struct hop_ring *ring, const struct hop_port *port)
{
    return ring->receive + (size_t)port->slot * (size_t)ring->receive_width;
}

static struct hop_wire *send_wires(const struct hop_ring *ring, const struct hop_port *port)
{
    return ring->send + (size_t)port->slot * (size_t)ring->send_width;
}

static hop_status post_receive(struct hop_executor_pass *pass, enum hop_payload payload,
                               struct hop_error *err)
{
    const int32_t index = pass->route->receives[payload][pass->posted[payload]++];
    const struct hop_port *const port = &pass->route->tasks[index].input;
    struct hop_ring *const ring = ring_of(pass, port);
    unsigned char *const buffer = hop_ring_receive(ring, port->slot);
    struct hop_wire *wire = receive_wires(ring, port);
    for (int32_t i = port->begin; i < port->end; i++, wire++) {
        const struct hop_message *const message = &pass->route->messages[i];
        if (message->local)
            continue;
        const struct region region =
            region_of(pass, transfer_at(pass, message->transfer), &pass->tasks[index]);
        HOP_TRY(start_receive(pass, message->transfer, buffer + region.offset, region.bytes, wire,
                              err));
    }
    return HOP_OK;
}

/* Where the floats of a derivative or base loss transfer live on this device. */
static float *derivatives_at(const struct hop_executor_pass *pass, const struct hop_transfer *t)
{
    struct hop_executor *const executor = pass->executor;
    const size_t m = (size_t)t->micro_batch;
    const struct hop_probe_numbers *const numbers = t->exit ? &executor->exits : &executor->probes;
    if (t->payload == HOP_BASE_LOSS)
        return numbers->told_base + m * (size_t)executor->values;
    return numbers->told + m * numbers->stride +
           (size_t)t->probe_lo * (size_t)hop_pass_values(pass, t->micro_batch);
}

static size_t derivative_bytes(const struct hop_executor_pass *pass, const struct hop_transfer *t)
{
    const int32_t probes = t->payload == HOP_BASE_LOSS ? 1 : t->probe_hi - t->probe_lo;
    return (size_t)probes * (size_t)hop_pass_values(pass, t->micro_batch) * sizeof(float);
}

static bool is_incoming(const struct hop_executor_pass *pass, const struct hop_transfer *t)
{
    return t->to_device == pass->route->device && t->from_device != t->to_device;
}

/* Two parts of this device may each receive the same ones: they come in one by one. */
static float *arrivals_at(const struct hop_executor_pass *pass, int32_t order)
{
    return pass->executor->arrivals + (size_t)order * pass->executor->arrival;
}

static hop_status post_derivative(struct hop_executor_pass *pass, int32_t order,
                                  struct hop_error *err)
{
    const int32_t index = pass->route->derivatives[order];
    const struct hop_transfer *const t = transfer_at(pass, index);
    if (!is_incoming(pass, t))
        return HOP_OK;
    return start_receive(pass, index, arrivals_at(pass, order), derivative_bytes(pass, t),
                         &pass->executor->derivative_wires[order], err);
}

hop_status hop_pass_post_receives(struct hop_executor_pass *pass, struct hop_error *err)
{
    for (int p = 0; p < HOP_PAYLOADS; p++)
        while (pass->posted[p] < pass->route->receive_count[p] &&
               pass->posted[p] < pass->route->window)
            HOP_TRY(post_receive(pass, (enum hop_payload)p, err));
    for (int32_t i = 0; i < pass->route->derivative_count; i++)
        HOP_TRY(post_derivative(pass, i, err));
    return HOP_OK;
}

/* What a part of this device has left in a local buffer. */
static const unsigned char *local_bytes(const struct hop_executor_pass *pass, int32_t transfer,
                                        size_t *bytes)
{
    const struct hop_transfer *const t = transfer_at(pass, transfer);
    const struct hop_port *const from = &pass->route->tasks[t->from_task].output;
    const struct region region = region_of(pass, t, &pass->tasks[t->from_task]);
    const unsigned char *const buffer = hop_ring_local(ring_of(pass, from), from->local);
    *bytes = region.bytes;
    return buffer + region.offset;
}

static void copy_local(struct hop_executor_pass *pass, int32_t transfer,
                       const struct hop_task *task, unsigned char *buffer)
{
    size_t bytes;
    const unsigned char *const from = local_bytes(pass, transfer, &bytes);
    memcpy(buffer + region_of(pass, transfer_at(pass, transfer), task).offset, from, bytes);
}

/* Every message of a task's input, into its buffer. */
static hop_status take_messages(struct hop_executor_pass *pass, int32_t index,
                                const struct hop_port *port, unsigned char *buffer,
                                struct hop_error *err)
{
    const struct hop_task *const task = &pass->tasks[index];
    struct hop_wire *wire = port->slot >= 0 ? receive_wires(ring_of(pass, port), port) : NULL;
    char what[96];
    snprintf(what, sizeof what, "the %s of micro-batch %d in step %lld",
             hop_payload_names[port->payload], task->micro_batch, (long long)pass->step);
    for (int32_t i = port->begin; i < port->end; i++) {
        const struct hop_message *const message = &pass->route->messages[i];
        if (message->local)
            copy_local(pass, message->transfer, task, buffer);
        else
            HOP_TRY(await_message(pass, message->transfer, wire + (i - port->begin), what, err));
    }
    return HOP_OK;
}

hop_status hop_pass_await_input(struct hop_executor_pass *pass, int32_t index, const void **input,
                                struct hop_error *err)
{
    const struct hop_port *const port = &pass->route->tasks[index].input;
    const struct hop_ring *const ring = ring_of(pass, port);
    size_t bytes;
    *input = NULL;
    if (port->begin == port->end)
        return HOP_OK;
    if (port->slot < 0 && port->end - port->begin == 1) {
        *input = local_bytes(pass, pass->route->messages[port->begin].transfer, &bytes);
        return HOP_OK;
    }
    void *const buffer =
        port->slot >= 0 ? hop_ring_receive(ring, port->slot) : hop_ring_gather(ring);
    HOP_TRY(take_messages(pass, index, port, buffer, err));
    *input = buffer;
    return HOP_OK;
}

hop_status hop_pass_release_input(struct hop_executor_pass *pass, int32_t index,
                                  struct hop_error *err)
{
    const struct hop_port *const port = &pass->route->tasks[index].input;
    if (port->slot < 0 || pass->posted[port->payload] == pass->route->receive_count[port->payload])
        return HOP_OK;
    return post_receive(pass, port->payload, err);
}

/* Sends */

static hop_status await_taken(struct hop_executor_pass *pass, struct hop_wire *wire,
                              struct hop_error *err)
{
    HOP_TRY(await_request(pass, &wire->data, "an earlier message to be taken", err));
    return hop_request_wait(pass->executor->transport, &wire->time,
                            "an earlier message to be taken", err);
}

hop_status hop_pass_await_output(struct hop_executor_pass *pass, int32_t index, void **output,
                                 struct hop_error *err)
{
    const struct hop_port *const port = &pass->route->tasks[index].output;
    struct hop_ring *const ring = ring_of(pass, port);
    *output = NULL;
    if (port->begin == port->end)
        return HOP_OK;
    if (port->slot < 0) {
        *output = hop_ring_local(ring, port->local);
        return HOP_OK;
    }
    for (int32_t i = 0; i < ring->send_width; i++)
        HOP_TRY(await_taken(pass, &send_wires(ring, port)[i], err));
    *output = hop_ring_send(ring, port->slot);
    return HOP_OK;
}

/* Parts of this device may take it later than the send buffer is used again. */
static void hand_over(const struct hop_executor_pass *pass, const struct hop_port *port,
                      const struct region *region, const unsigned char *output)
{
    unsigned char *const local = hop_ring_local(ring_of(pass, port), port->local);
    if (port->slot >= 0)
        memcpy(local + region->offset, output + region->offset, region->bytes);
}

hop_status hop_pass_send_output(struct hop_executor_pass *pass, int32_t index, void *output,
                                struct hop_error *err)
{
    const struct hop_port *const port = &pass->route->tasks[index].output;
    struct hop_wire *const wires = port->slot >= 0 ? send_wires(ring_of(pass, port), port) : NULL;
    unsigned char *const bytes = output;
    for (int32_t i = port->begin; i < port->end; i++) {
        const struct hop_message *const message = &pass->route->messages[i];
        const struct region region =
            region_of(pass, transfer_at(pass, message->transfer), &pass->tasks[index]);
        if (message->local)
            hand_over(pass, port, &region, bytes);
        else
            HOP_TRY(start_send(pass, message->transfer, bytes + region.offset, region.bytes,
                               &wires[i - port->begin], err));
    }
    return HOP_OK;
}

hop_status hop_pass_send_derivatives(struct hop_executor_pass *pass, int32_t index,
                                     struct hop_error *err)
{
    const struct hop_task_route *const task = &pass->route->tasks[index];
    for (int32_t order = task->derivatives_lo; order < task->derivatives_hi; order++) {
        const int32_t tag = pass->route->derivatives[order];
        const struct hop_transfer *const t = transfer_at(pass, tag);
        if (t->from_device != pass->route->device || t->to_device == t->from_device)
            continue;
        HOP_TRY(start_send(pass, tag, derivatives_at(pass, t), derivative_bytes(pass, t),
                           &pass->executor->derivative_wires[order], err));
    }
    return HOP_OK;
}

hop_status hop_pass_await_derivatives(struct hop_executor_pass *pass, int32_t index,
                                      struct hop_error *err)
{
    const struct hop_task_route *const task = &pass->route->tasks[index];
    for (int32_t order = task->derivatives_lo; order < task->derivatives_hi; order++) {
        const int32_t tag = pass->route->derivatives[order];
        const struct hop_transfer *const t = transfer_at(pass, tag);
        if (!is_incoming(pass, t))
            continue;
        HOP_TRY(await_message(pass, tag, &pass->executor->derivative_wires[order],
                              "directional derivatives", err));
        memcpy(derivatives_at(pass, t), arrivals_at(pass, order), derivative_bytes(pass, t));
    }
    return HOP_OK;
}

static hop_status await_wires(struct hop_executor_pass *pass, struct hop_wire *wires, size_t count,
                              const char *what, struct hop_error *err)
{
    struct hop_transport *const transport = pass->executor->transport;
    for (size_t i = 0; i < count; i++) {
        HOP_TRY(hop_request_wait(transport, &wires[i].data, what, err));
        HOP_TRY(hop_request_wait(transport, &wires[i].time, what, err));
    }
    return HOP_OK;
}

hop_status hop_pass_await_sends(struct hop_executor_pass *pass, struct hop_error *err)
{
    for (int p = 0; p < HOP_PAYLOADS; p++) {
        const struct hop_ring *const ring = &pass->executor->rings[p];
        HOP_TRY(await_wires(pass, ring->send, (size_t)ring->sends * (size_t)ring->send_width,
                            "the last messages to be taken", err));
    }
    return await_wires(pass, pass->executor->derivative_wires,
                       (size_t)pass->route->derivative_count, "the derivatives to be taken", err);
}
