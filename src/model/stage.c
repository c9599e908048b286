/* Creation and release of a stage, and its memory. */
#include "model/stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/stage_internal.h"

const char *const hop_gradient_names[] = {"none", "backprop", "zeroth-order", NULL};

/* A directional derivative is that of whole adapters; a shard perturbs only its slices, and those
 * of shared factors once more on every shard. */
static hop_status check_shard(const struct hop_stage_config *config, struct hop_error *err)
{
    if (hop_shard_is_whole(&config->shard))
        return HOP_OK;
    if (hop_lora_has_cores(&config->lora, config->lo, config->hi))
        return hop_fail(err, HOP_UNSUPPORTED,
                        "blocks %d to %d: tensor shards train no cores, whose factors are those of "
                        "whole projections; give the stage whole tensors or plain LoRA",
                        config->lo, config->hi);
    if (config->probes > 0 || config->gradient == HOP_GRADIENT_ZEROTH_ORDER)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "blocks %d to %d: tensor shards run no zeroth-order probes; give the stage "
                        "whole tensors or backpropagation everywhere",
                        config->lo, config->hi);
    if (!config->exchange.reduce)
        return hop_fail(err, HOP_INTERNAL, "a tensor shard without an exchange was asked for");
    return hop_shard_check(&config->model, &config->shard, err);
}

static hop_status check_config(const struct hop_ops *ops, const struct hop_stage_config *config,
                               struct hop_error *err)
{
    const bool zeroth_order = config->gradient == HOP_GRADIENT_ZEROTH_ORDER;
    const bool backward =
        config->gradient == HOP_GRADIENT_BACKPROP || (config->slots > 0 && !zeroth_order);
    if (backward && !hop_ops_bp_capable(ops))
        return hop_fail(
            err, HOP_UNSUPPORTED,
            "blocks %d to %d: backend %s has no backward operations, so this device can "
            "only train with zeroth-order gradients",
            config->lo, config->hi, ops->name);
    const bool empty = config->lo == config->hi && !config->embed && !config->head;
    const bool range =
        config->lo >= 0 && config->lo <= config->hi && config->hi <= config->model.blocks && !empty;
    const bool limits = config->limits.sequences > 0 && config->limits.tokens > 0 &&
                        config->limits.labels >= 0 && config->slots >= 0 && config->probes >= 0 &&
                        config->cache >= 0 && config->cache_sequences >= 0;
    if (!range || !limits || config->dtype > HOP_BF16)
        return hop_fail(err, HOP_INTERNAL, "a stage of blocks %d to %d in %s was asked for",
                        config->lo, config->hi, hop_dtype_name(config->dtype));
    const bool kept = zeroth_order && config->slots > 0 && config->probes > 0 && !config->head;
    if ((config->tangents && !kept) || (config->exit && config->head))
        return hop_fail(err, HOP_INTERNAL,
                        "a stage of blocks %d to %d was asked for, with tangents it cannot have or "
                        "with two output layers",
                        config->lo, config->hi);
    return check_shard(config, err);
}

static unsigned weight_uses(const struct hop_stage *stage)
{
    const bool backward = stage->config.slots > 0 && hop_ops_bp_capable(stage->ops);
    return HOP_WEIGHT_FORWARD | (backward ? HOP_WEIGHT_BACKWARD : 0u);
}

static hop_status load_matrix(struct hop_stage *stage, const struct hop_weights *weights,
                              const char *name, int64_t out, int64_t in, unsigned uses,
                              struct hop_weight **weight, struct hop_error *err)
{
    const struct hop_tensor *const tensor = hop_weights_find(weights, name);
    if (!tensor)
        return hop_fail(err, HOP_INTERNAL, "tensor %s was not delivered to this stage", name);
    return stage->ops->weight_create(stage->backend, tensor->data, tensor->dtype, out, in,
                                     stage->config.dtype, uses, weight, err);
}

static const char *element(const struct hop_tensor *tensor, int64_t index)
{
    return (const char *)tensor->data + (size_t)index * hop_dtype_size(tensor->dtype);
}

