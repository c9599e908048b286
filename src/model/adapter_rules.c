#include "model/adapter_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/json.h"
#include "model/module_pattern.h"
#include "model/weights.h"

/* A list of names, or one regular expression. */
struct selector {
    const json_t *names;
    struct hop_module_pattern *pattern;
    bool all;
};

/* rank_pattern or alpha_pattern: values[i] of the names that keys[i] matches. */
struct values {
    const json_t *object;
    struct hop_module_pattern **keys;
    size_t count;
};

struct rules {
    const char *where;
    struct selector targets, excluded;
    const json_t *layers; /* layers_to_transform: an integer or a list; NULL: every block */
    struct hop_module_pattern **layer_patterns;
    size_t layer_pattern_count;
    struct values ranks, alphas;
};

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static bool is_list_of(const json_t *value, bool integers)
{
    size_t i;
    json_t *entry;
    if (!json_is_array(value))
        return false;
    json_array_foreach((json_t *)(uintptr_t)value, i, entry)
    {
        if (integers ? !json_is_integer(entry) : !json_is_string(entry))
            return false;
    }
    return true;
}

/* Reading */

static hop_status read_selector(const json_t *object, const char *key, const char *where,
                                struct selector *out, struct hop_error *err)
{
    const json_t *const value = json_object_get(object, key);
    const char *const text = json_string_value(value);
    struct hop_string place = {0};
    if (is_empty(value))
        return HOP_OK;
    if (!text) {
        out->names = value;
        return is_list_of(value, false)
                   ? HOP_OK
                   : hop_fail(err, HOP_INPUT, "%s: \"%s\" must be a list of names or a string",
                              where, key);
    }
    out->all = strcmp(text, "all-linear") == 0;
    if (out->all)
        return HOP_OK;
    HOP_TRY(hop_string_printf(&place, err, "%s: \"%s\"", where, key));
    const hop_status status =
        hop_module_pattern_create(text, hop_string_text(&place), &out->pattern, err);
    hop_string_free(&place);
    return status;
}

static hop_status compile(struct hop_module_pattern **out, const char *where, const char *key,
                          struct hop_error *err, const char *before, const char *text,
                          const char *after)
{
    struct hop_string whole = {0}, place = {0};
    hop_status status;
    HOP_TRY_DONE(hop_string_printf(&place, err, "%s: \"%s\"", where, key));
    HOP_TRY_DONE(hop_string_printf(&whole, err, "%s%s%s", before, text, after));
    HOP_TRY_DONE(
        hop_module_pattern_create(hop_string_text(&whole), hop_string_text(&place), out, err));
done:
    hop_string_free(&whole);
    hop_string_free(&place);
    return status;
}

static hop_status read_values(const json_t *object, const char *key, const char *where,
                              struct values *out, struct hop_error *err)
{
    json_t *const value = json_object_get(object, key), *entry;
    const char *name;
    if (is_empty(value))
        return HOP_OK;
    if (!json_is_object(value))
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" must be an object", where, key);
    out->object = value;
    HOP_TRY(hop_calloc(&out->keys, json_object_size(value), sizeof(void *), err));
    json_object_foreach(value, name, entry)
    {
        if (!json_is_number(entry))
            return hop_fail(err, HOP_INPUT, "%s: \"%s\": \"%s\" must be a number", where, key,
                            name);
        HOP_TRY(compile(&out->keys[out->count], where, key, err, "(.*\\.)?(", name, ")$"));
        out->count++;
    }
    return HOP_OK;
}

static hop_status add_layer_pattern(struct rules *rules, const char *text, struct hop_error *err)
{
    HOP_TRY(compile(&rules->layer_patterns[rules->layer_pattern_count], rules->where,
                    "layers_pattern", err, ".*\\.", text, ""));
    rules->layer_pattern_count++;
    return HOP_OK;
}

static hop_status read_layer_patterns(const json_t *object, struct rules *rules,
                                      struct hop_error *err)
{
    const json_t *const value = json_object_get(object, "layers_pattern");
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    HOP_TRY(hop_calloc(&rules->layer_patterns, n, sizeof(void *), err));
    if (is_empty(value))
        return add_layer_pattern(rules, "[^.]*", err);
    if (json_is_string(value))
        return add_layer_pattern(rules, json_string_value(value), err);
    if (!is_list_of(value, false))
        return hop_fail(err, HOP_INPUT, "%s: \"layers_pattern\" must be a string or a list of them",
                        rules->where);
    for (size_t i = 0; i < n; i++)
        HOP_TRY(add_layer_pattern(rules, json_string_value(json_array_get(value, i)), err));
    return HOP_OK;
}

static hop_status read_layers(const json_t *object, struct rules *rules, struct hop_error *err)
{
    const json_t *const value = json_object_get(object, "layers_to_transform");
    if (is_empty(value))
        return HOP_OK;
    if (!json_is_integer(value) && !is_list_of(value, true))
        return hop_fail(err, HOP_INPUT,
                        "%s: \"layers_to_transform\" must be an integer or a list of them",
                        rules->where);
    if (rules->targets.pattern)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"layers_to_transform\" needs a list of \"target_modules\", not a "
                        "regular expression",
                        rules->where);
    rules->layers = value;
    return read_layer_patterns(object, rules, err);
}

