#include "model/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/adapter.h"
#include "model/merge_folder.h"
#include "model/merge_rows.h"
#include "model/weights.h"

/* A few megabytes: large enough for the disk, small beside any model. */
enum { PIECE_ELEMENTS = 1 << 20 };

/* A merge at work. */
struct merging {
    const struct hop_merge *options;
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_safetensors *set;
    const struct hop_tensor **tensors; /* in the order of the files */
    struct hop_tensor_source *sources; /* of the same */
    size_t count;
    struct hop_parameters block; /* adapters of the block that is being merged */
    int32_t block_index;         /* -1: none yet */
    struct hop__merge_buffer buffer;
};

/* Checking */

/* Which projection the tensor is, if any. */
static bool parse_weight_name(const char *name, int32_t *block, enum hop_target *target)
{
    static const char prefix[] = "model.layers.";
    char spelled[HOP_TENSOR_NAME];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const long number = strtol(name + sizeof prefix - 1, NULL, 10);
    if (number < 0 || number > INT32_MAX)
        return false;
    *block = (int32_t)number;
    for (*target = 0; *target < HOP_TARGETS; (*target)++) {
        hop_weight_name(*block, *target, spelled);
        if (strcmp(spelled, name) == 0)
            return true;
    }
    return false;
}

static hop_status check_matrix(const struct merging *m, int32_t block, enum hop_target target,
                               struct hop_error *err)
{
    char name[HOP_TENSOR_NAME];
    const long long out = hop_target_out(&m->model, target), in = hop_target_in(&m->model, target);
    hop_weight_name(block, target, name);
    const struct hop_tensor *const tensor = hop_safetensors_find(m->set, name);
    if (!tensor)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s, which the adapter changes, is missing",
                        m->options->model, name);
    const char *const path = hop_safetensors_path(m->set, (size_t)tensor->file);
    if (tensor->rank != 2 || tensor->shape[0] != out || tensor->shape[1] != in)
        return hop_fail(err, HOP_INPUT,
                        "%s: tensor %s has rank %d and shape [%lld, %lld], config.json asks for "
                        "[%lld, %lld]",
                        path, name, tensor->rank, (long long)tensor->shape[0],
                        (long long)tensor->shape[1], out, in);
    if (tensor->dtype == HOP_DTYPE_OTHER)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: tensor %s has dtype %s; only F32, BF16 and F16 can be merged into",
                        path, name, tensor->dtype_text);
    return HOP_OK;
}

static hop_status load_block(struct merging *m, int32_t block, struct hop_error *err)
{
    if (m->block_index == block)
        return HOP_OK;
    hop_parameters_free(&m->block);
    m->block_index = -1;
    HOP_TRY(hop_parameters_create(&m->model, &m->lora, block, block + 1, &m->block, err));
    HOP_TRY(hop_adapter_load(m->options->adapter, &m->model, &m->lora, &m->block, err));
    m->block_index = block;
    return HOP_OK;
}

/* Everything that can be wrong with the two folders is found before anything is written. */
static hop_status check_all(struct merging *m, struct hop_error *err)
{
    for (int32_t block = 0; block < m->model.blocks; block++) {
        HOP_TRY(load_block(m, block, err));
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            if (hop_lora_rank(&m->lora, block, target) > 0)
                HOP_TRY(check_matrix(m, block, target, err));
    }
    return HOP_OK;
}

/* Listing */

