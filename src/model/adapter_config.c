/* Reading adapter_config.json of PEFT: of the many keys that may be there, those that change the
 * mathematics in a way not computed here are refused by name. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/file.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/adapter_rules.h"

/* Keys that must be absent, null, false, 0 or empty. */
static const char *const refused[] = {
    "use_dora",
    "use_qalora",
    "lora_bias",
    "fan_in_fan_out",
    "modules_to_save",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
};

/* Keys that are used, or change nothing about an adapter that is there already. */
static const char *const known[] = {
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
};

static bool is_unset(const json_t *value)
{
    if (!value || json_is_null(value) || json_is_false(value))
        return true;
    if (json_is_array(value))
        return json_array_size(value) == 0;
    return json_is_object(value) && json_object_size(value) == 0;
}

static hop_status check_refused(const json_t *object, const char *where, struct hop_error *err)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (!is_unset(json_object_get(object, refused[i])))
            return hop_fail(err, HOP_UNSUPPORTED, "%s: \"%s\" is set; such adapters cannot be used",
                            where, refused[i]);
    const char *type, *bias;
    HOP_TRY(hop_json_get_string(object, "peft_type", where, "LORA", &type, err));
    if (strcmp(type, "LORA") != 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"peft_type\" is \"%s\"; only \"LORA\" can be used", where, type);
    HOP_TRY(hop_json_get_string(object, "bias", where, "none", &bias, err));
    if (strcmp(bias, "none") != 0)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: \"bias\" is \"%s\"; only \"none\" can be used",
                        where, bias);
    return HOP_OK;
}

/* Some initialisations change the base weights too, so that the adapter alone is not enough. */
static hop_status check_initialisation(const json_t *object, const char *where,
                                       struct hop_error *err)
{
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const char *const init = json_string_value(json_object_get(object, "init_lora_weights"));
    for (size_t i = 0; init && i < sizeof harmless / sizeof harmless[0]; i++)
        if (strcmp(init, harmless[i]) == 0)
            return HOP_OK;
    if (init)
        return hop_fail(
            err, HOP_UNSUPPORTED,
            "%s: \"init_lora_weights\" is \"%s\", which changes the base model; convert "
            "the adapter to plain LoRA first",
            where, init);
    return HOP_OK;
}

static hop_status parse(const json_t *object, const char *where,
                        const struct hop_model_config *model, struct hop_lora_config *out,
                        struct hop_error *err)
{
    struct hop_lora_config lora = {0};
    int64_t rank = 0;
    HOP_TRY(check_refused(object, where, err));
    HOP_TRY(check_initialisation(object, where, err));
    HOP_TRY(hop_json_get_int(object, "r", where, 8, &rank, err));
    if (rank < 1 || rank > HOP_MAX_RANK)
        return hop_fail(err, HOP_INPUT, "%s: \"r\" is %lld, must be between 1 and %d", where,
                        (long long)rank, HOP_MAX_RANK);
    lora.rank = (int32_t)rank;
    HOP_TRY(hop_json_get_real(object, "lora_alpha", where, 8, &lora.alpha, err));
    HOP_TRY(hop_json_get_bool(object, "use_rslora", where, false, &lora.rslora, err));
    HOP_TRY(hop_adapter_rules_apply(object, where, model, &lora, err));
    *out = lora;
    return HOP_OK;
}

static hop_status load(const char *directory, char **path, json_t **object, struct hop_error *err)
{
    HOP_TRY(hop_path_join(directory, "adapter_config.json", path, err));
    return hop_json_load(*path, object, err);
}

hop_status hop_adapter_config(const char *directory, const struct hop_model_config *model,
                              struct hop_lora_config *out, struct hop_error *err)
{
    char *path = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(load(directory, &path, &object, err));
    HOP_TRY_DONE(parse(object, path, model, out, err));
done:
    json_decref(object);
    free(path);
    return status;
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(key, known[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strcmp(key, refused[i]) == 0)
            return true;
    return false;
}

hop_status hop_adapter_warn(const char *directory, struct hop_error *err)
{
    char *path = NULL;
    json_t *object = NULL, *value;
    const char *name;
    hop_status status;
    HOP_TRY_DONE(load(directory, &path, &object, err));
    json_object_foreach(object, name, value)
    {
        if (!is_known(name) && !is_unset(value))
            hop_warn("%s: \"%s\" is not known here and ignored", path, name);
    }
done:
    json_decref(object);
    free(path);
    return status;
}
