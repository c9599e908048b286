#include "support_files.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "io/schema.h"
#include "io/yaml.h"

static struct hop_error err;

struct settings {
    int64_t rank, steps;
    double rate, memory, bandwidth, latency;
    bool shuffle;
    char *model, *absent;
    int scheduler;
    struct hop_string_list targets;
    json_t *cluster;
};

static const char *const schedulers[] = {"constant", "linear", "cosine", NULL};

#define AT(member) .offset = offsetof(struct settings, member)

static const struct hop_field train_fields[] = {
    {.key = "learning_rate", .type = HOP_FIELD_REAL, AT(rate), .fallback = 5e-5, .maximum = 1},
    {.key = "scheduler",
     .type = HOP_FIELD_CHOICE,
     AT(scheduler),
     .fallback = 1,
     .choices = schedulers},
    {.key = "max_steps", .type = HOP_FIELD_INT, AT(steps), .fallback = -1, .maximum = INFINITY},
    {NULL}};

static const struct hop_field fields[] = {
    {.key = "rank", .type = HOP_FIELD_INT, AT(rank), .fallback = 8, .minimum = 1, .maximum = 256},
    {.key = "model", .type = HOP_FIELD_STRING, AT(model), .fallback_text = "here"},
    {.key = "absent", .type = HOP_FIELD_STRING, AT(absent)},
    {.key = "shuffle", .type = HOP_FIELD_BOOL, AT(shuffle), .fallback = 1},
    {.key = "targets", .type = HOP_FIELD_STRINGS, AT(targets), .fallback_text = "q_proj,v_proj"},
    {.key = "memory", .type = HOP_FIELD_BYTES, AT(memory), .fallback = INFINITY},
    {.key = "bandwidth", .type = HOP_FIELD_RATE, AT(bandwidth)},
    {.key = "latency", .type = HOP_FIELD_SECONDS, AT(latency)},
    {.key = "cluster", .type = HOP_FIELD_ANY, AT(cluster)},
    {.key = "train", .type = HOP_FIELD_SECTION, .fields = train_fields},
    {NULL}};

static json_t *yaml(const char *text)
{
    json_t *value = NULL;
    ASSERT_OK(hop_yaml_parse(text, strlen(text), "text", &value, &err));
    return value;
}

static hop_status bind(const char *text, struct settings *out)
{
    json_t *const object = yaml(text);
    const hop_status status = hop_schema_bind(fields, object, "job.yaml", out, &err);
    json_decref(object);
    return status;
}

static void test_defaults(void **state)
{
    (void)state;
    struct settings s;
    memset(&s, 0xa5, sizeof s);
    ASSERT_OK(bind("train:\n", &s));
    assert_int_equal(s.rank, 8);
    assert_int_equal(s.steps, -1);
    assert_true(s.rate == 5e-5);
    assert_true(isinf(s.memory));
    assert_true(s.shuffle);
    assert_string_equal(s.model, "here");
    assert_null(s.absent);
    assert_int_equal(s.scheduler, 1);
    assert_int_equal(s.targets.count, 2);
    assert_string_equal(s.targets.items[1], "v_proj");
    assert_null(s.cluster);
    hop_schema_release(fields, &s);
    assert_null(s.model);
    hop_schema_release(fields, NULL);
}

