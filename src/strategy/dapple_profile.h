/* A model as DAPPLE's planner reads it: what runs of its layers cost on one GPU. Private to
 * src/strategy and the oracle program. */
#ifndef HOP_STRATEGY_DAPPLE_PROFILE_H
#define HOP_STRATEGY_DAPPLE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct hop_dapple_profile {
    int32_t layers;
    double *compute; /* (layers + 1, layers) seconds of layers [row, column], forward and backward
                        of the batch; negative: not defined */
    double *activation; /* the same, bytes */
    double *parameters; /* the same, bytes; of no batch */
    double *output;     /* (layers) bytes that layer sends on */
    /* Layers after which a stage may end whose next stage ends with layer j: predecessors
     * [first[j], first[j + 1]), in the order of the file. */
    int32_t *first, *predecessors;
};

/* Text: the number of layers, the three matrices row by row, the outputs, and for each layer the
 * number of its predecessors and those. HOP_INPUT names the file, the place and what was expected.
 */
hop_status hop_dapple_profile_load(const char *path, struct hop_dapple_profile *out,
                                   struct hop_error *err);
void hop_dapple_profile_free(struct hop_dapple_profile *profile);

/* From a batch of `from` samples to one of `to`. */
void hop_dapple_profile_scale(struct hop_dapple_profile *profile, int32_t from, int32_t to);

static inline double hop_dapple_at(const struct hop_dapple_profile *profile, const double *matrix,
                                   int32_t lo, int32_t last)
{
    return matrix[(size_t)lo * (size_t)profile->layers + (size_t)last];
}
/* Seconds of all layers. */
static inline double hop_dapple_seconds(const struct hop_dapple_profile *profile)
{
    return hop_dapple_at(profile, profile->compute, 0, profile->layers - 1);
}

#endif
