/* Opening, memory, frozen weights, threads and the table of the cpu backend. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/cpu/cpu.h"
#include "ops/host_memory.h"

static void close_backend(struct hop_backend *backend)
{
    if (!backend)
        return;
    for (int32_t t = 0; backend->thread && t < backend->threads; t++) {
        hop_gemm_free(backend->thread[t].gemm);
        free(backend->thread[t].scratch);
    }
    free(backend->thread);
    free(backend->shared);
    free(backend);
}

static const char *instructions(void)
{
#if defined(__AVX512BF16__)
    return "AVX-512 BF16";
#elif defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__ARM_NEON)
    return "NEON";
#else
    return "baseline instructions";
#endif
}

static hop_status open_backend(int32_t threads, struct hop_backend **out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_backend *backend;
    HOP_TRY(hop_calloc(&backend, 1, sizeof *backend, err));
    backend->threads = threads < 1 ? 1 : threads;
    HOP_TRY_DONE(
        hop_calloc(&backend->thread, (size_t)backend->threads, sizeof *backend->thread, err));
    for (int32_t t = 0; t < backend->threads; t++)
        HOP_TRY_DONE(hop_gemm_create(&backend->thread[t].gemm, err));
    snprintf(backend->text, sizeof backend->text, "cpu: %s, %s, %d thread%s", hop_gemm_library(),
             instructions(), (int)backend->threads, backend->threads == 1 ? "" : "s");
    *out = backend;
done:
    if (status != HOP_OK)
        close_backend(backend);
    return status;
}

static const char *describe(const struct hop_backend *backend)
{
    return backend->text;
}

static void weight_free(struct hop_backend *backend, struct hop_weight *weight)
{
    (void)backend;
    if (!weight)
        return;
    free(weight->owned);
    free(weight);
}

static void convert(struct hop_backend *backend, struct hop_weight *weight, const void *host,
                    enum hop_dtype host_dtype)
{
    const size_t to_size = hop_dtype_size(weight->dtype), from_size = hop_dtype_size(host_dtype);
    const size_t in = (size_t)weight->in;
    char *const to = weight->owned;
    const int threads = hop_cpu_threads_for(backend, weight->out * weight->in);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < weight->out; row++)
        hop_convert(to + (size_t)row * in * to_size, weight->dtype,
                    (const char *)host + (size_t)row * in * from_size, host_dtype, in);
}

static hop_status weight_create(struct hop_backend *backend, const void *host,
                                enum hop_dtype host_dtype, int64_t out, int64_t in,
                                enum hop_dtype dtype, unsigned uses, struct hop_weight **weight,
                                struct hop_error *err)
{
    struct hop_weight *made;
    HOP_TRY(hop_calloc(&made, 1, sizeof *made, err));
    const bool looked_up_only = !(uses & (HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD));
    *made = (struct hop_weight){
        .data = host, .out = out, .in = in, .dtype = looked_up_only ? host_dtype : dtype};
    /* A file may put a tensor at an address its element type cannot be read from. */
    const bool aligned = (uintptr_t)host % hop_dtype_size(host_dtype) == 0;
    if (host_dtype != made->dtype || !aligned) {
        const hop_status status = hop_calloc_aligned(&made->owned, (size_t)out * (size_t)in,
                                                     hop_dtype_size(made->dtype), err);
        if (status != HOP_OK) {
            weight_free(backend, made);
            return status;
        }
        convert(backend, made, host, host_dtype);
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

static hop_status grow(char **buffer, size_t *bytes, size_t needed, struct hop_error *err)
{
    if (needed <= *bytes)
        return HOP_OK;
    free(*buffer);
    *buffer = NULL;
    *bytes = 0;
    HOP_TRY(hop_calloc_aligned(buffer, needed, 1, err));
    *bytes = needed;
    return HOP_OK;
}

hop_status hop_cpu_reserve(struct hop_backend *backend, size_t each, size_t shared,
                           struct hop_error *err)
{
    for (int32_t t = 0; t < backend->threads; t++) {
        struct hop_cpu_thread *const thread = &backend->thread[t];
        HOP_TRY(grow(&thread->scratch, &thread->bytes, each, err));
        thread->status = HOP_OK;
    }
    return grow(&backend->shared, &backend->shared_bytes, shared, err);
}

void hop_cpu_enter(void)
{
    omp_set_num_threads(1);
}

char *hop_cpu_scratch(const struct hop_backend *backend)
{
    return backend->thread[omp_get_thread_num()].scratch;
}

hop_status hop_cpu_leave(const struct hop_backend *backend, struct hop_error *err)
{
    for (int32_t t = 0; t < backend->threads; t++)
        if (backend->thread[t].status != HOP_OK) {
            *err = backend->thread[t].err;
            return backend->thread[t].status;
        }
    return HOP_OK;
}

int hop_cpu_threads_for(const struct hop_backend *backend, int64_t work)
{
    /* Waking a thread costs a few microseconds, the time of some ten thousand elements. */
    const int64_t useful = work / 16384 + 1;
    return (int)(useful < backend->threads ? useful : backend->threads);
}

struct hop_cpu_range hop_cpu_share(int64_t n, int64_t parts, int64_t index, int64_t unit)
{
    const int64_t units = (n + unit - 1) / unit;
    const int64_t begin = units * index / parts * unit, end = units * (index + 1) / parts * unit;
    return (struct hop_cpu_range){.begin = begin < n ? begin : n, .end = end < n ? end : n};
}

const struct hop_ops hop_cpu_ops = {
    .name = "cpu",
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
    .embed_forward = hop_cpu_embed_forward,
    .embed_backward = hop_cpu_embed_backward,
    .rmsnorm_forward = hop_cpu_rmsnorm_forward,
    .rmsnorm_backward = hop_cpu_rmsnorm_backward,
    .project_forward = hop_cpu_project_forward,
    .project_backward = hop_cpu_project_backward,
    .rope_forward = hop_cpu_rope_forward,
    .rope_backward = hop_cpu_rope_backward,
    .attention_forward = hop_cpu_attention_forward,
    .attention_backward = hop_cpu_attention_backward,
    .swiglu_forward = hop_cpu_swiglu_forward,
    .swiglu_backward = hop_cpu_swiglu_backward,
    .gather_forward = hop_cpu_gather_forward,
    .gather_backward = hop_cpu_gather_backward,
    .loss_forward = hop_cpu_loss_forward,
    .loss_backward = hop_cpu_loss_backward,
    .adapter_gradient = hop_cpu_adapter_gradient,
    .rmsnorm_tangent = hop_cpu_rmsnorm_tangent,
    .project_tangent = hop_cpu_project_tangent,
    .attention_tangent = hop_cpu_attention_tangent,
    .swiglu_tangent = hop_cpu_swiglu_tangent,
    .loss_tangent = hop_cpu_loss_tangent,
};
