/* The rows of a micro-batch that one part handles. Rows are packed without padding: a range of rows
 * is a range of tokens, and of labels. */
#ifndef HOP_RUNTIME_SLICE_H
#define HOP_RUNTIME_SLICE_H

#include <stdint.h>

#include "base/error.h"
#include "data/batch.h"
#include "schedule/plan.h"

/* Tokens of the rows, and labels of the rows, in the micro-batch. */
struct hop_range hop_slice_tokens(const struct hop_batch *batch, struct hop_range rows);
struct hop_range hop_slice_labels(const struct hop_batch *batch, struct hop_range rows);

/* Room for a part of a micro-batch. */
struct hop_slice {
    struct hop_batch batch; /* ids, positions and label ids are those of the micro-batch */
    int32_t *storage;
};

hop_status hop_slice_create(const struct hop_batch_limits *limits, struct hop_slice *out,
                            struct hop_error *err);
void hop_slice_free(struct hop_slice *slice);
/* The rows as a micro-batch of their own: the same index and label_total, so that losses and
 * gradients of the parts add up to those of the whole. All rows are the micro-batch itself. Valid
 * until the next call, and as long as `batch` is. */
const struct hop_batch *hop_slice_take(struct hop_slice *slice, const struct hop_batch *batch,
                                       struct hop_range rows);

#endif