/* Columns of a matrix, converted already, for a backend may borrow the copy. */
static hop_status copy_columns(struct hop_stage *stage, const struct hop_tensor *tensor,
                               const struct hop_submatrix *slice, void **out, struct hop_error *err)
{
    const enum hop_dtype dtype = stage->config.dtype;
    const size_t n = (size_t)slice->columns, bytes = n * hop_dtype_size(dtype);
    HOP_TRY(hop_calloc_aligned(out, (size_t)slice->rows, bytes, err));
    for (int64_t r = 0; r < slice->rows; r++)
        hop_convert((char *)*out + (size_t)r * bytes, dtype,
                    element(tensor, r * tensor->shape[1] + slice->column), tensor->dtype, n);
    return HOP_OK;
}

/* The stage's slice of a projection: rows lie together, columns do not. */
static hop_status load_projection(struct hop_stage *stage, const struct hop_weights *weights,
                                  size_t i, enum hop_target target, const char *name,
                                  struct hop_error *err)
{
    const struct hop_submatrix slice =
        hop_shard_weight(&stage->whole, &stage->config.shard, target);
    const struct hop_tensor *const tensor = hop_weights_find(weights, name);
    struct hop__block *const block = &stage->blocks[i];
    if (!tensor)
        return hop_fail(err, HOP_INTERNAL, "tensor %s was not delivered to this stage", name);
    const void *host = element(tensor, slice.row * tensor->shape[1]);
    enum hop_dtype dtype = tensor->dtype;
    if (slice.columns < tensor->shape[1]) {
        HOP_TRY(copy_columns(stage, tensor, &slice, &block->columns[target], err));
        host = block->columns[target];
        dtype = stage->config.dtype;
    }
    return stage->ops->weight_create(stage->backend, host, dtype, slice.rows, slice.columns,
                                     stage->config.dtype, weight_uses(stage),
                                     &block->weights[target], err);
}

/* Vectors lie one after the other in stage->vectors; *next is the first free one. Elements [first,
 * first + n) of the tensor. */
static hop_status load_vector(struct hop_stage *stage, const struct hop_weights *weights,
                              const char *name, int64_t first, size_t n, char **next,
                              const float **vector, struct hop_error *err)
{
    const struct hop_tensor *const tensor = hop_weights_find(weights, name);
    float *values;
    if (!tensor)
        return hop_fail(err, HOP_INTERNAL, "tensor %s was not delivered to this stage", name);
    HOP_TRY(hop_calloc(&values, n, sizeof *values, err));
    hop_convert(values, HOP_F32, element(tensor, first), tensor->dtype, n);
    const hop_status status =
        stage->ops->write(stage->backend, *next, values, n * sizeof *values, err);
    free(values);
    *vector = (const float *)(const void *)*next;
    *next += hop_align(n * sizeof *values);
    return status;
}

static hop_status load_bias(struct hop_stage *stage, const struct hop_weights *weights, size_t i,
                            enum hop_target target, char **next, struct hop_error *err)
{
    const struct hop_submatrix slice =
        hop_shard_weight(&stage->whole, &stage->config.shard, target);
    char name[HOP_TENSOR_NAME];
    if (!hop__stage_biased(&stage->config, target))
        return HOP_OK;
    hop_bias_name(stage->config.lo + (int32_t)i, target, name);
    return load_vector(stage, weights, name, slice.row, (size_t)slice.rows, next,
                       &stage->blocks[i].biases[target], err);
}

static hop_status load_block(struct hop_stage *stage, const struct hop_weights *weights, size_t i,
                             char **next, struct hop_error *err)
{
    const int32_t block = stage->config.lo + (int32_t)i;
    char name[HOP_TENSOR_NAME];
    for (enum hop_norm norm = 0; norm < HOP_BLOCK_NORMS; norm++) {
        hop_norm_name(block, norm, name);
        HOP_TRY(load_vector(stage, weights, name, 0, stage->layout.hidden, next,
                            &stage->blocks[i].gains[norm], err));
    }
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        hop_weight_name(block, target, name);
        HOP_TRY(load_projection(stage, weights, i, target, name, err));
        HOP_TRY(load_bias(stage, weights, i, target, next, err));
    }
    return HOP_OK;
}

