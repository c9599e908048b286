/* The tokenizer against vectors of the reference implementation, and against small files written
 * here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

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

/* ---- small files written here ---- */

/* Byte-level: " ab" is Ġab. Id 9 is left out. */
static const char byte_level[] =
    "{'added_tokens': [{'id': 20, 'content': '<end>', 'special': true, 'normalized': false}],"
    " 'normalizer': null,"
    " 'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': true},"
    " 'post_processor': {'type': 'TemplateProcessing',"
    "   'single': [{'Sequence': {'id': 'A', 'type_id': 0}},"
    "              {'SpecialToken': {'id': '<end>', 'type_id': 0}}],"
    "   'special_tokens': {'<end>': {'id': '<end>', 'ids': [20], 'tokens': ['<end>']}}},"
    " 'decoder': {'type': 'ByteLevel'},"
    " 'model': {'type': 'BPE', 'unk_token': null, 'vocab': {'a': 0, 'b': 1, 'c': 2, '\\u0120': 3,"
    "   'ab': 4, 'abc': 5, '\\u0120ab': 6, 'bc': 7, 'aa': 8, 'aaaa': 10, '\\u00c3': 11,"
    "   '\\u00a9': 12, '\\u0120\\u0120': 13, 'cab': 14},"
    "   'merges': ['a b', 'b c', 'ab c', '\\u0120 ab', 'a a', 'aa aa', '\\u0120 \\u0120']}}";

/* SentencePiece-style: U+2581 marks the start of a word. */
static const char sentencepiece[] =
    "{'added_tokens': [{'id': 0, 'content': '<unk>', 'special': true, 'normalized': false},"
    "                  {'id': 1, 'content': '<s>', 'special': true, 'normalized': false}],"
    " 'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '\\u2581'},"
    "   {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\\u2581'}]},"
    " 'pre_tokenizer': null,"
    " 'post_processor': {'type': 'TemplateProcessing',"
    "   'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}},"
    "              {'Sequence': {'id': 'A', 'type_id': 0}}],"
    "   'special_tokens': {'<s>': {'id': '<s>', 'ids': [1], 'tokens': ['<s>']}}},"
    " 'decoder': {'type': 'Sequence', 'decoders': ["
    "   {'type': 'Replace', 'pattern': {'String': '\\u2581'}, 'content': ' '},"
    "   {'type': 'ByteFallback'}, {'type': 'Fuse'},"
    "   {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}]},"
    " 'model': {'type': 'BPE', 'unk_token': '<unk>', 'fuse_unk': true, 'byte_fallback': true,"
    "   'vocab': {'<unk>': 0, '<s>': 1, '<0xC3>': 2, '<0xA9>': 3, '\\u2581': 4, 'a': 5, 'b': 6,"
    "   '\\u2581a': 7, 'ab': 8, '\\u2581ab': 9, 'aa': 10, '\\u2581\\u2581': 11},"
    "   'merges': [['\\u2581', 'a'], ['a', 'b'], ['\\u2581a', 'b'], ['a', 'a'],"
    "              ['\\u2581', '\\u2581']]}}";

/* JSON written with single quotes for legibility. */
static json_t *json_of(const char *text)
{
    char *const copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_error_t reason;
    json_t *const value = json_loads(copy, 0, &reason);
    if (!value)
        fail_msg("%s: %s", reason.text, copy);
    free(copy);
    return value;
}

/* Loads `base` with `change` merged into it, from a folder that is gone afterwards. */
static hop_status load(const char *base, const char *change, struct hop_tokenizer **out,
                       struct hop_error *err)
{
    char directory[] = "/tmp/hop-tokenizer-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    json_t *const root = json_of(base), *const patch = json_of(change);
    assert_int_equal(json_object_update_recursive(root, patch), 0);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(patch);
    json_decref(root);
    *err = (struct hop_error){0};
    const hop_status status = hop_tokenizer_load(directory, out, err);
    unlink(path);
    rmdir(directory);
    return status;
}

