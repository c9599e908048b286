/* Clipping by the norm of gradients that lie in several parts, possibly on several devices: each
 * part gives its sum of squares, the sum decides, each part is scaled. */
#ifndef HOP_TRAIN_CLIP_H
#define HOP_TRAIN_CLIP_H

#include <stddef.h>

/* In double and in a fixed order. Not finite exactly when some value is not. */
double hop_sum_of_squares(const float *values, size_t n);
/* min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (no clipping). */
double hop_clip_coefficient(double norm, double max_norm);
/* values *= factor; nothing happens for 1. */
void hop_scale(float *values, size_t n, double factor);

#endif
