/* Directional derivatives from forward passes, and what estimates are made of them. */
#include "trial.h"

#include <stdlib.h>

#include "base/memory.h"
#include "train/zo.h"

struct probing {
    const struct trial *trial;
    const struct trial_choice *choice;
    struct hop_stage *front, *back; /* no back with an exit */
    void *hidden, *delta;           /* (tokens, hidden) of dtype */
    void *stream;                   /* (TRIAL_CHUNK, tokens, hidden) of dtype */
    float *a, *b;                   /* (tokens, hidden): the same in f32 */
    float *logprob;                 /* (TRIAL_CHUNK, labels) */
    double base;
};

static size_t hidden_elements(const struct trial *trial)
{
    return (size_t)trial->batch.tokens * (size_t)trial->config.hidden;
}

static void probing_close(struct probing *p)
{
    hop_stage_free(p->front);
    hop_stage_free(p->back);
    free(p->hidden);
    free(p->delta);
    free(p->stream);
    free(p->a);
    free(p->b);
    free(p->logprob);
}

static enum trial_part front_part(const struct trial_choice *choice)
{
    if (choice->exit)
        return TRIAL_EXIT;
    return choice->per_sample ? TRIAL_PER_SAMPLE : TRIAL_ESTIMATED;
}

/* Base loss, and with boundary the gradient of the hidden states between the stages. */
static hop_status base_passes(struct probing *p, struct hop_error *err)
{
    const struct hop_batch *const batch = &p->trial->batch;
    float *const exit = p->choice->exit ? p->logprob : NULL;
    HOP_TRY(hop_stage_forward(p->front, batch, exit ? -1 : 0, NULL, p->hidden, exit, err));
    if (!exit) {
        HOP_TRY(hop_stage_forward(p->back, batch, 0, p->hidden, NULL, p->logprob, err));
        HOP_TRY(hop_stage_backward(p->back, batch, 0, NULL, p->delta, err));
    }
    p->base = hop_loss(p->logprob, (size_t)batch->labels, batch->label_total);
    hop_convert(p->a, HOP_F32, p->delta, p->choice->dtype, hidden_elements(p->trial));
    return HOP_OK;
}

static hop_status probing_open(const struct trial *trial, const struct trial_choice *choice,
                               struct probing *p, struct hop_error *err)
{
    const size_t n = hidden_elements(trial), size = hop_dtype_size(choice->dtype);
    *p = (struct probing){.trial = trial, .choice = choice};
    HOP_TRY(hop_calloc_aligned(&p->hidden, n, size, err));
    HOP_TRY(hop_calloc_aligned(&p->delta, n, size, err));
    HOP_TRY(hop_calloc_aligned(&p->stream, TRIAL_CHUNK * n, size, err));
    HOP_TRY(hop_calloc(&p->a, n, sizeof(float), err));
    HOP_TRY(hop_calloc(&p->b, n, sizeof(float), err));
    HOP_TRY(hop_calloc(&p->logprob, TRIAL_CHUNK * (size_t)trial->batch.labels, sizeof(float), err));
    HOP_TRY(trial_stage(trial, front_part(choice), choice->dtype, &p->front, err));
    if (!choice->exit)
        HOP_TRY(trial_stage(trial, TRIAL_BACK, choice->dtype, &p->back, err));
    return base_passes(p, err);
}

/* ---- the set of one call ---- */

struct chunk {
    struct hop_probe probes[TRIAL_CHUNK];
    struct hop_probe_set set;
};

static void chunk_fill(const struct probing *p, int32_t first, int32_t count, double epsilon,
                       struct chunk *chunk)
{
    for (int32_t q = 0; q < count; q++)
        chunk->probes[q] = (struct hop_probe){(uint16_t)(first + q), (float)epsilon};
    chunk->set = (struct hop_probe_set){.seed = p->trial->seed,
                                        .step = 1,
                                        .count = count,
                                        .probes = chunk->probes,
                                        .distribution = p->choice->distribution};
}

static struct hop_direction_set directions(const struct trial *trial,
                                           const struct trial_choice *choice, int32_t probe)
{
    return (struct hop_direction_set){.seed = trial->seed,
                                      .step = 1,
                                      .micro_batch = (uint16_t)trial->batch.micro_batch,
                                      .first = (uint16_t)probe,
                                      .count = 1,
                                      .samples = choice->per_sample ? trial->batch.sequences : 0,
                                      .distribution = choice->distribution};
}

/* ---- differences ---- */

static hop_status perturbed_losses(struct probing *p, int32_t first, int32_t count, double epsilon,
                                   double *losses, struct hop_error *err)
{
    const struct hop_batch *const batch = &p->trial->batch;
    struct chunk chunk;
    chunk_fill(p, first, count, epsilon, &chunk);
    if (p->choice->exit)
        HOP_TRY(hop_stage_probe(p->front, batch, &chunk.set, NULL, NULL, p->logprob, err));
    else {
        HOP_TRY(hop_stage_probe(p->front, batch, &chunk.set, NULL, p->stream, NULL, err));
        HOP_TRY(hop_stage_probe(p->back, batch, &chunk.set, p->stream, NULL, p->logprob, err));
    }
    for (int32_t q = 0; q < count; q++)
        losses[q] = hop_loss(p->logprob + (size_t)q * (size_t)batch->labels, (size_t)batch->labels,
                             batch->label_total);
    return HOP_OK;
}

