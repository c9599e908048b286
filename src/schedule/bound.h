/* Closed forms of a pipeline whose first stages are BP-free: the published iteration time, and a
 * time that no greedy schedule can beat. */
#ifndef HOP_SCHEDULE_BOUND_H
#define HOP_SCHEDULE_BOUND_H

#include <stdint.h>

#include "base/error.h"
#include "cluster/cost.h"
#include "schedule/plan.h"

/* What one micro-batch costs, seconds; stages from the embedding to the head. The arrays are
 * borrowed. Messages inside a device cost 0, and so does the STEP of an untrained stage. */
struct hop_pipeline_times {
    int32_t micro_batches;              /* M */
    int32_t stages, bp_free;            /* stages [0, bp_free) run no backward, the others do */
    int32_t gradient_from;              /* stages from this one on have BACKWARDs or DELTAs */
    const double *forward, *backward;   /* (stages); backward: or DELTA, from gradient_from on */
    const double *step;                 /* (stages) of a mini-batch */
    const double *send, *send_gradient; /* (stages - 1) of stage i's FORWARD to stage i + 1; of the
                                           BACKWARD or DELTA of stage i + 1 to stage i */
    double gradient_step; /* from the end of the last BACKWARD or DELTA on stage gradient_from to
                             the last STEP that waits for it */
    struct hop_probing_times {
        int32_t lo, hi;               /* stages that run probes; lo == hi: there are none, and none
                                         of the members below are read */
        const double *seconds, *send; /* as forward and send, all PROBEs of a micro-batch taken
                                         together */
        const double *last, *send_last; /* the last PROBE of a micro-batch alone */
        double derivative_step; /* from the end of the last PROBE on stage hi - 1 to that of the
                                   last STEP of a zeroth-order stage: its message and its STEP */
    } probes, exits;            /* exits: the same of EXIT_PROBEs */
};

/* The published iteration time with the backward times as measured (t* is the first backprop
 * stage, N the BP-free and G the other stages; no transfers, one pass of the BP-free stages):
 *
 *     T_head = sum_N f + sum_G (f + b) + (M - 1) max_G (f + b) + M probe(t*) */
double hop_bound_head(const struct hop_pipeline_times *times);

/* No schedule of hop_schedule_greedy() is faster, up to rounding: the largest of
 * - the path of the last micro-batch: forward to the head and back, waiting for the slowest
 *   forward on the way,
 * - for each stage: the way of the first micro-batch to it, all its work, and what must still
 *   follow its last task (the backward below it, or a probe's way on to the derivatives), and
 * - the same for each link in each direction.
 * That several stages or links share a device or a network card is not counted. */
double hop_bound_lower(const struct hop_pipeline_times *times);

/* The times of one plan that hop_plan_check() accepts; HOP_UNSUPPORTED where it is no line. */
struct hop_plan_times {
    struct hop_pipeline_times times;
    double *storage;
};
hop_status hop_plan_times_create(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                 struct hop_plan_times *out, struct hop_error *err);
void hop_plan_times_free(struct hop_plan_times *times);

#endif
