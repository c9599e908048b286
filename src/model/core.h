/* Small adapters for gradients that are estimated: a core R between fixed factors.
 *
 *     y = W x + scale B R A x,   A (rank, in), B (out, rank) fixed, R (rank, rank) trained from 0
 *
 * The error of a zeroth-order estimate grows with the number of trained parameters, which is
 * rank^2 here instead of rank (in + out). A and B span the rank largest singular directions of W
 * (LoRA-XS, Balazy et al. 2024): W ~ U S V^T, A = V^T, B = U S. They follow from W alone, so every
 * device computes those of its own blocks, and nobody stores or sends them. Other programs read
 * such an adapter as plain LoRA with the factors A and B R. */
#ifndef HOP_MODEL_CORE_H
#define HOP_MODEL_CORE_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "model/lora.h"
#include "model/weights.h"

/* Truncated singular value decomposition of w (out, in) of dtype, row-major, by subspace iteration
 * from a start that depends on the shape only: a (rank, in) orthonormal rows, b (out, rank), by
 * descending singular value, the largest entry of every row of a positive. HOP_INPUT where rank
 * is above out or in. */
hop_status hop_core_factors(const void *w, enum hop_dtype dtype, int64_t out, int64_t in,
                            int32_t rank, float *a, float *b, struct hop_error *err);

/* Those of one projection of one block. */
hop_status hop_core_of(const struct hop_weights *weights, const struct hop_model_config *model,
                       int32_t block, enum hop_target target, int32_t rank, float *a, float *b,
                       struct hop_error *err);

/* to (out, rank) = b (out, rank) r (rank, rank) */
void hop_core_product(const float *b, const float *r, int64_t out, int64_t rank, float *to);

/* The fixed factors of all cores of blocks [lo, hi), at the places of A and B in a plain layout
 * (created here; hop_parameters_free()); 0 where A and B are trained. */
hop_status hop_core_fixed(const struct hop_weights *weights, const struct hop_model_config *model,
                          const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                          struct hop_parameters *out, struct hop_error *err);

/* The same adapters as plain LoRA: `out` (created here; hop_parameters_free()) has A and B of every
 * module, with A and B R where `parameters` has a core. *lora_out has no cores. What is written for
 * other programs, and what merges. `fixed` is of the same blocks. */
hop_status hop_core_expand(const struct hop_model_config *model, const struct hop_lora_config *lora,
                           const struct hop_parameters *fixed,
                           const struct hop_parameters *parameters, int32_t lo, int32_t hi,
                           struct hop_lora_config *lora_out, struct hop_parameters *out,
                           struct hop_error *err);

#endif
