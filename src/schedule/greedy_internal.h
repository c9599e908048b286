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

/* The probes of a micro-batch in one way or the other: PROBE or EXIT_PROBE tasks. */
struct hop_greedy_probes {
    int32_t probes, batch; /* of a micro-batch, and of one task; the last may be smaller */
    int32_t tasks;         /* of a micro-batch */
};

/* What one part does with them. */
struct hop_greedy_probing {
    bool receives;          /* the hidden states of the part before */
    bool sends;             /* its own to the part behind */
    bool derives;           /* its tasks make the derivatives */
    bool after_forward;     /* needs that of the micro-batch */
    double last;            /* seconds of the last task of a micro-batch; others: seconds[kind] */
    double send, send_last; /* seconds of hidden states to the part behind */
    double derivative, derivative_last; /* seconds of derivatives from their maker to this part */
};

/* Indices of either way of probing. */
enum { HOP_GREEDY_PROBES, HOP_GREEDY_EXITS, HOP_GREEDY_WAYS };

struct hop_greedy_part {
    int32_t device;
    int32_t previous, next;      /* parts; -1: none */
    int32_t next_here;           /* the next part on the same device; -1: none */
    int32_t in_flight;           /* forwards whose activations are not freed, at most */
    int32_t pending;             /* micro-batches with a PROBE whose DELTA is not done, at most */
    enum hop_task_kind frees;    /* the activations of a micro-batch; HOP_TASK_KINDS: nothing */
    enum hop_task_kind gradient; /* BACKWARD, DELTA, or HOP_TASK_KINDS: neither */
    bool zeroth_order, sends_gradient;
    int32_t wanted[HOP_TASK_KINDS], started[HOP_TASK_KINDS], finished[HOP_TASK_KINDS];
    double seconds[HOP_TASK_KINDS];
    struct hop_greedy_probing way[HOP_GREEDY_WAYS];
    double send_activation, send_gradient; /* seconds */
    double base_loss;                      /* seconds of one from the head to this part */
    double *arrival[HOP_TASK_KINDS];       /* of the inputs of FORWARD, BACKWARD, DELTA, PROBE and
                                              EXIT_PROBE, by number */
    int32_t arrivals[HOP_TASK_KINDS];
    int32_t derivatives; /* messages with derivatives and base losses that the STEP needs */
    double last_arrival; /* of these */
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
    int32_t part_capacity, micro_batches;
    int32_t probes[HOP_GREEDY_WAYS], probe_batch; /* asked for */
    struct hop_greedy_part *parts;
    struct hop_greedy_device *devices;
    double *arrivals; /* storage of every part's */
    int32_t *stages;  /* (part_capacity) part of each stage */
    int32_t *round;   /* (devices) those with something to do now */
    struct hop_agenda agenda;
    struct hop_network network;
    /* The game being played. */
    const struct hop_plan *plan;
    struct hop_greedy_probes way[HOP_GREEDY_WAYS];
    int32_t last;                  /* zeroth-order part; -1: none */
    enum hop_task_kind derived_by; /* what makes the derivatives of probes */
    bool base_losses;              /* go to the STEPs */
    double makespan;
    struct hop_schedule *lists; /* where tasks are appended; NULL: nowhere */
};

/* HOP_UNSUPPORTED for a plan that is no line. */
hop_status hop_greedy_check(const struct hop_plan *plan, struct hop_error *err);
/* Prices and connects the parts of a plan, nothing started. */
void hop_greedy_begin(struct hop_greedy *greedy, const struct hop_plan *plan);
/* Plays to the end; false as soon as the makespan must pass `limit`. */
bool hop_greedy_play(struct hop_greedy *greedy, double limit);
/* How tasks of that kind probe; -1: they do not. */
int32_t hop_greedy_way(enum hop_task_kind kind);
/* Task `number` of a part and kind. */
struct hop_task hop_greedy_task(const struct hop_greedy *greedy, int32_t part,
                                enum hop_task_kind kind, int32_t number);

#endif
