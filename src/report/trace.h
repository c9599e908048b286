/* Chrome trace events (opens in Perfetto and chrome://tracing). */
#ifndef HOP_REPORT_TRACE_H
#define HOP_REPORT_TRACE_H

#include "base/error.h"
#include "schedule/plan.h"
#include "schedule/timeline.h"

/* One process row a device (named), one thread row a part inside it, complete events with step,
 * micro-batch, probes and part as arguments. */
hop_status hop_trace_save(const char *path, const struct hop_timeline *timeline,
                          const struct hop_plan *plan, const char *const *device_names,
                          struct hop_error *err);

#endif