static struct hop_tokenizer *loaded(const char *base, const char *change)
{
    struct hop_tokenizer *tokenizer = NULL;
    struct hop_error err;
    if (load(base, change, &tokenizer, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return tokenizer;
}

static void expect_ids(struct hop_tokenizer *tokenizer, const char *text, bool special,
                       const char *expected)
{
    struct hop_ids ids = {0};
    struct hop_string found = {0};
    struct hop_error err = {0};
    if (hop_tokenizer_encode(tokenizer, text, strlen(text), special, &ids, &err) != HOP_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(hop_string_printf(&found, &err, i ? " %d" : "%d", ids.data[i]), HOP_OK);
    assert_string_equal(hop_string_text(&found), expected);
    hop_string_free(&found);
    hop_ids_free(&ids);
}

static void expect_text(const struct hop_tokenizer *tokenizer, const int32_t *ids, size_t n,
                        bool skip_special, const char *expected)
{
    struct hop_string text = {0};
    struct hop_error err = {0};
    if (hop_tokenizer_decode(tokenizer, ids, n, skip_special, &text, &err) != HOP_OK)
        fail_msg("%s", err.message);
    assert_string_equal(hop_string_text(&text), expected);
    hop_string_free(&text);
}

#define EXPECT_TEXT(tokenizer, skip, expected, ...)                                                \
    expect_text(tokenizer, (const int32_t[]){__VA_ARGS__},                                         \
                sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t), skip, expected)

/* The SentencePiece-style file with a token for every byte. */
static struct hop_tokenizer *loaded_with_bytes(const char *change)
{
    struct hop_string all = {0};
    struct hop_error err = {0};
    assert_int_equal(hop_string_printf(&all, &err, "{'model': {'vocab': {"), HOP_OK);
    for (int byte = 0; byte < 256; byte++)
        if (byte != 0xC3 && byte != 0xA9)
            assert_int_equal(hop_string_printf(&all, &err, "%s'<0x%02X>': %d", byte ? ", " : "",
                                               byte, 100 + byte),
                             HOP_OK);
    assert_int_equal(hop_string_printf(&all, &err, "}}, %s", change + 1), HOP_OK);
    struct hop_tokenizer *const t = loaded(sentencepiece, hop_string_text(&all));
    hop_string_free(&all);
    return t;
}

static void encodes_byte_level(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = loaded(byte_level, "{}");
    expect_ids(t, "", false, "");
    expect_ids(t, "", true, "20");
    expect_ids(t, "ab abc", false, "4 3 5");
    expect_ids(t, "abc ab", true, "5 6 20");
    expect_ids(t, "aaaaaaa", false, "10 8 0");
    expect_ids(t, "cab", false, "2 4");
    expect_ids(t, "a<end>b", false, "0 20 1");
    expect_ids(t, "\xC3\xA9", false, "11 12");
    expect_ids(t, "azb", false, "4"); /* no token and no unk_token: the letter vanishes */
    assert_int_equal(hop_tokenizer_vocabulary(t), 21);
    assert_int_equal(hop_tokenizer_id(t, "abc"), 5);
    assert_int_equal(hop_tokenizer_id(t, "<end>"), 20);
    assert_int_equal(hop_tokenizer_id(t, "abcd"), -1);
    hop_tokenizer_free(t);
}

static void decodes_byte_level(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = loaded(byte_level, "{}");
    EXPECT_TEXT(t, false, "ab abc<end>", 4, 3, 5, 20);
    EXPECT_TEXT(t, true, "ab abc", 4, 3, 5, 20);
    EXPECT_TEXT(t, false, "\xC3\xA9", 11, 12);
    EXPECT_TEXT(t, false,
                "a\xEF\xBF\xBD"
                "b\xEF\xBF\xBD",
                0, 11, 1, 12);
    expect_text(t, NULL, 0, false, "");
    hop_tokenizer_free(t);
}

static void encodes_sentencepiece(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = loaded(sentencepiece, "{}");
    expect_ids(t, "", false, "");
    expect_ids(t, "ab", true, "1 9");
    expect_ids(t, "ab  ab", false, "9 4 9");
    expect_ids(t, "   ", false, "11 11");
    expect_ids(t, "a\xC3\xA9", false, "7 2 3");
    expect_ids(t, "a\xE4\xB8\x80\xE4\xB8\x81", false, "7 0"); /* unknown ones fuse */
    expect_ids(t, "a<s>b", false, "7 1 4 6");
    hop_tokenizer_free(t);
    struct hop_tokenizer *const apart = loaded(sentencepiece, "{'model': {'fuse_unk': false}}");
    expect_ids(apart, "a\xE4\xB8\x80\xE4\xB8\x81", false, "7 0 0");
    hop_tokenizer_free(apart);
}

static void decodes_sentencepiece(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = loaded(sentencepiece, "{}");
    EXPECT_TEXT(t, false, "ab ab", 9, 9);
    EXPECT_TEXT(t, false,
                "a\xC3\xA9"
                "b",
                7, 2, 3, 6);
    EXPECT_TEXT(t, false, "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 7, 2, 3, 3);
    EXPECT_TEXT(t, true, "ab", 1, 9);
    EXPECT_TEXT(t, false, "<s> ab", 1, 9);
    hop_tokenizer_free(t);
}

static void reads_other_spellings(void **state)
{
    (void)state;
    struct hop_tokenizer *t = loaded(byte_level, "{'model': {'ignore_merges': true}}");
    expect_ids(t, "cab", false, "14");
    hop_tokenizer_free(t);
    t = loaded(byte_level, "{'model': {'merges': [['a', 'b'], ['ab', 'c']]}}");
    expect_ids(t, "abc", false, "5");
    hop_tokenizer_free(t);
    t = loaded(byte_level, "{'pre_tokenizer': {'add_prefix_space': true}}");
    expect_ids(t, "ab", false, "6");
    hop_tokenizer_free(t);
    t = loaded(byte_level,
               "{'truncation': {'max_length': 1}, 'padding': {'strategy': {'Fixed': 9}}}");
    expect_ids(t, "cab", false, "2 4");
    hop_tokenizer_free(t);
    t = loaded(byte_level, "{'normalizer': {'type': 'Lowercase'}}");
    expect_ids(t, "ABC", false, "5");
    hop_tokenizer_free(t);
    t = loaded(sentencepiece, "{'normalizer': null, 'decoder': {'type': 'Metaspace',"
                              " 'replacement': '\\u2581', 'prepend_scheme': 'first'},"
                              " 'pre_tokenizer': {'type': 'Metaspace', 'replacement': '\\u2581',"
                              " 'prepend_scheme': 'first', 'split': false}}");
    expect_ids(t, "ab ab<s>ab", false, "9 9 1 8");
    EXPECT_TEXT(t, false, "ab ab", 9, 9);
    hop_tokenizer_free(t);
}

static void finds_added_tokens(void **state)
{
    (void)state;
    struct hop_tokenizer *t =
        loaded(byte_level, "{'added_tokens': [{'id': 20, 'content': '<end>', 'normalized': false},"
                           " {'id': 21, 'content': '<end>x', 'normalized': false},"
                           " {'id': 22, 'content': '<l>', 'normalized': false, 'lstrip': true},"
                           " {'id': 23, 'content': '<r>', 'normalized': false, 'rstrip': true},"
                           " {'id': 24, 'content': 'ac', 'normalized': false, 'single_word': true},"
                           " {'id': 25, 'content': 'BB', 'normalized': true}],"
                           " 'normalizer': {'type': 'Lowercase'}}");
    expect_ids(t, "<end>x<end>", false, "21 20");
    expect_ids(t, "a  <l> a", false, "0 22 3 0");
    expect_ids(t, "a <r>  a", false, "0 3 23 0");
    expect_ids(t, "ac bac ac", false, "24 3 1 0 2 3 24");
    expect_ids(t, "abba", false, "0 25 0");
    EXPECT_TEXT(t, false, "abba", 0, 25, 0);
    assert_int_equal(hop_tokenizer_id(t, "BB"), 25);
    hop_tokenizer_free(t);
}

static void splits_as_the_pattern_says(void **state)
{
    (void)state;
    static const struct {
        const char *behavior, *ids;
    } cases[] = {
        {"Removed", "4 4"},          {"Isolated", "4 2 4"},   {"MergedWithPrevious", "5 4"},
        {"MergedWithNext", "4 2 4"}, {"Contiguous", "4 2 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char change[256];
        snprintf(change, sizeof change,
                 "{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '[c\\\\s]'},"
                 " 'behavior': '%s', 'invert': false}}",
                 cases[i].behavior);
        struct hop_tokenizer *const t = loaded(byte_level, change);
        expect_ids(t, "abcab", false, cases[i].ids);
        hop_tokenizer_free(t);
    }
}

/* What PCRE2 would divide otherwise. The expected ids are those of the reference (Hugging Face
 * tokenizers 0.22.2) for the same files. */
static void patterns_mean_what_oniguruma_means(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *kept; /* matches are removed */
    } cases[] = {
        {"\\\\w", "a\xCC\x81.", "."},                             /* a mark is part of a word */
        {"\\\\w", "b\xE2\x85\xA7.\xE2\x91\xA0", ".\xE2\x91\xA0"}, /* VIII is, circled 1 is not */
        {"\\\\w", "\xC2\xB2.", "."},                              /* superscript two is */
        {"[\\\\w]", "a\xC2\xB2", "\xC2\xB2"},                     /* but not inside of a class */
        {"\\\\W", "a\xCC\x81.", "a\xCC\x81"},
        {"\\\\b.", "a\xCC\x81 b", "\xCC\x81"},
        {"\\\\B.", "a\xCC\x81 b", "a b"},
        {"\\\\d", "1\xC2\xB2\xE2\x91\xA0", "\xC2\xB2\xE2\x91\xA0"},
        {"\\\\p{Han}", "\xE4\xB8\x80\xE3\x80\x81", "\xE3\x80\x81"}, /* a shared comma */
        {"\\\\p{Lu}", "A\xF0\x90\xB5\x90z", "z"},                   /* Garay, of Unicode 16 */
        {"\\\\P{L}", "a1\xF0\x90\xB5\x90", "a\xF0\x90\xB5\x90"},
        {"\\\\s", "a\xE1\xA0\x8E\xC2\xA0", "a\xE1\xA0\x8E"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char change[512];
        struct hop_ids ids = {0};
        struct hop_string text = {0};
        struct hop_error err = {0};
        snprintf(change, sizeof change,
                 "{'normalizer': null, 'decoder': {'type': 'Sequence', 'decoders':"
                 " [{'type': 'ByteFallback'}, {'type': 'Fuse'}]},"
                 " 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '%s'},"
                 " 'behavior': 'Removed', 'invert': false}}",
                 cases[i].pattern);
        struct hop_tokenizer *const t = loaded_with_bytes(change);
        assert_int_equal(
            hop_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), false, &ids, &err),
            HOP_OK);
        assert_int_equal(hop_tokenizer_decode(t, ids.data, ids.count, false, &text, &err), HOP_OK);
        if (strcmp(hop_string_text(&text), cases[i].kept))
            fail_msg("%s leaves \"%s\" of \"%s\"", cases[i].pattern, hop_string_text(&text),
                     cases[i].text);
        hop_string_free(&text);
        hop_ids_free(&ids);
        hop_tokenizer_free(t);
    }
}

/* Matches without text stand between characters and join their neighbours like any match. */
static void joins_matches_without_text(void **state)
{
    (void)state;
    static const struct {
        const char *behavior, *ids;
    } cases[] = {{"MergedWithPrevious", "0 1"}, {"MergedWithNext", "0 1"}, {"Isolated", "0 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char change[256];
        snprintf(change, sizeof change,
                 "{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': 'c*'},"
                 " 'behavior': '%s', 'invert': false}}",
                 cases[i].behavior);
        struct hop_tokenizer *const t = loaded(byte_level, change);
        expect_ids(t, "ab", false, cases[i].ids);
        hop_tokenizer_free(t);
    }
}

/* ---- what is refused ---- */

static void refuses_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *change;
        hop_status status;
        const char *message; /* a part of it */
    } cases[] = {
        {"{'normalizer': {'type': 'Nmt'}}", HOP_UNSUPPORTED, "normalizer of type \"Nmt\""},
        {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': "
         "'CharDelimiterSplit'}]}}",
         HOP_UNSUPPORTED, "pre_tokenizer of type \"CharDelimiterSplit\""},
        {"{'post_processor': {'type': 'BertProcessing'}}", HOP_UNSUPPORTED,
         "post_processor of type \"BertProcessing\""},
        {"{'decoder': {'type': 'CTC'}}", HOP_UNSUPPORTED, "decoder of type \"CTC\""},
        {"{'decoder': {'type': 7}}", HOP_INPUT, "decoder must be an object with a \"type\""},
        {"{'model': {'type': 'Unigram'}}", HOP_UNSUPPORTED, "\"Unigram\""},
        {"{'model': {'dropout': 0.1}}", HOP_UNSUPPORTED, "dropout"},
        {"{'model': {'continuing_subword_prefix': '##'}}", HOP_UNSUPPORTED,
         "continuing_subword_prefix \"##\""},
        {"{'model': {'end_of_word_suffix': '</w>'}}", HOP_UNSUPPORTED, "end_of_word_suffix"},
        {"{'model': null}", HOP_INPUT, "\"model\""},
        {"{'model': {'vocab': null}}", HOP_INPUT, "model.vocab"},
        {"{'model': {'vocab': {'x': 1}}}", HOP_INPUT, "id 1 is used twice"},
        {"{'model': {'vocab': {'x': -1}}}", HOP_INPUT, "id -1"},
        {"{'model': {'vocab': {'x': 99999999999}}}", HOP_INPUT, "id 99999999999"},
        {"{'model': {'vocab': {'x': 'y'}}}", HOP_INPUT, "must be an integer"},
        {"{'model': {'merges': null}}", HOP_INPUT, "model.merges must be a list"},
        {"{'model': {'merges': ['a b', 'a q']}}", HOP_INPUT, "model.merges[1] names \"q\""},
        {"{'model': {'merges': ['q a']}}", HOP_INPUT, "model.merges[0] names \"q\""},
        {"{'model': {'merges': [['b', 'a']]}}", HOP_INPUT, "model.merges[0] names \"ba\""},
        {"{'model': {'merges': ['ab']}}", HOP_INPUT, "model.merges[0]"},
        {"{'model': {'merges': ['a b c']}}", HOP_INPUT, "model.merges[0]"},
        {"{'model': {'merges': [['a', 1]]}}", HOP_INPUT, "model.merges[0]"},
        {"{'added_tokens': 1}", HOP_INPUT, "added_tokens must be a list"},
        {"{'added_tokens': [1]}", HOP_INPUT, "added_tokens[0]"},
        {"{'added_tokens': [{'content': 'x'}]}", HOP_INPUT, "id -1"},
        {"{'added_tokens': [{'id': 3, 'content': 'x'}]}", HOP_INPUT, "id 3 is used twice"},
        {"{'added_tokens': [{'id': 30, 'content': 'a'}]}", HOP_INPUT, "has two ids, 0 and 30"},
        {"{'post_processor': {'special_tokens': {'<end>': {'ids': [9]}}}}", HOP_INPUT, "<end>"},
        {"{'post_processor': {'single': [{'Sequence': {'id': 'B'}}]}}", HOP_INPUT, "\"single\""},
        {"{'post_processor': {'single': []}}", HOP_INPUT, "\"single\""},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated', 'pattern': {'Regex': '('}}}",
         HOP_UNSUPPORTED, "pattern \"(\""},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated',"
         " 'pattern': {'Regex': '[a-z&&[^b]]'}}}",
         HOP_UNSUPPORTED, "\"&&\" at byte 4"},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated',"
         " 'pattern': {'Regex': '[[:alpha:]]'}}}",
         HOP_UNSUPPORTED, "\"[:\" at byte 1"},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated',"
         " 'pattern': {'Regex': '[\\\\w\\\\W]'}}}",
         HOP_UNSUPPORTED, "\"\\W\" at byte 3"},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated', 'pattern': {'Regex': "
         "'a\\\\C'}}}",
         HOP_UNSUPPORTED, "pattern \"a\\C\""},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Apart', 'pattern': {'String': 'a'}}}",
         HOP_INPUT, "behavior"},
        {"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated', 'pattern': {'String': ''}}}",
         HOP_INPUT, "pattern"},
        {"{'normalizer': {'type': 'Prepend'}}", HOP_INPUT, "prepend"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_tokenizer *tokenizer = NULL;
        struct hop_error err;
        const hop_status status = load(byte_level, cases[i].change, &tokenizer, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].message) ||
            !strstr(err.message, "tokenizer.json"))
            fail_msg("%s: %s", cases[i].change, err.message);
        assert_null(tokenizer);
    }
}

