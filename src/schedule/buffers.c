#include "schedule/buffers.h"

#include <stdlib.h>

#include "base/memory.h"

bool hop_transfer_is_buffered(const struct hop_transfer *transfer)
{
    return transfer->payload != HOP_DERIVATIVE && transfer->payload != HOP_BASE_LOSS &&
           transfer->from_device != transfer->to_device;
}

/* One message's use of a buffer: those of one task share it, and the tasks of one device, direction
 * and payload kind take the buffers of a ring in turn. */
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

static bool share_buffer(const struct use *a, const struct use *b)
{
    return a->device == b->device && a->payload == b->payload && a->task == b->task;
}

/* Where the uses of each buffer begin in the list, and behind the last where it ends. */
static int32_t list_begins(const struct use *uses, int32_t used, int32_t *begins)
{
    int32_t count = 0;
    for (int32_t i = 0; i < used; i++)
        if (!i || !share_buffer(&uses[i - 1], &uses[i]))
            begins[count++] = i;
    begins[count] = used;
    return count;
}

/* A buffer to send from is free when all its messages were taken, one to receive into when its task
 * is done: one message stands for that task. */
static int32_t pair_up(const struct use *uses, const int32_t *begins, int32_t buffers, bool sending,
                       int32_t window, struct hop_buffer_pair *pairs)
{
    int32_t n = 0;
    for (int32_t k = window; k < buffers; k++) {
        const int32_t before = begins[k - window], after = begins[k];
        if (uses[after].device != uses[before].device ||
            uses[after].payload != uses[before].payload)
            continue;
        const int32_t first = sending ? before : after;
        const int32_t end = begins[sending ? k - window + 1 : k + 1];
        for (int32_t i = first; i < end; i++)
            pairs[n++] = (struct hop_buffer_pair){uses[sending ? i : before].transfer,
                                                  uses[sending ? after : i].transfer};
    }
    return n;
}

hop_status hop_buffer_pairs(const struct hop_transfers *transfers, bool sending, int32_t window,
                            struct hop_buffer_pair **pairs, int32_t *count, struct hop_error *err)
{
    struct use *uses = NULL;
    int32_t *begins = NULL;
    struct hop_buffer_pair *found = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&uses, (size_t)transfers->count, sizeof *uses, err));
    HOP_TRY_DONE(hop_calloc(&begins, (size_t)transfers->count + 1, sizeof *begins, err));
    HOP_TRY_DONE(hop_calloc(&found, (size_t)transfers->count, sizeof *found, err));
    const int32_t used = list_uses(transfers, sending, uses);
    const int32_t buffers = list_begins(uses, used, begins);
    *count = pair_up(uses, begins, buffers, sending, window, found);
    *pairs = found;
    found = NULL;
done:
    free(uses);
    free(begins);
    free(found);
    return status;
}
