/* Matrix products inside the cpu backend. Each thread of the backend owns one handle and multiplies
 * its own rows with it: a call never starts threads, so a whole projection is one parallel region
 * and the LoRA terms meet a tile while it is still in the cache.
 *
 * The library behind it is chosen by the build: gemm_onednn.c or gemm_cblas.c. */
#ifndef HOP_OPS_CPU_GEMM_H
#define HOP_OPS_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

struct hop_gemm;

/* c (m, n) f32 = a (m, k) times b, plus c itself where `add`. b is (n, k) where `transposed`, else
 * (k, n). a and b have element type `dtype`. lda, ldb, ldc: elements between rows. */
struct hop_gemm_call {
    enum hop_dtype dtype;
    bool transposed, add;
    int64_t m, n, k;
    const void *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
};

hop_status hop_gemm_create(struct hop_gemm **out, struct hop_error *err);
void hop_gemm_free(struct hop_gemm *gemm);
hop_status hop_gemm_run(struct hop_gemm *gemm, const struct hop_gemm_call *call,
                        struct hop_error *err);
/* "oneDNN 2.6.3" */
const char *hop_gemm_library(void);

/* What a library's file provides: one product of exactly this shape. HOP_UNSUPPORTED (without a
 * message) from a bf16 product makes the caller convert to f32 and try again. */
struct hop_gemm_library;
hop_status hop_gemm_library_create(struct hop_gemm_library **out, struct hop_error *err);
void hop_gemm_library_free(struct hop_gemm_library *library);
hop_status hop_gemm_library_run(struct hop_gemm_library *library, const struct hop_gemm_call *call,
                                struct hop_error *err);
/* Row counts the library wants (16: it compiles a kernel per shape, so few shapes; 1: any). */
extern const int64_t hop_gemm_library_rows;

#endif
