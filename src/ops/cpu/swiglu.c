/* y = silu(gate) * up, its gradients and its tangents. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

HOP_INLINE void forward(enum hop_dtype dtype, struct hop_cpu_range range, const void *gate,
                        const void *up, void *y)
{
    for (int64_t i = range.begin; i < range.end; i += HOP_LANES) {
        const hop_v16 g = hop_v_load_upto(gate, dtype, i, range.end);
        const hop_v16 u = hop_v_load_upto(up, dtype, i, range.end);
        hop_v_store_upto(y, dtype, i, g * hop_v_sigmoid(g) * u, range.end);
    }
}

HOP_INLINE void backward(enum hop_dtype dtype, struct hop_cpu_range range, const void *gate,
                         const void *up, const void *dy, void *dgate, void *dup)
{
    for (int64_t i = range.begin; i < range.end; i += HOP_LANES) {
        const hop_v16 g = hop_v_load_upto(gate, dtype, i, range.end);
        const hop_v16 u = hop_v_load_upto(up, dtype, i, range.end);
        const hop_v16 d = hop_v_load_upto(dy, dtype, i, range.end);
        const hop_v16 s = hop_v_sigmoid(g);
        hop_v_store_upto(dgate, dtype, i, d * u * s * (1.0f + g * (1.0f - s)), range.end);
        hop_v_store_upto(dup, dtype, i, d * g * s, range.end);
    }
}

hop_status hop_cpu_swiglu_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                  const void *gate, const void *up, void *y, struct hop_error *err)
{
    (void)err;
    const int threads = hop_cpu_threads_for(backend, 4 * n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int share = 0; share < threads; share++) {
        const struct hop_cpu_range range = hop_cpu_share(n, threads, share, 2 * HOP_LANES);
        if (dtype == HOP_F32)
            forward(HOP_F32, range, gate, up, y);
        else
            forward(HOP_BF16, range, gate, up, y);
    }
    return HOP_OK;
}

hop_status hop_cpu_swiglu_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                   const void *gate, const void *up, const void *dy, void *dgate,
                                   void *dup, struct hop_error *err)
{
    (void)err;
    const int threads = hop_cpu_threads_for(backend, 4 * n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int share = 0; share < threads; share++) {
        const struct hop_cpu_range range = hop_cpu_share(n, threads, share, 2 * HOP_LANES);
        if (dtype == HOP_F32)
            backward(HOP_F32, range, gate, up, dy, dgate, dup);
        else
            backward(HOP_BF16, range, gate, up, dy, dgate, dup);
    }
    return HOP_OK;
}

/* The slopes of the primal operands are found once for all tangents. */
HOP_INLINE void tangent(enum hop_dtype dtype, struct hop_cpu_range range, int64_t count, int64_t n,
                        const void *gate, const void *up, const void *dgate, const void *dup,
                        void *dy)
{
    for (int64_t i = range.begin; i < range.end; i += HOP_LANES) {
        const hop_v16 g = hop_v_load_upto(gate, dtype, i, range.end);
        const hop_v16 u = hop_v_load_upto(up, dtype, i, range.end);
        const hop_v16 s = hop_v_sigmoid(g);
        const hop_v16 by_gate = u * s * (1.0f + g * (1.0f - s)), by_up = g * s;
        for (int64_t c = 0; c < count; c++) {
            const int64_t at = c * n + i, end = c * n + range.end;
            const hop_v16 moved = by_gate * hop_v_load_upto(dgate, dtype, at, end) +
                                  by_up * hop_v_load_upto(dup, dtype, at, end);
            hop_v_store_upto(dy, dtype, at, moved, end);
        }
    }
}

hop_status hop_cpu_swiglu_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                  int64_t n, const void *gate, const void *up, const void *dgate,
                                  const void *dup, void *dy, struct hop_error *err)
{
    (void)err;
    const int threads = hop_cpu_threads_for(backend, (4 + 3 * count) * n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int share = 0; share < threads; share++) {
        const struct hop_cpu_range range = hop_cpu_share(n, threads, share, 2 * HOP_LANES);
        if (dtype == HOP_F32)
            tangent(HOP_F32, range, count, n, gate, up, dgate, dup, dy);
        else
            tangent(HOP_BF16, range, count, n, gate, up, dgate, dup, dy);
    }
    return HOP_OK;
}
