/* State of the greedy scheduler. Private to src/schedule.
 *
 * Every part runs the tasks of one kind in one order (micro-batches ascending, and probes within
 * one): the first stage takes the earliest, and links keep the order in which messages are sent. So
 * a task is a number among those of its part and kind, and the state of a part is how many it has
 * started and finished and when the inputs of the next ones arrive. */
#ifndef HOP_SCHEDULE_GREEDY_INTERNAL_H
#define HOP_SCHEDULE_GREEDY_INTERNAL_H

#include <stdbool.h>

#include "schedule/agenda.h"
#include "schedule/greedy.h"
#include "schedule/network.h"
#include "schedule/schedule.h"

struct hop_greedy_part {
    int32_t device;
    int32_t previous, next; /* parts; -1: none */
    int32_t next_here;      /* the next part on the same device; -1: none */
    int32_t in_flight;      /* forwards whose backward is not done, at most */
    bool zeroth_order, sends_gradient;
    int32_t wanted[HOP_TASK_KINDS], started[HOP_TASK_KINDS], finished[HOP_TASK_KINDS];
    double seconds[HOP_TASK_KINDS], last_probe; /* the last PROBE of a micro-batch may be smaller */
    /* Seconds of the messages this part sends; derivatives: of those it receives. */
    double send[HOP_PAYLOADS], send_last_probe, last_derivative;
    double *arrival[HOP_TASK_KINDS]; /* of the inputs of FORWARD, BACKWARD and PROBE, by number */
    int32_t arrivals[HOP_TASK_KINDS];
    double last_arrival; /* of a derivative, for the STEP */
};

struct hop_greedy_device {
    int32_t first; /* its first part; -1: none */
    bool busy;
    int32_t part; /* what it runs */
    enum hop_task_kind kind;
    int32_t number;
    double work, left; /* seconds of all its tasks, and of those not yet started */
};

struct hop_greedy {
    const struct hop_cost_table *cost;
    int32_t part_capacity, micro_batches, probes, probe_batch;
    struct hop_greedy_part *parts;
    struct hop_greedy_device *devices;
    double *arrivals; /* storage of every part's */
    int32_t *stages;  /* (part_capacity) part of each stage */
    int32_t *round;   /* (devices) those with something to do now */
    struct hop_agenda agenda;
    struct hop_network network;
    /* The game being played. */
    const struct hop_plan *plan;
    int32_t probe_tasks; /* a micro-batch */
    double makespan;
    struct hop_schedule *lists; /* where tasks are appended; NULL: nowhere */
};

/* HOP_UNSUPPORTED for a plan that is no line. */
hop_status hop_greedy_check(const struct hop_plan *plan, struct hop_error *err);
/* Prices and connects the parts of a plan, nothing started. */
void hop_greedy_begin(struct hop_greedy *greedy, const struct hop_plan *plan);
/* Plays to the end; false as soon as the makespan must pass `limit`. */
bool hop_greedy_play(struct hop_greedy *greedy, double limit);
/* Task `number` of a part and kind. */
struct hop_task hop_greedy_task(const struct hop_greedy *greedy, int32_t part,
                                enum hop_task_kind kind, int32_t number);

#endif
