/* The table of tensor operations a backend offers, and the rules every backend keeps.
 *
 * A backend is one folder (reference/, cpu/, later cuda/, ascend/) that fills one `struct hop_ops`.
 * A backend whose backward entries are NULL is BP-free: that is the only place where the difference
 * between a board that can train by backpropagation and one that only runs forward lives in the
 * numeric code.
 *
 * Rules
 * - Matrices are row-major and contiguous unless a stride is named. Shapes stand beside the
 * pointers: rows = packed tokens, in/out = features, dim = hidden size.
 * - Activations have the element type `dtype` (HOP_F32 or HOP_BF16) of the call; adapters,
 * gradients of adapters, norms, softmax statistics and log-probabilities are always f32, and so is
 * every accumulation.
 * - Activation and adapter pointers are backend memory from alloc() (host memory where
 * `host_memory` is true). Small index arrays (ids, positions, offsets, labels) and
 * log-probabilities are host memory.
 * - Tangents (forward-mode differentiation) are forward operations: a backend without backward has
 * them. `count` tangents of the same primal call lie one after the other, (count * rows, dim); the
 * primal tensors lie there once. What is linear (embed with a frozen table, rope, gather) is its
 * own tangent.
 * - Rows are independent: a row's forward result is the same bits whatever other rows are in the
 * call only where a backend says so; equal calls always give equal bits.
 * - Calls may use scratch memory the backend keeps and grows; after the first call of each size
 * there is no allocation. One backend object is used by one thread at a time and runs `threads` of
 * its own.
 * - Nothing is checked against NaN here; callers check losses and norms.
 */
#ifndef HOP_OPS_OPS_H
#define HOP_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

struct hop_backend; /* an opened backend: threads, cached primitives, scratch */
struct hop_weight;  /* a frozen matrix (out, in), prepared by the backend */

/* What a weight will be used for; decides whether it is borrowed, converted or packed. */
enum hop_weight_use {
    HOP_WEIGHT_LOOKUP = 1,  /* embed */
    HOP_WEIGHT_FORWARD = 2, /* project_forward, loss_forward */
    HOP_WEIGHT_BACKWARD = 4 /* project_backward, loss_backward */
};

/* LoRA adapters of one projection (Hu et al. 2021): y += scale * (x A^T) B^T. With groups > 1 the
 * rows are that many equal runs and run g uses its own pair, e.g. one perturbed adapter a probe. */
struct hop_lora {
    int32_t rank, groups;
    float scale;
    const float *a;        /* (groups, rank, in) */
    const float *b;        /* (groups, out, rank) */
    const int32_t *offset; /* (groups + 1) rows of each group, host memory; NULL: equal runs */
};

/* One of the projections that read the same input x (q/k/v, gate/up, or a single one). */
struct hop_projection {
    const struct hop_weight *weight; /* (out, in) */
    const float *bias;               /* (out) f32, backend memory; NULL: none */
    const struct hop_lora *lora;     /* NULL: no adapter */
    void *y;                         /* forward result (rows, out) */
    float *u;       /* (rows, rank): x A^T; written by forward unless NULL, read by backward */
    const void *dy; /* backward: gradient of y (rows, out) */
    float *da;      /* backward: (rank, in), added to; NULL where not wanted */
    float *db;      /* backward: (out, rank), added to; NULL where not wanted */
};

/* The tangent of one projection. The directions da, db of its adapters are groups like those of a
 * hop_lora: group g belongs to rows offset[g] .. offset[g + 1] of the count * rows tangent rows
 * (NULL: equal runs), which are copies of the primal rows. */
struct hop_projection_tangent {
    const struct hop_weight *weight; /* (out, in) */
    const struct hop_lora *lora;     /* the primal adapters, groups 1; NULL: no adapter */
    const float *u;                  /* (rows, rank) of the primal call; with lora */
    int32_t groups;                  /* of the directions; 0: the adapters do not move */
    const float *da;                 /* (groups, rank, in); NULL: A does not move */
    const float *db;                 /* (groups, out, rank); NULL: B does not move */
    const int32_t *offset;           /* (groups + 1) */
    void *dy;                        /* result (count * rows, out) */
};

/* Causal grouped-query attention over packed sequences. Query i of sequence s (there are
 * q_offset[s+1]-q_offset[s]) sees keys 0 .. keys_s - queries_s + i of the sequence's
 * keys_s = kv_offset[s+1]-kv_offset[s] >= queries_s, so a cache of earlier keys is just a longer kv
 * run.
 *
 * Query head h reads key/value head (first + h) / group. Both are zero where the kv_heads are
 * shared evenly: group 0 is heads / kv_heads. A run of heads cut out of a model keeps the model's
 * group and may begin inside one. */
struct hop_attention {
    int32_t sequences, heads, kv_heads, head_dim;
    int32_t group, first;
    const int32_t *q_offset;  /* (sequences + 1), rows of q and out */
    const int32_t *kv_offset; /* (sequences + 1), rows of k and v */
    int64_t q_stride;         /* elements between rows of q, dq */
    int64_t kv_stride;        /* elements between rows of k, v, dk, dv */
    float scale;              /* 1 / sqrt(head_dim) */
};

