/* HOP_PROBES_AUTO: the largest number of probes, or of exit probes, that does not lengthen the
 * step. Private to src/strategy. */
#ifndef HOP_STRATEGY_PROBES_AUTO_H
#define HOP_STRATEGY_PROBES_AUTO_H

#include "strategy/strategy.h"

enum { HOP_PROBES_MOST = 1024 };

/* Does a mini-batch with so many probes take no longer than one with hop_probes_fewest()? */
typedef hop_status (*hop_probes_question)(void *context, int32_t probes, bool *yes,
                                          struct hop_error *err);

/* The probes of the step that must not get longer: none; of tangents one, for the first brings the
 * way of the gradient to the last BP-free device along, and others do not lengthen that. */
int32_t hop_probes_fewest(enum hop_estimator estimator);

/* The largest number up to HOP_PROBES_MOST for which the answer is yes, by doubling and bisection
 * (more probes take longer); at least 1. */
hop_status hop_probes_largest(hop_probes_question question, void *context, int32_t *probes,
                              struct hop_error *err);

/* Where the request leaves the number of exit probes to the planner: the largest one that does not
 * lengthen the step of this priced plan and fits, perhaps 0. Prices and times the plan anew. */
hop_status hop_exit_probes_choose(const struct hop_plan_request *request, struct hop_plan *plan,
                                  struct hop_error *err);

#endif
