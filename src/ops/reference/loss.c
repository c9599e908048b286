/* Reference log-probabilities of labels and the gradient of their negative sum: one label at a
 * time. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/reference/reference.h"

#define LOAD(p, i)     hop_reference_load((p), dtype, (i))
#define STORE(p, i, v) hop_reference_store((p), dtype, (i), (v))

/* Fills logit (vocabulary) and returns log sum exp. */
static double score(enum hop_dtype dtype, const struct hop_weight *head, const void *x, int64_t row,
                    double *logit)
{
    double largest = -INFINITY, sum = 0.0;
    for (int64_t o = 0; o < head->out; o++) {
        logit[o] = 0.0;
        for (int64_t j = 0; j < head->in; j++)
            logit[o] += LOAD(x, row * head->in + j) * LOAD(head->data, o * head->in + j);
        largest = fmax(largest, logit[o]);
    }
    for (int64_t o = 0; o < head->out; o++)
        sum += exp(logit[o] - largest);
    return largest + log(sum);
}

hop_status hop_reference_loss_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                      int64_t rows, const void *x, const struct hop_weight *head,
                                      int32_t labels, const int32_t *row, const int32_t *id,
                                      float *logprob, struct hop_error *err)
{
    (void)backend;
    (void)rows;
    double *logit;
    HOP_TRY(hop_calloc(&logit, (size_t)head->out, sizeof *logit, err));
    for (int32_t i = 0; i < labels; i++) {
        const double lse = score(dtype, head, x, row[i], logit);
        logprob[i] = (float)(logit[id[i]] - lse);
    }
    free(logit);
    return HOP_OK;
}

hop_status hop_reference_loss_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                       int64_t rows, const void *x, const struct hop_weight *head,
                                       int32_t labels, const int32_t *row, const int32_t *id,
                                       float scale, float *logprob, void *dx, struct hop_error *err)
{
    (void)backend;
    hop_status status = HOP_OK;
    const int64_t dim = head->in;
    double *logit = NULL, *sum = NULL;
    HOP_TRY_DONE(hop_calloc(&logit, (size_t)head->out, sizeof *logit, err));
    HOP_TRY_DONE(hop_calloc(&sum, (size_t)(rows * dim), sizeof *sum, err));
    for (int32_t i = 0; i < labels; i++) {
        const double lse = score(dtype, head, x, row[i], logit);
        logprob[i] = (float)(logit[id[i]] - lse);
        for (int64_t o = 0; o < head->out; o++) {
            const double d = (double)scale * (exp(logit[o] - lse) - (o == id[i] ? 1.0 : 0.0));
            for (int64_t j = 0; j < dim; j++)
                sum[row[i] * dim + j] += d * LOAD(head->data, o * dim + j);
        }
    }
    for (int64_t i = 0; i < rows * dim; i++)
        STORE(dx, i, sum[i]);
done:
    free(sum);
    free(logit);
    return status;
}
