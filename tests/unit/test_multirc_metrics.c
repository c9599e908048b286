#include "support_files.h"
#include "support_mutation.h"

#include <stdio.h>

#include <jansson.h>

#include "base/string.h"
#include "data/multirc_file.h"
#include "data/predictions.h"
#include "io/json.h"

static struct hop_error err;

static void add(struct hop_multirc_tally *tally, const char *right, const char *predicted)
{
    struct hop_multirc_counts counts = {0};
    for (size_t i = 0; right[i]; i++)
        hop_multirc_count(&counts, right[i] == '1', predicted[i] == '1');
    hop_multirc_add(tally, &counts);
}

static void test_by_hand(void **state)
{
    (void)state;
    struct hop_multirc_tally tally = {0};
    add(&tally, "1100", "1100"); /* no mistake: P 1, R 1 */
    add(&tally, "1010", "1000"); /* one mistake: P 1, R 1/2 */
    add(&tally, "0101", "1010"); /* four: P 0, R 0 */
    add(&tally, "10", "00");     /* nothing predicted: P 1, R 0; one mistake */
    add(&tally, "00", "01");     /* nothing right: P 0, R 1; one mistake */
    const struct hop_multirc_scores s = hop_multirc_finish(&tally);
    assert_int_equal(s.questions, 5);
    assert_int_equal(s.answers, 16);
    ASSERT_NEAR(s.em0, 1.0 / 5, 1e-15);
    ASSERT_NEAR(s.em1, 4.0 / 5, 1e-15);
    const double precision = 3.0 / 5, recall = 2.5 / 5;
    ASSERT_NEAR(s.f1m, 2 * precision * recall / (precision + recall), 1e-15);
    /* both 3, predicted 6, right 7 */
    ASSERT_NEAR(s.f1a, 2 * 3.0 / (6 + 7), 1e-15);
    ASSERT_NEAR(s.accuracy, 9.0 / 16, 1e-15);
}

static void test_nothing_right(void **state)
{
    (void)state;
    const struct hop_multirc_tally none = {0};
    struct hop_multirc_tally wrong = {0};
    ASSERT_NEAR(hop_multirc_finish(&none).f1m, 0, 0);
    add(&wrong, "10", "01");
    const struct hop_multirc_scores s = hop_multirc_finish(&wrong);
    ASSERT_NEAR(s.em1, 0, 0);
    ASSERT_NEAR(s.f1m, 0, 0);
    ASSERT_NEAR(s.f1a, 0, 0);
    ASSERT_NEAR(s.accuracy, 0, 0);
}

static struct hop_multirc_scores score(const char *data, const char *predictions,
                                       struct hop_prediction_counts *counts)
{
    struct hop_multirc_scores scores = {0};
    ASSERT_OK(hop_multirc_score_files(data, predictions, &scores, counts, &err));
    return scores;
}

static void assert_same_scores(const struct hop_multirc_scores *a,
                               const struct hop_multirc_scores *b, double tolerance)
{
    assert_int_equal(a->questions, b->questions);
    assert_int_equal(a->answers, b->answers);
    ASSERT_NEAR(a->em0, b->em0, tolerance);
    ASSERT_NEAR(a->em1, b->em1, tolerance);
    ASSERT_NEAR(a->f1m, b->f1m, tolerance);
    ASSERT_NEAR(a->f1a, b->f1a, tolerance);
    ASSERT_NEAR(a->accuracy, b->accuracy, tolerance);
}

/* ---- the published predictions ---- */

static const char *const systems[] = {"human-01.json", "allOnes.json", "lucene_world.json",
                                      "simpleLR.json"};
enum { SYSTEMS = sizeof systems / sizeof *systems };

static const char *system_path(size_t i)
{
    char name[64];
    snprintf(name, sizeof name, "multirc/%s", systems[i]);
    return hop_test_data(name);
}

