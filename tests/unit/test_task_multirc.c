#include "support_dataset.h"
#include "support_files.h"
#include "support_mutation.h"

#include <stdlib.h>

#include "base/string.h"
#include "data/multirc_metrics.h"

static struct hop_error err;

static struct hop_dataset_options options(int32_t max_length, size_t limit)
{
    return (struct hop_dataset_options){
        .task = HOP_TASK_MULTIRC, .max_length = max_length, .eos = HOP_TEST_EOS, .limit = limit};
}

static struct hop_dataset *load(struct hop_tokenizer *t, const char *path, int32_t max_length,
                                size_t limit)
{
    struct hop_dataset *out = NULL;
    const struct hop_dataset_options with = options(max_length, limit);
    ASSERT_OK(hop_dataset_load(path, t, &with, &out, &err));
    return out;
}

/* The same two questions, three and two answers, in every form a file may have. */
#define SUPERGLUE_ROW(end)                                                                         \
    "{\"idx\": 4, \"version\": 1.1, \"passage\": {\"text\": \"It rained. All day. \", "            \
    "\"questions\": [{\"question\": \"When?\", \"idx\": 0, \"answers\": [{\"text\": \"All day\", " \
    "\"idx\": 0, \"label\": 1}, {\"text\": \"\", \"idx\": 1, \"label\": 0}, {\"text\": "           \
    "\"\\u00e9t\\u00e9 \\\"2\\\"\", \"idx\": 2, \"label\": 0}]}, {\"question\": \"What?\", "       \
    "\"idx\": 1, \"answers\": [{\"text\": \"rain\", \"idx\": 3, \"label\": 1}, {\"text\": "        \
    "\"snow\", \"idx\": 4, \"label\": 0}]}]}}" end
#define ORIGINAL                                                                                   \
    "{\"data\": [\r\n {\"id\": \"a/b.txt\", \"paragraph\": {\"text\": \"<b>Sent 1: </b>It "        \
    "rained.<br><b>Sent 12: </b>All day.<br>\",\r\n \"questions\": [{\"question\": \"When?\", "    \
    "\"sentences_used\": [0], \"multisent\": true, \"answers\": [{\"text\": \"All day\", "         \
    "\"isAnswer\": true}, {\"text\": \"\", \"isAnswer\": false}, {\"text\": \"\u00e9t\u00e9 "      \
    "\\\"2\\\"\", \"isAnswer\": 0}]},\r\n {\"question\": \"What?\", \"answers\": [{\"text\": "     \
    "\"rain\", \"isAnswer\": 1}, {\"text\": \"snow\", \"isAnswer\": false}]}]}}]}\r\n"

static const char *const forms[] = {
    SUPERGLUE_ROW("\n"),
    "\xef\xbb\xbf\r\n" SUPERGLUE_ROW("\r\n"),
    ORIGINAL,
    "\xef\xbb\xbf" ORIGINAL,
};

