/* Broken model folders: every one is refused with one line that names the file and the place. */
#include "support.h"

#include <string.h>

#include "io/file.h"

static const char *rows, *cluster;

static int set_up(void **state)
{
    (void)state;
    rows = write_rows("rows.jsonl", 8, 6, 10, 64);
    cluster = write_cluster("NB", 1, NULL);
    return 0;
}

/* A model file taken apart. */
struct parts {
    json_t *header;
    const char *data;
    size_t size; /* of data */
};

static struct parts take_apart(const char *path)
{
    struct hop_error err = {0};
    struct hop_map map;
    uint64_t length;
    if (hop_map_open(path, &map, &err) != HOP_OK)
        fail_msg("%s", err.message);
    memcpy(&length, map.data, sizeof length);
    struct parts parts = {.size = map.size - 8 - length};
    parts.header = keep_json(json_loadb((const char *)map.data + 8, length, 0, NULL));
    parts.data = keep_bytes(map.data + 8 + length, parts.size);
    hop_map_close(&map);
    return parts;
}

static void put_together(const char *name, const char *header, const char *data, size_t size)
{
    struct hop_string file = {0};
    struct hop_error err = {0};
    const uint64_t length = strlen(header);
    if (hop_string_append(&file, (const char *)&length, sizeof length, &err) != HOP_OK ||
        hop_string_append(&file, header, length, &err) != HOP_OK ||
        hop_string_append(&file, data, size, &err) != HOP_OK)
        fail_msg("%s", err.message);
    write_bytes(name, file.data, file.length);
    hop_string_free(&file);
}

#define K_PROJ "model.layers.1.self_attn.k_proj.weight"

static json_t *offsets(const struct parts *parts, const char *tensor)
{
    return json_object_get(json_object_get(parts->header, tensor), "data_offsets");
}

static void move_offset(struct parts *parts, size_t end, int64_t by)
{
    json_t *const pair = offsets(parts, K_PROJ);
    json_array_set_new(pair, end, json_integer(json_integer_value(json_array_get(pair, end)) + by));
}

static void overlap(struct parts *parts)
{
    move_offset(parts, 0, -64);
    move_offset(parts, 1, -64);
}

static void leave_file(struct parts *parts)
{
    move_offset(parts, 1, 1 << 30);
}

static void set_key(struct parts *parts, const char *key, json_t *value)
{
    json_object_set_new(json_object_get(parts->header, K_PROJ), key, value);
}

static void change_dtype(struct parts *parts)
{
    set_key(parts, "dtype", json_string("I32"));
}

static void invent_dtype(struct parts *parts)
{
    set_key(parts, "dtype", json_string("Q99"));
}

static void change_shape(struct parts *parts)
{
    set_key(parts, "shape", json_pack("[i, i]", 32, 16));
}

static void huge_shape(struct parts *parts)
{
    set_key(parts, "shape", json_pack("[I, I]", (json_int_t)1 << 62, (json_int_t)16));
}

static void rename_tensor(struct parts *parts)
{
    json_object_set(parts->header, "something.else", json_object_get(parts->header, K_PROJ));
    json_object_del(parts->header, K_PROJ);
}

static void lose_data(struct parts *parts)
{
    parts->size -= 100;
}

static struct process run_on(const char *model)
{
    return TRAIN(write_job("job.yaml", model, rows, NULL), scratch("run"),
                 text("cluster=%s", cluster));
}

static void test_headers(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct parts *parts);
        const char *part;
    } cases[] = {
        {overlap, K_PROJ},       {leave_file, K_PROJ},   {change_dtype, K_PROJ},
        {invent_dtype, K_PROJ},  {change_shape, K_PROJ}, {huge_shape, K_PROJ},
        {rename_tensor, K_PROJ}, {lose_data, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const name = text("header-%zu", i);
        const char *const model = write_model(name, (struct model){0});
        struct parts parts = take_apart(text("%s/model.safetensors", model));
        cases[i].spoil(&parts);
        put_together(text("%s/model.safetensors", name), dump_json(parts.header), parts.data,
                     parts.size);
        const struct process done = run_on(model);
        ASSERT_REFUSED(&done, 2, model, cases[i].part);
    }
}

