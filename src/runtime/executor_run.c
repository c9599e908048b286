/* The step loop: one pass of a schedule over a mini-batch. */
#include "runtime/executor_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "train/clip.h"
#include "train/zo.h"

/* One pass in progress. */
struct pass {
    struct hop_executor *executor;
    const struct hop_route *route;
    const struct hop_task *tasks;
    const struct hop_batch *batches;
    const struct hop_places *places; /* of a pass that decodes, else NULL */
    int64_t step;
    struct hop_emulation *emulation; /* NULL: nothing waits */
    int32_t posted[HOP_PAYLOADS];    /* receives posted so far */
    double busy;
};

static const struct hop_transfer *transfer_at(const struct pass *pass, int32_t index)
{
    return &pass->route->transfers.items[index];
}

static int rank_of(const struct pass *pass, int32_t device)
{
    return pass->executor->config.rank_of[device];
}

static bool trains(const struct pass *pass)
{
    return pass->route->schedule.training;
}

/* Bytes of what a transfer carries: the hidden states of the packed tokens of its micro-batch, per
 * probe, or derivatives. */
static size_t payload_bytes(const struct pass *pass, const struct hop_transfer *t)
{
    const struct hop_executor_config *const config = &pass->executor->config;
    if (t->payload == HOP_DERIVATIVE)
        return (size_t)(t->probe_hi - t->probe_lo) * sizeof(float);
    const size_t copies =
        t->payload == HOP_PROBE_ACTIVATION ? (size_t)(t->probe_hi - t->probe_lo) : 1;
    return (size_t)pass->batches[t->micro_batch].tokens * (size_t)config->model.hidden *
           hop_dtype_size(config->dtype) * copies;
}

/* Emulated messages end with the time they arrive at. */
static bool is_timed(const struct pass *pass, const struct hop_transfer *t)
{
    const int32_t other = t->from_device == pass->route->device ? t->to_device : t->from_device;
    return pass->emulation && hop_emulation_is_timed(pass->emulation, other);
}

static size_t message_bytes(const struct pass *pass, const struct hop_transfer *t)
{
    return payload_bytes(pass, t) + (is_timed(pass, t) ? sizeof(double) : 0);
}

static int32_t rows_of(const struct pass *pass, int32_t micro_batch)
{
    return micro_batch < 0 ? 0 : pass->batches[micro_batch].sequences;
}

/* Starts the send of a message whose payload is in `buffer`. */
static hop_status start_send(struct pass *pass, int32_t index, unsigned char *buffer,
                             struct hop_request *request, struct hop_error *err)
{
    const struct hop_transfer *const t = transfer_at(pass, index);
    if (is_timed(pass, t)) {
        const double arrival =
            hop_emulation_send(pass->emulation, t, rows_of(pass, t->micro_batch));
        memcpy(buffer + payload_bytes(pass, t), &arrival, sizeof arrival);
    }
    return hop_send_in_turn(pass->executor->transport, HOP_CHANNEL_DATA,
                            rank_of(pass, t->to_device), index, buffer, message_bytes(pass, t),
                            request, err);
}

static hop_status start_receive(struct pass *pass, int32_t index, unsigned char *buffer,
                                struct hop_request *request, struct hop_error *err)
{
    const struct hop_transfer *const t = transfer_at(pass, index);
    return hop_receive_in_turn(pass->executor->transport, HOP_CHANNEL_DATA,
                               rank_of(pass, t->from_device), index, buffer, message_bytes(pass, t),
                               request, err);
}

/* What an emulated device had to wait for holds up its clock. */
static hop_status await_request(struct pass *pass, struct hop_request *request, const char *what,
                                struct hop_error *err)
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

/* A message that carries its arrival time counts from then. */
static hop_status await_message(struct pass *pass, int32_t index, const unsigned char *buffer,
                                struct hop_request *request, const char *what,
                                struct hop_error *err)
{
    const struct hop_transfer *const t = transfer_at(pass, index);
    double arrival;
    if (!is_timed(pass, t))
        return await_request(pass, request, what, err);
    HOP_TRY(hop_request_wait(pass->executor->transport, request, what, err));
    memcpy(&arrival, buffer + payload_bytes(pass, t), sizeof arrival);
    hop_emulation_arrived(pass->emulation, arrival);
    return HOP_OK;
}

/* Receives */

static hop_status post_receive(struct pass *pass, enum hop_payload payload, struct hop_error *err)
{
    struct hop_ring *const ring = &pass->executor->rings[payload];
    const int32_t task = pass->route->receives[payload][pass->posted[payload]++];
    const struct hop_endpoint *const input = &pass->route->tasks[task].input;
    return start_receive(pass, input->transfer, hop_ring_receive(ring, input->slot),
                         &ring->receive[input->slot], err);
}

