/* A plan: which device holds which blocks, for which samples, with which kind of gradient. Plain
 * data. */
#ifndef HOP_SCHEDULE_PLAN_H
#define HOP_SCHEDULE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "base/share.h"
#include "cluster/cost.h"
#include "model/stage.h"

/* One copy or shard of a stage on one device.
 *
 * Pipelines are numbered 0, 1, ... and share the micro-batches of a mini-batch among them. Stages
 * of a pipeline are numbered 0, 1, ... from the embedding to the head and tile the blocks without
 * gap or overlap. A stage is one or more parts with the same blocks and the same gradient:
 * - replicas have disjoint sample shares that tile [0, 1): each takes a range of the rows of every
 *   micro-batch;
 * - shards have one sample share and disjoint tensor shares that tile [0, 1): they are a gang,
 * which runs FORWARD and BACKWARD in lock-step, and each needs the whole hidden states of its rows.
 * Shares that meet are equal numbers, not nearly equal ones. */
struct hop_part {
    int32_t device; /* index in the cluster */
    int32_t pipeline, stage;
    int32_t lo, hi; /* blocks [lo, hi); lo == hi is allowed for a stage that only embeds */
    double sample_lo, sample_hi; /* share of each micro-batch's samples, in [0, 1] */
    double tensor_lo, tensor_hi; /* share of heads and feed-forward columns, in [0, 1] */
    double micro_lo, micro_hi;   /* share of the mini-batch's micro-batches its pipeline handles */
    enum hop_gradient gradient;
    int32_t in_flight; /* micro-batches whose activations are kept at once, at most, for backward
                          or as hop_plan_keeps() says; 0: none are kept */
    int32_t pending;   /* micro-batches whose tangents are kept at once, at most, until their DELTA;
                          0: none are kept */
    double forward_seconds; /* predicted, of one micro-batch */
    double memory_bytes;    /* predicted, with in_flight and pending micro-batches kept */
    double memory_limit;    /* of the device; INFINITY: none */
};

/* How the shards of a gang exchange hidden states, twice a block and direction. */
enum hop_collective {
    HOP_ALL_REDUCE, /* sums of partial results: a ring sends 2 (n - 1) / n of the tensor */
    HOP_ALL_GATHER  /* slices of whole results: (n - 1) / n of it */
};
extern const char *const hop_collective_names[]; /* "all-reduce", "all-gather", NULL */

/* How the zeroth-order parts of a plan learn about their gradient (see schedule/estimator.h). */
enum hop_estimator {
    HOP_DIFFERENCE, /* one-sided differences of losses; probes run through the whole pipeline */
    HOP_CENTRAL,    /* two-sided ones: two passes a probe */
    HOP_BOUNDARY,   /* <delta, J z>: tangents through the zeroth-order parts, and the gradient delta
                       of their output from the first backprop part */
    HOP_FEEDBACK,   /* delta itself, handed back unchanged past the blocks it trains: no probes */
    HOP_ESTIMATORS
};
extern const char *const hop_estimator_names[]; /* "difference", ..., NULL */

/* What of a micro-batch shares a direction z. */
enum hop_directions { HOP_SHARED, HOP_PER_SAMPLE };
extern const char *const hop_directions_names[]; /* "shared", "per-sample", NULL */

/* The loss that an exit probe is compared with. */
enum hop_exit_base {
    HOP_EXIT_OWN,       /* the unperturbed loss of the exit's own model */
    HOP_EXIT_FULL_MODEL /* that of the whole model, as the paper prints it */
};
extern const char *const hop_exit_base_names[]; /* "own", "full-model", NULL */

enum { HOP_STRATEGY_NAME = 32 };

/* Blocks that feedback trains where nobody says: the error grows from block to block
 * (docs/experiments.md). */
enum { HOP_FEEDBACK_BLOCKS = 1 };

