/* Least squares, for figures that are fitted to measurements. */
#ifndef HOP_CLUSTER_MEASURE_FIT_H
#define HOP_CLUSTER_MEASURE_FIT_H

#include <stddef.h>

#include "base/error.h"

/* y = intercept + slope * x, intercept >= 0, with the least sum of squared *relative* residuals: a
 * quick point counts as much as a slow one. x > 0, y > 0; points that would want a negative slope
 * get the best line through the origin. r2 = 1 - sum (y - fit)^2 / sum (y - mean)^2; 1 where
 * all y are equal and met. One point, or points of one x: intercept 0. */
struct hop_line {
    double intercept, slope, r2;
};
struct hop_line hop_fit_line(size_t n, const double *x, const double *y);

/* The coefficients c (columns) with the least sum of (y - X c)^2, X (rows, columns) row-major, by
 * Householder's QR on columns of unit length. r2 may be NULL. HOP_NUMERIC, with nothing written,
 * where the rows do not determine every coefficient. */
hop_status hop_fit_linear(size_t rows, size_t columns, const double *x, const double *y,
                          double *coefficients, double *r2, struct hop_error *err);

/* Sorts values (n > 0): their median, and (upper - lower quartile) / median. */
double hop_median(size_t n, double *values, double *spread);

#endif
