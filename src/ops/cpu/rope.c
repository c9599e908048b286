/* Rotary embedding, in place. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

HOP_INLINE void rotate_head(enum hop_dtype dtype, int64_t half, const float *cosine,
                            const float *sine, float direction, void *low, void *high)
{
    for (int64_t j = 0; j < half; j += HOP_LANES) {
        const hop_v16 c = hop_v_load_upto(cosine, HOP_F32, j, half);
        const hop_v16 s = hop_v_load_upto(sine, HOP_F32, j, half) * direction;
        const hop_v16 a = hop_v_load_upto(low, dtype, j, half);
        const hop_v16 b = hop_v_load_upto(high, dtype, j, half);
        hop_v_store_upto(low, dtype, j, a * c - b * s, half);
        hop_v_store_upto(high, dtype, j, b * c + a * s, half);
    }
}

static hop_status rotate(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                         int32_t heads, int32_t head_dim, int64_t stride, const int32_t *position,
                         const float *cosine, const float *sine, float direction, void *x)
{
    const int64_t half = head_dim / 2;
    const size_t size = hop_dtype_size(dtype);
    const int threads = hop_cpu_threads_for(backend, rows * heads * head_dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++) {
            char *const low = (char *)x + (size_t)(r * stride + h * head_dim) * size;
            char *const high = low + (size_t)half * size;
            const float *const c = cosine + position[r] * half, *const s =
                                                                    sine + position[r] * half;
            if (dtype == HOP_F32)
                rotate_head(HOP_F32, half, c, s, direction, low, high);
            else
                rotate_head(HOP_BF16, half, c, s, direction, low, high);
        }
    return HOP_OK;
}

hop_status hop_cpu_rope_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                int32_t heads, int32_t head_dim, int64_t stride,
                                const int32_t *position, const float *cosine, const float *sine,
                                void *x, struct hop_error *err)
{
    (void)err;
    return rotate(backend, dtype, rows, heads, head_dim, stride, position, cosine, sine, 1.0f, x);
}

hop_status hop_cpu_rope_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                 int32_t heads, int32_t head_dim, int64_t stride,
                                 const int32_t *position, const float *cosine, const float *sine,
                                 void *dx, struct hop_error *err)
{
    (void)err;
    return rotate(backend, dtype, rows, heads, head_dim, stride, position, cosine, sine, -1.0f, dx);
}
