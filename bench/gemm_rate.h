/* The rate of bare matrix products, the yardstick beside every training figure: the same library,
 * the same threads and the same way of sharing rows as the cpu backend, and nothing else. */
#ifndef HOP_BENCH_GEMM_RATE_H
#define HOP_BENCH_GEMM_RATE_H

#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ops/cpu/gemm.h"

enum { GEMM_RATE_THREADS_MAX = 256 };

/* On a machine others use, processor time divided by the threads says more than the wall clock. Run
 * it with OMP_WAIT_POLICY=passive then, so that waiting costs nothing. */
static bool gemm_rate_processor_time = false;

static inline double gemm_rate_now(int threads)
{
    struct timespec time;
    if (!gemm_rate_processor_time)
        return hop_clock_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return ((double)time.tv_sec + 1e-9 * (double)time.tv_nsec) / threads;
}

static inline void gemm_rate_check(hop_status status, const struct hop_error *err)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

/* Small numbers of either type, so that no product is subnormal or infinite. */
static inline void *gemm_rate_matrix(enum hop_dtype dtype, int64_t n)
{
    struct hop_error err;
    void *matrix;
    gemm_rate_check(hop_calloc_aligned(&matrix, (size_t)n, hop_dtype_size(dtype), &err), &err);
    for (int64_t i = 0; i < n; i++)
        if (dtype == HOP_F32)
            ((float *)matrix)[i] = (float)(i % 17 - 8) * 0.01f;
        else
            ((uint16_t *)matrix)[i] = hop_bf16_from_f32((float)(i % 17 - 8) * 0.01f);
    return matrix;
}

/* GFLOP/s of c (m, n) = a (m, k) b^T, b (n, k), where `transposed`, else a b with b (k, n): the
 * best of the runs of about `seconds`. */
static inline double gemm_rate(int threads, enum hop_dtype dtype, bool transposed, int64_t m,
                               int64_t n, int64_t k, double seconds)
{
    struct hop_error errors[GEMM_RATE_THREADS_MAX];
    struct hop_gemm *gemm[GEMM_RATE_THREADS_MAX];
    void *const a = gemm_rate_matrix(dtype, m * k), *const b = gemm_rate_matrix(dtype, n * k);
    float *const c = gemm_rate_matrix(HOP_F32, m * n);
    for (int t = 0; t < threads; t++)
        gemm_rate_check(hop_gemm_create(&gemm[t], &errors[t]), &errors[t]);
    double best = 1e30, spent = 0.0;
    for (int run = 0; run < 3 || spent < seconds; run++) {
        const double start = gemm_rate_now(threads);
#pragma omp parallel num_threads(threads)
        {
            omp_set_num_threads(1);
#pragma omp for schedule(static, 1)
            for (int t = 0; t < threads; t++) {
                const int64_t begin = m / 16 * t / threads * 16;
                const int64_t end = t + 1 == threads ? m : m / 16 * (t + 1) / threads * 16;
                const struct hop_gemm_call call = {.dtype = dtype,
                                                   .transposed = transposed,
                                                   .m = end - begin,
                                                   .n = n,
                                                   .k = k,
                                                   .a = (const char *)a +
                                                        (size_t)(begin * k) * hop_dtype_size(dtype),
                                                   .b = b,
                                                   .c = c + begin * n,
                                                   .lda = k,
                                                   .ldb = transposed ? k : n,
                                                   .ldc = n};
                gemm_rate_check(hop_gemm_run(gemm[t], &call, &errors[t]), &errors[t]);
            }
        }
        const double took = gemm_rate_now(threads) - start;
        best = took < best ? took : best;
        spent += took;
    }
    for (int t = 0; t < threads; t++)
        hop_gemm_free(gemm[t]);
    free(a);
    free(b);
    free(c);
    return 2.0 * (double)m * (double)n * (double)k / best * 1e-9;
}

#endif
