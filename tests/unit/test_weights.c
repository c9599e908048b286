/* Frozen tensors: folders that are right, tied either way, unaligned, and wrong in one place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "io/file.h"

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

static void test_tied(void **state)
{
    (void)state;
    char folder[64];
    struct hop_weights *weights;
    struct hop_model_config config = support_tiny_config();
    config.tied = true;
    support_folder(folder, sizeof folder);
    write_model(folder, &config, rename_embed);
    assert_ok(hop_weights_open(folder, &config, &weights, &err));
    assert_ptr_equal(hop_weights_find(weights, HOP_EMBED_NAME),
                     hop_weights_find(weights, HOP_HEAD_NAME));
    assert_non_null(hop_weights_files(weights));
    hop_weights_free(weights);
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
        cmocka_unit_test(test_tied),       cmocka_unit_test(test_list),
        cmocka_unit_test(test_memory_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
