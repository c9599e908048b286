#include "support_dataset.h"
#include "support_files.h"
#include "support_mutation.h"

#include <stdlib.h>

#include "base/string.h"
#include "data/squad_metrics.h"

static struct hop_error err;

static struct hop_dataset_options options(int32_t max_length, size_t limit)
{
    return (struct hop_dataset_options){
        .task = HOP_TASK_SQUAD, .max_length = max_length, .eos = HOP_TEST_EOS, .limit = limit};
}

static struct hop_dataset *load(struct hop_tokenizer *t, const char *path, int32_t max_length,
                                size_t limit)
{
    struct hop_dataset *out = NULL;
    const struct hop_dataset_options with = options(max_length, limit);
    ASSERT_OK(hop_dataset_load(path, t, &with, &out, &err));
    return out;
}

/* Offsets count code points: of the second answer, bytes would give 18, UTF-16 units 13. */
#define ARTICLE                                                                                    \
    "{\"title\": \"Some_Title\", \"paragraphs\": [{\"context\": \"\u00c9t\u00e9 "                  \
    "\\ud83d\\ude00 na\u00efve caf\u00e9.\", \"qas\": [{\"id\": \"q1\", \"question\": \" What? "   \
    "\\n\", \"answers\": [{\"text\": \"\u00c9t\u00e9\", \"answer_start\": 0}, {\"text\": "         \
    "\"caf\u00e9\", \"answer_start\": 12}]}, {\"id\": \"q2\", \"question\": \"Who?\", "            \
    "\"answers\": [{\"text\": \"nobody there\"}]}]},\r\n {\"context\": \"x\", \"qas\": [{\"id\": " \
    "\"q3\", \"question\": \"\", \"answers\": [{\"answer_start\": 0, \"text\": \"x\"}]}]}]}"
#define FILE_OF(articles) "{\"version\": \"1.1\", \"data\": [" articles "]}"

static void assert_row(struct hop_tokenizer *t, const struct hop_dataset *d, size_t i,
                       const char *context, const char *question, const char *answer)
{
    struct hop_string prompt = {0}, completion = {0};
    ASSERT_OK(hop_string_printf(
        &prompt, &err, "Title: Some_Title\nContext: %s\nQuestion: %s\nAnswer:", context, question));
    ASSERT_OK(hop_string_printf(&completion, &err, " %s\n", answer));
    hop_test_pair(t, &d->examples[i], prompt.data, completion.data);
    assert_int_equal(d->examples[i].answer, -1);
    assert_int_equal(d->examples[i].group, -1);
    hop_string_free(&prompt);
    hop_string_free(&completion);
}

static void test_rows(void **state)
{
    (void)state;
    static const char *const files[] = {FILE_OF(ARTICLE), "\xef\xbb\xbf" FILE_OF(ARTICLE) "\r\n"};
    static const char context[] = "\u00c9t\u00e9 \U0001F600 na\u00efve caf\u00e9.";
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    for (size_t f = 0; f < 2; f++) {
        struct hop_dataset *const d = load(t, hop_test_write_text("data", files[f]), 0, 0);
        assert_int_equal(d->count, 3);
        assert_int_equal(d->label_count, 0);
        assert_int_equal(d->group_count, 0);
        assert_row(t, d, 0, context, "What?", "\u00c9t\u00e9");
        assert_row(t, d, 1, context, "Who?", "nobody there");
        assert_row(t, d, 2, "x", "", "x");
        assert_string_equal(d->references[0].id, "q1");
        assert_int_equal(d->references[0].count, 2);
        assert_string_equal(d->references[0].golds[1], "caf\u00e9");
        assert_string_equal(d->references[2].id, "q3");
        assert_string_equal(d->references[2].golds[0], "x");
        hop_dataset_free(d);
    }
    hop_tokenizer_free(t);
}

