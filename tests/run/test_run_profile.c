/* hybridop profile: what it prints, the files it writes, and what it refuses. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cluster/cluster.h"
#include "cluster/cost.h"

#define BUNDLED HOP_SOURCE_DIR "/models/wordnet-3m"

static double number_at(const json_t *object, const char *section, const char *key)
{
    const json_t *const inner = json_object_get(object, section);
    if (!json_is_object(inner))
        fail_msg("there is no %s", section);
    return number(inner, key);
}

static const json_t *profile_json(const char *const *arguments)
{
    const struct process done = run_program(60, arguments);
    assert_success(&done);
    json_error_t where;
    json_t *const object = keep_json(json_loads(done.out, 0, &where));
    if (!json_is_object(object))
        fail_msg("not an object: %s", done.out);
    return object;
}

#define PROFILE(...)                                                                               \
    profile_json((const char *const[]){"profile", "--model", BUNDLED, "--tokens", "32",            \
                                       "--threads", "1", "--backend", backend(), "--json",         \
                                       __VA_ARGS__, NULL})

static double block_seconds(const json_t *object, size_t point, const char *pass)
{
    const json_t *const at = json_array_get(json_object_get(object, "points"), point);
    return number_at(json_object_get(at, "block"), pass, "seconds");
}

static struct hop_cost_table load_cost(const char *path)
{
    struct hop_error err = {0};
    struct hop_cost_table cost;
    if (hop_cost_load(path, &cost, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return cost;
}

static struct hop_cluster load_cluster(const char *profile)
{
    struct hop_error err = {0};
    struct hop_cluster cluster;
    const char *const path =
        write_text("cluster.yaml", "devices:\n- {name: here, profile: %s}\n", profile);
    if (hop_cluster_load(path, &cluster, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return cluster;
}

static void check_memory(const json_t *object)
{
    const json_t *const stages = json_object_get(json_object_get(object, "memory"), "stages");
    const json_t *const largest = json_array_get(stages, json_array_size(stages) - 1);
    assert_near("estimate of the largest stage", number(largest, "estimate"),
                number(largest, "held"), 0.03);
    assert_near("lambda_1", number_at(object, "memory", "lambda_1"), 2, 0.03);
}

static void check_cost(const char *path, const json_t *object)
{
    struct hop_cost_table cost = load_cost(path);
    const struct hop_cost_device *const device = &cost.devices[0];
    assert_int_equal(cost.blocks, 6);
    assert_int_equal(cost.device_count, 1);
    assert_true(cost.micro_batch_samples == 8);
    assert_string_equal(device->name, "board");
    assert_true(device->bp && isfinite(device->memory));
    for (int b = 0; b < 6; b++) {
        assert_true(device->forward[b] > 0 && device->backward[b] > 0 && device->probe[b] > 0);
        assert_true(device->state_bytes[b] > 0 && device->activation_bytes[b] > 0);
    }
    assert_true(device->forward[2] == block_seconds(object, 1, "forward"));
    assert_true(device->forward[5] > device->forward[4]);
    assert_true(cost.boundary_bytes[0] == 8 * 32 * 192 * 2);
    hop_cost_free(&cost);
}

static void test_files(void **state)
{
    (void)state;
    const char *const cost = scratch("cost.json"), *const profile = scratch("board.yaml");
    const json_t *const object = PROFILE("--rows", "1,8", "--seconds", "2", "-o", cost, "--profile",
                                         profile, "--name", "board");
    assert_string_equal(json_string_value(json_object_get(object, "weights")), "mapped");
    assert_string_equal(json_string_value(json_object_get(object, "dtype")), "bf16");
    assert_true(block_seconds(object, 1, "forward") > 2 * block_seconds(object, 0, "forward"));
    assert_true(block_seconds(object, 1, "backward") > 2 * block_seconds(object, 0, "backward"));
    check_memory(object);
    check_cost(cost, object);
    struct hop_cluster cluster = load_cluster(profile);
    const struct hop_device *const device = &cluster.devices[0];
    assert_true(device->bp && device->memory > 0 && device->memory_bandwidth > 0);
    assert_true(device->rate == number_at(object, "fit", "rate"));
    assert_true(device->overhead == number_at(object, "fit", "overhead"));
    assert_true(device->backward_ratio == number_at(object, "fit", "backward_ratio"));
    hop_cluster_free(&cluster);
    assert_false(file_exists(text("%s.tmp", cost)));
    assert_false(file_exists(text("%s.tmp", profile)));
}

static void test_forward_only(void **state)
{
    (void)state;
    const char *const cost = scratch("npu.json"), *const profile = scratch("npu.yaml");
    const json_t *const object = PROFILE("--rows", "1,4", "--seconds", "1", "--forward-only", "-o",
                                         cost, "--profile", profile);
    assert_true(json_is_false(json_object_get(object, "bp")));
    const json_t *const fit = json_object_get(object, "fit");
    assert_true(json_is_null(json_object_get(fit, "backward_ratio")));
    assert_true(number(fit, "probe_ratio") > 0);
    const json_t *const point = json_array_get(json_object_get(object, "points"), 0);
    assert_true(json_is_null(json_object_get(json_object_get(point, "block"), "backward")));
    struct hop_cost_table table = load_cost(cost);
    assert_false(table.devices[0].bp);
    assert_null(table.devices[0].backward);
    hop_cost_free(&table);
    struct hop_cluster cluster = load_cluster(profile);
    assert_false(cluster.devices[0].bp);
    hop_cluster_free(&cluster);
}

/* A folder with nothing but config.json, and the sizes of a job. */
static void test_job(void **state)
{
    (void)state;
    const char *const whole = write_model("model", (struct model){0});
    write_text("shapes/config.json", "%s", read_text(text("%s/config.json", whole)));
    const char *const job = write_text("job.yaml",
                                       "model: %s\ndata: {train: none.jsonl, max_length: 24}\n"
                                       "train: {micro_batch: 3, dtype: f32}\noutput: %s\n",
                                       scratch("shapes"), scratch("run"));
    const json_t *const object =
        profile_json((const char *const[]){"profile", job, "--json", "--seconds", "0.5",
                                           "--threads", "1", "--backend", backend(), NULL});
    assert_string_equal(json_string_value(json_object_get(object, "weights")), "random");
    assert_string_equal(json_string_value(json_object_get(object, "dtype")), "f32");
    assert_true(number(object, "tokens") == 24);
    const json_t *const points = json_object_get(object, "points");
    assert_int_equal(json_array_size(points), 4);
    assert_true(number(json_array_get(points, 3), "rows") == 3);
    assert_false(file_exists(scratch("run")));
    const struct process both = RUN("profile", job, "--model", BUNDLED);
    assert_int_equal(both.status, 2);
    assert_holds("the message", both.err, "one of them");
}

