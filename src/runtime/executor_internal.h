/* The executor's inside, shared by its files. */
#ifndef HOP_RUNTIME_EXECUTOR_INTERNAL_H
#define HOP_RUNTIME_EXECUTOR_INTERNAL_H

#include "runtime/executor.h"
#include "runtime/slice.h"
#include "schedule/reduction.h"
#include "train/adamw.h"

/* Devices that add up numbers, one after the other in a ring. */
struct hop_circle {
    int32_t place, count;   /* among them; 0 of them: this device is none of them */
    int32_t previous, next; /* devices */
    bool timed;             /* all of them are emulated on this machine */
};

/* Places for as many micro-batches as are kept at once. */
struct hop_kept {
    int32_t count;
    int32_t *of; /* (micro-batches): the place it has, -1: none */
    bool *busy;  /* (count) */
};

/* One part of the plan that lives here. */
struct hop_executor_part {
    struct hop_executor *executor;
    int32_t index; /* in the plan */
    bool head;
    bool exit; /* ends with an output layer for exit probes */
    struct hop_shard shard;
    struct hop_model_config model; /* as the shard sees it */
    struct hop_circle gang;        /* the shards, one of them this part */
    int32_t gang_id;               /* the first of them in the plan */
    struct hop_stage *stage;
    struct hop_adamw adamw;
    struct hop_kept slots;   /* of the stage, with kept activations */
    struct hop_kept pending; /* of the last zeroth-order part: with tangents until DELTA */
    unsigned char *tangents; /* (pending.count, tangent_bytes) probe after probe */
    size_t tangent_bytes;
    int32_t *probed; /* (micro-batches) probes whose tangents were computed */
};

/* A message under way. Between emulated devices a second one tells when it arrives. */
struct hop_wire {
    struct hop_request data, time;
    double arrival;
};

/* Buffers of one payload kind. */
struct hop_ring {
    size_t bytes; /* of one buffer */
    int32_t receives, sends, locals;
    bool gathers;          /* there is one more, for inputs that are only gathered here */
    unsigned char *memory; /* receives, then sends, then locals, then the one to gather in */
    int32_t receive_width, send_width;
    struct hop_wire *receive, *send; /* (receives, receive_width), (sends, send_width) */
};

/* What a pass knows of its probes, or of its exit probes. Where samples have their own directions
 * each has numbers of its own; else there is one of each kind. Those of a micro-batch lie together,
 * probe by probe. */
struct hop_probe_numbers {
    int32_t probes;   /* of the largest schedule */
    size_t stride;    /* numbers of a micro-batch at most */
    float *told;      /* (micro_batches, stride) derivatives as all devices get them */
    double *computed; /* (micro_batches, stride) those that were computed here */
    double *base;     /* (micro_batches, values) losses that they are compared with */
    float *told_base; /* the same as all devices get them */
};

/* A reduction that a part of this device takes part in. */
struct hop_executor_reduction {
    struct hop_circle circle;
    bool collects;            /* its numbers lie scattered: they are added up elsewhere */
    struct hop_shard_sum sum; /* if so, which ones */
    size_t offset, total;     /* if not, floats in the part's gradients; floats */
};

struct hop_executor {
    struct hop_executor_config config;
    const struct hop_plan *plan;
    struct hop_transport *transport;
    struct hop_ops ops, forward_ops; /* the backend's; without its backward operations */
    struct hop_backend *backend;
    struct hop_executor_part *parts;
    int32_t part_count;
    size_t held;      /* bytes of stages, moments and rings */
    int32_t *part_of; /* (plan parts): index in parts, or -1 */
    struct hop_route *routes;
    int32_t route_count;
    struct hop_ring rings[HOP_PAYLOADS];
    struct hop_slice slice;
    struct hop_reductions reductions;
    struct hop_executor_reduction *reduction; /* (reductions) */
    float *collected;                         /* of the largest that collects */
    void *chunk;                              /* on its way round a circle */
    size_t chunk_bytes;                       /* of the largest */
    const struct hop_executor_pass *pass;     /* in progress */
    double exchanging;                        /* seconds in the exchanges of the task in progress */
    int32_t micro_batches;                    /* largest over the routes */
    int32_t values;                           /* numbers of a probe and micro-batch, at most */
    int32_t passes;                           /* of the largest call, over all its probes */
    struct hop_probe *probe_list;             /* (passes) */
    struct hop_wire *derivative_wires;        /* (derivative transfers of a route) */
    float *arrivals;                          /* (derivative transfers of a route, arrival) */
    size_t arrival;                           /* floats of the largest */
    struct hop_probe_numbers probes, exits;
    double *pass_loss; /* (2, values) of a probe */
    double *loss, *exit_loss, *square;
    float *coefficients; /* (probes or exit probes of the plan, values) */
    float *scores;
    float *logits;   /* (limits.sequences, vocabulary) with a cache and the head */
    int32_t *picked; /* (micro_batches, limits.sequences) with a cache and the head */
    struct hop_timeline timeline;
};

