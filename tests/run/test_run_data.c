/* Rows: bad ones are refused with file and line; odd but valid ones work. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#define GOOD "{\"input_ids\": [1, 5, 6, 7], \"labels\": [-100, -100, 6, 7]}\n"

static const char *model, *job, *cluster;

/* A tokenizer that knows the printable ASCII characters, one token each. */
static void write_tokenizer(const char *folder)
{
    json_t *const vocabulary = json_object();
    const char *const special[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++)
        json_object_set_new(vocabulary, special[i], json_integer(i));
    for (int c = '!'; c <= '~'; c++)
        json_object_set_new(vocabulary, text("%c", c), json_integer(3 + c - '!'));
    json_object_set_new(vocabulary, "\u0120", json_integer(100)); /* space */
    json_object_set_new(vocabulary, "\u010A", json_integer(101)); /* newline */
    json_t *const added = json_array();
    for (int i = 0; i < 3; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                               "content", special[i], "special", 1, "single_word",
                                               0, "lstrip", 0, "rstrip", 0, "normalized", 0));
    json_t *const object = keep_json(json_pack(
        "{s:s, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s}, s:{s:s, s:o, s:[]}}", "version",
        "1.0", "added_tokens", added, "normalizer", "pre_tokenizer", "type", "ByteLevel",
        "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "post_processor", "decoder",
        "type", "ByteLevel", "model", "type", "BPE", "vocab", vocabulary, "merges"));
    write_text(text("%s/tokenizer.json", folder), "%s", dump_json(object));
}

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.vocabulary = 102});
    write_tokenizer("model");
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
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
