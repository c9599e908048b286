#include "support_files.h"

#include <stdio.h>
#include <stdlib.h>

#include "io/yaml.h"

static struct hop_error err;

static json_t *parse_json(const char *text)
{
    json_t *const value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return value;
}

/* Compares as text, so that a failure prints both values. */
static void assert_value(const json_t *found, const char *expected)
{
    json_t *const wanted = parse_json(expected);
    char *const a = json_dumps(found, JSON_ENCODE_ANY), *const b =
                                                            json_dumps(wanted, JSON_ENCODE_ANY);
    assert_string_equal(a, b);
    free(a);
    free(b);
    json_decref(wanted);
}

static void test_scalars(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"", "null"},
        {"~", "null"},
        {"# only a comment\n", "null"},
        {"NULL", "null"},
        {"true", "true"},
        {"False", "false"},
        {"yes", "\"yes\""},
        {"off", "\"off\""},
        {"12", "12"},
        {"-3", "-3"},
        {"+4", "4"},
        {"0x1F", "31"},
        {"0o17", "15"},
        {"017", "17"},
        {"9223372036854775807", "9223372036854775807"},
        {"5e-5", "5e-5"},
        {"5.0e-5", "5e-5"},
        {"1E3", "1000.0"},
        {".5", "0.5"},
        {"-1.", "-1.0"},
        {"1.2.3", "\"1.2.3\""},
        {"192.168.1.21", "\"192.168.1.21\""},
        {"e5", "\"e5\""},
        {".", "\".\""},
        {"-", "[null]"},
        {"1e", "\"1e\""},
        {"7GiB", "\"7GiB\""},
        {"'12'", "\"12\""},
        {"\"true\"", "\"true\""},
        {"\xef\xbb\xbf"
         "a",
         "\"a\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = NULL;
        ASSERT_OK(hop_yaml_parse(cases[i].yaml, strlen(cases[i].yaml), "text", &value, &err));
        assert_value(value, cases[i].json);
        json_decref(value);
    }
}

static void test_document(void **state)
{
    (void)state;
    const char *const path = hop_test_write_text(
        "job.yaml",
        "---\nmodel: models/x   # a folder\r\nlora: {rank: 8, targets: [q_proj, v_proj]}\n"
        "plan:\n  blocks:\n    npu0: 4\n    gpu0: 12\ndevices:\n  - {name: a, bp: false}\n"
        "  - name: b\n");
    json_t *value = NULL;
    ASSERT_OK(hop_yaml_load(path, &value, &err));
    assert_value(value,
                 "{\"model\": \"models/x\", \"lora\": {\"rank\": 8, \"targets\": [\"q_proj\", "
                 "\"v_proj\"]}, \"plan\": {\"blocks\": {\"npu0\": 4, \"gpu0\": 12}}, "
                 "\"devices\": [{\"name\": \"a\", \"bp\": false}, {\"name\": \"b\"}]}");
    json_decref(value);
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"a: 1\na: 2\n", "bad.yaml:2: the key \"a\" is given twice"},
        {"a: [1, 2\n", "bad.yaml:"},
        {"a: b: c\n", "bad.yaml:1"},
        {"a: 1\n\tb: 2\n", "bad.yaml:2"},
        {"a: &x 1\n", "anchors"},
        {"a: *x\n", "anchors"},
        {"a: !!str 1\n", "tags"},
        {"? [a, b]\n: 1\n", "a key must be"},
        {"a: 1\n---\nb: 2\n", "second document"},
        {"a: .inf\n", "bad.yaml:1: .inf"},
        {"a: 99999999999999999999\n", "64 bits"},
        {"a: 1e999\n", "1e999"},
        {"a: \"x\\0y\"\n", "NUL"},
        {"a: 1\nb: \xff\n", "bad.yaml:2"},
        {"a: 1\nb: \x01\n", "bad.yaml:2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = NULL;
        const char *const path = hop_test_write_text("bad.yaml", cases[i].text);
        ASSERT_REFUSED(hop_yaml_load(path, &value, &err), HOP_INPUT, cases[i].part);
        assert_null(value);
    }
}

static void test_depth_is_limited(void **state)
{
    (void)state;
    char text[4096];
    json_t *value = NULL;
    memset(text, '[', sizeof text);
    ASSERT_REFUSED(hop_yaml_parse(text, sizeof text, "deep", &value, &err), HOP_INPUT, "deeper");
}

static void test_write_reads_back(void **state)
{
    (void)state;
    static const char *const values[] = {
        "null",
        "\"\"",
        "{}",
        "[]",
        "3",
        "{\"a\": [1, 2.0, 0.1, 5e-05, 1e300, -0.25, true, null], \"b\": {}, \"c\": []}",
        "[[1, [2, 3]], [{\"x\": 1}], [[]]]",
        "{\"true\": \"true\", \"12\": \"12\", \"~\": \"~\", \"5e-5\": \"5e-5\", \"\": \"\"}",
        "[\"a: b\", \"- x\", \"#no\", \" lead\", \"trail \", \"two\\nlines\", \"tab\\there\", "
        "\"it's\","
        " \"q\\\"q\", \"[x\", \"{x\", \"a, b\", \"&a\", \"*a\", \"!a\", \"%a\", \"@a\", \"`a\", "
        "\"---\"]",
        "[\"é\", \"日本\", \"\\u0001\", \"\\u2028\", \"\\ufeffx\", \"\\ud83d\\ude00\", \"null \"]",
        "{\"long\": \"word word word word word word word word word word word word word word word "
        "word word word word word word word word word\"}",
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        json_t *const value = parse_json(values[i]), *back = NULL;
        struct hop_string text = {0};
        ASSERT_OK(hop_yaml_write(value, &text, &err));
        ASSERT_OK(hop_yaml_parse(text.data, text.length, "back", &back, &err));
        assert_value(back, values[i]);
        hop_string_free(&text);
        json_decref(value);
        json_decref(back);
    }
}

static void test_write_is_readable(void **state)
{
    (void)state;
    json_t *const value = parse_json(
        "{\"model\": \"m\", \"lora\": {\"rank\": 8, \"targets\": [\"q\", \"v\"]}, \"lr\": 0.0002}");
    struct hop_string text = {0};
    ASSERT_OK(hop_yaml_write(value, &text, &err));
    assert_string_equal(text.data, "model: m\nlora:\n  rank: 8\n  targets: [q, v]\nlr: 0.0002\n");
    hop_string_free(&text);
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),          cmocka_unit_test(test_document),
        cmocka_unit_test(test_malformed),        cmocka_unit_test(test_depth_is_limited),
        cmocka_unit_test(test_write_reads_back), cmocka_unit_test(test_write_is_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