static hop_status load_tables(struct hop_stage *stage, const struct hop_weights *weights,
                              char **next, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    const struct hop_model_config *const model = &config->model;
    const bool output = hop__stage_has_output(config);
    const bool shared = config->embed && output && model->tied;
    if (output)
        HOP_TRY(load_vector(stage, weights, HOP_FINAL_NORM_NAME, 0, stage->layout.hidden, next,
                            &stage->final_gain, err));
    if (config->embed)
        HOP_TRY(load_matrix(stage, weights, HOP_EMBED_NAME, model->vocabulary, model->hidden,
                            HOP_WEIGHT_LOOKUP | (shared ? weight_uses(stage) : 0u), &stage->embed,
                            err));
    if (shared)
        stage->head = stage->embed;
    else if (output)
        HOP_TRY(load_matrix(stage, weights, hop_head_name(model), model->vocabulary, model->hidden,
                            weight_uses(stage), &stage->head, err));
    return HOP_OK;
}

static hop_status load_weights(struct hop_stage *stage, const struct hop_weights *weights,
                               struct hop_error *err)
{
    char *next = stage->vectors;
    for (size_t i = 0; i < stage->layout.blocks; i++)
        HOP_TRY(load_block(stage, weights, i, &next, err));
    return load_tables(stage, weights, &next, err);
}

static hop_status load_rope(struct hop_stage *stage, struct hop_error *err)
{
    const struct hop_model_config *const model = &stage->config.model;
    const size_t n = stage->layout.positions * (size_t)(model->head_dim / 2);
    float *tables;
    hop_status status;
    HOP_TRY(hop_calloc(&tables, 2 * n, sizeof *tables, err));
    hop_model_rope(model, 0, 0, (int32_t)stage->layout.positions, tables, tables + n);
    HOP_TRY_DONE(stage->ops->write(stage->backend,
                                   hop__scratch(stage, stage->layout.scratch.cosine), tables,
                                   n * sizeof *tables, err));
    HOP_TRY_DONE(stage->ops->write(stage->backend, hop__scratch(stage, stage->layout.scratch.sine),
                                   tables + n, n * sizeof *tables, err));
done:
    free(tables);
    return status;
}

/* Factors come in the order the layout of lora.h promises: block, target, A then B. */
static void find_adapters(struct hop_stage *stage)
{
    for (size_t p = 0; p < stage->adapters->count; p++) {
        const struct hop_parameter *const item = &stage->adapters->items[p];
        struct hop__block *const block = &stage->blocks[item->block - stage->config.lo];
        size_t *const offsets = item->factor == HOP_LORA_A ? block->a : block->b;
        offsets[item->target] = item->offset;
    }
}

static hop_status create_adapters(struct hop_stage *stage, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    HOP_TRY(hop_parameters_create(&config->model, &config->lora, config->lo, config->hi,
                                  &stage->parameters, err));
    HOP_TRY(hop__cores_create(stage, err));
    find_adapters(stage);
    stage->values = stage->adapters->values;
    stage->gradients = stage->adapters->gradients;
    if (stage->ops->host_memory)
        return HOP_OK;
    const size_t bytes = stage->adapters->total * sizeof(float);
    const size_t groups = hop__stage_groups(config), copies = groups > 1 ? groups : 1;
    void *values = NULL, *gradients = NULL;
    stage->values = stage->gradients = NULL;
    HOP_TRY(stage->ops->alloc(stage->backend, bytes, &values, err));
    stage->values = values;
    HOP_TRY(stage->ops->alloc(stage->backend, bytes, &gradients, err));
    stage->gradients = gradients;
    return hop_calloc(&stage->mirror, copies * stage->adapters->total, sizeof(float), err);
}

static hop_status allocate_rotation(struct hop_stage *stage, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    if (stage->ops->host_memory || config->model.rope_scaling != HOP_ROPE_DYNAMIC)
        return HOP_OK;
    const size_t rows = (size_t)config->limits.tokens * (size_t)(config->model.head_dim / 2);
    return hop_calloc(&stage->rotation, 2 * rows, sizeof *stage->rotation, err);
}

static hop_status allocate_exchange(struct hop_stage *stage, struct hop_error *err)
{
    const struct hop__stage_layout *const layout = &stage->layout;
    if (stage->ops->host_memory || hop_shard_is_whole(&stage->config.shard))
        return HOP_OK;
    return hop_calloc(&stage->exchanged, layout->rows * layout->hidden, layout->element, err);
}

