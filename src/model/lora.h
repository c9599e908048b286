/* LoRA adapters of a run of blocks: configuration, flat storage, initial values. */
#ifndef HOP_MODEL_LORA_H
#define HOP_MODEL_LORA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "model/config.h"

enum { HOP_MAX_RANK = 1024 };

/* How deep a model may be whose blocks carry different adapters. */
enum { HOP_LORA_BLOCKS = 128 };

/* W x + scale * B (A x) on every adapted projection; scale = alpha / rank, or alpha / sqrt(rank).
 *
 * Most adapters are the same in every block and projection: then `blocks` is 0, and rank and alpha
 * hold everywhere. Where modules differ, ranks and alphas hold instead. They are part of the struct
 * so that a configuration stays a plain value, copied and compared without an owner. */
struct hop_lora_config {
    int32_t rank;
    double alpha;
    bool rslora;               /* scale = alpha / sqrt(rank) */
    bool targets[HOP_TARGETS]; /* which projections carry an adapter in some block */
    int32_t blocks;            /* rows of the tables; 0: the same everywhere */
    uint16_t ranks[HOP_LORA_BLOCKS][HOP_TARGETS]; /* 0: no adapter */
    double alphas[HOP_LORA_BLOCKS][HOP_TARGETS];
    /* Blocks [core_lo, core_hi) train a core (core, core) between fixed factors instead of A and B
     * (see model/core.h); core 0: none. Their rank is `core`. */
    int32_t core, core_lo, core_hi;
};

enum hop_factor { HOP_LORA_A, HOP_LORA_B, HOP_LORA_CORE };

/* One trained matrix: A (rank, in), B (out, rank) or a core (rank, rank), at values + offset of its
 * set. */
struct hop_parameter {
    int32_t block;
    enum hop_target target;
    enum hop_factor factor;
    int64_t rows, columns;
    size_t offset, count;
};

/* All trained factors of blocks [lo, hi), ordered by block, target, factor, in one flat array each.
 */
struct hop_parameters {
    struct hop_parameter *items;
    size_t count;
    float *values, *gradients; /* (total) */
    size_t total;
};

/* "q_proj" to HOP_Q_PROJ. */
bool hop_target_find(const char *name, size_t length, enum hop_target *out);

/* Number of projections that carry an adapter in some block. */
int32_t hop_lora_adapted(const struct hop_lora_config *lora);
/* Of the adapter of one projection: 0 where there is none. */
int32_t hop_lora_rank(const struct hop_lora_config *lora, int32_t block, enum hop_target target);
double hop_lora_alpha(const struct hop_lora_config *lora, int32_t block, enum hop_target target);
double hop_lora_scale(const struct hop_lora_config *lora, int32_t block, enum hop_target target);
/* Does this block train cores? */
bool hop_lora_has_core(const struct hop_lora_config *lora, int32_t block);
/* Do any of blocks [lo, hi)? */
bool hop_lora_has_cores(const struct hop_lora_config *lora, int32_t lo, int32_t hi);
/* The same ranks and scales with A and B everywhere: what an adapter with cores is to other
 * programs. HOP_UNSUPPORTED where blocks differ and there are more than HOP_LORA_BLOCKS. */
hop_status hop_lora_plain(const struct hop_lora_config *lora, int32_t blocks,
                          struct hop_lora_config *out, struct hop_error *err);
/* Largest rank a projection has in any block; with cores, the larger of theirs and the others',
 * whichever blocks have them. */
int32_t hop_lora_largest_rank(const struct hop_lora_config *lora, enum hop_target target);
/* The configuration in which every block is like the largest, without cores: the bound that blocks
 * are priced with before it is known which go where. */
struct hop_lora_config hop_lora_widened(const struct hop_lora_config *lora);
/* The first module of blocks [0, blocks) whose rank, scale or kind of factors is not the same in
 * both; false when there is none. */
bool hop_lora_difference(const struct hop_lora_config *a, const struct hop_lora_config *b,
                         int32_t blocks, int32_t *block, enum hop_target *target);

/* An object hop_lora_parse() reads back to the same configuration. NULL: out of memory. */
json_t *hop_lora_json(const struct hop_lora_config *lora);
/* HOP_INPUT when a number is out of range; `where` names the object in messages. */
hop_status hop_lora_parse(const json_t *object, const char *where, struct hop_lora_config *out,
                          struct hop_error *err);

/* The same on every device and for every split: keys of random directions and wire names use it. */
uint32_t hop_parameter_id(const struct hop_parameter *parameter);
/* "base_model.model.model.layers.{i}.self_attn.q_proj.lora_A.weight", "...lora_core.weight" into
 * name. */
void hop_parameter_name(const struct hop_parameter *parameter, char *name, size_t size);

/* Layout and zeroed storage. */
hop_status hop_parameters_create(const struct hop_model_config *config,
                                 const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                                 struct hop_parameters *out, struct hop_error *err);
/* The same with A and B of every module, also where a core is trained. */
hop_status hop_parameters_create_plain(const struct hop_model_config *config,
                                       const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                                       struct hop_parameters *out, struct hop_error *err);
void hop_parameters_free(struct hop_parameters *parameters);
/* Trained matrices of blocks [lo, hi): two for every module with an adapter, one where it is a
 * core.
 */
size_t hop_lora_factors(const struct hop_lora_config *lora, int32_t lo, int32_t hi);
/* Trained parameters of blocks [lo, hi). */
int64_t hop_lora_parameters(const struct hop_model_config *config,
                            const struct hop_lora_config *lora, int32_t lo, int32_t hi);
/* Numbers in A and B of every module there. */
int64_t hop_lora_plain_parameters(const struct hop_model_config *config,
                                  const struct hop_lora_config *lora, int32_t lo, int32_t hi);
/* A and B of one block; of the largest, were every projection as large as it is in any block, where
 * blocks differ. */
int64_t hop_lora_block_parameters(const struct hop_model_config *config,
                                  const struct hop_lora_config *lora);

/* All-zero gradients, the start of every mini-batch. */
void hop_parameters_zero_gradients(struct hop_parameters *parameters);

/* A ~ U(-1/sqrt(in), 1/sqrt(in)), B = 0, cores 0, from (seed, parameter id) only: independent of
 * the split. */
void hop_parameters_initialise(struct hop_parameters *parameters, uint64_t seed);

#endif
