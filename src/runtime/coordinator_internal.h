/* The coordinator's inside, shared by its files. */
#ifndef HOP_RUNTIME_COORDINATOR_INTERNAL_H
#define HOP_RUNTIME_COORDINATOR_INTERNAL_H

#include <stdio.h>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/multirc_metrics.h"
#include "data/squad_metrics.h"
#include "model/lora.h"
#include "runtime/command.h"
#include "runtime/coordinator.h"
#include "runtime/job.h"
#include "runtime/ranks.h"
#include "runtime/rows.h"
#include "runtime/session.h"
#include "strategy/strategy.h"
#include "train/checkpoint.h"

/* The schedules of a run, by use; -1: not needed. */
struct hop_schedule_set {
    struct hop_schedule items[7];
    int32_t count;
    int32_t full, full_first; /* a whole mini-batch; the first step has the rounding probe too */
    int32_t last, last_first; /* the last, smaller mini-batch of an epoch */
    int32_t evaluate_many, evaluate_one; /* many: batch_count micro-batches at once */
    int32_t decode;                      /* free answers */
};

/* Values and moments of every adapter of the model, block after block. */
struct hop_full_state {
    struct hop_parameters parameters;
    struct hop_adamw adamw;
    struct hop_parameters fixed; /* factors of cores, from the first checkpoint on */
};

/* One evaluation of the held-out rows. */
struct hop_evaluation {
    double loss, seconds;
    size_t examples;
    bool labelled; /* accuracy and macro_f1 are there */
    double accuracy, macro_f1;
    struct hop_multirc_scores multirc; /* of task multirc; else without questions */
    struct hop_squad_scores squad;     /* of free answers; else without questions */
};

/* Free answers of the held-out rows while they are decoded. */
struct hop_answers {
    int32_t limit;          /* tokens of an answer at most; 0: none are decoded */
    int32_t *ids;           /* (eval rows, limit) */
    int32_t *count;         /* (eval rows): tokens so far */
    int64_t *seats;         /* (sequences at once): the row that is answered there, -1: none */
    size_t next;            /* row that takes the next free seat */
    int32_t *picked;        /* (micro-batches, limits.sequences): tokens from the heads */
    int32_t *received;      /* the same, from one device */
    unsigned char *effects; /* (vocabulary): whether a token ends an answer */
};

/* Why a run ended before its last step. */
enum hop_stop { HOP_STOP_NOT, HOP_STOP_ASKED, HOP_STOP_EARLY };

struct hop_coordinator {
    struct hop_transport *transport;
    const char *directory;
    enum hop_run_mode mode;
    struct hop_job job;
    struct hop_model_config model;
    struct hop_lora_config lora;
    enum hop_dtype dtype;
    struct hop_row_source source;
    struct hop_dataset *train, *eval;
    struct hop_loader loader;
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_ranks ranks;
    struct hop_schedule_set schedules;
    struct hop_session session;
    double *clock_offset;      /* (ranks): rank's clock minus ours */
    struct hop_lateness *late; /* (devices) of emulated ones, after the first step */
    double *held;              /* (devices) bytes that its parts take */
    struct hop_full_state state;
    /* Step loop buffers. */
    int32_t *words;
    double **reports;          /* (ranks) */
    struct hop_request *sends; /* (ranks) */
    float *transfer;           /* state or scores in transit */
    float *scores;             /* (micro-batches, limits.labels) put together from several heads */
    double *losses;            /* (micro-batches) of a step */
    double *squares;           /* (parameters of the model) */
    int32_t *predicted;        /* (eval rows) */
    int32_t *answers;          /* (eval rows) */
    struct hop_answers free_answers;
    /* Progress. */
    int64_t steps, step;
    double started; /* when training began */
    double seconds; /* spent in steps */
    enum hop_stop stop;
    FILE *metrics;
    struct hop_evaluation before, after;
    struct hop_trainer_state progress;
    double final_loss, busy, samples;
    int64_t resumed; /* step the run continued from, 0: from the start */
};

/* prepare.c: job, model, data, plan, schedules, setup object. */
hop_status hop_coordinator_prepare(struct hop_coordinator *c, struct hop_error *err);
hop_status hop_coordinator_setup(struct hop_coordinator *c, json_t **out, struct hop_error *err);

/* distribute.c: handshake with every rank, weights, own executor, buffers. */
hop_status hop_coordinator_distribute(struct hop_coordinator *c, struct hop_error *err);
/* Sends a command and session.batches[0..batches) to every rank but this. */
hop_status hop_coordinator_command(struct hop_coordinator *c,
                                   const struct hop_command_message *message,
                                   struct hop_error *err);

/* state.c: adapters and moments to and from the devices. */
/* Floats of all parts of a device. */
size_t hop_coordinator_state_floats(const struct hop_coordinator *c, int32_t device);
hop_status hop_coordinator_scatter(struct hop_coordinator *c, struct hop_error *err);
/* Copies of a block that differ are HOP_INTERNAL. */
hop_status hop_coordinator_gather(struct hop_coordinator *c, struct hop_error *err);
/* First adapters: from scratch, lora.init or the last checkpoint. */
hop_status hop_coordinator_initialise(struct hop_coordinator *c, struct hop_error *err);
hop_status hop_coordinator_checkpoint(struct hop_coordinator *c, struct hop_error *err);
hop_status hop_coordinator_save_adapter(struct hop_coordinator *c, struct hop_error *err);

