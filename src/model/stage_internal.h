/* What the parts of a stage share: its size table, its memory and one block's view of it.
 *
 * Memory plan. A stage owns one block of backend memory a kind: `vectors` (norm gains and biases),
 * `kept` (what backward, tangents or feedback need, slots times the same layout) and `scratch`
 * (everything that lives during one call), and one host block of index arrays. All offsets come
 * from hop__stage_layout(), which also feeds the planner. */
#ifndef HOP_MODEL_STAGE_INTERNAL_H
#define HOP_MODEL_STAGE_INTERNAL_H

#include "model/stage.h"

/* Byte offsets inside one block's part of a slot. T = tokens of the micro-batch. */
struct hop__kept_layout {
    size_t h;         /* (T, hidden) input of the block */
    size_t rstd1;     /* (T) of the input norm */
    size_t q, k, v;   /* (T, heads * head_dim), (T, kv_heads * head_dim) twice, after rotation */
    size_t attention; /* (T, heads * head_dim) */
    size_t lse;       /* (T, heads) */
    size_t mid;       /* (T, hidden) after the attention residual */
    size_t rstd2;     /* (T) */
    size_t gate, up;  /* (T, intermediate) */
    size_t u[HOP_TARGETS]; /* (T, rank) of each adapted projection; room for its largest rank */
    size_t bytes;
};

/* Byte offsets inside the scratch memory. R = rows of the largest call. */
struct hop__scratch_layout {
    size_t stream;       /* (R, hidden) hidden states; their gradient in backward */
    size_t normed;       /* (R, wide) output of a norm, then of attention; wide = max(hidden,
                            heads*head_dim) */
    size_t dnormed;      /* (T, wide) gradient of the same */
    size_t again;        /* (T, max(hidden, intermediate)) with tangents: what projections read */
    size_t rstd;         /* (T) of the final norm */
    size_t work;         /* (R, max(2*intermediate, q+k+v, hidden)) */
    size_t cosine, sine; /* (positions, head_dim/2) */
    size_t long_cosine, long_sine; /* (T, head_dim/2): of sequences whose length matters */
    size_t perturbed; /* (parameters, groups): adapters or directions, parameter by parameter */
    size_t logits;    /* (decoded, vocabulary) of a decoding step, with the head */
    size_t cache;     /* (blocks, cache_sequences, 2, cache, kv_heads*head_dim) */
    size_t bytes;
};

/* Word offsets inside the host index array. C = probes of the largest call. */
struct hop__index_layout {
    size_t ids, position;       /* (R) */
    size_t q_offset, kv_offset; /* (C * sequences + 1) */
    size_t row;                 /* (C * labels) distinct rows that carry a label; (decoded) */
    size_t ascending;           /* (T) with a cache: 0, 1, ... */
    size_t label_row, label_id; /* (C * labels) */
    size_t words;
};

struct hop__stage_layout {
    size_t element; /* bytes of an activation */
    size_t hidden, heads_out, kv_out, intermediate, wide;
    size_t blocks, rows, positions; /* of the stage; R; of the rotation tables */
    size_t cached, decoded;         /* sequences of the cache, and of one call that decodes */
    struct hop__kept_layout kept;   /* of one block */
    size_t kept_head;  /* offset in a slot: (labels, hidden) gradient at the labelled rows */
    size_t kept_bytes; /* of a slot */
    struct hop__scratch_layout scratch;
    struct hop__index_layout index;
    size_t vectors_bytes;
};
/* Of a configuration whose model is the one the shard sees. */
void hop__stage_layout(const struct hop_stage_config *config, struct hop__stage_layout *out);
/* The configuration with that model. */
struct hop_stage_config hop__stage_local(const struct hop_stage_config *config);
/* Does it end with final norm and lm_head: as the last of the model, or as an exit? */
bool hop__stage_has_output(const struct hop_stage_config *config);
/* Does it keep the gradient of the loss for backward? */
bool hop__stage_keeps_loss(const struct hop_stage_config *config);
/* Does this stage add the bias of the projection? */
bool hop__stage_biased(const struct hop_stage_config *config, enum hop_target target);

struct hop__block {
    struct hop_weight *weights[HOP_TARGETS];
    void *columns[HOP_TARGETS]; /* a shard's columns of o and down, which lie scattered in the
                                   model; NULL elsewhere */
    const float *gains[HOP_BLOCK_NORMS], *biases[HOP_TARGETS]; /* NULL: no bias */
    /* Offsets of the factors in the flat adapter arrays; only where the target is adapted. */
    size_t a[HOP_TARGETS], b[HOP_TARGETS];
};

