/* From a prepared coordinator to ranks that wait for commands. */
#include "runtime/coordinator_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

/* Every rank says hello first: all that differ in version are reported at once. */
static hop_status greet(struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_string strangers = {0};
    hop_status status = HOP_OK;
    for (int r = 1; r < c->ranks.count; r++) {
        int32_t protocol;
        HOP_TRY_DONE(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_HELLO, &protocol,
                                 sizeof protocol, "its hello", err));
        if (protocol != HOP_PROTOCOL)
            HOP_TRY_DONE(hop_string_printf(&strangers, err, " %s (protocol %d)",
                                           c->job.cluster.devices[c->ranks.device_of[r]].name,
                                           protocol));
    }
    if (strangers.length)
        status =
            hop_fail(err, HOP_PEER,
                     "these devices run another version of hybridop than this one (protocol %d):%s",
                     HOP_PROTOCOL, hop_string_text(&strangers));
done:
    hop_string_free(&strangers);
    return status;
}

static hop_status send_setup(struct hop_coordinator *c, const json_t *setup, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *const text = json_dumps(setup, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return hop_fail(err, HOP_MEMORY, "out of memory while sending the setup");
    for (int r = 1; r < c->ranks.count; r++)
        HOP_TRY_DONE(
            hop_send(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_SETUP, text, strlen(text), err));
done:
    free(text);
    return status;
}

static hop_status send_schedule(struct hop_coordinator *c, const struct hop_schedule *schedule,
                                struct hop_error *err)
{
    hop_status status = HOP_OK;
    int32_t *words = NULL;
    size_t n;
    HOP_TRY(hop_schedule_encode(schedule, &words, &n, err));
    for (int r = 1; r < c->ranks.count; r++)
        HOP_TRY_DONE(hop_send(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_SCHEDULE, words,
                              n * sizeof *words, err));
done:
    free(words);
    return status;
}

static hop_status send_weights(struct hop_coordinator *c, struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++) {
        int32_t mapped;
        HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_MAPPED, &mapped,
                            sizeof mapped, "its answer about the model files", err));
        if (!mapped)
            HOP_TRY(hop_session_send_weights(&c->session, r, err));
    }
    return HOP_OK;
}

/* A rank's clock minus ours: of several answers the quickest tells it best, for it may have been
 * read at any time in between. */
static hop_status compare_clocks(struct hop_coordinator *c, int rank, struct hop_error *err)
{
    double quickest = INFINITY;
    for (int i = 0; i < HOP_CLOCK_READINGS; i++) {
        double clock;
        const double asked = hop_clock_now();
        HOP_TRY(hop_send(c->transport, HOP_CHANNEL_CONTROL, rank, HOP_TAG_CLOCK, NULL, 0, err));
        HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, rank, HOP_TAG_CLOCK, &clock,
                            sizeof clock, "its clock", err));
        const double told = hop_clock_now();
        if (told - asked < quickest)
            c->clock_offset[rank] = clock - (asked + told) / 2;
        quickest = fmin(quickest, told - asked);
    }
    return HOP_OK;
}

static hop_status await_ready(struct hop_coordinator *c, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&c->clock_offset, (size_t)c->ranks.count, sizeof(double), err));
    for (int r = 1; r < c->ranks.count; r++) {
        const struct hop_device *const device = &c->job.cluster.devices[c->ranks.device_of[r]];
        HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_READY, NULL, 0,
                            "it to be ready", err));
        HOP_TRY(compare_clocks(c, r, err));
        if (hop_device_is_local(device))
            c->clock_offset[r] = 0;
    }
    return HOP_OK;
}

static size_t largest_state(const struct hop_coordinator *c)
{
    size_t largest = 0;
    for (int32_t r = 0; r < c->ranks.count; r++) {
        const int32_t device = c->ranks.device_of[r];
        const size_t floats = device < 0 ? 0 : hop_coordinator_state_floats(c, device);
        largest = floats > largest ? floats : largest;
    }
    return largest;
}

