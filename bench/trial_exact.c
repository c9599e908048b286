/* Exact gradients, by backpropagation. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/zo.h"

struct passes {
    struct hop_stage *front, *back;
    float *hidden, *delta, *masked; /* (tokens, hidden) */
    float *logprob;
};

static void passes_close(struct passes *passes)
{
    hop_stage_free(passes->front);
    hop_stage_free(passes->back);
    free(passes->hidden);
    free(passes->delta);
    free(passes->masked);
    free(passes->logprob);
}

static size_t hidden_elements(const struct trial *trial)
{
    return (size_t)trial->batch.tokens * (size_t)trial->config.hidden;
}

static hop_status passes_open(const struct trial *trial, struct passes *passes,
                              struct hop_error *err)
{
    const size_t n = hidden_elements(trial);
    HOP_TRY(hop_calloc(&passes->hidden, n, sizeof(float), err));
    HOP_TRY(hop_calloc(&passes->delta, n, sizeof(float), err));
    HOP_TRY(hop_calloc(&passes->masked, n, sizeof(float), err));
    return hop_calloc(&passes->logprob, (size_t)trial->batch.labels, sizeof(float), err);
}

/* Gradients of blocks [0, TRIAL_SPLIT) for a gradient of their output. */
static hop_status through_front(const struct trial *trial, struct passes *passes,
                                const float *delta, struct hop_error *err)
{
    hop_parameters_zero_gradients(hop_stage_parameters(passes->front));
    HOP_TRY(hop_stage_forward(passes->front, &trial->batch, 0, NULL, passes->hidden, NULL, err));
    return hop_stage_backward(passes->front, &trial->batch, 0, delta, NULL, err);
}

static hop_status keep(const struct trial *trial, const struct hop_parameters *parameters,
                       const float *logprob, struct trial_exact *out, struct hop_error *err)
{
    const size_t n = trial->front.total;
    HOP_TRY(hop_calloc(&out->gradient, n, sizeof(float), err));
    memcpy(out->gradient, parameters->gradients, n * sizeof(float));
    out->square = trial_dot(out->gradient, out->gradient, n);
    out->loss = hop_loss(logprob, (size_t)trial->batch.labels, trial->batch.label_total);
    return HOP_OK;
}

/* Samples meet nowhere before the loss, so the gradient of one is that of its rows of delta. */
static hop_status share_of_samples(const struct trial *trial, struct passes *passes,
                                   struct trial_exact *out, struct hop_error *err)
{
    const struct hop_parameters *const parameters = hop_stage_parameters(passes->front);
    const size_t row = (size_t)trial->config.hidden;
    double squares = 0;
    for (int32_t s = 0; s < trial->batch.sequences; s++) {
        const size_t begin = (size_t)trial->batch.offset[s] * row;
        const size_t end = (size_t)trial->batch.offset[s + 1] * row;
        memset(passes->masked, 0, hidden_elements(trial) * sizeof(float));
        memcpy(passes->masked + begin, passes->delta + begin, (end - begin) * sizeof(float));
        HOP_TRY(through_front(trial, passes, passes->masked, err));
        squares += trial_dot(parameters->gradients, parameters->gradients, parameters->total);
    }
    out->sample_share = squares / out->square;
    return HOP_OK;
}

hop_status trial_exact(const struct trial *trial, struct trial_exact *out, struct hop_error *err)
{
    struct passes passes = {0};
    hop_status status = HOP_OK;
    *out = (struct trial_exact){0};
    HOP_TRY_DONE(passes_open(trial, &passes, err));
    HOP_TRY_DONE(trial_stage(trial, TRIAL_FRONT, HOP_F32, &passes.front, err));
    HOP_TRY_DONE(trial_stage(trial, TRIAL_BACK, HOP_F32, &passes.back, err));
    HOP_TRY_DONE(
        hop_stage_forward(passes.front, &trial->batch, -1, NULL, passes.hidden, NULL, err));
    HOP_TRY_DONE(
        hop_stage_forward(passes.back, &trial->batch, 0, passes.hidden, NULL, passes.logprob, err));
    HOP_TRY_DONE(hop_stage_backward(passes.back, &trial->batch, 0, NULL, passes.delta, err));
    HOP_TRY_DONE(through_front(trial, &passes, passes.delta, err));
    HOP_TRY_DONE(keep(trial, hop_stage_parameters(passes.front), passes.logprob, out, err));
    HOP_TRY_DONE(share_of_samples(trial, &passes, out, err));
done:
    passes_close(&passes);
    return status;
}

hop_status trial_exact_exit(const struct trial *trial, struct trial_exact *out,
                            struct hop_error *err)
{
    struct passes passes = {0};
    hop_status status = HOP_OK;
    *out = (struct trial_exact){0};
    HOP_TRY_DONE(passes_open(trial, &passes, err));
    HOP_TRY_DONE(trial_stage(trial, TRIAL_EXIT_MODEL, HOP_F32, &passes.front, err));
    HOP_TRY_DONE(
        hop_stage_forward(passes.front, &trial->batch, 0, NULL, NULL, passes.logprob, err));
    HOP_TRY_DONE(hop_stage_backward(passes.front, &trial->batch, 0, NULL, NULL, err));
    HOP_TRY_DONE(keep(trial, hop_stage_parameters(passes.front), passes.logprob, out, err));
done:
    passes_close(&passes);
    return status;
}

void trial_exact_free(struct trial_exact *exact)
{
    free(exact->gradient);
    *exact = (struct trial_exact){0};
}
