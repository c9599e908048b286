/* The cost model: from a model, a micro-batch and device profiles to a cost table.
 *
 *     seconds(block) = overhead + max(operations / rate, weight bytes / memory bandwidth)
 *
 * The embedding is part of block 0, the final norm and the head (at label positions only) of the
 * last block; an exit is a head of its own. Every size comes from hop_stage_bytes(), which the
 * runtime allocates by:
 *
 *     hop_cost_memory() = hop_stage_bytes() + AdamW's moments + message buffers
 *
 * for every part, up to the padding of arrays. All formulas are in docs/cost.md. */
#ifndef HOP_CLUSTER_COST_MODEL_H
#define HOP_CLUSTER_COST_MODEL_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "cluster/cluster.h"
#include "cluster/cost.h"
#include "data/batch.h"
#include "model/config.h"
#include "model/lora.h"

/* What BP-free stages run for the gradient of their adapters (see schedule/estimator.h): their
 * memory is for it. */
enum hop_front_work {
    HOP_FRONT_PROBES,   /* perturbed forwards, which pass through all stages */
    HOP_FRONT_TANGENTS, /* activations are kept for tangents, which end on the last BP-free stage */
    HOP_FRONT_FEEDBACK, /* activations are kept for feedback */
    HOP_FRONT_NOTHING
};

/* What the devices work on. */
struct hop_workload {
    struct hop_model_config model;
    struct hop_lora_config lora; /* with cores all BP-free stages train them, and every stage where
                                    they are for all blocks */
    enum hop_front_work front;
    int32_t passes;  /* of a probe; 0: one */
    bool per_sample; /* every sample of a micro-batch is perturbed on its own */
    enum hop_dtype dtype;
    int32_t samples;                /* of a micro-batch */
    int32_t tokens;                 /* of a sample: what times and messages are priced at */
    int32_t labels;                 /* label tokens of a sample, where the head computes */
    struct hop_batch_limits limits; /* largest micro-batch: what memory is priced at */
    int32_t probe_batch;            /* probes a PROBE runs at once; at least 1 */
    int32_t window;                 /* message buffers a payload kind and direction */
    int32_t cache, cache_sequences; /* of stages that decode, as in struct hop_stage_config */
};

/* Operations (multiply and add are two) of one forward of one block / of the head. */
double hop_block_operations(const struct hop_workload *workload);
double hop_head_operations(const struct hop_workload *workload);

/* Those of the adapter gradients of a DELTA by feedback, of one block. */
double hop_feedback_operations(const struct hop_workload *workload);

/* Devices, links and machines in the order of the cluster. BP-capable devices are sized for
 * backward, BP-free ones for their front work; where a BP-free device runs perturbed forwards, all
 * have the buffers of probes. HOP_INPUT where a device lacks the figures to price its work (rate,
 * probe_ratio, backward_ratio with bp) or the workload is empty. */
hop_status hop_cost_from_model(const struct hop_workload *workload,
                               const struct hop_cluster *cluster, struct hop_cost_table *out,
                               struct hop_error *err);

#endif
