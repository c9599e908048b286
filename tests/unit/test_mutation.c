/* Damages valid files a few thousand times, always in the same way, and reads them: each must be
 * read or refused with one line, never crash. Meant for the sanitizer build, quick enough for every
 * run. */
#include "support_files.h"
#include "support_mutation.h"

#include "data/dataset.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/yaml.h"

static struct hop_error err;

static hop_status read_safetensors(const char *path)
{
    struct hop_safetensors *set;
    struct hop_map map = {0};
    HOP_TRY(hop_safetensors_open(path, &set, &err));
    ASSERT_OK(hop_map_open(path, &map, &err));
    for (size_t i = 0; i < hop_safetensors_count(set); i++) {
        const struct hop_tensor *const t = hop_safetensors_at(set, i);
        assert_in_range(t->offset, 8, map.size);
        assert_in_range(t->bytes, 0, map.size - t->offset);
        assert_memory_equal(t->data, map.data + t->offset, t->bytes);
    }
    hop_map_close(&map);
    hop_safetensors_close(set);
    return HOP_OK;
}

static void test_safetensors(void **state)
{
    (void)state;
    static const float values[12] = {1, 2, 3};
    const struct hop_tensor_source sources[] = {
        {.name = "model.a", .dtype = HOP_F32, .rank = 2, .shape = {3, 2}, .data = values},
        {.name = "model.b", .dtype = HOP_BF16, .rank = 1, .shape = {5}, .data = values},
        {.name = "c", .dtype = HOP_F16, .rank = 0, .data = values},
    };
    struct hop_map map = {0};
    const char *const path = hop_test_path("valid.safetensors");
    ASSERT_OK(hop_safetensors_write(path, sources, 3, &err));
    ASSERT_OK(hop_map_open(path, &map, &err));
    hop_test_mutate("mutated.safetensors", map.data, map.size, read_safetensors, &err);
    hop_map_close(&map);
}

static hop_status read_jsonl(const char *path)
{
    const struct hop_dataset_options with = {
        .task = HOP_TASK_JSONL, .max_length = 5, .vocabulary = 1000, .eos = -1};
    struct hop_dataset *dataset;
    HOP_TRY(hop_dataset_load(path, NULL, &with, &dataset, &err));
    assert_in_range(dataset->count, 1, dataset->rows);
    assert_in_range(dataset->longest, 1, 5);
    hop_dataset_free(dataset);
    return HOP_OK;
}

static void test_jsonl(void **state)
{
    (void)state;
    hop_test_mutate_text(
        "mutated.jsonl",
        "\xef\xbb\xbf{\"input_ids\": [1, 20, 300, 4], \"labels\": [-100, -100, 300, 4]}\r\n"
        "\n{\"input_ids\": [1, 2, 3, 4, 5, 6, 7], \"labels\": [-100, -100, -100, -100, "
        "-100, 6, 7], \"source\": \"é \\u00e9\"}\n"
        "{\"input_ids\": [7, 8, 9], \"labels\": [7, 8, 9]}\n",
        read_jsonl, &err);
}

static hop_status use_row(void *context, const struct hop_csv_row *row, struct hop_error *e)
{
    (void)e;
    for (size_t i = 0; i < row->count; i++)
        *(size_t *)context += strlen(row->fields[i]);
    return HOP_OK;
}

static hop_status read_csv(const char *path)
{
    size_t bytes = 0;
    return hop_csv_read(path, use_row, &bytes, &err);
}

static void test_csv(void **state)
{
    (void)state;
    hop_test_mutate_text(
        "mutated.csv",
        "\"3\",\"Wall St.\",\"Short-sellers, \"\"band\"\" of\nultra-cynics\"\r\n\r\n"
        "\"4\",\"Title\",\"oil\\pipeline  #36;46 &lt;b&gt;\"\n1,plain,text\n",
        read_csv, &err);
}

static hop_status read_yaml(const char *path)
{
    json_t *value;
    struct hop_string text = {0};
    HOP_TRY(hop_yaml_load(path, &value, &err));
    json_t *back = NULL;
    ASSERT_OK(hop_yaml_write(value, &text, &err));
    ASSERT_OK(hop_yaml_parse(text.data, text.length, "back", &back, &err));
    if (!json_equal(value, back))
        fail_msg("written YAML reads back as something else: %s", text.data);
    json_decref(value);
    json_decref(back);
    hop_string_free(&text);
    return HOP_OK;
}

static void test_yaml(void **state)
{
    (void)state;
    hop_test_mutate_text(
        "mutated.yaml",
        "model: models/x   # folder\nlora: {rank: 8, targets: [q_proj, 'v_proj'], s: 5e-5}\n"
        "plan:\n  blocks:\n    npu0: 4\n    \"gpu 0\": -12\nnotes: |\n  two\n  lines\n"
        "folded: >-\n  a\n  b\ndevices:\n  - {name: a, bp: false}\n  - name: \"é\\n\"\n"
        "    latency: 0.3ms\n",
        read_yaml, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_yaml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
