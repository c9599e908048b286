/* Reference lookups (embedding, gather), RMSNorm, rotary embedding and SwiGLU. */
#include <math.h>

#include "ops/reference/reference.h"

#define LOAD(p, i)     hop_reference_load((p), dtype, (i))
#define STORE(p, i, v) hop_reference_store((p), dtype, (i), (v))

hop_status hop_reference_embed_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                       const struct hop_weight *table, int32_t tokens,
                                       const int32_t *ids, void *y, struct hop_error *err)
{
    (void)backend;
    (void)err;
    const int64_t dim = table->in;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < dim; j++)
            STORE(y, t * dim + j, LOAD(table->data, ids[t] * dim + j));
    return HOP_OK;
}

hop_status hop_reference_embed_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                        int64_t dim, int32_t tokens, const int32_t *ids,
                                        const void *dy, float *dtable, struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < dim; j++)
            dtable[ids[t] * dim + j] += (float)LOAD(dy, t * dim + j);
    return HOP_OK;
}

hop_status hop_reference_gather_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                        int64_t n, int64_t dim, const void *x, const int32_t *row,
                                        void *y, struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < dim; j++)
            STORE(y, i * dim + j, LOAD(x, row[i] * dim + j));
    return HOP_OK;
}

hop_status hop_reference_gather_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t n, int64_t dim, const void *dy, const int32_t *row,
                                         int64_t rows, void *dx, struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t i = 0; i < rows * dim; i++)
        STORE(dx, i, 0.0);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < dim; j++)
            STORE(dx, row[i] * dim + j, LOAD(dy, i * dim + j));
    return HOP_OK;
}

hop_status hop_reference_rmsnorm_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t rows, int64_t dim, const void *x,
                                         const float *gain, float eps, void *y, float *rstd,
                                         struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t r = 0; r < rows; r++) {
        double squares = 0.0;
        for (int64_t j = 0; j < dim; j++)
            squares += LOAD(x, r * dim + j) * LOAD(x, r * dim + j);
        const double scale = 1.0 / sqrt(squares / (double)dim + (double)eps);
        for (int64_t j = 0; j < dim; j++)
            STORE(y, r * dim + j, LOAD(x, r * dim + j) * scale * (double)gain[j]);
        if (rstd)
            rstd[r] = (float)scale;
    }
    return HOP_OK;
}

/* y_j = g_j x_j s with s = (mean x^2 + eps)^-1/2, so dx_j = s g_j dy_j - x_j s^3/dim sum_k g_k dy_k
 * x_k. */
hop_status hop_reference_rmsnorm_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                          int64_t rows, int64_t dim, const void *x,
                                          const float *gain, const float *rstd, const void *dy,
                                          void *dx, struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t r = 0; r < rows; r++) {
        const double scale = (double)rstd[r];
        double dot = 0.0;
        for (int64_t j = 0; j < dim; j++)
            dot += (double)gain[j] * LOAD(dy, r * dim + j) * LOAD(x, r * dim + j);
        const double along = dot * scale * scale * scale / (double)dim;
        for (int64_t j = 0; j < dim; j++) {
            const int64_t i = r * dim + j;
            const double through = scale * (double)gain[j] * LOAD(dy, i);
            STORE(dx, i, LOAD(dx, i) + through - along * LOAD(x, i));
        }
    }
    return HOP_OK;
}

static void rotate(enum hop_dtype dtype, int64_t rows, int32_t heads, int32_t head_dim,
                   int64_t stride, const int32_t *position, const float *cosine, const float *sine,
                   double direction, void *x)
{
    const int64_t half = head_dim / 2;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < half; j++) {
                const int64_t low = r * stride + h * head_dim + j, high = low + half;
                const double c = (double)cosine[position[r] * half + j];
                const double s = (double)sine[position[r] * half + j] * direction;
                const double a = LOAD(x, low), b = LOAD(x, high);
                STORE(x, low, a * c - b * s);
                STORE(x, high, b * c + a * s);
            }
}

hop_status hop_reference_rope_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                      int64_t rows, int32_t heads, int32_t head_dim, int64_t stride,
                                      const int32_t *position, const float *cosine,
                                      const float *sine, void *x, struct hop_error *err)
{
    (void)backend;
    (void)err;
    rotate(dtype, rows, heads, head_dim, stride, position, cosine, sine, 1.0, x);
    return HOP_OK;
}

hop_status hop_reference_rope_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                       int64_t rows, int32_t heads, int32_t head_dim,
                                       int64_t stride, const int32_t *position, const float *cosine,
                                       const float *sine, void *dx, struct hop_error *err)
{
    (void)backend;
    (void)err;
    rotate(dtype, rows, heads, head_dim, stride, position, cosine, sine, -1.0, dx);
    return HOP_OK;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

hop_status hop_reference_swiglu_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                        int64_t n, const void *gate, const void *up, void *y,
                                        struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t i = 0; i < n; i++) {
        const double g = LOAD(gate, i);
        STORE(y, i, g * sigmoid(g) * LOAD(up, i));
    }
    return HOP_OK;
}

hop_status hop_reference_swiglu_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t n, const void *gate, const void *up,
                                         const void *dy, void *dgate, void *dup,
                                         struct hop_error *err)
{
    (void)backend;
    (void)err;
    for (int64_t i = 0; i < n; i++) {
        const double g = LOAD(gate, i), u = LOAD(up, i), d = LOAD(dy, i), s = sigmoid(g);
        STORE(dgate, i, d * u * s * (1.0 + g * (1.0 - s)));
        STORE(dup, i, d * g * s);
    }
    return HOP_OK;
}
