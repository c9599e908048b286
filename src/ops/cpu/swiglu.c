/* y = silu(gate) * up and its gradients. */
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
