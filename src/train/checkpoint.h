/* Checkpoint folders in the layout Hugging Face users know.
 *
 *     RUN/checkpoint-N/adapter_model.safetensors, adapter_config.json   loadable by PEFT
 *                      cores.safetensors        where blocks train cores (model/core.h): these; the
 *                                               adapter's file then has what they expand to
 *                      optimizer.safetensors    NAME.exp_avg and NAME.exp_avg_sq for each adapter
 *                                               tensor NAME
 *                      trainer_state.json       the Trainer's fields, and ours under "hybridop"
 *
 * A checkpoint is written to RUN/checkpoint-N.tmp and renamed when complete, so a folder without
 * the ending is always whole. Nothing is ever deleted: a checkpoint of the same number that was
 * there before is renamed to checkpoint-N.replaced-K. */
#ifndef HOP_TRAIN_CHECKPOINT_H
#define HOP_TRAIN_CHECKPOINT_H

#include "base/error.h"
#include "model/adapter.h"
#include "model/lora.h"
#include "train/adamw.h"
#include "train/trainer_state.h"

/* Adapters as other programs read them. */
struct hop_plain_adapter {
    struct hop_lora_config lora;
    struct hop_parameters parameters;
};

/* Writes checkpoint-N, N = state->global_step. parameters and adamw cover the whole model, and so
 * does `plain`, what `parameters` expand to: the same where no block trains cores. */
hop_status hop_checkpoint_save(const char *run, const struct hop_trainer_state *state,
                               const struct hop_plain_adapter *plain,
                               const struct hop_parameters *parameters,
                               const struct hop_adamw *adamw, const char *base,
                               struct hop_error *err);

/* N of the folder name "checkpoint-N" of a complete checkpoint, -1 for any other name. */
int64_t hop_checkpoint_number(const char *name);

/* *out = malloc'ed path of the complete checkpoint with the largest number, NULL when there is
 * none. */
hop_status hop_checkpoint_latest(const char *run, char **out, struct hop_error *err);

/* Fills the values alone. */
hop_status hop_checkpoint_load_adapter(const char *path, const struct hop_model_config *config,
                                       const struct hop_lora_config *lora,
                                       struct hop_parameters *parameters, struct hop_error *err);

/* Fills values, optimizer state and trainer state. HOP_INPUT when the adapter has another rank,
 * alpha, targets, cores or shape than the job; values and optimizer state may then be partly
 * filled. */
hop_status hop_checkpoint_load(const char *path, const struct hop_model_config *config,
                               const struct hop_lora_config *lora,
                               struct hop_parameters *parameters, struct hop_adamw *adamw,
                               struct hop_trainer_state *state, struct hop_error *err);

#endif
