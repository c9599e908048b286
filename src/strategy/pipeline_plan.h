/* The planner of one pipeline with BP-free devices in front: hybridop, and frozen, which leaves
 * their adapters as they are. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPELINE_PLAN_H
#define HOP_STRATEGY_PIPELINE_PLAN_H

#include "strategy/line_search.h"
#include "strategy/strategy.h"

/* front: HOP_GRADIENT_ZEROTH_ORDER (with probes) or HOP_GRADIENT_NONE (the request's probes are
 * ignored). */
hop_status hop_pipeline_plan(const struct hop_plan_request *request, const char *strategy,
                             enum hop_gradient front, struct hop_plan *out, struct hop_error *err);

#endif