static int by_place(const void *a, const void *b)
{
    const struct hop_tensor *const *const x = a, *const *const y = b;
    if ((*x)->file != (*y)->file)
        return (*x)->file < (*y)->file ? -1 : 1;
    if ((*x)->offset != (*y)->offset)
        return (*x)->offset < (*y)->offset ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static struct hop_tensor_source source_of(const struct merging *m, const struct hop_tensor *tensor)
{
    const bool converts = m->options->convert && tensor->dtype < HOP_DTYPE_OTHER;
    struct hop_tensor_source source = {.name = tensor->name,
                                       .dtype = converts ? m->options->dtype : tensor->dtype,
                                       .dtype_text = tensor->dtype_text,
                                       .rank = tensor->rank};
    memcpy(source.shape, tensor->shape, sizeof source.shape);
    return source;
}

static hop_status list_tensors(struct merging *m, struct hop_error *err)
{
    m->count = hop_safetensors_count(m->set);
    HOP_TRY(hop_calloc(&m->tensors, m->count, sizeof *m->tensors, err));
    HOP_TRY(hop_calloc(&m->sources, m->count, sizeof *m->sources, err));
    for (size_t i = 0; i < m->count; i++)
        m->tensors[i] = hop_safetensors_at(m->set, i);
    qsort(m->tensors, m->count, sizeof *m->tensors, by_place);
    for (size_t i = 0; i < m->count; i++)
        m->sources[i] = source_of(m, m->tensors[i]);
    return HOP_OK;
}

/* Merging */

/* The two factors of a projection follow each other in the block's parameters. */
static struct hop__merge_delta delta_of(const struct merging *m, int32_t block,
                                        enum hop_target target)
{
    struct hop__merge_delta delta = {.rank = hop_lora_rank(&m->lora, block, target),
                                     .scale = hop_lora_scale(&m->lora, block, target)};
    for (size_t p = 0; p < m->block.count; p++) {
        const struct hop_parameter *const item = &m->block.items[p];
        const float *const values = m->block.values + item->offset;
        if (item->target == target && item->factor == HOP_LORA_A)
            delta.a = values;
        else if (item->target == target)
            delta.b = values;
    }
    return delta;
}

static bool changes(const struct merging *m, const struct hop_tensor *tensor, int32_t *block,
                    enum hop_target *target)
{
    return parse_weight_name(tensor->name, block, target) &&
           hop_lora_rank(&m->lora, *block, *target) > 0 && *block < m->model.blocks;
}

static hop_status put(void *context, const struct hop_tensor_source *source,
                      struct hop_file_writer *writer, struct hop_error *err)
{
    struct merging *const m = context;
    const struct hop_tensor *const tensor = m->tensors[source - m->sources];
    int32_t block;
    enum hop_target target;
    if (!changes(m, tensor, &block, &target))
        return hop__merge_put(tensor, NULL, source->dtype, &m->buffer, writer, err);
    HOP_TRY(load_block(m, block, err));
    const struct hop__merge_delta delta = delta_of(m, block, target);
    return hop__merge_put(tensor, &delta, source->dtype, &m->buffer, writer, err);
}

static hop_status open_inputs(struct merging *m, struct hop_error *err)
{
    HOP_TRY(hop_model_config_load(m->options->model, &m->model, err));
    HOP_TRY(hop_adapter_config(m->options->adapter, &m->model, &m->lora, err));
    HOP_TRY(hop_safetensors_open_folder(m->options->model, &m->set, err));
    HOP_TRY(check_all(m, err));
    HOP_TRY(list_tensors(m, err));
    const size_t widest =
        (size_t)(m->model.hidden > m->model.intermediate ? m->model.hidden : m->model.intermediate);
    const size_t heads = (size_t)hop_target_in(&m->model, HOP_O_PROJ);
    const size_t row = widest > heads ? widest : heads;
    return hop__merge_buffer_create(row > PIECE_ELEMENTS ? row : PIECE_ELEMENTS, &m->buffer, err);
}

static hop_status write_output(struct merging *m, const char *directory,
                               struct hop_merge_result *result, struct hop_error *err)
{
    int32_t block;
    enum hop_target target;
    const enum hop_dtype *const dtype = m->options->convert ? &m->options->dtype : NULL;
    HOP_TRY(hop__merge_copy_files(m->options->model, directory, dtype, err));
    HOP_TRY(hop_safetensors_write_folder(directory, m->sources, m->count, m->options->shard_bytes,
                                         put, m, &result->files, err));
    result->tensors = m->count;
    for (size_t i = 0; i < m->count; i++)
        result->merged += changes(m, m->tensors[i], &block, &target);
    return HOP_OK;
}

static void free_merging(struct merging *m)
{
    hop_safetensors_close(m->set);
    hop_parameters_free(&m->block);
    hop__merge_buffer_free(&m->buffer);
    free(m->tensors);
    free(m->sources);
}

hop_status hop_merge(const struct hop_merge *merge, struct hop_merge_result *out,
                     struct hop_error *err)
{
    struct merging m = {.options = merge, .block_index = -1};
    struct hop_merge_result result = {0};
    char *aside = NULL;
    hop_status status;
    HOP_TRY_DONE(hop__merge_check_output(merge->output, err));
    HOP_TRY_DONE(open_inputs(&m, err));
    HOP_TRY_DONE(hop__merge_folder_begin(merge->output, &aside, err));
    HOP_TRY_DONE(write_output(&m, aside, &result, err));
    HOP_TRY_DONE(hop__merge_folder_commit(aside, merge->output, err));
    *out = result;
done:
    if (status != HOP_OK)
        hop__merge_folder_discard(aside);
    free(aside);
    free_merging(&m);
    return status;
}
