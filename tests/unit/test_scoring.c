/* Scoring of evaluation rows against a model that is a formula: the score of a token depends on the
 * whole text before it, so a label that is asked for at the wrong place shows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/scoring.h"

enum { EXAMPLES = 7, LENGTH = 9, CANDIDATES = 3 };

static struct hop_error err;

/* A hash of the text, as a log-probability. */
static float logprob(const int32_t *ids, int32_t n, int32_t next)
{
    uint32_t hash = 2166136261u;
    for (int32_t i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)ids[i]) * 16777619u;
    hash = (hash ^ (uint32_t)next) * 16777619u;
    return -(float)(hash >> 8 & 0xffff) / 4096;
}

struct fixture {
    struct hop_dataset dataset;
    struct hop_example examples[EXAMPLES];
    int32_t ids[EXAMPLES][LENGTH], labels[EXAMPLES][LENGTH];
    struct hop_ids candidates[CANDIDATES];
};

/* Rows of different lengths, with one to three answer tokens behind the prompt. */
static void fill(struct fixture *f, int32_t candidate_ids[CANDIDATES][2], size_t candidate_length)
{
    *f = (struct fixture){.dataset = {.examples = f->examples, .count = EXAMPLES}};
    for (int e = 0; e < EXAMPLES; e++) {
        const int32_t n = LENGTH - e % 3, answer = 1 + e % 3;
        for (int32_t i = 0; i < n; i++) {
            f->ids[e][i] = 1 + (e * 31 + i * 7) % 50;
            f->labels[e][i] = i < n - answer ? HOP_LABEL_IGNORED : f->ids[e][i];
        }
        f->examples[e] = (struct hop_example){.ids = f->ids[e],
                                              .labels = f->labels[e],
                                              .length = n,
                                              .prompt_length = n - answer,
                                              .answer = e % CANDIDATES};
        if (n > f->dataset.longest)
            f->dataset.longest = n;
    }
    for (int c = 0; c < CANDIDATES && candidate_length; c++)
        f->candidates[c] = (struct hop_ids){.data = candidate_ids[c], .count = candidate_length};
    f->dataset.label_ids = f->candidates;
    f->dataset.label_count = candidate_length ? CANDIDATES : 0;
}

/* What a pipeline would return for the packed batch. */
static void answer(const struct hop_batch *batch, float *out)
{
    for (int32_t l = 0; l < batch->labels; l++) {
        int32_t sequence = 0;
        while (batch->offset[sequence + 1] <= batch->label_row[l])
            sequence++;
        const int32_t start = batch->offset[sequence];
        out[l] = logprob(batch->ids + start, batch->label_row[l] - start + 1, batch->label_id[l]);
    }
}

static void score_all(const struct fixture *f, size_t per, struct hop_scores *scores)
{
    struct hop_batch batch;
    const struct hop_batch_limits limits = hop_scoring_limits(&f->dataset, per);
    assert_int_equal(hop_batch_create(&limits, &batch, &err), HOP_OK);
    float *const out = calloc((size_t)limits.labels, sizeof *out);
    assert_non_null(out);
    for (size_t first = 0; first < EXAMPLES; first += per) {
        const size_t n = EXAMPLES - first < per ? EXAMPLES - first : per;
        hop_scoring_pack(&f->dataset, first, n, &batch);
        assert_true(batch.tokens <= limits.tokens && batch.labels <= limits.labels &&
                    batch.sequences <= limits.sequences);
        for (int32_t s = 0; s < batch.sequences; s++)
            for (int32_t i = batch.offset[s]; i < batch.offset[s + 1]; i++)
                assert_int_equal(batch.position[i], i - batch.offset[s]);
        answer(&batch, out);
        hop_scoring_take(&f->dataset, first, n, out, scores);
    }
    free(out);
    hop_batch_free(&batch);
}

static double expected_nll(const struct fixture *f, int64_t *count)
{
    double nll = 0;
    *count = 0;
    for (int e = 0; e < EXAMPLES; e++)
        for (int32_t i = 1; i < f->examples[e].length; i++)
            if (f->labels[e][i] != HOP_LABEL_IGNORED) {
                nll -= (double)logprob(f->ids[e], i, f->labels[e][i]);
                ++*count;
            }
    return nll;
}

/* The candidate with the largest sum of log-probabilities of its first `length` tokens. */
static int32_t expected_candidate(const struct fixture *f, int e, size_t length)
{
    int32_t best = 0;
    double best_score = -INFINITY;
    for (int32_t c = 0; c < CANDIDATES; c++) {
        int32_t text[LENGTH + 2];
        double score = 0;
        const int32_t prompt = f->examples[e].prompt_length;
        memcpy(text, f->ids[e], (size_t)prompt * sizeof *text);
        for (size_t i = 0; i < length; i++) {
            text[prompt + (int32_t)i] = f->candidates[c].data[i];
            score += (double)logprob(text, prompt + (int32_t)i, f->candidates[c].data[i]);
        }
        if (score > best_score) {
            best_score = score;
            best = c;
        }
    }
    return best;
}

static void check(int32_t ids[CANDIDATES][2], size_t length, size_t scored)
{
    for (size_t per = 1; per <= EXAMPLES; per++) {
        struct fixture f;
        int32_t predicted[EXAMPLES];
        int64_t tokens;
        struct hop_scores scores = {.predicted = length ? predicted : NULL};
        fill(&f, ids, length);
        score_all(&f, per, &scores);
        assert_float_equal(scores.nll, expected_nll(&f, &tokens), 1e-6);
        assert_int_equal(scores.label_tokens, tokens);
        for (int e = 0; e < EXAMPLES && length; e++)
            assert_int_equal(predicted[e], expected_candidate(&f, e, scored));
    }
}

static void test_loss_only(void **state)
{
    (void)state;
    int32_t ids[CANDIDATES][2] = {{0}};
    check(ids, 0, 0);
}

static void test_first_tokens(void **state)
{
    (void)state;
    int32_t ids[CANDIDATES][2] = {{3, 4}, {5, 4}, {6, 4}};
    check(ids, 2, 1);
}

static void test_whole_candidates(void **state)
{
    (void)state;
    int32_t ids[CANDIDATES][2] = {{3, 4}, {3, 5}, {6, 4}};
    check(ids, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_only),
        cmocka_unit_test(test_first_tokens),
        cmocka_unit_test(test_whole_candidates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