static hop_status read_rules(const json_t *object, struct rules *rules, struct hop_error *err)
{
    const json_t *const targets = json_object_get(object, "target_modules");
    if (is_empty(targets))
        return hop_fail(err, HOP_INPUT, "%s: \"target_modules\" is missing or empty", rules->where);
    HOP_TRY(read_selector(object, "target_modules", rules->where, &rules->targets, err));
    HOP_TRY(read_selector(object, "exclude_modules", rules->where, &rules->excluded, err));
    HOP_TRY(read_layers(object, rules, err));
    HOP_TRY(read_values(object, "rank_pattern", rules->where, &rules->ranks, err));
    return read_values(object, "alpha_pattern", rules->where, &rules->alphas, err);
}

static void free_patterns(struct hop_module_pattern **patterns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hop_module_pattern_free(patterns[i]);
    free(patterns);
}

static void free_rules(struct rules *rules)
{
    hop_module_pattern_free(rules->targets.pattern);
    hop_module_pattern_free(rules->excluded.pattern);
    free_patterns(rules->layer_patterns, rules->layer_pattern_count);
    free_patterns(rules->ranks.keys, rules->ranks.count);
    free_patterns(rules->alphas.keys, rules->alphas.count);
}

/* Matching */

enum found { NOT_FOUND, FOUND_BY_END, FOUND };

static bool ends_with_module(const char *name, const char *entry)
{
    const size_t n = strlen(name), m = strlen(entry);
    return n > m && name[n - m - 1] == '.' && strcmp(name + n - m, entry) == 0;
}

static enum found find_name(const json_t *names, const char *name)
{
    size_t i;
    json_t *entry;
    enum found found = NOT_FOUND;
    json_array_foreach((json_t *)(uintptr_t)names, i, entry)
    {
        if (strcmp(json_string_value(entry), name) == 0)
            return FOUND;
        if (ends_with_module(name, json_string_value(entry)))
            found = FOUND_BY_END;
    }
    return found;
}

static hop_status select_module(const struct selector *selector, const char *name, bool linear,
                                enum found *out, struct hop_error *err)
{
    bool matched = selector->all && linear;
    if (selector->names) {
        *out = find_name(selector->names, name);
        return HOP_OK;
    }
    if (selector->pattern)
        HOP_TRY(hop_module_pattern_match(selector->pattern, name, &matched, err));
    *out = !matched ? NOT_FOUND : selector->all ? FOUND_BY_END : FOUND;
    return HOP_OK;
}

static bool lists_block(const json_t *layers, json_int_t block)
{
    size_t i;
    json_t *entry;
    if (json_is_integer(layers))
        return json_integer_value(layers) == block;
    json_array_foreach((json_t *)(uintptr_t)layers, i, entry)
    {
        if (json_integer_value(entry) == block)
            return true;
    }
    return false;
}

/* The part of a module's name in front of its block's number: "model.layers". */
static bool split_block(const char *name, char *before, size_t size, long *block)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        char *end;
        if (dot[1] < '0' || dot[1] > '9')
            continue;
        *block = strtol(dot + 1, &end, 10);
        if (*end != '.')
            continue;
        snprintf(before, size, "%.*s", (int)(dot - name), name);
        return true;
    }
    return false;
}

static hop_status in_layers(const struct rules *rules, const char *name, bool *out,
                            struct hop_error *err)
{
    char before[HOP_TENSOR_NAME];
    long block;
    *out = !rules->layers;
    if (!rules->layers || !split_block(name, before, sizeof before, &block) ||
        !lists_block(rules->layers, block))
        return HOP_OK;
    for (size_t i = 0; i < rules->layer_pattern_count && !*out; i++)
        HOP_TRY(hop_module_pattern_match(rules->layer_patterns[i], before, out, err));
    return HOP_OK;
}

static hop_status is_adapted(const struct rules *rules, const char *name, bool linear, bool *out,
                             struct hop_error *err)
{
    enum found target, excluded;
    *out = false;
    HOP_TRY(select_module(&rules->excluded, name, linear, &excluded, err));
    if (excluded != NOT_FOUND)
        return HOP_OK;
    HOP_TRY(select_module(&rules->targets, name, linear, &target, err));
    *out = target == FOUND;
    return target == FOUND_BY_END ? in_layers(rules, name, out, err) : HOP_OK;
}

/* *out keeps its value where no key matches. */
static hop_status find_value(const struct values *values, const char *name, double *out,
                             struct hop_error *err)
{
    void *iterator = json_object_iter((json_t *)(uintptr_t)values->object);
    for (size_t i = 0; i < values->count; i++) {
        bool matched = false;
        HOP_TRY(hop_module_pattern_match(values->keys[i], name, &matched, err));
        if (matched) {
            *out = json_number_value(json_object_iter_value(iterator));
            return HOP_OK;
        }
        iterator = json_object_iter_next((json_t *)(uintptr_t)values->object, iterator);
    }
    /* PEFT falls back to the name itself, which need not match as an expression. */
    const json_t *const exact = json_object_get(values->object, name);
    if (exact)
        *out = json_number_value(exact);
    return HOP_OK;
}

