/* Frozen tensors: folders that are right, tied either way, with biases, in shards, with more than
 * is needed, and wrong in one place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "io/file.h"
#include "io/json.h"

static struct hop_error err;

/* Every tensor of the tiny model, written with one of them changed by `spoil` (may be NULL). */
static void write_model(const char *folder, const struct hop_model_config *config,
                        void (*spoil)(struct hop_tensor_source *sources, size_t *count))
{
    struct hop_tensor_want *wants;
    struct hop_weights *weights;
    size_t count;
    char path[128];
    assert_ok(hop_weights_list(config, 0, config->blocks, true, true, &wants, &count, &err));
    assert_ok(hop_weights_random(config, 3, HOP_F32, &weights, &err));
    struct hop_tensor_source *const sources = calloc(count, sizeof *sources);
    assert_non_null(sources);
    for (size_t i = 0; i < count; i++)
        sources[i] =
            (struct hop_tensor_source){.name = wants[i].name,
                                       .dtype = HOP_F32,
                                       .rank = wants[i].rank,
                                       .shape = {wants[i].shape[0], wants[i].shape[1]},
                                       .data = hop_weights_find(weights, wants[i].name)->data};
    if (spoil)
        spoil(sources, &count);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(hop_safetensors_write(path, sources, count, &err));
    free(sources);
    free(wants);
    hop_weights_free(weights);
}

static void open_fails(void (*spoil)(struct hop_tensor_source *, size_t *), const char *name,
                       const char *reason)
{
    char folder[64];
    struct hop_weights *weights = NULL;
    const struct hop_model_config config = support_tiny_config();
    support_folder(folder, sizeof folder);
    write_model(folder, &config, spoil);
    assert_fails(hop_weights_open(folder, &config, &weights, &err), HOP_INPUT, name);
    assert_non_null(strstr(err.message, reason));
    assert_null(weights);
    support_folder_remove(folder);
}

static struct hop_tensor_source *named(struct hop_tensor_source *sources, size_t count,
                                       const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(sources[i].name, name) == 0)
            return &sources[i];
    fail_msg("no %s", name);
    return NULL;
}

static const char up_name[] = "model.layers.1.mlp.up_proj.weight";

static void spoil_missing(struct hop_tensor_source *sources, size_t *count)
{
    *named(sources, *count, up_name) = sources[*count - 1];
    --*count;
}

static void spoil_shape(struct hop_tensor_source *sources, size_t *count)
{
    struct hop_tensor_source *const source = named(sources, *count, up_name);
    source->shape[0] = 24;
    source->shape[1] = 44;
}

static void spoil_rank(struct hop_tensor_source *sources, size_t *count)
{
    named(sources, *count, up_name)->rank = 1;
}

static void test_malformed(void **state)
{
    (void)state;
    open_fails(spoil_missing, up_name, "missing");
    open_fails(spoil_shape, up_name, "[24, 44]");
    open_fails(spoil_shape, up_name, "[44, 24]");
    open_fails(spoil_rank, up_name, "[44]");
}

