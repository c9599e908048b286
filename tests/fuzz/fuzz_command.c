/* What a rank is told and what it answers: a command with its micro-batches as int32 words, or
 * behind a first byte of 1 the report of a pass as doubles. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/command.h"

enum { BATCHES = 2, SEQUENCES = 2 };

/* A peer that says what makes no sense is named as such. */
static bool understood(hop_status status, struct hop_error *err)
{
    if (status != HOP_PEER)
        return hop_fuzz_read(status, err);
    return hop_fuzz_read(HOP_INPUT, err);
}

static void read_command(struct hop_session *session, const uint8_t *data, size_t size)
{
    struct hop_command_message message = {0};
    struct hop_error err = {0};
    size_t n;
    int32_t *const words = hop_fuzz_words(data, size, &n);
    if (understood(hop_command_decode(session, words, n, &message, &err), &err)) {
        int32_t *const again = malloc(hop_command_words(session) * sizeof *again);
        HOP_FUZZ_EXPECT(again && message.batches <= BATCHES);
        HOP_FUZZ_EXPECT(hop_command_encode(session, &message, again) <= n);
        free(again);
    }
    free(words);
}

static void read_report(const struct hop_session *session, const uint8_t *data, size_t size)
{
    const size_t limit = hop_report_limit(session);
    struct hop_pass pass = {0};
    struct hop_error err = {0};
    double *const report = calloc(limit, sizeof *report), sum = 0;
    HOP_FUZZ_EXPECT(report);
    memcpy(report, data, size < limit * sizeof *report ? size : limit * sizeof *report);
    if (understood(hop_report_decode(report, &pass, limit, &err), &err)) {
        for (int32_t i = 0; i < pass.losses; i++)
            sum += pass.loss[i];
        for (int32_t i = 0; i < pass.derivatives; i++)
            sum += pass.derivative[i];
        for (int32_t i = 0; i < pass.exit_derivatives; i++)
            sum += pass.exit_derivative[i];
        for (int32_t i = 0; i < pass.exit_losses; i++)
            sum += pass.exit_loss[i];
        for (int32_t i = 0; i < pass.squares; i++)
            sum += pass.square[i];
        HOP_FUZZ_EXPECT(sum != 0 || sum == 0 || sum != sum);
    }
    free(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_batch batches[BATCHES] = {0};
    int32_t past[BATCHES * SEQUENCES] = {0}, place[BATCHES * SEQUENCES] = {0};
    struct hop_session session = {
        .batches = batches, .batch_count = BATCHES, .past = past, .place = place};
    struct hop_error err = {0};
    session.config.limits =
        (struct hop_batch_limits){.sequences = SEQUENCES, .tokens = 8, .labels = 8};
    session.config.model.vocabulary = 50;
    session.config.model.blocks = 1;
    session.plan.probes = 2;
    if (!size)
        return -1;
    for (int i = 0; i < BATCHES; i++)
        hop_fuzz_ok(hop_batch_create(&session.config.limits, &batches[i], &err), &err);
    if (data[0] == 1)
        read_report(&session, data + 1, size - 1);
    else
        read_command(&session, data + 1, size - 1);
    for (int i = 0; i < BATCHES; i++)
        hop_batch_free(&batches[i]);
    return 0;
}
