#include "ops/host_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

hop_status hop_host_alloc(struct hop_backend *backend, size_t bytes, void **out,
                          struct hop_error *err)
{
    (void)backend;
    return hop_calloc_aligned(out, bytes, 1, err);
}

void hop_host_release(struct hop_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

hop_status hop_host_copy(struct hop_backend *backend, void *to, const void *from, size_t bytes,
                         struct hop_error *err)
{
    (void)backend;
    (void)err;
    memcpy(to, from, bytes);
    return HOP_OK;
}
