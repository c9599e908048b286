/* Reference projections: y = x W^T [+ bias] [+ residual] [+ scale (x A^T) B^T], and their
 * gradients.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "ops/reference/reference.h"

#define LOAD(p, i)     hop_reference_load((p), dtype, (i))
#define STORE(p, i, v) hop_reference_store((p), dtype, (i), (v))

int64_t hop_reference_group(int32_t groups, const int32_t *offset, int64_t rows, int64_t row)
{
    if (!offset)
        return row / (rows / groups);
    int64_t group = 0;
    while (row >= offset[group + 1])
        group++;
    return group;
}

/* u = x_row A^T with the adapter pair of the row's group. */
static void adapter_down(enum hop_dtype dtype, const struct hop_lora *lora, int64_t rows,
                         int64_t in, int64_t row, const void *x, float *u)
{
    const int64_t group = hop_reference_group(lora->groups, lora->offset, rows, row);
    const float *const a = lora->a + group * lora->rank * in;
    for (int64_t r = 0; r < lora->rank; r++) {
        double sum = 0.0;
        for (int64_t j = 0; j < in; j++)
            sum += LOAD(x, row * in + j) * (double)a[r * in + j];
        u[r] = (float)sum;
    }
}

/* scale * (u B^T)[o] */
static double adapter_up(const struct hop_lora *lora, int64_t rows, int64_t out, int64_t row,
                         int64_t o, const float *u)
{
    const int64_t group = hop_reference_group(lora->groups, lora->offset, rows, row);
    const float *const b = lora->b + (group * out + o) * lora->rank;
    double sum = 0.0;
    for (int64_t r = 0; r < lora->rank; r++)
        sum += (double)u[r] * (double)b[r];
    return sum * (double)lora->scale;
}

static void forward_row(enum hop_dtype dtype, int64_t rows, int64_t row, const void *x,
                        const struct hop_projection *p, const void *residual, float *u)
{
    const int64_t in = p->weight->in, out = p->weight->out;
    if (p->lora)
        adapter_down(dtype, p->lora, rows, in, row, x, u);
    for (int64_t o = 0; o < out; o++) {
        double sum = residual ? LOAD(residual, row * out + o) : 0.0;
        if (p->bias)
            sum += (double)p->bias[o];
        for (int64_t j = 0; j < in; j++)
            sum += LOAD(x, row * in + j) * LOAD(p->weight->data, o * in + j);
        if (p->lora)
            sum += adapter_up(p->lora, rows, out, row, o, u);
        STORE(p->y, row * out + o, sum);
    }
}

hop_status hop_reference_project_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t rows, const void *x,
                                         const struct hop_projection *projections, int n,
                                         const void *residual, struct hop_error *err)
{
    (void)backend;
    for (int i = 0; i < n; i++) {
        const struct hop_projection *const p = &projections[i];
        const int64_t rank = p->lora ? p->lora->rank : 0;
        float *u;
        HOP_TRY(hop_calloc(&u, (size_t)rank, sizeof *u, err));
        for (int64_t row = 0; row < rows; row++) {
            forward_row(dtype, rows, row, x, p, residual, u);
            if (p->lora && p->u)
                memcpy(p->u + row * rank, u, (size_t)rank * sizeof *u);
        }
        free(u);
    }
    return HOP_OK;
}

/* t (rows, rank) = dy B */
static void adapter_gradient_up(enum hop_dtype dtype, int64_t rows, const struct hop_projection *p,
                                double *t)
{
    const int64_t out = p->weight->out, rank = p->lora->rank;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t r = 0; r < rank; r++) {
            double sum = 0.0;
            for (int64_t o = 0; o < out; o++)
                sum += LOAD(p->dy, row * out + o) * (double)p->lora->b[o * rank + r];
            t[row * rank + r] = sum;
        }
}

static void adapter_gradients(enum hop_dtype dtype, int64_t rows, const void *x,
                              const struct hop_projection *p, const double *t)
{
    const int64_t in = p->weight->in, out = p->weight->out, rank = p->lora->rank;
    const double scale = (double)p->lora->scale;
    for (int64_t r = 0; r < rank && p->da; r++)
        for (int64_t j = 0; j < in; j++) {
            double sum = 0.0;
            for (int64_t row = 0; row < rows; row++)
                sum += t[row * rank + r] * LOAD(x, row * in + j);
            p->da[r * in + j] += (float)(scale * sum);
        }
    for (int64_t o = 0; o < out && p->db; o++)
        for (int64_t r = 0; r < rank; r++) {
            double sum = 0.0;
            for (int64_t row = 0; row < rows; row++)
                sum += LOAD(p->dy, row * out + o) * (double)p->u[row * rank + r];
            p->db[o * rank + r] += (float)(scale * sum);
        }
}

/* Also leaves *t (rows, rank) = dy B, for the gradient of the input; the caller frees it. */
static hop_status adapter_backward(enum hop_dtype dtype, int64_t rows, const void *x,
                                   const struct hop_projection *p, double **t,
                                   struct hop_error *err)
{
    HOP_TRY(hop_calloc(t, (size_t)(rows * p->lora->rank), sizeof **t, err));
    adapter_gradient_up(dtype, rows, p, *t);
    adapter_gradients(dtype, rows, x, p, *t);
    return HOP_OK;
}

hop_status hop_reference_adapter_gradient(struct hop_backend *backend, enum hop_dtype dtype,
                                          int64_t rows, const void *x,
                                          const struct hop_projection *projection,
                                          struct hop_error *err)
{
    (void)backend;
    double *t = NULL;
    if (!projection->lora)
        return HOP_OK;
    HOP_TRY(adapter_backward(dtype, rows, x, projection, &t, err));
    free(t);
    return HOP_OK;
}

/* sum (rows, in) += dy W + scale t A */
static void input_gradient(enum hop_dtype dtype, int64_t rows, const struct hop_projection *p,
                           const double *t, double *sum)
{
    const int64_t in = p->weight->in, out = p->weight->out;
    for (int64_t row = 0; row < rows; row++) {
        double *const to = sum + row * in;
        for (int64_t o = 0; o < out; o++) {
            const double d = LOAD(p->dy, row * out + o);
            for (int64_t j = 0; j < in; j++)
                to[j] += d * LOAD(p->weight->data, o * in + j);
        }
        for (int64_t r = 0; p->lora && r < p->lora->rank; r++) {
            const double d = (double)p->lora->scale * t[row * p->lora->rank + r];
            for (int64_t j = 0; j < in; j++)
                to[j] += d * (double)p->lora->a[r * in + j];
        }
    }
}

hop_status hop_reference_project_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                          int64_t rows, const void *x,
                                          const struct hop_projection *projections, int n, void *dx,
                                          struct hop_error *err)
{
    (void)backend;
    hop_status status = HOP_OK;
    const int64_t in = projections[0].weight->in;
    double *sum = NULL, *t = NULL;
    HOP_TRY_DONE(hop_calloc(&sum, (size_t)(rows * in), sizeof *sum, err));
    for (int i = 0; i < n; i++) {
        const struct hop_projection *const p = &projections[i];
        if (p->lora) {
            free(t);
            t = NULL;
            HOP_TRY_DONE(adapter_backward(dtype, rows, x, p, &t, err));
        }
        if (dx)
            input_gradient(dtype, rows, p, t, sum);
    }
    for (int64_t i = 0; dx && i < rows * in; i++)
        STORE(dx, i, sum[i]);
done:
    free(t);
    free(sum);
    return status;
}
