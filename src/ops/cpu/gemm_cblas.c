/* Matrix products through CBLAS, for builds without oneDNN. bf16 products are widened by the
 * caller. */
#include "ops/cpu/gemm.h"

#if !HYBRIDOP_HAVE_ONEDNN

#include <cblas.h>
#include <stdlib.h>

#include "base/memory.h"

const int64_t hop_gemm_library_rows = 1;

struct hop_gemm_library {
    int unused;
};

const char *hop_gemm_library(void)
{
#if defined(OPENBLAS_VERSION)
    return "OpenBLAS";
#else
    return "CBLAS";
#endif
}

hop_status hop_gemm_library_create(struct hop_gemm_library **out, struct hop_error *err)
{
#if defined(OPENBLAS_VERSION)
    /* The threads are ours: each multiplies its own rows. */
    openblas_set_num_threads(1);
#endif
    return hop_calloc(out, 1, sizeof **out, err);
}

void hop_gemm_library_free(struct hop_gemm_library *library)
{
    free(library);
}

hop_status hop_gemm_library_run(struct hop_gemm_library *library, const struct hop_gemm_call *call,
                                struct hop_error *err)
{
    (void)library;
    (void)err;
    if (call->dtype != HOP_F32)
        return HOP_UNSUPPORTED;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, call->transposed ? CblasTrans : CblasNoTrans,
                (int)call->m, (int)call->n, (int)call->k, 1.0f, call->a, (int)call->lda, call->b,
                (int)call->ldb, call->add ? 1.0f : 0.0f, call->c, (int)call->ldc);
    return HOP_OK;
}

#endif
