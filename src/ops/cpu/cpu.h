/* The cpu backend: matrix products from a library, everything else in our own vector kernels,
 * threads from OpenMP. Internals of src/ops/cpu/.
 *
 * Work is cut the same way for the same shapes and thread count and no sum crosses threads in an
 * unfixed order, so equal calls give equal bits. Scratch is reserved before a parallel region;
 * inside one only a matrix product can fail, and each thread keeps its own error. Work is given to
 * numbered shares rather than to threads, so that a runtime that grants fewer threads still does
 * all of it. */
#ifndef HOP_OPS_CPU_CPU_H
#define HOP_OPS_CPU_CPU_H

#include "ops/backends.h"
#include "ops/cpu/gemm.h"
#include "ops/ops.h"

enum { HOP_CPU_ROWS = 256 }; /* rows of activations a thread takes at a time: fits the cache */

struct hop_cpu_thread {
    struct hop_gemm *gemm;
    char *scratch;
    size_t bytes;
    hop_status status; /* of the running call */
    struct hop_error err;
};

struct hop_backend {
    int32_t threads;
    struct hop_cpu_thread *thread; /* (threads) */
    char *shared;                  /* scratch all threads see */
    size_t shared_bytes;
    char text[96];
};

struct hop_weight {
    const void *data; /* (out, in) of dtype: borrowed or owned */
    void *owned;      /* NULL when borrowed */
    int64_t out, in;
    enum hop_dtype dtype; /* a table only looked up keeps the type it came in */
};

/* Makes room for scratch; contents are undefined afterwards. */
hop_status hop_cpu_reserve(struct hop_backend *backend, size_t each, size_t shared,
                           struct hop_error *err);
/* Gives out parts of a scratch buffer: the offset of `bytes` more, *total grown past them. */
static inline size_t hop_cpu_place(size_t *total, size_t bytes)
{
    const size_t at = *total;
    *total += (bytes + 63) / 64 * 64;
    return at;
}

/* First thing in a parallel region that multiplies: keeps the thread's library calls serial. */
void hop_cpu_enter(void);
/* The scratch of the calling thread of a region. */
char *hop_cpu_scratch(const struct hop_backend *backend);
/* After the region: the first thread's error, if any. */
hop_status hop_cpu_leave(const struct hop_backend *backend, struct hop_error *err);

/* Threads worth starting for `work` elements of a cheap elementwise pass. */
int hop_cpu_threads_for(const struct hop_backend *backend, int64_t work);

/* Share `index` of n items cut into `parts` runs whose bounds are multiples of `unit`. */
struct hop_cpu_range {
    int64_t begin, end;
};
struct hop_cpu_range hop_cpu_share(int64_t n, int64_t parts, int64_t index, int64_t unit);

hop_status hop_cpu_embed_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                 const struct hop_weight *table, int32_t tokens, const int32_t *ids,
                                 void *y, struct hop_error *err);
hop_status hop_cpu_embed_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t dim,
                                  int32_t tokens, const int32_t *ids, const void *dy, float *dtable,
                                  struct hop_error *err);
hop_status hop_cpu_gather_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                  int64_t dim, const void *x, const int32_t *row, void *y,
                                  struct hop_error *err);
hop_status hop_cpu_gather_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                   int64_t dim, const void *dy, const int32_t *row, int64_t rows,
                                   void *dx, struct hop_error *err);

hop_status hop_cpu_rmsnorm_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   int64_t dim, const void *x, const float *gain, float eps,
                                   void *y, float *rstd, struct hop_error *err);
hop_status hop_cpu_rmsnorm_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                    int64_t dim, const void *x, const float *gain,
                                    const float *rstd, const void *dy, void *dx,
                                    struct hop_error *err);
hop_status hop_cpu_rope_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                int32_t heads, int32_t head_dim, int64_t stride,
                                const int32_t *position, const float *cosine, const float *sine,
                                void *x, struct hop_error *err);
hop_status hop_cpu_rope_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                 int32_t heads, int32_t head_dim, int64_t stride,
                                 const int32_t *position, const float *cosine, const float *sine,
                                 void *dx, struct hop_error *err);
hop_status hop_cpu_swiglu_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                  const void *gate, const void *up, void *y, struct hop_error *err);
hop_status hop_cpu_swiglu_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t n,
                                   const void *gate, const void *up, const void *dy, void *dgate,
                                   void *dup, struct hop_error *err);

hop_status hop_cpu_project_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   const void *x, const struct hop_projection *projections, int n,
                                   const void *residual, struct hop_error *err);
hop_status hop_cpu_project_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                    const void *x, const struct hop_projection *projections, int n,
                                    void *dx, struct hop_error *err);

hop_status hop_cpu_attention_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                     const struct hop_attention *shape, const void *q,
                                     const void *k, const void *v, void *out, float *lse,
                                     struct hop_error *err);
hop_status hop_cpu_attention_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                      const struct hop_attention *shape, const void *q,
                                      const void *k, const void *v, const void *out,
                                      const float *lse, const void *dout, void *dq, void *dk,
                                      void *dv, struct hop_error *err);

hop_status hop_cpu_loss_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                const void *x, const struct hop_weight *head, int32_t labels,
                                const int32_t *row, const int32_t *id, float *logprob,
                                struct hop_error *err);
hop_status hop_cpu_loss_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                 const void *x, const struct hop_weight *head, int32_t labels,
                                 const int32_t *row, const int32_t *id, float scale, float *logprob,
                                 void *dx, struct hop_error *err);

hop_status hop_cpu_adapter_gradient(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                    const void *x, const struct hop_projection *projection,
                                    struct hop_error *err);
hop_status hop_cpu_rmsnorm_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                   int64_t rows, int64_t dim, const void *x, const float *gain,
                                   const float *rstd, const void *dx, void *dy,
                                   struct hop_error *err);
hop_status hop_cpu_project_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                   int64_t rows, const void *x, const void *dx,
                                   const struct hop_projection_tangent *projections, int n,
                                   const void *residual, struct hop_error *err);
hop_status hop_cpu_attention_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                     const struct hop_attention *shape, int32_t count,
                                     const void *q, const void *k, const void *v, const void *out,
                                     const float *lse, const void *dq, const void *dk,
                                     const void *dv, void *dout, struct hop_error *err);
hop_status hop_cpu_swiglu_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                  int64_t n, const void *gate, const void *up, const void *dgate,
                                  const void *dup, void *dy, struct hop_error *err);
hop_status hop_cpu_loss_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                int64_t rows, const void *x, const void *dx,
                                const struct hop_weight *head, int32_t labels, const int32_t *row,
                                const int32_t *id, float *dlogprob, struct hop_error *err);

#endif
