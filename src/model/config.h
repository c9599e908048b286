/* LLaMA configuration as in Hugging Face's config.json. */
#ifndef HOP_MODEL_CONFIG_H
#define HOP_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/error.h"

enum { HOP_MAX_EOS = 8 };

/* How the frequencies of rotary embedding are scaled for contexts longer than the model was first
 * trained on. */
enum hop_rope_scaling {
    HOP_ROPE_PLAIN,
    HOP_ROPE_LINEAR,
    HOP_ROPE_DYNAMIC,
    HOP_ROPE_YARN,
    HOP_ROPE_LLAMA3
};
extern const char *const hop_rope_names[]; /* "default", "linear", ..., NULL */

struct hop_model_config {
    int32_t hidden, intermediate, blocks, heads, kv_heads, head_dim, vocabulary, max_positions;
    float norm_eps;
    double rope_theta;
    enum hop_rope_scaling rope_scaling;
    double rope_factor;
    double rope_low, rope_high; /* llama3: low_freq_factor, high_freq_factor; yarn: beta_slow,
                                   beta_fast */
    double rope_attention;      /* yarn: attention_factor, on cosine and sine */
    bool rope_truncate;         /* yarn: the ramp starts and ends at whole indices */
    int32_t rope_original;      /* original_max_position_embeddings; dynamic: max_positions */
    bool attention_bias;        /* of q, k, v and o */
    bool mlp_bias;              /* of gate, up and down */
    bool tied;                  /* lm_head is embed_tokens */
    int32_t bos;                /* -1: none */
    int32_t eos[HOP_MAX_EOS], eos_count;
};

/* Reads directory/config.json, and the further eos of generation_config.json behind config.json's
 * (instead of the default where it has none). Missing fields get LlamaConfig's defaults. What this
 * program cannot compute (other activations, other RoPE scalings, other architectures, quantized
 * weights) is HOP_UNSUPPORTED naming the field; sizes are range-checked. */
hop_status hop_model_config_load(const char *directory, struct hop_model_config *out,
                                 struct hop_error *err);
/* The same from a parsed object; `where` names it in messages. Used by ranks that get it by
 * message. */
hop_status hop_model_config_parse(const json_t *object, const char *where,
                                  struct hop_model_config *out, struct hop_error *err);
/* An object hop_model_config_parse() reads back to the same configuration. NULL: out of memory. */
json_t *hop_model_config_json(const struct hop_model_config *config);

/* Dynamic NTK scaling knows the length of the sequence: beyond the original context, the base grows
 * with it. Everything else is the same for every length. */
bool hop_model_rope_stretches(const struct hop_model_config *config, int32_t length);
/* Angle per position of frequency j < head_dim/2 in a sequence of `length` tokens (0: short). */
double hop_model_rope_frequency(const struct hop_model_config *config, int32_t length, int32_t j);
/* RoPE tables: cosine and sine of position first + i and frequency j at [i * head_dim/2 + j], times
 * the attention factor, for n positions of a sequence of `length` tokens. */
void hop_model_rope(const struct hop_model_config *config, int32_t length, int32_t first, int32_t n,
                    float *cosine, float *sine);

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

/* Whether the projection has a bias. */
bool hop_target_biased(const struct hop_model_config *config, enum hop_target target);

/* Parameters of one block, of the embedding (= of the head), of the whole model. */
int64_t hop_model_block_parameters(const struct hop_model_config *config);
int64_t hop_model_embed_parameters(const struct hop_model_config *config);
int64_t hop_model_parameters(const struct hop_model_config *config);

#endif
