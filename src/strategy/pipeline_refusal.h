/* Why a request has no plan. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPELINE_REFUSAL_H
#define HOP_STRATEGY_PIPELINE_REFUSAL_H

#include "strategy/pipeline.h"

/* What can be told before planning: no BP-capable device, more devices than blocks, ... Does not
 * look at probes. */
hop_status hop_pipeline_check(const struct hop_pipeline *pipeline, const char *strategy,
                              struct hop_error *err);

/* HOP_INFEASIBLE with what does not fit, and by how much. all: every device had to take part.
 * least: with the memory of the published formula (min(M, G - i) micro-batches kept), otherwise
 * with one kept. */
hop_status hop_pipeline_refuse(const struct hop_pipeline *pipeline, bool all, bool least,
                               struct hop_error *err);

#endif
