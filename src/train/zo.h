/* Arithmetic of the zeroth-order estimator (equation 2 of the method); no tensors here.
 *
 * Losses are the parts of the mini-batch loss that one micro-batch contributes, -sum(logprob) over
 * its labels divided by the label tokens of the whole mini-batch, kept in double: a directional
 * derivative is the small difference of two of them. */
#ifndef HOP_TRAIN_ZO_H
#define HOP_TRAIN_ZO_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* -sum(logprob) / label_total, summed in double. */
double hop_loss(const float *logprob, size_t labels, int64_t label_total);

/* g[q] = (probe[q] - base) / epsilon. */
void hop_zo_derivatives(double base, const double *probe, size_t count, double epsilon, double *g);

/* Mean, sample standard deviation and standard error of the mean (both 0 for fewer than two
 * values), and root mean square of g. */
struct hop_zo_spread {
    double mean, std, error, rms;
};
struct hop_zo_spread hop_zo_spread(const double *g, size_t count);

/* (plus - minus) / (2 epsilon), of a two-sided difference. */
double hop_zo_central(double plus, double minus, double epsilon);

/* <a, b> of n elements of dtype (f32 or bf16), summed in double in a fixed order. A directional
 * derivative is <delta, t>: of the gradient of hidden states and their tangent. */
double hop_zo_inner(const void *a, const void *b, size_t n, enum hop_dtype dtype);

/* What of a directional derivative is rounding.
 *
 * At step 1 every micro-batch runs one probe more: direction 0 again, with epsilon' = epsilon (1 +
 * tau). With f(e) the exact loss along the direction, f(e) = f(0) + e f'(0) + e^2/2 f''(0) + ...,
 * and each measured loss off by its own rounding error r, a one-sided difference gives
 *
 *     epsilon' (g' - g) = (L' - L_base) - (1 + tau) (L_0 - L_base)
 *                       = r' - r_0 - tau (r_0 - r_base) + epsilon^2 f''(0)/2 (tau + tau^2) + ...
 *
 * The first order in epsilon cancels, the curvature enters with the factor tau only, and what is
 * left is about r' - r_0, whose root mean square is sqrt(2) sigma for independent errors of
 * deviation sigma. This returns sigma / epsilon, the share that one loss has in the rounding of a
 * derivative: measured |g| should be far above it. In a two-sided difference there are two errors
 * more, f'' cancels as well, and the share of one loss is sigma / (2 epsilon); so tau may be larger
 * there, and the two errors are less alike.
 *
 * first, repeated (count): g and g' of direction 0. passes: 1 or 2. 0 for count 0. */
double hop_zo_floor(const double *first, const double *repeated, size_t count, int passes);
double hop_zo_tau(int passes);

#endif
