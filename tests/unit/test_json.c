#include "support_files.h"

#include <stdlib.h>

#include "io/file.h"
#include "io/json.h"

static struct hop_error err;

static json_t *parse(const char *text)
{
    json_t *value = NULL;
    ASSERT_OK(hop_json_parse(text, strlen(text), "text", &value, &err));
    return value;
}

static void test_getters(void **state)
{
    (void)state;
    json_t *const object = parse("{\"i\": 7, \"r\": 2.5, \"b\": true, \"s\": \"x\", \"n\": null}");
    int64_t i = 0;
    double r = 0;
    bool b = false;
    const char *s = NULL;
    ASSERT_OK(hop_json_get_int(object, "i", "f", 1, &i, &err));
    assert_int_equal(i, 7);
    ASSERT_OK(hop_json_get_int(object, "n", "f", 3, &i, &err));
    assert_int_equal(i, 3);
    ASSERT_OK(hop_json_get_real(object, "i", "f", 0, &r, &err));
    assert_true(r == 7);
    ASSERT_OK(hop_json_get_real(object, "absent", "f", 0.5, &r, &err));
    assert_true(r == 0.5);
    ASSERT_OK(hop_json_get_bool(object, "b", "f", false, &b, &err));
    assert_true(b);
    ASSERT_OK(hop_json_get_string(object, "s", "f", NULL, &s, &err));
    assert_string_equal(s, "x");
    json_decref(object);
}

static void test_getters_name_file_and_key(void **state)
{
    (void)state;
    json_t *const object = parse("{\"i\": 7.5, \"s\": 3}");
    int64_t i = 11;
    const char *s = NULL;
    bool b = false;
    double r = 0;
    ASSERT_REFUSED(hop_json_get_int(object, "i", "c.json", 0, &i, &err), HOP_INPUT,
                   "c.json: \"i\" must be an integer, found a number");
    assert_int_equal(i, 11);
    ASSERT_REFUSED(hop_json_get_string(object, "s", "c.json", NULL, &s, &err), HOP_INPUT, "\"s\"");
    ASSERT_REFUSED(hop_json_get_bool(object, "s", "c.json", false, &b, &err), HOP_INPUT,
                   "true or false");
    ASSERT_REFUSED(hop_json_get_real(NULL, "s", "c.json", 0, &r, &err), HOP_INPUT, "nothing");
    json_decref(object);
}

static void test_integers_beyond_64_bits_become_reals(void **state)
{
    (void)state;
    json_t *const object = parse("{\"a\": 1000000000000000019884624838656, \"b\": \"9999999999999"
                                 "9999999999\\\"7\", \"c\": [-99999999999999999999, 12], \"d\": "
                                 "9223372036854775807}");
    assert_true(json_real_value(json_object_get(object, "a")) == 1e30);
    assert_string_equal(json_string_value(json_object_get(object, "b")),
                        "99999999999999999999999\"7");
    assert_true(json_real_value(json_array_get(json_object_get(object, "c"), 0)) == -1e20);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(object, "c"), 1)), 12);
    assert_true(json_number_value(json_object_get(object, "d")) == 0x1p63);
    json_decref(object);
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "empty"},
        {"\xef\xbb\xbf", "empty"},
        {"{", "bad.json:1"},
        {"{\"a\": 1, \"a\": 2}", "duplicate"},
        {"{\"a\": 1,\n \"b\": }", "bad.json:2"},
        {"[1] 2", "bad.json:1"},
        {"{\"a\": \"\xff\"}", "bad.json:1"},
        {"{\"a\": \"\\u0000\"}", "bad.json:1"},
        {"[1e999]", "bad.json:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = NULL;
        const char *const path = hop_test_write_text("bad.json", cases[i].text);
        ASSERT_REFUSED(hop_json_load(path, &value, &err), HOP_INPUT, cases[i].part);
        assert_null(value);
    }
}

static void test_depth_is_limited(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *const text = malloc(DEPTH);
    json_t *value = NULL;
    memset(text, '[', DEPTH);
    ASSERT_REFUSED(hop_json_parse(text, DEPTH, "deep", &value, &err), HOP_INPUT, "depth");
    free(text);
}

static void test_save_and_load(void **state)
{
    (void)state;
    json_t *const object = parse("{\"z\": 0.1, \"a\": [1, \"é\\n\"]}"), *back = NULL;
    const char *const path = hop_test_path("saved.json");
    ASSERT_OK(hop_json_save(path, object, &err));
    ASSERT_OK(hop_json_load(path, &back, &err));
    assert_true(json_equal(object, back));
    assert_false(hop_file_exists(hop_test_path("saved.json.tmp")));
    ASSERT_REFUSED(hop_json_save(hop_test_path("no/such/x.json"), object, &err), HOP_IO, "x.json");
    json_decref(object);
    json_decref(back);
}

static void test_files(void **state)
{
    (void)state;
    struct hop_map map = {0};
    char *path = NULL;
    ASSERT_REFUSED(hop_map_open(hop_test_path("absent"), &map, &err), HOP_INPUT, "absent");
    ASSERT_REFUSED(hop_map_open("/", &map, &err), HOP_INPUT, "folder");
    ASSERT_REFUSED(hop_map_open("/dev/null", &map, &err), HOP_INPUT, "special file");
    ASSERT_OK(hop_map_open(hop_test_write("empty", "", 0), &map, &err));
    assert_int_equal(map.size, 0);
    hop_map_close(&map);
    ASSERT_OK(hop_directory_create(hop_test_path("a/b//c/"), &err));
    assert_true(hop_file_exists(hop_test_path("a/b/c")));
    ASSERT_REFUSED(hop_directory_create(hop_test_path("empty/x"), &err), HOP_IO, "empty");
    ASSERT_OK(hop_path_join("d/", "n", &path, &err));
    assert_string_equal(path, "d/n");
    free(path);
    ASSERT_OK(hop_path_join("d", "/n", &path, &err));
    assert_string_equal(path, "/n");
    free(path);
    ASSERT_OK(hop_path_directory("x/y.yaml", &path, &err));
    assert_string_equal(path, "x");
    free(path);
    ASSERT_OK(hop_path_directory("y.yaml", &path, &err));
    assert_string_equal(path, ".");
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_getters_name_file_and_key),
        cmocka_unit_test(test_integers_beyond_64_bits_become_reals),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_depth_is_limited),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
