/* Memory entries for backends that compute in host memory. */
#ifndef HOP_OPS_HOST_MEMORY_H
#define HOP_OPS_HOST_MEMORY_H

#include "ops/ops.h"

hop_status hop_host_alloc(struct hop_backend *backend, size_t bytes, void **out,
                          struct hop_error *err);
void hop_host_release(struct hop_backend *backend, void *memory);
/* Serves as write and as read. */
hop_status hop_host_copy(struct hop_backend *backend, void *to, const void *from, size_t bytes,
                         struct hop_error *err);

#endif