/* One pass in progress. */
struct hop_executor_pass {
    struct hop_executor *executor;
    const struct hop_route *route;
    const struct hop_task *tasks;
    const struct hop_batch *batches;
    const struct hop_places *places; /* of a pass that decodes, else NULL */
    int64_t step;
    struct hop_emulation *emulation; /* NULL: nothing waits */
    int32_t posted[HOP_PAYLOADS];    /* tasks whose receives are posted so far */
    double busy;
};

/* executor_buffers.c */
hop_status hop_executor_buffers_create(struct hop_executor *executor, struct hop_error *err);
void hop_executor_buffers_free(struct hop_executor *executor);
/* Does a part of this device have a head? */
bool hop_executor_has_head(const struct hop_executor *executor);
void *hop_ring_receive(const struct hop_ring *ring, int32_t slot);
void *hop_ring_send(const struct hop_ring *ring, int32_t slot);
void *hop_ring_local(const struct hop_ring *ring, int32_t slot);
void *hop_ring_gather(const struct hop_ring *ring);

/* executor_messages.c */
/* Of the hidden states of a token. */
size_t hop_pass_token_bytes(const struct hop_executor_pass *pass);
/* Receives are posted ahead of need: a full window of each kind, and every derivative. Base losses
 * travel as derivatives do. */
hop_status hop_pass_post_receives(struct hop_executor_pass *pass, struct hop_error *err);
/* A task's input when it is there, NULL where it has none; afterwards its buffer takes the next. */
hop_status hop_pass_await_input(struct hop_executor_pass *pass, int32_t index, const void **input,
                                struct hop_error *err);
hop_status hop_pass_release_input(struct hop_executor_pass *pass, int32_t index,
                                  struct hop_error *err);
/* A task's output buffer when it is free, NULL where it has none; then sends what is in it. */
hop_status hop_pass_await_output(struct hop_executor_pass *pass, int32_t index, void **output,
                                 struct hop_error *err);
hop_status hop_pass_send_output(struct hop_executor_pass *pass, int32_t index, void *output,
                                struct hop_error *err);
hop_status hop_pass_await_derivatives(struct hop_executor_pass *pass, int32_t index,
                                      struct hop_error *err);
hop_status hop_pass_send_derivatives(struct hop_executor_pass *pass, int32_t index,
                                     struct hop_error *err);
/* Until all messages of the pass were taken. */
hop_status hop_pass_await_sends(struct hop_executor_pass *pass, struct hop_error *err);

/* executor_tasks.c */
/* Computes a task on its part's rows; `input` and `output` as above. */
hop_status hop_pass_compute(struct hop_executor_pass *pass, const struct hop_task *task,
                            const void *input, void *output, struct hop_error *err);
/* A loss that is not finite is HOP_NUMERIC. */
hop_status hop_pass_check_loss(const struct hop_executor_pass *pass, int32_t micro_batch,
                               double loss, struct hop_error *err);

/* executor_kept.c */
hop_status hop_kept_create(int32_t count, int32_t micro_batches, struct hop_kept *out,
                           struct hop_error *err);
void hop_kept_free(struct hop_kept *kept);
/* A place for a micro-batch; how many there are has been found by replaying the schedule. */
int32_t hop_kept_take(struct hop_kept *kept, int32_t micro_batch);
void hop_kept_release(struct hop_kept *kept, int32_t micro_batch);

/* executor_probes.c */
/* Numbers of a probe of a micro-batch: one, or as many as it has samples. */
int32_t hop_pass_values(const struct hop_executor_pass *pass, int32_t micro_batch);
/* The rows of its samples that number v stands for. */
struct hop_range hop_pass_value_rows(const struct hop_executor_pass *pass, int32_t micro_batch,
                                     int32_t v);