struct hop_plan {
    char strategy[HOP_STRATEGY_NAME];
    int32_t blocks;        /* of the model */
    int32_t devices;       /* of the cluster; those without a part stay idle */
    int32_t micro_batches; /* M of a full mini-batch */
    int32_t probes;        /* Q per micro-batch */
    int32_t probe_batch;   /* probes that one PROBE task runs at once; 0: all Q */
    int32_t exit_probes;   /* Q' per micro-batch that end on the last zeroth-order part; their
                              directions are Q .. Q + Q' - 1 */
    enum hop_estimator estimator;
    enum hop_directions directions;
    enum hop_exit_base exit_base;
    int32_t feedback_blocks;     /* the blocks next to the first backprop one that feedback trains;
                                    0: all zeroth-order ones */
    int32_t micro_batch_samples; /* rows of a micro-batch, for people and files; 0: not known */
    enum hop_collective collective;
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
/* HOP_INPUT names the part that breaks a rule: indices in range; no empty share; in every pipeline
 * stages contiguous and blocks covered exactly once, no stage without backward behind a backprop
 * stage; the parts of a stage alike and tiling samples and tensors; the pipelines tiling the
 * micro-batches; shards of a gang on different devices; copies of a block with the same gradient
 * and, where it is backprop, on different devices. Zeroth-order parts in a plan that is no line
 * (hop_plan_is_line()) are HOP_UNSUPPORTED: a directional derivative is that of a whole
 * micro-batch. The estimator of a plan with zeroth-order parts must find what it needs: boundary
 * and feedback no untrained stage between them, and a backprop stage behind the last; feedback no
 * probes; exit probes an estimator that has them, and nothing but zeroth-order stages up to the
 * last of them. */
hop_status hop_plan_check(const struct hop_plan *plan, struct hop_error *err);

/* device_names (plan->devices). The object has `parts` (device name, pipeline, stage, blocks,
 * gradient, sample_share, tensor, ...; `samples` where micro_batch_samples is known) and
 * hop_plan_parse() reads it back; without `estimator`, `directions` and `exit_base` the first of
 * each. NULL: out of memory. */
json_t *hop_plan_json(const struct hop_plan *plan, const char *const *device_names);
hop_status hop_plan_parse(const json_t *object, const char *where, const char *const *device_names,
                          int32_t devices, struct hop_plan *out, struct hop_error *err);

int32_t hop_plan_pipelines(const struct hop_plan *plan);
/* Stages of that pipeline. */
int32_t hop_plan_stages(const struct hop_plan *plan, int32_t pipeline);
/* The parts of a stage, by ascending index: the first one behind part `after`, -1 for the first of
 * all; -1 when there is none. */
int32_t hop_plan_stage_part(const struct hop_plan *plan, int32_t pipeline, int32_t stage,
                            int32_t after);
/* The same for the gang of `part`: the parts of its stage with its sample share, itself included.
 */
int32_t hop_plan_shard(const struct hop_plan *plan, int32_t part, int32_t after);
/* Parts in the gang of `part`; 1: it holds whole tensors. */
int32_t hop_plan_shards(const struct hop_plan *plan, int32_t part);
/* One pipeline, whose stages are one whole part each. */
bool hop_plan_is_line(const struct hop_plan *plan);

/* The first part of the stage before / after `part` in its pipeline, or -1. */
int32_t hop_plan_previous(const struct hop_plan *plan, int32_t part);
int32_t hop_plan_next(const struct hop_plan *plan, int32_t part);
/* The first part of the last stage of the part's pipeline. */
int32_t hop_plan_head(const struct hop_plan *plan, int32_t part);

/* Shares become numbers by hop_share_range(). A range may be empty, when there are few rows: the
 * part then still runs its tasks, with 0 rows, and its messages are there with 0 rows. */
/* Rows of a micro-batch of `rows` rows that the part handles. */
struct hop_range hop_part_rows(const struct hop_part *part, int32_t rows);
/* Micro-batches of a mini-batch of n micro-batches that the part's pipeline handles. */
struct hop_range hop_part_micro_batches(const struct hop_part *part, int32_t n);
bool hop_part_handles(const struct hop_part *part, int32_t micro_batches, int32_t m);
/* Is any part trained without backward? */
bool hop_plan_has_zeroth_order(const struct hop_plan *plan);
/* Does `part` send the gradient of its input to the part before it? */
bool hop_plan_sends_gradient(const struct hop_plan *plan, int32_t part);

#endif
