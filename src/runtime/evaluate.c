/* The held-out rows, forward through the same pipeline as training. */
#include "runtime/coordinator_internal.h"

#include <math.h>

#include "base/clock.h"
#include "data/metrics.h"
#include "data/scoring.h"

/* Rows [first, first+n) as micro-batches of a micro-batch's rows each. Returns how many. */
static int32_t pack(struct hop_coordinator *c, size_t first, size_t n)
{
    const size_t per = (size_t)hop_job_micro_batch_rows(&c->job);
    int32_t batches = 0;
    for (size_t at = 0; at < n; at += per, batches++) {
        const size_t left = n - at;
        hop_scoring_pack(c->eval, first + at, left < per ? left : per,
                         &c->session.batches[batches]);
        c->session.batches[batches].micro_batch = batches;
    }
    return batches;
}

hop_status hop_coordinator_await_sends(struct hop_coordinator *c, struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++)
        HOP_TRY(hop_request_wait(c->transport, &c->sends[r], "a command to be taken", err));
    return HOP_OK;
}

static hop_status run(struct hop_coordinator *c, int32_t batches, const float **scores,
                      struct hop_error *err)
{
    const struct hop_command_message message = {
        .kind = HOP_COMMAND_EVALUATE,
        .schedule = batches == 1 ? c->schedules.evaluate_one : c->schedules.evaluate_many,
        .batches = batches};
    struct hop_pass pass = {0};
    HOP_TRY(hop_coordinator_command(c, &message, err));
    if (c->session.executor)
        HOP_TRY(hop_coordinator_own_pass(c, &message, &pass, err));
    HOP_TRY(hop_coordinator_gather_scores(c, batches, pass.scores, scores, err));
    return hop_coordinator_await_sends(c, err);
}

static void take(struct hop_coordinator *c, size_t first, size_t n, const float *logprob,
                 struct hop_scores *scores)
{
    const size_t per = (size_t)hop_job_micro_batch_rows(&c->job);
    for (size_t at = 0; at < n; at += per) {
        const size_t left = n - at;
        hop_scoring_take(c->eval, first + at, left < per ? left : per, logprob, scores);
        logprob += c->session.config.limits.labels;
    }
}

/* Full passes of batch_count micro-batches, then what is left one micro-batch at a time: so two
 * schedules serve any number of rows. */
static size_t rows_of_next_pass(const struct hop_coordinator *c, size_t first)
{
    const size_t per = (size_t)hop_job_micro_batch_rows(&c->job);
    const size_t left = c->eval->count - first, full = per * (size_t)c->session.batch_count;
    if (left >= full)
        return full;
    return left < per ? left : per;
}

static hop_status score_rows(struct hop_coordinator *c, struct hop_scores *scores,
                             struct hop_error *err)
{
    for (size_t first = 0; first < c->eval->count;) {
        const size_t n = rows_of_next_pass(c, first);
        const float *logprob = NULL;
        const int32_t batches = pack(c, first, n);
        HOP_TRY(run(c, batches, &logprob, err));
        take(c, first, n, logprob, scores);
        first += n;
    }
    return HOP_OK;
}

static void add_label_metrics(struct hop_coordinator *c, struct hop_evaluation *out)
{
    const struct hop_dataset *const eval = c->eval;
    size_t n = 0;
    int32_t *const answers = c->answers;
    if (c->job.data.task == HOP_TASK_MULTIRC)
        out->multirc = hop_multirc_dataset_scores(eval, c->predicted);
    for (size_t e = 0; e < eval->count; e++) {
        if (eval->examples[e].answer < 0)
            continue;
        answers[n] = eval->examples[e].answer;
        c->predicted[n++] = c->predicted[e];
    }
    const struct hop_label_scores scores =
        hop_label_scores(c->predicted, answers, n, eval->label_count);
    out->labelled = n > 0;
    out->accuracy = scores.accuracy;
    out->macro_f1 = scores.macro_f1;
}

hop_status hop_coordinator_evaluate(struct hop_coordinator *c, struct hop_evaluation *out,
                                    struct hop_error *err)
{
    struct hop_scores scores = {.predicted = c->eval->label_count ? c->predicted : NULL};
    const double start = hop_clock_now();
    struct hop_evaluation evaluation = {.examples = c->eval->count};
    HOP_TRY(score_rows(c, &scores, err));
    evaluation.loss = scores.nll / (double)scores.label_tokens;
    if (!isfinite(evaluation.loss))
        return hop_fail(err, HOP_NUMERIC,
                        "the evaluation loss after step %lld is not finite; the model or its "
                        "adapters are broken",
                        (long long)c->step);
    if (c->eval->label_count)
        add_label_metrics(c, &evaluation);
    if (c->free_answers.limit > 0)
        HOP_TRY(hop_answers_score(c, &evaluation.squad, err));
    evaluation.seconds = hop_clock_now() - start;
    *out = evaluation;
    return HOP_OK;
}
