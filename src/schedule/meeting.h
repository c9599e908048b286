/* Tasks that run together on different devices: they start when the last of them can and end at the
 * same time. A gang meets for each FORWARD and BACKWARD, the parts of a reduction for its REDUCE.
 */
#ifndef HOP_SCHEDULE_MEETING_H
#define HOP_SCHEDULE_MEETING_H

#include <stdint.h>

#include "base/error.h"
#include "schedule/reduction.h"
#include "schedule/schedule.h"

struct hop_meeting {
    const struct hop_task_ref *members; /* (count) by part */
    int32_t count;                      /* 2 at least */
};

struct hop_meetings {
    struct hop_meeting *items;
    int32_t count;
    struct hop_task_ref *members; /* storage of the items' */
};

/* Those of a schedule, in the order of their first member (device, position in its list). A task
 * whose partner is missing, or a REDUCE that the plan does not ask for, is HOP_INPUT naming it. */
hop_status hop_meetings_derive(const struct hop_plan *plan, const struct hop_schedule *schedule,
                               const struct hop_reductions *reductions, struct hop_meetings *out,
                               struct hop_error *err);
void hop_meetings_free(struct hop_meetings *meetings);

#endif
