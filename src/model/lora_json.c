/* A LoRA configuration in the messages between ranks. */
#include <math.h>

#include "io/json.h"
#include "model/lora.h"

static json_t *targets_json(const struct hop_lora_config *lora)
{
    json_t *const list = json_array();
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        if (lora->targets[target])
            json_array_append_new(list, json_string(hop_target_names[target]));
    return list;
}

/* A list for each block of [rank, alpha] for each projection. */
static json_t *modules_json(const struct hop_lora_config *lora)
{
    json_t *const blocks = json_array();
    for (int32_t block = 0; block < lora->blocks; block++) {
        json_t *const row = json_array();
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            json_array_append_new(row, json_pack("[i, f]", (int)lora->ranks[block][target],
                                                 lora->alphas[block][target]));
        json_array_append_new(blocks, row);
    }
    return blocks;
}

json_t *hop_lora_json(const struct hop_lora_config *lora)
{
    return json_pack("{s:i, s:f, s:b, s:o, s:o, s:[i, i, i]}", "rank", (int)lora->rank, "alpha",
                     lora->alpha, "rslora", (int)lora->rslora, "targets", targets_json(lora),
                     "modules", modules_json(lora), "core", (int)lora->core, (int)lora->core_lo,
                     (int)lora->core_hi);
}

static hop_status parse_targets(const json_t *list, const char *where, struct hop_lora_config *lora,
                                struct hop_error *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        enum hop_target target;
        const char *const name = json_string_value(entry);
        if (!name || !hop_target_find(name, json_string_length(entry), &target))
            return hop_fail(err, HOP_INPUT, "%s: targets: entry %zu names no projection", where, i);
        lora->targets[target] = true;
    }
    return HOP_OK;
}

static hop_status parse_module(const json_t *pair, const char *where, int32_t block,
                               enum hop_target target, struct hop_lora_config *lora,
                               struct hop_error *err)
{
    const json_int_t rank = json_integer_value(json_array_get(pair, 0));
    const double alpha = json_number_value(json_array_get(pair, 1));
    if (json_array_size(pair) != 2 || rank < 0 || rank > HOP_MAX_RANK || !isfinite(alpha))
        return hop_fail(err, HOP_INPUT,
                        "%s: modules: %s of block %d must be [rank up to %d, alpha]", where,
                        hop_target_names[target], block, HOP_MAX_RANK);
    lora->ranks[block][target] = (uint16_t)rank;
    lora->alphas[block][target] = alpha;
    return HOP_OK;
}

static hop_status parse_modules(const json_t *blocks, const char *where,
                                struct hop_lora_config *lora, struct hop_error *err)
{
    const size_t n = json_array_size(blocks);
    if (n > HOP_LORA_BLOCKS)
        return hop_fail(err, HOP_INPUT, "%s: modules: %zu blocks, at most %d are possible", where,
                        n, HOP_LORA_BLOCKS);
    lora->blocks = (int32_t)n;
    for (int32_t block = 0; block < lora->blocks; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            HOP_TRY(parse_module(json_array_get(json_array_get(blocks, (size_t)block), target),
                                 where, block, target, lora, err));
    return HOP_OK;
}

/* [rank, first block, end]; may be missing. */
static hop_status parse_core(const json_t *core, const char *where, struct hop_lora_config *lora,
                             struct hop_error *err)
{
    const json_int_t rank = json_integer_value(json_array_get(core, 0));
    const json_int_t lo = json_integer_value(json_array_get(core, 1));
    const json_int_t hi = json_integer_value(json_array_get(core, 2));
    if (!core)
        return HOP_OK;
    if (json_array_size(core) != 3 || rank < 0 || rank > HOP_MAX_RANK || lo < 0 || lo > hi ||
        hi > INT32_MAX)
        return hop_fail(err, HOP_INPUT, "%s: core must be [rank up to %d, first block, end]", where,
                        HOP_MAX_RANK);
    lora->core = (int32_t)rank;
    lora->core_lo = (int32_t)lo;
    lora->core_hi = (int32_t)hi;
    return HOP_OK;
}

hop_status hop_lora_parse(const json_t *object, const char *where, struct hop_lora_config *out,
                          struct hop_error *err)
{
    struct hop_lora_config lora = {0};
    int64_t rank;
    HOP_TRY(hop_json_get_int(object, "rank", where, 0, &rank, err));
    if (rank < 1 || rank > HOP_MAX_RANK)
        return hop_fail(err, HOP_INPUT, "%s: rank is %lld, must be between 1 and %d", where,
                        (long long)rank, HOP_MAX_RANK);
    lora.rank = (int32_t)rank;
    HOP_TRY(hop_json_get_real(object, "alpha", where, 0, &lora.alpha, err));
    HOP_TRY(hop_json_get_bool(object, "rslora", where, false, &lora.rslora, err));
    HOP_TRY(parse_targets(json_object_get(object, "targets"), where, &lora, err));
    HOP_TRY(parse_modules(json_object_get(object, "modules"), where, &lora, err));
    HOP_TRY(parse_core(json_object_get(object, "core"), where, &lora, err));
    *out = lora;
    return HOP_OK;
}
