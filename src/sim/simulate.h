/* The event simulator: plays any schedule against a cost table.
 *
 * A device runs the tasks of its list in order, each as soon as its inputs are there. Tasks that
 * meet (schedule/meeting.h) start when the last of them can and end together: a REDUCE takes
 * hop_price_reduction(), the FORWARD and BACKWARD of a gang hop_price_span(); these collectives do
 * not hold up the messages on the same links. A message is
 * ready when the task that makes it ends; it then needs its link (one serial resource a direction;
 * one for both with half_duplex; also the sender's and the receiver's network card with shared_nic)
 * for latency + bytes / bandwidth, first ready first served. Messages inside a device are free, and
 * so are those on links without latency and of infinite bandwidth: they wait for no other. Of what
 * is ready at the same time, the lower device goes first. */
#ifndef HOP_SIM_SIMULATE_H
#define HOP_SIM_SIMULATE_H

#include <stdbool.h>

#include "cluster/cost.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

/* One message on its link. */
struct hop_flight {
    int32_t transfer; /* index in hop_transfers_derive()'s order */
    double start, end;
};

struct hop_simulation {
    int32_t devices;
    double makespan;     /* seconds of one mini-batch */
    double *busy;        /* (devices) seconds of computation, without waits and collectives */
    double *peak_memory; /* (devices) bytes, by replaying what tasks keep and free */
    double *bytes_sent;  /* (devices) messages and collectives */
    int32_t working;     /* devices with a part */
    double utilization;  /* sum(busy) / (makespan * working); 1 - that is the bubble */
    double joules;       /* idle + busy watts of the working devices; NAN: a device has no figure */
    struct hop_timeline timeline; /* where asked for */
    struct hop_flight *flights;   /* (flight_count) where asked for */
    int32_t flight_count;
};

struct hop_simulation_options {
    int32_t window; /* message buffers a payload kind and direction, as in hop_schedule_check();
                       0: not limited */
    bool record;    /* fill timeline and flights */
};

/* options may be NULL. Any schedule whose transfers hop_transfers_derive() finds is played; the
 * rules of hop_schedule_check() are not asked for. A schedule that gets stuck is HOP_INPUT naming
 * the tasks that wait. */
hop_status hop_simulate(const struct hop_plan *plan, const struct hop_schedule *schedule,
                        const struct hop_cost_table *cost,
                        const struct hop_simulation_options *options, struct hop_simulation *out,
                        struct hop_error *err);
void hop_simulation_free(struct hop_simulation *simulation);

/* The fewest buffers, at least `least`, that the checker accepts and that make the simulation at
 * most (1 + tolerance) times as long as without a limit; found by bisection. */
hop_status hop_simulation_window(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                 const struct hop_cost_table *cost, int32_t least, double tolerance,
                                 int32_t *window, struct hop_error *err);

#endif
