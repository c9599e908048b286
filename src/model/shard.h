/* Tensor-parallel shards: which heads, feed-forward columns and slices of matrices one of them has.
 *
 * A gang of shards runs the same blocks on the same rows. q, k, v, gate and up are split by their
 * outputs (rows of W), o and down by their inputs (columns of W):
 *
 *   attention = sum over shards of o_s(attend(q_s x, k_s x, v_s x))
 *   feed forward = sum over shards of down_s(silu(gate_s x) * up_s x)
 *
 * so hidden states are added up behind o and behind down, their gradients in front of q, k, v and
 * in front of gate, up. Norms, embedding and head are whole on every shard; the residual and the
 * bias of o and down are added once, by the shard whose share begins at 0.
 *
 * Of an adapter W x + scale * B (A x), shards split the factor that touches the split side and hold
 * the other one whole: q, k, v, gate, up split B by rows and share A, o and down split A by columns
 * and share B. A shard's gradient of a shared factor is a partial sum.
 *
 * Quanta. Query heads follow their key/value head: a shard gets whole groups. Where that would
 * leave a shard without any, the gang cuts groups: query heads are dealt out one by one and a
 * key/value head is held by every shard that has a query head of its group; the rows of B of k and
 * v then are shared, too. Feed-forward columns come in multiples of 64, or of the largest power of
 * two that leaves 64 of them. */
#ifndef HOP_MODEL_SHARD_H
#define HOP_MODEL_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/share.h"
#include "model/config.h"
#include "model/lora.h"

/* One shard. All zero is a stage with whole tensors, and so is [0, 1). */
struct hop_shard {
    double lo, hi;    /* share of heads and feed-forward columns; shares of a gang tile [0, 1) */
    bool cuts_groups; /* the same on all parts of a plan */
};

bool hop_shard_is_whole(const struct hop_shard *shard);
/* Does it add the residual and the biases of o and down? */
bool hop_shard_is_first(const struct hop_shard *shard);
/* Does a share get a group of query heads, when groups are not cut? A gang cuts them unless all of
 * its shares do. */
bool hop_shard_gets_group(const struct hop_model_config *model, double lo, double hi);
/* HOP_UNSUPPORTED when the share is too small for a query head or for a quantum of feed-forward
 * columns. */
hop_status hop_shard_check(const struct hop_model_config *model, const struct hop_shard *shard,
                           struct hop_error *err);

/* Ranges of the model's query heads, key/value heads and feed-forward columns. Of shares that tile
 * [0, 1), query heads and columns tile; key/value heads do where groups are not cut. */
struct hop_range hop_shard_heads(const struct hop_model_config *model,
                                 const struct hop_shard *shard);
struct hop_range hop_shard_kv_heads(const struct hop_model_config *model,
                                    const struct hop_shard *shard);
struct hop_range hop_shard_columns(const struct hop_model_config *model,
                                   const struct hop_shard *shard);

/* The model as the shard sees it: fewer heads, key/value heads and feed-forward columns. Sizes of
 * projections and adapters follow from it. */
struct hop_model_config hop_shard_model(const struct hop_model_config *model,
                                        const struct hop_shard *shard);

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix. */
struct hop_submatrix {
    int64_t row, rows, column, columns;
};
/* What the shard holds of W (out, in). */
struct hop_submatrix hop_shard_weight(const struct hop_model_config *model,
                                      const struct hop_shard *shard, enum hop_target target);
/* What it holds of A (rank, in) or B (out, rank). */
struct hop_submatrix hop_shard_factor(const struct hop_model_config *model,
                                      const struct hop_shard *shard, enum hop_target target,
                                      enum hop_factor factor, int32_t rank);
/* Is a shard's gradient of this factor a partial sum? */
bool hop_shard_shares(const struct hop_shard *shard, enum hop_target target,
                      enum hop_factor factor);
/* Rows of the shard's slice (counted from its first row) that it speaks for: over a gang, every
 * element of the whole factor once. For sums of squares. */
struct hop_range hop_shard_own_rows(const struct hop_model_config *model,
                                    const struct hop_shard *shard, enum hop_target target,
                                    enum hop_factor factor, int32_t rank);

/* Between whole factors and a shard's. `whole` lays out at least blocks [lo, hi) of the model;
 * `values` are numbers in that layout, `slices` those of blocks [lo, hi) as a stage of the shard
 * lays them out. Both return how many numbers the shard has. */
size_t hop_shard_take(const struct hop_model_config *model, const struct hop_shard *shard,
                      const struct hop_parameters *whole, int32_t lo, int32_t hi,
                      const float *values, float *slices);
size_t hop_shard_put(const struct hop_model_config *model, const struct hop_shard *shard,
                     const struct hop_parameters *whole, int32_t lo, int32_t hi,
                     const float *slices, float *values);

/* Numbers that several parts add up once a mini-batch, the same on all of them: the shared factors
 * of blocks [lo, hi), whole; or of the split ones what a piece of the shares holds. */
struct hop_shard_sum {
    int32_t lo, hi;
    bool shared;
    struct hop_shard piece; /* lies in the share of every part; of shared ones, cuts_groups alone
                               counts */
};
size_t hop_shard_sum_count(const struct hop_model_config *model, const struct hop_shard_sum *sum,
                           const struct hop_parameters *part);
/* A part's numbers (laid out as `part`, which is the shard's), 0 where it holds none, and back. */
void hop_shard_sum_take(const struct hop_model_config *model, const struct hop_shard *shard,
                        const struct hop_shard_sum *sum, const struct hop_parameters *part,
                        const float *slices, float *numbers);
void hop_shard_sum_put(const struct hop_model_config *model, const struct hop_shard *shard,
                       const struct hop_shard_sum *sum, const struct hop_parameters *part,
                       const float *numbers, float *slices);

#endif
