/* Matrix products through oneDNN's matmul primitive.
 *
 * A primitive is compiled for one shape, which takes 0.2 to 1 ms, and holds its kernels: a bounded
 * table of recently used ones keeps both in check. */
#include "ops/cpu/gemm.h"

#if HYBRIDOP_HAVE_ONEDNN

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { SETS = 128, WAYS = 8 };

const int64_t hop_gemm_library_rows = 16;

struct key {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype, transposed, add, reserved;
};

struct entry {
    struct key key;
    uint64_t used; /* tick of the last use; 0: free */
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, scratch;
    size_t scratch_bytes;
};

struct hop_gemm_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct entry entry[SETS][WAYS];
    uint64_t tick;
    void *scratch; /* shared by all primitives of this thread */
    size_t scratch_bytes;
};

const char *hop_gemm_library(void)
{
    static char text[64];
    const dnnl_version_t *const version = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return text;
}

static hop_status failed(struct hop_error *err, const char *what, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        return hop_fail(err, HOP_MEMORY, "out of memory in oneDNN (%s)", what);
    return hop_fail(err, HOP_INTERNAL, "oneDNN: %s failed with status %d", what, (int)status);
}

hop_status hop_gemm_library_create(struct hop_gemm_library **out, struct hop_error *err)
{
    struct hop_gemm_library *library;
    HOP_TRY(hop_calloc(&library, 1, sizeof *library, err));
    dnnl_status_t status = dnnl_engine_create(&library->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        hop_gemm_library_free(library);
        return failed(err, "opening the processor", status);
    }
    /* oneDNN's own table lets the threads share kernels; it should not outgrow ours by much. */
    dnnl_set_primitive_cache_capacity(SETS * WAYS);
    *out = library;
    return HOP_OK;
}

static void drop(struct entry *entry)
{
    dnnl_memory_destroy(entry->a);
    dnnl_memory_destroy(entry->b);
    dnnl_memory_destroy(entry->c);
    dnnl_memory_destroy(entry->scratch);
    dnnl_primitive_destroy(entry->primitive);
    memset(entry, 0, sizeof *entry);
}

void hop_gemm_library_free(struct hop_gemm_library *library)
{
    if (!library)
        return;
    for (int i = 0; i < SETS * WAYS; i++)
        drop(&library->entry[i / WAYS][i % WAYS]);
    dnnl_stream_destroy(library->stream);
    dnnl_engine_destroy(library->engine);
    free(library->scratch);
    free(library);
}

static dnnl_status_t describe(const struct key *key, dnnl_memory_desc_t md[3])
{
    const dnnl_data_type_t type = key->dtype == HOP_F32 ? dnnl_f32 : dnnl_bf16;
    const dnnl_dims_t a = {key->m, key->k}, a_stride = {key->lda, 1};
    const dnnl_dims_t b = {key->k, key->n};
    const dnnl_dims_t b_stride = {key->transposed ? 1 : key->ldb, key->transposed ? key->ldb : 1};
    const dnnl_dims_t c = {key->m, key->n}, c_stride = {key->ldc, 1};
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&md[0], 2, a, type, a_stride);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&md[1], 2, b, type, b_stride);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&md[2], 2, c, dnnl_f32, c_stride);
    return status;
}

