/* A rank that is not the coordinator: sets itself up from messages, then obeys commands. It opens
 * no file but, where they are the very same, the model's. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "io/json.h"
#include "runtime/command.h"
#include "runtime/console.h"

enum { SETUP_LIMIT = 64 << 20 };

static hop_status receive_setup(struct hop_transport *transport, struct hop_session *session,
                                struct hop_error *err)
{
    hop_status status = HOP_OK;
    const int32_t protocol = HOP_PROTOCOL;
    void *text = NULL;
    size_t n = 0;
    json_t *setup = NULL;
    HOP_TRY(hop_send(transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_HELLO, &protocol, sizeof protocol,
                     err));
    HOP_TRY(hop_receive_unknown(transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_SETUP, SETUP_LIMIT,
                                "the setup", &text, &n, err));
    HOP_TRY_DONE(hop_json_parse(text, n, "setup message", &setup, err));
    HOP_TRY_DONE(hop_session_create(setup, transport, session, err));
done:
    free(text);
    json_decref(setup);
    return status;
}

static hop_status receive_schedules(struct hop_session *session, struct hop_schedule **out,
                                    int32_t *count, struct hop_error *err)
{
    hop_status status = HOP_OK;
    int64_t expected;
    struct hop_schedule *schedules = NULL;
    HOP_TRY(hop_json_get_int(session->setup, "schedules", "setup message", 0, &expected, err));
    if (expected < 1 || expected > 64)
        return hop_fail(err, HOP_PEER, "setup message: %lld schedules", (long long)expected);
    HOP_TRY(hop_calloc(&schedules, (size_t)expected, sizeof *schedules, err));
    *out = schedules;
    for (*count = 0; *count < (int32_t)expected; ++*count) {
        void *words = NULL;
        size_t n = 0;
        HOP_TRY(hop_receive_unknown(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_SCHEDULE,
                                    SETUP_LIMIT, "a schedule", &words, &n, err));
        status = hop_schedule_decode(words, n / sizeof(int32_t), &schedules[*count], err);
        free(words);
        if (status != HOP_OK)
            return status;
    }
    return HOP_OK;
}

static hop_status get_weights(struct hop_session *session, struct hop_error *err)
{
    bool mapped;
    HOP_TRY(hop_session_map_weights(session, &mapped, err));
    const int32_t reply = mapped;
    HOP_TRY(hop_send(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_MAPPED, &reply,
                     sizeof reply, err));
    return mapped ? HOP_OK : hop_session_receive_weights(session, err);
}

static hop_status tell_clock(struct hop_transport *transport, struct hop_error *err)
{
    for (int i = 0; i < HOP_CLOCK_READINGS; i++) {
        HOP_TRY(hop_receive(transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_CLOCK, NULL, 0,
                            "a question about the clock", err));
        const double now = hop_clock_now();
        HOP_TRY(hop_send(transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_CLOCK, &now, sizeof now, err));
    }
    return HOP_OK;
}

static hop_status start(struct hop_session *session, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_schedule *schedules = NULL;
    int32_t count = 0;
    HOP_TRY_DONE(receive_schedules(session, &schedules, &count, err));
    HOP_TRY_DONE(get_weights(session, err));
    HOP_TRY_DONE(hop_session_start(session, schedules, count, err));
    HOP_TRY_DONE(hop_send(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_READY, NULL, 0, err));
    HOP_TRY_DONE(tell_clock(session->transport, err));
done:
    for (int32_t i = 0; i < count; i++)
        hop_schedule_free(&schedules[i]);
    free(schedules);
    return status;
}

/* Buffers of the command loop. */
struct worker {
    struct hop_session *session;
    int32_t *words;
    double *report;
    float *state;
};

static hop_status receive_state(struct worker *worker, struct hop_error *err)
{
    const size_t n = hop_executor_state_count(worker->session->executor);
    HOP_TRY(hop_receive(worker->session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_STATE,
                        worker->state, n * sizeof(float), "adapters and moments", err));
    return hop_executor_state_set(worker->session->executor, worker->state, err);
}

static hop_status send_state(struct worker *worker, struct hop_error *err)
{
    const size_t n = hop_executor_state_get(worker->session->executor, worker->state);
    return hop_send(worker->session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_STATE,
                    worker->state, n * sizeof(float), err);
}

static hop_status train(struct worker *worker, const struct hop_command_message *message,
                        struct hop_error *err)
{
    struct hop_session *const session = worker->session;
    struct hop_pass pass;
    struct hop_update update;
    HOP_TRY(hop_executor_run(session->executor, message->schedule, message->step, session->batches,
                             &pass, err));
    const size_t n = hop_report_encode(&pass, worker->report);
    HOP_TRY(hop_send(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_REPORT, worker->report,
                     n * sizeof(double), err));
    HOP_TRY(hop_receive(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_UPDATE, &update,
                        sizeof update, "the update", err));
    return hop_executor_update(session->executor, &update, err);
}