/* Where the floats of a derivative transfer live on this device. */
static float *derivatives_at(const struct pass *pass, const struct hop_transfer *t)
{
    return pass->executor->derivatives + t->micro_batch * pass->executor->probes + t->probe_lo;
}

static unsigned char *derivative_wire(const struct pass *pass, int32_t order)
{
    return pass->executor->derivative_wires + (size_t)order * pass->executor->derivative_stride;
}

static bool is_incoming(const struct pass *pass, const struct hop_transfer *t)
{
    return t->to_device == pass->route->device && t->from_device != t->to_device;
}

static hop_status post_derivative(struct pass *pass, int32_t order, struct hop_error *err)
{
    const int32_t index = pass->route->derivatives[order];
    if (!is_incoming(pass, transfer_at(pass, index)))
        return HOP_OK;
    return start_receive(pass, index, derivative_wire(pass, order),
                         &pass->executor->derivative_requests[order], err);
}

/* Receives are posted ahead of need: a full window of each kind, and every derivative. */
static hop_status post_first_receives(struct pass *pass, struct hop_error *err)
{
    for (int p = 0; p < HOP_PAYLOADS; p++)
        while (pass->posted[p] < pass->route->receive_count[p] &&
               pass->posted[p] < pass->route->window)
            HOP_TRY(post_receive(pass, (enum hop_payload)p, err));
    for (int32_t i = 0; i < pass->route->derivative_count; i++)
        HOP_TRY(post_derivative(pass, i, err));
    return HOP_OK;
}

static hop_status await_input(struct pass *pass, int32_t index, const void **input,
                              struct hop_error *err)
{
    const struct hop_endpoint *const end = &pass->route->tasks[index].input;
    struct hop_ring *const ring = &pass->executor->rings[end->payload];
    if (end->transfer < 0)
        *input = NULL;
    else if (end->local)
        *input = hop_ring_local(ring, end->slot);
    else {
        char what[96];
        snprintf(what, sizeof what, "the %s of micro-batch %d in step %lld",
                 hop_payload_names[end->payload], pass->tasks[index].micro_batch,
                 (long long)pass->step);
        void *const buffer = hop_ring_receive(ring, end->slot);
        HOP_TRY(await_message(pass, end->transfer, buffer, &ring->receive[end->slot], what, err));
        *input = buffer;
    }
    return HOP_OK;
}

/* The consumed buffer takes the next message of its kind. */
static hop_status release_input(struct pass *pass, int32_t index, struct hop_error *err)
{
    const struct hop_endpoint *const end = &pass->route->tasks[index].input;
    if (end->transfer < 0 || end->local ||
        pass->posted[end->payload] == pass->route->receive_count[end->payload])
        return HOP_OK;
    return post_receive(pass, end->payload, err);
}

/* Sends */

static hop_status await_output(struct pass *pass, int32_t index, void **output,
                               struct hop_error *err)
{
    const struct hop_endpoint *const end = &pass->route->tasks[index].output;
    struct hop_ring *const ring = &pass->executor->rings[end->payload];
    if (end->transfer < 0)
        *output = NULL;
    else if (end->local)
        *output = hop_ring_local(ring, end->slot);
    else {
        HOP_TRY(await_request(pass, &ring->send[end->slot], "an earlier message to be taken", err));
        *output = hop_ring_send(ring, end->slot);
    }
    return HOP_OK;
}

static hop_status send_output(struct pass *pass, int32_t index, struct hop_error *err)
{
    const struct hop_endpoint *const end = &pass->route->tasks[index].output;
    if (end->transfer < 0 || end->local)
        return HOP_OK;
    struct hop_ring *const ring = &pass->executor->rings[end->payload];
    return start_send(pass, end->transfer, hop_ring_send(ring, end->slot), &ring->send[end->slot],
                      err);
}

static hop_status send_derivatives(struct pass *pass, int32_t index, struct hop_error *err)
{
    const struct hop_task_route *const task = &pass->route->tasks[index];
    for (int32_t order = task->derivatives_lo; order < task->derivatives_hi; order++) {
        const int32_t tag = pass->route->derivatives[order];
        const struct hop_transfer *const t = transfer_at(pass, tag);
        if (t->from_device != pass->route->device || t->to_device == t->from_device)
            continue;
        memcpy(derivative_wire(pass, order), derivatives_at(pass, t), payload_bytes(pass, t));
        HOP_TRY(start_send(pass, tag, derivative_wire(pass, order),
                           &pass->executor->derivative_requests[order], err));
    }
    return HOP_OK;
}

