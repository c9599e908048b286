/* Checked allocation: zeroed, overflow-safe, 64-byte aligned where asked; failures become a status.
 */
#ifndef HOP_BASE_MEMORY_H
#define HOP_BASE_MEMORY_H

#include <stddef.h>

#include "base/error.h"

#define HOP_ALIGN 64

/* Stores count*size zeroed bytes in *out (free() releases it). A zero-sized request stores a valid
 * pointer. */
hop_status hop_calloc(void *out, size_t count, size_t size, struct hop_error *err);

/* The same, aligned to HOP_ALIGN (free() releases it). */
hop_status hop_calloc_aligned(void *out, size_t count, size_t size, struct hop_error *err);

/* Grows *items (element size `size`, capacity *capacity) so that it holds `needed` elements. New
 * elements are not initialised. */
hop_status hop_grow(void *items, size_t *capacity, size_t needed, size_t size,
                    struct hop_error *err);

/* Rounds up to HOP_ALIGN. */
size_t hop_align(size_t bytes);

#endif