/* Where parameters lie among the plain factors; with cores only. */
struct hop__cores {
    size_t *place; /* (parameters) plain item, the first of two for a core */
    size_t *fixed; /* (parameters) offset in b of a core's second factor */
    float *b;
    double *sum; /* (largest rank, largest rank) */
};

struct hop_stage {
    const struct hop_ops *ops;
    struct hop_backend *backend;
    struct hop_stage_config config; /* its model is the one the shard sees */
    struct hop_model_config whole;
    int32_t first_head; /* of the whole model's query heads */
    struct hop__stage_layout layout;
    struct hop_parameters parameters;
    struct hop_parameters plain;     /* A and B of all adapters, where some train a core */
    struct hop_parameters *adapters; /* what the operations see: plain or parameters */
    struct hop__cores cores;
    struct hop__block *blocks;
    struct hop_weight *embed, *head; /* the same object when tied and both are here */
    const float *final_gain;
    char *vectors, *kept, *scratch; /* backend memory */
    int32_t *index;
    bool *slot_used;
    /* Adapters as the backend sees them: their own arrays with host memory, copies otherwise. */
    float *values, *gradients;
    float *mirror;   /* host copy of gradients or perturbed adapters on their way; NULL with host
                        memory */
    void *exchanged; /* host copy of hidden states that shards add up; NULL with host memory */
    float *rotation; /* host copy of long_cosine and long_sine on their way; NULL with host memory
                      */
};

/* One call: how the rows are cut into sequences and which adapters they meet. */
struct hop__run {
    size_t rows;
    int32_t sequences;
    /* Adapters or directions of their own for runs of rows: as many as there are probes, or, per
     * sample, samples of all probes. */
    int32_t groups;
    const int32_t *group_offset; /* (groups + 1) rows of each; NULL: equal runs */
    bool perturbed;              /* the adapters are those of the groups */
    const int32_t *ids, *position, *q_offset, *kv_offset;
    /* Decoding: positions before each sequence (NULL: none), where the cache has it (NULL: no
     * cache) and tokens of the same sequence that follow in another call. */
    const int32_t *past, *place;
    int32_t future;
    const float *cosine, *sine; /* rotation tables that position points into */
};

/* Where one block's tensors of this call are: in a slot, or in scratch where most share memory. */
struct hop__block_memory {
    void *normed, *q, *k, *v, *attention, *mid, *gate, *up, *act;
    const void *keys, *values; /* k and v with earlier positions in front */
    float *rstd1, *lse, *rstd2, *u[HOP_TARGETS];
};

/* A slot's (>= 0) or the scratch (-1) memory of block i. */
struct hop__block_memory hop__stage_memory(const struct hop_stage *stage, int32_t slot, size_t i,
                                           size_t rows);
bool hop__stage_holds(const struct hop_stage *stage, int32_t slot);
void *hop__stage_kept_input(const struct hop_stage *stage, int32_t slot, size_t i);
void *hop__stage_kept_head(const struct hop_stage *stage, int32_t slot);

/* Groups of adapters in the largest call; 0 where no call perturbs any. */
size_t hop__stage_groups(const struct hop_stage_config *config);

/* What a call needs of its groups: theta + epsilon z, or z. */
enum hop__filling { HOP__PERTURBED, HOP__DIRECTIONS };
/* Fills the adapters of all groups of the call and points the run at them. */
hop_status hop__stage_fill(struct hop_stage *stage, const struct hop_batch *batch,
                           const struct hop_probe_set *set, enum hop__filling kind,
                           struct hop__run *run, struct hop_error *err);
/* The filled directions of a projection; nothing where it has no adapter. */
void hop__stage_directions(const struct hop_stage *stage, const struct hop__run *run, size_t block,
                           enum hop_target target, struct hop_projection_tangent *out);
/* Adds the gradients the operations wrote to those of the parameters and clears them, where these
 * are two things. */
hop_status hop__stage_fetch_gradients(struct hop_stage *stage, struct hop_error *err);

/* Cores. Nothing happens on a stage without them, but the last three are only for stages with. */
hop_status hop__cores_create(struct hop_stage *stage, struct hop_error *err);
void hop__cores_free(struct hop_stage *stage);
bool hop__stage_has_cores(const struct hop_stage *stage);
/* The fixed factors, from the weights they belong to. */
hop_status hop__cores_load(struct hop_stage *stage, const struct hop_weights *weights,
                           struct hop_error *err);
