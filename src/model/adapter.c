#include "model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
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

/* The name with the adapter's own in it: "...lora_A.default.weight". */
static void default_name(const struct hop_parameter *item, char name[HOP_TENSOR_NAME])
{
    static const char end[] = ".weight";
    hop_parameter_name(item, name, HOP_TENSOR_NAME);
    const size_t n = strlen(name) - (sizeof end - 1);
    snprintf(name + n, HOP_TENSOR_NAME - n, ".default%s", end);
}

static const struct hop_tensor *find_default(const struct hop_safetensors *set,
                                             const struct hop_parameter *item)
{
    char name[HOP_TENSOR_NAME];
    default_name(item, name);
    return hop_safetensors_find(set, name);
}

static hop_status find_checked(const struct hop_safetensors *set, const struct hop_parameter *item,
                               const char *suffix, const struct hop_tensor **out,
                               struct hop_error *err)
{
    char name[NAME_SIZE];
    hop_parameter_name(item, name, HOP_TENSOR_NAME);
    strncat(name, suffix, sizeof name - strlen(name) - 1);
    *out = hop_safetensors_find(set, name);
    if (!*out && suffix[0] == '\0')
        *out = find_default(set, item);
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
            char spelled[HOP_TENSOR_NAME], in_dict[HOP_TENSOR_NAME];
            hop_parameter_name(&parsed, spelled, sizeof spelled);
            default_name(&parsed, in_dict);
            if (strcmp(spelled, name) == 0 || strcmp(in_dict, name) == 0) {
                *out = parsed;
                return true;
            }
        }
    }
    return false;
}

/* Pickled tensors can run code when they are read. */
static hop_status check_pickled(const char *directory, const char *path, struct hop_error *err)
{
    char *pickled;
    HOP_TRY(hop_path_join(directory, "adapter_model.bin", &pickled, err));
    const bool only = !hop_file_exists(path) && hop_file_exists(pickled);
    free(pickled);
    if (!only)
        return HOP_OK;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "%s: holds adapter_model.bin only, which is not read; save the adapter again "
                    "with a PEFT that writes adapter_model.safetensors",
                    directory);
}

hop_status hop_adapter_open(const char *directory, struct hop_safetensors **out,
                            struct hop_error *err)
{
    char *path;
    HOP_TRY(hop_path_join(directory, "adapter_model.safetensors", &path, err));
    hop_status status = check_pickled(directory, path, err);
    if (status == HOP_OK)
        status = hop_safetensors_open(path, out, err);
    free(path);
    return status;
}

/* Tensors of adapters PEFT knows and this program does not. */
static hop_status check_kind(const struct hop_safetensors *set, const char *name,
                             struct hop_error *err)
{
    static const char *const kinds[] = {"lora_embedding_", "lora_magnitude_vector",
                                        "lora_B.bias",     "modules_to_save",
                                        "lm_head.",        "embed_tokens."};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(name, kinds[i]))
            return hop_fail(err, HOP_UNSUPPORTED,
                            "%s: tensor %s belongs to an adapter that cannot be used: only plain "
                            "LoRA on the projections of blocks can",
                            hop_safetensors_path(set, 0), name);
    return HOP_OK;
}

static bool is_expected(const struct hop_safetensors *set, const char *name,
                        const struct hop_model_config *model, const struct hop_lora_config *lora)
{
    struct hop_parameter parsed;
    char plain[HOP_TENSOR_NAME];
    if (!hop_parameter_parse(name, &parsed) || parsed.block >= model->blocks ||
        hop_lora_rank(lora, parsed.block, parsed.target) == 0)
        return false;
    hop_parameter_name(&parsed, plain, sizeof plain);
    return strcmp(name, plain) == 0 || !hop_safetensors_find(set, plain);
}

/* A tensor that nothing would use means the adapter is for another model or another configuration.
 * The first ones are named. */
static hop_status check_names(const struct hop_safetensors *set,
                              const struct hop_model_config *model,
                              const struct hop_lora_config *lora, struct hop_error *err)
{
    enum { NAMED = 3 };
    struct hop_string names = {0};
    hop_status status = HOP_OK;
    size_t unexpected = 0;
    for (size_t i = 0; i < hop_safetensors_count(set); i++) {
        const char *const name = hop_safetensors_at(set, i)->name;
        if (is_expected(set, name, model, lora))
            continue;
        HOP_TRY_DONE(check_kind(set, name, err));
        if (unexpected++ < NAMED)
            HOP_TRY_DONE(
                hop_string_printf(&names, err, "%s%.100s", names.length ? ", " : "", name));
    }
    if (unexpected > NAMED)
        HOP_TRY_DONE(hop_string_printf(&names, err, " and %zu more", unexpected - NAMED));
    if (unexpected > 0)
        status = hop_fail(err, HOP_INPUT,
                          "%s: %s: adapter_config.json and the model (%d blocks) have no place for "
                          "%s",
                          hop_safetensors_path(set, 0), hop_string_text(&names), model->blocks,
                          unexpected > 1 ? "these tensors" : "this tensor");
done:
    hop_string_free(&names);
    return status;
}

hop_status hop_adapter_load(const char *directory, const struct hop_model_config *model,
                            const struct hop_lora_config *lora, struct hop_parameters *parameters,
                            struct hop_error *err)
{
    struct hop_safetensors *set = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_adapter_open(directory, &set, err));
    HOP_TRY_DONE(check_names(set, model, lora, err));
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
