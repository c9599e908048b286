/* Asteroid's first algorithm: which device of a group handles how many samples of a micro-batch.
 * Private to src/strategy. */
#ifndef HOP_STRATEGY_ASTEROID_SAMPLES_H
#define HOP_STRATEGY_ASTEROID_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

struct hop_asteroid_worker {
    double seconds; /* of a sample, forward and backward; above 0 */
    int32_t most;   /* samples that fit its memory */
    int32_t samples;
};

/* Deals the samples in proportion to speed, as far as memory allows, what is left over again; then
 * moves one at a time from the slowest device to the one that would take least time with it, while
 * that is less. So the slowest device is as fast as can be. least: samples of every device. False
 * where they do not fit. */
bool hop_asteroid_allocate(struct hop_asteroid_worker *workers, int32_t count, int32_t samples,
                           int32_t least);

#endif
