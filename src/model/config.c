/* config.json of Hugging Face LLaMA folders. A field that would change the mathematics in a way
 * this program does not compute is HOP_UNSUPPORTED with its name; fields about training or serving
 * elsewhere are ignored. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"
#include "model/config_internal.h"

/* Far above any published model, low enough that products of three fit in 63 bits. */
enum { MAX_FEATURES = 1 << 20, MAX_BLOCKS = 1 << 12, MAX_VOCABULARY = 1 << 24 };

hop_status hop__config_size(const json_t *object, const char *key, const char *where,
                            int64_t fallback, int64_t maximum, int32_t *out, struct hop_error *err)
{
    int64_t value;
    HOP_TRY(hop_json_get_int(object, key, where, fallback, &value, err));
    if (value < 1 || value > maximum)
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" is %lld, must be between 1 and %lld", where,
                        key, (long long)value, (long long)maximum);
    *out = (int32_t)value;
    return HOP_OK;
}

hop_status hop__config_positive(const json_t *object, const char *key, const char *where,
                                double fallback, double *out, struct hop_error *err)
{
    double value;
    HOP_TRY(hop_json_get_real(object, key, where, fallback, &value, err));
    if (!(value >= (double)FLT_MIN && value <= (double)FLT_MAX))
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" is %g, must be a positive number (%g to %g)",
                        where, key, value, (double)FLT_MIN, (double)FLT_MAX);
    *out = value;
    return HOP_OK;
}

static hop_status parse_sizes(const json_t *object, const char *where, struct hop_model_config *out,
                              struct hop_error *err)
{
    HOP_TRY(hop__config_size(object, "hidden_size", where, 4096, MAX_FEATURES, &out->hidden, err));
    HOP_TRY(hop__config_size(object, "intermediate_size", where, 11008, MAX_FEATURES,
                             &out->intermediate, err));
    HOP_TRY(
        hop__config_size(object, "num_hidden_layers", where, 32, MAX_BLOCKS, &out->blocks, err));
    HOP_TRY(
        hop__config_size(object, "num_attention_heads", where, 32, MAX_FEATURES, &out->heads, err));
    HOP_TRY(hop__config_size(object, "num_key_value_heads", where, out->heads, out->heads,
                             &out->kv_heads, err));
    HOP_TRY(hop__config_size(object, "vocab_size", where, 32000, MAX_VOCABULARY, &out->vocabulary,
                             err));
    HOP_TRY(hop__config_size(object, "max_position_embeddings", where, 2048, INT32_MAX,
                             &out->max_positions, err));
    const bool has_head_dim =
        !json_is_null(json_object_get(object, "head_dim")) && json_object_get(object, "head_dim");
    if (!has_head_dim && out->hidden % out->heads != 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"hidden_size\" %d is no multiple of \"num_attention_heads\" %d and "
                        "\"head_dim\" is missing",
                        where, out->hidden, out->heads);
    return hop__config_size(object, "head_dim", where, out->hidden / out->heads,
                            MAX_FEATURES / out->heads, &out->head_dim, err);
}

static hop_status check_sizes(const struct hop_model_config *config, const char *where,
                              struct hop_error *err)
{
    if (config->heads % config->kv_heads != 0)
        return hop_fail(
            err, HOP_INPUT,
            "%s: \"num_attention_heads\" %d is no multiple of \"num_key_value_heads\" %d", where,
            config->heads, config->kv_heads);
    if (config->head_dim % 2 != 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"head_dim\" is %d, rotary embedding needs an even one", where,
                        config->head_dim);
    return HOP_OK;
}

/* "LLaMAForCausalLM" is what the first converters wrote. */
static hop_status check_class(const json_t *object, const char *where, struct hop_error *err)
{
    static const char *const known[] = {"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM"};
    const json_t *const list = json_object_get(object, "architectures");
    const char *const first = json_string_value(json_array_get(list, 0));
    for (size_t i = 0; first && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(first, known[i]) == 0)
            return HOP_OK;
    if (!first)
        return HOP_OK;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "%s: \"architectures\" is \"%s\"; only \"LlamaForCausalLM\" can be computed",
                    where, first);
}

