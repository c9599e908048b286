/* A request as the planners of one pipeline see it: devices with equal figures and equal links are
 * one type, block figures are running sums, memory is a table of the longest run that fits. BP-free
 * devices stand in front of BP-capable ones. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPELINE_H
#define HOP_STRATEGY_PIPELINE_H

#include "strategy/strategy.h"

struct hop_device_type {
    int32_t *devices, count; /* indices in the cost table, ascending */
    bool bp;
    /* (blocks + 1) seconds of one micro-batch on the first so many blocks. `backward` of BP-free
     * devices is that of their DELTA. `probe` is all PROBEs of a micro-batch together, `last_probe`
     * the last of them alone, `exit` all EXIT_PROBEs without their output layer. */
    double *forward, *backward, *probe, *last_probe, *exit, *step;
    int32_t *longest; /* (kept, blocks): the first block that no longer fits in a part that begins
                         at a block and keeps so many micro-batches */
};

struct hop_pipeline {
    const struct hop_plan_request *request;
    const struct hop_cost_table *cost;
    int32_t blocks, micro_batches, probes, exit_probes;
    int32_t probe_tasks, last_probes; /* PROBEs of a micro-batch; probes of the last one */
    int32_t exit_tasks;               /* EXIT_PROBEs of a micro-batch */
    int32_t passes;                   /* of a probe */
    enum hop_gradient front;          /* how BP-free stages train */
    enum hop_estimator estimator;
    bool through;       /* probes run on BP-capable stages, too */
    int32_t front_kept; /* micro-batches that BP-free stages keep, at least: 0 or 1 */
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
 * HOP_GRADIENT_ZEROTH_ORDER or HOP_GRADIENT_NONE (then there are no probes). request->exit_probes
 * take part where they are a number; HOP_PROBES_AUTO is as 0. The request is borrowed. */
hop_status hop_pipeline_create(const struct hop_plan_request *request, int32_t probes,
                               enum hop_gradient front, struct hop_pipeline *out,
                               struct hop_error *err);
void hop_pipeline_free(struct hop_pipeline *pipeline);

/* Does feedback train all blocks on BP-free stages? Where it trains those of the last ones only, no
 * block has a price of its own: that depends on the cut. Then its DELTAs count as nothing here, as
 * a lower bound may, and the simulation prices them. */
bool hop_pipeline_feeds_all(const struct hop_pipeline *pipeline);

static inline double hop_sum(const double *running, int32_t lo, int32_t hi)
{
    return running[hi] - running[lo];
}

/* Micro-batches that a part on the type must keep, at least. */
static inline int32_t hop_pipeline_least(const struct hop_pipeline *pipeline, int32_t type)
{
    return pipeline->types[type].bp ? 1 : pipeline->front_kept;
}

/* Does a part of blocks [lo, hi) that keeps `kept` micro-batches fit a device of the type? */
bool hop_pipeline_fits(const struct hop_pipeline *pipeline, int32_t type, int32_t lo, int32_t hi,
                       int32_t kept);

/* Bytes that the last BP-free part, which ends in front of block `hi`, needs beside what it keeps,
 * at least: the output layer of exit probes, and tangents that wait for their gradient. */
double hop_pipeline_last_bytes(const struct hop_pipeline *pipeline, int32_t type, int32_t hi);
/* Does a BP-free part fit as the last one? */
bool hop_pipeline_fits_last(const struct hop_pipeline *pipeline, int32_t type, int32_t lo,
                            int32_t hi);

/* The most micro-batches up to `most` that such a part can keep; it must be able to keep 1. */
int32_t hop_pipeline_kept(const struct hop_pipeline *pipeline, int32_t type, int32_t lo, int32_t hi,
                          int32_t most);

/* Writes the runs as the parts of a plan begun by hop_plan_begin(); not priced. */
void hop_pipeline_fill(const struct hop_pipeline *pipeline, const struct hop_run *runs,
                       int32_t count, struct hop_plan *plan);

#endif
