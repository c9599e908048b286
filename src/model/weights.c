/* A set of frozen tensors: mapped files, memory of ours, or both. */
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A tensor in memory of ours; allocated one by one so that pointers to it stay valid. */
struct entry {
    struct hop_tensor tensor;
    char name[HOP_TENSOR_NAME];
    void *data;
};

struct hop_weights {
    struct hop_safetensors *files; /* NULL for a set in memory */
    struct entry **entries;        /* looked up before the files */
    size_t count, capacity;
    bool tied;
};

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

static const struct hop_tensor *find_exact(const struct hop_weights *weights, const char *name)
{
    for (size_t i = 0; i < weights->count; i++)
        if (strcmp(weights->entries[i]->name, name) == 0)
            return &weights->entries[i]->tensor;
    return weights->files ? hop_safetensors_find(weights->files, name) : NULL;
}

const struct hop_tensor *hop_weights_find(const struct hop_weights *weights, const char *name)
{
    const struct hop_tensor *const found = find_exact(weights, name);
    if (found || !weights->tied)
        return found;
    if (strcmp(name, HOP_EMBED_NAME) == 0)
        return find_exact(weights, HOP_HEAD_NAME);
    return strcmp(name, HOP_HEAD_NAME) == 0 ? find_exact(weights, HOP_EMBED_NAME) : NULL;
}

enum hop_dtype hop_weights_native_dtype(const struct hop_weights *weights)
{
    const struct hop_tensor *embed = hop_weights_find(weights, "model.embed_tokens.weight");
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
    struct entry *entry = NULL;
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

static const char *shape_text(int rank, const int64_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

static bool shape_matches(const struct hop_tensor *tensor, const struct hop_tensor_want *want)
{
    return tensor->rank == want->rank && tensor->shape[0] == want->shape[0] &&
           (want->rank < 2 || tensor->shape[1] == want->shape[1]);
}

static hop_status check_tensor(const struct hop_weights *weights, const char *directory,
                               const struct hop_tensor_want *want, struct hop_error *err)
{
    const struct hop_tensor *const tensor = hop_weights_find(weights, want->name);
    char expected[64], found[128];
    if (!tensor)
        return hop_fail(err, HOP_INPUT,
                        "%s: tensor %s is missing; the folder is incomplete or config.json belongs "
                        "to another model",
                        directory, want->name);
    const char *const path = hop_safetensors_path(weights->files, (size_t)tensor->file);
    if (!shape_matches(tensor, want))
        return hop_fail(err, HOP_INPUT, "%s: tensor %s has shape %s, config.json asks for %s", path,
                        want->name, shape_text(tensor->rank, tensor->shape, found, sizeof found),
                        shape_text(want->rank, want->shape, expected, sizeof expected));
    if (tensor->dtype == HOP_DTYPE_OTHER)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s has dtype %s; F32, BF16 or F16 is needed",
                        path, want->name, tensor->dtype_text);
    return HOP_OK;
}

/* safetensors does not promise aligned data; backends read aligned elements. */
static hop_status align_tensor(struct hop_weights *weights, const struct hop_tensor_want *want,
                               struct hop_error *err)
{
    const struct hop_tensor *const tensor = hop_weights_find(weights, want->name);
    void *copy;
    if ((uintptr_t)tensor->data % hop_dtype_size(tensor->dtype) == 0)
        return HOP_OK;
    HOP_TRY(hop_weights_add(weights, want, tensor->dtype, &copy, err));
    memcpy(copy, tensor->data, tensor->bytes);
    return HOP_OK;
}

static hop_status check_all(struct hop_weights *weights, const char *directory,
                            const struct hop_model_config *config, struct hop_error *err)
{
    struct hop_tensor_want *wants;
    size_t count;
    hop_status status = HOP_OK;
    HOP_TRY(hop_weights_list(config, 0, config->blocks, true, true, &wants, &count, err));
    for (size_t i = 0; i < count && status == HOP_OK; i++) {
        status = check_tensor(weights, directory, &wants[i], err);
        if (status == HOP_OK)
            status = align_tensor(weights, &wants[i], err);
    }
    free(wants);
    return status;
}

hop_status hop_weights_open(const char *directory, const struct hop_model_config *config,
                            struct hop_weights **out, struct hop_error *err)
{
    struct hop_weights *weights = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_weights_create(&weights, err));
    weights->tied = config->tied;
    HOP_TRY_DONE(hop_safetensors_open_folder(directory, &weights->files, err));
    HOP_TRY_DONE(check_all(weights, directory, config, err));
    *out = weights;
    weights = NULL;
done:
    hop_weights_free(weights);
    return status;
}
