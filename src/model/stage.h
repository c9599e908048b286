/* One stage: a run of blocks on one device, with the embedding in front of the first and the head
 * (final norm, lm_head, loss) behind the last. Runs forward, backward and perturbed forward of one
 * micro-batch.
 *
 * Hidden states between stages are (tokens, hidden) in the stage's dtype, host memory. All buffers
 * are allocated at creation; nothing is allocated afterwards. A stage is used by one thread.
 *
 * A stage may be one of several shards (model/shard.h): then it holds its heads and columns only,
 * and every call is made on all shards of the gang, on the same rows and in the same order. Hidden
 * states, their gradients and log-probabilities are whole and the same on all of them. */
#ifndef HOP_MODEL_STAGE_H
#define HOP_MODEL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/batch.h"
#include "model/direction.h"
#include "model/lora.h"
#include "model/shard.h"
#include "model/weights.h"
#include "ops/ops.h"

/* How the adapters of a part get their gradient. */
enum hop_gradient { HOP_GRADIENT_NONE, HOP_GRADIENT_BACKPROP, HOP_GRADIENT_ZEROTH_ORDER };
extern const char *const hop_gradient_names[]; /* "none", "backprop", "zeroth-order", NULL */

/* How the shards of a gang add up hidden states: `values` (host memory, count elements of dtype)
 * become their sums over all shards, the same bytes on each. A block calls it twice in forward and
 * at most twice in backward. */
struct hop_exchange {
    hop_status (*reduce)(void *context, void *values, size_t count, enum hop_dtype dtype,
                         struct hop_error *err);
    void *context;
};

struct hop_stage_config {
    struct hop_model_config model; /* the whole one */
    struct hop_lora_config lora;
    enum hop_dtype dtype; /* of computation and hidden states: f32 or bf16 */
    int32_t lo, hi;       /* blocks [lo, hi) */
    bool embed, head;
    bool exit; /* an output layer (final norm, lm_head) behind blocks that are not the last ones */
    enum hop_gradient gradient;
    struct hop_batch_limits limits; /* largest micro-batch */
    int32_t slots;   /* micro-batches kept at once, for backward, tangents or feedback; 0: none */
    int32_t probes;  /* largest number of probes (passes) or tangents in one call; 0: none */
    bool per_sample; /* probes perturb every sample of the micro-batch on its own */
    bool tangents;   /* calls of hop_stage_tangent() come */
    int32_t cache;   /* positions of the key/value cache for decoding; 0: none */
    int32_t cache_sequences;      /* that the cache holds at once; 0: one */
    struct hop_shard shard;       /* all zero: whole tensors */
    struct hop_exchange exchange; /* of a shard */
};

/* What a stage of this configuration allocates; the planner prices it with the same function.
 * Backends without host memory hold `parameters` a second time. */
struct hop_stage_bytes {
    size_t weights;    /* frozen tensors in their dtype of computation */
    size_t parameters; /* adapter values and gradients */
    size_t kept;       /* of one slot */
    size_t scratch;    /* everything else */
};
struct hop_stage_bytes hop_stage_bytes(const struct hop_stage_config *config);

struct hop_stage;

/* ops, backend and weights are borrowed and must outlive the stage. A backward-less ops with
 * HOP_GRADIENT_BACKPROP is HOP_UNSUPPORTED, and so is a shard with probes or cores. Adapter values
 * start at zero. The fixed factors of cores are computed here. */
hop_status hop_stage_create(const struct hop_ops *ops, struct hop_backend *backend,
                            const struct hop_weights *weights,
                            const struct hop_stage_config *config, struct hop_stage **out,
                            struct hop_error *err);
void hop_stage_free(struct hop_stage *stage);

/* Adapter values and gradients (host, f32); a shard's are its slices. After changing values call
 * hop_stage_adapters_changed(). */
struct hop_parameters *hop_stage_parameters(struct hop_stage *stage);
hop_status hop_stage_adapters_changed(struct hop_stage *stage, struct hop_error *err);

/* Forward of one micro-batch. input: (tokens, hidden), NULL where the stage embeds. output:
 * (tokens, hidden), NULL where the stage has the head; then logprob (labels) gets the label
 * log-probabilities; so it does on a stage with an exit, by its output layer, unless it is
 * NULL. slot >= 0 keeps what backward needs there (the head also computes the loss
 * gradient at once, for the loss -sum(logprob)/label_total); slot -1 keeps nothing. */
