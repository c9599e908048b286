/* Memory, frozen weights and the table of the reference backend. */
#include <stdlib.h>

#include "base/memory.h"
#include "ops/host_memory.h"
#include "ops/reference/reference.h"

static hop_status open_backend(int32_t threads, struct hop_backend **out, struct hop_error *err)
{
    struct hop_backend *backend;
    HOP_TRY(hop_calloc(&backend, 1, sizeof *backend, err));
    backend->threads = threads;
    *out = backend;
    return HOP_OK;
}

static void close_backend(struct hop_backend *backend)
{
    free(backend);
}

static const char *describe(const struct hop_backend *backend)
{
    (void)backend;
    return "reference: plain loops, sums in double, one thread";
}

static void weight_free(struct hop_backend *backend, struct hop_weight *weight)
{
    (void)backend;
    if (!weight)
        return;
    free(weight->owned);
    free(weight);
}

static hop_status weight_create(struct hop_backend *backend, const void *host,
                                enum hop_dtype host_dtype, int64_t out, int64_t in,
                                enum hop_dtype dtype, unsigned uses, struct hop_weight **weight,
                                struct hop_error *err)
{
    (void)uses;
    struct hop_weight *made;
    HOP_TRY(hop_calloc(&made, 1, sizeof *made, err));
    *made = (struct hop_weight){.data = host, .out = out, .in = in, .dtype = dtype};
    if (host_dtype != dtype) {
        const size_t n = (size_t)out * (size_t)in;
        const hop_status status = hop_calloc_aligned(&made->owned, n, hop_dtype_size(dtype), err);
        if (status != HOP_OK) {
            weight_free(backend, made);
            return status;
        }
        hop_convert(made->owned, dtype, host, host_dtype, n);
        made->data = made->owned;
    }
    *weight = made;
    return HOP_OK;
}

static size_t weight_bytes(const struct hop_weight *weight)
{
    const size_t n = (size_t)weight->out * (size_t)weight->in;
    return weight->owned ? n * hop_dtype_size(weight->dtype) : 0;
}

const struct hop_ops hop_reference_ops = {
    .name = "reference",
    .host_memory = true,
    .open = open_backend,
    .close = close_backend,
    .describe = describe,
    .alloc = hop_host_alloc,
    .release = hop_host_release,
    .write = hop_host_copy,
    .read = hop_host_copy,
    .weight_create = weight_create,
    .weight_free = weight_free,
    .weight_bytes = weight_bytes,
    .embed_forward = hop_reference_embed_forward,
    .embed_backward = hop_reference_embed_backward,
    .rmsnorm_forward = hop_reference_rmsnorm_forward,
    .rmsnorm_backward = hop_reference_rmsnorm_backward,
    .project_forward = hop_reference_project_forward,
    .project_backward = hop_reference_project_backward,
    .rope_forward = hop_reference_rope_forward,
    .rope_backward = hop_reference_rope_backward,
    .attention_forward = hop_reference_attention_forward,
    .attention_backward = hop_reference_attention_backward,
    .swiglu_forward = hop_reference_swiglu_forward,
    .swiglu_backward = hop_reference_swiglu_backward,
    .gather_forward = hop_reference_gather_forward,
    .gather_backward = hop_reference_gather_backward,
    .loss_forward = hop_reference_loss_forward,
    .loss_backward = hop_reference_loss_backward,
    .adapter_gradient = hop_reference_adapter_gradient,
    .rmsnorm_tangent = hop_reference_rmsnorm_tangent,
    .project_tangent = hop_reference_project_tangent,
    .attention_tangent = hop_reference_attention_tangent,
    .swiglu_tangent = hop_reference_swiglu_tangent,
    .loss_tangent = hop_reference_loss_tangent,
};
