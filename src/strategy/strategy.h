/* A strategy: a planner and a scheduler. Each system is one file with one `struct hop_strategy`;
 * nothing else in the code knows their names. */
#ifndef HOP_STRATEGY_STRATEGY_H
#define HOP_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cluster/cluster.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

struct hop_plan_request {
    const struct hop_cluster *cluster;
    int32_t blocks;              /* of the model */
    int32_t micro_batches;       /* M */
    int32_t probes;              /* Q per micro-batch */
    int32_t micro_batch_samples; /* copied into the plan; 0: not known */
    const int32_t *fixed_blocks; /* (devices): blocks a device must hold, in cluster order; NULL:
                                    free. `single` has nothing to split and ignores it */
    int32_t zo_lo, zo_hi; /* `single`: blocks [lo, hi) are zeroth-order; lo == hi: none. Others
                              ignore it: there the devices decide */
};

struct hop_strategy {
    const char *name;
    const char *summary;                    /* one line for --help */
    bool uses_fixed_blocks, uses_zo_blocks; /* else those fields of a request are ignored */
    /* Fills *out (hop_plan_free() releases it). HOP_INFEASIBLE or HOP_INPUT with the reason. */
    hop_status (*plan)(const struct hop_plan_request *request, struct hop_plan *out,
                       struct hop_error *err);
    hop_status (*schedule)(const struct hop_plan *plan, int32_t micro_batches, int32_t probes,
                           struct hop_schedule *out, struct hop_error *err);
};

/* The job's `plan.blocks` ({DEVICE: COUNT, ...}) as counts (devices) in cluster order; devices it
 * does not name get 0. An unknown device suggests the nearest name; counts are integers from 0. */
hop_status hop_fixed_blocks_parse(const json_t *object, const char *where,
                                  const struct hop_cluster *cluster, int32_t *counts,
                                  struct hop_error *err);

/* All strategies, NULL-terminated. */
extern const struct hop_strategy *const hop_strategies[];
/* HOP_INPUT suggesting the nearest name when there is none of that name. */
hop_status hop_strategy_find(const char *name, const struct hop_strategy **out,
                             struct hop_error *err);

#endif
