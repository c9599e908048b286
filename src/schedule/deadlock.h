/* Can list execution with a few buffers get stuck? Private to src/schedule. */
#ifndef HOP_SCHEDULE_DEADLOCK_H
#define HOP_SCHEDULE_DEADLOCK_H

#include <stdint.h>

#include "base/error.h"
#include "schedule/meeting.h"
#include "schedule/schedule.h"

/* HOP_INPUT naming the tasks of a cycle of waits; see hop_schedule_check() for the rules. */
hop_status hop_deadlock_check(const struct hop_schedule *schedule,
                              const struct hop_transfers *transfers,
                              const struct hop_meetings *meetings, int32_t window,
                              struct hop_error *err);

#endif
