/* Rotary embedding as config.json describes it.
 *
 * transformers 4 has a top-level rope_theta and a rope_scaling whose kind is "rope_type" (older:
 * "type"); transformers 5 has rope_parameters, which holds all of it. Where both are there, the
 * newer one counts. */
#include <math.h>
#include <string.h>

#include "io/json.h"
#include "model/config_internal.h"

/* In the order of enum hop_rope_scaling. */
const char *const hop_rope_names[] = {"default", "linear", "dynamic", "yarn", "llama3", NULL};

static bool given(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return value && !json_is_null(value);
}

static hop_status need(const json_t *scaling, const char *key, const char *type, const char *where,
                       struct hop_error *err)
{
    if (given(scaling, key))
        return HOP_OK;
    return hop_fail(err, HOP_INPUT, "%s: rotary embedding of type \"%s\" needs \"%s\"", where, type,
                    key);
}

static hop_status parse_linear(const json_t *scaling, const char *where,
                               struct hop_model_config *out, struct hop_error *err)
{
    HOP_TRY(need(scaling, "factor", "linear", where, err));
    return hop__config_positive(scaling, "factor", where, 1, &out->rope_factor, err);
}

/* The base grows with (factor * length / original - (factor - 1)) to the power of dim / (dim - 2).
 */
static hop_status parse_dynamic(const json_t *scaling, const char *where,
                                struct hop_model_config *out, struct hop_error *err)
{
    HOP_TRY(need(scaling, "factor", "dynamic", where, err));
    HOP_TRY(hop__config_positive(scaling, "factor", where, 1, &out->rope_factor, err));
    if (out->rope_factor < 1)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"factor\" is %g; rotary embedding of type \"dynamic\" needs at least "
                        "1",
                        where, out->rope_factor);
    if (out->head_dim < 4)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"head_dim\" is %d; rotary embedding of type \"dynamic\" needs at "
                        "least 4",
                        where, out->head_dim);
    out->rope_original = out->max_positions;
    return HOP_OK;
}

/* 0.1 ln(factor) + 1 (Peng et al. 2023), or the quotient of two of these with their own weights. */
static double yarn_scale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static hop_status parse_yarn_attention(const json_t *scaling, const char *where,
                                       struct hop_model_config *out, struct hop_error *err)
{
    double weight = 0, all = 0;
    HOP_TRY(hop_json_get_real(scaling, "mscale", where, 0, &weight, err));
    HOP_TRY(hop_json_get_real(scaling, "mscale_all_dim", where, 0, &all, err));
    const bool both = fabs(weight) > 0 && fabs(all) > 0;
    const double usual =
        both ? yarn_scale(out->rope_factor, weight) / yarn_scale(out->rope_factor, all)
             : yarn_scale(out->rope_factor, 1);
    return hop__config_positive(scaling, "attention_factor", where, usual, &out->rope_attention,
                                err);
}

static hop_status parse_yarn(const json_t *scaling, const char *where, struct hop_model_config *out,
                             struct hop_error *err)
{
    static const char original[] = "original_max_position_embeddings";
    if (!given(scaling, original))
        HOP_TRY(need(scaling, "factor", "yarn", where, err));
    HOP_TRY(hop__config_size(scaling, original, where, out->max_positions, INT32_MAX,
                             &out->rope_original, err));
    const double grown = (double)out->max_positions / out->rope_original;
    HOP_TRY(hop__config_positive(scaling, "factor", where, grown, &out->rope_factor, err));
    HOP_TRY(parse_yarn_attention(scaling, where, out, err));
    HOP_TRY(hop__config_positive(scaling, "beta_fast", where, 32, &out->rope_high, err));
    HOP_TRY(hop__config_positive(scaling, "beta_slow", where, 1, &out->rope_low, err));
    HOP_TRY(hop_json_get_bool(scaling, "truncate", where, true, &out->rope_truncate, err));
    if (out->rope_high <= out->rope_low)
        return hop_fail(err, HOP_INPUT, "%s: \"beta_fast\" %g must be above \"beta_slow\" %g",
                        where, out->rope_high, out->rope_low);
    if (out->rope_theta <= 1)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"rope_theta\" is %g; rotary embedding of type \"yarn\" needs one "
                        "above 1",
                        where, out->rope_theta);
    return HOP_OK;
}

static hop_status parse_llama3(const json_t *scaling, const char *where,
                               struct hop_model_config *out, struct hop_error *err)
{
    static const char *const keys[] = {"factor", "low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        HOP_TRY(need(scaling, keys[i], "llama3", where, err));
    HOP_TRY(hop__config_positive(scaling, "factor", where, 1, &out->rope_factor, err));
    HOP_TRY(hop__config_positive(scaling, "low_freq_factor", where, 1, &out->rope_low, err));
    HOP_TRY(hop__config_positive(scaling, "high_freq_factor", where, 4, &out->rope_high, err));
    HOP_TRY(hop__config_size(scaling, keys[3], where, 8192, INT32_MAX, &out->rope_original, err));
    if (out->rope_high <= out->rope_low)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"high_freq_factor\" %g must be above \"low_freq_factor\" %g", where,
                        out->rope_high, out->rope_low);
    return HOP_OK;
}

