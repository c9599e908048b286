#include "model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"

enum { NAME_SIZE = HOP_TENSOR_NAME + 32 };

hop_status hop_parameters_write(const char *path, const struct hop_parameters *parameters,
                                const float *const *arrays, const char *const *suffixes,
                                size_t count, struct hop_error *err)
{
    struct hop_tensor_source *sources = NULL;
    char(*names)[NAME_SIZE] = NULL;
    hop_status status;
    size_t n = 0;
    HOP_TRY_DONE(hop_calloc(&sources, count * parameters->count, sizeof *sources, err));
    HOP_TRY_DONE(hop_calloc(&names, count * parameters->count, sizeof *names, err));
    for (size_t k = 0; k < count; k++) {
        for (size_t p = 0; p < parameters->count; p++, n++) {
            const struct hop_parameter *const item = &parameters->items[p];
            char name[HOP_TENSOR_NAME];
            hop_parameter_name(item, name, sizeof name);
            snprintf(names[n], sizeof names[n], "%s%s", name, suffixes[k]);
            sources[n] = (struct hop_tensor_source){.name = names[n],
                                                    .dtype = HOP_F32,
                                                    .rank = 2,
                                                    .shape = {item->rows, item->columns},
                                                    .data = arrays[k] + item->offset};
        }
    }
    HOP_TRY_DONE(hop_safetensors_write(path, sources, n, err));
done:
    free(sources);
    free(names);
    return status;
}

static hop_status check_shape(const struct hop_safetensors *set, const struct hop_tensor *tensor,
                              const struct hop_parameter *item, struct hop_error *err)
{
    const char *const path = hop_safetensors_path(set, (size_t)tensor->file);
    if (tensor->dtype == HOP_DTYPE_OTHER)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s has dtype %s; F32, BF16 or F16 is needed",
                        path, tensor->name, tensor->dtype_text);
    if (tensor->rank != 2 || tensor->shape[0] != item->rows || tensor->shape[1] != item->columns)
        return hop_fail(
            err, HOP_INPUT,
            "%s: tensor %s has rank %d and shape [%lld, %lld], the model and the rank ask "
            "for [%lld, %lld]",
            path, tensor->name, tensor->rank, (long long)tensor->shape[0],
            (long long)tensor->shape[1], (long long)item->rows, (long long)item->columns);
    return HOP_OK;
}

static hop_status find_checked(const struct hop_safetensors *set, const struct hop_parameter *item,
                               const char *suffix, const struct hop_tensor **out,
                               struct hop_error *err)
{
    char name[NAME_SIZE];
    hop_parameter_name(item, name, HOP_TENSOR_NAME);
    strncat(name, suffix, sizeof name - strlen(name) - 1);
    *out = hop_safetensors_find(set, name);
    if (!*out)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s is missing", hop_safetensors_path(set, 0),
                        name);
    return check_shape(set, *out, item, err);
}

hop_status hop_parameters_read(const struct hop_safetensors *set,
                               const struct hop_parameters *parameters, const char *suffix,
                               float *array, struct hop_error *err)
{
    const struct hop_tensor *tensor;
    for (size_t p = 0; p < parameters->count; p++)
        HOP_TRY(find_checked(set, &parameters->items[p], suffix, &tensor, err));
    for (size_t p = 0; p < parameters->count; p++) {
        const struct hop_parameter *const item = &parameters->items[p];
        HOP_TRY(find_checked(set, item, suffix, &tensor, err));
        hop_convert(array + item->offset, HOP_F32, tensor->data, tensor->dtype, item->count);
    }
    return HOP_OK;
}

bool hop_parameter_parse(const char *name, struct hop_parameter *out)
{
    static const char prefix[] = "base_model.model.model.layers.";
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const long block = strtol(name + sizeof prefix - 1, &end, 10);
    if (end == name + sizeof prefix - 1 || block < 0 || block > INT32_MAX)
        return false;
    struct hop_parameter parsed = {.block = (int32_t)block};
    for (parsed.target = 0; parsed.target < HOP_TARGETS; parsed.target++) {
        for (parsed.factor = HOP_LORA_A; parsed.factor <= HOP_LORA_B; parsed.factor++) {
            char spelled[HOP_TENSOR_NAME];
            hop_parameter_name(&parsed, spelled, sizeof spelled);
            if (strcmp(spelled, name) == 0) {
                *out = parsed;
                return true;
            }
        }
    }
    return false;
}

hop_status hop_adapter_open(const char *directory, struct hop_safetensors **out,
                            struct hop_error *err)
{
    char *path;
    HOP_TRY(hop_path_join(directory, "adapter_model.safetensors", &path, err));
    const hop_status status = hop_safetensors_open(path, out, err);
    free(path);
    return status;
}

static bool is_adapted(const struct hop_parameters *parameters, enum hop_target target)
{
    for (size_t p = 0; p < parameters->count; p++)
        if (parameters->items[p].target == target)
            return true;
    return parameters->count == 0;
}

/* A tensor that nothing would use means the adapter is for another model or another configuration.
 */
static hop_status check_names(const struct hop_safetensors *set,
                              const struct hop_model_config *config,
                              const struct hop_parameters *parameters, struct hop_error *err)
{
    for (size_t i = 0; i < hop_safetensors_count(set); i++) {
        const struct hop_tensor *const tensor = hop_safetensors_at(set, i);
        struct hop_parameter parsed;
        if (!hop_parameter_parse(tensor->name, &parsed) || parsed.block >= config->blocks)
            return hop_fail(
                err, HOP_INPUT,
                "%s: tensor %s matches no block and projection of the model (%d blocks)",
                hop_safetensors_path(set, 0), tensor->name, config->blocks);
        if (!is_adapted(parameters, parsed.target))
            return hop_fail(err, HOP_INPUT, "%s: tensor %s adapts %s, which is not in the targets",
                            hop_safetensors_path(set, 0), tensor->name,
                            hop_target_names[parsed.target]);
    }
    return HOP_OK;
}

hop_status hop_adapter_load(const char *directory, const struct hop_model_config *config,
                            struct hop_parameters *parameters, struct hop_error *err)
{
    struct hop_safetensors *set = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_adapter_open(directory, &set, err));
    HOP_TRY_DONE(check_names(set, config, parameters, err));
    HOP_TRY_DONE(hop_parameters_read(set, parameters, "", parameters->values, err));
done:
    hop_safetensors_close(set);
    return status;
}

hop_status hop_adapter_save(const char *directory, const struct hop_lora_config *lora,
                            const struct hop_parameters *parameters, const char *base,
                            struct hop_error *err)
{
    char *path = NULL;
    hop_status status;
    const float *const arrays[] = {parameters->values};
    const char *const suffixes[] = {""};
    HOP_TRY_DONE(hop_directory_create(directory, err));
    HOP_TRY_DONE(hop_path_join(directory, "adapter_model.safetensors", &path, err));
    HOP_TRY_DONE(hop_parameters_write(path, parameters, arrays, suffixes, 1, err));
    HOP_TRY_DONE(hop_adapter_config_save(directory, lora, base, err));
done:
    free(path);
    return status;
}
