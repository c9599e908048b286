/* Seconds of a mini-batch ("HPP-round latency") by the formula of Asteroid. Private to
 * src/strategy. */
#ifndef HOP_STRATEGY_ASTEROID_LATENCY_H
#define HOP_STRATEGY_ASTEROID_LATENCY_H

#include "strategy/pivot.h"

/* The dominant step, dm: the first of those with the largest
 *
 *     M (F_c + B_c) + sum_{i < c} (F_i + B_i) */
int32_t hop_dominant_step(const struct hop_pipeline_step *steps, int32_t count,
                          int32_t micro_batches);

/*     max_s (sum_{i < s} F_i + Te_s + AR_s)
 *     Te_s = M (F_dm + B_dm) + sum_{s <= i < dm} (F_i + B_i)     for s < dm
 *            M (F_dm + B_dm) - sum_{dm <= i < s} (F_i + B_i)     for s >= dm */
double hop_asteroid_latency(const struct hop_pipeline_step *steps, int32_t count,
                            int32_t micro_batches);

#endif
