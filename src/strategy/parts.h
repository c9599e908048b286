/* What planners share: requests, parts, times. Private to src/strategy. */
#ifndef HOP_STRATEGY_PARTS_H
#define HOP_STRATEGY_PARTS_H

#include "schedule/price.h"
#include "strategy/strategy.h"

/* Blocks, devices and micro-batches of at least 1, no negative number of probes but
 * HOP_PROBES_AUTO, exit probes only where the estimator has them. */
hop_status hop_plan_request_check(const struct hop_plan_request *request, struct hop_error *err);

/* A plan of the request with room for `parts` parts and none in it; no exit probes where their
 * number is HOP_PROBES_AUTO. */
hop_status hop_plan_begin(const struct hop_plan_request *request, const char *strategy,
                          int32_t parts, struct hop_plan *out, struct hop_error *err);
/* Appends the next stage of pipeline 0 with blocks [lo, hi). */
void hop_plan_add_stage(struct hop_plan *plan, int32_t device, int32_t lo, int32_t hi,
                        enum hop_gradient gradient);

/* Stores simulated_seconds of a priced plan that the greedy scheduler runs. */
hop_status hop_plan_time(struct hop_plan *plan, const struct hop_cost_table *cost,
                         struct hop_error *err);

/* Would BP-free parts learn nothing without probes? */
bool hop_request_needs_probes(const struct hop_plan_request *request);
/* HOP_INPUT: no probes, so the adapters of the BP-free device would not learn. */
hop_status hop_plan_untrained(const char *device, struct hop_error *err);

#endif
