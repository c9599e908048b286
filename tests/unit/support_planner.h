/* Random clusters and an exhaustive planner that shares no code with the real ones. */
#ifndef HOP_TESTS_SUPPORT_PLANNER_H
#define HOP_TESTS_SUPPORT_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "strategy/strategy.h"

/* What a random cluster looks like; sizes are upper limits. */
struct support_cluster {
    int32_t blocks, devices;
    int64_t lines;     /* at most so many lines to try, or 0 */
    bool links, tight; /* links that cost time; memory that rules lines out */
    bool equal_blocks; /* every block costs the same on a device */
};
/* Some devices are copies of others. At least one is BP-capable. */
struct hop_cost_table support_cluster(const struct support_cluster *kind, uint64_t *state);

/* Devices are called "d0", "d1", ...; each block takes `forward` seconds on them, and `backward` on
 * BP-capable ones (backward <= 0 makes the device BP-free). Links are free, memory has no limit. */
struct hop_cost_table support_plain_cluster(int32_t blocks, int32_t devices, const double *forward,
                                            const double *backward);
/* Gives BP-free devices backward figures: so many times the forward ones. */
void support_slow_backward(struct hop_cost_table *cost, double times);
/* Gives every device costs of feedback and of an output layer, without a random number: those of
 * copies are equal. */
void support_estimator_costs(struct hop_cost_table *cost);

/* Least seconds over all lines with every device, and over those that leave some out; INFINITY:
 * none fits. */
struct support_best {
    double all, some;
    int64_t lines;  /* that fit */
    int32_t usable; /* devices that may take part */
};
/* With the request's estimator and exit probes. By T_head (formula) or by hop_simulate() of
 * hop_schedule_greedy()'s schedule. front: how BP-free stages train. needs_front: only lines with
 * BP-free stages. */
struct support_best support_brute_force(const struct hop_plan_request *request, int32_t probes,
                                        enum hop_gradient front, bool formula, bool needs_front);

/* Seconds of the plan by hop_simulate() of its strategy's schedule. */
double support_simulated(const struct hop_plan *plan, const struct hop_cost_table *cost);

/* A random line of every device that fits, as a plan of that number of probes; false: none was
 * found.
 */
bool support_random_line(const struct hop_plan_request *request, int32_t probes, uint64_t *state,
                         struct hop_plan *out);

#endif
