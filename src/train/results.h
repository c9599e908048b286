/* The result files the Trainer leaves in its output folder. */
#ifndef HOP_TRAIN_RESULTS_H
#define HOP_TRAIN_RESULTS_H

#include "base/error.h"
#include "train/trainer_state.h"

/* Writes train_results.json (the final entry of the history), eval_results.json (its last
 * evaluation, where there was one), both without the step, and all_results.json, which joins the
 * two; sorted keys. After hop_trainer_state_finish(). */
hop_status hop_results_save(const char *directory, const struct hop_trainer_state *state,
                            struct hop_error *err);

#endif
