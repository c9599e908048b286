#include "schedule/timeline.h"

#include <stdlib.h>

#include "base/memory.h"

hop_status hop_timeline_add(struct hop_timeline *timeline, const struct hop_event *event,
                            struct hop_error *err)
{
    HOP_TRY(hop_grow(&timeline->events, &timeline->capacity, timeline->count + 1,
                     sizeof *timeline->events, err));
    timeline->events[timeline->count++] = *event;
    return HOP_OK;
}

void hop_timeline_free(struct hop_timeline *timeline)
{
    if (!timeline)
        return;
    free(timeline->events);
    *timeline = (struct hop_timeline){0};
}
