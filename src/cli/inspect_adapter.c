/* What the folder of an adapter holds, as it is written: whether it fits depends on the model. */
#include "cli/inspect.h"
#include "io/json.h"
#include "model/adapter.h"

static json_t *copy_or_null(const json_t *config, const char *key)
{
    const json_t *const value = json_object_get(config, key);
    return value ? json_deep_copy(value) : json_null();
}

static hop_status put_config(const json_t *config, json_t *out, struct hop_error *err)
{
    static const struct {
        const char *key, *name;
    } fields[] = {{"peft_type", "peft_type"},
                  {"r", "rank"},
                  {"lora_alpha", "alpha"},
                  {"target_modules", "targets"},
                  {"base_model_name_or_path", "base"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        HOP_TRY(hop_inspect_put(out, fields[i].name, copy_or_null(config, fields[i].key), err));
    return HOP_OK;
}

static int64_t count_parameters(const struct hop_safetensors *set)
{
    int64_t total = 0;
    for (size_t i = 0; i < hop_safetensors_count(set); i++) {
        const struct hop_tensor *const tensor = hop_safetensors_at(set, i);
        int64_t n = 1;
        for (int d = 0; d < tensor->rank; d++)
            n *= tensor->shape[d];
        total += n;
    }
    return total;
}

static hop_status put_tensors(const char *directory, json_t *out, struct hop_error *err)
{
    static const char file[] = "adapter_model.safetensors";
    struct hop_safetensors *set;
    bool there;
    HOP_TRY(hop_inspect_has(directory, file, &there, err));
    if (!there) {
        HOP_TRY(hop_inspect_append(out, "missing", file, err));
        HOP_TRY(hop_inspect_put(out, "tensors", json_null(), err));
        return hop_inspect_put(out, "parameters", json_null(), err);
    }
    HOP_TRY(hop_adapter_open(directory, &set, err));
    const int64_t parameters = count_parameters(set);
    const size_t tensors = hop_safetensors_count(set);
    hop_safetensors_close(set);
    HOP_TRY(hop_inspect_put(out, "tensors", json_integer((json_int_t)tensors), err));
    return hop_inspect_put(out, "parameters", json_integer(parameters), err);
}

static hop_status gather(const char *directory, json_t *out, struct hop_error *err)
{
    json_t *config = NULL;
    HOP_TRY(hop_inspect_load(directory, "adapter_config.json", &config, err));
    const hop_status status = put_config(config, out, err);
    json_decref(config);
    HOP_TRY(status);
    return put_tensors(directory, out, err);
}

hop_status hop_inspect_adapter(const char *directory, json_t **out, struct hop_error *err)
{
    return hop_inspect_folder("adapter", directory, gather, out, err);
}
