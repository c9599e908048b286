/* One forward, one backward, and a flush before the step: the schedule of PipeDream-Flush and its
 * published time, for any plan of backprop parts. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPEDREAM_FLUSH_H
#define HOP_STRATEGY_PIPEDREAM_FLUSH_H

#include "cluster/cost.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

/* w_i = min(D - i - 1, n) forwards come before the first pair on stage i of the D of its pipeline,
 * which has n micro-batches, so it keeps min(D - i, n) of them. `struct hop_strategy`'s schedule.
 */
hop_status hop_pipedream_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                  int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                  struct hop_error *err);

/* Seconds from the first forward to the last backward of a pipeline of D stages with n >= 1
 * micro-batches, where stage q takes seconds[q] for a forward and a backward: the slowest stage
 * works without a pause from its first forward to its last backward,
 *
 *     T = max_q ( sum_{x <= q} t_x + (n - 1) t_q )
 *
 * which is (n + D - 1) t for equal stages. The schedule never takes less. */
double hop_pipedream_latency(const double *seconds, int32_t stages, int32_t n);

/* The longest of the plan's pipelines, a stage as slow as its slowest part, and then the
 * all-reduces, one after another on the device that takes longest. `struct hop_strategy`'s formula.
 */
double hop_pipedream_formula(const struct hop_plan *plan, const struct hop_cost_table *cost);

/* The all-reduces alone. */
double hop_pipedream_reduce_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost);

#endif
