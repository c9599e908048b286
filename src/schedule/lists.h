/* Schedules in a fixed order, as the systems that train by backprop alone use them. Each works for
 * every plan of backprop and untrained parts: replicas, shards and several pipelines, of which each
 * takes the micro-batches that it handles. Behind the last BACKWARD of a device come its REDUCEs,
 * in the order of hop_reductions_derive(), and then the STEPs of its parts.
 *
 * All are HOP_INPUT for plans that hop_plan_check() refuses, less than one micro-batch or a
 * zeroth-order part. */
#ifndef HOP_SCHEDULE_LISTS_H
#define HOP_SCHEDULE_LISTS_H

#include <stdint.h>

#include "base/error.h"
#include "schedule/schedule.h"

/* All forwards, then all backwards, last micro-batch first (GPipe). A device holds one part at most
 * (else HOP_INPUT). */
hop_status hop_schedule_fill_drain(const struct hop_plan *plan, int32_t micro_batches,
                                   struct hop_schedule *out, struct hop_error *err);

/* Warm-up of K forwards, then strictly one backward, one forward, until only backwards are left.
 * warmup (parts): K of each part, 1 at least; NULL: its in_flight. A stage takes the least of its
 * parts' and of the stage before it, as more would wait forever; an untrained stage only runs
 * forwards. A device holds one part at most (else HOP_INPUT). */
hop_status hop_schedule_one_f_one_b(const struct hop_plan *plan, int32_t micro_batches,
                                    const int32_t *warmup, struct hop_schedule *out,
                                    struct hop_error *err);

/* Every device runs its tasks by ascending slot, those of one slot in the order given; a device may
 * hold several parts (Chimera). REDUCEs and STEPs that are not among the tasks are added behind.
 * Whether the order is complete and free of deadlocks is for hop_schedule_check() to say. */
struct hop_slot {
    struct hop_task task;
    int64_t slot;
};
hop_status hop_schedule_from_slots(const struct hop_plan *plan, int32_t micro_batches,
                                   const struct hop_slot *slots, int32_t count,
                                   struct hop_schedule *out, struct hop_error *err);

#endif
