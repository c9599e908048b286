/* What both libraries need around their product: a tail of rows padded to a known shape, and bf16
 * operands widened where the library (or the processor) has no bf16 product. */
#include "ops/cpu/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/cpu/simd.h"

enum { WIDEN_COLUMNS = 256 }; /* columns of b widened at a time */

struct buffer {
    void *data;
    size_t bytes;
};

struct hop_gemm {
    struct hop_gemm_library *library;
    bool widen; /* the library refused a bf16 product */
    struct buffer tail_a, tail_c, wide_a, wide_b;
};

hop_status hop_gemm_create(struct hop_gemm **out, struct hop_error *err)
{
    struct hop_gemm *gemm;
    HOP_TRY(hop_calloc(&gemm, 1, sizeof *gemm, err));
    const hop_status status = hop_gemm_library_create(&gemm->library, err);
    if (status != HOP_OK) {
        hop_gemm_free(gemm);
        return status;
    }
    *out = gemm;
    return HOP_OK;
}

void hop_gemm_free(struct hop_gemm *gemm)
{
    if (!gemm)
        return;
    hop_gemm_library_free(gemm->library);
    free(gemm->tail_a.data);
    free(gemm->tail_c.data);
    free(gemm->wide_a.data);
    free(gemm->wide_b.data);
    free(gemm);
}

static hop_status reserve(struct buffer *buffer, size_t bytes, struct hop_error *err)
{
    if (bytes <= buffer->bytes)
        return HOP_OK;
    free(buffer->data);
    *buffer = (struct buffer){0};
    HOP_TRY(hop_calloc_aligned(&buffer->data, bytes, 1, err));
    buffer->bytes = bytes;
    return HOP_OK;
}

static void widen(float *to, const uint16_t *from, int64_t rows, int64_t columns, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j += HOP_LANES)
            hop_v_store_upto(to + r * columns, HOP_F32, j,
                             hop_v_load_upto(from + r * stride, HOP_BF16, j, columns), columns);
}

/* bf16 operands through f32: all of a, and b a block of columns at a time. */
static hop_status run_widened(struct hop_gemm *gemm, const struct hop_gemm_call *call,
                              struct hop_error *err)
{
    HOP_TRY(reserve(&gemm->wide_a, (size_t)(call->m * call->k) * sizeof(float), err));
    HOP_TRY(reserve(&gemm->wide_b, (size_t)(WIDEN_COLUMNS * call->k) * sizeof(float), err));
    widen(gemm->wide_a.data, call->a, call->m, call->k, call->lda);
    for (int64_t n = 0; n < call->n; n += WIDEN_COLUMNS) {
        struct hop_gemm_call part = *call;
        part.dtype = HOP_F32;
        part.n = call->n - n < WIDEN_COLUMNS ? call->n - n : WIDEN_COLUMNS;
        const uint16_t *const b =
            (const uint16_t *)call->b + (call->transposed ? n * call->ldb : n);
        if (call->transposed)
            widen(gemm->wide_b.data, b, part.n, call->k, call->ldb);
        else
            widen(gemm->wide_b.data, b, call->k, part.n, call->ldb);
        part.a = gemm->wide_a.data;
        part.b = gemm->wide_b.data;
        part.c = call->c + n;
        part.lda = call->k;
        part.ldb = call->transposed ? call->k : part.n;
        HOP_TRY(hop_gemm_library_run(gemm->library, &part, err));
    }
    return HOP_OK;
}

static hop_status run_exact(struct hop_gemm *gemm, const struct hop_gemm_call *call,
                            struct hop_error *err)
{
    if (!gemm->widen || call->dtype == HOP_F32) {
        const hop_status status = hop_gemm_library_run(gemm->library, call, err);
        if (status != HOP_UNSUPPORTED)
            return status;
        gemm->widen = true;
    }
    return run_widened(gemm, call, err);
}

static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                      size_t width, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)to + (size_t)r * to_stride, (const char *)from + (size_t)r * from_stride,
               width);
}

/* Fewer rows than the library wants, in a padded copy. Rows past the end hold old numbers: they
 * only reach results that are thrown away. */
static hop_status run_tail(struct hop_gemm *gemm, const struct hop_gemm_call *call,
                           struct hop_error *err)
{
    const int64_t padded = hop_gemm_library_rows;
    const size_t size = hop_dtype_size(call->dtype);
    const size_t a_row = (size_t)call->k * size, c_row = (size_t)call->n * sizeof(float);
    HOP_TRY(reserve(&gemm->tail_a, (size_t)padded * a_row, err));
    HOP_TRY(reserve(&gemm->tail_c, (size_t)padded * c_row, err));
    struct hop_gemm_call whole = *call;
    whole.m = padded;
    whole.a = gemm->tail_a.data;
    whole.c = gemm->tail_c.data;
    whole.lda = call->k;
    whole.ldc = call->n;
    const size_t a_stride = (size_t)call->lda * size, c_stride = (size_t)call->ldc * sizeof(float);
    copy_rows(gemm->tail_a.data, a_row, call->a, a_stride, a_row, call->m);
    if (call->add)
        copy_rows(gemm->tail_c.data, c_row, call->c, c_stride, c_row, call->m);
    HOP_TRY(run_exact(gemm, &whole, err));
    copy_rows(call->c, c_stride, gemm->tail_c.data, c_row, c_row, call->m);
    return HOP_OK;
}

hop_status hop_gemm_run(struct hop_gemm *gemm, const struct hop_gemm_call *call,
                        struct hop_error *err)
{
    struct hop_gemm_call part = *call;
    if (!call->m || !call->n)
        return HOP_OK;
    part.m = call->m / hop_gemm_library_rows * hop_gemm_library_rows;
    if (part.m)
        HOP_TRY(run_exact(gemm, &part, err));
    if (part.m == call->m)
        return HOP_OK;
    part.a = (const char *)call->a + (size_t)(part.m * call->lda) * hop_dtype_size(call->dtype);
    part.c = call->c + part.m * call->ldc;
    part.m = call->m - part.m;
    return run_tail(gemm, &part, err);
}
