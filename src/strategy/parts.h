/* What planners share: requests, parts, splits by speed. Private to src/strategy. */
#ifndef HOP_STRATEGY_PARTS_H
#define HOP_STRATEGY_PARTS_H

#include "schedule/price.h"
#include "strategy/strategy.h"

/* Blocks, devices and micro-batches of at least 1, no negative number of probes. */
hop_status hop_plan_request_check(const struct hop_plan_request *request, struct hop_error *err);

/* A plan of the request with room for `parts` parts and none in it. */
hop_status hop_plan_begin(const struct hop_plan_request *request, const char *strategy,
                          int32_t parts, struct hop_plan *out, struct hop_error *err);
/* Appends the next stage of pipeline 0 with blocks [lo, hi). */
void hop_plan_add_stage(struct hop_plan *plan, int32_t device, int32_t lo, int32_t hi,
                        enum hop_gradient gradient);

/* Splits `blocks` into n <= blocks counts close to the ideal shares, which add up to blocks: by
 * largest remainder, at least 1 each. */
void hop_split_blocks(int32_t blocks, const double *ideal, int32_t n, int32_t *counts);

#endif
