/* The flat form of a batch: a header, the ends of the sequences, the ids, then rows and ids of the
 * labels. */
#include <string.h>

#include "data/batch.h"

enum { SEQUENCES, TOKENS, LABELS, MICRO_BATCH, TOTAL_LOW, TOTAL_HIGH, HEADER };

size_t hop_batch_words(const struct hop_batch_limits *limits)
{
    return HEADER + (size_t)limits->sequences + (size_t)limits->tokens + 2 * (size_t)limits->labels;
}

static int32_t *put(int32_t *to, const int32_t *from, int32_t n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
    return to + n;
}

size_t hop_batch_encode(const struct hop_batch *batch, int32_t *words)
{
    const uint64_t total = (uint64_t)batch->label_total;
    words[SEQUENCES] = batch->sequences;
    words[TOKENS] = batch->tokens;
    words[LABELS] = batch->labels;
    words[MICRO_BATCH] = batch->micro_batch;
    words[TOTAL_LOW] = (int32_t)(uint32_t)total;
    words[TOTAL_HIGH] = (int32_t)(uint32_t)(total >> 32);
    int32_t *end = put(words + HEADER, batch->offset + 1, batch->sequences);
    end = put(end, batch->ids, batch->tokens);
    end = put(end, batch->label_row, batch->labels);
    end = put(end, batch->label_id, batch->labels);
    return (size_t)(end - words);
}

static hop_status check_header(const int32_t *words, size_t n,
                               const struct hop_batch_limits *limits, struct hop_error *err)
{
    if (n < HEADER)
        return hop_fail(err, HOP_INPUT, "a micro-batch message has %zu words, at least %d are due",
                        n, HEADER);
    const struct hop_batch_limits found = {
        .sequences = words[SEQUENCES], .tokens = words[TOKENS], .labels = words[LABELS]};
    if (found.sequences < 0 || found.sequences > limits->sequences || found.tokens < 0 ||
        found.tokens > limits->tokens || found.labels < 0 || found.labels > limits->labels)
        return hop_fail(err, HOP_INPUT,
                        "a micro-batch message has %d sequences, %d tokens, %d labels; at most %d, "
                        "%d, %d were agreed",
                        found.sequences, found.tokens, found.labels, limits->sequences,
                        limits->tokens, limits->labels);
    if (n != hop_batch_words(&found))
        return hop_fail(err, HOP_INPUT, "a micro-batch message has %zu words, %zu are due", n,
                        hop_batch_words(&found));
    if (words[MICRO_BATCH] < 0 || words[TOTAL_HIGH] < 0)
        return hop_fail(err, HOP_INPUT,
                        "a micro-batch message has a negative index or label count");
    return HOP_OK;
}

static hop_status check_ends(const int32_t *ends, int32_t sequences, int32_t tokens,
                             struct hop_error *err)
{
    int32_t last = 0;
    for (int32_t i = 0; i < sequences; i++) {
        if (ends[i] <= last || ends[i] > tokens)
            return hop_fail(err, HOP_INPUT,
                            "a micro-batch message ends sequence %d at token %d of %d", i, ends[i],
                            tokens);
        last = ends[i];
    }
    if (last != tokens)
        return hop_fail(err, HOP_INPUT, "a micro-batch message has %d tokens, its sequences %d",
                        tokens, last);
    return HOP_OK;
}

static hop_status check_ids(const int32_t *ids, int32_t n, int32_t vocabulary, const char *what,
                            struct hop_error *err)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return hop_fail(err, HOP_INPUT,
                            "a micro-batch message has %s %d as number %d, the vocabulary has %d",
                            what, ids[i], i, vocabulary);
    return HOP_OK;
}

static hop_status check_rows(const int32_t *rows, int32_t n, int32_t tokens, struct hop_error *err)
{
    for (int32_t i = 0; i < n; i++)
        if (rows[i] < (i ? rows[i - 1] : 0) || rows[i] >= tokens)
            return hop_fail(err, HOP_INPUT, "a micro-batch message has label %d at row %d of %d", i,
                            rows[i], tokens);
    return HOP_OK;
}

static void fill_positions(struct hop_batch *batch)
{
    for (int32_t s = 0; s < batch->sequences; s++)
        for (int32_t t = batch->offset[s]; t < batch->offset[s + 1]; t++)
            batch->position[t] = t - batch->offset[s];
}

hop_status hop_batch_decode(const int32_t *words, size_t n, const struct hop_batch_limits *limits,
                            int32_t vocabulary, struct hop_batch *out, struct hop_error *err)
{
    HOP_TRY(check_header(words, n, limits, err));
    const int32_t sequences = words[SEQUENCES], tokens = words[TOKENS], labels = words[LABELS];
    const int32_t *const ends = words + HEADER, *const ids = ends + sequences;
    const int32_t *const rows = ids + tokens, *const label_ids = rows + labels;
    HOP_TRY(check_ends(ends, sequences, tokens, err));
    HOP_TRY(check_ids(ids, tokens, vocabulary, "token", err));
    HOP_TRY(check_rows(rows, labels, tokens, err));
    HOP_TRY(check_ids(label_ids, labels, vocabulary, "label", err));
    out->sequences = sequences;
    out->tokens = tokens;
    out->labels = labels;
    out->micro_batch = words[MICRO_BATCH];
    out->label_total =
        (int64_t)((uint64_t)(uint32_t)words[TOTAL_HIGH] << 32 | (uint32_t)words[TOTAL_LOW]);
    out->offset[0] = 0;
    put(out->offset + 1, ends, sequences);
    put(out->ids, ids, tokens);
    put(out->label_row, rows, labels);
    put(out->label_id, label_ids, labels);
    fill_positions(out);
    return HOP_OK;
}
