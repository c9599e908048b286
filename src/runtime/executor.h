/* Plays a schedule on one device: waits for a task's input, runs it, sends its output.
 *
 * An executor holds the device's parts (stages, adapters, optimizer state) and all message buffers.
 * The step loop allocates nothing. */
#ifndef HOP_RUNTIME_EXECUTOR_H
#define HOP_RUNTIME_EXECUTOR_H

#include <stdint.h>

#include "base/error.h"
#include "data/batch.h"
#include "model/stage.h"
#include "runtime/emulation.h"
#include "runtime/route.h"
#include "runtime/transport.h"
#include "schedule/timeline.h"

struct hop_executor_config {
    struct hop_model_config model;
    struct hop_lora_config lora;
    enum hop_dtype dtype;
    struct hop_batch_limits limits;             /* largest micro-batch */
    int32_t cache, cache_sequences;             /* of every stage, as in struct hop_stage_config */
    const struct hop_batch_limits *part_limits; /* (plan parts) of what they handle of it; borrowed
                                                 */
    uint64_t seed;
    float epsilon;
    enum hop_distribution distribution; /* of the directions */
    float weight_decay;
    int32_t device;      /* index in the plan */
    const char *backend; /* name */
    bool bp;             /* false: the backend's backward entries are taken away from parts that
                            the plan does not train by backprop */
    int32_t threads;
    const int32_t *rank_of; /* (plan->devices): rank of each device, -1 for idle ones; borrowed */
    int64_t trace_steps;    /* steps 1..trace_steps are recorded */
    int32_t window;         /* message buffers a payload kind and direction, at least */
    struct hop_emulation *emulation; /* of an emulated device, else NULL; borrowed */
};

struct hop_executor;

/* Does the plan's part end with an output layer for exit probes? */
bool hop_plan_part_exits(const struct hop_plan *plan, int32_t part);

/* plan, weights and transport are borrowed. Takes over the schedules (emptied on success). */
hop_status hop_executor_create(const struct hop_executor_config *config,
                               const struct hop_plan *plan, struct hop_schedule *schedules,
                               int32_t schedule_count, const struct hop_weights *weights,
                               struct hop_transport *transport, struct hop_executor **out,
                               struct hop_error *err);
void hop_executor_free(struct hop_executor *executor);

/* What one pass measured on this device. Arrays belong to the executor. */
struct hop_pass {
    double busy;              /* seconds of computation, on an emulated device by its clock */
    struct hop_lateness late; /* of an emulated device */
    int32_t losses;           /* with a head: micro_batches, else 0 */
    const double *loss;       /* (losses) -sum(logprob)/label_total of the rows of each micro-batch
                                 that heads of this device handle: the sum over devices is its loss */
    /* Directional derivatives that this device computed: micro-batch by micro-batch, probe by probe
     * and, where samples have their own directions, sample by sample. */
    int32_t derivatives, exit_derivatives;
    const double *derivative, *exit_derivative;
    int32_t exit_losses;     /* with an exit layer: micro_batches, else 0 */
    const double *exit_loss; /* (exit_losses) of the exit's own model; where it is not computed for
                                itself, the mean of its exit probes */
    int32_t squares;         /* parameters of the trainable parts of this device */
    const double *square;    /* (squares) sum of squares of each parameter's gradient */
    double held;             /* bytes of the parts, their optimizer state and message buffers */
    const float *scores;     /* evaluation with a head: label log-probabilities, (micro_batches,
                                limits.labels), those of the rows that heads of this device handle
                                at their places */
    const int32_t *picked;   /* decoding with a head: the likeliest next token of each sequence,
                                (micro_batches, limits.sequences) */
};

/* Runs schedule `index` on batches[0..micro_batches). step counts from 1 (0: evaluation). Gradients
 * are left in the parts until hop_executor_update(). A loss that is not finite is HOP_NUMERIC
 * naming the step and micro-batch. */
hop_status hop_executor_run(struct hop_executor *executor, int32_t index, int64_t step,
                            const struct hop_batch *batches, struct hop_pass *pass,
                            struct hop_error *err);

/* Where the sequences of a pass stand that decodes, (micro_batches, limits.sequences) each: see
 * struct hop_continuation. */
struct hop_places {
    const int32_t *past, *place;
};

/* Runs schedule `index`, one of evaluation, on the next tokens of sequences in the caches.
 * A micro-batch may be empty. Logits that are not finite are HOP_NUMERIC. */
hop_status hop_executor_decode(struct hop_executor *executor, int32_t index,
                               const struct hop_batch *batches, const struct hop_places *places,
                               struct hop_pass *pass, struct hop_error *err);

struct hop_update {
    int64_t step; /* from 1, for the bias correction of AdamW */
    double learning_rate, zo_learning_rate;
    double clip, zo_clip; /* factors for the gradients of either half */
};

/* AdamW on every trainable part, then the gradients are zero again. */
hop_status hop_executor_update(struct hop_executor *executor, const struct hop_update *update,
                               struct hop_error *err);

/* Adapter values, first and second moments of all parts of this device, part after part:
 * 3 * total floats a part. */
size_t hop_executor_state_count(const struct hop_executor *executor);
/* What this device sends of them when they are collected, part after part and block after block
 * (see block_state.h); at most hop_executor_state_count() floats. Returns how many. */
size_t hop_executor_state_get(const struct hop_executor *executor, float *state);
hop_status hop_executor_state_set(struct hop_executor *executor, const float *state,
                                  struct hop_error *err);

/* Events recorded so far, times on this machine's monotonic clock; those of an emulated device
 * are by its own clock, from the start of a task to the end of its wait. */
const struct hop_timeline *hop_executor_timeline(const struct hop_executor *executor);

#endif