static void test_limit(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset *const d =
        load(t, hop_test_write_text("data", FILE_OF(ARTICLE ", {\"broken\": 1}")), 0, 3);
    assert_int_equal(d->rows, 3);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* A context that is too long loses its end; title, question and answer stay. */
static void test_cut(void **state)
{
    (void)state;
    enum { LIMIT = 60 };
    struct hop_tokenizer *const t = hop_test_tokenizer();
    struct hop_string text = {0};
    if (!t)
        skip();
    const char *const path = hop_test_write_text(
        "data", FILE_OF("{\"title\": \"Head\", \"paragraphs\": [{\"context\": \"At first many "
                        "people went to many places and did many things, and others saw them go "
                        "there and come back from there, and all of them told it to more people "
                        "until the tail\", \"qas\": [{\"id\": \"q\", \"question\": \"Who went?\", "
                        "\"answers\": [{\"text\": \"many people\", \"answer_start\": 9}]}]}]}"));
    struct hop_dataset *const d = load(t, path, LIMIT, 0);
    const struct hop_example *const e = &d->examples[0];
    assert_int_equal(d->truncated, 1);
    assert_int_equal(e->length, LIMIT);
    ASSERT_OK(hop_tokenizer_decode(t, e->ids, (size_t)e->prompt_length, true, &text, &err));
    assert_non_null(strstr(text.data, "Title: Head\nContext: At first"));
    assert_null(strstr(text.data, "tail"));
    assert_non_null(strstr(text.data, "\nQuestion: Who went?\nAnswer:"));
    text.length = 0;
    ASSERT_OK(hop_tokenizer_decode(t, e->ids + e->prompt_length,
                                   (size_t)(e->length - e->prompt_length), true, &text, &err));
    assert_non_null(strstr(text.data, "many people\n"));
    hop_string_free(&text);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* References stay with their examples when a row in between is dropped. */
static void test_dropped_row(void **state)
{
    (void)state;
    struct hop_string file = {0};
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    static const char row[] = "{\"id\": \"%s\", \"question\": \"";
    ASSERT_OK(hop_string_printf(&file, &err, "%s",
                                "{\"data\": [{\"title\": \"T\", \"paragraphs\": [{\"context\": "
                                "\"x y\", \"qas\": ["));
    for (int q = 0; q < 3; q++) {
        ASSERT_OK(hop_string_printf(&file, &err, "%s", q ? "," : ""));
        ASSERT_OK(hop_string_printf(&file, &err, row, (const char *[]){"a", "b", "c"}[q]));
        for (int i = 0; q == 1 && i < 20000; i++)
            ASSERT_OK(hop_string_append(&file, "word ", 5, &err));
        ASSERT_OK(hop_string_printf(&file, &err, "\", \"answers\": [{\"text\": \"x\"}]}"));
    }
    ASSERT_OK(hop_string_append(&file, "]}]}]}", 6, &err));
    struct hop_dataset *const d = load(t, hop_test_write_text("data", file.data), 50, 0);
    assert_int_equal(d->rows, 3);
    assert_int_equal(d->count, 2);
    assert_int_equal(d->unlabeled, 1);
    assert_string_equal(d->references[0].id, "a");
    assert_string_equal(d->references[1].id, "c");
    hop_string_free(&file);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

#define PARAGRAPH_OF(content) FILE_OF("{\"title\": \"T\", \"paragraphs\": [" content "]}")
#define QA_OF(content)        PARAGRAPH_OF("{\"context\": \"\u00e9 cat\", \"qas\": [" content "]}")
#define ANSWER_OF(content)    QA_OF("{\"id\": \"q\", \"question\": \"Q\", \"answers\": [" content "]}")

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "bad: the file is empty"},
        {"{\"data\": 1}", "bad: \"data\" must be a list"},
        {FILE_OF(""), "bad: the file has no question"},
        {FILE_OF("{\"paragraphs\": []}"), "bad: the file has no question"},
        {FILE_OF("{\"paragraphs\": [{\"context\": \"\", \"qas\": [{\"id\": \"q\", \"question\": "
                 "\"\", \"answers\": [{\"text\": \"a\"}]}]}]}"),
         "bad: data[0]: \"title\" is missing; it must be a string"},
        {PARAGRAPH_OF("{\"qas\": [{\"id\": \"q\", \"answers\": [{\"text\": \"a\"}]}]}"),
         "bad: data[0].paragraphs[0]: \"context\" is missing"},
        {QA_OF("{\"id\": \"q\", \"answers\": [{\"text\": \"a\"}]}"),
         "bad: data[0].paragraphs[0].qas[0]: \"question\" is missing"},
        {QA_OF("{\"id\": \"q\", \"question\": \"Q\", \"answers\": [], \"is_impossible\": true}"),
         "qas[0]: \"answers\" is empty; in SQuAD v1.1 every question has an answer"},
        {ANSWER_OF("{}"), "qas[0].answers[0]: \"text\" is missing"},
        {ANSWER_OF("{\"text\": \"\"}"), "qas[0].answers[0]: \"text\" is empty"},
        {ANSWER_OF("{\"text\": \"cat\", \"answer_start\": 2}, {\"text\": \"cat\", "
                   "\"answer_start\": 3}"),
         "qas[0].answers[1]: the context holds \"at\" at character 3, not the answer \"cat\""},
        {ANSWER_OF("{\"text\": \"dog\", \"answer_start\": 2}"),
         "the context holds \"cat\" at character 2, not the answer \"dog\""},
        {ANSWER_OF("{\"text\": \"cats\", \"answer_start\": 2}"), "not the answer \"cats\""},
        {ANSWER_OF("{\"text\": \"cat\", \"answer_start\": 99}"), "holds \"\" at character 99"},
        {ANSWER_OF("{\"text\": \"cat\", \"answer_start\": -2}"),
         "\"answer_start\" must be an integer from 0"},
        {ANSWER_OF("{\"text\": \"cat\", \"answer_start\": 2.0}"),
         "\"answer_start\" must be an integer from 0"},
        {"{\"data\":\n [{\"title\": \"T\",,", "bad:2:"},
    };
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    const struct hop_dataset_options with = options(0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_dataset *dataset = NULL;
        const char *const path = hop_test_write_text("bad", cases[i].text);
        ASSERT_REFUSED(hop_dataset_load(path, t, &with, &dataset, &err), HOP_INPUT, cases[i].part);
        assert_null(dataset);
    }
    hop_tokenizer_free(t);
}

