/* A request as the planners of one pipeline see it: devices with equal figures and equal links are
 * one type, block figures are running sums, memory is a table of the longest run that fits. BP-free
 * devices stand in front of BP-capable ones. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPELINE_H
#define HOP_STRATEGY_PIPELINE_H

#include "strategy/strategy.h"

struct hop_device_type {
    int32_t *devices, count; /* indices in the cost table, ascending */
    bool bp;
    /* (blocks + 1) seconds of one micro-batch on the first so many blocks. `probe` is all PROBEs of
     * a micro-batch together, `last_probe` the last of them alone. */
    double *forward, *backward, *probe, *last_probe, *step;
    int32_t *longest; /* (kept, blocks): the first block that no longer fits in a part that begins
                         at a block and keeps so many micro-batches */
};

struct hop_pipeline {
    const struct hop_plan_request *request;
    const struct hop_cost_table *cost;
    int32_t blocks, micro_batches, probes;
    int32_t probe_tasks, last_probes; /* PROBEs of a micro-batch; probes of the last one */
    enum hop_gradient front;          /* how BP-free stages train */
    struct hop_device_type *types;
    int32_t type_count, front_types; /* types [0, front_types) are BP-free */
    int32_t devices, front_devices;
    double *storage;
    int32_t *indices;
};

/* A stage as planners handle it: which of the devices of a type is settled at the end, in the order
 * of the cost table. */
struct hop_run {
    int32_t type, lo, hi;
};

/* Devices of the request that may take part: not BP-free ones with bp_only, and only BP-capable
 * devices with backward figures. `probes` stands for request->probes. `front` is
 * HOP_GRADIENT_ZEROTH_ORDER or HOP_GRADIENT_NONE (then there are no probes). The request is
 * borrowed. */
hop_status hop_pipeline_create(const struct hop_plan_request *request, int32_t probes,
                               enum hop_gradient front, struct hop_pipeline *out,
                               struct hop_error *err);
void hop_pipeline_free(struct hop_pipeline *pipeline);

static inline double hop_sum(const double *running, int32_t lo, int32_t hi)
{
    return running[hi] - running[lo];
}

/* Does a part of blocks [lo, hi) that keeps `kept` micro-batches fit a device of the type? */
bool hop_pipeline_fits(const struct hop_pipeline *pipeline, int32_t type, int32_t lo, int32_t hi,
                       int32_t kept);

/* The most micro-batches up to `most` that such a part can keep; it must be able to keep 1. */
int32_t hop_pipeline_kept(const struct hop_pipeline *pipeline, int32_t type, int32_t lo, int32_t hi,
                          int32_t most);

/* Writes the runs as the parts of a plan begun by hop_plan_begin(); not priced. */
void hop_pipeline_fill(const struct hop_pipeline *pipeline, const struct hop_run *runs,
                       int32_t count, struct hop_plan *plan);

#endif
