/* The frozen tensors of a model by Hugging Face name, wherever they come from: a mapped folder or
 * memory filled by messages from the coordinator. */
#ifndef HOP_MODEL_WEIGHTS_H
#define HOP_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/string.h"
#include "io/safetensors.h"
#include "model/config.h"

enum { HOP_TENSOR_NAME = 128 };

#define HOP_EMBED_NAME      "model.embed_tokens.weight"
#define HOP_HEAD_NAME       "lm_head.weight"
#define HOP_FINAL_NORM_NAME "model.norm.weight"

/* The norms of a block: before attention and before the feed-forward part. */
enum hop_norm { HOP_INPUT_NORM, HOP_POST_ATTENTION_NORM, HOP_BLOCK_NORMS };

/* "self_attn.q_proj", ...: where a projection sits inside its block. */
extern const char *const hop_target_paths[HOP_TARGETS];
void hop_weight_name(int32_t block, enum hop_target target, char name[HOP_TENSOR_NAME]);
void hop_bias_name(int32_t block, enum hop_target target, char name[HOP_TENSOR_NAME]);
void hop_norm_name(int32_t block, enum hop_norm norm, char name[HOP_TENSOR_NAME]);
/* The table the head multiplies by: HOP_EMBED_NAME when tied. */
const char *hop_head_name(const struct hop_model_config *config);

/* A tensor the configuration asks for. */
struct hop_tensor_want {
    char name[HOP_TENSOR_NAME];
    int rank;
    int64_t shape[2];
};

/* Tensors of blocks [lo, hi) with their biases, of the embedding and of the head (final norm and
 * lm_head, or embed_tokens again when tied; named once if embed and head both need it). *out is
 * malloc'ed. */
hop_status hop_weights_list(const struct hop_model_config *config, int32_t lo, int32_t hi,
                            bool embed, bool head, struct hop_tensor_want **out, size_t *count,
                            struct hop_error *err);

struct hop_weights;

/* Maps a model folder; nothing is read before it is used. All tensors of the configuration must be
 * there with the right shape and a dtype of f32, bf16 or f16: the first that is missing or wrong is
 * HOP_INPUT with its name, expected and found. Tied models may store lm_head.weight too; files with
 * only lm_head.weight serve both. Names may lack the "model." in front, as a bare LlamaModel is
 * saved. Only tensors at an address their elements cannot be read from are copied. */
hop_status hop_weights_open(const char *directory, const struct hop_model_config *config,
                            struct hop_weights **out, struct hop_error *err);
/* Tensors of the mapped files that the configuration does not ask for, in the order of the files'
 * set: *out is malloc'ed, what it points to belongs to the weights. */
hop_status hop_weights_unused(const struct hop_weights *weights,
                              const struct hop_model_config *config, const struct hop_tensor ***out,
                              size_t *count, struct hop_error *err);
/* The same as one line for people, appended to *out: nothing when every tensor is used. */
hop_status hop_weights_unused_note(const struct hop_weights *weights,
                                   const struct hop_model_config *config, struct hop_string *out,
                                   struct hop_error *err);
/* An empty set that hop_weights_add() fills. */
hop_status hop_weights_create(struct hop_weights **out, struct hop_error *err);
/* Adds a zeroed tensor and returns its memory, to be filled by the caller. */
hop_status hop_weights_add(struct hop_weights *weights, const struct hop_tensor_want *want,
                           enum hop_dtype dtype, void **data, struct hop_error *err);
/* Seeded random values for benchmarks and tests; bf16 or f32. Matrices N(0, 1/in), biases
 * N(0, 1/out), norm gains 1. */
hop_status hop_weights_random(const struct hop_model_config *config, uint64_t seed,
                              enum hop_dtype dtype, struct hop_weights **out,
                              struct hop_error *err);
void hop_weights_free(struct hop_weights *weights);

/* NULL when absent. */
const struct hop_tensor *hop_weights_find(const struct hop_weights *weights, const char *name);
/* What to compute in when nobody says: bf16 where the weights are, else f32. */
enum hop_dtype hop_weights_native_dtype(const struct hop_weights *weights);
/* The mapped files behind hop_weights_open(), NULL otherwise. */
const struct hop_safetensors *hop_weights_files(const struct hop_weights *weights);

#endif
