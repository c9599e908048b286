/* Arithmetic of the zeroth-order estimator (equation 2 of the method); no tensors here.
 *
 * Losses are the parts of the mini-batch loss that one micro-batch contributes, -sum(logprob) over
 * its labels divided by the label tokens of the whole mini-batch, kept in double: a directional
 * derivative is the small difference of two of them. */
#ifndef HOP_TRAIN_ZO_H
#define HOP_TRAIN_ZO_H

#include <stddef.h>
#include <stdint.h>

/* -sum(logprob) / label_total, summed in double. */
double hop_loss(const float *logprob, size_t labels, int64_t label_total);

/* g[q] = (probe[q] - base) / epsilon. */
void hop_zo_derivatives(double base, const double *probe, size_t count, double epsilon, double *g);

/* Mean and sample standard deviation (0 for fewer than two values) of g. */
struct hop_zo_spread {
    double mean, std;
};
struct hop_zo_spread hop_zo_spread(const double *g, size_t count);

/* What of a directional derivative is rounding.
 *
 * At step 1 every micro-batch b runs one probe more: direction 0 again, with epsilon' = epsilon (1
 * + tau). With f(e) the exact loss along the direction, f(e) = f(0) + e f'(0) + e^2/2 f''(0) + ...,
 * and each measured loss off by its own rounding error r,
 *
 *     residual = (L' - L_0) - tau (L_0 - L_base)
 *              = r' - r_0 - tau (r_0 - r_base) + epsilon^2 f''(0)/2 (tau + tau^2) + ...
 *
 * The first order in epsilon cancels, the curvature enters with the factor tau only, and what is
 * left is about r' - r_0, whose root mean square over the micro-batches is sqrt(2) sigma for
 * independent errors of deviation sigma. A derivative (L_0 - L_base)/epsilon carries sqrt(2) sigma
 * / epsilon of rounding; this returns rms(residual) / (sqrt(2) epsilon) = sigma/epsilon, the share
 * of one loss: measured |g| should be far above it. 0 for count 0. */
double hop_zo_floor(const double *base, const double *first, const double *repeated, size_t count,
                    double epsilon, double tau);
#define HOP_ZO_TAU (1.0 / 64)

#endif
