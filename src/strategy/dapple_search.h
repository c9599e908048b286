/* DAPPLE's planner as the paper has it, for devices that are all alike. Private to src/strategy.
 *
 * A plan puts layers [0, j) on devices `occupied` in stages; the rest is one stage on all other
 * devices. The search cuts that rest: layers [j, j') go to m' more devices, chosen by each of the
 * placement policies. Of all ways to a pair (j, occupied) it keeps those of least time with the
 * rest as one stage, TPL(j, m, g) of the paper: a heuristic, but with two devices it is exact. */
#ifndef HOP_STRATEGY_DAPPLE_SEARCH_H
#define HOP_STRATEGY_DAPPLE_SEARCH_H

#include "strategy/dapple_cards.h"
#include "strategy/pivot.h"

struct hop_dapple_link {
    double latency, seconds_per_byte;
};

struct hop_dapple_problem {
    int32_t layers, micro_batches;
    int32_t rows; /* of a micro-batch: a stage has so many replicas at most */
    /* (layers + 1) sums over the first so many layers: seconds of a micro-batch on one device,
     * bytes of gradients. */
    const double *forward, *backward, *gradients;
    const double *boundary; /* (layers - 1) bytes of a micro-batch behind each layer */
    struct hop_card_machines machines;
    struct hop_dapple_link inside, between; /* a machine, machines */
    bool shared_nic; /* what a device sends takes turns, and what it receives */
    /* Do layers [lo, hi) fit those devices with that many micro-batches kept? NULL: always. */
    bool (*fits)(const void *context, int32_t lo, int32_t hi, hop_cards cards, int32_t kept);
    const void *context;
    bool one_kept; /* a stage may keep one micro-batch only; else it must keep one for itself and
                      each stage behind it, as the warm-up of P_A asks */
};

struct hop_dapple_stage {
    int32_t lo, hi; /* layers [lo, hi) */
    hop_cards cards;
};

/* The largest share of a micro-batch that one of so many replicas has. */
double hop_dapple_share(const struct hop_dapple_problem *problem, int32_t replicas);
/* Writes the stages and transfers of a plan (2 count - 1 steps). */
void hop_dapple_steps(const struct hop_dapple_problem *problem,
                      const struct hop_dapple_stage *stages, int32_t count,
                      struct hop_pipeline_step *steps);
/* Average communication ratio: mean time of a transfer over mean time of a stage; 0: one stage. */
double hop_dapple_acr(const struct hop_pipeline_step *steps, int32_t count);

/* The stages of the best plan (room for as many as there are devices or layers, whichever is less),
 * their number and T. *count is 0 where nothing fits. */
hop_status hop_dapple_search(const struct hop_dapple_problem *problem,
                             struct hop_dapple_stage *stages, int32_t *count, double *seconds,
                             struct hop_error *err);

#endif