static hop_status check_architecture(const json_t *object, const char *where, struct hop_error *err)
{
    const char *type;
    HOP_TRY(hop_json_get_string(object, "model_type", where, "llama", &type, err));
    if (strcmp(type, "llama") != 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"model_type\" is \"%s\"; only \"llama\" can be computed", where,
                        type);
    HOP_TRY(check_class(object, where, err));
    const char *activation;
    HOP_TRY(hop_json_get_string(object, "hidden_act", where, "silu", &activation, err));
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"hidden_act\" is \"%s\"; only \"silu\" can be computed", where,
                        activation);
    return HOP_OK;
}

static hop_status check_flags(const json_t *object, const char *where, struct hop_error *err)
{
    bool interleaved;
    HOP_TRY(hop_json_get_bool(object, "rope_interleaved", where, false, &interleaved, err));
    if (interleaved)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"rope_interleaved\": true cannot be computed; permute the rows of "
                        "q_proj and k_proj",
                        where);
    const json_t *const quantization = json_object_get(object, "quantization_config");
    if (quantization && !json_is_null(quantization))
        return hop_fail(
            err, HOP_UNSUPPORTED,
            "%s: \"quantization_config\": quantized checkpoints cannot be read; use the "
            "f32, bf16 or f16 one",
            where);
    return HOP_OK;
}

static hop_status token_id(const json_t *value, const char *key, const char *where,
                           int32_t vocabulary, int32_t *out, struct hop_error *err)
{
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= vocabulary)
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" must be a token id below \"vocab_size\" %d",
                        where, key, vocabulary);
    *out = (int32_t)id;
    return HOP_OK;
}

/* A number, a list of numbers or null. */
static hop_status parse_eos(const json_t *value, const char *where, struct hop_model_config *out,
                            struct hop_error *err)
{
    const bool list = json_is_array(value);
    const size_t count = list ? json_array_size(value) : !json_is_null(value);
    if (count > HOP_MAX_EOS)
        return hop_fail(err, HOP_INPUT, "%s: \"eos_token_id\" lists %zu ids, at most %d are read",
                        where, count, HOP_MAX_EOS);
    for (size_t i = 0; i < count; i++)
        HOP_TRY(token_id(list ? json_array_get(value, i) : value, "eos_token_id", where,
                         out->vocabulary, &out->eos[i], err));
    out->eos_count = (int32_t)count;
    return HOP_OK;
}

static hop_status parse_tokens(const json_t *object, const char *where,
                               struct hop_model_config *out, struct hop_error *err)
{
    const json_t *const bos = json_object_get(object, "bos_token_id");
    const json_t *const eos = json_object_get(object, "eos_token_id");
    out->bos = out->vocabulary > 1 ? 1 : -1;
    if (bos && json_is_null(bos))
        out->bos = -1;
    else if (bos)
        HOP_TRY(token_id(bos, "bos_token_id", where, out->vocabulary, &out->bos, err));
    if (eos)
        return parse_eos(eos, where, out, err);
    out->eos[0] = 2;
    out->eos_count = out->vocabulary > 2 ? 1 : 0;
    return HOP_OK;
}

hop_status hop_model_config_parse(const json_t *object, const char *where,
                                  struct hop_model_config *out, struct hop_error *err)
{
    struct hop_model_config config = {0};
    double eps = 0;
    HOP_TRY(check_architecture(object, where, err));
    HOP_TRY(check_flags(object, where, err));
    HOP_TRY(parse_sizes(object, where, &config, err));
    HOP_TRY(check_sizes(&config, where, err));
    HOP_TRY(hop__config_positive(object, "rms_norm_eps", where, 1e-6, &eps, err));
    config.norm_eps = (float)eps;
    HOP_TRY(hop_json_get_bool(object, "tie_word_embeddings", where, false, &config.tied, err));
    HOP_TRY(hop_json_get_bool(object, "attention_bias", where, false, &config.attention_bias, err));
    HOP_TRY(hop_json_get_bool(object, "mlp_bias", where, false, &config.mlp_bias, err));
    HOP_TRY(hop__config_rope(object, where, &config, err));
    HOP_TRY(parse_tokens(object, where, &config, err));
    *out = config;
    return HOP_OK;
}