static hop_status create_buffers(struct hop_coordinator *c, struct hop_error *err)
{
    const size_t ranks = (size_t)c->ranks.count;
    const size_t scores = (size_t)c->session.batch_count * (size_t)c->session.config.limits.labels;
    const size_t state = largest_state(c);
    HOP_TRY(hop_calloc(&c->words, 1 + hop_command_words(&c->session), sizeof(int32_t), err));
    HOP_TRY(hop_calloc(&c->reports, ranks, sizeof *c->reports, err));
    for (size_t r = 0; r < ranks; r++)
        HOP_TRY(hop_calloc(&c->reports[r], hop_report_limit(&c->session), sizeof(double), err));
    HOP_TRY(hop_calloc(&c->sends, ranks, sizeof *c->sends, err));
    HOP_TRY(hop_calloc(&c->transfer, scores > state ? scores : state, sizeof(float), err));
    HOP_TRY(hop_calloc(&c->scores, scores, sizeof(float), err));
    HOP_TRY(hop_calloc(&c->losses, (size_t)c->session.batch_count, sizeof(double), err));
    HOP_TRY(hop_calloc(&c->late, c->job.cluster.count, sizeof *c->late, err));
    HOP_TRY(hop_calloc(&c->held, c->job.cluster.count, sizeof *c->held, err));
    HOP_TRY(hop_calloc(&c->squares, c->state.parameters.count, sizeof(double), err));
    HOP_TRY(hop_answers_create(c, err));
    const size_t rows = c->eval ? c->eval->count : 1;
    HOP_TRY(hop_calloc(&c->answers, rows, sizeof(int32_t), err));
    return hop_calloc(&c->predicted, rows, sizeof(int32_t), err);
}

static hop_status create_state(struct hop_coordinator *c, struct hop_error *err)
{
    HOP_TRY(
        hop_parameters_create(&c->model, &c->lora, 0, c->model.blocks, &c->state.parameters, err));
    return hop_adamw_create(c->state.parameters.total, &c->state.adamw, err);
}

/* The coordinator's own session is made from the same object the others get; the weights it has
 * mapped stay. */
static hop_status own_session(struct hop_coordinator *c, json_t *setup, struct hop_error *err)
{
    struct hop_weights *const weights = c->session.weights;
    c->session.weights = NULL;
    const hop_status status = hop_session_create(setup, c->transport, &c->session, err);
    c->session.weights = weights;
    return status;
}

hop_status hop_coordinator_distribute(struct hop_coordinator *c, struct hop_error *err)
{
    hop_status status = HOP_OK;
    json_t *setup = NULL;
    HOP_TRY_DONE(hop_coordinator_setup(c, &setup, err));
    HOP_TRY_DONE(own_session(c, setup, err));
    HOP_TRY_DONE(greet(c, err));
    HOP_TRY_DONE(send_setup(c, setup, err));
    for (int32_t i = 0; i < c->schedules.count; i++)
        HOP_TRY_DONE(send_schedule(c, &c->schedules.items[i], err));
    HOP_TRY_DONE(send_weights(c, err));
    HOP_TRY_DONE(hop_session_start(&c->session, c->schedules.items, c->schedules.count, err));
    HOP_TRY_DONE(await_ready(c, err));
    HOP_TRY_DONE(create_state(c, err));
    HOP_TRY_DONE(create_buffers(c, err));
done:
    json_decref(setup);
    return status;
}

hop_status hop_coordinator_command(struct hop_coordinator *c,
                                   const struct hop_command_message *message, struct hop_error *err)
{
    const size_t n = hop_command_encode(&c->session, message, c->words + 1);
    c->words[0] = (int32_t)n;
    for (int r = 1; r < c->ranks.count; r++)
        HOP_TRY(hop_send_start(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_COMMAND, c->words,
                               (n + 1) * sizeof *c->words, &c->sends[r], err));
    return HOP_OK;
}
