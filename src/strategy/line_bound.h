/* Lower bounds on the greedy makespan of every line that begins in a given way: what the placed
 * stages need, and the least that the rest can add, by one program over all lines. Links are
 * included. Private to src/strategy.
 *
 * What the estimators change: probes of differences go all the way to the head; tangents end on the
 * last BP-free stage, whose derivatives wait for the gradient from the stage behind it; and with
 * feedback the gradient goes back over every stage, a BP-free stage's backward being its DELTA. */
#ifndef HOP_STRATEGY_LINE_BOUND_H
#define HOP_STRATEGY_LINE_BOUND_H

#include "strategy/order.h"

struct hop_line_bound {
    const struct hop_pipeline *pipeline;
    const struct hop_order *order;
    bool probed;   /* the lines begin with a zeroth-order stage and have probes */
    bool through;  /* the probes run on BP-capable stages, too */
    bool feedback; /* the lines begin with a zeroth-order stage, and gradients go back to it */
    /* (types, types) of a message; (states, blocks + 1) least over all ways to go on, INFINITY
     * where there is none. */
    double *latency, *seconds_per_byte;
    double *load;  /* from the arrival of the first micro-batch to the end */
    double *path;  /* way of a micro-batch forward and back */
    double *drain; /* way of the last PROBE */
    double *least_latency, *least_seconds; /* (types) to any other type */
    double *back_latency, *back_seconds;   /* (types) of gradients, from any other type */
    double *derivative; /* (types) the last derivatives to a BP-free type, from any type that may
                           have them */
    double *storage;
};

/* The first stages of a line. */
struct hop_line_start {
    int32_t state, cut, last; /* of the order; blocks placed; type of the last stage, or -1 */
    double ready;             /* the last stage ends its first forward */
    double below;   /* from the last backward on the last stage, that included, to its end below */
    double path;    /* way of a micro-batch forward and back */
    double slowest; /* forward */
    double drain;   /* the last stage ends its last PROBE, at least */
    double derivative; /* from the task that has the last derivatives to the last STEP of a BP-free
                          stage */
    double turn; /* a stage ends its backwards, if the head turned the first micro-batch here */
    /* A stage that keeps few micro-batches ends its backwards after `rounds` times the way behind
     * it and `round_rest`, at least; of the stage that seems to take longest. */
    double rounds, round_rest, round_way;
    double settled; /* largest bound that does not depend on what follows */
};

/* Both are borrowed. front: the lines begin with BP-free stages. */
hop_status hop_line_bound_create(const struct hop_pipeline *pipeline, const struct hop_order *order,
                                 bool front, struct hop_line_bound *out, struct hop_error *err);
void hop_line_bound_free(struct hop_line_bound *bound);

struct hop_line_start hop_line_empty(void);
/* Adds a stage of the type with blocks [start->cut, hi); the order must have that edge. */
struct hop_line_start hop_line_extend(const struct hop_line_bound *bound,
                                      const struct hop_line_start *start, int32_t type, int32_t hi);
/* No line that begins so is faster. INFINITY: there is none. */
double hop_line_seconds(const struct hop_line_bound *bound, const struct hop_line_start *start);

#endif
