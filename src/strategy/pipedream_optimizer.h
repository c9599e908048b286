/* PipeDream's optimizer: runs of layers become stages, a stage may be replicated on several
 * devices, and the slowest stage shall be as fast as can be. It knows one kind of device, and what
 * a stage of it holds only roughly, as stages behind are not known yet.
 *
 *     T(i..j, m) = ( C(i..j) + 4 (m - 1) W(i..j) / (bw m) ) / m          a stage on m devices
 *     A(j, m)    = least over k < j and m' < m of
 *                  max( A(k, m - m'), T(k+1..j, m'), 2 o_k / (bw m'), 2 o_j / (bw m') )
 *
 * where the last term is not there for the last layer, and A(j, m) = T(0..j, m) is one stage alone.
 * Of equal ones the earlier k, then the smaller m', wins. Private to src/strategy. */
#ifndef HOP_STRATEGY_PIPEDREAM_OPTIMIZER_H
#define HOP_STRATEGY_PIPEDREAM_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* States are the places where a stage may end. In a chain state j is "layers 0 to j are done"; in
 * other graphs it is a set of layers whose outputs have been made, and only some states may come
 * before a state. The last state is the whole model. All arrays are borrowed. */
struct hop_pipedream_model {
    int32_t states;
    const double *seconds;  /* (states) forward and backward of all layers done */
    const double *gradient; /* (states) bytes of the gradients of all layers done: W */
    const double *output;   /* (states) bytes that the next stage needs: o */
    const bool *before;     /* (states, states): may [row] come before [column]? NULL: a chain */
    int32_t most_replicas;  /* of a stage; 0: any number */
    /* Memory, where `held` is not NULL: a stage on m devices with r devices behind it must fit with
     * min(r + 1, most_kept) micro-batches kept, an m-th of each on a device. */
    const double *held; /* (states) bytes of all layers done */
    const double *kept; /* (states) bytes that they keep of a micro-batch */
    double memory;      /* of a device, for both */
    int32_t most_kept;
};

struct hop_pipedream_stage {
    int32_t lo, hi; /* states [lo, hi) */
    int32_t replicas;
};

/* Stages for `devices` >= 1 devices, all of which are used; straight: none is replicated. stages
 * has room for `devices`. *seconds: A of the whole model, INFINITY where there is no plan (straight
 * with more devices than states, or too little memory); *count is 0 then. */
hop_status hop_pipedream_optimize(const struct hop_pipedream_model *model, int32_t devices,
                                  double bandwidth, bool straight,
                                  struct hop_pipedream_stage *stages, int32_t *count,
                                  double *seconds, struct hop_error *err);

/* One stage of all layers on `devices` devices: T(whole model, devices). */
double hop_pipedream_replicated(const struct hop_pipedream_model *model, int32_t devices,
                                double bandwidth);

#endif
