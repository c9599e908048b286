/* Reference tangents (forward-mode differentiation): every formula once a tangent, straight from
 * the operands of the primal call. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/reference/reference.h"

#define LOAD(p, i)     hop_reference_load((p), dtype, (i))
#define STORE(p, i, v) hop_reference_store((p), dtype, (i), (v))

/* y_j = g_j x_j s with s = (mean x^2 + eps)^-1/2, so dy_j = g_j s (dx_j - x_j s^2 mean(x dx)). */
hop_status hop_reference_rmsnorm_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                         int32_t count, int64_t rows, int64_t dim, const void *x,
                                         const float *gain, const float *rstd, const void *dx,
                                         void *dy, struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t t = 0; t < count * rows; t++) {
        const int64_t r = t % rows;
        const double scale = (double)rstd[r];
        double dot = 0.0;
        for (int64_t j = 0; j < dim; j++)
            dot += LOAD(x, r * dim + j) * LOAD(dx, t * dim + j);
        const double along = dot * scale * scale / (double)dim;
        for (int64_t j = 0; j < dim; j++) {
            const double moved = LOAD(dx, t * dim + j) - along * LOAD(x, r * dim + j);
            STORE(dy, t * dim + j, scale * (double)gain[j] * moved);
        }
    }
    return HOP_OK;
}

/* silu'(g) = s (1 + g (1 - s)), s = sigmoid(g) */
hop_status hop_reference_swiglu_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                        int32_t count, int64_t n, const void *gate, const void *up,
                                        const void *dgate, const void *dup, void *dy,
                                        struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t t = 0; t < count * n; t++) {
        const double g = LOAD(gate, t % n), s = 1.0 / (1.0 + exp(-g));
        const double slope = s * (1.0 + g * (1.0 - s));
        STORE(dy, t, slope * LOAD(up, t % n) * LOAD(dgate, t) + g * s * LOAD(dup, t));
    }
    return HOP_OK;
}

/* --- projections --- */

/* row . vector, of dtype and f32; NULL counts as zero */
static double dot(enum hop_dtype dtype, int64_t n, const void *x, int64_t row, const float *vector)
{
    double sum = 0.0;
    for (int64_t j = 0; x && vector && j < n; j++)
        sum += LOAD(x, row * n + j) * (double)vector[j];
    return sum;
}

/* Where one tangent row finds its operands. */
struct place {
    int64_t row, primal, group;
};

/* du (rank) = dx A^T + x dA^T */
static void adapter_down(enum hop_dtype dtype, struct place at, const void *x, const void *dx,
                         const struct hop_projection_tangent *p, double *du)
{
    const int64_t in = p->weight->in, rank = p->lora->rank;
    const float *const da = p->groups && p->da ? p->da + at.group * rank * in : NULL;
    for (int64_t r = 0; r < rank; r++)
        du[r] = dot(dtype, in, dx, at.row, p->lora->a + r * in) +
                dot(dtype, in, x, at.primal, da ? da + r * in : NULL);
}

/* scale (du B^T + u dB^T) of one output */
static double adapter_up(struct place at, int64_t o, const struct hop_projection_tangent *p,
                         const double *du)
{
    const int64_t out = p->weight->out, rank = p->lora->rank;
    const float *const b = p->lora->b + o * rank, *const u = p->u + at.primal * rank;
    const float *const db = p->groups && p->db ? p->db + (at.group * out + o) * rank : NULL;
    double sum = 0.0;
    for (int64_t r = 0; r < rank; r++)
        sum += du[r] * (double)b[r] + (db ? (double)u[r] * (double)db[r] : 0.0);
    return sum * (double)p->lora->scale;
}

static void tangent_row(enum hop_dtype dtype, struct place at, const void *x, const void *dx,
                        const struct hop_projection_tangent *p, const void *residual, double *du)
{
    const int64_t in = p->weight->in, out = p->weight->out;
    if (p->lora)
        adapter_down(dtype, at, x, dx, p, du);
    for (int64_t o = 0; o < out; o++) {
        double sum = residual ? LOAD(residual, at.row * out + o) : 0.0;
        for (int64_t j = 0; dx && j < in; j++)
            sum += LOAD(dx, at.row * in + j) * LOAD(p->weight->data, o * in + j);
        if (p->lora)
            sum += adapter_up(at, o, p, du);
        STORE(p->dy, at.row * out + o, sum);
    }
}

hop_status hop_reference_project_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                         int32_t count, int64_t rows, const void *x, const void *dx,
                                         const struct hop_projection_tangent *projections, int n,
                                         const void *residual, struct hop_error *err)
{
    (void)backend;
    const int64_t all = count * rows;
    for (int i = 0; i < n; i++) {
        const struct hop_projection_tangent *const p = &projections[i];
        double *du;
        HOP_TRY(hop_calloc(&du, p->lora ? (size_t)p->lora->rank : 0, sizeof *du, err));
        for (int64_t row = 0; row < all; row++) {
            struct place at = {.row = row, .primal = row % rows};
            if (p->groups)
                at.group = hop_reference_group(p->groups, p->offset, all, row);
            tangent_row(dtype, at, x, dx, p, residual, du);
        }
        free(du);
    }
    return HOP_OK;
}

/* --- log-probabilities --- */

/* The logit of a word at a row of x or dx. */
static double logit(enum hop_dtype dtype, const struct hop_weight *head, const void *x, int64_t row,
                    int64_t word)
{
    double sum = 0.0;
    for (int64_t j = 0; j < head->in; j++)
        sum += LOAD(x, row * head->in + j) * LOAD(head->data, word * head->in + j);
    return sum;
}

/* Mean under the softmax of the row's logits of the logits' tangents. */
static double mean_slope(enum hop_dtype dtype, const struct hop_weight *head, const void *x,
                         int64_t row, const double *slope)
{
    double largest = -INFINITY, total = 0.0, sum = 0.0;
    for (int64_t o = 0; o < head->out; o++)
        largest = fmax(largest, logit(dtype, head, x, row, o));
    for (int64_t o = 0; o < head->out; o++) {
        const double e = exp(logit(dtype, head, x, row, o) - largest);
        total += e;
        sum += e * slope[o];
    }
    return sum / total;
}

hop_status hop_reference_loss_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                      int32_t count, int64_t rows, const void *x, const void *dx,
                                      const struct hop_weight *head, int32_t labels,
                                      const int32_t *row, const int32_t *id, float *dlogprob,
                                      struct hop_error *err)
{
    (void)backend;
    double *slope;
    HOP_TRY(hop_calloc(&slope, (size_t)head->out, sizeof *slope, err));
    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < labels; i++) {
            for (int64_t o = 0; o < head->out; o++)
                slope[o] = logit(dtype, head, dx, c * rows + row[i], o);
            dlogprob[c * labels + i] =
                (float)(slope[id[i]] - mean_slope(dtype, head, x, row[i], slope));
        }
    free(slope);
    return HOP_OK;
}