static void refuses_missing_file(void **state)
{
    (void)state;
    struct hop_tokenizer *tokenizer = NULL;
    struct hop_error err = {0};
    assert_int_equal(hop_tokenizer_load("/nonexistent", &tokenizer, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "/nonexistent/tokenizer.json"));
    assert_null(tokenizer);
    hop_tokenizer_free(NULL);
    hop_ids_free(NULL);
}

static void refuses_text_that_is_not_utf8(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "ab\xFF",     "ab\xC3",
        "ab\xC0\x80", "ab\xED\xA0\x80",
        "ab\xE2\x96", "ab\xF4\x90\x80\x80",
        "ab\x80",     "ab\xF5\x80\x80\x80",
    };
    struct hop_tokenizer *const t = loaded(byte_level, "{}");
    struct hop_ids ids = {0};
    struct hop_error err = {0};
    assert_int_equal(hop_ids_append(&ids, 7, &err), HOP_OK);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        err = (struct hop_error){0};
        assert_int_equal(hop_tokenizer_encode(t, texts[i], strlen(texts[i]), true, &ids, &err),
                         HOP_INPUT);
        assert_non_null(strstr(err.message, "byte 3"));
        assert_int_equal(ids.count, 1);
    }
    hop_ids_free(&ids);
    hop_tokenizer_free(t);
}

