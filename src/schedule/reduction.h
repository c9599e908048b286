/* Which gradients must be added up before the optimizer steps. Plain data that follows from the
 * plan alone.
 *
 * A block's adapters may be trained in several parts: replicas and pipelines see different samples,
 * so their gradients add up; shards of a gang see different columns. Of a column-parallel
 * projection (q, k, v, gate, up) shards split B and share A, of a row-parallel one (o, down) they
 * split A and share B. The gradient of a shared factor is the sum over all shards, too. */
#ifndef HOP_SCHEDULE_REDUCTION_H
#define HOP_SCHEDULE_REDUCTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "schedule/plan.h"

enum hop_factors {
    HOP_FACTORS_ALL,    /* all adapters of the blocks: every part holds whole tensors */
    HOP_FACTORS_SHARED, /* those that every shard holds whole */
    HOP_FACTORS_SPLIT   /* those that shards split: their slice [tensor_lo, tensor_hi) */
};

/* One all-reduce (sum) among parts: a maximal range of blocks, and of tensors, with the same
 * holders.
 */
struct hop_reduction {
    int32_t lo, hi; /* blocks [lo, hi) */
    enum hop_factors factors;
    double tensor_lo, tensor_hi; /* [0, 1) but for HOP_FACTORS_SPLIT */
    const int32_t *parts;        /* (count) ascending */
    const int32_t *devices;      /* (count) theirs, all different */
    int32_t count;               /* 2 at least */
};

struct hop_reductions {
    /* By lo, then factors, then tensor_lo: the same on every rank. */
    struct hop_reduction *items;
    int32_t count;
    int32_t *storage; /* of the items' lists */
};

/* Those among backprop parts of a plan that hop_plan_check() accepts; none for a line. */
hop_status hop_reductions_derive(const struct hop_plan *plan, struct hop_reductions *out,
                                 struct hop_error *err);
void hop_reductions_free(struct hop_reductions *reductions);

bool hop_reduction_has(const struct hop_reduction *reduction, int32_t part);

#endif