static void test_report(void **state)
{
    (void)state;
    const struct process done = RUN("profile", "--model", BUNDLED, "--tokens", "16", "--rows", "2",
                                    "--seconds", "0.5", "--threads", "1", "--backend", backend());
    assert_success(&done);
    static const char *const parts[] = {"rate", "lambda_1", "lambda_4", "kept for backward",
                                        "one size does not tell it from the rate"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_holds("the report", done.out, parts[i]);
}

static size_t count_lines(const char *message)
{
    size_t n = 0;
    for (; *message; message++)
        n += *message == '\n';
    return n;
}

/* Arguments are refused in one line before anything is measured. */
static void test_bad_arguments(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"--tokens", "0", "--tokens 0"},       {"--rows", "1,0", "--rows 0"},
        {"--rows", "2,2", "2 is there twice"}, {"--probes", "1000", "--probes 1000"},
        {"--seconds", "-1", "--seconds -1"},   {"--dtype", "int8", "--dtype int8"},
        {"--threads", "two", "--threads two"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct process done = RUN("profile", "--model", BUNDLED, cases[i][0], cases[i][1]);
        assert_int_equal(done.status, 2);
        assert_holds("the message", done.err, cases[i][2]);
        assert_int_equal(count_lines(done.err), 1);
        assert_string_equal(done.out, "");
    }
    const struct process none = RUN("profile");
    assert_int_equal(none.status, 2);
    assert_holds("the message", none.err, "a job file or --model DIR is missing");
}

static void test_refused(void **state)
{
    (void)state;
    const char *const missing = scratch("nowhere");
    struct process done = RUN("profile", "--model", missing);
    ASSERT_REFUSED(&done, 2, missing, "config.json");
    done = RUN("profile", text("%s.yaml", missing));
    ASSERT_REFUSED(&done, 2, missing);
    done = RUN("profile", "--model", BUNDLED, "--backend", "gpu9");
    ASSERT_REFUSED(&done, 2, "gpu9", "hybridop devices");
    done = RUN("profile", "--model", BUNDLED, "-o", text("%s/cost.json", missing));
    ASSERT_REFUSED(&done, 1, text("%s/cost.json", missing));
    done = RUN("profile", "--model", BUNDLED, "--profile", text("%s/p.yaml", missing));
    ASSERT_REFUSED(&done, 1, text("%s/p.yaml", missing));
    done = RUN("profile", "--model", BUNDLED, "--rows", "60000", "-o", scratch("large.json"));
    assert_int_not_equal(done.status, 0);
    assert_false(file_exists(scratch("large.json")));
    assert_false(file_exists(text("%s.tmp", scratch("large.json"))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),         cmocka_unit_test(test_forward_only),
        cmocka_unit_test(test_job),           cmocka_unit_test(test_report),
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