static hop_status check_whole(const json_t *object, const char *where, struct hop_error *err)
{
    double partial;
    HOP_TRY(hop_json_get_real(object, "partial_rotary_factor", where, 1, &partial, err));
    if (partial < 1 || partial > 1)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: \"partial_rotary_factor\" %g cannot be computed",
                        where, partial);
    return HOP_OK;
}

static hop_status find_type(const char *type, const char *where, enum hop_rope_scaling *out,
                            struct hop_error *err)
{
    for (int i = 0; hop_rope_names[i]; i++)
        if (strcmp(type, hop_rope_names[i]) == 0) {
            *out = (enum hop_rope_scaling)i;
            return HOP_OK;
        }
    return hop_fail(err, HOP_UNSUPPORTED,
                    "%s: \"rope_type\" \"%s\" cannot be computed; \"default\", \"linear\", "
                    "\"dynamic\", \"yarn\" and \"llama3\" can",
                    where, type);
}

/* transformers 5 can give each kind of layer an object of its own; LLaMA has one kind only. */
static hop_status check_flat(const json_t *scaling, const char *where, struct hop_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(scaling))
        return hop_fail(err, HOP_INPUT, "%s: the rotary embedding must be described by an object",
                        where);
    json_object_foreach((json_t *)(uintptr_t)scaling, key, value)
    {
        if (json_is_object(value))
            return hop_fail(err, HOP_UNSUPPORTED,
                            "%s: \"%s\": rotary embedding per kind of layer cannot be computed",
                            where, key);
    }
    return HOP_OK;
}

static hop_status parse_scaling(const json_t *scaling, const char *where,
                                struct hop_model_config *out, struct hop_error *err)
{
    static hop_status (*const parsers[])(const json_t *, const char *, struct hop_model_config *,
                                         struct hop_error *) = {[HOP_ROPE_LINEAR] = parse_linear,
                                                                [HOP_ROPE_DYNAMIC] = parse_dynamic,
                                                                [HOP_ROPE_YARN] = parse_yarn,
                                                                [HOP_ROPE_LLAMA3] = parse_llama3};
    const char *type, *old;
    HOP_TRY(check_flat(scaling, where, err));
    HOP_TRY(check_whole(scaling, where, err));
    HOP_TRY(
        hop__config_positive(scaling, "rope_theta", where, out->rope_theta, &out->rope_theta, err));
    HOP_TRY(hop_json_get_string(scaling, "type", where, "default", &old, err));
    HOP_TRY(hop_json_get_string(scaling, "rope_type", where, old, &type, err));
    HOP_TRY(find_type(type, where, &out->rope_scaling, err));
    return out->rope_scaling == HOP_ROPE_PLAIN
               ? HOP_OK
               : parsers[out->rope_scaling](scaling, where, out, err);
}

hop_status hop__config_rope(const json_t *object, const char *where, struct hop_model_config *out,
                            struct hop_error *err)
{
    out->rope_factor = out->rope_attention = out->rope_low = 1;
    out->rope_high = 4;
    HOP_TRY(hop__config_positive(object, "rope_theta", where, 10000, &out->rope_theta, err));
    HOP_TRY(check_whole(object, where, err));
    if (given(object, "rope_parameters"))
        return parse_scaling(json_object_get(object, "rope_parameters"), where, out, err);
    if (given(object, "rope_scaling"))
        return parse_scaling(json_object_get(object, "rope_scaling"), where, out, err);
    return HOP_OK;
}

json_t *hop__config_rope_json(const struct hop_model_config *config)
{
    const char *const type = hop_rope_names[config->rope_scaling];
    switch (config->rope_scaling) {
    case HOP_ROPE_PLAIN:
        return json_null();
    case HOP_ROPE_LINEAR:
    case HOP_ROPE_DYNAMIC:
        return json_pack("{s:s, s:f}", "rope_type", type, "factor", config->rope_factor);
    case HOP_ROPE_YARN:
        return json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:i}", "rope_type", type, "factor",
                         config->rope_factor, "attention_factor", config->rope_attention,
                         "beta_fast", config->rope_high, "beta_slow", config->rope_low, "truncate",
                         config->rope_truncate, "original_max_position_embeddings",
                         config->rope_original);
    case HOP_ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", type, "factor",
                         config->rope_factor, "low_freq_factor", config->rope_low,
                         "high_freq_factor", config->rope_high, "original_max_position_embeddings",
                         config->rope_original);
    }
    return NULL;
}