static hop_status evaluate(struct worker *worker, const struct hop_command_message *message,
                           struct hop_error *err)
{
    struct hop_session *const session = worker->session;
    struct hop_pass pass;
    HOP_TRY(
        hop_executor_run(session->executor, message->schedule, 0, session->batches, &pass, err));
    if (pass.losses == 0)
        return HOP_OK;
    const size_t n = (size_t)message->batches * (size_t)session->config.limits.labels;
    return hop_send(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_SCORES, pass.scores,
                    n * sizeof(float), err);
}

static hop_status decode(struct worker *worker, const struct hop_command_message *message,
                         struct hop_error *err)
{
    struct hop_session *const session = worker->session;
    const struct hop_places places = {.past = session->past, .place = session->place};
    struct hop_pass pass;
    if (session->config.cache == 0)
        return hop_fail(err, HOP_PEER, "a command to decode, but no cache was agreed");
    HOP_TRY(hop_executor_decode(session->executor, message->schedule, session->batches, &places,
                                &pass, err));
    if (pass.losses == 0)
        return HOP_OK;
    const size_t n = (size_t)message->batches * (size_t)session->config.limits.sequences;
    return hop_send(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_PICKED, pass.picked,
                    n * sizeof *pass.picked, err);
}

static hop_status send_timeline(struct worker *worker, struct hop_error *err)
{
    const struct hop_timeline *const timeline = hop_executor_timeline(worker->session->executor);
    return hop_send(worker->session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_TIMELINE,
                    timeline->events, timeline->count * sizeof *timeline->events, err);
}

static hop_status obey(struct worker *worker, const struct hop_command_message *message,
                       struct hop_error *err)
{
    switch (message->kind) {
    case HOP_COMMAND_TRAIN:
        return train(worker, message, err);
    case HOP_COMMAND_EVALUATE:
        return evaluate(worker, message, err);
    case HOP_COMMAND_DECODE:
        return decode(worker, message, err);
    case HOP_COMMAND_GET_STATE:
        return send_state(worker, err);
    case HOP_COMMAND_END:
        return send_timeline(worker, err);
    }
    return HOP_OK;
}

/* Commands have no fixed length: the receive is posted for the longest one and its true length
 * stands in the first word. */
static hop_status next_command(struct worker *worker, struct hop_command_message *message,
                               struct hop_error *err)
{
    struct hop_session *const session = worker->session;
    const size_t limit = 1 + hop_command_words(session);
    struct hop_request request = {0};
    HOP_TRY(hop_receive_start(session->transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_COMMAND,
                              worker->words, limit * sizeof(int32_t), &request, err));
    HOP_TRY(hop_request_wait(session->transport, &request, "the next command", err));
    const int32_t n = worker->words[0];
    if (n < 1 || (size_t)n >= limit)
        return hop_fail(err, HOP_PEER, "a command of %d words from the coordinator", n);
    return hop_command_decode(session, worker->words + 1, (size_t)n, message, err);
}

static hop_status serve(struct hop_session *session, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct worker worker = {.session = session};
    struct hop_command_message message = {.kind = HOP_COMMAND_TRAIN};
    HOP_TRY_DONE(hop_calloc(&worker.words, 1 + hop_command_words(session), sizeof(int32_t), err));
    HOP_TRY_DONE(hop_calloc(&worker.report, hop_report_limit(session), sizeof(double), err));
    HOP_TRY_DONE(
        hop_calloc(&worker.state, hop_executor_state_count(session->executor), sizeof(float), err));
    HOP_TRY_DONE(receive_state(&worker, err));
    while (message.kind != HOP_COMMAND_END) {
        HOP_TRY_DONE(next_command(&worker, &message, err));
        HOP_TRY_DONE(obey(&worker, &message, err));
    }
done:
    free(worker.words);
    free(worker.report);
    free(worker.state);
    return status;
}

hop_status hop_worker_run(struct hop_transport *transport, const char **device_name,
                          struct hop_session *session, struct hop_error *err)
{
    /* The coordinator may be reading a large data set; should it die, mpiexec ends this rank. */
    transport->timeout = INFINITY;
    HOP_TRY(receive_setup(transport, session, err));
    *device_name = hop_session_device_name(session);
    if (session->device < 0)
        return hop_fail(err, HOP_PEER, "rank %d has no device in the plan", transport->rank);
    HOP_TRY(start(session, err));
    return serve(session, err);
}
