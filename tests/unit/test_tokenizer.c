/* The tokenizer against vectors of the reference implementation, and against small files written
 * here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/error.h"
#include "text/tokenizer.h"

/* ---- vectors of the reference ---- */

static const char *testdata(void)
{
    const char *const named = getenv("HYBRIDOP_TESTDATA");
    return named ? named : HOP_SOURCE_DIR "/../shared/testdata";
}

static struct hop_tokenizer *load_or_skip(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    if (access(path, R_OK)) {
        print_message("skip: %s is not there\n", path);
        skip();
    }
    struct hop_tokenizer *tokenizer = NULL;
    struct hop_error err = {0};
    if (hop_tokenizer_load(directory, &tokenizer, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return tokenizer;
}

static bool same_ids(const struct hop_ids *ids, const json_t *expected)
{
    bool same = ids->count == json_array_size(expected);
    for (size_t i = 0; same && i < ids->count; i++)
        same = ids->data[i] == json_integer_value(json_array_get(expected, i));
    return same;
}

static void print_ids(const char *label, const struct hop_ids *ids)
{
    print_message("  %s:", label);
    for (size_t i = 0; i < ids->count; i++)
        print_message(" %d", ids->data[i]);
    print_message("\n");
}

static bool encodes_to(struct hop_tokenizer *tokenizer, const json_t *text, bool special,
                       const json_t *expected)
{
    struct hop_ids ids = {0};
    struct hop_error err = {0};
    const hop_status status = hop_tokenizer_encode(tokenizer, json_string_value(text),
                                                   json_string_length(text), special, &ids, &err);
    const bool good = status == HOP_OK && same_ids(&ids, expected);
    if (!good)
        print_ids(status == HOP_OK ? "found" : err.message, &ids);
    hop_ids_free(&ids);
    return good;
}

static bool decodes_to(const struct hop_tokenizer *tokenizer, const json_t *ids,
                       const json_t *expected)
{
    struct hop_ids list = {0};
    struct hop_string text = {0};
    struct hop_error err = {0};
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
        assert_int_equal(hop_ids_append(&list, id, &err), HOP_OK);
    }
    const hop_status status =
        hop_tokenizer_decode(tokenizer, list.data, list.count, false, &text, &err);
    const bool good = status == HOP_OK && text.length == json_string_length(expected) &&
                      !memcmp(hop_string_text(&text), json_string_value(expected), text.length);
    if (!good)
        print_message("  decoded: %s%s\n", err.message, hop_string_text(&text));
    hop_string_free(&text);
    hop_ids_free(&list);
    return good;
}

static bool vector_holds(struct hop_tokenizer *tokenizer, const json_t *vector)
{
    const json_t *const text = json_object_get(vector, "text");
    const json_t *const ids = json_object_get(vector, "ids");
    const json_t *special = json_object_get(vector, "ids_special");
    const json_t *decoded = json_object_get(vector, "decoded");
    special = special ? special : ids;
    decoded = decoded ? decoded : text;
    return encodes_to(tokenizer, text, false, ids) && encodes_to(tokenizer, text, true, special) &&
           decodes_to(tokenizer, ids, decoded);
}

static void check_line(struct hop_tokenizer *tokenizer, const char *line, size_t length,
                       size_t *checked, size_t *wrong)
{
    json_t *const vector = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
    assert_non_null(vector);
    if (!json_object_get(vector, "meta")) {
        ++*checked;
        if (!vector_holds(tokenizer, vector)) {
            ++*wrong;
            print_message("  vector: %.300s", line);
        }
    }
    json_decref(vector);
}

static void check_vectors(const char *name, const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizers/%s.jsonl", testdata(), name);
    FILE *const file = fopen(path, "r");
    if (!file) {
        print_message("skip: %s is not there\n", path);
        skip();
    }
    struct hop_tokenizer *const tokenizer = load_or_skip(directory);
    char *line = NULL;
    size_t capacity = 0, checked = 0, wrong = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, file)) > 0)
        check_line(tokenizer, line, (size_t)length, &checked, &wrong);
    free(line);
    fclose(file);
    hop_tokenizer_free(tokenizer);
    print_message("%s: %zu of %zu vectors\n", name, checked - wrong, checked);
    assert_true(checked > 100);
    assert_int_equal(wrong, 0);
}

static void check_in_testdata(const char *name, const char *folder)
{
    char directory[4096];
    snprintf(directory, sizeof directory, "%s/%s", testdata(), folder);
    check_vectors(name, directory);
}

static void vectors_of_gpt2(void **state)
{
    (void)state;
    check_in_testdata("gpt2", "tokenizers/gpt2");
}

static void vectors_of_llama2(void **state)
{
    (void)state;
    check_in_testdata("llama2_tinyllama", "tokenizers/tinyllama");
}

static void vectors_of_stories(void **state)
{
    (void)state;
    check_in_testdata("stories260K", "models/stories260K");
}

/* The file's licence does not let it lie beside the others: name its folder, or the file itself. */
static void vectors_of_llama3(void **state)
{
    (void)state;
    const char *const named = getenv("HYBRIDOP_LLAMA3_TOKENIZER");
    if (!named) {
        print_message("skip: HYBRIDOP_LLAMA3_TOKENIZER does not name Llama 3.1's tokenizer.json\n");
        skip();
    }
    char directory[4096];
    snprintf(directory, sizeof directory, "%s", named);
    char *const slash = strrchr(directory, '/');
    if (slash && !strcmp(slash, "/tokenizer.json"))
        *slash = '\0';
    check_vectors("llama3_1", directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_gpt2),
        cmocka_unit_test(vectors_of_llama2),
        cmocka_unit_test(vectors_of_stories),
        cmocka_unit_test(vectors_of_llama3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
