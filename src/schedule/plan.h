/* A plan: which device holds which blocks, for which samples, with which kind of gradient. Plain
 * data. */
#ifndef HOP_SCHEDULE_PLAN_H
#define HOP_SCHEDULE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "cluster/cost.h"
#include "model/stage.h"

/* One copy or shard of a stage on one device. Stages of a pipeline are numbered 0, 1, ... from the
 * embedding to the head and tile the blocks without gap or overlap. */
struct hop_part {
    int32_t device; /* index in the cluster */
    int32_t pipeline, stage;
    int32_t lo, hi; /* blocks [lo, hi); lo == hi is allowed for a stage that only embeds */
    double sample_lo, sample_hi; /* share of each micro-batch's samples, in [0, 1] */
    double tensor_lo, tensor_hi; /* share of heads and feed-forward columns, in [0, 1] */
    double micro_lo, micro_hi;   /* share of the mini-batch's micro-batches its pipeline handles */
    enum hop_gradient gradient;
    int32_t in_flight;      /* micro-batches kept for backward at once, at most; 0: none are kept */
    double forward_seconds; /* predicted, of one micro-batch */
    double memory_bytes;    /* predicted, with in_flight micro-batches kept */
    double memory_limit;    /* of the device; INFINITY: none */
};

enum { HOP_STRATEGY_NAME = 32 };

struct hop_plan {
    char strategy[HOP_STRATEGY_NAME];
    int32_t blocks;              /* of the model */
    int32_t devices;             /* of the cluster; those without a part stay idle */
    int32_t micro_batches;       /* M of a full mini-batch */
    int32_t probes;              /* Q per micro-batch */
    int32_t probe_batch;         /* probes that one PROBE task runs at once; 0: all Q */
    int32_t exit_probes;         /* Q' per micro-batch that end on the last BP-free device */
    int32_t micro_batch_samples; /* rows of a micro-batch, for people and files; 0: not known */
    struct hop_part *parts;
    int32_t part_count;
    /* What the planner knows about its choice, seconds a mini-batch; NAN: not known. */
    double formula_seconds;   /* the strategy's published closed form */
    double simulated_seconds; /* by the event simulation */
    double bound_seconds;     /* no plan can be faster: a proof when equal to simulated_seconds */
    double
        all_devices_seconds; /* the best plan with every device, where this one leaves some out */
};

void hop_plan_free(struct hop_plan *plan);
/* Blocks covered exactly once per pipeline, stages contiguous, indices in range, no stage without
 * backward behind a backprop stage; HOP_INPUT names the part that breaks a rule. More than one
 * pipeline, sample shares and tensor shares are HOP_UNSUPPORTED until gradients can be reduced. */
hop_status hop_plan_check(const struct hop_plan *plan, struct hop_error *err);

/* device_names (plan->devices). The object has `parts` (device name, pipeline, stage, blocks,
 * gradient, sample_share, tensor, ...; `samples` where micro_batch_samples is known) and
 * hop_plan_parse() reads it back. NULL: out of memory. */
json_t *hop_plan_json(const struct hop_plan *plan, const char *const *device_names);
hop_status hop_plan_parse(const json_t *object, const char *where, const char *const *device_names,
                          int32_t devices, struct hop_plan *out, struct hop_error *err);

/* The part before / after `part` in its pipeline, or -1. */
int32_t hop_plan_previous(const struct hop_plan *plan, int32_t part);
int32_t hop_plan_next(const struct hop_plan *plan, int32_t part);
/* The part with the last stage of the part's pipeline. */
int32_t hop_plan_head(const struct hop_plan *plan, int32_t part);
/* Does the part handle micro-batch m of `micro_batches`? Those are [round(micro_lo * n),
 * round(micro_hi * n)). */
bool hop_part_handles(const struct hop_part *part, int32_t micro_batches, int32_t m);
/* Is any part trained by zeroth-order probes? Then every part runs them. */
bool hop_plan_has_zeroth_order(const struct hop_plan *plan);
/* Does `part` send the gradient of its input to the part before it? */
bool hop_plan_sends_gradient(const struct hop_plan *plan, int32_t part);

#endif