/* Braces that never end must not exhaust the stack. */
static void test_depth(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    struct hop_dataset *dataset = NULL;
    const struct hop_dataset_options with = options(0, 0);
    char *const text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    const char *const path = hop_test_write("bad", text, DEPTH);
    ASSERT_REFUSED(hop_dataset_load(path, NULL, &with, &dataset, &err), HOP_INPUT, "bad:1:");
    free(text);
}

static void test_without_tokenizer_or_with_labels(void **state)
{
    (void)state;
    static const char *const labels[] = {"Yes"};
    struct hop_dataset *dataset = NULL;
    struct hop_dataset_options with = options(0, 0);
    const char *const path = hop_test_write_text("data", FILE_OF(ARTICLE));
    ASSERT_REFUSED(hop_dataset_load(path, NULL, &with, &dataset, &err), HOP_INPUT,
                   "data: data[0].paragraphs[0].qas[0]: the row is text, but the model has no");
    with.labels = labels;
    with.label_count = 1;
    ASSERT_REFUSED(hop_dataset_load(path, NULL, &with, &dataset, &err), HOP_INPUT,
                   "data.labels has no effect on squad");
}

/* ---- the public files ---- */

/* First golds are exact; without an answer a question scores 0. */
static void check_scores(const struct hop_dataset *d)
{
    const char **const answers = calloc(d->count, sizeof *answers);
    struct hop_squad_scores scores = {0};
    for (size_t e = 0; e < d->count; e++)
        answers[e] = d->references[e].golds[0];
    ASSERT_OK(hop_squad_dataset_scores(d, answers, &scores, &err));
    assert_int_equal(scores.questions, d->count);
    ASSERT_NEAR(scores.exact_match, 100, 1e-9);
    for (size_t e = 0; e < d->count; e += 2)
        answers[e] = NULL;
    ASSERT_OK(hop_squad_dataset_scores(d, answers, &scores, &err));
    assert_int_equal(scores.missing, (d->count + 1) / 2);
    ASSERT_NEAR(scores.exact_match, 100 * (double)(d->count / 2) / (double)d->count, 1e-9);
    free(answers);
}

static void test_public_files(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        size_t questions, golds;
    } files[] = {{"squad/xquad.en.json", 1190, 1190}, {"squad/dev-v1.1.json", 10570, 34726}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *const path = hop_test_data(files[i].file);
        struct hop_tokenizer *const t = path ? hop_test_tokenizer() : NULL;
        size_t golds = 0;
        if (!t)
            skip();
        struct hop_dataset *const d = load(t, path, 1024, 0);
        assert_int_equal(d->count, files[i].questions);
        assert_true(d->longest <= 1024);
        for (size_t e = 0; e < d->count; e++)
            golds += d->references[e].count;
        assert_int_equal(golds, files[i].golds);
        check_scores(d);
        hop_dataset_free(d);
        hop_tokenizer_free(t);
    }
}

/* ---- damaged files ---- */

static struct hop_tokenizer *shared_tokenizer;

static hop_status read_damaged(const char *path)
{
    struct hop_dataset *d;
    const struct hop_dataset_options with = options(30, 0);
    HOP_TRY(hop_dataset_load(path, shared_tokenizer, &with, &d, &err));
    assert_in_range(d->count, 1, d->rows);
    for (size_t e = 0; e < d->count; e++)
        assert_true(d->references[e].id && d->references[e].count);
    hop_dataset_free(d);
    return HOP_OK;
}

static void test_damaged(void **state)
{
    (void)state;
    shared_tokenizer = hop_test_tokenizer();
    if (!shared_tokenizer)
        skip();
    hop_test_mutate_text("damaged.json", FILE_OF(ARTICLE), read_damaged, &err);
    hop_tokenizer_free(shared_tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_dropped_row),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_without_tokenizer_or_with_labels),
        cmocka_unit_test(test_public_files),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
