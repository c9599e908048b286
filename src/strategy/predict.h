/* What a plan will do: schedule it and play it. */
#ifndef HOP_STRATEGY_PREDICT_H
#define HOP_STRATEGY_PREDICT_H

#include "sim/simulate.h"
#include "strategy/strategy.h"

/* Schedules the plan by its strategy (plan->strategy), simulates one mini-batch, and stores
 * simulated_seconds and formula_seconds in the plan, memory_bytes in its parts. */
hop_status hop_plan_predict(struct hop_plan *plan, const struct hop_cost_table *cost,
                            const struct hop_simulation_options *options,
                            struct hop_simulation *out, struct hop_error *err);

#endif