/* The plain factors from the parameters. */
void hop__cores_changed(struct hop_stage *stage);
/* The gradients of the parameters from those of the plain factors. */
void hop__cores_add_gradients(struct hop_stage *stage, const float *plain_gradients);
/* One group of the plain factors of parameter p, a core of value r: A and B r, or, where only the
 * movement along r is asked for, 0 and B r. r may lie at to->a. */
struct hop__factors {
    float *a, *b;
};
void hop__cores_fill(const struct hop_stage *stage, size_t p, const float *r, bool moves_only,
                     struct hop__factors *to);

/* NULL where the projection has no adapter; else fills *out. */
const struct hop_lora *hop__stage_lora(const struct hop_stage *stage, const struct hop__run *run,
                                       size_t block, enum hop_target target, struct hop_lora *out);
bool hop__stage_trains(const struct hop_stage *stage, size_t block, enum hop_target target);
/* Is the first factor one that changes? Not beside a core. */
bool hop__stage_trains_first(const struct hop_stage *stage, size_t block, enum hop_target target);
/* Of the adapter of a projection of the stage's block-th block; 0: none. */
int32_t hop__stage_rank(const struct hop_stage *stage, size_t block, enum hop_target target);

/* The micro-batch once, or `copies` times one after the other. */
hop_status hop__stage_run(struct hop_stage *stage, const struct hop_batch *batch, int32_t copies,
                          struct hop__run *out, struct hop_error *err);

/* Sets the rotation tables of a run whose copies have `tokens` rows each, and where `position`
 * points into them. */
hop_status hop__stage_rotation(struct hop_stage *stage, size_t tokens, struct hop__run *run,
                               struct hop_error *err);

/* One norm of block i; rstd may be NULL. */
hop_status hop__stage_norm(struct hop_stage *stage, size_t i, enum hop_norm which,
                           const struct hop__run *run, const void *x, void *y, float *rstd,
                           struct hop_error *err);
/* Rotary embedding of the run's rows, in place. */
hop_status hop__stage_rotate(struct hop_stage *stage, const struct hop__run *run, int32_t heads,
                             void *x, struct hop_error *err);
/* h (rows, hidden) -> out (rows, hidden). out may equal h only in scratch memory. */
hop_status hop__block_forward(struct hop_stage *stage, size_t i, const struct hop__run *run,
                              const struct hop__block_memory *memory, const void *h, void *out,
                              struct hop_error *err);
/* Stores keys and values of the run in block i's cache, and attends to all that is there. */
hop_status hop__cached_attention(struct hop_stage *stage, size_t i, const struct hop__run *run,
                                 const struct hop__block_memory *memory, struct hop_error *err);
/* Embedding (where it is here) and all blocks. *h = the hidden states behind them, in `output`
 * unless the stage has the head or `output` is NULL. */
hop_status hop__stage_body(struct hop_stage *stage, const struct hop__run *run, int32_t slot,
                           const void *input, void *output, const void **h, struct hop_error *err);
/* The same, and the head or the exit (where it is here). */
hop_status hop__stage_forward(struct hop_stage *stage, const struct hop_batch *batch,
                              const struct hop__run *run, int32_t slot, const void *input,
                              void *output, float *logprob, struct hop_error *err);

struct hop_attention hop__attention_shape(const struct hop_stage *stage,
                                          const struct hop__run *run);

/* The labelled rows of `copies` runs of the micro-batch, listed in the index array. Returns how
 * many distinct rows one copy has. */
size_t hop__head_rows(struct hop_stage *stage, const struct hop_batch *batch, int32_t copies);
hop_status hop__head_forward(struct hop_stage *stage, const struct hop_batch *batch,
                             const struct hop__run *run, int32_t slot, const void *h,
                             float *logprob, struct hop_error *err);

/* A shard's partial sums (rows, hidden) become the sums over its gang; nothing on a whole stage. */
hop_status hop__stage_reduce(struct hop_stage *stage, const struct hop__run *run, void *partial,
                             struct hop_error *err);

/* Moves between host memory of the caller and backend memory. */
hop_status hop__stage_zero(struct hop_stage *stage, void *memory, size_t bytes,
                           struct hop_error *err);

static inline int32_t *hop__index(const struct hop_stage *stage, size_t offset)
{
    return stage->index + offset;
}

static inline void *hop__scratch(const struct hop_stage *stage, size_t offset)
{
    return stage->scratch + offset;
}

#endif
