/* The published planner (Algorithm 1), corrected and exact: the plan of least
 *
 *     T_head = sum_N f + sum_G (f + b) + (M - 1) max_G (f + b) + M probe(first of G)
 *
 * over all splits and orders (but see HOP_ORDER_WORK), where a BP-free device holds its state (and
 * one micro-batch, if it keeps any) and the i-th of G BP-capable ones (from 0) min(M, G - i)
 * micro-batches beside it. Links do not enter. Private to src/strategy.
 */
#ifndef HOP_STRATEGY_FORMULA_SEARCH_H
#define HOP_STRATEGY_FORMULA_SEARCH_H

#include "strategy/pipeline.h"

/* Stores the runs (room for as many as devices), their number and T_head; *seconds is INFINITY
 * where nothing fits. all: every device takes part; otherwise any may stay out. */
hop_status hop_formula_search(const struct hop_pipeline *pipeline, bool all, struct hop_run *runs,
                              int32_t *count, double *seconds, struct hop_error *err);

#endif
