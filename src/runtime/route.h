/* A schedule as one device sees it: for each of its tasks, where the input comes from, where the
 * output goes and which buffer holds it. Pure data, computed once a schedule; the step loop only
 * follows it.
 *
 * Buffers. Remote inputs of one payload kind share a ring of `window` receive buffers, used in the
 * order of the tasks that consume them; remote outputs share a ring of `window` send buffers in the
 * order of the tasks that produce them (the checker has proven that these rings cannot deadlock).
 * Outputs handed to another part of the same device use local buffers, reused once consumed. */
#ifndef HOP_RUNTIME_ROUTE_H
#define HOP_RUNTIME_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "schedule/schedule.h"

/* One end of a hidden-state transfer at a task. */
struct hop_endpoint {
    int32_t transfer; /* index in the transfers, also the message tag; -1: none */
    enum hop_payload payload;
    int32_t device; /* at the other end */
    bool local;     /* the other end is a part of this device */
    int32_t slot;   /* buffer of its ring or of the local buffers */
    int32_t order;  /* among the remote transfers of this payload and direction */
};

struct hop_task_route {
    struct hop_endpoint input, output;
    int32_t derivatives_lo, derivatives_hi; /* range of `derivatives` this task receives or sends */
};

struct hop_route {
    struct hop_schedule schedule;
    struct hop_transfers transfers;
    int32_t device, window;
    struct hop_task_route *tasks;    /* (tasks of this device) */
    int32_t *receives[HOP_PAYLOADS]; /* tasks with a remote input of the kind, in list order */
    int32_t receive_count[HOP_PAYLOADS];
    int32_t local_slots[HOP_PAYLOADS]; /* local buffers needed */
    int32_t *derivatives;              /* transfers, grouped by task */
    int32_t derivative_count;
};

/* Plans that are no line (hop_plan_is_line()) are HOP_UNSUPPORTED. The window is the smallest one,
 * at least `window`, that cannot deadlock. Takes over `schedule`
 * (emptied on success). */
hop_status hop_route_create(const struct hop_plan *plan, struct hop_schedule *schedule,
                            int32_t device, int32_t window, struct hop_route *out,
                            struct hop_error *err);
void hop_route_free(struct hop_route *route);

#endif
