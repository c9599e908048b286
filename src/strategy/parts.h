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
/* The same without probes: all parts will train by backprop. */
hop_status hop_plan_begin_exact(const struct hop_plan_request *request, const char *strategy,
                                int32_t parts, struct hop_plan *out, struct hop_error *err);
/* Appends the next stage of pipeline 0 with blocks [lo, hi). */
void hop_plan_add_stage(struct hop_plan *plan, int32_t device, int32_t lo, int32_t hi,
                        enum hop_gradient gradient);

/* Stores simulated_seconds of a priced plan that the greedy scheduler runs. */
hop_status hop_plan_time(struct hop_plan *plan, const struct hop_cost_table *cost,
                         struct hop_error *err);

/* Seconds by the request's objective. */
double hop_plan_value(const struct hop_plan_request *request, const struct hop_plan *plan);
/* Takes the plan: in place of *best where that has no parts or takes longer (true), else it is
 * freed. */
bool hop_plan_keep(const struct hop_plan_request *request, struct hop_plan *plan,
                   struct hop_plan *best);

/* Would BP-free parts learn nothing without probes? */
bool hop_request_needs_probes(const struct hop_plan_request *request);
/* HOP_INPUT: no probes, so the adapters of the BP-free device would not learn. */
hop_status hop_plan_untrained(const char *device, struct hop_error *err);

#endif
