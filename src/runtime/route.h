/* A schedule as one device sees it: for each of its tasks, where the input comes from, where the
 * output goes and which buffers hold them. Pure data, computed once a schedule; the step loop only
 * follows it.
 *
 * A task's input, and its output, is one buffer with the hidden states of its part's rows. What it
 * exchanges with one part of a neighbouring stage is a run of rows in it: it is received straight
 * into its place, and sent straight from there.
 *
 * Buffers. Inputs of one payload kind that another device has a share in use a ring of `window`
 * receive buffers, in the order of the tasks that consume them; outputs that another device has a
 * share in use a ring of `window` send buffers in the order of the tasks that produce them (the
 * checker has proven that these rings cannot deadlock). What is handed to parts of the same device
 * is in local buffers, reused once consumed. */
#ifndef HOP_RUNTIME_ROUTE_H
#define HOP_RUNTIME_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "schedule/schedule.h"

/* One end of a hidden-state transfer at a task. */
struct hop_message {
    int32_t transfer; /* index in the transfers, also the message tag */
    int32_t device;   /* at the other end */
    bool local;       /* the other end is a part of this device */
};

/* All that a task receives, or sends. */
struct hop_port {
    enum hop_payload payload;
    int32_t begin, end; /* its messages; equal: there is none */
    int32_t slot;       /* ring buffer, -1: all messages are local */
    int32_t local;      /* of an output: local buffer laid out like it, -1: no message is local */
};

struct hop_task_route {
    struct hop_port input, output;
    int32_t derivatives_lo, derivatives_hi; /* range of `derivatives` this task receives or sends */
};

struct hop_route {
    struct hop_schedule schedule;
    struct hop_transfers transfers;
    int32_t device, window;
    struct hop_task_route *tasks; /* (tasks of this device) */
    struct hop_message *messages; /* of a port those received ascend by transfer, those sent by
                                     receiving part, as the simulator sends them */
    int32_t message_count;
    int32_t *receives[HOP_PAYLOADS]; /* tasks with a ring buffer for input, in list order */
    int32_t receive_count[HOP_PAYLOADS];
    int32_t receive_width[HOP_PAYLOADS]; /* messages of one such task, at most */
    int32_t send_width[HOP_PAYLOADS];
    int32_t local_slots[HOP_PAYLOADS]; /* local buffers needed */
    bool gathers[HOP_PAYLOADS];        /* a task has several inputs, all local */
    int32_t *derivatives;              /* transfers, of base losses as well, grouped by task */
    int32_t derivative_count;
};

/* The window is the smallest one, at least `window`,
 * that cannot deadlock. Takes over `schedule` (emptied on success). */
hop_status hop_route_create(const struct hop_plan *plan, struct hop_schedule *schedule,
                            int32_t device, int32_t window, struct hop_route *out,
                            struct hop_error *err);
void hop_route_free(struct hop_route *route);

/* The tag behind those of the transfers with which a reduction is run; numbers behind the last
 * reduction are tags for the gangs' exchanges. */
int32_t hop_route_reduction_tag(const struct hop_route *route, int32_t reduction);

#endif
