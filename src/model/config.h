/* LLaMA configuration as in Hugging Face's config.json. */
#ifndef HOP_MODEL_CONFIG_H
#define HOP_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/error.h"

enum { HOP_MAX_EOS = 8 };

enum hop_rope_scaling { HOP_ROPE_PLAIN, HOP_ROPE_LINEAR, HOP_ROPE_LLAMA3 };

struct hop_model_config {
    int32_t hidden, intermediate, blocks, heads, kv_heads, head_dim, vocabulary, max_positions;
    float norm_eps;
    double rope_theta;
    enum hop_rope_scaling rope_scaling;
    double rope_factor, rope_low, rope_high; /* factor, low_freq_factor, high_freq_factor */
    int32_t rope_original;                   /* original_max_position_embeddings */
    bool tied;                               /* lm_head is embed_tokens */
    int32_t bos;                             /* -1: none */
    int32_t eos[HOP_MAX_EOS], eos_count;
};

/* Reads directory/config.json (and generation_config.json's eos where config.json has none).
 * Missing fields get LlamaConfig's defaults. What this program cannot compute (biases, other
 * activations, other RoPE scalings, other architectures) is HOP_UNSUPPORTED naming the field; sizes
 * are range-checked. */
hop_status hop_model_config_load(const char *directory, struct hop_model_config *out,
                                 struct hop_error *err);
/* The same from a parsed object; `where` names it in messages. Used by ranks that get it by
 * message. */
hop_status hop_model_config_parse(const json_t *object, const char *where,
                                  struct hop_model_config *out, struct hop_error *err);
/* An object hop_model_config_parse() reads back to the same configuration. NULL: out of memory. */
json_t *hop_model_config_json(const struct hop_model_config *config);

/* Angle per position of frequency j < head_dim/2, after the configured scaling. */
double hop_model_rope_frequency(const struct hop_model_config *config, int32_t j);
/* RoPE tables: cosine and sine of position p and frequency j at [p * head_dim/2 + j]. */
void hop_model_rope(const struct hop_model_config *config, int32_t positions, float *cosine,
                    float *sine);

/* The projections LoRA can adapt, in the order parameters are laid out. */
enum hop_target {
    HOP_Q_PROJ,
    HOP_K_PROJ,
    HOP_V_PROJ,
    HOP_O_PROJ,
    HOP_GATE_PROJ,
    HOP_UP_PROJ,
    HOP_DOWN_PROJ,
    HOP_TARGETS
};
extern const char *const hop_target_names[HOP_TARGETS + 1]; /* "q_proj", ..., NULL */

/* Features in and out of a projection. */
int64_t hop_target_in(const struct hop_model_config *config, enum hop_target target);
int64_t hop_target_out(const struct hop_model_config *config, enum hop_target target);

/* Parameters of one block, of the embedding (= of the head), of the whole model. */
int64_t hop_model_block_parameters(const struct hop_model_config *config);
int64_t hop_model_embed_parameters(const struct hop_model_config *config);
int64_t hop_model_parameters(const struct hop_model_config *config);

#endif