static hop_status allocate(struct hop_stage *stage, struct hop_error *err)
{
    const struct hop__stage_layout *const layout = &stage->layout;
    const size_t slots = (size_t)stage->config.slots;
    void *vectors = NULL, *kept = NULL, *scratch = NULL;
    HOP_TRY(hop_calloc(&stage->blocks, layout->blocks, sizeof *stage->blocks, err));
    HOP_TRY(hop_calloc(&stage->slot_used, slots, sizeof *stage->slot_used, err));
    HOP_TRY(hop_calloc_aligned(&stage->index, layout->index.words, sizeof *stage->index, err));
    HOP_TRY(stage->ops->alloc(stage->backend, layout->vectors_bytes, &vectors, err));
    stage->vectors = vectors;
    HOP_TRY(stage->ops->alloc(stage->backend, slots * layout->kept_bytes, &kept, err));
    stage->kept = kept;
    HOP_TRY(stage->ops->alloc(stage->backend, layout->scratch.bytes, &scratch, err));
    stage->scratch = scratch;
    HOP_TRY(allocate_rotation(stage, err));
    HOP_TRY(allocate_exchange(stage, err));
    return create_adapters(stage, err);
}

hop_status hop_stage_create(const struct hop_ops *ops, struct hop_backend *backend,
                            const struct hop_weights *weights,
                            const struct hop_stage_config *config, struct hop_stage **out,
                            struct hop_error *err)
{
    struct hop_stage *stage = NULL;
    hop_status status;
    HOP_TRY(check_config(ops, config, err));
    HOP_TRY(hop_calloc(&stage, 1, sizeof *stage, err));
    stage->ops = ops;
    stage->backend = backend;
    stage->config = hop__stage_local(config);
    stage->whole = config->model;
    stage->adapters = &stage->parameters;
    stage->first_head = hop_shard_heads(&config->model, &config->shard).lo;
    hop__stage_layout(&stage->config, &stage->layout);
    HOP_TRY_DONE(allocate(stage, err));
    HOP_TRY_DONE(load_weights(stage, weights, err));
    HOP_TRY_DONE(load_rope(stage, err));
    HOP_TRY_DONE(hop__cores_load(stage, weights, err));
    HOP_TRY_DONE(hop_stage_adapters_changed(stage, err));
    *out = stage;
    stage = NULL;
done:
    hop_stage_free(stage);
    return status;
}

static void free_weights(struct hop_stage *stage)
{
    for (size_t i = 0; stage->blocks && i < stage->layout.blocks; i++)
        for (int target = 0; target < HOP_TARGETS; target++) {
            stage->ops->weight_free(stage->backend, stage->blocks[i].weights[target]);
            free(stage->blocks[i].columns[target]);
        }
    if (stage->head != stage->embed)
        stage->ops->weight_free(stage->backend, stage->head);
    stage->ops->weight_free(stage->backend, stage->embed);
}

void hop_stage_free(struct hop_stage *stage)
{
    if (!stage)
        return;
    free_weights(stage);
    if (!stage->ops->host_memory) {
        stage->ops->release(stage->backend, stage->values);
        stage->ops->release(stage->backend, stage->gradients);
    }
    stage->ops->release(stage->backend, stage->vectors);
    stage->ops->release(stage->backend, stage->kept);
    stage->ops->release(stage->backend, stage->scratch);
    hop__cores_free(stage);
    hop_parameters_free(&stage->parameters);
    free(stage->blocks);
    free(stage->slot_used);
    free(stage->index);
    free(stage->mirror);
    free(stage->exchanged);
    free(stage->rotation);
    free(stage);
}

struct hop_parameters *hop_stage_parameters(struct hop_stage *stage)
{
    return &stage->parameters;
}

hop_status hop_stage_adapters_changed(struct hop_stage *stage, struct hop_error *err)
{
    if (hop__stage_has_cores(stage))
        hop__cores_changed(stage);
    if (stage->ops->host_memory)
        return HOP_OK;
    return stage->ops->write(stage->backend, stage->values, stage->adapters->values,
                             stage->adapters->total * sizeof(float), err);
}
