/* Small inputs of runs: random models, rows of tokens, clusters, jobs. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/string.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/weights.h"

/* Models */

static struct hop_model_config config_of(const struct model *model)
{
    const int hidden = model->hidden ? model->hidden : 32;
    return (struct hop_model_config){.hidden = hidden,
                                     .intermediate = 2 * hidden + 8,
                                     .blocks = model->blocks ? model->blocks : 4,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = hidden / 4,
                                     .vocabulary = model->vocabulary ? model->vocabulary : 64,
                                     .max_positions = 512,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 10000,
                                     .rope_factor = 1,
                                     .tied = !model->untied,
                                     .bos = 1,
                                     .eos = {2},
                                     .eos_count = 1};
}

/* Toward zero, normal numbers only: enough to make a file, and smaller ones become 0. */
static uint16_t f16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int32_t exponent = (int32_t)(bits >> 23 & 255) - 127 + 15;
    if (exponent <= 0)
        return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

static struct hop_tensor_source source_of(const struct hop_tensor *tensor, enum hop_dtype dtype)
{
    struct hop_tensor_source source = {
        .name = tensor->name, .dtype = dtype, .rank = tensor->rank, .data = tensor->data};
    memcpy(source.shape, tensor->shape, sizeof source.shape);
    if (dtype != HOP_F16)
        return source;
    const size_t n = tensor->bytes / sizeof(float);
    uint16_t *const half = calloc(n, sizeof *half);
    if (!half)
        fail_msg("out of memory");
    for (size_t i = 0; i < n; i++)
        half[i] = f16_from_f32(((const float *)tensor->data)[i]);
    source.data = half;
    return source;
}

static void write_shard(const char *path, const struct hop_tensor_source *sources, size_t n)
{
    struct hop_error err = {0};
    if (hop_safetensors_write(path, sources, n, &err) != HOP_OK)
        fail_msg("%s", err.message);
}

/* Tensor i goes to shard i % shards. */
static void write_shards(const char *name, const struct hop_tensor_source *sources, size_t count,
                         int shards)
{
    struct hop_tensor_source *const some = calloc(count, sizeof *some);
    json_t *const map = json_object();
    for (int s = 0; some && s < shards; s++) {
        const char *const file = text("model-%05d-of-%05d.safetensors", s + 1, shards);
        size_t n = 0;
        for (size_t i = (size_t)s; i < count; i += (size_t)shards) {
            some[n++] = sources[i];
            json_object_set_new(map, sources[i].name, json_string(file));
        }
        write_shard(scratch("%s/%s", name, file), some, n);
    }
    json_t *const index = keep_json(json_pack("{s:{}, s:o}", "metadata", "weight_map", map));
    struct hop_error err = {0};
    if (hop_json_save(scratch("%s/model.safetensors.index.json", name), index, &err) != HOP_OK)
        fail_msg("%s", err.message);
    free(some);
}

static void write_weights(const char *name, const struct model *model,
                          const struct hop_model_config *config)
{
    struct hop_error err = {0};
    struct hop_weights *weights = NULL;
    struct hop_tensor_want *wants = NULL;
    size_t count = 0;
    const enum hop_dtype made = model->dtype == HOP_BF16 ? HOP_BF16 : HOP_F32;
    if (hop_weights_random(config, 7 + model->seed, made, &weights, &err) != HOP_OK ||
        hop_weights_list(config, 0, config->blocks, true, true, &wants, &count, &err) != HOP_OK)
        fail_msg("%s", err.message);
    struct hop_tensor_source *const sources = calloc(count, sizeof *sources);
    for (size_t i = 0; sources && i < count; i++)
        sources[i] = source_of(hop_weights_find(weights, wants[i].name), model->dtype);
    if (model->shards > 1)
        write_shards(name, sources, count, model->shards);
    else
        write_shard(scratch("%s/model.safetensors", name), sources, count);
    for (size_t i = 0; sources && i < count && model->dtype == HOP_F16; i++)
        free((void *)(uintptr_t)sources[i].data);
    free(sources);
    free(wants);
    hop_weights_free(weights);
}

