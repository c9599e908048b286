/* Damages valid files a few thousand times, always in the same way, and reads them: each must be
 * read or refused with one line, never crash. Meant for the sanitizer build, quick enough for every
 * run. */
#include "support_files.h"
#include "support_mutation.h"

#include "cluster/cluster.h"
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

/* What was read, written and read again is the same text. */
static void assert_writes_itself(const struct hop_cluster *cluster)
{
    struct hop_cluster back;
    json_t *const first = hop_cluster_json(cluster);
    assert_non_null(first);
    ASSERT_OK(hop_cluster_parse(first, "back", &back, &err));
    json_t *const second = hop_cluster_json(&back);
    if (!json_equal(first, second))
        fail_msg("a cluster reads back as something else: %s",
                 json_dumps(first, JSON_REAL_PRECISION(17)));
    json_decref(first);
    json_decref(second);
    hop_cluster_free(&back);
}

static hop_status read_cluster(const char *path)
{
    struct hop_cluster cluster;
    HOP_TRY(hop_cluster_load(path, &cluster, &err));
    assert_in_range(cluster.count, 1, HOP_TEST_MUTATION_SIZE);
    for (size_t i = 0; i < cluster.link_count; i++) {
        assert_in_range(cluster.links[i].from, 0, cluster.count - 1);
        assert_in_range(cluster.links[i].to, 0, cluster.count - 1);
    }
    assert_writes_itself(&cluster);
    hop_cluster_free(&cluster);
    return HOP_OK;
}

static void test_cluster(void **state)
{
    (void)state;
    hop_test_mutate_text(
        "mutated-cluster.yaml",
        "network:\n  bandwidth: 1Gbps\n  latency: 0.3ms\n  duplex: half\n  nic: shared\n"
        "  pairs:\n  - {from: a, to: b, bandwidth: 100Mbps, latency: 1ms}\n"
        "  - {from: b, to: a, latency: 0}\nshare_files: false\ndevices:\n"
        "- {name: a, profile: jetson-orin-nano, mode: 25W, power: {idle: 3}, threads: 2}\n"
        "- {name: b, bp: false, rate: 2.5, memory: 7GiB, bandwidth: 50GB/s, overhead: 0.1ms,\n"
        "   backward_ratio: 8.6, probe_ratio: 0.5, power: {idle: 1, busy: 2}, emulate: true,\n"
        "   time_scale: 0.5, host: h, backend: cpu}\n",
        read_cluster, &err);
}

/* As the profile of a cluster's only device. */
static hop_status read_profile(const char *path)
{
    struct hop_cluster cluster;
    json_t *const object =
        json_pack("{s:[{s:s, s:s, s:s}]}", "devices", "name", "a", "profile", path, "mode", "high");
    const hop_status status = hop_cluster_parse(object, "mutated", &cluster, &err);
    json_decref(object);
    HOP_TRY(status);
    assert_string_equal(cluster.devices[0].mode, "high");
    assert_writes_itself(&cluster);
    hop_cluster_free(&cluster);
    return HOP_OK;
}

static void test_profile(void **state)
{
    (void)state;
    hop_test_mutate_text(
        "mutated-profile.yaml",
        "description: a board\nbp: false\nrate: 5.0\nmemory: 9.5GB\nbandwidth: 44GB/s\n"
        "overhead: 20us\nbackward_ratio: 8.6\nprobe_ratio: 0.9\n"
        "power: {idle: 8, busy: 18}\nmode: low\nmodes:\n  low: {}\n  high:\n"
        "    rate: 7\n    power: {busy: 20}\n    sources:\n      rate: measured, here\n"
        "      power: assumed\n        of two lines\nsources:\n"
        "  {bp: assumed so, rate: measured so, memory: derived so, bandwidth: assumed so,\n"
        "   overhead: assumed so, backward_ratio: assumed so, probe_ratio: assumed so,\n"
        "   power: \"assumed: so\"}\n",
        read_profile, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors), cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_csv),         cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_cluster),     cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
