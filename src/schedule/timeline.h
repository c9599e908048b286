/* A timeline: what ran when. The runtime measures one, the simulator predicts one; same format. */
#ifndef HOP_SCHEDULE_TIMELINE_H
#define HOP_SCHEDULE_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "schedule/schedule.h"

struct hop_event {
    int32_t device;
    int32_t step;
    struct hop_task task;
    double start, end; /* seconds since the start of the run */
};

struct hop_timeline {
    struct hop_event *events;
    size_t count, capacity;
};

hop_status hop_timeline_add(struct hop_timeline *timeline, const struct hop_event *event,
                            struct hop_error *err);
void hop_timeline_free(struct hop_timeline *timeline);

#endif
