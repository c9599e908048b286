/* Chimera's order: where stages lie and when they run, in slots of one forward or one backward.
 *
 * 2f pipelines over the same D devices. Pipeline i < f (down) has stage s on device (s + iD/f) mod
 * D, pipeline f + i (up) on device (D - 1 - s + iD/f) mod D. A unit gives every pipeline D / (2f)
 * micro-batches. With D even, f a divisor of D/2 and j the number of a micro-batch in its pipeline
 * and unit u, no two tasks of a device share a slot:
 *
 *     FORWARD of stage s:   s + 2j + 2D u        BACKWARD:  2D - 1 - s + 2j + 2D u
 *
 * With forwards doubled a unit has twice the micro-batches: slot s + 2j + 3D u is the FORWARD of
 * two, whose BACKWARDs have the slots 2D - 1 - s + 2j + 3D u and D later. Where a backward takes as
 * long as two forwards this leaves no bubble between units, but more is kept. Of micro-batches with
 * half the rows it is the order with backwards halved: what two forwards run is a whole one, and no
 * device keeps more than D of those.
 *
 * A task waits only for tasks of lower slots, so lists by ascending slots never lock up, however
 * many micro-batches there are. Private to src/strategy. */
#ifndef HOP_STRATEGY_CHIMERA_SLOTS_H
#define HOP_STRATEGY_CHIMERA_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

/* Is there such an order: D even, an even number 2f of pipelines, f a divisor of D/2? */
bool hop_chimera_fits(int32_t devices, int32_t pipelines);

/* Device of a stage of a pipeline. */
int32_t hop_chimera_device(int32_t devices, int32_t pipelines, int32_t pipeline, int32_t stage);

/* Slots of micro-batch j of a unit, from the unit's start. */
int32_t hop_chimera_forward_slot(int32_t stage, int32_t micro_batch);
int32_t hop_chimera_backward_slot(int32_t devices, int32_t stage, int32_t micro_batch);

/* Slots of the j-th of the n micro-batches of a pipeline, unit after unit. The last micro-batches
 * are a single unit where one is enough for them. */
struct hop_chimera_place {
    int64_t forward, backward;
};
struct hop_chimera_place hop_chimera_place(int32_t devices, int32_t pipelines, bool doubled,
                                           int32_t stage, int32_t micro_batch, int32_t n);

#endif
