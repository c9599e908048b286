#include "support_files.h"
#include "support_mutation.h"

#include <stdio.h>

#include <jansson.h>

#include "data/jsonl_lines.h"
#include "data/predictions.h"
#include "data/squad_normalize.h"

static struct hop_error err;

static void assert_normal_form(const char *text, const char *expected)
{
    struct hop_string found = {0};
    ASSERT_OK(hop_squad_normalize(text, &found, &err));
    assert_string_equal(found.data, expected);
    hop_string_free(&found);
}

/* Expected values are Python's: ' '.join(re.sub(r'\b(a|an|the)\b', ' ', ...).split()). */
static void test_normal_form(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", ""},
        {" \t\n", ""},
        {"The cat.", "cat"},
        {"A", ""},
        {"an apple and a theme", "apple and theme"},
        {"a_b", "ab"},
        {"a-n", ""},
        {"the\u00a0cat\u3000sat\x1c\u2028on\xc2\x85"
         "it",
         "cat sat on it"},
        {"“the” –the– cat", "“ ” – – cat"},
        {"\u0130stanbul", "i\u0307stanbul"},
        {"\u00c9COLE", "\u00e9cole"},
        {"\u039f\u0394\u039f\u03a3 \u03a3 \u03a3\u03a3",
         "\u03bf\u03b4\u03bf\u03c2 \u03c3 \u03c3\u03c2"},
        {"A\u03a3. A\u03a3.b A\u0301\u03a3\u0301", "a\u03c2 a\u03c3b \u0301\u03c2\u0301"},
        {"a\u0301 a\u00b2 a\u0660 a\u200d", "\u0301 a\u00b2 a\u0660 \u200d"},
        {"\u212a the", "k"},
        {"thea the\u00aa", "thea the\u00aa"},
        {"cat\xff the \xe2\x82", "cat\ufffd \ufffd\ufffd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_normal_form(cases[i].text, cases[i].expected);
}

static void test_scores_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *golds[3];
        bool exact;
        double f1;
    } cases[] = {
        {"", {""}, true, 0},
        {"a", {"the"}, true, 0},
        {"", {"cat"}, false, 0},
        {"cat cat", {"cat"}, false, 2.0 / 3},
        {"cat dog cat", {"cat cat dog", "dog"}, false, 1},
        {"the red house", {"a house", "red House!"}, true, 1},
        {"one two three", {"three four", "zero"}, false, 0.4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_squad_score score = {0};
        size_t golds = 0;
        while (golds < 3 && cases[i].golds[golds])
            golds++;
        ASSERT_OK(hop_squad_score(cases[i].answer, cases[i].golds, golds, &score, &err));
        assert_int_equal(score.exact, cases[i].exact);
        ASSERT_NEAR(score.f1, cases[i].f1, 1e-15);
    }
    struct hop_squad_score none = {.exact = true};
    ASSERT_OK(hop_squad_score("x", NULL, 0, &none, &err));
    assert_false(none.exact);
}

/* ---- the reference values ---- */

static hop_status score_row(const json_t *row, struct hop_squad_score *out, struct hop_error *e)
{
    const char *golds[16];
    const json_t *const list = json_object_get(row, "golds");
    assert_in_range(json_array_size(list), 1, 16);
    for (size_t i = 0; i < json_array_size(list); i++)
        golds[i] = json_string_value(json_array_get(list, i));
    const char *const answer = json_string_value(json_object_get(row, "prediction"));
    return hop_squad_score(answer, golds, json_array_size(list), out, e);
}

static hop_status check_row(void *context, const struct hop_jsonl_line *line, bool *more,
                            struct hop_error *e)
{
    struct hop_squad_score score = {0};
    (void)more;
    HOP_TRY(score_row(line->row, &score, e));
    assert_normal_form(json_string_value(json_object_get(line->row, "prediction")),
                       json_string_value(json_object_get(line->row, "normalized")));
    if (score.exact != json_is_true(json_object_get(line->row, "em")))
        fail_msg("%s: exact is %d", line->where, score.exact);
    ASSERT_NEAR(score.f1, json_number_value(json_object_get(line->row, "f1")), 1e-15);
    ++*(size_t *)context;
    return HOP_OK;
}

