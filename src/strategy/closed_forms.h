/* Published iteration times of HybridOP's placements, for people: planners rank by simulation. */
#ifndef HOP_STRATEGY_CLOSED_FORMS_H
#define HOP_STRATEGY_CLOSED_FORMS_H

#include "cluster/cost.h"
#include "schedule/plan.h"

/* T_head of the plan (schedule/bound.h), which knows no exit probes; NAN: out of memory. */
double hop_head_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost);

/* The same stages with the BP-free ones at the tail, which cannot train the stages before them:
 *
 *     T_tail = sum_G (f + b) + sum_N f + ((1 + Q) M - 1) max_N f */
double hop_tail_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost);

#endif
