/* LoRA adapters of a run of blocks: configuration, flat storage, initial values, PEFT files. */
#ifndef HOP_MODEL_LORA_H
#define HOP_MODEL_LORA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/config.h"

struct hop_lora_config {
    int32_t rank;
    double alpha;              /* scaling = alpha / rank */
    bool targets[HOP_TARGETS]; /* which projections carry an adapter */
};

enum hop_factor { HOP_LORA_A, HOP_LORA_B };

/* One factor matrix: A (rank, in) or B (out, rank), at values + offset of its set. */
struct hop_parameter {
    int32_t block;
    enum hop_target target;
    enum hop_factor factor;
    int64_t rows, columns;
    size_t offset, count;
};

/* All factors of blocks [lo, hi), ordered by block, target, factor, in one flat array each. */
struct hop_parameters {
    struct hop_parameter *items;
    size_t count;
    float *values, *gradients; /* (total) */
    size_t total;
};

/* Number of projections of a block that carry an adapter. */
int32_t hop_lora_adapted(const struct hop_lora_config *lora);

/* The same on every device and for every split: keys of random directions and wire names use it. */
uint32_t hop_parameter_id(const struct hop_parameter *parameter);
/* "base_model.model.model.layers.{i}.self_attn.q_proj.lora_A.weight" into name. */
void hop_parameter_name(const struct hop_parameter *parameter, char *name, size_t size);

/* Layout and zeroed storage. */
hop_status hop_parameters_create(const struct hop_model_config *config,
                                 const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                                 struct hop_parameters *out, struct hop_error *err);
void hop_parameters_free(struct hop_parameters *parameters);
/* Trainable parameters of one block. */
int64_t hop_lora_block_parameters(const struct hop_model_config *config,
                                  const struct hop_lora_config *lora);

/* All-zero gradients, the start of every mini-batch. */
void hop_parameters_zero_gradients(struct hop_parameters *parameters);

/* A ~ U(-1/sqrt(in), 1/sqrt(in)), B = 0, from (seed, parameter id) only: independent of the split.
 */
void hop_parameters_initialise(struct hop_parameters *parameters, uint64_t seed);

/* PEFT folder: adapter_model.safetensors and adapter_config.json (formats.md section 4). The folder
 * is created. `base` is written as base_model_name_or_path. */
hop_status hop_adapter_save(const char *directory, const struct hop_lora_config *lora,
                            const struct hop_parameters *parameters, const char *base,
                            struct hop_error *err);
/* rank, alpha, targets of a PEFT folder; HOP_UNSUPPORTED for what cannot be computed here (DoRA,
 * rslora, patterns, bias, modules_to_save), naming the key. */
hop_status hop_adapter_config(const char *directory, struct hop_lora_config *out,
                              struct hop_error *err);
/* Fills values of every parameter (a block range is fine). A missing key, a wrong shape or a key
 * that matches no block and projection of the model is HOP_INPUT with its name. */
hop_status hop_adapter_load(const char *directory, const struct hop_model_config *config,
                            struct hop_parameters *parameters, struct hop_error *err);

#endif