static const struct {
    const char *question, *answer, *label;
    int32_t group;
} rows[] = {
    {"When?", "All day", "Yes", 0},
    {"When?", "", "No", 0},
    {"When?", "\u00e9t\u00e9 \"2\"", "No", 0},
    {"What?", "rain", "Yes", 1},
    {"What?", "snow", "No", 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void assert_row(struct hop_tokenizer *t, const struct hop_example *e, size_t i)
{
    struct hop_string prompt = {0};
    ASSERT_OK(hop_string_printf(&prompt, &err,
                                "It rained. All day. \nQuestion: %s\nI found this answer \"%s\". "
                                "Is that correct? Yes or No?\n",
                                rows[i].question, rows[i].answer));
    hop_test_pair(t, e, prompt.data, rows[i].label);
    assert_int_equal(e->answer, strcmp(rows[i].label, "Yes") == 0);
    assert_int_equal(e->group, rows[i].group);
    hop_string_free(&prompt);
}

static void test_forms(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        struct hop_dataset *const d = load(t, hop_test_write_text("data", forms[f]), 0, 0);
        assert_int_equal(d->count, ROWS);
        assert_int_equal(d->rows, ROWS);
        assert_int_equal(d->group_count, 2);
        assert_int_equal(d->label_count, 2);
        assert_string_equal(d->label_names[HOP_MULTIRC_NO], "No");
        assert_string_equal(d->label_names[HOP_MULTIRC_YES], "Yes");
        assert_null(d->references);
        for (size_t i = 0; i < ROWS; i++)
            assert_row(t, &d->examples[i], i);
        hop_dataset_free(d);
    }
    hop_tokenizer_free(t);
}

/* Only sentence marks are taken out of the original's text. */
static void test_marks(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset *const d = load(
        t,
        hop_test_write_text(
            "data", "{\"data\": [{\"id\": \"a\", \"paragraph\": {\"text\": \"<b>Sent 1: </b>x < y, "
                    "<b>Sent: </b><b>Sent 2:</b><br/><br>\", \"questions\": [{\"question\": \"q\", "
                    "\"answers\": [{\"text\": \"a\", \"isAnswer\": true}]}]}}]}"),
        0, 0);
    hop_test_pair(t, d->examples,
                  "x < y, <b>Sent: </b><b>Sent 2:</b><br/> \nQuestion: q\nI found this answer "
                  "\"a\". Is that correct? Yes or No?\n",
                  "Yes");
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

static void test_limit_keeps_questions_whole(void **state)
{
    (void)state;
    static const size_t limits[] = {1, 2, 3, 4, 5, 9}, rows_read[] = {1, 2, 3, 3, 5, 5};
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    const char *const path = hop_test_write_text("data", forms[0]);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct hop_dataset *const d = load(t, path, 0, limits[i]);
        assert_int_equal(d->rows, rows_read[i]);
        assert_int_equal(d->group_count, rows_read[i] > 3 ? 2 : 1);
        hop_dataset_free(d);
    }
    hop_tokenizer_free(t);
}

/* A passage that is too long loses its end; its head, the question and the label stay. */
static void test_cut(void **state)
{
    (void)state;
    enum { LIMIT = 60 };
    struct hop_tokenizer *const t = hop_test_tokenizer();
    struct hop_string text = {0};
    if (!t)
        skip();
    const char *const path = hop_test_write_text(
        "data", "{\"passage\": {\"text\": \"The head. Then many people went to many places and did "
                "many things, and others saw them go there and come back from there, and all of "
                "them told it to more people until the tail\", \"questions\": [{\"question\": "
                "\"Who?\", \"answers\": [{\"text\": \"people\", \"label\": 1}]}]}}\n");
    struct hop_dataset *const d = load(t, path, LIMIT, 0);
    const struct hop_example *const e = &d->examples[0];
    assert_int_equal(d->truncated, 1);
    assert_true(e->length <= LIMIT);
    ASSERT_OK(hop_tokenizer_decode(t, e->ids, (size_t)e->length, true, &text, &err));
    assert_non_null(strstr(text.data, "The head."));
    assert_null(strstr(text.data, "tail"));
    assert_non_null(strstr(text.data, "\nQuestion: Who?\nI found this answer \"people\". Is that "
                                      "correct? Yes or No?\n"));
    text.length = 0;
    ASSERT_OK(hop_tokenizer_decode(t, e->ids + e->prompt_length,
                                   (size_t)(e->length - e->prompt_length), true, &text, &err));
    assert_non_null(strstr(text.data, "Yes"));
    hop_string_free(&text);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* A question longer than the whole row leaves nothing to learn: counted, not an error. */
static void test_question_too_long(void **state)
{
    (void)state;
    struct hop_string file = {0};
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    ASSERT_OK(hop_string_printf(&file, &err, "%s", forms[0]));
    ASSERT_OK(hop_string_printf(
        &file, &err, "{\"passage\": {\"text\": \"T\", \"questions\": [{\"question\": \""));
    for (int i = 0; i < 20000; i++)
        ASSERT_OK(hop_string_append(&file, "word ", 5, &err));
    ASSERT_OK(
        hop_string_printf(&file, &err, "\", \"answers\": [{\"text\": \"a\", \"label\": 1}]}]}}\n"));
    struct hop_dataset *const d = load(t, hop_test_write_text("data", file.data), 100, 0);
    assert_int_equal(d->rows, ROWS + 1);
    assert_int_equal(d->count, ROWS);
    assert_int_equal(d->unlabeled, 1);
    assert_int_equal(d->group_count, 2);
    hop_string_free(&file);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

#define ROW_OF(questions) "{\"passage\": {\"text\": \"T\", \"questions\": [" questions "]}}\n"
#define ITEM_OF(content)  "{\"data\":\n[{\"id\": \"a\", \"paragraph\": " content "}]}"

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "bad: the file is empty"},
        {"\n\n", "bad:"},
        {"[]", "bad: neither SuperGLUE's MultiRC (JSON lines with \"passage\") nor the original"},
        {"{\n\"passages\": []}", "bad: neither SuperGLUE's MultiRC"},
        {"{\"data\": []}", "bad: the file has no question"},
        {"{\"text\": \"a\"}\n", "bad:1: \"passage\" is missing; it must be an object"},
        {"{\"passage\": 3}\n", "bad:1: \"passage\" must be an object"},
        {"{\"passage\": {\"questions\": []}}\n", "bad:1: passage: \"text\" is missing"},
        {"{\"passage\": {\"text\": \"\"}}\n", "bad:1: passage: \"questions\" is missing"},
        {ROW_OF(""), "bad: the file has no question"},
        {ROW_OF("3"), "bad:1: passage.questions[0]: must be an object with \"question\""},
        {ROW_OF("{\"answers\": []}"), "bad:1: passage.questions[0]: \"question\" is missing"},
        {ROW_OF("{\"question\": \"q\"}"), "bad:1: passage.questions[0]: \"answers\" is missing"},
        {ROW_OF("{\"question\": \"q\", \"answers\": []}"), "questions[0]: \"answers\" is empty"},
        {"\n" ROW_OF("{\"question\": \"q\", \"answers\": [{\"label\": 1}]}"),
         "bad:2: passage.questions[0].answers[0]: \"text\" is missing"},
        {ROW_OF("{\"question\": \"q\", \"answers\": [{\"text\": \"a\"}]}"),
         "answers[0]: \"label\" is missing or not 0, 1, true or false; a test set"},
        {ROW_OF("{\"question\": \"q\", \"answers\": [{\"text\": \"a\", \"label\": 2}]}"),
         "answers[0]: \"label\" is missing or not 0, 1"},
        {SUPERGLUE_ROW("\n\n") "{\"passage\"\n", "bad:3: not valid JSON"},
        {"{\"data\": {}}", "bad: neither"},
        {"{\"data\":\n[3]}", "bad: data[0]: must be an object with \"paragraph\""},
        {"{\"data\":\n[{\"paragraph\": {}}]}", "bad: data[0]: \"id\" is missing"},
        {ITEM_OF("{}"), "bad: data[0].paragraph: \"text\" is missing"},
        {ITEM_OF("{\"text\": \"\", \"questions\": [{\"question\": \"q\", \"answers\": [{\"text\": "
                 "\"a\", \"isAnswer\": \"yes\"}]}]}"),
         "bad: data[0].paragraph.questions[0].answers[0]: \"isAnswer\" is missing or not 0, 1"},
        {"{\"data\":\n[}", "bad:2:2: not valid JSON"},
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

static void test_without_tokenizer_or_with_labels(void **state)
{
    (void)state;
    static const char *const labels[] = {"Yes"};
    struct hop_dataset *dataset = NULL;
    struct hop_dataset_options with = options(0, 0);
    const char *const path = hop_test_write_text("data", forms[2]);
    ASSERT_REFUSED(hop_dataset_load(path, NULL, &with, &dataset, &err), HOP_INPUT,
                   "data: data[0].paragraph.questions[0]: the row is text, but the model has no");
    with.labels = labels;
    with.label_count = 1;
    ASSERT_REFUSED(hop_dataset_load(path, NULL, &with, &dataset, &err), HOP_INPUT,
                   "data.labels has no effect on multirc");
}

/* ---- the public files ---- */

static int compare_examples(const void *left, const void *right)
{
    const struct hop_example *const a = left, *const b = right;
    const int32_t shorter = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->ids, b->ids, (size_t)shorter * sizeof *a->ids);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static void test_public_forms_are_the_same_rows(void **state)
{
    (void)state;
    const char *const paths[] = {hop_test_data("multirc/dev_83-fixedIds.json"),
                                 hop_test_data("multirc/val.jsonl")};
    struct hop_tokenizer *const t = paths[0] && paths[1] ? hop_test_tokenizer() : NULL;
    struct hop_dataset *d[2];
    if (!t)
        skip();
    for (int i = 0; i < 2; i++) {
        d[i] = load(t, paths[i], 0, 0);
        assert_int_equal(d[i]->count, 4848);
        assert_int_equal(d[i]->group_count, 953);
        qsort(d[i]->examples, d[i]->count, sizeof *d[i]->examples, compare_examples);
    }
    for (size_t e = 0; e < d[0]->count; e++) {
        assert_int_equal(compare_examples(&d[0]->examples[e], &d[1]->examples[e]), 0);
        assert_int_equal(d[0]->examples[e].answer, d[1]->examples[e].answer);
    }
    hop_dataset_free(d[0]);
    hop_dataset_free(d[1]);
    hop_tokenizer_free(t);
}

/* Scores of an evaluation; "every answer is right" scores what the official script says of
 * allOnes.json. */
static void test_dataset_scores(void **state)
{
    (void)state;
    const char *const path = hop_test_data("multirc/val.jsonl");
    struct hop_tokenizer *const t = path ? hop_test_tokenizer() : NULL;
    if (!t)
        skip();
    struct hop_dataset *const d = load(t, path, 384, 0);
    int32_t *const predicted = calloc(d->count, sizeof *predicted);
    assert_int_equal(d->count, 4848);
    for (size_t e = 0; e < d->count; e++)
        predicted[e] = HOP_MULTIRC_YES;
    const struct hop_multirc_scores ones = hop_multirc_dataset_scores(d, predicted);
    assert_int_equal(ones.questions, 953);
    ASSERT_NEAR(ones.em0, 0.008394543546694649, 1e-12);
    ASSERT_NEAR(ones.em1, 0.1825813221406086, 1e-12);
    ASSERT_NEAR(ones.f1m, 0.6100120618883679, 1e-12);
    ASSERT_NEAR(ones.f1a, 0.5994511050122779, 1e-12);
    for (size_t e = 0; e < d->count; e++)
        predicted[e] = d->examples[e].answer;
    const struct hop_multirc_scores right = hop_multirc_dataset_scores(d, predicted);
    ASSERT_NEAR(right.em0, 1, 0);
    ASSERT_NEAR(right.f1m, 1, 0);
    ASSERT_NEAR(right.accuracy, 1, 0);
    free(predicted);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* ---- damaged files ---- */

static struct hop_tokenizer *shared_tokenizer;

static hop_status read_damaged(const char *path)
{
    struct hop_dataset *d;
    const struct hop_dataset_options with = options(40, 0);
    HOP_TRY(hop_dataset_load(path, shared_tokenizer, &with, &d, &err));
    assert_in_range(d->count, 1, d->rows);
    for (size_t e = 0; e < d->count; e++)
        assert_in_range(d->examples[e].group, 0, d->group_count - 1);
    hop_dataset_free(d);
    return HOP_OK;
}

static void test_damaged(void **state)
{
    (void)state;
    shared_tokenizer = hop_test_tokenizer();
    if (!shared_tokenizer)
        skip();
    hop_test_mutate_text("damaged.jsonl", forms[1], read_damaged, &err);
    hop_test_mutate_text("damaged.json", forms[3], read_damaged, &err);
    hop_tokenizer_free(shared_tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_limit_keeps_questions_whole),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_question_too_long),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_without_tokenizer_or_with_labels),
        cmocka_unit_test(test_public_forms_are_the_same_rows),
        cmocka_unit_test(test_dataset_scores),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
