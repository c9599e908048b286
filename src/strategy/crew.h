/* The devices of a first-order system, which run backward, BP-free ones at their slow rate; and
 * what the planners of such systems share. Private to src/strategy. */
#ifndef HOP_STRATEGY_CREW_H
#define HOP_STRATEGY_CREW_H

#include "strategy/strategy.h"

struct hop_crew {
    int32_t *devices, count; /* indices in the cost table, ascending */
};

/* The devices of a request that may take part, one at least: with bp_only no BP-free one, and with
 * fixed blocks (where `fixed`) those that have some. One without backward times is left out where
 * devices may be (HOP_DEVICES_AUTO) and HOP_INFEASIBLE elsewhere. `system` is for messages. */
hop_status hop_crew_create(const struct hop_plan_request *request, const char *system, bool fixed,
                           struct hop_crew *out, struct hop_error *err);
void hop_crew_free(struct hop_crew *crew);

/* Each of the devices needs a block: with HOP_DEVICES_AUTO the last ones are dropped until they are
 * at most as many as blocks; elsewhere more are HOP_INFEASIBLE. */
hop_status hop_crew_limit(const struct hop_plan_request *request, struct hop_crew *crew,
                          struct hop_error *err);

/* seconds (blocks): forward and backward of a block, averaged over the devices: what a planner
 * knows that takes them for equal. */
void hop_crew_average(const struct hop_crew *crew, const struct hop_cost_table *cost,
                      double *seconds);

/* counts (devices): the blocks in equal shares by those costs. */
hop_status hop_crew_balance(const struct hop_crew *crew, const struct hop_cost_table *cost,
                            int32_t *counts, struct hop_error *err);
/* The same, or the request's fixed blocks where it has some. */
hop_status hop_crew_deal(const struct hop_crew *crew, const struct hop_plan_request *request,
                         int32_t *counts, struct hop_error *err);

/* hop_plan_check(), and every part trains by backprop (else HOP_INPUT names `system`). */
hop_status hop_crew_check_plan(const struct hop_plan *plan, const char *system,
                               struct hop_error *err);

/* Schedules the plan by the strategy, stores in the parts what the schedule keeps (in_flight), what
 * that costs, and in the plan simulated_seconds and formula_seconds. HOP_INFEASIBLE names a device
 * that cannot hold its parts, and by how much. */
hop_status hop_crew_price(const struct hop_strategy *strategy, const struct hop_cost_table *cost,
                          struct hop_plan *plan, struct hop_error *err);

/* Bytes of a device with all its parts, each with the micro-batches that the schedule keeps. */
double hop_crew_memory(const struct hop_plan *plan, const struct hop_cost_table *cost,
                       const struct hop_schedule *schedule, int32_t device);

#endif
