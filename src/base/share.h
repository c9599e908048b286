/* Shares of a whole, as whole numbers. */
#ifndef HOP_BASE_SHARE_H
#define HOP_BASE_SHARE_H

#include <stdint.h>

/* [lo, hi) */
struct hop_range {
    int32_t lo, hi;
};

/* The part [lo, hi) of n rows (samples, micro-batches, heads, columns) that a share [lo, hi) is:
 * every number that shares are turned into is rounded here and nowhere else. Ranges of shares that
 * tile [0, 1) tile [0, n); one may be empty, when n is small. */
struct hop_range hop_share_range(double lo, double hi, int32_t n);

#endif
