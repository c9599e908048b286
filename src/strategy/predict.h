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

/* Stores in the parts what the schedule really keeps, which can be fewer micro-batches than it
 * might (in_flight; with that as the limit the schedule comes out the same), and the memory for it.
 */
void hop_plan_store_kept(struct hop_plan *plan, const struct hop_cost_table *cost,
                         const struct hop_schedule *schedule);

/* Seconds of one mini-batch by that schedule, simulated. */
hop_status hop_schedule_seconds(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                const struct hop_cost_table *cost, double *seconds,
                                struct hop_error *err);

#endif
