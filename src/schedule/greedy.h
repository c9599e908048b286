/* The greedy rule of hop_schedule_greedy() as a quick question: how long would this plan take? For
 * planners, which ask it thousands of times: nothing is allocated after creation. */
#ifndef HOP_SCHEDULE_GREEDY_H
#define HOP_SCHEDULE_GREEDY_H

#include "cluster/cost.h"
#include "schedule/plan.h"

struct hop_greedy;

/* For plans of at most `parts` parts, with those numbers of micro-batches, probes and exit probes,
 * whatever numbers the plans have; the rest of the estimator is the plan's. The cost table is
 * borrowed. */
hop_status hop_greedy_create(const struct hop_cost_table *cost, int32_t parts,
                             int32_t micro_batches, int32_t probes, int32_t exit_probes,
                             int32_t probe_batch, struct hop_greedy **out, struct hop_error *err);
void hop_greedy_free(struct hop_greedy *greedy);

/* Seconds of a mini-batch: what hop_simulate() says of hop_schedule_greedy()'s schedule, to the
 * last bit. Gives up with INFINITY as soon as the time must pass `limit`. The plan must be a line
 * that hop_plan_check() accepts, with in_flight set. */
double hop_greedy_makespan(struct hop_greedy *greedy, const struct hop_plan *plan, double limit);

#endif
