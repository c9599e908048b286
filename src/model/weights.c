/* A set of frozen tensors: mapped files, memory of ours, or both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/weights_internal.h"

hop_status hop_weights_create(struct hop_weights **out, struct hop_error *err)
{
    return hop_calloc(out, 1, sizeof **out, err);
}

void hop_weights_free(struct hop_weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->count; i++) {
        free(weights->entries[i]->data);
        free(weights->entries[i]);
    }
    free(weights->entries);
    hop_safetensors_close(weights->files);
    free(weights);
}

static const struct hop_tensor *find_in_files(const struct hop_weights *weights, const char *name)
{
    static const char prefix[] = "model.";
    if (!weights->files)
        return NULL;
    const bool shorter = weights->bare && strncmp(name, prefix, strlen(prefix)) == 0;
    return hop_safetensors_find(weights->files, shorter ? name + strlen(prefix) : name);
}

static const struct hop_tensor *find_exact(const struct hop_weights *weights, const char *name)
{
    for (size_t i = 0; i < weights->count; i++)
        if (strcmp(weights->entries[i]->name, name) == 0)
            return &weights->entries[i]->tensor;
    return find_in_files(weights, name);
}

/* The other name of a tied table; NULL for everything else. */
static const char *tied_name(const struct hop_weights *weights, const char *name)
{
    if (weights->tied && strcmp(name, HOP_EMBED_NAME) == 0)
        return HOP_HEAD_NAME;
    return weights->tied && strcmp(name, HOP_HEAD_NAME) == 0 ? HOP_EMBED_NAME : NULL;
}

const struct hop_tensor *hop_weights_find(const struct hop_weights *weights, const char *name)
{
    const struct hop_tensor *const found = find_exact(weights, name);
    const char *const other = tied_name(weights, name);
    return found || !other ? found : find_exact(weights, other);
}

const struct hop_tensor *hop__weights_mapped(const struct hop_weights *weights, const char *name)
{
    const struct hop_tensor *const found = find_in_files(weights, name);
    const char *const other = tied_name(weights, name);
    return found || !other ? found : find_in_files(weights, other);
}

enum hop_dtype hop_weights_native_dtype(const struct hop_weights *weights)
{
    const struct hop_tensor *embed = hop_weights_find(weights, HOP_EMBED_NAME);
    return embed && embed->dtype == HOP_BF16 ? HOP_BF16 : HOP_F32;
}

const struct hop_safetensors *hop_weights_files(const struct hop_weights *weights)
{
    return weights->files;
}

static int64_t element_count(const struct hop_tensor_want *want)
{
    return want->rank == 2 ? want->shape[0] * want->shape[1] : want->shape[0];
}

hop_status hop_weights_add(struct hop_weights *weights, const struct hop_tensor_want *want,
                           enum hop_dtype dtype, void **data, struct hop_error *err)
{
    struct hop__weights_entry *entry = NULL;
    hop_status status;
    const size_t bytes = (size_t)element_count(want) * hop_dtype_size(dtype);
    HOP_TRY(hop_grow(&weights->entries, &weights->capacity, weights->count + 1, sizeof entry, err));
    HOP_TRY_DONE(hop_calloc(&entry, 1, sizeof *entry, err));
    HOP_TRY_DONE(hop_calloc_aligned(&entry->data, bytes, 1, err));
    memcpy(entry->name, want->name, sizeof entry->name);
    entry->tensor = (struct hop_tensor){.name = entry->name,
                                        .dtype = dtype,
                                        .rank = want->rank,
                                        .shape = {want->shape[0], want->shape[1]},
                                        .data = entry->data,
                                        .bytes = bytes};
    snprintf(entry->tensor.dtype_text, sizeof entry->tensor.dtype_text, "%s",
             hop_dtype_name(dtype));
    weights->entries[weights->count++] = entry;
    *data = entry->data;
done:
    if (status != HOP_OK)
        free(entry);
    return status;
}
