/* The planner of one pipeline with BP-free devices in front: hybridop, and frozen, which leaves
 * their adapters as they are. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPELINE_PLAN_H
#define HOP_STRATEGY_PIPELINE_PLAN_H

#include "strategy/line_search.h"
#include "strategy/strategy.h"

/* Over all splits, orders inside each class and, where the request allows it, sets of devices: by
 * HOP_OBJECTIVE_FORMULA the least T_head, by HOP_OBJECTIVE_SIMULATED the least greedy makespan. The
 * latter is proved (bound_seconds == simulated_seconds, up to a tie) for small problems; beyond a
 * fixed effort bound_seconds says how much better a plan could be. With too many different devices
 * for all their orders (HOP_ORDER_WORK) it is NAN.
 *
 * front: HOP_GRADIENT_ZEROTH_ORDER (with probes) or HOP_GRADIENT_NONE (the request's probes are
 * ignored). */
hop_status hop_pipeline_plan(const struct hop_plan_request *request, const char *strategy,
                             enum hop_gradient front, struct hop_plan *out, struct hop_error *err);

#endif