static void test_oracle(void **state)
{
    (void)state;
    size_t rows = 0;
    const char *const path = hop_test_data("squad/metric_oracle.jsonl");
    if (!path)
        skip();
    ASSERT_OK(hop_jsonl_read(path, check_row, &rows, &err));
    assert_int_equal(rows, 1472);
}

static hop_status check_range(void *context, const struct hop_jsonl_line *line, bool *more,
                              struct hop_error *e)
{
    struct hop_squad_score score = {.f1 = -1};
    (void)more;
    HOP_TRY(score_row(line->row, &score, e));
    assert_true(score.f1 >= 0 && score.f1 <= 1);
    ++*(size_t *)context;
    return HOP_OK;
}

static void test_further_inputs(void **state)
{
    (void)state;
    size_t rows = 0;
    const char *const path = hop_test_data("squad/metric_inputs.jsonl");
    if (!path)
        skip();
    ASSERT_OK(hop_jsonl_read(path, check_range, &rows, &err));
    assert_int_equal(rows, 491);
}

/* What the official script prints for the published predictions; BERT's stand in the test data's
 * expected_scores.json. */
static void test_published_predictions(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        double exact_match, f1;
        size_t missing, unknown;
    } systems[] = {
        {"squad/BERT.json", 86.20624408703878, 92.19557978351129, 0, 0},
        {"squad/Logistic_Regression_Baseline.json", 40.14191106906339, 50.98153647324482, 13, 28},
        {"squad/r-net+.json", 82.46925260170293, 88.47785965423243, 0, 0},
    };
    const char *const data = hop_test_data("squad/dev-v1.1.json");
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        struct hop_squad_scores scores = {0};
        struct hop_prediction_counts counts = {0};
        const char *const file = data ? hop_test_data(systems[i].file) : NULL;
        if (!file)
            skip();
        ASSERT_OK(hop_squad_score_files(data, file, &scores, &counts, &err));
        assert_int_equal(scores.questions, 10570);
        assert_int_equal(counts.missing, systems[i].missing);
        assert_int_equal(counts.unknown, systems[i].unknown);
        ASSERT_NEAR(scores.exact_match, systems[i].exact_match, 1e-10);
        ASSERT_NEAR(scores.f1, systems[i].f1, 1e-10);
    }
}

/* ---- files ---- */

#define QUESTION(id, gold) "{\"id\": \"" id "\", \"answers\": [{\"text\": \"" gold "\"}]}"
#define FILE_OF(questions) "{\"data\": [{\"paragraphs\": [{\"qas\": [" questions "]}]}]}"

static void test_files(void **state)
{
    (void)state;
    struct hop_squad_scores scores = {0};
    struct hop_prediction_counts counts = {0};
    const char *const data = hop_test_write_text(
        "data.json", "\xef\xbb\xbf" FILE_OF(QUESTION("q1", "The cat") ",\r\n" QUESTION(
                         "q2", "two dogs") "," QUESTION("q3", "") "," QUESTION("q4", "x")));
    const char *const predictions = hop_test_write_text(
        "predictions.json", "\xef\xbb\xbf{\"q1\": \"cat\",\r\n\"q2\": \"dogs\", "
                            "\"q3\": \"\", \"other\": \"x\"}\r\n");
    ASSERT_OK(hop_squad_score_files(data, predictions, &scores, &counts, &err));
    assert_int_equal(scores.questions, 4);
    assert_int_equal(scores.missing, 1);
    assert_int_equal(counts.questions, 4);
    assert_int_equal(counts.missing, 1);
    assert_int_equal(counts.unknown, 1);
    ASSERT_NEAR(scores.exact_match, 50, 1e-12);
    ASSERT_NEAR(scores.f1, 100 * (1 + 2.0 / 3) / 4, 1e-12);
}

