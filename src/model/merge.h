/* A model with an adapter merged into its weights, as a Hugging Face folder of its own. */
#ifndef HOP_MODEL_MERGE_H
#define HOP_MODEL_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/error.h"

struct hop_merge {
    const char *model, *adapter, *output; /* folders */
    size_t shard_bytes;                   /* of tensor data in one file, at most */
    bool convert; /* floating-point tensors to dtype; else each keeps its own */
    enum hop_dtype dtype;
};

struct hop_merge_result {
    size_t merged, tensors; /* tensors that changed, and all */
    size_t files;
};

/* W += scale * B A for every adapted projection, summed in double and rounded once to the dtype it
 * is stored in; all other tensors, the configuration and the tokenizer are copied.
 *
 * Tensors are read, merged and written a few rows at a time, so memory stays small whatever the
 * model's size. The folder is written to output + ".tmp" and renamed when it is complete; an output
 * that exists and is not empty is HOP_INPUT. A value that becomes infinite is HOP_NUMERIC with the
 * tensor's name. */
hop_status hop_merge(const struct hop_merge *merge, struct hop_merge_result *out,
                     struct hop_error *err);

#endif