struct hop_ops {
    const char *name; /* "cpu" */
    bool host_memory; /* alloc() returns memory the host can read and write */

    hop_status (*open)(int32_t threads, struct hop_backend **out, struct hop_error *err);
    void (*close)(struct hop_backend *backend);
    /* One line for people: which matrix product library, which instructions. Valid until close. */
    const char *(*describe)(const struct hop_backend *backend);

    /* Memory: zeroed, aligned to 64 bytes. */
    hop_status (*alloc)(struct hop_backend *backend, size_t bytes, void **out,
                        struct hop_error *err);
    void (*release)(struct hop_backend *backend, void *memory);
    hop_status (*write)(struct hop_backend *backend, void *to, const void *from_host, size_t bytes,
                        struct hop_error *err);
    hop_status (*read)(struct hop_backend *backend, void *to_host, const void *from, size_t bytes,
                       struct hop_error *err);

    /* Prepares a frozen matrix. `host` (out*in elements of host_dtype) must stay valid as long as
     * the weight: a backend borrows it where it can. dtype is the element type of the activations
     * it meets. */
    hop_status (*weight_create)(struct hop_backend *backend, const void *host,
                                enum hop_dtype host_dtype, int64_t out, int64_t in,
                                enum hop_dtype dtype, unsigned uses, struct hop_weight **weight,
                                struct hop_error *err);
    void (*weight_free)(struct hop_backend *backend, struct hop_weight *weight);
    /* Bytes the weight holds beyond the borrowed host memory. */
    size_t (*weight_bytes)(const struct hop_weight *weight);

    /* y[t] = table[ids[t]]; table (vocabulary, dim), y (tokens, dim). */
    hop_status (*embed_forward)(struct hop_backend *backend, enum hop_dtype dtype,
                                const struct hop_weight *table, int32_t tokens, const int32_t *ids,
                                void *y, struct hop_error *err);
    /* dtable[ids[t]] += dy[t]; dtable (vocabulary, dim) f32. */
    hop_status (*embed_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t dim,
                                 int32_t tokens, const int32_t *ids, const void *dy, float *dtable,
                                 struct hop_error *err);

    /* y = x * rstd * gain, rstd = 1/sqrt(mean(x^2) + eps); gain (dim) f32; rstd (rows) may be NULL.
     */
    hop_status (*rmsnorm_forward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                  int64_t dim, const void *x, const float *gain, float eps, void *y,
                                  float *rstd, struct hop_error *err);
    /* dx += gradient through the norm of dy (rows, dim). The gain is frozen. */
    hop_status (*rmsnorm_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   int64_t dim, const void *x, const float *gain, const float *rstd,
                                   const void *dy, void *dx, struct hop_error *err);

    /* For each of n projections of the same x (rows, in): y = x W^T [+ bias] [+ residual] [+ scale
     * (x A^T) B^T]. residual (rows, out) is for n == 1, may be NULL, may equal y. */
    hop_status (*project_forward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                  const void *x, const struct hop_projection *projections, int n,
                                  const void *residual, struct hop_error *err);
    /* dx = sum over projections of dy W + scale (dy B) A, overwritten unless NULL;
     * da += scale (dy B)^T x, db += scale dy^T u. lora.groups must be 1. Biases are frozen and
     * change none of these. */
    hop_status (*project_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   const void *x, const struct hop_projection *projections, int n,
                                   void *dx, struct hop_error *err);

    /* Rotary embedding, half-split pairs (j, j + head_dim/2), in place on x (rows, heads, head_dim)
     * with `stride` elements between rows. cosine, sine (positions, head_dim/2) f32, backend
     * memory, both perhaps times a factor (YaRN); position (rows) host. */
    hop_status (*rope_forward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                               int32_t heads, int32_t head_dim, int64_t stride,
                               const int32_t *position, const float *cosine, const float *sine,
                               void *x, struct hop_error *err);
    /* The transpose, in place on the gradient: the inverse rotation times the same factor. */
    hop_status (*rope_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                int32_t heads, int32_t head_dim, int64_t stride,
                                const int32_t *position, const float *cosine, const float *sine,
                                void *dx, struct hop_error *err);

    /* Never stores a queries x keys matrix (online softmax over tiles; Dao et al. 2022). out (rows
     * of q, heads*head_dim) contiguous; lse (rows of q, heads) = log sum exp of the scaled scores,
     * may be NULL. */
    hop_status (*attention_forward)(struct hop_backend *backend, enum hop_dtype dtype,
                                    const struct hop_attention *shape, const void *q, const void *k,
                                    const void *v, void *out, float *lse, struct hop_error *err);
    /* dq, dk, dv overwritten, strides as q and k; q_offset equals kv_offset here. */
    hop_status (*attention_backward)(struct hop_backend *backend, enum hop_dtype dtype,
                                     const struct hop_attention *shape, const void *q,
                                     const void *k, const void *v, const void *out,
                                     const float *lse, const void *dout, void *dq, void *dk,
                                     void *dv, struct hop_error *err);

