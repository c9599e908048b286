/* Where AccPar splits an array of devices in two: BP-free devices from BP-capable ones, then types
 * of devices from each other, then equal devices in halves. */
#ifndef HOP_STRATEGY_ACCPAR_BISECT_H
#define HOP_STRATEGY_ACCPAR_BISECT_H

#include <stdbool.h>
#include <stdint.h>

struct hop_accpar_device {
    int32_t device; /* for the caller */
    bool bp;
    int32_t type; /* equal devices have equal types */
};

/* BP-free devices in front, then by type, equal ones as they stand. */
void hop_accpar_sort(struct hop_accpar_device *devices, int32_t n);

/* The first device of the second half of sorted devices [lo, hi), hi - lo >= 2. */
int32_t hop_accpar_middle(const struct hop_accpar_device *devices, int32_t lo, int32_t hi);

#endif
