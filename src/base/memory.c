#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static hop_status too_large(struct hop_error *err, size_t count, size_t size)
{
    return hop_fail(
        err, HOP_MEMORY,
        "out of memory: %zu x %zu bytes were asked for; use a smaller micro-batch, length or model",
        count, size);
}

/* `out` is a pointer to any object pointer; memcpy keeps the store free of aliasing trouble. */
static void store(void *out, void *block)
{
    memcpy(out, &block, sizeof block);
}

hop_status hop_calloc(void *out, size_t count, size_t size, struct hop_error *err)
{
    const bool overflow = size && count > SIZE_MAX / size;
    void *const block = overflow ? NULL : calloc(count ? count : 1, size ? size : 1);
    if (!block)
        return too_large(err, count, size);
    store(out, block);
    return HOP_OK;
}

size_t hop_align(size_t bytes)
{
    return (bytes + HOP_ALIGN - 1) / HOP_ALIGN * HOP_ALIGN;
}

hop_status hop_calloc_aligned(void *out, size_t count, size_t size, struct hop_error *err)
{
    if (size && count > (SIZE_MAX - HOP_ALIGN) / size)
        return too_large(err, count, size);
    const size_t bytes = count && size ? hop_align(count * size) : HOP_ALIGN;
    void *const block = aligned_alloc(HOP_ALIGN, bytes);
    if (!block)
        return too_large(err, count, size);
    memset(block, 0, bytes);
    store(out, block);
    return HOP_OK;
}

hop_status hop_grow(void *items, size_t *capacity, size_t needed, size_t size,
                    struct hop_error *err)
{
    if (needed <= *capacity)
        return HOP_OK;
    size_t wanted = *capacity ? *capacity : 16;
    while (wanted < needed)
        wanted = wanted > SIZE_MAX / 2 ? needed : wanted * 2;
    if (size && wanted > SIZE_MAX / size)
        return too_large(err, wanted, size);
    void *block;
    memcpy(&block, items, sizeof block);
    void *const grown = realloc(block, wanted * size);
    if (!grown)
        return too_large(err, wanted, size);
    store(items, grown);
    *capacity = wanted;
    return HOP_OK;
}
