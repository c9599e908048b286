/* LoRA adapters of a run of blocks: configuration, flat storage, initial values. */
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

#endif
