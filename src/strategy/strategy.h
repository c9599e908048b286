/* A strategy: a planner and a scheduler. Each system is one file with one `struct hop_strategy`;
 * nothing else in the code knows their names. */
#ifndef HOP_STRATEGY_STRATEGY_H
#define HOP_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cluster/cost.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

/* What a planner minimises. */
enum hop_objective {
    HOP_OBJECTIVE_SIMULATED, /* seconds of a mini-batch by the event simulation */
    HOP_OBJECTIVE_FORMULA,   /* the strategy's published closed form */
    HOP_OBJECTIVES
};
extern const char *const hop_objective_names[]; /* "simulated", "formula", NULL */

/* Which devices must take part. The published closed forms know no idle devices: with
 * HOP_OBJECTIVE_FORMULA, HOP_DEVICES_DEFAULT is as HOP_DEVICES_ALL. */
enum hop_device_use {
    HOP_DEVICES_DEFAULT, /* a device that would slow the run is left out; more devices than blocks
                            are HOP_INFEASIBLE: more likely a mistake than a wish */
    HOP_DEVICES_AUTO,    /* the same, and any number of devices is fine */
    HOP_DEVICES_ALL      /* every device (of those the strategy may use) holds a block */
};

extern const char *const hop_device_use_names[]; /* "default", "auto", "all", NULL */

enum { HOP_PROBES_AUTO = -1 }; /* the largest Q that does not lengthen the step, at least 1 */

struct hop_plan_request {
    const struct hop_cost_table *cost; /* devices, blocks, links */
    /* The same for micro-batches of half the samples, of which there are 2 M; NULL: they cannot be
     * halved. Only for systems that publish such a step; hop_request_cost() tells which table a
     * plan is for. */
    const struct hop_cost_table *halves;
    int32_t micro_batches; /* M */
    int32_t probes;        /* Q per micro-batch, or HOP_PROBES_AUTO */
    int32_t probe_batch;   /* probes a PROBE task runs at once; 0: all */
    int32_t exit_probes;   /* Q' per micro-batch, or HOP_PROBES_AUTO: as many as do not
                                      lengthen the step, perhaps 0 */
    enum hop_estimator estimator;
    enum hop_directions directions;
    enum hop_exit_base exit_base;
    int32_t feedback_blocks; /* as in the plan */
    bool untrained; /* BP-free parts, and those of zo_lo and zo_hi, keep their adapters as they are:
                       what `frozen` does, for `single` */
    const int32_t *fixed_blocks; /* (devices): blocks a device must hold, stages in cluster order
                                    inside each class; NULL: free. `single` ignores it */
    enum hop_device_use devices;
    bool bp_only; /* BP-free devices stay out */
    enum hop_objective objective;
    int32_t zo_lo, zo_hi; /* `single`: blocks [lo, hi) are zeroth-order; lo == hi: none. Others
                              ignore it: there the devices decide */
};

/* The answer's head: what was asked for, without parts and seconds. */
struct hop_plan hop_request_plan(const struct hop_plan_request *request, const char *strategy);
/* The table of the request whose micro-batches the plan has. */
const struct hop_cost_table *hop_request_cost(const struct hop_plan_request *request,
                                              const struct hop_plan *plan);

/* hop_estimator_names, and at HOP_ESTIMATORS "none": untrained; NULL-terminated. */
extern const char *const hop_estimator_choices[];
/* Sets estimator and untrained from an index of them. */
void hop_request_choose(struct hop_plan_request *request, int choice);

struct hop_strategy {
    const char *name;
    const char *summary;                    /* one line for --help */
    bool uses_fixed_blocks, uses_zo_blocks; /* else those fields of a request are ignored */
    /* Fills *out (hop_plan_free() releases it), priced by hop_plan_price() and with the planner's
     * seconds. HOP_INFEASIBLE or HOP_INPUT with the reason. */
    hop_status (*plan)(const struct hop_plan_request *request, struct hop_plan *out,
                       struct hop_error *err);
    hop_status (*schedule)(const struct hop_plan *plan, const struct hop_cost_table *cost,
                           int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                           struct hop_error *err);
    /* The published closed form for a plan of this strategy, with measured backward times in place
     * of "2 x forward"; NULL: there is none. */
    double (*formula)(const struct hop_plan *plan, const struct hop_cost_table *cost);
};

/* The job's `plan.blocks` ({DEVICE: COUNT, ...}) as counts (devices) in their order; devices it
 * does not name get 0. An unknown device suggests the nearest name; counts are integers from 0. */
hop_status hop_fixed_blocks_parse(const json_t *object, const char *where,
                                  const struct hop_cost_table *cost, int32_t *counts,
                                  struct hop_error *err);

/* All strategies, NULL-terminated. */
extern const struct hop_strategy *const hop_strategies[];
/* HOP_INPUT suggesting the nearest name when there is none of that name. */
hop_status hop_strategy_find(const char *name, const struct hop_strategy **out,
                             struct hop_error *err);

#endif
