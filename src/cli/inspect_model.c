/* What the folder of a model holds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/inspect.h"
#include "io/file.h"
#include "io/json.h"
#include "model/stage.h"

/* The adapters and the micro-batch that memory is shown for. */
enum { RANK = 8, TOKENS = 1024 };

static hop_status put_rope(const struct hop_model_config *config, json_t *out,
                           struct hop_error *err)
{
    json_t *const rope = json_pack("{s:s, s:f, s:f}", "type", hop_rope_names[config->rope_scaling],
                                   "theta", config->rope_theta, "factor", config->rope_factor);
    return hop_inspect_put(out, "rope", rope, err);
}

static hop_status put_parameters(const struct hop_model_config *config, json_t *out,
                                 struct hop_error *err)
{
    const int64_t table = hop_model_embed_parameters(config);
    json_t *const parameters =
        json_pack("{s:I, s:I, s:i, s:i, s:I, s:I}", "embedding", (json_int_t)table, "block",
                  (json_int_t)hop_model_block_parameters(config), "blocks", (int)config->blocks,
                  "final_norm", (int)config->hidden, "head", (json_int_t)(config->tied ? 0 : table),
                  "total", (json_int_t)hop_model_parameters(config));
    return hop_inspect_put(out, "parameters", parameters, err);
}

static hop_status put_memory(const struct hop_model_config *config, enum hop_dtype dtype,
                             json_t *out, struct hop_error *err)
{
    struct hop_stage_config stage = {.model = *config,
                                     .lora = {.rank = RANK, .alpha = 2 * RANK},
                                     .dtype = dtype,
                                     .hi = 1,
                                     .gradient = HOP_GRADIENT_BACKPROP,
                                     .limits = {.sequences = 1, .tokens = TOKENS, .labels = 1},
                                     .slots = 1};
    stage.lora.targets[HOP_Q_PROJ] = stage.lora.targets[HOP_V_PROJ] = true;
    const struct hop_stage_bytes bytes = hop_stage_bytes(&stage);
    /* Values and gradients, and as much again for the two moments. */
    json_t *const memory =
        json_pack("{s:s, s:I, s:i, s:[s,s], s:I, s:I}", "dtype", hop_dtype_name(dtype), "frozen",
                  (json_int_t)bytes.weights, "rank", RANK, "targets", hop_target_names[HOP_Q_PROJ],
                  hop_target_names[HOP_V_PROJ], "adapters", (json_int_t)(2 * bytes.parameters),
                  "kept_per_token", (json_int_t)(bytes.kept / TOKENS));
    return hop_inspect_put(out, "memory_per_block", memory, err);
}

/* --- weights --- */

static json_t *files_json(const struct hop_safetensors *set)
{
    json_t *const files = json_array();
    for (size_t i = 0; i < hop_safetensors_files(set); i++) {
        const char *const path = hop_safetensors_path(set, i);
        const char *const slash = strrchr(path, '/');
        struct stat info = {0};
        stat(path, &info);
        json_array_append_new(files, json_pack("{s:s, s:I}", "name", slash ? slash + 1 : path,
                                               "bytes", (json_int_t)info.st_size));
    }
    return files;
}

/* Bytes of each element type, as the files spell it. */
static json_t *dtypes_json(const struct hop_safetensors *set)
{
    json_t *const dtypes = json_object();
    for (size_t i = 0; i < hop_safetensors_count(set); i++) {
        const struct hop_tensor *const tensor = hop_safetensors_at(set, i);
        const json_int_t before = json_integer_value(json_object_get(dtypes, tensor->dtype_text));
        json_object_set_new(dtypes, tensor->dtype_text,
                            json_integer(before + (json_int_t)tensor->bytes));
    }
    return dtypes;
}

static json_int_t sum_of(const json_t *dtypes)
{
    const char *key;
    json_t *value;
    json_int_t sum = 0;
    json_object_foreach((json_t *)(uintptr_t)dtypes, key, value) sum += json_integer_value(value);
    return sum;
}

static hop_status put_unused(const struct hop_weights *weights,
                             const struct hop_model_config *config, json_t *out,
                             struct hop_error *err)
{
    const struct hop_tensor **list;
    size_t count;
    json_t *const names = json_array();
    hop_status status = hop_weights_unused(weights, config, &list, &count, err);
    if (status == HOP_OK) {
        for (size_t i = 0; i < count; i++)
            json_array_append_new(names, json_string(list[i]->name));
        free(list);
        return hop_inspect_put(out, "unused", names, err);
    }
    json_decref(names);
    return status;
}

static hop_status describe_weights(const struct hop_weights *weights,
                                   const struct hop_model_config *config, json_t *out,
                                   struct hop_error *err)
{
    const struct hop_safetensors *const set = hop_weights_files(weights);
    HOP_TRY(hop_inspect_put(out, "files", files_json(set), err));
    HOP_TRY(hop_inspect_put(out, "dtypes", dtypes_json(set), err));
    HOP_TRY(
        hop_inspect_put(out, "bytes", json_integer(sum_of(json_object_get(out, "dtypes"))), err));
    HOP_TRY(
        hop_inspect_put(out, "tensors", json_integer((json_int_t)hop_safetensors_count(set)), err));
    return put_unused(weights, config, out, err);
}

