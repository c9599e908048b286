/* Rows looked up in a table, rows gathered from activations, and their gradients. */
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

hop_status hop_cpu_embed_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                 const struct hop_weight *table, int32_t tokens, const int32_t *ids,
                                 void *y, struct hop_error *err)
{
    (void)err;
    const int64_t dim = table->in;
    const size_t from = (size_t)dim * hop_dtype_size(table->dtype);
    const size_t to = (size_t)dim * hop_dtype_size(dtype);
    const int threads = hop_cpu_threads_for(backend, tokens * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t t = 0; t < tokens; t++)
        hop_convert((char *)y + (size_t)t * to, dtype,
                    (const char *)table->data + (size_t)ids[t] * from, table->dtype, (size_t)dim);
    return HOP_OK;
}

/* Threads share out the columns, so that a row looked up twice is still summed in order. */
hop_status hop_cpu_embed_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t dim,
                                  int32_t tokens, const int32_t *ids, const void *dy, float *dtable,
                                  struct hop_error *err)
{
    (void)err;
    const int threads = hop_cpu_threads_for(backend, tokens * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int share = 0; share < threads; share++) {
        const struct hop_cpu_range columns = hop_cpu_share(dim, threads, share, HOP_LANES);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t j = columns.begin; j < columns.end; j += HOP_LANES) {
                float *const row = dtable + ids[t] * dim;
                const hop_v16 sum =
                    hop_v_load_upto(row, HOP_F32, j, dim) +
                    hop_v_load_upto((const char *)dy + (size_t)(t * dim) * hop_dtype_size(dtype),
                                    dtype, j, dim);
                hop_v_store_upto(row, HOP_F32, j, sum, dim);
            }
    }
    return HOP_OK;
}

hop_status hop_cpu_gather_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                  int64_t dim, const void *x, const int32_t *row, void *y,
                                  struct hop_error *err)
{
    (void)err;
    const size_t bytes = (size_t)dim * hop_dtype_size(dtype);
    const int threads = hop_cpu_threads_for(backend, n * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)y + (size_t)i * bytes, (const char *)x + (size_t)row[i] * bytes, bytes);
    return HOP_OK;
}

hop_status hop_cpu_gather_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                   int64_t dim, const void *dy, const int32_t *row, int64_t rows,
                                   void *dx, struct hop_error *err)
{
    (void)err;
    const size_t bytes = (size_t)dim * hop_dtype_size(dtype);
    memset(dx, 0, (size_t)rows * bytes);
    const int threads = hop_cpu_threads_for(backend, n * dim);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)dx + (size_t)row[i] * bytes, (const char *)dy + (size_t)i * bytes, bytes);
    return HOP_OK;
}