/* losses[v] of a micro-batch from its label log-probabilities. */
hop_status hop_pass_losses(const struct hop_executor_pass *pass, int32_t micro_batch,
                           const float *logprob, double *losses, struct hop_error *err);
/* The losses that probes are compared with, where `numbers` are probes or exit probes. */
hop_status hop_pass_take_base(struct hop_executor_pass *pass, struct hop_probe_numbers *numbers,
                              int32_t micro_batch, const float *logprob, struct hop_error *err);
/* One derivative, in both forms. */
void hop_pass_put_derivative(const struct hop_executor_pass *pass,
                             struct hop_probe_numbers *numbers, int32_t micro_batch, int32_t q,
                             int32_t v, double derivative);
/* A PROBE or EXIT_PROBE of perturbed adapters. */
hop_status hop_pass_probe(struct hop_executor_pass *pass, const struct hop_task *task,
                          struct hop_executor_part *part, const void *input, void *output,
                          struct hop_error *err);

/* executor_tangents.c */
/* A PROBE of boundary; and the DELTA of boundary or feedback. */
hop_status hop_pass_tangent(struct hop_executor_pass *pass, const struct hop_task *task,
                            struct hop_executor_part *part, const void *input, void *output,
                            struct hop_error *err);
hop_status hop_pass_delta(struct hop_executor_pass *pass, const struct hop_task *task,
                          struct hop_executor_part *part, const void *input, void *output,
                          struct hop_error *err);

/* executor_estimate.c */
/* Adds the estimates of all micro-batches to the gradients of a zeroth-order part. */
void hop_pass_add_estimates(struct hop_executor_pass *pass, struct hop_executor_part *part);
/* The derivatives that this device has computed, packed into `out`. */
void hop_pass_collect_derivatives(struct hop_executor_pass *pass, struct hop_pass *out);

/* executor_circle.c */
/* This device's place among `count` devices. */
struct hop_circle hop_circle_join(const struct hop_executor *executor, const int32_t *devices,
                                  int32_t count);
/* Bytes of the largest message that adds up n elements, which executor->chunk must hold. */
size_t hop_circle_chunk(const struct hop_circle *circle, size_t n, enum hop_dtype dtype);
/* Replaces n numbers by their sums over the circle, the same bits on all its devices. */
hop_status hop_circle_add_up(const struct hop_executor_pass *pass, const struct hop_circle *circle,
                             void *values, size_t n, enum hop_dtype dtype, int32_t tag,
                             struct hop_error *err);
/* Emulated devices start what they do together at the latest of their clocks. */
hop_status hop_circle_meet(const struct hop_executor_pass *pass, const struct hop_circle *circle,
                           int32_t tag, struct hop_error *err);

/* executor_gang.c */
/* Finds the other shards of a part. */
hop_status hop_executor_gang_create(struct hop_executor *executor, struct hop_executor_part *part,
                                    struct hop_error *err);
/* Does the task run in lock-step with those of other shards? */
bool hop_pass_is_joint(const struct hop_executor_pass *pass, const struct hop_task *task);
/* The shards' clocks in front of a joint task. */
hop_status hop_pass_meet_gang(struct hop_executor_pass *pass, const struct hop_task *task,
                              struct hop_error *err);
/* A hop_exchange of the part, which is the context. */
hop_status hop_executor_exchange(void *part, void *values, size_t count, enum hop_dtype dtype,
                                 struct hop_error *err);

/* executor_reduce.c */
/* First which reductions there are; then, with the parts, this device's place in them. */
hop_status hop_executor_reductions_create(struct hop_executor *executor, struct hop_error *err);
hop_status hop_executor_reductions_join(struct hop_executor *executor, struct hop_error *err);
void hop_executor_reductions_free(struct hop_executor *executor);
/* Adds up the gradients of a REDUCE; all its parts end with the same bits. *start and *end are the
 * times of the task. */
hop_status hop_pass_reduce(struct hop_executor_pass *pass, const struct hop_task *task,
                           double *start, double *end, struct hop_error *err);

static inline struct hop_executor_part *hop_pass_part(const struct hop_executor_pass *pass,
                                                      const struct hop_task *task)
{
    return &pass->executor->parts[pass->executor->part_of[task->part]];
}

static inline int hop_pass_rank(const struct hop_executor_pass *pass, int32_t device)
{
    return pass->executor->config.rank_of[device];
}

#endif
