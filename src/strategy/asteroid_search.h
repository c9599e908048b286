/* Asteroid's second algorithm: which blocks and devices form which stage. Private to src/strategy
 * and the oracle program.
 *
 * Stages take runs of the devices as they are listed, by falling memory: early stages keep most
 * micro-batches, K_p = 2 (P - p) - 1 for the p-th of P stages (from 0), as far as there are so
 * many. From the last stage on, the best pipeline of the last l blocks, the last n devices and p
 * stages is the best of all ways to put a stage before the best pipeline of fewer of them. As that
 * keeps only one of each, it is a heuristic. */
#ifndef HOP_STRATEGY_ASTEROID_SEARCH_H
#define HOP_STRATEGY_ASTEROID_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cluster/cost.h"

/* Devices of a group that the first algorithm gives no sample. */
enum hop_asteroid_idle {
    HOP_ASTEROID_IDLE_OUT,     /* they hold nothing and are not in the plan */
    HOP_ASTEROID_IDLE_COUNTED, /* as published: they take part in transfers and all-reduces */
    HOP_ASTEROID_IDLE_NEVER    /* every device gets a sample */
};

struct hop_asteroid_problem {
    const struct hop_cost_table *cost;
    const int32_t *devices; /* (count) with backward times, by falling memory */
    int32_t count, micro_batches;
    int32_t rows; /* samples of a micro-batch */
    enum hop_asteroid_idle idle;
};

struct hop_asteroid_stage {
    int32_t lo, hi;         /* blocks [lo, hi) */
    int32_t first, count;   /* its devices in the list of the problem */
    const int32_t *samples; /* (count) of each, 0 for some */
};

struct hop_asteroid_search;

/* The problem is borrowed. */
hop_status hop_asteroid_search(const struct hop_asteroid_problem *problem,
                               struct hop_asteroid_search **out, struct hop_error *err);
void hop_asteroid_search_free(struct hop_asteroid_search *search);
/* The most stages there can be. */
int32_t hop_asteroid_most_stages(const struct hop_asteroid_search *search);
/* Latency of the best pipeline of so many stages; INFINITY: it does not fit. */
double hop_asteroid_seconds(const struct hop_asteroid_search *search, int32_t stages);
/* Its stages (room for `count`), which point into the search. */
void hop_asteroid_stages(const struct hop_asteroid_search *search, int32_t count,
                         struct hop_asteroid_stage *stages);

/* K_p of the stage with `from` stages from it on, itself included. */
int32_t hop_asteroid_kept(int32_t from, int32_t micro_batches);

#endif
