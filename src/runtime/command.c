#include "runtime/command.h"

#include <string.h>

enum { COMMAND_HEADER = 5, REPORT_HEADER = 10 };

size_t hop_command_words(const struct hop_session *session)
{
    const struct hop_batch_limits *const limits = &session->config.limits;
    const size_t batch = 1 + hop_batch_words(limits) + 2 * (size_t)limits->sequences;
    return COMMAND_HEADER + (size_t)session->batch_count * batch;
}

/* Past and place of the sequences of micro-batch m behind it. Returns the words used. */
static size_t encode_places(const struct hop_session *session, int32_t m, int32_t *words)
{
    const size_t n = (size_t)session->batches[m].sequences;
    const size_t at = (size_t)m * (size_t)session->config.limits.sequences;
    memcpy(words, session->past + at, n * sizeof *words);
    memcpy(words + n, session->place + at, n * sizeof *words);
    return 2 * n;
}

static hop_status decode_places(struct hop_session *session, int32_t m, const int32_t *words,
                                size_t left, size_t *used, struct hop_error *err)
{
    const size_t n = (size_t)session->batches[m].sequences;
    const size_t at = (size_t)m * (size_t)session->config.limits.sequences;
    if (left < 2 * n)
        return hop_fail(err, HOP_PEER, "a command from the coordinator is cut off");
    memcpy(session->past + at, words, n * sizeof *words);
    memcpy(session->place + at, words + n, n * sizeof *words);
    *used = 2 * n;
    return HOP_OK;
}

size_t hop_command_encode(const struct hop_session *session,
                          const struct hop_command_message *message, int32_t *words)
{
    size_t n = 0;
    words[n++] = (int32_t)message->kind;
    words[n++] = message->schedule;
    words[n++] = (int32_t)(message->step >> 31);
    words[n++] = (int32_t)(message->step & 0x7fffffff);
    words[n++] = message->batches;
    for (int32_t m = 0; m < message->batches; m++) {
        const size_t used = hop_batch_encode(&session->batches[m], words + n + 1);
        words[n] = (int32_t)used;
        n += 1 + used;
        if (message->kind == HOP_COMMAND_DECODE)
            n += encode_places(session, m, words + n);
    }
    return n;
}

static hop_status decode_batches(struct hop_session *session, const int32_t *words, size_t n,
                                 const struct hop_command_message *message, struct hop_error *err)
{
    size_t at = COMMAND_HEADER;
    for (int32_t m = 0; m < message->batches; m++) {
        const size_t left = n - at;
        size_t used = 0;
        if (left < 1 || words[at] < 0 || (size_t)words[at] > left - 1)
            return hop_fail(err, HOP_PEER, "a command from the coordinator is cut off");
        HOP_TRY(hop_batch_decode(words + at + 1, (size_t)words[at], &session->config.limits,
                                 session->config.model.vocabulary, &session->batches[m], err));
        at += 1 + (size_t)words[at];
        if (message->kind == HOP_COMMAND_DECODE)
            HOP_TRY(decode_places(session, m, words + at, n - at, &used, err));
        at += used;
    }
    return HOP_OK;
}

hop_status hop_command_decode(struct hop_session *session, const int32_t *words, size_t n,
                              struct hop_command_message *message, struct hop_error *err)
{
    if (n < COMMAND_HEADER || words[0] < 0 || words[0] > HOP_COMMAND_END || words[2] < 0 ||
        words[3] < 0 || words[4] < 0 || words[4] > session->batch_count)
        return hop_fail(err, HOP_PEER, "a command from the coordinator makes no sense");
    *message = (struct hop_command_message){.kind = (enum hop_command)words[0],
                                            .schedule = words[1],
                                            .step = (int64_t)words[2] << 31 | words[3],
                                            .batches = words[4]};
    return decode_batches(session, words, n, message, err);
}

size_t hop_report_limit(const struct hop_session *session)
{
    const struct hop_plan *const plan = &session->plan;
    const size_t batches = (size_t)session->batch_count;
    const size_t values =
        plan->directions == HOP_PER_SAMPLE ? (size_t)session->config.limits.sequences : 1;
    const size_t probes = (size_t)plan->probes + 1 + (size_t)plan->exit_probes;
    const size_t parameters = (size_t)session->config.model.blocks * HOP_TARGETS * 2;
    return REPORT_HEADER + batches * (2 + probes * values) + parameters;
}

/* Returns where the next numbers go. */
static size_t put(double *report, size_t at, const double *values, int32_t count)
{
    if (count > 0)
        memcpy(report + at, values, (size_t)count * sizeof *values);
    return at + (size_t)count;
}

size_t hop_report_encode(const struct hop_pass *pass, double *report)
{
    size_t n = REPORT_HEADER;
    report[0] = pass->busy;
    report[1] = pass->losses;
    report[2] = pass->derivatives;
    report[3] = pass->squares;
    report[4] = pass->late.tasks;
    report[5] = pass->late.seconds;
    report[6] = pass->late.ratio;
    report[7] = pass->held;
    report[8] = pass->exit_derivatives;
    report[9] = pass->exit_losses;
    n = put(report, n, pass->loss, pass->losses);
    n = put(report, n, pass->derivative, pass->derivatives);
    n = put(report, n, pass->exit_derivative, pass->exit_derivatives);
    n = put(report, n, pass->exit_loss, pass->exit_losses);
    return put(report, n, pass->square, pass->squares);
}

static bool whole(double value, size_t limit)
{
    return value >= 0 && value <= (double)limit && value == (double)(int32_t)value;
}

hop_status hop_report_decode(const double *report, struct hop_pass *pass, size_t limit,
                             struct hop_error *err)
{
    const double all = report[1] + report[2] + report[3] + report[8] + report[9];
    if (!whole(report[1], limit) || !whole(report[2], limit) || !whole(report[3], limit) ||
        !whole(report[4], INT32_MAX) || !whole(report[8], limit) || !whole(report[9], limit) ||
        REPORT_HEADER + all > (double)limit)
        return hop_fail(err, HOP_PEER, "a report of a device makes no sense");
    *pass = (struct hop_pass){
        .busy = report[0],
        .losses = (int32_t)report[1],
        .derivatives = (int32_t)report[2],
        .squares = (int32_t)report[3],
        .exit_derivatives = (int32_t)report[8],
        .exit_losses = (int32_t)report[9],
        .held = report[7],
        .late = {.tasks = (int32_t)report[4], .seconds = report[5], .ratio = report[6]}};
    pass->loss = report + REPORT_HEADER;
    pass->derivative = pass->loss + pass->losses;
    pass->exit_derivative = pass->derivative + pass->derivatives;
    pass->exit_loss = pass->exit_derivative + pass->exit_derivatives;
    pass->square = pass->exit_loss + pass->exit_losses;
    return HOP_OK;
}
