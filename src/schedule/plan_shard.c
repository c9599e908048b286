#include "schedule/plan_shard.h"

static bool cuts_groups(const struct hop_plan *plan, const struct hop_model_config *model)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (!hop_shard_gets_group(model, plan->parts[p].tensor_lo, plan->parts[p].tensor_hi))
            return true;
    return false;
}

struct hop_shard hop_plan_shard_of(const struct hop_plan *plan,
                                   const struct hop_model_config *model, int32_t part)
{
    return (struct hop_shard){.lo = plan->parts[part].tensor_lo,
                              .hi = plan->parts[part].tensor_hi,
                              .cuts_groups = cuts_groups(plan, model)};
}

hop_status hop_plan_check_shards(const struct hop_plan *plan, const struct hop_model_config *model,
                                 struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_shard shard = hop_plan_shard_of(plan, model, p);
        if (hop_shard_check(model, &shard, err) != HOP_OK)
            return hop_wrap(err, "plan: part %d", p);
    }
    return HOP_OK;
}
