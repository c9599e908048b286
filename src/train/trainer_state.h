/* Progress of a run, and its form in trainer_state.json (Hugging Face Trainer's fields). */
#ifndef HOP_TRAIN_TRAINER_STATE_H
#define HOP_TRAIN_TRAINER_STATE_H

#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

struct hop_trainer_state {
    int64_t global_step, max_steps; /* optimizer steps done, and of the whole run */
    double epoch;
    int64_t num_train_epochs, train_batch_size, logging_steps, eval_steps, save_steps;
    int64_t input_tokens;             /* seen so far */
    double best_metric;               /* NaN: none yet */
    int64_t best_step;                /* 0: none yet */
    int64_t evaluations_without_gain; /* of early stopping */
    uint64_t seed;
    json_t *log_history; /* list of objects, one reference owned by the state; NULL: empty */
};

/* Nothing done, best_metric NaN. */
struct hop_trainer_state hop_trainer_state_default(void);
void hop_trainer_state_free(struct hop_trainer_state *state);

/* NULL: out of memory. */
json_t *hop_trainer_state_json(const struct hop_trainer_state *state, int64_t optimizer_steps);
/* Also reads files of the Trainer itself, whose optimizer_steps are its global_step. */
hop_status hop_trainer_state_parse(const json_t *object, const char *where,
                                   struct hop_trainer_state *out, int64_t *optimizer_steps,
                                   struct hop_error *err);

#endif
