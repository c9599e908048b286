/* What both AccPar strategies share: plans of one stage that every device holds a part of.
 *
 * A block's q, k, v, gate and up projections are cut by columns (type III) and its o and down
 * projections by rows (type II): III before II needs no exchange, so a gang exchanges a hidden
 * tensor twice a block forward and twice backward. Gangs of different rows (type I) only meet to
 * add up gradients. Private to src/strategy. */
#ifndef HOP_STRATEGY_ACCPAR_PLAN_H
#define HOP_STRATEGY_ACCPAR_PLAN_H

#include "strategy/accpar_team.h"

/* The plan with these gangs (count >= 1; they tile the rows), priced, with both times. */
hop_status hop_accpar_plan(const struct hop_accpar_team *team, const char *strategy,
                           const struct hop_accpar_gang *gangs, int32_t count, struct hop_plan *out,
                           struct hop_error *err);

/* Of a gang, the time that its devices are in lock-step,
 *
 *     M sum over blocks (max over d of share_d f_d + max over d of share_d b_d + exchanges)
 *
 * then the sums of gradients one after the other, each when the last of its parts comes, then the
 * slowest optimizer step. NAN: out of memory. */
double hop_accpar_formula(const struct hop_plan *plan, const struct hop_cost_table *cost);

#endif