static hop_status await_sends(struct pass *pass, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    for (int p = 0; p < HOP_PAYLOADS; p++)
        for (int32_t slot = 0; slot < executor->rings[p].sends; slot++)
            HOP_TRY(hop_request_wait(executor->transport, &executor->rings[p].send[slot],
                                     "the last messages to be taken", err));
    for (int32_t i = 0; i < pass->route->derivative_count; i++)
        HOP_TRY(hop_request_wait(executor->transport, &executor->derivative_requests[i],
                                 "the derivatives to be taken", err));
    return HOP_OK;
}

/* Tasks */

static hop_status loss_of(const struct pass *pass, const struct hop_batch *batch,
                          const float *logprob, double *loss, struct hop_error *err)
{
    *loss =
        batch->label_total > 0 ? hop_loss(logprob, (size_t)batch->labels, batch->label_total) : 0;
    if (isfinite(*loss))
        return HOP_OK;
    return hop_fail(err, HOP_NUMERIC,
                    "step %lld: the loss of micro-batch %d is not finite; lower "
                    "train.learning_rate or zo.epsilon, or use train.dtype f32",
                    (long long)pass->step, batch->micro_batch);
}

static int32_t take_slot(struct hop_executor_part *part, int32_t micro_batch)
{
    int32_t slot = 0;
    while (part->slot_busy[slot])
        slot++;
    part->slot_busy[slot] = true;
    part->slot_of[micro_batch] = slot;
    return slot;
}

/* The first of the largest. */
static int32_t likeliest(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static hop_status pick(struct hop_executor *executor, int32_t sequences, int32_t *picked,
                       struct hop_error *err)
{
    const int32_t vocabulary = executor->config.model.vocabulary;
    for (int32_t s = 0; s < sequences; s++) {
        const float *const logits = executor->logits + (size_t)s * (size_t)vocabulary;
        picked[s] = likeliest(logits, vocabulary);
        if (!isfinite(logits[picked[s]]))
            return hop_fail(err, HOP_NUMERIC,
                            "the logits of an answer are not finite; the model or its adapters "
                            "are broken");
    }
    return HOP_OK;
}

static hop_status run_decode(struct pass *pass, const struct hop_task *task,
                             struct hop_executor_part *part, const void *input, void *output,
                             struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    const size_t at = (size_t)task->micro_batch * (size_t)executor->config.limits.sequences;
    const struct hop_continuation call = {.sequences = batch->sequences,
                                          .tokens = batch->tokens,
                                          .ids = batch->ids,
                                          .offset = batch->offset,
                                          .past = pass->places->past + at,
                                          .place = pass->places->place + at};
    if (batch->sequences == 0)
        return HOP_OK;
    HOP_TRY(hop_stage_continue(part->stage, &call, input, output, executor->logits, err));
    return output ? HOP_OK : pick(executor, batch->sequences, executor->picked + at, err);
}

static hop_status run_forward(struct pass *pass, const struct hop_task *task,
                              struct hop_executor_part *part, const void *input, void *output,
                              struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    if (pass->places)
        return run_decode(pass, task, part, input, output, err);
    const bool keep =
        trains(pass) && executor->plan->parts[task->part].gradient == HOP_GRADIENT_BACKPROP;
    const int32_t slot = keep ? take_slot(part, task->micro_batch) : -1;
    float *const scores =
        executor->scores + (size_t)task->micro_batch * (size_t)executor->config.limits.labels;
    HOP_TRY(hop_stage_forward(part->stage, batch, slot, input, output, scores, err));
    if (output)
        return HOP_OK;
    return loss_of(pass, batch, scores, &executor->loss[task->micro_batch], err);
}

static hop_status run_backward(struct pass *pass, const struct hop_task *task,
                               struct hop_executor_part *part, const void *input, void *output,
                               struct hop_error *err)
{
    const int32_t slot = part->slot_of[task->micro_batch];
    part->slot_busy[slot] = false;
    return hop_stage_backward(part->stage, &pass->batches[task->micro_batch], slot, input, output,
                              err);
}

/* Probes beyond the plan's Q are those of the rounding check of the first step. */
static void fill_probes(struct pass *pass, const struct hop_task *task)
{
    const struct hop_executor *const executor = pass->executor;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++)
        executor->probe_list[q - task->probe_lo] =
            q < executor->plan->probes
                ? (struct hop_probe){.direction = (uint16_t)q, .epsilon = executor->config.epsilon}
                : (struct hop_probe){
                      .direction = 0,
                      .epsilon = (float)((double)executor->config.epsilon * (1 + HOP_ZO_TAU))};
}

