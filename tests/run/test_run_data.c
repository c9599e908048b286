/* Rows: bad ones are refused with file and line; odd but valid ones work. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#define GOOD "{\"input_ids\": [1, 5, 6, 7], \"labels\": [-100, -100, 6, 7]}\n"

static const char *model, *job, *cluster;

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.vocabulary = 102});
    write_ascii_tokenizer("model");
    job = write_job("job.yaml", model, "unset", NULL);
    cluster = text("cluster=%s", write_cluster("NB", 1, NULL));
    return 0;
}

static struct process run_on(const char *path, const char *setting)
{
    return TRAIN(job, scratch("run"), text("data.train=%s", path), cluster, setting);
}

static void test_bad_rows(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part;
    } cases[] = {
        {GOOD "{\"input_ids\": [1, 2\n", ":2"},
        {GOOD GOOD "[1, 2]\n", ":3"},
        {GOOD "{\"input_ids\": [1, 102], \"labels\": [1, 3]}\n", ":2"},
        {GOOD "{\"input_ids\": [1, 5], \"labels\": [1]}\n", ":2"},
        {GOOD "\xff\xfe\n", ":2"},
        {"{\"input_ids\": [1, 5], \"labels\": [-100, -100]}\n", "label"},
        {"", "no rows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const path = write_text(text("bad-%zu.jsonl", i), "%s", cases[i].content);
        const struct process done = run_on(path, "train.seed=1");
        ASSERT_REFUSED(&done, 2, text("%s%s", path, *cases[i].part == ':' ? cases[i].part : ""),
                       cases[i].part);
    }
}

static void test_bad_news(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part;
    } cases[] = {
        {"\"1\",\"a\",\"b\"\n\"5\",\"a\",\"b\"\n", ":2"},
        {"", "no rows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const path = write_text(text("bad-%zu.csv", i), "%s", cases[i].content);
        const struct process done = run_on(path, "data.task=ag_news");
        ASSERT_REFUSED(&done, 2, path, cases[i].part);
    }
}

/* Byte order mark and carriage returns change nothing. */
static void test_line_ends(void **state)
{
    (void)state;
    static const struct {
        const char *plain, *odd, *task;
    } cases[] = {
        {"{\"prompt\": \"ab\", \"completion\": \" c\"}\n{\"text\": \"de fg\"}\n",
         "\xEF\xBB\xBF{\"prompt\": \"ab\", \"completion\": \" c\"}\r\n{\"text\": \"de fg\"}",
         "data.task=jsonl"},
        {"\"1\",\"ab\",\"c d\"\n\"2\",\"e\",\"f\"\n",
         "\xEF\xBB\xBF\"1\",\"ab\",\"c d\"\r\n\"2\",\"e\",\"f\"", "data.task=ag_news"},
        {"{\"prompt\": \"ab\", \"completion\": \" c\"}\n{\"text\": \"de fg\"}\n",
         "{\"prompt\": \"ab\", \"completion\": \" c\"}\r{\"text\": \"de fg\"}\r",
         "data.task=jsonl"},
        {"\"1\",\"ab\",\"c d\"\n\"2\",\"e\",\"f\"\n", "\"1\",\"ab\",\"c d\"\r\"2\",\"e\",\"f\"\r",
         "data.task=ag_news"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const runs[] = {scratch("plain-%zu", i), scratch("odd-%zu", i)};
        const char *const files[] = {write_text(text("plain-%zu.txt", i), "%s", cases[i].plain),
                                     write_text(text("odd-%zu.txt", i), "%s", cases[i].odd)};
        for (int k = 0; k < 2; k++) {
            const struct process done = TRAIN(job, runs[k], text("data.train=%s", files[k]),
                                              cluster, cases[i].task, "data.max_length=200");
            assert_success(&done);
        }
        assert_same_adapter(runs[0], runs[1]);
        ASSERT_SAME_LINES(runs[0], runs[1], 0, "loss", "label_tokens");
    }
}

/* A row of which no label is left is counted, and the run goes on without it. */
static void test_row_cut_off(void **state)
{
    (void)state;
    const char *const path = write_text(
        "cut.jsonl", GOOD "{\"input_ids\": [1, 5, 6, 7, 8, 9, 10, 11], "
                          "\"labels\": [-100, -100, -100, -100, -100, -100, -100, -100]}\n" GOOD);
    const struct process done = run_on(path, "data.max_length=4");
    assert_success(&done);
    assert_holds("notes", done.err, "1 rows left out");
    assert_int_equal(number(step_line(read_metrics(scratch("run")), 1), "label_tokens"), 4);
}

/* The folder of the model, which says that it has `positions` positions. */
static void limit_positions(int positions)
{
    const char *const path = text("%s/config.json", model);
    json_t *const config = read_json(path);
    json_object_set_new(config, "max_position_embeddings", json_integer(positions));
    assert_int_equal(json_dump_file(config, path, JSON_INDENT(2)), 0);
}

/* What the model says of its positions limits nothing: numbers and text are the same, and each
 * command says that there are tokens beyond. */
static void check_long(int positions, bool told)
{
    static const char part[] = "more than the model's max_position_embeddings";
    const char *const rows = write_rows("long.jsonl", 8, 12, 20, 102);
    const char *const run = scratch("long-%d", positions);
    const char *const data = text("data.train=%s", rows), *const eval = text("data.eval=%s", rows);
    limit_positions(positions);
    const struct process trained = TRAIN(job, run, data, eval, cluster);
    assert_success(&trained);
    assert_int_equal(strstr(trained.err, part) != NULL, told);
    const struct process measured =
        RUN("eval", "--json", text("%s/config.yaml", run), "--adapter", text("%s/adapter", run));
    assert_success(&measured);
    assert_int_equal(strstr(measured.err, part) != NULL, told);
    write_text(text("eval-%d.json", positions), "%s", measured.out);
    const struct process asked = RUN("generate", "--backend", backend(), "--model", model, "-p",
                                     "a prompt of 24 characters", "--max-tokens", "8");
    assert_success(&asked);
    assert_int_equal(strstr(asked.err, part) != NULL, told);
    write_text(text("text-%d", positions), "%s", asked.out);
}

static void test_beyond_the_positions(void **state)
{
    (void)state;
    check_long(512, false);
    check_long(8, true);
    limit_positions(512);
    assert_same_adapter(scratch("long-512"), scratch("long-8"));
    ASSERT_SAME_LINES(scratch("long-512"), scratch("long-8"), 0, "loss", "label_tokens");
    assert_near("loss of eval", number(read_json(scratch("eval-8.json")), "loss"),
                number(read_json(scratch("eval-512.json")), "loss"), 0);
    assert_same_file(scratch("text-512"), scratch("text-8"));
}

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_bad_news),
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_row_cut_off),
        cmocka_unit_test(test_beyond_the_positions),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
