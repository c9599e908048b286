/* hybridop score, and evaluating on MultiRC, as users run them. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "data/multirc_metrics.h"

static const char *score_json(const struct process *done)
{
    assert_success(done);
    return write_text("score.json", "%s", done->out);
}

static struct process score(const char *task, const char *data, const char *predictions)
{
    return RUN("score", "--task", task, "--data", data, "--predictions", predictions, "--json");
}

/* ---- the published predictions ---- */

static void test_squad(void **state)
{
    (void)state;
    const char *const data = test_data("squad/dev-v1.1.json");
    const struct process bert = score("squad", data, test_data("squad/BERT.json"));
    const json_t *const expected =
        json_object_get(read_json(test_data("squad/expected_scores.json")), "BERT");
    const json_t *const printed = read_json(score_json(&bert));
    assert_near("exact_match", number(printed, "exact_match"), number(expected, "exact_match"),
                1e-13);
    assert_near("f1", number(printed, "f1"), number(expected, "f1"), 1e-13);
    assert_string_equal(bert.err, "");
    const struct process other =
        score("squad", data, test_data("squad/Logistic_Regression_Baseline.json"));
    const json_t *const gaps = read_json(score_json(&other));
    assert_int_equal(number(gaps, "missing"), 13);
    assert_int_equal(number(gaps, "unknown"), 28);
    assert_holds("stderr", other.err, "13 of 10570 questions have no prediction; they score 0");
    assert_holds("stderr", other.err, "28 predictions are for questions that");
}

static void test_multirc(void **state)
{
    (void)state;
    static const char *const keys[][2] = {
        {"em0", "EM0"}, {"em1", "EM1"}, {"f1m", "F1m"}, {"f1a", "F1a"}};
    json_t *const all = read_json(test_data("multirc/expected_scores.json"));
    const char *system;
    json_t *expected;
    json_object_foreach(all, system, expected)
    {
        const struct process done = score("multirc", test_data("multirc/dev_83-fixedIds.json"),
                                          test_data(text("multirc/%s", system)));
        const json_t *const printed = read_json(score_json(&done));
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            assert_near(keys[i][0], number(printed, keys[i][0]), number(expected, keys[i][1]),
                        1e-13);
        assert_string_equal(done.err, "");
    }
}

/* ---- hand-made files ---- */

#define DATA                                                                                       \
    "{\"data\": [{\"paragraphs\": [{\"qas\": [{\"id\": \"a\", \"answers\": [{\"text\": \"the "     \
    "cat\"}]}, {\"id\": \"b\", \"answers\": [{\"text\": \"x y\"}]}]}]}]}"
#define ROW                                                                                        \
    "{\"idx\": 0, \"passage\": {\"text\": \"It rained all day. \", \"questions\": [{\"question\":" \
    " \"When?\", \"idx\": 0, \"answers\": [{\"text\": \"all day\", \"label\": 1}, {\"text\": "     \
    "\"never\", \"label\": 0}]}, {\"question\": \"What?\", \"idx\": 1, \"answers\": [{\"text\": "  \
    "\"rain\", \"label\": 1}]}]}}\n"

static void test_table(void **state)
{
    (void)state;
    const char *const data = write_text("data.json", "%s", DATA);
    const char *const predictions =
        write_text("predictions.json", "{\"a\": \"A cat!\", \"b\": \"y\"}");
    const struct process done =
        RUN("score", "--task=squad", "--data", data, "--predictions", predictions);
    assert_success(&done);
    assert_holds("table", done.out, "exact_match  50.0000");
    assert_holds("table", done.out, "f1           83.3333");
    assert_string_equal(done.err, "");
}

static void test_superglue_ids(void **state)
{
    (void)state;
    const char *const data = write_text("data.jsonl", "%s", ROW);
    const char *const predictions =
        write_text("predictions.json", "[{\"pid\": 0, \"qid\": 0, \"scores\": [1, 1]}]");
    const struct process done = score("multirc", data, predictions);
    const json_t *const printed = read_json(score_json(&done));
    assert_int_equal(number(printed, "missing"), 1);
    assert_near("em1", number(printed, "em1"), 1, 0);
    assert_near("f1a", number(printed, "f1a"), 2.0 / 3, 1e-15);
    assert_holds("stderr", done.err, "1 of 2 questions have no prediction; they are left out");
}