static hop_status probe_results(struct pass *pass, const struct hop_task *task,
                                const float *logprob, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    const size_t at = (size_t)task->micro_batch * (size_t)executor->probes;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++) {
        const float *const scores = logprob + (size_t)(q - task->probe_lo) * (size_t)batch->labels;
        double *const loss = &executor->probe_loss[at + (size_t)q];
        double derivative;
        HOP_TRY(loss_of(pass, batch, scores, loss, err));
        hop_zo_derivatives(executor->loss[task->micro_batch], loss, 1,
                           (double)executor->config.epsilon, &derivative);
        executor->derivatives[at + (size_t)q] = (float)derivative;
    }
    return HOP_OK;
}

static hop_status run_probe(struct pass *pass, const struct hop_task *task,
                            struct hop_executor_part *part, const void *input, void *output,
                            struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    fill_probes(pass, task);
    const struct hop_probe_set set = {.seed = executor->config.seed,
                                      .step = (uint32_t)pass->step,
                                      .count = task->probe_hi - task->probe_lo,
                                      .probes = executor->probe_list};
    HOP_TRY(hop_stage_probe(part->stage, &pass->batches[task->micro_batch], &set, input, output,
                            executor->scores, err));
    return output ? HOP_OK : probe_results(pass, task, executor->scores, err);
}

/* Equation 2 of the method, micro-batch after micro-batch whatever the order the derivatives came
 * in. */
static void add_estimates(struct pass *pass, struct hop_parameters *parameters)
{
    const struct hop_executor *const executor = pass->executor;
    const int32_t probes = executor->plan->probes;
    for (int32_t m = 0; m < pass->route->schedule.micro_batches; m++) {
        const float *const g = executor->derivatives + (size_t)m * (size_t)executor->probes;
        for (int32_t q = 0; q < probes; q++)
            executor->coefficients[q] = g[q] / (float)probes;
        hop_parameters_add_directions(parameters, executor->config.seed, (uint32_t)pass->step,
                                      (uint16_t)m, executor->directions, executor->coefficients,
                                      probes);
    }
}

static hop_status await_derivatives(struct pass *pass, int32_t index, struct hop_error *err)
{
    const struct hop_task_route *const task = &pass->route->tasks[index];
    for (int32_t order = task->derivatives_lo; order < task->derivatives_hi; order++) {
        const int32_t tag = pass->route->derivatives[order];
        const struct hop_transfer *const t = transfer_at(pass, tag);
        const unsigned char *const wire = derivative_wire(pass, order);
        if (!is_incoming(pass, t))
            continue;
        HOP_TRY(await_message(pass, tag, wire, &pass->executor->derivative_requests[order],
                              "directional derivatives", err));
        memcpy(derivatives_at(pass, t), wire, payload_bytes(pass, t));
    }
    return HOP_OK;
}

static hop_status run_step(struct pass *pass, const struct hop_task *task,
                           struct hop_executor_part *part)
{
    if (pass->executor->plan->parts[task->part].gradient == HOP_GRADIENT_ZEROTH_ORDER)
        add_estimates(pass, hop_stage_parameters(part->stage));
    return HOP_OK;
}

static hop_status run_kind(struct pass *pass, int32_t index, const void *input, void *output,
                           struct hop_error *err)
{
    const struct hop_task *const task = &pass->tasks[index];
    struct hop_executor_part *const part =
        &pass->executor->parts[pass->executor->part_of[task->part]];
    switch (task->kind) {
    case HOP_FORWARD:
        return run_forward(pass, task, part, input, output, err);
    case HOP_BACKWARD:
        return run_backward(pass, task, part, input, output, err);
    case HOP_PROBE:
        return run_probe(pass, task, part, input, output, err);
    case HOP_STEP:
        return run_step(pass, task, part);
    default:
        return hop_fail(err, HOP_UNSUPPORTED, "task %s cannot be run",
                        hop_task_kind_names[task->kind]);
    }
}

static hop_status record(struct pass *pass, int32_t index, double start, double end,
                         struct hop_error *err)
{
    pass->busy += end - start;
    if (pass->step < 1 || pass->step > pass->executor->config.trace_steps)
        return HOP_OK;
    const struct hop_event event = {.device = pass->route->device,
                                    .step = (int32_t)pass->step,
                                    .task = pass->tasks[index],
                                    .start = start,
                                    .end = end};
    return hop_timeline_add(&pass->executor->timeline, &event, err);
}

