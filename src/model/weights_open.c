/* Mapping a model folder: every tensor of the configuration is checked before any is handed out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights_internal.h"

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

static const char *remedy(const char *name)
{
    if (strcmp(name, HOP_HEAD_NAME) == 0)
        return "a head that shares the embedding needs \"tie_word_embeddings\": true in "
               "config.json";
    if (strcmp(strrchr(name, '.'), ".bias") == 0)
        return "config.json asks for it by \"attention_bias\" or \"mlp_bias\"";
    return "the folder is incomplete or config.json belongs to another model";
}

static hop_status check_tensor(const struct hop_weights *weights, const char *directory,
                               const struct hop_tensor_want *want, struct hop_error *err)
{
    const struct hop_tensor *const tensor = hop_weights_find(weights, want->name);
    char expected[64], found[128];
    if (!tensor)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s is missing; %s", directory, want->name,
                        remedy(want->name));
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

static bool has_bare_names(const struct hop_safetensors *files)
{
    return !hop_safetensors_find(files, HOP_FINAL_NORM_NAME) &&
           hop_safetensors_find(files, strchr(HOP_FINAL_NORM_NAME, '.') + 1);
}

hop_status hop_weights_open(const char *directory, const struct hop_model_config *config,
                            struct hop_weights **out, struct hop_error *err)
{
    struct hop_weights *weights = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_weights_create(&weights, err));
    weights->tied = config->tied;
    HOP_TRY_DONE(hop_safetensors_open_folder(directory, &weights->files, err));
    weights->bare = has_bare_names(weights->files);
    HOP_TRY_DONE(check_all(weights, directory, config, err));
    *out = weights;
    weights = NULL;
done:
    hop_weights_free(weights);
    return status;
}
