#include "schedule/buffers.h"

#include <stdlib.h>

#include "base/memory.h"

bool hop_transfer_is_buffered(const struct hop_transfer *transfer)
{
    return transfer->payload != HOP_DERIVATIVE && transfer->from_device != transfer->to_device;
}

/* One use of a buffer: messages of one device, direction and payload kind share a ring of buffers
 * and take them in the order of `task`, then of the transfer's index. */
struct use {
    int32_t device, payload, task, transfer;
};

static int compare_uses(const void *left, const void *right)
{
    const struct use *const a = left, *const b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->payload != b->payload)
        return a->payload < b->payload ? -1 : 1;
    if (a->task != b->task)
        return a->task < b->task ? -1 : 1;
    return a->transfer < b->transfer ? -1 : a->transfer > b->transfer;
}

static int32_t list_uses(const struct hop_transfers *transfers, bool sending, struct use *uses)
{
    int32_t count = 0;
    for (int32_t x = 0; x < transfers->count; x++) {
        const struct hop_transfer *const t = &transfers->items[x];
        if (hop_transfer_is_buffered(t))
            uses[count++] =
                (struct use){sending ? t->from_device : t->to_device, (int32_t)t->payload,
                             sending ? t->from_task : t->to_task, x};
    }
    qsort(uses, (size_t)count, sizeof *uses, compare_uses);
    return count;
}

hop_status hop_buffer_pairs(const struct hop_transfers *transfers, bool sending, int32_t window,
                            struct hop_buffer_pair **pairs, int32_t *count, struct hop_error *err)
{
    struct use *uses = NULL;
    struct hop_buffer_pair *found = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&uses, (size_t)transfers->count, sizeof *uses, err));
    HOP_TRY_DONE(hop_calloc(&found, (size_t)transfers->count, sizeof *found, err));
    const int32_t used = list_uses(transfers, sending, uses);
    int32_t n = 0;
    for (int32_t k = window; k < used; k++) {
        const struct use *const after = &uses[k], *const before = &uses[k - window];
        if (after->device == before->device && after->payload == before->payload)
            found[n++] = (struct hop_buffer_pair){before->transfer, after->transfer};
    }
    *count = n;
    *pairs = found;
    found = NULL;
done:
    free(uses);
    free(found);
    return status;
}