static void refuses_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    static const int32_t bad[] = {21, -1, 9, INT32_MAX, INT32_MIN}; /* 9 is a gap */
    struct hop_tokenizer *const t = loaded(byte_level, "{}");
    struct hop_string text = {0};
    struct hop_error err = {0};
    assert_int_equal(hop_string_append(&text, "x", 1, &err), HOP_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int32_t ids[] = {0, bad[i]};
        assert_int_equal(hop_tokenizer_decode(t, ids, 2, false, &text, &err), HOP_INPUT);
        assert_non_null(strstr(err.message, "token 2"));
        assert_string_equal(hop_string_text(&text), "x");
    }
    hop_string_free(&text);
    hop_tokenizer_free(t);
}

/* ---- long lines ---- */

static double seconds_to_encode(struct hop_tokenizer *tokenizer, const char *unit, size_t bytes)
{
    struct hop_string line = {0};
    struct hop_ids ids = {0};
    struct hop_error err = {0};
    double best = 1e9;
    while (line.length < bytes)
        assert_int_equal(hop_string_append(&line, unit, strlen(unit), &err), HOP_OK);
    for (int i = 0; i < 3; i++) {
        ids.count = 0;
        const clock_t start = clock();
        assert_int_equal(hop_tokenizer_encode(tokenizer, line.data, line.length, false, &ids, &err),
                         HOP_OK);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        best = seconds < best ? seconds : best;
    }
    assert_true(ids.count > 0);
    hop_ids_free(&ids);
    hop_string_free(&line);
    return best;
}

