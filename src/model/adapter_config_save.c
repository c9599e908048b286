/* Writing adapter_config.json: the few keys every PEFT version reads, and patterns only where
 * modules differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/file.h"
#include "io/json.h"
#include "model/adapter.h"

/* Does the projection carry the same adapter in every block? */
static bool is_everywhere(const struct hop_lora_config *lora, enum hop_target target)
{
    for (int32_t block = 0; block < lora->blocks; block++)
        if (hop_lora_rank(lora, block, target) == 0)
            return false;
    return lora->targets[target];
}

static void module_name(int32_t block, enum hop_target target, char name[HOP_TENSOR_NAME])
{
    snprintf(name, HOP_TENSOR_NAME, "model.layers.%d.%s", block, hop_target_paths[target]);
}

/* Projections that are adapted in every block by the end of their names, others one by one. */
static json_t *targets_json(const struct hop_lora_config *lora)
{
    json_t *const list = json_array();
    char name[HOP_TENSOR_NAME];
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        if (is_everywhere(lora, target)) {
            json_array_append_new(list, json_string(hop_target_names[target]));
            continue;
        }
        for (int32_t block = 0; block < lora->blocks; block++) {
            module_name(block, target, name);
            if (hop_lora_rank(lora, block, target) > 0)
                json_array_append_new(list, json_string(name));
        }
    }
    return list;
}

/* A whole number is written without a point, as PEFT does: old versions compare types. */
static json_t *number_json(double number)
{
    const json_int_t whole = (json_int_t)number;
    return number > (double)whole || number < (double)whole ? json_real(number)
                                                            : json_integer(whole);
}

typedef double (*module_value)(const struct hop_lora_config *lora, int32_t block,
                               enum hop_target target);

static double rank_value(const struct hop_lora_config *lora, int32_t block, enum hop_target target)
{
    return hop_lora_rank(lora, block, target);
}

static bool equal(double a, double b)
{
    return !(a < b) && !(a > b);
}

/* Is the value that of block 0 wherever the projection is adapted? */
static bool is_one_value(const struct hop_lora_config *lora, enum hop_target target,
                         module_value value)
{
    for (int32_t block = 0; block < lora->blocks; block++)
        if (!equal(value(lora, block, target), value(lora, 0, target)))
            return false;
    return true;
}

/* {module: value} where the value is not the common one. A name is a key that matches nothing but
 * itself: its points stand for any character, but no other module has as many. */
static json_t *pattern_json(const struct hop_lora_config *lora, module_value value, double common)
{
    json_t *const object = json_object();
    char name[HOP_TENSOR_NAME];
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        const double first = value(lora, 0, target);
        if (is_everywhere(lora, target) && is_one_value(lora, target, value)) {
            if (!equal(first, common))
                json_object_set_new(object, hop_target_names[target], number_json(first));
            continue;
        }
        for (int32_t block = 0; block < lora->blocks; block++) {
            const double here = value(lora, block, target);
            module_name(block, target, name);
            if (hop_lora_rank(lora, block, target) > 0 && !equal(here, common))
                json_object_set_new(object, name, number_json(here));
        }
    }
    return object;
}

/* NULL where a pattern is not needed, which leaves the key out. */
static json_t *pattern_or_null(const struct hop_lora_config *lora, module_value value,
                               double common)
{
    json_t *const pattern = pattern_json(lora, value, common);
    if (json_object_size(pattern) > 0)
        return pattern;
    json_decref(pattern);
    return NULL;
}

/* Sorted keys, as PEFT writes them. */
static json_t *config_json(const struct hop_lora_config *lora, const char *base)
{
    return json_pack("{s:o*, s:s?, s:s, s:b, s:b, s:b, s:o, s:f, s:s, s:i, s:o*, s:o, s:s, s:o*}",
                     "alpha_pattern", pattern_or_null(lora, hop_lora_alpha, lora->alpha),
                     "base_model_name_or_path", base, "bias", "none", "fan_in_fan_out", 0,
                     "inference_mode", 1, "init_lora_weights", 1, "lora_alpha",
                     number_json(lora->alpha), "lora_dropout", 0.0, "peft_type", "LORA", "r",
                     (int)lora->rank, "rank_pattern", pattern_or_null(lora, rank_value, lora->rank),
                     "target_modules", targets_json(lora), "task_type", "CAUSAL_LM", "use_rslora",
                     lora->rslora ? json_true() : NULL);
}

hop_status hop_adapter_config_save(const char *directory, const struct hop_lora_config *lora,
                                   const char *base, struct hop_error *err)
{
    char *path = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "adapter_config.json", &path, err));
    object = config_json(lora, base);
    if (!object)
        HOP_TRY_DONE(hop_fail(err, HOP_INPUT, "%s: the name of the base model is not UTF-8", path));
    HOP_TRY_DONE(hop_json_save(path, object, err));
done:
    json_decref(object);
    free(path);
    return status;
}