/* Applying */

/* Modules PEFT adapts and this program does not. */
static hop_status check_others(const struct rules *rules, struct hop_error *err)
{
    static const char *const others[] = {"lm_head", "model.embed_tokens"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bool adapted;
        HOP_TRY(is_adapted(rules, others[i], false, &adapted, err));
        if (adapted)
            return hop_fail(err, HOP_UNSUPPORTED,
                            "%s: \"target_modules\" adapts %s; only the projections of blocks can "
                            "be adapted (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
                            "down_proj)",
                            rules->where, others[i]);
    }
    return HOP_OK;
}

static hop_status module_of(const struct rules *rules, const struct hop_lora_config *lora,
                            int32_t block, enum hop_target target, int32_t *rank, double *alpha,
                            struct hop_error *err)
{
    char name[HOP_TENSOR_NAME];
    bool adapted;
    double r = lora->rank;
    *rank = 0;
    *alpha = lora->alpha;
    snprintf(name, sizeof name, "model.layers.%d.%s", block, hop_target_paths[target]);
    HOP_TRY(is_adapted(rules, name, true, &adapted, err));
    if (!adapted)
        return HOP_OK;
    HOP_TRY(find_value(&rules->ranks, name, &r, err));
    HOP_TRY(find_value(&rules->alphas, name, alpha, err));
    if (!(r >= 1 && r <= HOP_MAX_RANK) || r > (int32_t)r)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"rank_pattern\" gives %s the rank %g, must be a whole number between "
                        "1 and %d",
                        rules->where, name, r, HOP_MAX_RANK);
    *rank = (int32_t)r;
    return HOP_OK;
}

/* Is the module what `first` and the common rank and alpha say? */
static bool is_common(const struct hop_lora_config *lora, bool adapted, int32_t rank, double alpha)
{
    if (!adapted || rank == 0)
        return !adapted && rank == 0;
    return rank == lora->rank && !(alpha > lora->alpha) && !(alpha < lora->alpha);
}

static hop_status apply(const struct rules *rules, const struct hop_model_config *model,
                        struct hop_lora_config *lora, struct hop_error *err)
{
    bool first[HOP_TARGETS] = {false}, common = true;
    for (int32_t block = 0; block < model->blocks; block++) {
        for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
            int32_t rank;
            double alpha;
            HOP_TRY(module_of(rules, lora, block, target, &rank, &alpha, err));
            if (block == 0)
                first[target] = rank > 0;
            common = common && is_common(lora, first[target], rank, alpha);
            lora->targets[target] = lora->targets[target] || rank > 0;
            if (block >= HOP_LORA_BLOCKS)
                continue;
            lora->ranks[block][target] = (uint16_t)rank;
            lora->alphas[block][target] = rank > 0 ? alpha : 0;
        }
    }
    lora->blocks = common ? 0 : model->blocks;
    return HOP_OK;
}

static void forget_tables(struct hop_lora_config *lora)
{
    memset(lora->ranks, 0, sizeof lora->ranks);
    memset(lora->alphas, 0, sizeof lora->alphas);
}

static hop_status check_applied(const json_t *object, const struct rules *rules,
                                const struct hop_lora_config *lora, struct hop_error *err)
{
    if (lora->blocks > HOP_LORA_BLOCKS)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: the blocks' adapters differ; that is possible for models of up to %d "
                        "blocks, this one has %d",
                        rules->where, HOP_LORA_BLOCKS, lora->blocks);
    if (hop_lora_adapted(lora) > 0)
        return HOP_OK;
    char *const text =
        json_dumps(json_object_get(object, "target_modules"), JSON_ENCODE_ANY | JSON_COMPACT);
    hop_fail(err, HOP_UNSUPPORTED,
             "%s: \"target_modules\" %.200s matches no projection of the model (q_proj, k_proj, "
             "v_proj, o_proj, gate_proj, up_proj, down_proj)",
             rules->where, text ? text : "");
    free(text);
    return HOP_UNSUPPORTED;
}

hop_status hop_adapter_rules_apply(const json_t *object, const char *where,
                                   const struct hop_model_config *model,
                                   struct hop_lora_config *lora, struct hop_error *err)
{
    struct rules rules = {.where = where};
    struct hop_lora_config applied = *lora;
    hop_status status;
    HOP_TRY_DONE(read_rules(object, &rules, err));
    HOP_TRY_DONE(check_others(&rules, err));
    HOP_TRY_DONE(apply(&rules, model, &applied, err));
    HOP_TRY_DONE(check_applied(object, &rules, &applied, err));
    if (applied.blocks == 0)
        forget_tables(&applied);
    *lora = applied;
done:
    free_rules(&rules);
    return status;
}