static double expected_value(const json_t *system, const char *key)
{
    const json_t *const value = json_object_get(system, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_published_predictions(void **state)
{
    (void)state;
    json_t *expected = NULL;
    size_t compared = 0;
    const char *const data = hop_test_data("multirc/dev_83-fixedIds.json");
    const char *const values = hop_test_data("multirc/expected_scores.json");
    if (!data || !values)
        skip();
    ASSERT_OK(hop_json_load(values, &expected, &err));
    for (size_t i = 0; i < SYSTEMS; i++) {
        struct hop_prediction_counts counts = {0};
        const struct hop_multirc_scores s = score(data, system_path(i), &counts);
        const json_t *const system = json_object_get(expected, systems[i]);
        assert_int_equal(counts.questions, 953);
        assert_int_equal(counts.missing + counts.unknown, 0);
        assert_int_equal(s.answers, 4848);
        if (!system)
            continue;
        ASSERT_NEAR(s.em0, expected_value(system, "EM0"), 1e-12);
        ASSERT_NEAR(s.em1, expected_value(system, "EM1"), 1e-12);
        ASSERT_NEAR(s.f1m, expected_value(system, "F1m"), 1e-12);
        ASSERT_NEAR(s.f1a, expected_value(system, "F1a"), 1e-12);
        compared++;
    }
    assert_int_equal(compared, 2);
    json_decref(expected);
}

/* ---- both forms of the data ---- */

/* "passage text\nposition" to {"pid", "qid", "idx"} as the file at hand names the question. */
static hop_status collect(void *map, const struct hop_multirc_question *q, bool *more,
                          struct hop_error *e)
{
    struct hop_string key = {0};
    (void)more;
    HOP_TRY(hop_string_printf(&key, e, "%s\n%zu", q->passage, q->position));
    json_object_set_new(map, key.data,
                        json_pack("{s:s, s:I, s:I}", "pid", q->passage_id, "qid",
                                  (json_int_t)q->position, "idx", (json_int_t)q->idx));
    hop_string_free(&key);
    return HOP_OK;
}

static json_t *read_names(const char *path)
{
    json_t *const names = json_object();
    ASSERT_OK(hop_multirc_read(path, collect, names, &err));
    assert_int_equal(json_object_size(names), 953);
    return names;
}

/* From the original's ids to SuperGLUE's: "pid==qid" to the other file's names. */
static json_t *match_names(json_t *original, const json_t *superglue)
{
    json_t *const out = json_object();
    const char *key;
    json_t *name;
    json_object_foreach(original, key, name)
    {
        char id[512];
        json_t *const other = json_object_get(superglue, key);
        assert_non_null(other);
        snprintf(id, sizeof id, "%s==%lld", json_string_value(json_object_get(name, "pid")),
                 (long long)json_integer_value(json_object_get(name, "qid")));
        json_object_set(out, id, other);
    }
    return out;
}

/* The predictions with the names of the SuperGLUE file; qid is the other name's `qid_key`. */
static const char *rename_predictions(const char *path, const json_t *names, const char *qid_key)
{
    json_t *list = NULL, *prediction;
    size_t i;
    ASSERT_OK(hop_json_load(path, &list, &err));
    json_array_foreach(list, i, prediction)
    {
        char id[512];
        snprintf(id, sizeof id, "%s==%s", json_string_value(json_object_get(prediction, "pid")),
                 json_string_value(json_object_get(prediction, "qid")));
        const json_t *const other = json_object_get(names, id);
        assert_non_null(other);
        json_object_set(prediction, "pid", json_object_get(other, "pid"));
        json_object_set(prediction, "qid", json_object_get(other, qid_key));
    }
    const char *const out = hop_test_path("renamed.json");
    ASSERT_OK(hop_json_save(out, list, &err));
    json_decref(list);
    return out;
}

static void test_both_forms_score_the_same(void **state)
{
    (void)state;
    const char *const original = hop_test_data("multirc/dev_83-fixedIds.json");
    const char *const superglue = hop_test_data("multirc/val.jsonl");
    if (!original || !superglue)
        skip();
    json_t *const theirs = read_names(original), *const ours = read_names(superglue);
    json_t *const names = match_names(theirs, ours);
    for (size_t i = 0; i < SYSTEMS; i++) {
        struct hop_prediction_counts counts = {0};
        const struct hop_multirc_scores a = score(original, system_path(i), &counts);
        for (int k = 0; k < 2; k++) {
            const char *const renamed =
                rename_predictions(system_path(i), names, k ? "idx" : "qid");
            const struct hop_multirc_scores b = score(superglue, renamed, &counts);
            assert_int_equal(counts.missing + counts.unknown, 0);
            /* The passages stand in another order, which rounds the means otherwise. */
            assert_same_scores(&a, &b, 1e-13);
        }
    }
    json_decref(names);
    json_decref(theirs);
    json_decref(ours);
}

/* ---- files ---- */

#define ORIGINAL                                                                                   \
    "{\"data\": [{\"id\": \"p\", \"paragraph\": {\"text\": \"<b>Sent 1: </b>T.<br>\", "            \
    "\"questions\": [{\"question\": \"Q1\", \"answers\": [{\"text\": \"a\", \"isAnswer\": true}, " \
    "{\"text\": \"b\", \"isAnswer\": false}]}, {\"question\": \"Q2\", \"answers\": [{\"text\": "   \
    "\"c\", \"isAnswer\": false}]}]}}]}"
#define SUPERGLUE                                                                                  \
    "{\"idx\": 7, \"passage\": {\"text\": \"T. \", \"questions\": [{\"question\": \"Q1\", "        \
    "\"idx\": 3, \"answers\": [{\"text\": \"a\", \"label\": 1}, {\"text\": \"b\", \"label\": "     \
    "0}]}, {\"question\": \"Q2\", \"idx\": 4, \"answers\": [{\"text\": \"c\", \"label\": "         \
    "0}]}]}}\r\n"

static void test_missing_and_unknown(void **state)
{
    (void)state;
    static const char *const predictions[] = {
        "[{\"pid\": \"p\", \"qid\": \"0\", \"scores\": [1, 1.0]}, {\"pid\": \"x\", \"qid\": 0, "
        "\"scores\": [1]}, {\"pid\": \"p\", \"qid\": 5, \"scores\": []}]",
        "\xef\xbb\xbf[{\"pid\": 7, \"qid\": 0, \"scores\": [true, 1]}, {\"pid\": \"8\", \"qid\": "
        "\"1\", \"scores\": [0]},\r\n{\"pid\": 7, \"qid\": 9, \"scores\": [0]}]\r\n",
        "[{\"pid\": \"7\", \"qid\": \"3\", \"scores\": [1, 1]}, {\"pid\": 7, \"qid\": 0, "
        "\"scores\": [0]}, {\"pid\": 7, \"qid\": 5, \"scores\": [0]}, {\"pid\": 7, \"qid\": 4, "
        "\"scores\": [1]}]",
    };
    for (size_t i = 0; i < 3; i++) {
        struct hop_prediction_counts counts = {0};
        const char *const data = hop_test_write_text("data.json", i ? SUPERGLUE : ORIGINAL);
        const char *const path = hop_test_write_text("predictions.json", predictions[i]);
        const struct hop_multirc_scores s = score(data, path, &counts);
        assert_int_equal(counts.questions, 2);
        assert_int_equal(counts.missing, i == 2 ? 0 : 1);
        assert_int_equal(counts.unknown, 2);
        ASSERT_NEAR(s.em0, 0, 0);
        ASSERT_NEAR(s.em1, 1, 0);
        ASSERT_NEAR(s.accuracy, i == 2 ? 1.0 / 3 : 0.5, 1e-15);
    }
}

static void test_bad_predictions(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "bad.json: the file is empty"},
        {"{}", "bad.json: predictions must be one list"},
        {"[]", "bad.json: none of the 0 predictions belongs to a question of"},
        {"[{\"pid\": \"q\", \"qid\": 0, \"scores\": [1]}]", "bad.json: none of the 1 predictions"},
        {"[3]", "bad.json: [0]: \"pid\" is missing or neither a string nor an integer"},
        {"[{\"pid\": 1.5}]", "bad.json: [0]: \"pid\""},
        {"[{\"pid\": \"p\"}]", "bad.json: [0]: \"qid\" is missing"},
        {"[{\"pid\": \"p\", \"qid\": 1}]", "bad.json: [0]: \"scores\" is missing"},
        {"[{\"pid\": \"p\", \"qid\": 1, \"scores\": 1}]", "[0]: \"scores\" must be a list"},
        {"[{\"pid\": \"p\", \"qid\": 1, \"scores\": [0.5]}]", "[0]: scores[0] must be 0 or 1"},
        {"[{\"pid\": \"p\", \"qid\": 1, \"scores\": [\"1\"]}]", "[0]: scores[0] must be 0 or 1"},
        {"[{\"pid\": \"p\", \"qid\": 0, \"scores\": [1]}]",
         "[0]: 1 scores, but the question \"p==0\" has 2 answers"},
        {"[{\"pid\": \"p\", \"qid\": 1, \"scores\": [1]}, {\"pid\": \"p\", \"qid\": \"1\", "
         "\"scores\": [1]}]",
         "[1]: the question \"p==1\" is predicted at [0] already"},
        {"[{\"pid\": \"p\", \"qid\": 1, \"scores\": [1]}\n{", "bad.json:2:"},
    };
    const char *const data = hop_test_write_text("data.json", ORIGINAL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_multirc_scores scores;
        struct hop_prediction_counts counts;
        const char *const path = hop_test_write_text("bad.json", cases[i].text);
        ASSERT_REFUSED(hop_multirc_score_files(data, path, &scores, &counts, &err), HOP_INPUT,
                       cases[i].part);
    }
}

