/* A pipeline inside a group of devices: which blocks each gets, and in which order they stand.
 * Private to src/strategy. */
#ifndef HOP_STRATEGY_HDP_PARTITION_H
#define HOP_STRATEGY_HDP_PARTITION_H

#include <stdint.h>

#include "cluster/cost.h"

struct hop_hdp_stage {
    int32_t device, lo, hi; /* in the cost table; blocks [lo, hi) */
};

/* Every device of the group gets a run of blocks, such that the slowest (forward and backward) is
 * as fast as can be and stage q of P holds its weights and min(P - q, n) micro-batches in flight.
 * Exact for groups of up to HOP_HDP_EXACT devices; the devices of larger ones stand in the order of
 * their memory, largest first, as early stages keep most.
 *
 * devices (count) with backward times, count >= 1; stages (count) gets them in order. *seconds: the
 * slowest stage's, INFINITY where nothing fits (stages is not written then). */
enum { HOP_HDP_EXACT = 8 };
hop_status hop_hdp_partition(const struct hop_cost_table *cost, const int32_t *devices,
                             int32_t count, int32_t micro_batches, struct hop_hdp_stage *stages,
                             double *seconds, struct hop_error *err);

#endif
