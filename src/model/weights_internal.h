/* The set of frozen tensors: mapped files, memory of ours, or both. */
#ifndef HOP_MODEL_WEIGHTS_INTERNAL_H
#define HOP_MODEL_WEIGHTS_INTERNAL_H

#include "model/weights.h"

/* A tensor in memory of ours; allocated one by one so that pointers to it stay valid. */
struct hop__weights_entry {
    struct hop_tensor tensor;
    char name[HOP_TENSOR_NAME];
    void *data;
};

struct hop_weights {
    struct hop_safetensors *files;       /* NULL for a set in memory */
    struct hop__weights_entry **entries; /* looked up before the files */
    size_t count, capacity;
    bool tied;
    bool bare; /* names in the files lack the "model." in front */
};

/* As hop_weights_find(), in the files only. */
const struct hop_tensor *hop__weights_mapped(const struct hop_weights *weights, const char *name);

#endif