static void test_bad_data(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {SUPERGLUE SUPERGLUE,
         "data.json:2: passage.questions[0]: the passage \"7\" is there twice"},
        {"{\"passage\": {\"text\": \"\", \"questions\": [{\"question\": \"\", \"answers\": "
         "[{\"text\": \"\", \"label\": 0}]}]}}",
         "data.json:1: passage.questions[0]: the row has no integer \"idx\""},
    };
    const char *const predictions = hop_test_write_text("predictions.json", "[]");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_multirc_scores scores;
        struct hop_prediction_counts counts;
        const char *const path = hop_test_write_text("data.json", cases[i].text);
        ASSERT_REFUSED(hop_multirc_score_files(path, predictions, &scores, &counts, &err),
                       HOP_INPUT, cases[i].part);
    }
}

/* ---- damaged files ---- */

static hop_status read_predictions(const char *path)
{
    struct hop_multirc_scores s = {0};
    struct hop_prediction_counts counts;
    const char *const data = hop_test_path("data.json");
    HOP_TRY(hop_multirc_score_files(data, path, &s, &counts, &err));
    assert_true(s.em0 >= 0 && s.em0 <= s.em1 && s.em1 <= 1 && s.f1m <= 1 && s.f1a <= 1);
    return HOP_OK;
}

static hop_status read_data(const char *path)
{
    struct hop_multirc_scores scores;
    struct hop_prediction_counts counts;
    return hop_multirc_score_files(path, hop_test_path("predictions.json"), &scores, &counts, &err);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char predictions[] = "[{\"pid\": \"p\", \"qid\": \"0\", \"scores\": [1, 0]}, "
                                      "{\"pid\": 7, \"qid\": 1, \"scores\": [1.0]},\n"
                                      "{\"pid\": \"7\", \"qid\": 3, \"scores\": [0, true]}]";
    hop_test_write_text("data.json", ORIGINAL);
    hop_test_mutate_text("damaged-predictions.json", predictions, read_predictions, &err);
    hop_test_write_text("predictions.json", predictions);
    hop_test_mutate_text("damaged-original.json", ORIGINAL, read_data, &err);
    hop_test_mutate_text("damaged.jsonl", SUPERGLUE, read_data, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_nothing_right),
        cmocka_unit_test(test_published_predictions),
        cmocka_unit_test(test_both_forms_score_the_same),
        cmocka_unit_test(test_missing_and_unknown),
        cmocka_unit_test(test_bad_predictions),
        cmocka_unit_test(test_bad_data),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
