/* Integer shares of a whole. Private to src/strategy. */
#ifndef HOP_STRATEGY_ACCPAR_SHARES_H
#define HOP_STRATEGY_ACCPAR_SHARES_H

#include <stdbool.h>
#include <stdint.h>

/* Splits `total` units among n receivers in proportion to their rates > 0, receiver i getting
 * `least` to caps[i] of them: the quotas are
 *
 *     clamp(lambda rates[i], least, caps[i])     with the lambda that makes them add up to total
 *
 * rounded by largest remainder, the first of equals first. false: the bounds rule it out. */
bool hop_accpar_deal(const double *rates, const int32_t *caps, int32_t n, int32_t total,
                     int32_t least, int32_t *units);

#endif