hop_status hop_stage_forward(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                             const void *input, void *output, float *logprob,
                             struct hop_error *err);

/* Backward of the micro-batch kept in slot; adds to the adapter gradients and frees the slot.
 * doutput: gradient of output, NULL with the head. dinput: gradient of input, NULL where nobody
 * wants it (saves the first block's input gradients; a shard computes them all the same, for the
 * other shards need its sums). */
hop_status hop_stage_backward(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                              const void *doutput, void *dinput, struct hop_error *err);

/* One probe: adapters theta + epsilon * z, z from (seed, step, micro-batch, direction, parameter)
 * and, per sample, its place in the micro-batch. */
struct hop_probe {
    uint16_t direction; /* probe index in the key of the direction */
    float epsilon;      /* of any sign; not read for tangents */
};
struct hop_probe_set {
    uint64_t seed;
    uint32_t step;
    int32_t count;
    const struct hop_probe *probes; /* (count) */
    enum hop_distribution distribution;
};

/* Forward of `count` probes of one micro-batch as one batch: input and output are (count * tokens,
 * hidden), probe after probe; logprob (count * labels). On a zeroth-order stage each probe (with
 * per_sample: each probe of each sample) runs with its own perturbed adapters; on any other the
 * adapters are the plain ones. With an exit either output or logprob may be NULL. */
hop_status hop_stage_probe(struct hop_stage *stage, const struct hop_batch *batch,
                           const struct hop_probe_set *set, const void *input, void *output,
                           float *logprob, struct hop_error *err);

/* Tangents: output[q] = J_input input[q] + J_theta z_q, the derivative of the stage's output along
 * direction q, by forward-mode differentiation around the micro-batch kept in `slot`: forward
 * operations only, no epsilon. input, output: (count * tokens, hidden), probe after probe; input
 * NULL: zero, as in front of the first stage. The slot stays as it is. For zeroth-order stages
 * without a head. */
hop_status hop_stage_tangent(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                             const struct hop_probe_set *set, const void *input, void *output,
                             struct hop_error *err);
/* Feedback: delta (tokens, hidden), the gradient of the stage's output or what stands for it, is
 * taken as the gradient of the output of every block from block lo of the model on. Adds to the
 * gradients of their adapters of o_proj and down_proj, whose products are added to the residual
 * stream; all others stay 0. Forward operations only; the slot stays as it is. For zeroth-order
 * stages without a head. */
hop_status hop_stage_feedback(struct hop_stage *stage, const struct hop_batch *batch, int32_t slot,
                              int32_t lo, const void *delta, struct hop_error *err);
/* Frees a slot that no backward will. */
void hop_stage_release(struct hop_stage *stage, int32_t slot);

/* The next tokens of sequences whose earlier ones are in the key/value cache: of sequence s the
 * tokens offset[s] .. offset[s+1), at positions past[s], past[s] + 1, ... What the cache holds from
 * past[s] on is overwritten. */
struct hop_continuation {
    int32_t sequences, tokens;
    const int32_t *ids;    /* (tokens); NULL where the stage does not embed */
    const int32_t *offset; /* (sequences + 1) */
    const int32_t *past;   /* (sequences) */
    const int32_t *place;  /* (sequences): which of the cache's sequences it is, each another */
};

/* Decoding with the key/value cache of the stage's blocks. input, output: (tokens, hidden), NULL
 * where the stage embeds or has the head; then logits (sequences, vocabulary) are those after the
 * last token of each. HOP_INPUT where a sequence becomes longer than the cache. */
hop_status hop_stage_continue(struct hop_stage *stage, const struct hop_continuation *call,
                              const void *input, void *output, float *logits,
                              struct hop_error *err);

/* The same for one sequence of any number of tokens: runs ids[0..n) at positions past.. and returns
 * the logits (vocabulary) after the last of them. The stage must embed, have the head and a cache.
 */
hop_status hop_stage_decode(struct hop_stage *stage, const int32_t *ids, int32_t n, int32_t past,
                            float *logits, struct hop_error *err);

/* The token of the largest of n >= 1 logits, the first of equal ones. */
int32_t hop_likeliest(const float *logits, int32_t n);

#endif
