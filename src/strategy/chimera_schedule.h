/* Chimera's schedule: of the orders in slots the faster one that fits. Private to src/strategy. */
#ifndef HOP_STRATEGY_CHIMERA_SCHEDULE_H
#define HOP_STRATEGY_CHIMERA_SCHEDULE_H

#include <stdbool.h>

#include "cluster/cost.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

/* Unit after unit, or with forwards doubled where there are more micro-batches than stages and that
 * is faster by simulation and fits. `struct hop_strategy`'s schedule. */
hop_status hop_chimera_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                struct hop_error *err);

/* Does the schedule of the plan's own micro-batches double forwards? */
hop_status hop_chimera_is_doubled(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                  bool *out, struct hop_error *err);

#endif