const char *write_model(const char *name, struct model model)
{
    const struct hop_model_config config = config_of(&model);
    json_t *const object = keep_json(hop_model_config_json(&config));
    char *const content = json_dumps(object, JSON_INDENT(2));
    write_text(text("%s/config.json", name), "%s\n", content);
    free(content);
    write_weights(name, &model, &config);
    return scratch("%s", name);
}

void write_ascii_tokenizer(const char *folder)
{
    json_t *const vocabulary = json_object();
    const char *const special[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++)
        json_object_set_new(vocabulary, special[i], json_integer(i));
    for (int c = '!'; c <= '~'; c++)
        json_object_set_new(vocabulary, text("%c", c), json_integer(3 + c - '!'));
    json_object_set_new(vocabulary, "\u0120", json_integer(100)); /* space */
    json_object_set_new(vocabulary, "\u010A", json_integer(101)); /* newline */
    json_t *const added = json_array();
    for (int i = 0; i < 3; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                               "content", special[i], "special", 1, "single_word",
                                               0, "lstrip", 0, "rstrip", 0, "normalized", 0));
    json_t *const object = keep_json(json_pack(
        "{s:s, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s}, s:{s:s, s:o, s:[]}}", "version",
        "1.0", "added_tokens", added, "normalizer", "pre_tokenizer", "type", "ByteLevel",
        "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "post_processor", "decoder",
        "type", "ByteLevel", "model", "type", "BPE", "vocab", vocabulary, "merges"));
    write_text(text("%s/tokenizer.json", folder), "%s", dump_json(object));
}

/* Rows */

/* A small generator of its own, so that what is tested does not choose its inputs. */
static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void append(struct hop_string *out, const char *format, int value)
{
    struct hop_error err = {0};
    if (hop_string_printf(out, &err, format, value) != HOP_OK)
        fail_msg("%s", err.message);
}

const char *write_rows(const char *name, int count, int shortest, int longest, int vocabulary)
{
    struct hop_string rows = {0};
    uint64_t state = 1;
    for (int row = 0; row < count; row++) {
        const int n = shortest + (int)(draw(&state) % (uint32_t)(longest - shortest + 1));
        int ids[1024];
        append(&rows, "{\"input_ids\": [%d", 1);
        for (int i = 1; i < n; i++) {
            ids[i] = 3 + (int)(draw(&state) % (uint32_t)(vocabulary - 3));
            append(&rows, ", %d", ids[i]);
        }
        append(&rows, "], \"labels\": [%d", -100);
        for (int i = 1; i < n; i++)
            append(&rows, ", %d", i < n - n / 3 ? -100 : ids[i]);
        append(&rows, "]}%c", '\n');
    }
    const char *const path = write_bytes(name, rows.data, rows.length);
    hop_string_free(&rows);
    return path;
}

/* Clusters and jobs */

const char *backend(void)
{
    static const char *found;
    if (!found) {
        const struct process devices = RUN("devices", "--json");
        assert_success(&devices);
        found = strstr(devices.out, "\"cpu\"") ? "cpu" : "reference";
    }
    return found;
}

const char *write_cluster(const char *devices, int threads, const char *extra)
{
    const char *lines = text("%s\ndevices:\n", extra ? extra : "");
    static int number;
    int free_count = 0, capable_count = 0;
    for (const char *d = devices; *d; d++) {
        const bool capable = *d == 'B';
        lines = text("%s  - {name: %s%d, bp: %s, backend: %s, threads: %d}\n", lines,
                     capable ? "gpu" : "npu", capable ? capable_count++ : free_count++,
                     capable ? "true" : "false", backend(), threads);
    }
    return write_text(text("cluster-%d.yaml", number++), "%s", lines);
}

const char *write_job(const char *name, const char *model, const char *rows, const char *extra)
{
    return write_text(name,
                      "model: %s\n"
                      "data: {task: jsonl, train: %s, max_length: 64}\n"
                      "lora: {rank: 4, alpha: 8}\n"
                      "train: {batch_size: 8, micro_batch: 2, learning_rate: 0.01, seed: 11,\n"
                      "        scheduler: constant, eval_every: 0, save_every: 0}\n"
                      "plan: {devices: all}\n"
                      "output: unset\n%s\n",
                      model, rows, extra ? extra : "");
}