static void test_values(void **state)
{
    (void)state;
    struct settings s;
    ASSERT_OK(
        bind("{rank: 1e1, model: m, shuffle: false, targets: o_proj, memory: 7GiB, bandwidth: "
             "100Mbps, latency: 0.3ms, cluster: {a: 1}, train: {learning_rate: 1, scheduler: "
             "cosine, max_steps: 3}}",
             &s));
    assert_int_equal(s.rank, 10);
    assert_string_equal(s.model, "m");
    assert_false(s.shuffle);
    assert_int_equal(s.targets.count, 1);
    assert_string_equal(s.targets.items[0], "o_proj");
    assert_true(s.memory == 7 * 0x1p30);
    assert_true(s.bandwidth == 12.5e6);
    assert_true(fabs(s.latency - 3e-4) < 1e-18);
    assert_true(json_is_object(s.cluster));
    assert_int_equal(s.scheduler, 2);
    assert_int_equal(s.steps, 3);
    hop_schema_release(fields, &s);
}

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double memory, bandwidth, latency;
    } cases[] = {
        {"{memory: 512MB, bandwidth: 1Gbps, latency: 50us}", 512e6, 125e6, 50e-6},
        {"{memory: 1.5 KiB, bandwidth: 125MB/s, latency: 2s}", 1536, 125e6, 2},
        {"{memory: 10, bandwidth: 8 bit/s, latency: 1.5}", 10, 1, 1.5},
        {"{memory: 1B, bandwidth: 1KiB/s, latency: 2min}", 1, 1024, 120},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s;
        ASSERT_OK(bind(cases[i].text, &s));
        ASSERT_NEAR(s.memory, cases[i].memory, 1e-9);
        ASSERT_NEAR(s.bandwidth, cases[i].bandwidth, 1e-9);
        ASSERT_NEAR(s.latency, cases[i].latency, 1e-15);
        hop_schema_release(fields, &s);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"rnak: 4", "job.yaml: unknown key rnak; did you mean rank?"},
        {"train: {learning-rate: 1}", "did you mean train.learning_rate?"},
        {"zzzzzzzzzzzz: 1", "known here: rank, model"},
        {"rank: 0", "rank must be between 1 and 256, found 0"},
        {"rank: 8.5", "rank must be an integer, found 8.5"},
        {"rank: eight", "rank must be an integer, found \"eight\""},
        {"train: {max_steps: -2}", "train.max_steps must be at least 0"},
        {"train: {learning_rate: 2}", "between 0 and 1"},
        {"train: {scheduler: linaer}", "one of constant, linear, cosine (did you mean linear?)"},
        {"train: {scheduler: 1}", "one of constant"},
        {"train: 3", "train must be a section"},
        {"shuffle: yes", "shuffle must be true or false, found \"yes\""},
        {"model: 3", "model must be text"},
        {"targets: 3", "targets must be a list of texts"},
        {"targets: [a, 3]", "targets must be a list of texts"},
        {"memory: 7G", "7GiB"},
        {"memory: -1", "memory must be a number of bytes"},
        {"memory: 7Gbps", "memory must be"},
        {"bandwidth: 1GB", "bandwidth must be"},
        {"latency: 3 weeks", "latency must be"},
        {"latency: [1]", "latency must be"},
        {"[1]", "keys and values"},
        {"3", "keys and values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s;
        ASSERT_REFUSED(bind(cases[i].text, &s), HOP_INPUT, cases[i].part);
        assert_null(s.model);
    }
}

static void test_dump_binds_to_the_same(void **state)
{
    (void)state;
    struct settings first, second;
    ASSERT_OK(bind("{rank: 3, memory: 2GiB, cluster: [1], train: {scheduler: cosine}}", &first));
    json_t *const dump = hop_schema_dump(fields, &first);
    assert_non_null(dump);
    ASSERT_OK(hop_schema_bind(fields, dump, "dump", &second, &err));
    json_t *const again = hop_schema_dump(fields, &second);
    assert_true(json_equal(dump, again));
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(dump, "train"), "scheduler")), "cosine");
    assert_true(json_is_integer(json_object_get(dump, "memory")));
    hop_schema_release(fields, &first);
    hop_schema_release(fields, &second);
    json_decref(dump);
    json_decref(again);
}

static void test_set(void **state)
{
    (void)state;
    json_t *const object = yaml("{rank: 2, cluster: file.yaml, train: }");
    ASSERT_OK(hop_schema_set(object, "train.learning_rate", "1e-3", &err));
    ASSERT_OK(hop_schema_set(object, "targets", "[q_proj, v_proj]", &err));
    ASSERT_OK(hop_schema_set(object, "plan.blocks.npu0", "4", &err));
    ASSERT_OK(hop_schema_set(object, "rank", "16", &err));
    ASSERT_REFUSED(hop_schema_set(object, "cluster.x", "1", &err), HOP_INPUT, "cluster");
    ASSERT_REFUSED(hop_schema_set(object, "", "1", &err), HOP_INPUT, "section.key");
    ASSERT_REFUSED(hop_schema_set(object, "train.", "1", &err), HOP_INPUT, "section.key");
    ASSERT_REFUSED(hop_schema_set(object, ".x", "1", &err), HOP_INPUT, "not a key");
    ASSERT_REFUSED(hop_schema_set(object, "rank", "[1", &err), HOP_INPUT, "rank:");
    char *const text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(text, "{\"rank\":16,\"cluster\":\"file.yaml\",\"train\":{\"learning_rate\":"
                              "0.001},\"targets\":[\"q_proj\",\"v_proj\"],\"plan\":{\"blocks\":{"
                              "\"npu0\":4}}}");
    free(text);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_values),
        cmocka_unit_test(test_units),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_set),      cmocka_unit_test(test_dump_binds_to_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
