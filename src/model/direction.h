/* Random directions z of the zeroth-order method, rebuilt from their key wherever they are needed.
 */
#ifndef HOP_MODEL_DIRECTION_H
#define HOP_MODEL_DIRECTION_H

#include <stdint.h>

#include "model/lora.h"

/* What the elements of z are drawn from; both have mean 0 and variance 1. */
enum hop_distribution { HOP_GAUSSIAN, HOP_RADEMACHER };
extern const char *const hop_distribution_names[]; /* "gaussian", "rademacher", NULL */

/* Which direction: probe `direction` of a micro-batch of a step. */
struct hop_direction {
    uint64_t seed;
    uint32_t step;
    uint16_t micro_batch, direction;
    uint16_t sample; /* of the micro-batch, where samples have their own; shared ones are 0's */
    enum hop_distribution distribution;
};

/* out[i] = value of element begin+i of z for this parameter, i < n. */
void hop_direction_values(const struct hop_direction *direction,
                          const struct hop_parameter *parameter, size_t begin, size_t n,
                          float *out);

/* gradients += sum_q coefficient[q] * z_q, where z_q is direction directions[q] of the micro-batch
 * (equation 2 of the method: coefficient = g_q / Q). Added in the order of q for every element, so
 * the result does not depend on the number of threads. */
void hop_parameters_add_directions(struct hop_parameters *parameters, uint64_t seed, uint32_t step,
                                   uint16_t micro_batch, const uint16_t *directions,
                                   const float *coefficients, int32_t count);

/* The directions of a micro-batch. */
struct hop_direction_set {
    uint64_t seed;
    uint32_t step;
    uint16_t micro_batch;
    uint16_t first;  /* directions first .. first + count - 1 */
    int32_t count;   /* probes */
    int32_t samples; /* that have their own direction; 0: all share one */
    enum hop_distribution distribution;
};

/* The same for coefficients (count, max(samples, 1)), added probe by probe and sample by sample. */
void hop_parameters_add_estimate(struct hop_parameters *parameters,
                                 const struct hop_direction_set *set, const float *coefficients);

#endif
