/* Seconds of a mini-batch on a synchronous pipeline, by the formula of DAPPLE: its steps are stages
 * and the transfers between them, in turn. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIVOT_H
#define HOP_STRATEGY_PIVOT_H

#include <stdint.h>

struct hop_pipeline_step {
    double forward, backward; /* of one micro-batch */
    double reduce;            /* all-reduce of gradients at the end; 0 for transfers */
};

/* The step that sets the pace, Q: the last one, but an earlier s where
 *
 *     (M - 1)(F_s + B_s) > (M - 1)(F_Q + B_Q) + sum_{s < x < Q} (F_x + B_x) */
int32_t hop_pivot_step(const struct hop_pipeline_step *steps, int32_t count, int32_t micro_batches);

/*     T = sum_{x <= Q} F_x + (M - 1)(F_Q + B_Q)
 *       + max_s (AR_s + (sum_{s <= x <= Q} B_x where s <= Q, else -sum_{Q <= x <= s} B_x)) */
double hop_pivot_seconds(const struct hop_pipeline_step *steps, int32_t count,
                         int32_t micro_batches);

#endif
