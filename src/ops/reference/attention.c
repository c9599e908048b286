/* Reference causal grouped-query attention: one query of one head at a time, scores of that query
 * only. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/reference/reference.h"

#define LOAD(p, i)     hop_reference_load((p), dtype, (i))
#define STORE(p, i, v) hop_reference_store((p), dtype, (i), (v))

/* Where one query of one head finds its operands. */
struct place {
    int64_t q;    /* element of q, dq */
    int64_t kv;   /* element of k, v, dk, dv of the first key it sees */
    int64_t out;  /* element of out, dout */
    int64_t lse;  /* element of lse */
    int64_t keys; /* how many keys it sees */
};

static struct place locate(const struct hop_attention *shape, int32_t s, int32_t i, int32_t h)
{
    const int32_t queries = shape->q_offset[s + 1] - shape->q_offset[s];
    const int32_t keys = shape->kv_offset[s + 1] - shape->kv_offset[s];
    const int64_t d = shape->head_dim, row = shape->q_offset[s] + i;
    const int64_t kv_head = (shape->first + h) / hop_attention_group(shape);
    return (struct place){.q = row * shape->q_stride + h * d,
                          .kv = shape->kv_offset[s] * shape->kv_stride + kv_head * d,
                          .out = (row * shape->heads + h) * d,
                          .lse = row * shape->heads + h,
                          .keys = keys - queries + i + 1};
}

static double dot(enum hop_dtype dtype, int32_t n, const void *a, int64_t ai, const void *b,
                  int64_t bi)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++)
        sum += LOAD(a, ai + j) * LOAD(b, bi + j);
    return sum;
}

static void forward_query(enum hop_dtype dtype, const struct hop_attention *shape, struct place at,
                          const void *q, const void *k, const void *v, void *out, float *lse,
                          double *score)
{
    const int32_t d = shape->head_dim;
    double largest = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < at.keys; j++) {
        score[j] = (double)shape->scale * dot(dtype, d, q, at.q, k, at.kv + j * shape->kv_stride);
        largest = fmax(largest, score[j]);
    }
    for (int64_t j = 0; j < at.keys; j++)
        sum += exp(score[j] - largest);
    for (int64_t c = 0; c < d; c++) {
        double mixed = 0.0;
        for (int64_t j = 0; j < at.keys; j++)
            mixed += exp(score[j] - largest) / sum * LOAD(v, at.kv + j * shape->kv_stride + c);
        STORE(out, at.out + c, mixed);
    }
    if (lse)
        lse[at.lse] = (float)(largest + log(sum));
}

static int64_t longest(const int32_t *offset, int32_t sequences)
{
    int64_t most = 0;
    for (int32_t s = 0; s < sequences; s++)
        if (offset[s + 1] - offset[s] > most)
            most = offset[s + 1] - offset[s];
    return most;
}

hop_status hop_reference_attention_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                           const struct hop_attention *shape, const void *q,
                                           const void *k, const void *v, void *out, float *lse,
                                           struct hop_error *err)
{
    (void)backend;
    double *score;
    const int64_t keys = longest(shape->kv_offset, shape->sequences);
    HOP_TRY(hop_calloc(&score, (size_t)keys, sizeof *score, err));
    for (int32_t s = 0; s < shape->sequences; s++)
        for (int32_t i = 0; i < shape->q_offset[s + 1] - shape->q_offset[s]; i++)
            for (int32_t h = 0; h < shape->heads; h++)
                forward_query(dtype, shape, locate(shape, s, i, h), q, k, v, out, lse, score);
    free(score);
    return HOP_OK;
}

/* P_j = exp(scale q.k_j - lse); dP_j = dout.v_j; dS_j = P_j (dP_j - dout.out);
 * dq = scale dS K, dk_j += scale dS_j q, dv_j += P_j dout. */
static void backward_query(enum hop_dtype dtype, const struct hop_attention *shape, struct place at,
                           const void *q, const void *k, const void *v, const void *out,
                           const float *lse, const void *dout, void *dq, double *sum, double *dk,
                           double *dv)
{
    const int32_t d = shape->head_dim;
    const double scale = (double)shape->scale;
    const double mean = dot(dtype, d, dout, at.out, out, at.out);
    memset(sum, 0, (size_t)d * sizeof *sum);
    for (int64_t j = 0; j < at.keys; j++) {
        const int64_t key = at.kv + j * shape->kv_stride;
        const double p = exp(scale * dot(dtype, d, q, at.q, k, key) - (double)lse[at.lse]);
        const double ds = p * (dot(dtype, d, dout, at.out, v, key) - mean) * scale;
        for (int64_t c = 0; c < d; c++) {
            sum[c] += ds * LOAD(k, key + c);
            dk[key + c] += ds * LOAD(q, at.q + c);
            dv[key + c] += p * LOAD(dout, at.out + c);
        }
    }
    for (int64_t c = 0; c < d; c++)
        STORE(dq, at.q + c, sum[c]);
}

