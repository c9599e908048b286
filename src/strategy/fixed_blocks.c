#include "strategy/strategy.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/string.h"

static hop_status unknown_device(const char *name, const char *where,
                                 const struct hop_cost_table *cost, struct hop_error *err)
{
    const char **names;
    HOP_TRY(hop_cost_names(cost, &names, err));
    const char *const nearest = hop_nearest_name(name, names, (size_t)cost->device_count);
    free(names);
    return hop_fail(err, HOP_INPUT, "%s: plan.blocks: the cluster has no device '%s'%s%s%s", where,
                    name, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                    nearest ? "'?" : "");
}

hop_status hop_fixed_blocks_parse(const json_t *object, const char *where,
                                  const struct hop_cost_table *cost, int32_t *counts,
                                  struct hop_error *err)
{
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT,
                        "%s: plan.blocks: a map from device names to counts is needed", where);
    for (int32_t d = 0; d < cost->device_count; d++)
        counts[d] = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const int32_t device = hop_cost_find(cost, name);
        if (device < 0)
            return unknown_device(name, where, cost, err);
        const json_int_t count = json_integer_value(value);
        if (!json_is_integer(value) || count < 0 || count > INT32_MAX)
            return hop_fail(err, HOP_INPUT, "%s: plan.blocks.%s: a whole number from 0 is needed",
                            where, name);
        counts[device] = (int32_t)count;
    }
    return HOP_OK;
}