    /* y = silu(gate) * up, n elements; y may equal gate. */
    hop_status (*swiglu_forward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                 const void *gate, const void *up, void *y, struct hop_error *err);
    /* dgate and dup overwritten; dgate may equal gate, dup may equal up. */
    hop_status (*swiglu_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                  const void *gate, const void *up, const void *dy, void *dgate,
                                  void *dup, struct hop_error *err);

    /* y[i] = x[row[i]], i < n; x (anything, dim), y (n, dim). row is host memory. */
    hop_status (*gather_forward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                 int64_t dim, const void *x, const int32_t *row, void *y,
                                 struct hop_error *err);
    /* dx (rows, dim) overwritten: zero, plus dy[i] at row[i]; the rows are distinct. */
    hop_status (*gather_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                  int64_t dim, const void *dy, const int32_t *row, int64_t rows,
                                  void *dx, struct hop_error *err);

    /* Log-probabilities under softmax(x head^T): logprob[j] of token id[j] at row row[j], j <
     * labels; x (rows, dim), row ascending and each in [0, rows). Logits exist only for a chunk of
     * rows at a time, never as a rows x vocabulary matrix. */
    hop_status (*loss_forward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                               const void *x, const struct hop_weight *head, int32_t labels,
                               const int32_t *row, const int32_t *id, float *logprob,
                               struct hop_error *err);
    /* The same as loss_forward, and dx (rows, dim) = gradient of -scale * sum_j logprob[j]; rows
     * without a label get 0. */
    hop_status (*loss_backward)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                const void *x, const struct hop_weight *head, int32_t labels,
                                const int32_t *row, const int32_t *id, float scale, float *logprob,
                                void *dx, struct hop_error *err);

    /* Adapter gradients of one projection of x (rows, in) whose output's gradient dy is known, by
     * products of matrices alone, so that a backend without backward has it too: da += scale (dy
     * B)^T x, db += scale dy^T u, u = x A^T. lora.groups must be 1. Of the projection only weight
     * (for its shape), lora, u, dy, da and db are read. */
    hop_status (*adapter_gradient)(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   const void *x, const struct hop_projection *projection,
                                   struct hop_error *err);

    /* dy = gain * rstd * (dx - x * rstd^2 * mean(x * dx)); dx, dy (count * rows, dim), may be
     * equal. */
    hop_status (*rmsnorm_tangent)(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                  int64_t rows, int64_t dim, const void *x, const float *gain,
                                  const float *rstd, const void *dx, void *dy,
                                  struct hop_error *err);
    /* For each of n projections of the same x (rows, in) and its tangent dx (count * rows, in):
     * dy = dx W^T [+ residual] + scale ((dx A^T + x dA^T) B^T + (x A^T) dB^T). dx NULL: zero, then
     * only the directions count. residual (count * rows, out) is for n == 1, may be NULL, may
     * equal dy. */
    hop_status (*project_tangent)(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                  int64_t rows, const void *x, const void *dx,
                                  const struct hop_projection_tangent *projections, int n,
                                  const void *residual, struct hop_error *err);
    /* dout (count * rows, heads*head_dim): with P the probabilities of the primal call and S its
     * scaled scores, dP = P (dS - sum_k P dS) and dout = dP V + P dV. `shape` is that of the primal
     * call (q_offset equals kv_offset); dq, dk, dv have its strides, tangent after tangent. */
    hop_status (*attention_tangent)(struct hop_backend *backend, enum hop_dtype dtype,
                                    const struct hop_attention *shape, int32_t count, const void *q,
                                    const void *k, const void *v, const void *out, const float *lse,
                                    const void *dq, const void *dk, const void *dv, void *dout,
                                    struct hop_error *err);
    /* dy = silu'(gate) up dgate + silu(gate) dup; dgate, dup, dy (count * n); dy may equal dgate.
     */
    hop_status (*swiglu_tangent)(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                 int64_t n, const void *gate, const void *up, const void *dgate,
                                 const void *dup, void *dy, struct hop_error *err);
    /* dlogprob[c * labels + j] = derivative of logprob[j] along tangent c of dx (count * rows,
     * dim). */
    hop_status (*loss_tangent)(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                               int64_t rows, const void *x, const void *dx,
                               const struct hop_weight *head, int32_t labels, const int32_t *row,
                               const int32_t *id, float *dlogprob, struct hop_error *err);
};

static inline int32_t hop_attention_group(const struct hop_attention *shape)
{
    return shape->group > 0 ? shape->group : shape->heads / shape->kv_heads;
}

/* All backends of this build, NULL-terminated: "cpu", "reference". */
extern const struct hop_ops *const hop_backends[];
/* NULL when there is none of that name. */
const struct hop_ops *hop_backend_find(const char *name);
/* True when every backward entry is there. */
bool hop_ops_bp_capable(const struct hop_ops *ops);
/* A copy without backward entries: how any device is made BP-free. */
struct hop_ops hop_ops_forward_only(const struct hop_ops *ops);

#endif