static void test_bad_predictions(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "bad.json: the file is empty"},
        {"[]", "bad.json: predictions must be one object"},
        {"{\"q1\": \"a\", \"q2\": 3}", "bad.json: the answer of \"q2\" must be a string"},
        {"{\"q1\": null}", "bad.json: the answer of \"q1\" must be a string"},
        {"{\"q1\": \"a\",\n \"q1\": \"b\"}", "bad.json:2:"},
        {"{\"q1\": \"a\"", "bad.json:1:"},
        {"{\"q1\": \"\xff\"}", "bad.json:1:"},
    };
    const char *const data = hop_test_write_text("data.json", FILE_OF(QUESTION("q1", "a")));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_squad_scores scores;
        struct hop_prediction_counts counts;
        const char *const path = hop_test_write_text("bad.json", cases[i].text);
        ASSERT_REFUSED(hop_squad_score_files(data, path, &scores, &counts, &err), HOP_INPUT,
                       cases[i].part);
    }
}

static void test_bad_data(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[]", "bad.json: must be an object with \"data\""},
        {"{}", "bad.json: \"data\" is missing; it must be a list"},
        {"{\"data\": []}", "bad.json: the file has no question"},
        {"{\"data\": [3]}", "bad.json: data[0]: must be an object with \"paragraphs\""},
        {"{\"data\": [{\"paragraphs\": {}}]}", "bad.json: data[0]: \"paragraphs\" must be a list"},
        {"{\"data\": [{\"paragraphs\": [{}]}]}",
         "bad.json: data[0].paragraphs[0]: \"qas\" is missing"},
        {FILE_OF("{\"answers\": []}"), "bad.json: data[0].paragraphs[0].qas[0]: \"id\" is missing"},
        {FILE_OF("{\"id\": 3, \"answers\": []}"), "qas[0]: \"id\" must be a string"},
        {FILE_OF("{\"id\": \"q\", \"answers\": []}"), "qas[0]: \"answers\" is empty"},
        {FILE_OF(QUESTION("q", "a") ", {\"id\": \"r\", \"answers\": [{\"text\": 1}]}"),
         "qas[1].answers[0]: \"text\" must be a string"},
    };
    const char *const predictions = hop_test_write_text("predictions.json", "{}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_squad_scores scores;
        struct hop_prediction_counts counts;
        const char *const path = hop_test_write_text("bad.json", cases[i].text);
        ASSERT_REFUSED(hop_squad_score_files(path, predictions, &scores, &counts, &err), HOP_INPUT,
                       cases[i].part);
    }
}

/* ---- damaged files ---- */

static hop_status read_data(const char *path)
{
    struct hop_squad_scores scores = {0};
    struct hop_prediction_counts counts;
    const char *const predictions = hop_test_path("predictions.json");
    HOP_TRY(hop_squad_score_files(path, predictions, &scores, &counts, &err));
    assert_true(scores.questions && scores.f1 >= 0 && scores.f1 <= 100.000001);
    return HOP_OK;
}

static hop_status read_predictions(const char *path)
{
    struct hop_squad_scores scores = {0};
    struct hop_prediction_counts counts;
    return hop_squad_score_files(hop_test_path("data.json"), path, &scores, &counts, &err);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char data[] =
        FILE_OF(QUESTION("q1", "The cat") "," QUESTION("q2", "\u0130 \u03a3, x"));
    static const char predictions[] =
        "{\"q1\": \"the cat\", \"q2\": \"\\u0130 \u03a3\", \"q3\": \"\"}";
    hop_test_write_text("predictions.json", predictions);
    hop_test_mutate_text("damaged-data.json", data, read_data, &err);
    hop_test_write_text("data.json", data);
    hop_test_mutate_text("damaged-predictions.json", predictions, read_predictions, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal_form),
        cmocka_unit_test(test_scores_by_hand),
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_further_inputs),
        cmocka_unit_test(test_published_predictions),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_bad_predictions),
        cmocka_unit_test(test_bad_data),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