static void test_bad_files(void **state)
{
    (void)state;
    const char *const data = write_text("data.json", "%s", DATA);
    const char *const bad = write_text("bad.json", "{\"a\": \"x\",\n\"a\": 3}");
    const char *const good = write_text("good.json", "{\"a\": \"x\"}");
    const struct process predictions = score("squad", data, bad);
    ASSERT_REFUSED(&predictions, 2, text("%s:2:", bad));
    const struct process swapped = score("squad", good, data);
    ASSERT_REFUSED(&swapped, 2, data);
    const struct process absent = score("squad", scratch("absent.json"), good);
    ASSERT_REFUSED(&absent, 2, scratch("absent.json"));
    const struct process task = score("multirc", data, good);
    ASSERT_REFUSED(&task, 2, text("%s: data[0]: \"paragraph\" is missing", data));
}

static void check_usage(const struct process *done, const char *part)
{
    assert_int_equal(done->status, 2);
    assert_string_equal(done->out, "");
    assert_holds("stderr", done->err, part);
}

static void test_usage(void **state)
{
    (void)state;
    const struct process none = RUN("score");
    check_usage(&none, "--task is missing: squad or multirc");
    const struct process unknown = RUN("score", "--task", "sqad");
    check_usage(&unknown, "the task \"sqad\" is not known; it is squad or multirc; did you mean "
                          "\"squad\"?");
    const struct process data = RUN("score", "--task", "squad");
    check_usage(&data, "--data FILE is missing");
    const struct process predictions = RUN("score", "--task", "squad", "--data", "x");
    check_usage(&predictions, "--predictions FILE is missing");
    const struct process extra = RUN("score", "x.json");
    check_usage(&extra, "\"x.json\" is not expected");
}

/* ---- a model ---- */

/* What the metrics are when ROW's answers are judged as the bits of `judged` say. */
static struct hop_multirc_scores scores_of(unsigned judged)
{
    struct hop_multirc_tally tally = {0};
    struct hop_multirc_counts when = {0}, what = {0};
    hop_multirc_count(&when, true, judged & 1);
    hop_multirc_count(&when, false, judged & 2);
    hop_multirc_count(&what, true, judged & 4);
    hop_multirc_add(&tally, &when);
    hop_multirc_add(&tally, &what);
    return hop_multirc_finish(&tally);
}

/* The model judges as it likes; what is printed must be the scores of some judgement. */
static void test_evaluation(void **state)
{
    (void)state;
    const char *const model = HOP_SOURCE_DIR "/models/wordnet-3m";
    if (!file_exists(text("%s/tokenizer.json", model))) {
        print_message("skip: %s is not there\n", model);
        skip();
    }
    const char *const rows = write_text("rows.jsonl", "%s", ROW);
    const char *const job = write_job("job.yaml", model, rows, NULL);
    const struct process done = RUN("eval", job, "--json", "--set", "data.task=multirc", "--set",
                                    text("data.eval=%s", rows));
    const json_t *const printed = read_json(score_json(&done));
    assert_int_equal(number(printed, "examples"), 3);
    assert_string_equal(json_string_value(json_object_get(printed, "task")), "multirc");
    bool found = false;
    for (unsigned judged = 0; judged < 8; judged++) {
        const struct hop_multirc_scores s = scores_of(judged);
        found = found || (s.em0 == number(printed, "em0") && s.em1 == number(printed, "em1") &&
                          s.f1m == number(printed, "f1m") && s.f1a == number(printed, "f1a") &&
                          s.accuracy == number(printed, "accuracy"));
    }
    if (!found)
        fail_msg("no judgement has these scores: %s", done.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_squad),      cmocka_unit_test(test_multirc),
        cmocka_unit_test(test_table),      cmocka_unit_test(test_superglue_ids),
        cmocka_unit_test(test_bad_files),  cmocka_unit_test(test_usage),
        cmocka_unit_test(test_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
