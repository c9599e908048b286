/* RMSNorm. The sum over a row runs in 2 x 16 f32 lanes: its error stays far below the rounding of
 * the result, and the order of the sum does not depend on threads. */
#include <math.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

HOP_INLINE float squares(const void *x, enum hop_dtype dtype, int64_t dim)
{
    hop_v16 even = {0}, odd = {0};
    int64_t j = 0;
    for (; j + 2 * HOP_LANES <= dim; j += 2 * HOP_LANES) {
        const hop_v16 a = hop_v_load(x, dtype, j), b = hop_v_load(x, dtype, j + HOP_LANES);
        even += a * a;
        odd += b * b;
    }
    for (; j < dim; j += HOP_LANES) {
        const hop_v16 a = hop_v_load_upto(x, dtype, j, dim);
        even += a * a;
    }
    return hop_v_sum(even + odd);
}

HOP_INLINE void forward_row(enum hop_dtype dtype, int64_t dim, const void *x, const float *gain,
                            float scale, void *y)
{
    for (int64_t j = 0; j < dim; j += HOP_LANES) {
        const hop_v16 g = hop_v_load_upto(gain, HOP_F32, j, dim);
        hop_v_store_upto(y, dtype, j, hop_v_load_upto(x, dtype, j, dim) * scale * g, dim);
    }
}

HOP_INLINE void backward_row(enum hop_dtype dtype, int64_t dim, const void *x, const float *gain,
                             float scale, const void *dy, void *dx)
{
    hop_v16 dot = {0};
    for (int64_t j = 0; j < dim; j += HOP_LANES)
        dot += hop_v_load_upto(gain, HOP_F32, j, dim) * hop_v_load_upto(dy, dtype, j, dim) *
               hop_v_load_upto(x, dtype, j, dim);
    const float along = hop_v_sum(dot) * scale * scale * scale / (float)dim;
    for (int64_t j = 0; j < dim; j += HOP_LANES) {
        const hop_v16 g = hop_v_load_upto(gain, HOP_F32, j, dim);
        const hop_v16 through = scale * g * hop_v_load_upto(dy, dtype, j, dim) -
                                along * hop_v_load_upto(x, dtype, j, dim);
        hop_v_store_upto(dx, dtype, j, hop_v_load_upto(dx, dtype, j, dim) + through, dim);
    }
}

static void forward(enum hop_dtype dtype, int64_t dim, const void *x, const float *gain, float eps,
                    void *y, float *rstd)
{
    const float sum = dtype == HOP_F32 ? squares(x, HOP_F32, dim) : squares(x, HOP_BF16, dim);
    const float scale = 1.0f / sqrtf(sum / (float)dim + eps);
    if (dtype == HOP_F32)
        forward_row(HOP_F32, dim, x, gain, scale, y);
    else
        forward_row(HOP_BF16, dim, x, gain, scale, y);
    if (rstd)
        *rstd = scale;
}

hop_status hop_cpu_rmsnorm_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   int64_t dim, const void *x, const float *gain, float eps,
                                   void *y, float *rstd, struct hop_error *err)
{
    (void)err;
    const size_t bytes = (size_t)dim * hop_dtype_size(dtype);
    const int threads = hop_cpu_threads_for(backend, rows * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        forward(dtype, dim, (const char *)x + (size_t)r * bytes, gain, eps,
                (char *)y + (size_t)r * bytes, rstd ? rstd + r : NULL);
    return HOP_OK;
}

hop_status hop_cpu_rmsnorm_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                    int64_t dim, const void *x, const float *gain,
                                    const float *rstd, const void *dy, void *dx,
                                    struct hop_error *err)
{
    (void)err;
    const size_t bytes = (size_t)dim * hop_dtype_size(dtype);
    const int threads = hop_cpu_threads_for(backend, rows * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const char *const xr = (const char *)x + (size_t)r * bytes;
        const char *const dyr = (const char *)dy + (size_t)r * bytes;
        char *const dxr = (char *)dx + (size_t)r * bytes;
        if (dtype == HOP_F32)
            backward_row(HOP_F32, dim, xr, gain, rstd[r], dyr, dxr);
        else
            backward_row(HOP_BF16, dim, xr, gain, rstd[r], dyr, dxr);
    }
    return HOP_OK;
}

HOP_INLINE void tangent_row(enum hop_dtype dtype, int64_t dim, const void *x, const float *gain,
                            float scale, const void *dx, void *dy)
{
    hop_v16 dot = {0};
    for (int64_t j = 0; j < dim; j += HOP_LANES)
        dot += hop_v_load_upto(x, dtype, j, dim) * hop_v_load_upto(dx, dtype, j, dim);
    const float along = hop_v_sum(dot) * scale * scale / (float)dim;
    for (int64_t j = 0; j < dim; j += HOP_LANES) {
        const hop_v16 g = hop_v_load_upto(gain, HOP_F32, j, dim);
        const hop_v16 moved =
            hop_v_load_upto(dx, dtype, j, dim) - along * hop_v_load_upto(x, dtype, j, dim);
        hop_v_store_upto(dy, dtype, j, scale * g * moved, dim);
    }
}

hop_status hop_cpu_rmsnorm_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                   int64_t rows, int64_t dim, const void *x, const float *gain,
                                   const float *rstd, const void *dx, void *dy,
                                   struct hop_error *err)
{
    (void)err;
    const size_t bytes = (size_t)dim * hop_dtype_size(dtype);
    const int threads = hop_cpu_threads_for(backend, count * rows * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < count * rows; t++) {
        const char *const xr = (const char *)x + (size_t)(t % rows) * bytes;
        const char *const dxr = (const char *)dx + (size_t)t * bytes;
        char *const dyr = (char *)dy + (size_t)t * bytes;
        if (dtype == HOP_F32)
            tangent_row(HOP_F32, dim, xr, gain, rstd[t % rows], dxr, dyr);
        else
            tangent_row(HOP_BF16, dim, xr, gain, rstd[t % rows], dxr, dyr);
    }
    return HOP_OK;
}