hop_status hop_reference_attention_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                            const struct hop_attention *shape, const void *q,
                                            const void *k, const void *v, const void *out,
                                            const float *lse, const void *dout, void *dq, void *dk,
                                            void *dv, struct hop_error *err)
{
    (void)backend;
    hop_status status = HOP_OK;
    double *sum_q = NULL, *sum_k = NULL, *sum_v = NULL;
    const int64_t rows = shape->kv_offset[shape->sequences],
                  width = shape->kv_heads * shape->head_dim;
    const size_t n = (size_t)(rows * shape->kv_stride);
    HOP_TRY_DONE(hop_calloc(&sum_q, (size_t)shape->head_dim, sizeof *sum_q, err));
    HOP_TRY_DONE(hop_calloc(&sum_k, n, sizeof *sum_k, err));
    HOP_TRY_DONE(hop_calloc(&sum_v, n, sizeof *sum_v, err));
    for (int32_t s = 0; s < shape->sequences; s++)
        for (int32_t i = 0; i < shape->q_offset[s + 1] - shape->q_offset[s]; i++)
            for (int32_t h = 0; h < shape->heads; h++)
                backward_query(dtype, shape, locate(shape, s, i, h), q, k, v, out, lse, dout, dq,
                               sum_q, sum_k, sum_v);
    for (int64_t r = shape->kv_offset[0]; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            STORE(dk, r * shape->kv_stride + c, sum_k[r * shape->kv_stride + c]);
            STORE(dv, r * shape->kv_stride + c, sum_v[r * shape->kv_stride + c]);
        }
done:
    free(sum_v);
    free(sum_k);
    free(sum_q);
    return status;
}

/* The operands of one tangent. */
struct moved {
    const void *dq, *dk, *dv;
    void *dout;
};

/* P_j = exp(S_j - lse), S_j = scale q.k_j; dS_j = scale (dq.k_j + q.dk_j), m = sum P_j dS_j;
 * dout = sum P_j ((dS_j - m) v_j + dv_j). `at` is the query of the primal call, `to` of the
 * tangent. */
static void tangent_query(enum hop_dtype dtype, const struct hop_attention *shape, struct place at,
                          const void *q, const void *k, const void *v, const float *lse,
                          const struct moved *d, struct place to, double *p, double *ds)
{
    const int32_t n = shape->head_dim;
    const double scale = (double)shape->scale;
    double mean = 0.0;
    for (int64_t j = 0; j < at.keys; j++) {
        const int64_t step = j * shape->kv_stride;
        p[j] = exp(scale * dot(dtype, n, q, at.q, k, at.kv + step) - (double)lse[at.lse]);
        ds[j] = scale * (dot(dtype, n, d->dq, to.q, k, at.kv + step) +
                         dot(dtype, n, q, at.q, d->dk, to.kv + step));
        mean += p[j] * ds[j];
    }
    for (int64_t c = 0; c < n; c++) {
        double sum = 0.0;
        for (int64_t j = 0; j < at.keys; j++) {
            const int64_t step = j * shape->kv_stride + c;
            sum += p[j] * ((ds[j] - mean) * LOAD(v, at.kv + step) + LOAD(d->dv, to.kv + step));
        }
        STORE(d->dout, to.out + c, sum);
    }
}

/* The same place in tangent c. */
static struct place moved_place(const struct hop_attention *shape, struct place at, int64_t c)
{
    const int64_t rows = shape->q_offset[shape->sequences];
    at.q += c * rows * shape->q_stride;
    at.kv += c * shape->kv_offset[shape->sequences] * shape->kv_stride;
    at.out += c * rows * shape->heads * shape->head_dim;
    return at;
}

hop_status hop_reference_attention_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                           const struct hop_attention *shape, int32_t count,
                                           const void *q, const void *k, const void *v,
                                           const void *out, const float *lse, const void *dq,
                                           const void *dk, const void *dv, void *dout,
                                           struct hop_error *err)
{
    (void)backend;
    (void)out;
    hop_status status = HOP_OK;
    const struct moved moved = {.dq = dq, .dk = dk, .dv = dv, .dout = dout};
    const size_t keys = (size_t)longest(shape->kv_offset, shape->sequences);
    double *p = NULL, *ds = NULL;
    HOP_TRY_DONE(hop_calloc(&p, keys, sizeof *p, err));
    HOP_TRY_DONE(hop_calloc(&ds, keys, sizeof *ds, err));
    for (int32_t c = 0; c < count; c++)
        for (int32_t s = 0; s < shape->sequences; s++)
            for (int32_t i = 0; i < shape->q_offset[s + 1] - shape->q_offset[s]; i++)
                for (int32_t h = 0; h < shape->heads; h++) {
                    const struct place at = locate(shape, s, i, h);
                    tangent_query(dtype, shape, at, q, k, v, lse, &moved, moved_place(shape, at, c),
                                  p, ds);
                }
done:
    free(ds);
    free(p);
    return status;
}
