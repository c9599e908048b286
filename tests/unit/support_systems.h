/* Plans of the first-order systems: made, refused, and what every one of them owes its reader. */
#ifndef HOP_TESTS_SUPPORT_SYSTEMS_H
#define HOP_TESTS_SUPPORT_SYSTEMS_H

#include "strategy/strategy.h"

/* All devices take part, simulated. */
struct hop_plan_request support_request(const struct hop_cost_table *cost, int32_t micro_batches);

hop_status support_plan_by(const char *system, const struct hop_plan_request *request,
                           struct hop_plan *out, struct hop_error *err);
/* Fails the test where there is no plan. */
struct hop_plan support_must_plan(const char *system, const struct hop_plan_request *request);
/* Fails the test unless the planner says `expected` with `message` in its reason, and writes no
 * plan. */
void support_must_refuse(const char *system, const struct hop_plan_request *request,
                         hop_status expected, const char *message);

/* Fails the test unless the plan passes hop_plan_check(), its schedule hop_schedule_check() with
 * some window, also for fewer micro-batches than planned; its seconds are those of the simulation
 * and of the closed form; parts keep what the schedule keeps; and no device holds more than it can,
 * nor does the simulation's peak exceed what was priced. */
void support_must_be_sound(const struct hop_plan *plan, const struct hop_cost_table *cost);

/* "d0[0,3) d1[3,8)" in the order of the parts. */
void support_plan_text(const struct hop_plan *plan, const struct hop_cost_table *cost, char *text,
                       size_t size);

#endif
