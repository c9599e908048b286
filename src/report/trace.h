/* Chrome trace events (opens in Perfetto and chrome://tracing). */
#ifndef HOP_REPORT_TRACE_H
#define HOP_REPORT_TRACE_H

#include "base/error.h"
#include "schedule/plan.h"
#include "schedule/timeline.h"
#include "sim/simulate.h"

/* One process row a device (named), one thread row a part inside it, complete events with step,
 * micro-batch, probes and part as arguments. */
hop_status hop_trace_save(const char *path, const struct hop_timeline *timeline,
                          const struct hop_plan *plan, const char *const *device_names,
                          struct hop_error *err);
/* The same of a recorded simulation, and one more thread row for each device that a device sends
 * to, with the messages on that link. */
hop_status hop_trace_save_simulation(const char *path, const struct hop_simulation *simulation,
                                     const struct hop_plan *plan,
                                     const struct hop_schedule *schedule,
                                     const char *const *device_names, struct hop_error *err);

#endif
