/* adapter_config.json of PEFT: the few keys every PEFT version reads are written; of the many that
 * may be there, those that change the mathematics in a way not computed here are refused by name.
 */
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/adapter.h"

/* Keys that must be absent, null, false, 0 or empty. */
static const char *const refused[] = {
    "use_dora",
    "use_rslora",
    "use_qalora",
    "lora_bias",
    "fan_in_fan_out",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "layer_replication",
    "exclude_modules",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
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

bool hop_target_find(const char *name, size_t length, enum hop_target *out)
{
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        if (strlen(hop_target_names[target]) == length &&
            memcmp(hop_target_names[target], name, length) == 0) {
            *out = target;
            return true;
        }
    }
    return false;
}

/* "q_proj" or "self_attn.q_proj": PEFT matches the end of a module's path. */
static hop_status add_target(const json_t *entry, const char *where, struct hop_lora_config *lora,
                             struct hop_error *err)
{
    const char *const name = json_string_value(entry);
    if (!name)
        return hop_fail(err, HOP_INPUT, "%s: \"target_modules\" must list names", where);
    const char *const dot = strrchr(name, '.');
    const char *const last = dot ? dot + 1 : name;
    enum hop_target target;
    if (!hop_target_find(last, strlen(last), &target) ||
        (dot && strcmp(name, hop_target_paths[target]) != 0))
        return hop_fail(
            err, HOP_UNSUPPORTED,
            "%s: \"target_modules\" names \"%s\"; only the projections of every block can "
            "be adapted (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj)",
            where, name);
    lora->targets[target] = true;
    return HOP_OK;
}

/* A regular expression: what it matched is seen in the tensors that were saved. */
static hop_status targets_from_tensors(const char *directory, struct hop_lora_config *lora,
                                       struct hop_error *err)
{
    struct hop_safetensors *set = NULL;
    HOP_TRY(hop_adapter_open(directory, &set, err));
    for (size_t i = 0; i < hop_safetensors_count(set); i++) {
        struct hop_parameter parsed;
        if (hop_parameter_parse(hop_safetensors_at(set, i)->name, &parsed))
            lora->targets[parsed.target] = true;
    }
    hop_safetensors_close(set);
    return HOP_OK;
}

static hop_status parse_targets(const char *directory, const json_t *object, const char *where,
                                struct hop_lora_config *lora, struct hop_error *err)
{
    const json_t *const modules = json_object_get(object, "target_modules");
    size_t i;
    const json_t *entry;
    if (json_is_string(modules))
        HOP_TRY(targets_from_tensors(directory, lora, err));
    else if (!json_is_array(modules))
        return hop_fail(err, HOP_INPUT, "%s: \"target_modules\" must be a list or a string", where);
    json_array_foreach(modules, i, entry) HOP_TRY(add_target(entry, where, lora, err));
    if (hop_lora_adapted(lora) == 0)
        return hop_fail(err, HOP_INPUT, "%s: \"target_modules\" adapts nothing", where);
    return HOP_OK;
}

static hop_status parse(const char *directory, const json_t *object, const char *where,
                        struct hop_lora_config *out, struct hop_error *err)
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
    HOP_TRY(parse_targets(directory, object, where, &lora, err));
    *out = lora;
    return HOP_OK;
}

hop_status hop_adapter_config(const char *directory, struct hop_lora_config *out,
                              struct hop_error *err)
{
    char *path = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "adapter_config.json", &path, err));
    HOP_TRY_DONE(hop_json_load(path, &object, err));
    HOP_TRY_DONE(parse(directory, object, path, out, err));
done:
    json_decref(object);
    free(path);
    return status;
}

static json_t *targets_json(const struct hop_lora_config *lora)
{
    json_t *const list = json_array();
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        if (lora->targets[target])
            json_array_append_new(list, json_string(hop_target_names[target]));
    return list;
}

/* A whole number is written without a point, as PEFT does: old versions compare types. */
static json_t *alpha_json(double alpha)
{
    const json_int_t whole = (json_int_t)alpha;
    return alpha > (double)whole || alpha < (double)whole ? json_real(alpha) : json_integer(whole);
}

hop_status hop_adapter_config_save(const char *directory, const struct hop_lora_config *lora,
                                   const char *base, struct hop_error *err)
{
    char *path = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "adapter_config.json", &path, err));
    object = json_pack("{s:s?, s:s, s:b, s:b, s:b, s:o, s:f, s:s, s:i, s:o, s:s}",
                       "base_model_name_or_path", base, "bias", "none", "fan_in_fan_out", 0,
                       "inference_mode", 1, "init_lora_weights", 1, "lora_alpha",
                       alpha_json(lora->alpha), "lora_dropout", 0.0, "peft_type", "LORA", "r",
                       lora->rank, "target_modules", targets_json(lora), "task_type", "CAUSAL_LM");
    if (!object)
        HOP_TRY_DONE(hop_fail(err, HOP_INPUT, "%s: the name of the base model is not UTF-8", path));
    HOP_TRY_DONE(hop_json_save(path, object, err));
done:
    json_decref(object);
    free(path);
    return status;
}