/* The dtype in a file's header is changed to another of the same size. */
static void test_wrong_dtype(void **state)
{
    (void)state;
    char folder[64], path[128];
    struct hop_weights *weights = NULL;
    const struct hop_model_config config = support_tiny_config();
    support_folder(folder, sizeof folder);
    write_model(folder, &config, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    struct hop_map map;
    assert_ok(hop_map_open(path, &map, &err));
    char *const copy = malloc(map.size);
    assert_non_null(copy);
    memcpy(copy, map.data, map.size);
    char *const at = memmem(copy, map.size, up_name, strlen(up_name));
    assert_non_null(at);
    char *const dtype = memmem(at, 200, "F32", 3);
    assert_non_null(dtype);
    memcpy(dtype, "I32", 3);
    assert_ok(hop_file_write(path, copy, map.size, &err));
    assert_fails(hop_weights_open(folder, &config, &weights, &err), HOP_INPUT, up_name);
    assert_non_null(strstr(err.message, "I32"));
    free(copy);
    hop_map_close(&map);
    support_folder_remove(folder);
}

static void rename_embed(struct hop_tensor_source *sources, size_t *count)
{
    named(sources, *count, HOP_EMBED_NAME)->name = HOP_HEAD_NAME;
}

static void drop_head(struct hop_tensor_source *sources, size_t *count)
{
    *named(sources, *count, HOP_HEAD_NAME) = sources[*count - 1];
    --*count;
}

/* A folder written as `written` and opened as `read`. */
static hop_status reopen(const struct hop_model_config *written,
                         void (*change)(struct hop_tensor_source *sources, size_t *count),
                         const struct hop_model_config *read, char folder[64],
                         struct hop_weights **out)
{
    support_folder(folder, 64);
    write_model(folder, written, change);
    err = (struct hop_error){0};
    return hop_weights_open(folder, read, out, &err);
}

static size_t count_unused(const struct hop_weights *weights, const struct hop_model_config *config,
                           const char *name)
{
    const struct hop_tensor **list;
    size_t count, found = 0;
    assert_ok(hop_weights_unused(weights, config, &list, &count, &err));
    for (size_t i = 0; i < count; i++)
        found += strcmp(list[i]->name, name) == 0;
    assert_int_equal(found, name[0] ? 1 : 0);
    free(list);
    return count;
}

/* Tied or not, with a head in the file or without. */
static void test_tied(void **state)
{
    (void)state;
    char folder[64];
    struct hop_weights *weights;
    struct hop_model_config untied = support_tiny_config(), tied = untied;
    tied.tied = true;
    assert_ok(reopen(&tied, NULL, &tied, folder, &weights));
    assert_ptr_equal(hop_weights_find(weights, HOP_EMBED_NAME),
                     hop_weights_find(weights, HOP_HEAD_NAME));
    assert_int_equal(count_unused(weights, &tied, ""), 0);
    hop_weights_free(weights);
    support_folder_remove(folder);

    assert_ok(reopen(&tied, rename_embed, &tied, folder, &weights));
    assert_ptr_equal(hop_weights_find(weights, HOP_EMBED_NAME),
                     hop_weights_find(weights, HOP_HEAD_NAME));
    assert_non_null(hop_weights_files(weights));
    assert_int_equal(count_unused(weights, &tied, ""), 0);
    hop_weights_free(weights);
    support_folder_remove(folder);

    assert_ok(reopen(&untied, NULL, &tied, folder, &weights));
    assert_string_equal(hop_head_name(&tied), HOP_EMBED_NAME);
    assert_int_equal(count_unused(weights, &tied, HOP_HEAD_NAME), 1);
    hop_weights_free(weights);
    support_folder_remove(folder);

    assert_ok(reopen(&untied, NULL, &untied, folder, &weights));
    assert_ptr_not_equal(hop_weights_find(weights, HOP_EMBED_NAME),
                         hop_weights_find(weights, HOP_HEAD_NAME));
    assert_int_equal(count_unused(weights, &untied, ""), 0);
    hop_weights_free(weights);
    support_folder_remove(folder);

    assert_fails(reopen(&untied, drop_head, &untied, folder, &weights), HOP_INPUT, HOP_HEAD_NAME);
    assert_non_null(strstr(err.message, "tie_word_embeddings"));
    support_folder_remove(folder);
}

static void add_rotary(struct hop_tensor_source *sources, size_t *count)
{
    /* The caller's list ends with the head, which the tied reader below leaves unused. */
    struct hop_tensor_source *const source = named(sources, *count, HOP_HEAD_NAME);
    source->name = "model.layers.0.self_attn.rotary_emb.inv_freq";
}

static void add_bias(struct hop_tensor_source *sources, size_t *count)
{
    named(sources, *count, HOP_HEAD_NAME)->name = "model.layers.0.self_attn.q_proj.bias";
}

static void test_unused(void **state)
{
    (void)state;
    char folder[64];
    struct hop_weights *weights;
    struct hop_string note = {0};
    struct hop_model_config untied = support_tiny_config(), tied = untied;
    tied.tied = true;
    assert_ok(reopen(&untied, add_rotary, &tied, folder, &weights));
    assert_int_equal(count_unused(weights, &tied, "model.layers.0.self_attn.rotary_emb.inv_freq"),
                     1);
    assert_ok(hop_weights_unused_note(weights, &tied, &note, &err));
    assert_non_null(strstr(note.data, "1 tensor is"));
    assert_non_null(strstr(note.data, "rotary_emb.inv_freq"));
    assert_null(strstr(note.data, "attention_bias"));
    hop_string_free(&note);
    hop_weights_free(weights);
    support_folder_remove(folder);

    note = (struct hop_string){0};
    assert_ok(reopen(&untied, add_bias, &tied, folder, &weights));
    assert_ok(hop_weights_unused_note(weights, &tied, &note, &err));
    assert_non_null(strstr(note.data, "attention_bias"));
    hop_string_free(&note);
    hop_weights_free(weights);
    support_folder_remove(folder);

    note = (struct hop_string){0};
    assert_ok(reopen(&tied, NULL, &tied, folder, &weights));
    assert_ok(hop_weights_unused_note(weights, &tied, &note, &err));
    assert_int_equal(note.length, 0);
    hop_weights_free(weights);
    support_folder_remove(folder);
}

/* A bare LlamaModel: no "model." in front of the names. */
static void strip_prefix(struct hop_tensor_source *sources, size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        if (strncmp(sources[i].name, "model.", 6) == 0)
            sources[i].name += 6;
}

static void test_bare_names(void **state)
{
    (void)state;
    char folder[64];
    struct hop_weights *weights;
    struct hop_model_config config = support_tiny_config();
    config.tied = true;
    assert_ok(reopen(&config, strip_prefix, &config, folder, &weights));
    const struct hop_tensor *const up = hop_weights_find(weights, up_name);
    assert_non_null(up);
    assert_string_equal(up->name, up_name + 6);
    assert_int_equal(count_unused(weights, &config, ""), 0);
    hop_weights_free(weights);
    support_folder_remove(folder);
}

static void spoil_bias(struct hop_tensor_source *sources, size_t *count)
{
    named(sources, *count, "model.layers.2.mlp.down_proj.bias")->name = "other";
}

static void test_biases(void **state)
{
    (void)state;
    char folder[64];
    struct hop_weights *weights;
    struct hop_tensor_want *wants;
    size_t count;
    struct hop_model_config config = support_tiny_config();
    config.attention_bias = true;
    assert_ok(hop_weights_list(&config, 0, 3, true, true, &wants, &count, &err));
    assert_int_equal(count, 3 * (9 + 4) + 3);
    free(wants);
    config.mlp_bias = true;
    assert_ok(hop_weights_list(&config, 1, 3, false, false, &wants, &count, &err));
    assert_int_equal(count, 2 * (9 + 7));
    assert_string_equal(wants[3].name, "model.layers.1.self_attn.q_proj.bias");
    assert_int_equal(wants[3].rank, 1);
    assert_int_equal(wants[3].shape[0], 24);
    free(wants);
    assert_ok(reopen(&config, NULL, &config, folder, &weights));
    const struct hop_tensor *const bias =
        hop_weights_find(weights, "model.layers.2.mlp.gate_proj.bias");
    assert_non_null(bias);
    assert_int_equal(bias->bytes, 44 * 4);
    hop_weights_free(weights);
    support_folder_remove(folder);
    assert_fails(reopen(&config, spoil_bias, &config, folder, &weights), HOP_INPUT,
                 "model.layers.2.mlp.down_proj.bias");
    assert_non_null(strstr(err.message, "mlp_bias"));
    support_folder_remove(folder);
}

/* Two shards and an index that the test may spoil. */
static void write_index(const char *folder, const char *tensor, const char *shard)
{
    char path[128];
    const struct hop_model_config config = support_tiny_config();
    struct hop_tensor_want *wants;
    struct hop_weights *weights;
    size_t count;
    assert_ok(hop_weights_list(&config, 0, config.blocks, true, true, &wants, &count, &err));
    assert_ok(hop_weights_random(&config, 3, HOP_F32, &weights, &err));
    json_t *const map = json_object();
    for (size_t s = 0; s < 2; s++) {
        struct hop_tensor_source sources[64];
        size_t n = 0;
        for (size_t i = s; i < count; i += 2) {
            const struct hop_tensor *const from = hop_weights_find(weights, wants[i].name);
            sources[n++] = (struct hop_tensor_source){.name = wants[i].name,
                                                      .dtype = HOP_F32,
                                                      .rank = wants[i].rank,
                                                      .shape = {from->shape[0], from->shape[1]},
                                                      .data = from->data};
            json_object_set_new(map, wants[i].name, json_string(s ? "two" : "one"));
        }
        snprintf(path, sizeof path, "%s/%s", folder, s ? "two" : "one");
        assert_ok(hop_safetensors_write(path, sources, n, &err));
    }
    if (tensor)
        json_object_set_new(map, tensor, json_string(shard));
    json_t *const index =
        json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    assert_ok(hop_json_save(path, index, &err));
    json_decref(index);
    hop_weights_free(weights);
    free(wants);
}

static void test_index(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *shard, *part, *reason;
    } cases[] = {{up_name, "three", "three", up_name},
                 {"model.layers.7.more", "one", "model.layers.7.more", "one"},
                 {up_name, "one", up_name, "weight map"}};
    const struct hop_model_config config = support_tiny_config();
    struct hop_weights *weights = NULL;
    char folder[64];
    support_folder(folder, sizeof folder);
    write_index(folder, NULL, NULL);
    assert_ok(hop_weights_open(folder, &config, &weights, &err));
    assert_int_equal(hop_safetensors_files(hop_weights_files(weights)), 2);
    hop_weights_free(weights);
    weights = NULL;
    for (size_t i = 0; i < 3; i++) {
        write_index(folder, cases[i].tensor, cases[i].shard);
        if (hop_weights_open(folder, &config, &weights, &err) == HOP_OK)
            fail_msg("case %zu opens", i);
        assert_non_null(strstr(err.message, cases[i].part));
        assert_non_null(strstr(err.message, cases[i].reason));
        assert_null(weights);
    }
    support_folder_remove(folder);
}

