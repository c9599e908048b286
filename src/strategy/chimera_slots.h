/* Chimera's order: where stages lie and when they run, in slots of one forward or one backward.
 *
 * 2f pipelines over the same D devices. Pipeline i < f (down) has stage s on device (s + iD/f) mod
 * D, pipeline f + i (up) on device (D - 1 - s + iD/f) mod D. A unit gives every pipeline D / (2f)
 * micro-batches; units follow one another every 2D slots. With D even, f a divisor of D/2 and j the
 * number of a micro-batch in its pipeline and unit u, no two tasks of a device share a slot:
 *
 *     FORWARD of stage s:   s + 2j + 2D u        BACKWARD:  2D - 1 - s + 2j + 2D u
 *
 * Private to src/strategy. */
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

#endif