/* Sixteen times the text takes 16 to 30 times the processor's time, as it no longer fits its
 * caches; a quadratic step would take 256 times. */
static void assert_linear(struct hop_tokenizer *t, const char *unit)
{
    const double small = seconds_to_encode(t, unit, 64 << 10);
    const double large = seconds_to_encode(t, unit, 1 << 20);
    print_message("1 MB of \"%.8s\": %.3f s\n", unit, large);
    if (large > 60 * small)
        fail_msg("1 MB of \"%s\": %.3f s, 64 KB: %.3f s", unit, large, small);
}

static void long_lines_take_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ", "ab", "ab ", "<ena", "<end>", "\xC3\xA9"};
    static const char *const files[] = {byte_level, sentencepiece};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct hop_tokenizer *const t = loaded(files[f], "{}");
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            assert_linear(t, units[i]);
        hop_tokenizer_free(t);
    }
}

/* Llama 3's pattern and some thousand merges: one word of a megabyte. */
static void long_words_take_linear_time(void **state)
{
    (void)state;
    enum { LETTERS = 4096 };
    char letters[LETTERS + 1] = {0};
    uint32_t random = 1;
    struct hop_tokenizer *t = NULL;
    struct hop_error err = {0};
    for (int i = 0; i < LETTERS; i++) {
        random = random * 1664525u + 1013904223u;
        letters[i] = (char)('a' + (random >> 16) % 26);
    }
    const char *const units[] = {"a",           " ", "\n", "1", "!", letters, "\xF0\x9F\x98\x80",
                                 "\xE4\xB8\x80"};
    assert_int_equal(hop_tokenizer_load(HOP_SOURCE_DIR "/models/wordnet-3m", &t, &err), HOP_OK);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        assert_linear(t, units[i]);
    hop_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_gpt2),
        cmocka_unit_test(vectors_of_llama2),
        cmocka_unit_test(vectors_of_stories),
        cmocka_unit_test(vectors_of_llama3),
        cmocka_unit_test(encodes_byte_level),
        cmocka_unit_test(decodes_byte_level),
        cmocka_unit_test(encodes_sentencepiece),
        cmocka_unit_test(decodes_sentencepiece),
        cmocka_unit_test(reads_other_spellings),
        cmocka_unit_test(finds_added_tokens),
        cmocka_unit_test(splits_as_the_pattern_says),
        cmocka_unit_test(patterns_mean_what_oniguruma_means),
        cmocka_unit_test(joins_matches_without_text),
        cmocka_unit_test(refuses_bad_files),
        cmocka_unit_test(refuses_missing_file),
        cmocka_unit_test(refuses_text_that_is_not_utf8),
        cmocka_unit_test(refuses_ids_outside_the_vocabulary),
        cmocka_unit_test(long_lines_take_linear_time),
        cmocka_unit_test(long_words_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