static hop_status note_unused(const struct hop_weights *weights,
                              const struct hop_model_config *config, json_t *out,
                              struct hop_error *err)
{
    struct hop_string note = {0};
    hop_status status = hop_weights_unused_note(weights, config, &note, err);
    if (status == HOP_OK && note.length)
        status = hop_inspect_append(out, "notes", note.data, err);
    hop_string_free(&note);
    return status;
}

/* A file of another format in place of the one that is missing. */
static hop_status note_other(const char *directory, const char *name, const char *wanted,
                             json_t *out, struct hop_error *err)
{
    bool there;
    char note[128];
    HOP_TRY(hop_inspect_has(directory, name, &there, err));
    snprintf(note, sizeof note, "%s is not read; save %s", name, wanted);
    return there ? hop_inspect_append(out, "notes", note, err) : HOP_OK;
}

static hop_status no_weights(const char *directory, json_t *out, struct hop_error *err)
{
    HOP_TRY(hop_inspect_put(out, "weights", json_null(), err));
    HOP_TRY(hop_inspect_append(out, "missing", "model.safetensors", err));
    HOP_TRY(note_other(directory, "pytorch_model.bin", "model.safetensors", out, err));
    HOP_TRY(note_other(directory, "pytorch_model.bin.index.json", "model.safetensors", out, err));
    return note_other(directory, "consolidated.00.pth", "model.safetensors", out, err);
}

/* Also what the model will be computed in. */
static hop_status put_weights(const char *directory, const struct hop_model_config *config,
                              json_t *out, enum hop_dtype *dtype, struct hop_error *err)
{
    struct hop_weights *weights = NULL;
    struct hop_error problem = {0};
    bool single, index;
    HOP_TRY(hop_inspect_has(directory, "model.safetensors", &single, err));
    HOP_TRY(hop_inspect_has(directory, "model.safetensors.index.json", &index, err));
    if (!single && !index)
        return no_weights(directory, out, err);
    json_t *const found = json_object();
    HOP_TRY(hop_inspect_put(out, "weights", found, err));
    if (hop_weights_open(directory, config, &weights, &problem) != HOP_OK)
        return hop_inspect_put(found, "problem", json_string(problem.message), err);
    *dtype = hop_weights_native_dtype(weights);
    hop_status status = describe_weights(weights, config, found, err);
    if (status == HOP_OK)
        status = note_unused(weights, config, out, err);
    hop_weights_free(weights);
    return status;
}

/* --- the folder --- */

/* What config.json says the weights are; old files "torch_dtype", new ones "dtype". */
static hop_status configured_dtype(const char *directory, enum hop_dtype *out,
                                   struct hop_error *err)
{
    json_t *file = NULL;
    HOP_TRY(hop_inspect_load(directory, "config.json", &file, err));
    const char *text = json_string_value(json_object_get(file, "dtype"));
    if (!text)
        text = json_string_value(json_object_get(file, "torch_dtype"));
    *out = text && strcmp(text, "bfloat16") == 0 ? HOP_BF16 : HOP_F32;
    json_decref(file);
    return HOP_OK;
}

static hop_status put_tokenizer(const char *directory, const struct hop_model_config *config,
                                json_t *out, struct hop_error *err)
{
    json_t *tokenizer = NULL;
    char note[128];
    HOP_TRY(hop_inspect_tokenizer(directory, &tokenizer, err));
    HOP_TRY(hop_inspect_put(out, "tokenizer", tokenizer, err));
    if (json_is_null(tokenizer)) {
        HOP_TRY(hop_inspect_append(out, "missing", "tokenizer.json", err));
        return note_other(directory, "tokenizer.model", "tokenizer.json", out, err);
    }
    const json_int_t words = json_integer_value(json_object_get(tokenizer, "vocabulary"));
    snprintf(note, sizeof note, "the tokenizer has %lld tokens, the model only %d",
             (long long)words, config->vocabulary);
    return words > config->vocabulary ? hop_inspect_append(out, "notes", note, err) : HOP_OK;
}

static hop_status put_chat_template(const char *directory, json_t *out, struct hop_error *err)
{
    json_t *template = NULL;
    HOP_TRY(hop_inspect_chat_template(directory, &template, err));
    return hop_inspect_put(out, "chat_template", template, err);
}

static hop_status gather(const char *directory, json_t *out, struct hop_error *err)
{
    struct hop_model_config config;
    enum hop_dtype dtype;
    HOP_TRY(hop_model_config_load(directory, &config, err));
    HOP_TRY(configured_dtype(directory, &dtype, err));
    HOP_TRY(hop_inspect_put(out, "config", hop_model_config_json(&config), err));
    HOP_TRY(put_rope(&config, out, err));
    HOP_TRY(hop_inspect_put(out, "tied", json_boolean(config.tied), err));
    HOP_TRY(put_parameters(&config, out, err));
    HOP_TRY(put_weights(directory, &config, out, &dtype, err));
    HOP_TRY(put_memory(&config, dtype, out, err));
    HOP_TRY(put_tokenizer(directory, &config, out, err));
    return put_chat_template(directory, out, err);
}

hop_status hop_inspect_model(const char *directory, json_t **out, struct hop_error *err)
{
    return hop_inspect_folder("model", directory, gather, out, err);
}