static dnnl_status_t attributes(bool add, dnnl_primitive_attr_t *attr)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !add)
        return status;
    dnnl_post_ops_t ops;
    status = dnnl_post_ops_create(&ops);
    if (status != dnnl_success)
        return status;
    status = dnnl_post_ops_append_sum(ops, 1.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t memories(const struct hop_gemm_library *library, struct entry *entry,
                              const dnnl_memory_desc_t md[3], const dnnl_memory_desc_t *scratch)
{
    dnnl_memory_t *const memory[] = {&entry->a, &entry->b, &entry->c, &entry->scratch};
    const dnnl_memory_desc_t *const desc[] = {&md[0], &md[1], &md[2], scratch};
    for (int i = 0; i < 4; i++) {
        const dnnl_status_t status =
            dnnl_memory_create(memory[i], desc[i], library->engine, DNNL_MEMORY_NONE);
        if (status != dnnl_success)
            return status;
    }
    entry->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    return dnnl_success;
}

static dnnl_status_t compile(const struct hop_gemm_library *library, struct entry *entry)
{
    dnnl_memory_desc_t md[3];
    dnnl_matmul_desc_t op;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = describe(&entry->key, md);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&op, &md[0], &md[1], NULL, &md[2]);
    if (status == dnnl_success)
        status = attributes(entry->key.add, &attr);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&pd, &op, attr, library->engine, NULL);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&entry->primitive, pd);
    if (status == dnnl_success)
        status = memories(library, entry, md,
                          dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* FNV-1a over the words of a key. */
static unsigned set_of(const struct key *key)
{
    uint32_t word[sizeof *key / sizeof(uint32_t)];
    uint64_t hash = 14695981039346656037u;
    memcpy(word, key, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        hash = (hash ^ word[i]) * 1099511628211u;
    return (unsigned)(hash >> 40) % SETS;
}

/* The entry of this shape, compiled in place of the one of its set unused for longest where there
 * is none. */
static hop_status find(struct hop_gemm_library *library, const struct key *key, struct entry **out,
                       struct hop_error *err)
{
    struct entry *const set = library->entry[set_of(key)], *oldest = set;
    for (int i = 0; i < WAYS; i++) {
        struct entry *const entry = &set[i];
        if (entry->used && memcmp(&entry->key, key, sizeof *key) == 0) {
            *out = entry;
            return HOP_OK;
        }
        if (entry->used < oldest->used)
            oldest = entry;
    }
    drop(oldest);
    oldest->key = *key;
    const dnnl_status_t status = compile(library, oldest);
    if (status != dnnl_success) {
        drop(oldest);
        if (status == dnnl_unimplemented && key->dtype != HOP_F32)
            return HOP_UNSUPPORTED;
        return failed(err, "preparing a matrix product", status);
    }
    *out = oldest;
    return HOP_OK;
}

static hop_status reserve(struct hop_gemm_library *library, size_t bytes, struct hop_error *err)
{
    if (bytes <= library->scratch_bytes)
        return HOP_OK;
    free(library->scratch);
    library->scratch = NULL;
    library->scratch_bytes = 0;
    HOP_TRY(hop_calloc_aligned(&library->scratch, bytes, 1, err));
    library->scratch_bytes = bytes;
    return HOP_OK;
}

static void *writable(const void *pointer)
{
    void *out;
    memcpy(&out, &pointer, sizeof out);
    return out;
}

hop_status hop_gemm_library_run(struct hop_gemm_library *library, const struct hop_gemm_call *call,
                                struct hop_error *err)
{
    const struct key key = {.m = call->m,
                            .n = call->n,
                            .k = call->k,
                            .lda = call->lda,
                            .ldb = call->ldb,
                            .ldc = call->ldc,
                            .dtype = (int32_t)call->dtype,
                            .transposed = call->transposed,
                            .add = call->add};
    struct entry *entry = NULL;
    HOP_TRY(find(library, &key, &entry, err));
    HOP_TRY(reserve(library, entry->scratch_bytes, err));
    entry->used = ++library->tick;
    dnnl_memory_set_data_handle(entry->a, writable(call->a));
    dnnl_memory_set_data_handle(entry->b, writable(call->b));
    dnnl_memory_set_data_handle(entry->c, call->c);
    dnnl_memory_set_data_handle(entry->scratch, library->scratch);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, entry->a},
                                    {DNNL_ARG_WEIGHTS, entry->b},
                                    {DNNL_ARG_DST, entry->c},
                                    {DNNL_ARG_SCRATCHPAD, entry->scratch}};
    const dnnl_status_t status = dnnl_primitive_execute(entry->primitive, library->stream, 4, args);
    return status == dnnl_success ? HOP_OK : failed(err, "a matrix product", status);
}

#endif