/* Files that are no safetensors at all. */
static void test_bytes(void **state)
{
    (void)state;
    const char *const model = write_model("bytes", (struct model){0});
    const char *const file = "bytes/model.safetensors";
    const char *const path = scratch("%s", file);
    const uint64_t far = (uint64_t)1 << 40;
    struct process done;
    write_bytes(file, "", 0);
    done = run_on(model);
    ASSERT_REFUSED(&done, 2, path);
    write_bytes(file, &far, sizeof far);
    done = run_on(model);
    ASSERT_REFUSED(&done, 2, path, "header");
    write_text(file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n");
    done = run_on(model);
    ASSERT_REFUSED(&done, 2, path);
    put_together(file, "{\"a\": [1, 2", "", 0);
    done = run_on(model);
    ASSERT_REFUSED(&done, 2, path);
}

static const char *nested(const char *before)
{
    static char brackets[100001];
    memset(brackets, '[', sizeof brackets - 1);
    return text("%s%s", before, brackets);
}

static void test_deep_nesting(void **state)
{
    (void)state;
    const char *const model = write_model("nested", (struct model){0});
    put_together("nested/model.safetensors", nested("{\"__metadata__\": "), "", 0);
    struct process done = run_on(model);
    ASSERT_REFUSED(&done, 2, text("%s/model.safetensors", model));
    write_text("nested/config.json", "%s", nested("{\"hidden_size\": "));
    done = run_on(model);
    ASSERT_REFUSED(&done, 2, text("%s/config.json", model));
}

static void test_missing_files(void **state)
{
    (void)state;
    struct process done = run_on(scratch("nowhere"));
    ASSERT_REFUSED(&done, 2, scratch("nowhere"), "config.json");
    write_text("empty/config.json", "%s",
               read_text(text("%s/config.json", write_model("full", (struct model){0}))));
    done = run_on(scratch("empty"));
    ASSERT_REFUSED(&done, 2, scratch("empty"), "model.safetensors");
    write_model("shards", (struct model){.shards = 3});
    remove(scratch("shards/model-00002-of-00003.safetensors"));
    done = run_on(scratch("shards"));
    ASSERT_REFUSED(&done, 2, "model-00002-of-00003.safetensors");
}

static void test_config(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"hidden_size", "-1", "hidden_size"},
        {"hidden_size", "\"big\"", "hidden_size"},
        {"num_hidden_layers", "0", "num_hidden_layers"},
        {"num_hidden_layers", "5", "model.layers.4."},
        {"model_type", "\"mamba\"", "mamba"},
    };
    const char *const model = write_model("config", (struct model){0});
    json_t *const good = read_json(text("%s/config.json", model));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *const bad = keep_json(json_copy(good));
        json_object_set_new(bad, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        write_text("config/config.json", "%s", dump_json(bad));
        const struct process done = run_on(model);
        ASSERT_REFUSED(&done, 2, model, cases[i].part);
    }
}

/* A model with a NaN is found when it computes: the step and the device are named. */
static void test_nan(void **state)
{
    (void)state;
    const char *const model = write_model("nan", (struct model){0});
    const struct parts parts = take_apart(text("%s/model.safetensors", model));
    const int64_t at =
        json_integer_value(json_array_get(offsets(&parts, "model.layers.2.mlp.up_proj.weight"), 0));
    memset((char *)(uintptr_t)parts.data + at, 0xff, 4);
    put_together("nan/model.safetensors", dump_json(parts.header), parts.data, parts.size);
    const struct process done = run_on(model);
    ASSERT_REFUSED(&done, 1, "step 1", "gpu0");
}

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),      cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_deep_nesting), cmocka_unit_test(test_missing_files),
        cmocka_unit_test(test_config),       cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