static bool ends(const struct hop_model_config *config, int32_t id)
{
    for (int32_t i = 0; i < config->eos_count; i++)
        if (config->eos[i] == id)
            return true;
    return false;
}

/* Instruct models end a turn with tokens that only generation_config.json names. */
static hop_status add_eos(const json_t *value, const char *where, struct hop_model_config *config,
                          struct hop_error *err)
{
    struct hop_model_config more = *config;
    HOP_TRY(parse_eos(value, where, &more, err));
    for (int32_t i = 0; i < more.eos_count; i++) {
        if (ends(config, more.eos[i]))
            continue;
        if (config->eos_count == HOP_MAX_EOS)
            return hop_fail(err, HOP_INPUT,
                            "%s: \"eos_token_id\": with those of config.json more than %d ids",
                            where, HOP_MAX_EOS);
        config->eos[config->eos_count++] = more.eos[i];
    }
    return HOP_OK;
}

static hop_status add_generation_eos(const char *directory, struct hop_model_config *config,
                                     struct hop_error *err)
{
    char *path = NULL;
    json_t *generation = NULL;
    hop_status status;
    HOP_TRY(hop_path_join(directory, "generation_config.json", &path, err));
    if (!hop_file_exists(path)) {
        status = HOP_OK;
        goto done;
    }
    HOP_TRY_DONE(hop_json_load(path, &generation, err));
    const json_t *const eos = json_object_get(generation, "eos_token_id");
    if (eos)
        status = add_eos(eos, path, config, err);
done:
    json_decref(generation);
    free(path);
    return status;
}

/* The default end of text counts only where no file names one. */
static hop_status finish_eos(const char *directory, bool named, struct hop_model_config *config,
                             struct hop_error *err)
{
    struct hop_model_config with = *config;
    if (!named)
        with.eos_count = 0;
    HOP_TRY(add_generation_eos(directory, &with, err));
    if (named || with.eos_count > 0)
        *config = with;
    return HOP_OK;
}

hop_status hop_model_config_load(const char *directory, struct hop_model_config *out,
                                 struct hop_error *err)
{
    struct hop_model_config config;
    char *path = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "config.json", &path, err));
    HOP_TRY_DONE(hop_json_load(path, &object, err));
    HOP_TRY_DONE(hop_model_config_parse(object, path, &config, err));
    HOP_TRY_DONE(
        finish_eos(directory, json_object_get(object, "eos_token_id") != NULL, &config, err));
    *out = config;
done:
    json_decref(object);
    free(path);
    return status;
}

static json_t *eos_json(const struct hop_model_config *config)
{
    json_t *const list = json_array();
    for (int32_t i = 0; i < config->eos_count; i++)
        json_array_append_new(list, json_integer(config->eos[i]));
    return list;
}

json_t *hop_model_config_json(const struct hop_model_config *config)
{
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o, s:b, s:b, s:b, s:o, s:o}",
        "model_type", "llama", "hidden_size", config->hidden, "intermediate_size",
        config->intermediate, "num_hidden_layers", config->blocks, "num_attention_heads",
        config->heads, "num_key_value_heads", config->kv_heads, "head_dim", config->head_dim,
        "vocab_size", config->vocabulary, "max_position_embeddings", config->max_positions,
        "rms_norm_eps", (double)config->norm_eps, "rope_theta", config->rope_theta, "rope_scaling",
        hop__config_rope_json(config), "attention_bias", config->attention_bias, "mlp_bias",
        config->mlp_bias, "tie_word_embeddings", config->tied, "bos_token_id",
        config->bos < 0 ? json_null() : json_integer(config->bos), "eos_token_id",
        eos_json(config));
}
