#include "runtime/slice.h"

#include <stdlib.h>

#include "base/memory.h"

struct hop_range hop_slice_tokens(const struct hop_batch *batch, struct hop_range rows)
{
    return (struct hop_range){batch->offset[rows.lo], batch->offset[rows.hi]};
}

/* Labels ascend by token: how many stand before `token`. */
static int32_t labels_before(const struct hop_batch *batch, int32_t token)
{
    int32_t lo = 0, hi = batch->labels;
    while (lo < hi) {
        const int32_t middle = lo + (hi - lo) / 2;
        if (batch->label_row[middle] < token)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

struct hop_range hop_slice_labels(const struct hop_batch *batch, struct hop_range rows)
{
    const struct hop_range tokens = hop_slice_tokens(batch, rows);
    return (struct hop_range){labels_before(batch, tokens.lo), labels_before(batch, tokens.hi)};
}

hop_status hop_slice_create(const struct hop_batch_limits *limits, struct hop_slice *out,
                            struct hop_error *err)
{
    const size_t offsets = (size_t)limits->sequences + 1;
    int32_t *storage;
    HOP_TRY(hop_calloc(&storage, offsets + (size_t)limits->labels, sizeof *storage, err));
    *out = (struct hop_slice){.batch = {.offset = storage, .label_row = storage + offsets},
                              .storage = storage};
    return HOP_OK;
}

void hop_slice_free(struct hop_slice *slice)
{
    if (!slice)
        return;
    free(slice->storage);
    *slice = (struct hop_slice){0};
}

const struct hop_batch *hop_slice_take(struct hop_slice *slice, const struct hop_batch *batch,
                                       struct hop_range rows)
{
    if (rows.lo == 0 && rows.hi == batch->sequences)
        return batch;
    struct hop_batch *const out = &slice->batch;
    const struct hop_range tokens = hop_slice_tokens(batch, rows);
    const struct hop_range labels = hop_slice_labels(batch, rows);
    out->sequences = rows.hi - rows.lo;
    out->tokens = tokens.hi - tokens.lo;
    out->labels = labels.hi - labels.lo;
    out->ids = batch->ids + tokens.lo;
    out->position = batch->position + tokens.lo;
    out->label_id = batch->label_id + labels.lo;
    out->label_total = batch->label_total;
    out->micro_batch = batch->micro_batch;
    for (int32_t s = 0; s <= out->sequences; s++)
        out->offset[s] = batch->offset[rows.lo + s] - tokens.lo;
    for (int32_t j = 0; j < out->labels; j++)
        out->label_row[j] = batch->label_row[labels.lo + j] - tokens.lo;
    return out;
}
