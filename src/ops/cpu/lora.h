/* Products in which one side is as thin as a LoRA rank. General GEMM libraries reach a tenth of
 * their rate on them; these keep the thin side in registers and stream the other once.
 *
 * x and y have element type dtype, everything else is f32. ld*: elements between rows. */
#ifndef HOP_OPS_CPU_LORA_H
#define HOP_OPS_CPU_LORA_H

#include <stdint.h>

#include "base/dtype.h"

/* u (m, rank) = x (m, n) p^T, p (rank, n). */
void hop_lora_down(enum hop_dtype dtype, int64_t m, int64_t n, int64_t rank, const void *x,
                   int64_t ldx, const float *p, int64_t ldp, float *u, int64_t ldu);

/* y (m, n) = [c (m, n)] [+ bias (n)] [+ residual (m, n)] + u (m, rank) p, where row r of p is
 * row[r] (n). rank may be 0; y may be c or residual; what is NULL counts as zero. */
struct hop_lora_up {
    enum hop_dtype dtype; /* of residual and y */
    int64_t m, n, rank;
    const float *u;
    int64_t ldu;
    const float *const *row;
    const float *c;
    int64_t ldc;
    const float *bias;
    const void *residual;
    void *y;
    int64_t ldy; /* of residual and y */
};
void hop_lora_up(const struct hop_lora_up *call);

/* g (rank, n) += u^T (m, rank) x (m, n). */
void hop_lora_outer(enum hop_dtype dtype, int64_t m, int64_t n, int64_t rank, const float *u,
                    int64_t ldu, const void *x, int64_t ldx, float *g, int64_t ldg);

#endif
