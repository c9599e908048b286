/* HOP_PROBES_AUTO: the largest number of probes that does not lengthen the step. Private to
 * src/strategy. */
#ifndef HOP_STRATEGY_PROBES_AUTO_H
#define HOP_STRATEGY_PROBES_AUTO_H

#include "strategy/strategy.h"

enum { HOP_PROBES_MOST = 1024 };

/* Does a mini-batch with so many probes take no longer than one without? */
typedef hop_status (*hop_probes_question)(void *context, int32_t probes, bool *yes,
                                          struct hop_error *err);

/* The largest number up to HOP_PROBES_MOST for which the answer is yes, by doubling and bisection
 * (more probes take longer); at least 1. */
hop_status hop_probes_largest(hop_probes_question question, void *context, int32_t *probes,
                              struct hop_error *err);

#endif