static hop_status differences(struct probing *p, int32_t first, int32_t count, float *g,
                              struct hop_error *err)
{
    double above[TRIAL_CHUNK], below[TRIAL_CHUNK];
    const bool central = p->choice->estimator == HOP_CENTRAL;
    /* The step that f32 makes of it. */
    const double epsilon = (double)(float)p->choice->epsilon;
    HOP_TRY(perturbed_losses(p, first, count, epsilon, above, err));
    if (central)
        HOP_TRY(perturbed_losses(p, first, count, -epsilon, below, err));
    for (int32_t q = 0; q < count; q++)
        g[q] = (float)(central ? (above[q] - below[q]) / (2 * epsilon)
                               : (above[q] - p->base) / epsilon);
    return HOP_OK;
}

/* ---- boundary ---- */

static hop_status products(struct probing *p, int32_t first, int32_t count, float *g,
                           struct hop_error *err)
{
    const struct hop_batch *const batch = &p->trial->batch;
    const size_t n = hidden_elements(p->trial), row = (size_t)p->trial->config.hidden;
    const size_t size = hop_dtype_size(p->choice->dtype);
    struct chunk chunk;
    chunk_fill(p, first, count, 0, &chunk);
    HOP_TRY(hop_stage_tangent(p->front, batch, 0, &chunk.set, NULL, p->stream, err));
    for (int32_t q = 0; q < count; q++) {
        const char *const tangent = (const char *)p->stream + (size_t)q * n * size;
        hop_convert(p->b, HOP_F32, tangent, p->choice->dtype, n);
        if (!p->choice->per_sample) {
            *g++ = (float)trial_dot(p->a, p->b, n);
            continue;
        }
        for (int32_t s = 0; s < batch->sequences; s++) {
            const size_t begin = (size_t)batch->offset[s] * row;
            const size_t end = (size_t)batch->offset[s + 1] * row;
            *g++ = (float)trial_dot(p->a + begin, p->b + begin, end - begin);
        }
    }
    return HOP_OK;
}

/* ---- what others call ---- */

hop_status trial_derivatives(const struct trial *trial, const struct trial_choice *choice,
                             int32_t probes, float *g, struct hop_error *err)
{
    struct probing p;
    const bool boundary = choice->estimator == HOP_BOUNDARY;
    const int32_t each = choice->per_sample ? trial->batch.sequences : 1;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(probing_open(trial, choice, &p, err));
    for (int32_t q = 0; q < probes; q += TRIAL_CHUNK) {
        const int32_t count = probes - q < TRIAL_CHUNK ? probes - q : TRIAL_CHUNK;
        HOP_TRY_DONE(
            (boundary ? products : differences)(&p, q, count, g + (size_t)q * (size_t)each, err));
    }
done:
    probing_close(&p);
    return status;
}

hop_status trial_exact_derivatives(const struct trial *trial, const struct trial_exact *exact,
                                   const struct trial_choice *choice, int32_t probes, float *g,
                                   struct hop_error *err)
{
    float *z = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < trial->front.count; i++)
        longest = trial->front.items[i].count > longest ? trial->front.items[i].count : longest;
    HOP_TRY(hop_calloc(&z, longest, sizeof(float), err));
    for (int32_t q = 0; q < probes; q++) {
        const struct hop_direction_set set = directions(trial, choice, q);
        const struct hop_direction key = {.seed = set.seed,
                                          .step = set.step,
                                          .micro_batch = set.micro_batch,
                                          .direction = set.first,
                                          .distribution = set.distribution};
        double sum = 0;
        for (size_t i = 0; i < trial->front.count; i++) {
            const struct hop_parameter *const item = &trial->front.items[i];
            hop_direction_values(&key, item, 0, item->count, z);
            sum += trial_dot(exact->gradient + item->offset, z, item->count);
        }
        g[q] = (float)sum;
    }
    free(z);
    return HOP_OK;
}

void trial_estimate(struct trial *trial, const struct trial_choice *choice, int32_t probe,
                    const float *g)
{
    const struct hop_direction_set set = directions(trial, choice, probe);
    const size_t each = set.samples > 0 ? (size_t)set.samples : 1;
    hop_parameters_zero_gradients(&trial->front);
    hop_parameters_add_estimate(&trial->front, &set, g + (size_t)probe * each);
}

hop_status trial_exit_loss(const struct trial *trial, enum hop_dtype dtype, double *loss,
                           struct hop_error *err)
{
    struct probing p;
    const struct trial_choice choice = {.dtype = dtype, .exit = true};
    const hop_status status = probing_open(trial, &choice, &p, err);
    *loss = p.base;
    probing_close(&p);
    return status;
}

hop_status trial_feedback(struct trial *trial, enum hop_dtype dtype, struct hop_error *err)
{
    struct probing p;
    const struct trial_choice choice = {.dtype = dtype};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(probing_open(trial, &choice, &p, err));
    struct hop_parameters *const parameters = hop_stage_parameters(p.front);
    hop_parameters_zero_gradients(parameters);
    HOP_TRY_DONE(hop_stage_feedback(p.front, &trial->batch, 0, 0, p.delta, err));
    for (size_t i = 0; i < parameters->total; i++)
        trial->front.gradients[i] = parameters->gradients[i];
done:
    probing_close(&p);
    return status;
}