static void test_list(void **state)
{
    (void)state;
    struct hop_model_config config = support_tiny_config();
    struct hop_tensor_want *wants;
    size_t count;
    assert_ok(hop_weights_list(&config, 0, 3, true, true, &wants, &count, &err));
    assert_int_equal(count, 3 * 9 + 3);
    free(wants);
    config.tied = true;
    assert_ok(hop_weights_list(&config, 0, 3, true, true, &wants, &count, &err));
    assert_int_equal(count, 3 * 9 + 2);
    free(wants);
    assert_ok(hop_weights_list(&config, 1, 2, false, true, &wants, &count, &err));
    assert_int_equal(count, 9 + 2);
    assert_string_equal(wants[count - 1].name, HOP_EMBED_NAME);
    assert_string_equal(wants[0].name, "model.layers.1.input_layernorm.weight");
    free(wants);
}

static void test_memory_set(void **state)
{
    (void)state;
    struct hop_weights *weights;
    struct hop_tensor_want want = {.name = "model.norm.weight", .rank = 1, .shape = {24}};
    void *data;
    assert_ok(hop_weights_create(&weights, &err));
    assert_null(hop_weights_find(weights, want.name));
    assert_ok(hop_weights_add(weights, &want, HOP_BF16, &data, &err));
    const struct hop_tensor *const tensor = hop_weights_find(weights, want.name);
    assert_ptr_equal(tensor->data, data);
    assert_int_equal(tensor->bytes, 48);
    assert_null(hop_weights_files(weights));
    hop_weights_free(weights);
    hop_weights_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),  cmocka_unit_test(test_wrong_dtype),
        cmocka_unit_test(test_tied),       cmocka_unit_test(test_unused),
        cmocka_unit_test(test_bare_names), cmocka_unit_test(test_biases),
        cmocka_unit_test(test_index),      cmocka_unit_test(test_list),
        cmocka_unit_test(test_memory_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
