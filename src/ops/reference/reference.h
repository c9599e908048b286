/* The reference backend: plain loops, one thread, sums in double. Every other backend is tested
 * against it, so it favours being evidently right over everything else. Internals of
 * src/ops/reference/. */
#ifndef HOP_OPS_REFERENCE_REFERENCE_H
#define HOP_OPS_REFERENCE_REFERENCE_H

#include <string.h>

#include "ops/backends.h"
#include "ops/ops.h"

struct hop_backend {
    int32_t threads; /* asked for; one is used */
};

struct hop_weight {
    const void *data; /* (out, in) of dtype: borrowed or owned */
    void *owned;      /* NULL when borrowed */
    int64_t out, in;
    enum hop_dtype dtype;
};

/* Borrowed weights lie where a file put them, perhaps at an odd address. */
static inline double hop_reference_load(const void *from, enum hop_dtype dtype, int64_t i)
{
    if (dtype == HOP_F32) {
        float value;
        memcpy(&value, (const char *)from + i * 4, sizeof value);
        return (double)value;
    }
    uint16_t bits;
    memcpy(&bits, (const char *)from + i * 2, sizeof bits);
    return (double)hop_bf16_to_f32(bits);
}

static inline void hop_reference_store(void *to, enum hop_dtype dtype, int64_t i, double value)
{
    if (dtype == HOP_F32)
        ((float *)to)[i] = (float)value;
    else
        ((uint16_t *)to)[i] = hop_bf16_from_f32((float)value);
}

/* Which of `groups` runs of `rows` rows a row belongs to; offset NULL: equal runs. */
int64_t hop_reference_group(int32_t groups, const int32_t *offset, int64_t rows, int64_t row);

hop_status hop_reference_embed_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                       const struct hop_weight *table, int32_t tokens,
                                       const int32_t *ids, void *y, struct hop_error *err);
hop_status hop_reference_embed_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                        int64_t dim, int32_t tokens, const int32_t *ids,
                                        const void *dy, float *dtable, struct hop_error *err);
hop_status hop_reference_gather_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                        int64_t n, int64_t dim, const void *x, const int32_t *row,
                                        void *y, struct hop_error *err);
hop_status hop_reference_gather_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t n, int64_t dim, const void *dy, const int32_t *row,
                                         int64_t rows, void *dx, struct hop_error *err);

hop_status hop_reference_rmsnorm_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t rows, int64_t dim, const void *x,
                                         const float *gain, float eps, void *y, float *rstd,
                                         struct hop_error *err);
hop_status hop_reference_rmsnorm_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                          int64_t rows, int64_t dim, const void *x,
                                          const float *gain, const float *rstd, const void *dy,
                                          void *dx, struct hop_error *err);
hop_status hop_reference_rope_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                      int64_t rows, int32_t heads, int32_t head_dim, int64_t stride,
                                      const int32_t *position, const float *cosine,
                                      const float *sine, void *x, struct hop_error *err);
hop_status hop_reference_rope_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                       int64_t rows, int32_t heads, int32_t head_dim,
                                       int64_t stride, const int32_t *position, const float *cosine,
                                       const float *sine, void *dx, struct hop_error *err);
hop_status hop_reference_swiglu_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                        int64_t n, const void *gate, const void *up, void *y,
                                        struct hop_error *err);
hop_status hop_reference_swiglu_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t n, const void *gate, const void *up,
                                         const void *dy, void *dgate, void *dup,
                                         struct hop_error *err);

hop_status hop_reference_project_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                         int64_t rows, const void *x,
                                         const struct hop_projection *projections, int n,
                                         const void *residual, struct hop_error *err);
hop_status hop_reference_project_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                          int64_t rows, const void *x,
                                          const struct hop_projection *projections, int n, void *dx,
                                          struct hop_error *err);

hop_status hop_reference_attention_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                           const struct hop_attention *shape, const void *q,
                                           const void *k, const void *v, void *out, float *lse,
                                           struct hop_error *err);
hop_status hop_reference_attention_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                            const struct hop_attention *shape, const void *q,
                                            const void *k, const void *v, const void *out,
                                            const float *lse, const void *dout, void *dq, void *dk,
                                            void *dv, struct hop_error *err);

hop_status hop_reference_loss_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                      int64_t rows, const void *x, const struct hop_weight *head,
                                      int32_t labels, const int32_t *row, const int32_t *id,
                                      float *logprob, struct hop_error *err);
hop_status hop_reference_loss_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                       int64_t rows, const void *x, const struct hop_weight *head,
                                       int32_t labels, const int32_t *row, const int32_t *id,
                                       float scale, float *logprob, void *dx,
                                       struct hop_error *err);

hop_status hop_reference_adapter_gradient(struct hop_backend *backend, enum hop_dtype dtype,
                                          int64_t rows, const void *x,
                                          const struct hop_projection *projection,
                                          struct hop_error *err);
hop_status hop_reference_rmsnorm_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                         int32_t count, int64_t rows, int64_t dim, const void *x,
                                         const float *gain, const float *rstd, const void *dx,
                                         void *dy, struct hop_error *err);
hop_status hop_reference_project_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                         int32_t count, int64_t rows, const void *x, const void *dx,
                                         const struct hop_projection_tangent *projections, int n,
                                         const void *residual, struct hop_error *err);
hop_status hop_reference_attention_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                           const struct hop_attention *shape, int32_t count,
                                           const void *q, const void *k, const void *v,
                                           const void *out, const float *lse, const void *dq,
                                           const void *dk, const void *dv, void *dout,
                                           struct hop_error *err);
hop_status hop_reference_swiglu_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                        int32_t count, int64_t n, const void *gate, const void *up,
                                        const void *dgate, const void *dup, void *dy,
                                        struct hop_error *err);
hop_status hop_reference_loss_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                      int32_t count, int64_t rows, const void *x, const void *dx,
                                      const struct hop_weight *head, int32_t labels,
                                      const int32_t *row, const int32_t *id, float *dlogprob,
                                      struct hop_error *err);

#endif
