/* Progress of a run, and its form in trainer_state.json (Hugging Face Trainer's fields). */
#ifndef HOP_TRAIN_TRAINER_STATE_H
#define HOP_TRAIN_TRAINER_STATE_H

#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

struct hop_trainer_state {
    int64_t global_step, max_steps; /* optimizer steps done, and of the whole run */
    double epoch;
    int64_t num_train_epochs; /* begun when max_steps are done */
    int64_t train_batch_size; /* rows of a forward pass, as the Trainer means it */
    int64_t logging_steps, eval_steps, save_steps;
    int64_t input_tokens;             /* seen so far */
    int64_t parameters;               /* of the model without its embedding, for total_flos */
    double last_loss, loss_sum;       /* of the last step (NaN: none yet), of all steps */
    double best_metric;               /* NaN: none yet */
    int64_t best_step;                /* 0: none yet */
    int64_t evaluations_without_gain; /* of early stopping */
    uint64_t seed;
    json_t *log_history; /* list of objects, one reference owned by the state; NULL: empty */
};

/* Nothing done, best_metric NaN. */
struct hop_trainer_state hop_trainer_state_default(void);
void hop_trainer_state_free(struct hop_trainer_state *state);

/* Keeps what the Trainer's log_history holds of a line of metrics.jsonl: step, epoch, loss (rounded
 * to 4 decimals, as there), learning_rate, grad_norm, zo_grad_norm and all eval_ metrics, with
 * eval_seconds as eval_runtime. Sorted keys. Takes no reference. */
hop_status hop_trainer_state_log(struct hop_trainer_state *state, const json_t *line,
                                 struct hop_error *err);

/* What training took, for the last entry of the history and the result files. */
struct hop_train_totals {
    double seconds;
    double samples; /* rows trained on */
    int64_t steps;  /* in these seconds; after a resume fewer than global_step */
};
/* The Trainer's final entry: {epoch, step, total_flos, train_loss, train_runtime,
 * train_samples_per_second, train_steps_per_second}; train_loss is the mean over all steps. */
hop_status hop_trainer_state_finish(struct hop_trainer_state *state,
                                    const struct hop_train_totals *totals, struct hop_error *err);

/* Floating-point operations so far, as the Trainer counts: 6 per token and parameter. */
double hop_trainer_state_flos(const struct hop_trainer_state *state);

/* Sorted keys, ours in one object "hybridop". best_checkpoint (may be NULL) is the path written for
 * the checkpoint of the best evaluation. NULL: out of memory. */
json_t *hop_trainer_state_json(const struct hop_trainer_state *state, int64_t optimizer_steps,
                               const char *best_checkpoint);
/* The same as directory/trainer_state.json; the best checkpoint is the one in `run`, where it is
 * there or is the one being written. */
hop_status hop_trainer_state_save(const char *directory, const char *run,
                                  const struct hop_trainer_state *state, int64_t optimizer_steps,
                                  struct hop_error *err);
/* Also reads files of the Trainer itself, whose optimizer_steps are its global_step. */
hop_status hop_trainer_state_parse(const json_t *object, const char *where,
                                   struct hop_trainer_state *out, int64_t *optimizer_steps,
                                   struct hop_error *err);

#endif