/* When the task started and ended; an emulated one ends when its device would be done. */
static void finish_task(struct pass *pass, int32_t index, double *start, double *end)
{
    const struct hop_task *const task = &pass->tasks[index];
    if (pass->emulation)
        hop_emulation_finish(pass->emulation, task, rows_of(pass, task->micro_batch), *start, start,
                             end);
    else
        *end = hop_clock_now();
}

static hop_status run_task(struct pass *pass, int32_t index, struct hop_error *err)
{
    const void *input;
    void *output;
    HOP_TRY(await_input(pass, index, &input, err));
    HOP_TRY(await_output(pass, index, &output, err));
    if (pass->tasks[index].kind == HOP_STEP)
        HOP_TRY(await_derivatives(pass, index, err));
    struct hop_background *const background = pass->executor->transport->background;
    double start = hop_clock_now(), end = start;
    hop_background_set_active(background, true);
    const hop_status status = run_kind(pass, index, input, output, err);
    if (status == HOP_OK)
        finish_task(pass, index, &start, &end);
    hop_background_set_active(background, false);
    HOP_TRY(status);
    HOP_TRY(record(pass, index, start, end, err));
    HOP_TRY(send_output(pass, index, err));
    if (pass->tasks[index].kind == HOP_PROBE)
        HOP_TRY(send_derivatives(pass, index, err));
    return release_input(pass, index, err);
}

/* Results */

static int32_t sum_squares(struct hop_executor *executor)
{
    int32_t n = 0;
    for (int32_t p = 0; p < executor->part_count; p++) {
        if (executor->plan->parts[executor->parts[p].index].gradient == HOP_GRADIENT_NONE)
            continue;
        const struct hop_parameters *const parameters =
            hop_stage_parameters(executor->parts[p].stage);
        for (size_t i = 0; i < parameters->count; i++)
            executor->square[n++] = hop_sum_of_squares(
                parameters->gradients + parameters->items[i].offset, parameters->items[i].count);
    }
    return n;
}

static bool has_head(const struct hop_executor *executor)
{
    return executor->part_of[hop_plan_head(executor->plan, 0)] >= 0;
}

/* `probe_loss` is stored with the stride of the largest schedule; callers get it packed. */
static void pack_probe_losses(struct hop_executor *executor, const struct hop_schedule *schedule)
{
    for (int32_t m = 1; m < schedule->micro_batches; m++)
        memmove(executor->probe_loss + (size_t)m * (size_t)schedule->probes,
                executor->probe_loss + (size_t)m * (size_t)executor->probes,
                (size_t)schedule->probes * sizeof(double));
}

static void collect(struct pass *pass, struct hop_pass *out)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_schedule *const schedule = &pass->route->schedule;
    *out = (struct hop_pass){.busy = pass->busy,
                             .loss = executor->loss,
                             .probe_loss = executor->probe_loss,
                             .square = executor->square,
                             .held = (double)executor->held,
                             .scores = executor->scores,
                             .picked = executor->picked};
    if (has_head(executor)) {
        out->losses = schedule->micro_batches;
        out->derivatives = schedule->micro_batches * schedule->probes;
        pack_probe_losses(executor, schedule);
    }
    if (schedule->training)
        out->squares = sum_squares(executor);
    if (pass->emulation)
        out->late = *hop_emulation_lateness(pass->emulation);
}

static hop_status run_pass(struct hop_executor *executor, int32_t index, int64_t step,
                           const struct hop_batch *batches, const struct hop_places *places,
                           struct hop_pass *out, struct hop_error *err)
{
    const struct hop_route *const route = &executor->routes[index];
    const struct hop_task_list *const list = &route->schedule.lists[route->device];
    struct pass pass = {.executor = executor,
                        .route = route,
                        .tasks = list->tasks,
                        .batches = batches,
                        .places = places,
                        .step = step,
                        .emulation = route->schedule.training ? executor->config.emulation : NULL};
    if (pass.emulation)
        hop_emulation_begin(pass.emulation, hop_clock_now());
    HOP_TRY(post_first_receives(&pass, err));
    for (int32_t i = 0; i < list->count; i++)
        HOP_TRY(run_task(&pass, i, err));
    HOP_TRY(await_sends(&pass, err));
    collect(&pass, out);
    return HOP_OK;
}

hop_status hop_executor_run(struct hop_executor *executor, int32_t index, int64_t step,
                            const struct hop_batch *batches, struct hop_pass *out,
                            struct hop_error *err)
{
    return run_pass(executor, index, step, batches, NULL, out, err);
}

hop_status hop_executor_decode(struct hop_executor *executor, int32_t index,
                               const struct hop_batch *batches, const struct hop_places *places,
                               struct hop_pass *out, struct hop_error *err)
{
    return run_pass(executor, index, 0, batches, places, out, err);
}
