/* Equal shares: a row of costs cut into runs. Private to src/strategy. */
#ifndef HOP_STRATEGY_BALANCE_H
#define HOP_STRATEGY_BALANCE_H

#include <stdint.h>

#include "base/error.h"

/* Cuts items [0, n) into `runs` <= n runs that are not empty, so that the most expensive one is as
 * cheap as can be, and of those so that the sum of squares is least. Stores their lengths; among
 * equals the first runs are the longest. */
hop_status hop_balance(const double *costs, int32_t n, int32_t runs, int32_t *lengths,
                       struct hop_error *err);

#endif
