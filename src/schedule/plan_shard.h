/* Which share of a model's heads and feed-forward columns a part of a plan holds. */
#ifndef HOP_SCHEDULE_PLAN_SHARD_H
#define HOP_SCHEDULE_PLAN_SHARD_H

#include "base/error.h"
#include "model/shard.h"
#include "schedule/plan.h"

/* Groups of query heads are cut everywhere or nowhere in a plan, so that copies of a block split
 * their adapters alike: where one part would get no group. */
struct hop_shard hop_plan_shard_of(const struct hop_plan *plan,
                                   const struct hop_model_config *model, int32_t part);
/* HOP_UNSUPPORTED names the first part whose share is too small for a shard. */
hop_status hop_plan_check_shards(const struct hop_plan *plan, const struct hop_model_config *model,
                                 struct hop_error *err);

#endif
