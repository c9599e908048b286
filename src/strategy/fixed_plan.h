/* Plans with the user's own numbers of blocks. Private to src/strategy. */
#ifndef HOP_STRATEGY_FIXED_PLAN_H
#define HOP_STRATEGY_FIXED_PLAN_H

#include "strategy/strategy.h"

/* No negative count, and together all blocks. Does nothing where request->fixed_blocks is NULL. */
hop_status hop_fixed_blocks_check(const struct hop_plan_request *request, struct hop_error *err);

/* The pipeline with request->fixed_blocks: BP-free devices with blocks, then BP-capable ones, each
 * class in the order of the cost table. Priced and timed; front as in hop_pipeline_plan(). */
hop_status hop_fixed_plan(const struct hop_plan_request *request, const char *strategy,
                          enum hop_gradient front, struct hop_plan *out, struct hop_error *err);

#endif