/* coordinator_limits.c: no micro-batch, and no share of one that this part handles, is larger. */
struct hop_batch_limits hop_coordinator_limits(const struct hop_coordinator *c);
hop_status hop_coordinator_part_limits(const struct hop_coordinator *c, int32_t part,
                                       struct hop_batch_limits *out, struct hop_error *err);

/* coordinator_window.c: message buffers a payload kind and direction. A rank takes more where fewer
 * would deadlock. */
hop_status hop_coordinator_window(const struct hop_coordinator *c,
                                  const struct hop_batch_limits *limits, int32_t *out,
                                  struct hop_error *err);

/* coordinator_emulation.c */
/* Seconds of the run for a second of the cost table; 0: no device is emulated. */
double hop_coordinator_time_scale(const struct hop_coordinator *c);
/* Counts tasks of a pass that ended late. The first step is left out: it warms up. */
void hop_coordinator_take_lateness(struct hop_coordinator *c, int32_t device, int64_t step,
                                   const struct hop_lateness *late);
/* One line for people that names the devices which could not keep their emulated times. */
hop_status hop_coordinator_warn_of_lateness(const struct hop_coordinator *c, struct hop_error *err);
/* {"time_scale", "late_tasks", "late_seconds"} */
json_t *hop_coordinator_emulation_json(const struct hop_coordinator *c);

/* scores.c: *scores = the label log-probabilities of an evaluation of session.batches[0..batches),
 * (batches, limits.labels), from every device with a head; `own` are this rank's, NULL without a
 * device. Valid until the next command. */
hop_status hop_coordinator_gather_scores(struct hop_coordinator *c, int32_t batches,
                                         const float *own, const float **scores,
                                         struct hop_error *err);

/* The same of a pass that decodes: into free_answers.picked. */
hop_status hop_coordinator_gather_picks(struct hop_coordinator *c, int32_t batches,
                                        const int32_t *own, struct hop_error *err);

/* train_step.c: one mini-batch. */
/* This rank's own share of a pass, where it plays a device. */
hop_status hop_coordinator_own_pass(struct hop_coordinator *c,
                                    const struct hop_command_message *message,
                                    struct hop_pass *pass, struct hop_error *err);
hop_status hop_coordinator_step(struct hop_coordinator *c, struct hop_error *err);

/* What the ranks reported of one step. */
struct hop_reduced_step {
    double loss, busy;
    double grad_norm, zo_grad_norm;
    bool exact, estimated;         /* is there a part of either kind? */
    int32_t losses;                /* micro-batches */
    struct hop_pass probes, exits; /* of the devices that computed derivatives, if there are any */
};

/* derivatives.c: what is known of the directional derivatives of a step, into its line of
 * metrics.jsonl; a warning where the first step shows that they are mostly rounding. */
hop_status hop_coordinator_add_derivatives(const struct hop_coordinator *c, json_t *line,
                                           const struct hop_reduced_step *reduced,
                                           struct hop_error *err);

/* evaluate.c: the held-out rows. */
hop_status hop_coordinator_evaluate(struct hop_coordinator *c, struct hop_evaluation *out,
                                    struct hop_error *err);

/* Waits until every rank has taken the last command. */
hop_status hop_coordinator_await_sends(struct hop_coordinator *c, struct hop_error *err);

/* answers.c: the held-out rows of a task with free answers. */
hop_status hop_answers_create(struct hop_coordinator *c, struct hop_error *err);
void hop_answers_free(struct hop_answers *answers);
/* Decodes, scores, and saves HOP_PREDICTIONS_FILE in the run folder. */
hop_status hop_answers_score(struct hop_coordinator *c, struct hop_squad_scores *out,
                             struct hop_error *err);

/* best.c */
/* What an evaluation is judged by: f1 of squad, f1a of multirc, accuracy of other label tasks, else
 * the loss. */
struct hop_metric {
    const char *name;
    double value;
    bool larger_is_better;
};
struct hop_metric hop_evaluation_metric(const struct hop_evaluation *evaluation);
/* Takes c->after, of step c->step, into account. True: it is better than all before. */
bool hop_coordinator_note_evaluation(struct hop_coordinator *c);
/* Has the run gone through train.early_stopping evaluations without a better one? */
bool hop_coordinator_is_exhausted(const struct hop_coordinator *c);
/* Where the job keeps the best: its adapter into c->state and its evaluation into c->after. */
hop_status hop_coordinator_take_best(struct hop_coordinator *c, struct hop_error *err);
/* {"step", "metric", "value"} */
json_t *hop_coordinator_best_json(const struct hop_coordinator *c);

/* history.c: evaluations in the history of the run, the first one and the last of a step up to
 * `until`. False: there is none. */
bool hop_history_first_evaluation(const struct hop_trainer_state *state,
                                  struct hop_evaluation *out);
bool hop_history_last_evaluation(const struct hop_trainer_state *state, int64_t until,
                                 int64_t *step, struct hop_evaluation *out);

/* record.c: metrics.jsonl, summary.json, trace.json. */
hop_status hop_coordinator_open_metrics(struct hop_coordinator *c, struct hop_error *err);
hop_status hop_coordinator_record(struct hop_coordinator *c, json_t *line, struct hop_error *err);
json_t *hop_evaluation_json(const struct hop_evaluation *evaluation, const char *prefix);
hop_status hop_coordinator_finish(struct hop_coordinator *c, struct hop_error *err);

/* *out = malloc'ed path of a file in the run folder. */
hop_status hop_coordinator_path(const struct hop_coordinator *c, const char *name, char **out,
                                struct hop_error *err);

#endif
