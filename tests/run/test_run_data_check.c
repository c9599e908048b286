/* hybridop data check: what it says of rows, and that training sees the same. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#define ASKED(what) "{\"role\": \"user\", \"content\": \"" what "\"}"
#define SAID(what)  "{\"role\": \"assistant\", \"content\": \"" what "\"}"
#define TALK(...)   "{\"messages\": [" __VA_ARGS__ "]}\n"

enum { ESCAPE = 104, VOCABULARY };

static const char *model, *job;

/* Printable ASCII, space, line break and escape, one token each, and ChatML's tokens; a padding
 * token lies beyond the model's last id. */
static void write_tokenizer(const char *folder)
{
    static const char *const special[] = {"<unk>",        "<s>",        "</s>",
                                          "<|im_start|>", "<|im_end|>", "<pad>"};
    static const int ids[] = {0, 1, 2, 102, 103, VOCABULARY};
    json_t *const vocabulary = json_object(), *const added = json_array();
    for (int c = '!'; c <= '~'; c++)
        json_object_set_new(vocabulary, text("%c", c), json_integer(3 + c - '!'));
    json_object_set_new(vocabulary, "\u0120", json_integer(100));
    json_object_set_new(vocabulary, "\u010A", json_integer(101));
    json_object_set_new(vocabulary, "\u011B", json_integer(ESCAPE));
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", ids[i],
                                               "content", special[i], "special", 1, "single_word",
                                               0, "lstrip", 0, "rstrip", 0, "normalized", 0));
    json_t *const post = json_pack(
        "{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i]}}}", "type",
        "TemplateProcessing", "single", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence", "id",
        "A", "type_id", 0, "pair", "special_tokens", "<s>", "id", "<s>", "ids", 1);
    json_t *const object = keep_json(
        json_pack("{s:s, s:o, s:n, s:{s:s, s:b, s:b}, s:o, s:{s:s}, s:{s:s, s:o, s:[]}}", "version",
                  "1.0", "added_tokens", added, "normalizer", "pre_tokenizer", "type", "ByteLevel",
                  "add_prefix_space", 0, "use_regex", 1, "post_processor", post, "decoder", "type",
                  "ByteLevel", "model", "type", "BPE", "vocab", vocabulary, "merges"));
    write_text(text("%s/tokenizer.json", folder), "%s", dump_json(object));
    write_text(text("%s/tokenizer_config.json", folder),
               "{\"chat_template\": \"{{ '<|im_start|>' + message['role'] + '\\n' + "
               "message['content'] + '<|im_end|>' }}\"}");
}

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.vocabulary = VOCABULARY});
    write_tokenizer("model");
    job = write_job("job.yaml", model, "unset", NULL);
    return 0;
}

static const json_t *check_json(const char *rows, const char *setting)
{
    const struct process done =
        RUN("data", "check", job, "--json", "--set", text("data.train=%s", rows), "--set", setting);
    assert_success(&done);
    json_error_t reason;
    return keep_json(json_loads(done.out, 0, &reason));
}

static const json_t *at(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    if (!value)
        fail_msg("%s is not there", key);
    return value;
}

static const char *mixed_rows(void)
{
    return write_text(
        "mixed.jsonl",
        "\xef\xbb\xbf{\"prompt\": \"ab\", \"completion\": \" c\"}\r\n\r\n"
        "{\"text\": \"de fg\"}\r" TALK(ASKED("hi") ", " SAID("ok") ", " ASKED("?"))
            TALK(ASKED("a question without an answer")) "{\"input_ids\": [1, 5, 6, 7], \"labels\": "
                                                        "[-100, -100, 6, 7]}\n");
}

/* BOS a b, space c EOS: 6; BOS d e space f g EOS: 7; the conversation 10 + 15 + 9; 4 tokens. */
static void test_numbers(void **state)
{
    (void)state;
    const json_t *const all = check_json(mixed_rows(), "data.max_length=64");
    const json_t *const train = at(all, "train");
    assert_int_equal(number(train, "rows"), 5);
    assert_int_equal(number(train, "kept"), 4);
    assert_int_equal(number(train, "left_out"), 1);
    assert_int_equal(number(train, "truncated"), 0);
    assert_int_equal(number(train, "tokens"), 6 + 7 + 34 + 4);
    assert_int_equal(number(train, "label_tokens"), 3 + 6 + 3 + 2);
    assert_int_equal(number(at(train, "length"), "shortest"), 4);
    assert_int_equal(number(at(train, "length"), "median"), 6);
    assert_int_equal(number(at(train, "length"), "longest"), 34);
    assert_near("mean", number(at(train, "length"), "mean"), 12.75, 1e-12);
    assert_int_equal(json_integer_value(json_array_get(at(train, "ids"), 0)), 1);
    assert_int_equal(json_integer_value(json_array_get(at(train, "ids"), 1)), 103);
    assert_int_equal(number(at(train, "bos"), "id"), 1);
    assert_int_equal(number(at(train, "bos"), "begin"), 3);
    assert_int_equal(number(at(train, "bos"), "twice"), 0);
    assert_int_equal(number(at(train, "eos"), "trained"), 3);
    assert_string_equal(json_string_value(at(all, "chat_template")), "chatml");
    assert_true(json_is_null(at(all, "eval")));
    size_t i, rows = 0;
    const json_t *bin;
    json_array_foreach(at(train, "histogram"), i, bin) rows += (size_t)number(bin, "rows");
    assert_int_equal(rows, 4);
}

/* A tokenizer that is larger than the model, rows without BOS among others. */
static void test_warnings(void **state)
{
    (void)state;
    const json_t *const warnings = at(check_json(mixed_rows(), "data.max_length=64"), "warnings");
    assert_int_equal(json_array_size(warnings), 3);
    const char *const all = dump_json(warnings);
    assert_holds("warnings", all, "the tokenizer has ids up to 105, the model embeds 105");
    assert_holds("warnings", all, "1 of 4 rows do not begin with BOS");
    assert_holds("warnings", all, "1 of 5 rows are left out");
}

static void test_what_is_trained_on(void **state)
{
    (void)state;
    const char *const rows = text("data.train=%s", mixed_rows());
    const struct process plain = RUN("data", "check", job, "--set", rows, "-n", "9");
    assert_success(&plain);
    assert_holds("text", plain.out, "5 read, 4 kept, 1 left out (no label token), 0 cut");
    assert_holds("text", plain.out, "51, trained on 14 of them (27.5%)");
    assert_holds("pair", plain.out, "\n    <s>ab⟦ c</s>⟧\n");
    assert_holds("text row", plain.out, "\n    <s>⟦de fg</s>⟧\n");
    assert_holds("conversation", plain.out,
                 "\n    <|im_start|>user\n    hi<|im_end|>\n    <|im_start|>assistant\n    "
                 "⟦ok<|im_end|>⟧\n    <|im_start|>user\n    ?<|im_end|>\n");
    assert_holds("tokens", plain.out, "\n    <s>#⟦$%⟧\n");
    assert_null(strchr(plain.out, '\033'));
    const struct process colored =
        RUN("data", "check", job, "--set", rows, "--examples", "1", "--color", "always");
    assert_success(&colored);
    assert_holds("colour", colored.out, "\033[2m<s>ab\033[0m\033[32m c</s>\033[0m\n");
    assert_null(strstr(colored.out, "⟦"));
    assert_null(strstr(colored.out, "example 2"));
}

/* What the data says must not reach the terminal as a command. */
static void test_control_characters_are_shown(void **state)
{
    (void)state;
    const char *const rows = write_text(
        "control.jsonl", "{\"prompt\": \"\\u001b[31m\", \"completion\": \"a\\u001b\"}\n");
    const struct process done =
        RUN("data", "check", job, "--set", text("data.train=%s", rows), "--color", "never");
    assert_success(&done);
    assert_holds("text", done.out, "<s>\\x1b[31m⟦a\\x1b</s>⟧");
    assert_null(strchr(done.out, '\033'));
}

/* Where the model has no tokenizer, rows of tokens are shown as numbers. */
static void test_rows_of_tokens_without_a_tokenizer(void **state)
{
    (void)state;
    const char *const bare = write_model("bare", (struct model){.vocabulary = 64});
    const char *const rows = write_rows("tokens.jsonl", 3, 6, 6, 64);
    const char *const own = write_job("bare.yaml", bare, rows, NULL);
    const struct process done = RUN("data", "check", own, "--examples", "1");
    assert_success(&done);
    assert_holds("numbers", done.out, "example 1: 6 tokens");
    assert_holds("numbers", done.out, "\n    1 ");
    assert_holds("template", done.out, "chat template none");
}

static void test_labels_and_eval_rows(void **state)
{
    (void)state;
    const char *const train = write_text("news.csv", "\"1\",\"a\",\"b\"\n\"2\",\"c\",\"d\"\n"
                                                     "\"2\",\"e\",\"f\"\n");
    const char *const eval = write_text("held.csv", "\"3\",\"g\",\"h\"\n\"2\",\"e\",\"f\"\n");
    const json_t *const all =
        check_json(train, text("data={task: ag_news, train: %s, eval: %s}", train, eval));
    const json_t *const labels = at(at(all, "train"), "labels");
    assert_int_equal(number(labels, "World"), 1);
    assert_int_equal(number(labels, "Sports"), 2);
    assert_int_equal(number(labels, "Business"), 0);
    assert_int_equal(number(at(all, "eval"), "rows"), 2);
    const char *const warnings = dump_json(at(all, "warnings"));
    assert_holds("labels", warnings, "news.csv: no row has the label \\\"Business\\\"");
    assert_holds("overlap", warnings, "held.csv: 1 of 2 rows have the tokens of a row of");
    assert_holds("overlap", warnings, "the first of them row 2 of those kept");
}

static void test_longer_than_the_model(void **state)
{
    (void)state;
    const char *const rows = write_rows("long.jsonl", 2, 600, 600, VOCABULARY);
    const json_t *const all = check_json(rows, "data.max_length=1000");
    assert_holds("positions", dump_json(at(all, "warnings")),
                 "the longest row has 600 tokens after cutting, more than the model's "
                 "max_position_embeddings 512; set data.max_length to 512 or less");
    const json_t *const cut = check_json(rows, "data.max_length=512");
    assert_int_equal(number(at(cut, "train"), "truncated"), 2);
    assert_int_equal(number(at(at(cut, "train"), "length"), "longest"), 600);
    assert_null(strstr(dump_json(at(cut, "warnings")), "max_position_embeddings"));
}

static void test_bad_rows(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part, *setting;
    } cases[] = {
        {"{\"text\": \"ab\"}\n{\"text\"\n", ":2", "data.task=jsonl"},
        {"{\"text\": \"ab\"}\r" TALK("{\"role\": \"bot\", \"content\": \"a\"}"),
         ":2: messages[0]: unknown role", "data.task=jsonl"},
        {TALK(SAID("a")), ":1: messages[0]: the role is assistant", "data.chat_template=llama-2"},
        {TALK(ASKED("a")), ":1: the model's tokenizer has no token <|begin_of_text|>",
         "data.chat_template=llama-3"},
        {"{\"text\": \"a<pad>\"}\n", ":1: token 2 has id 105", "data.task=jsonl"},
        {"\"7\",\"a\",\"b\"\n", ":1: the class", "data.task=ag_news"},
        {"{}", ":1", "data.task=multirc"},
        {"{}", "data", "data.task=squad"},
        {"", "no rows", "data.task=jsonl"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const rows = write_text(text("bad-%zu.txt", i), "%s", cases[i].content);
        const struct process done = RUN("data", "check", job, "--set", text("data.train=%s", rows),
                                        "--set", cases[i].setting);
        ASSERT_REFUSED(&done, 2, rows, cases[i].part);
    }
}

static void test_usage(void **state)
{
    (void)state;
    const struct process none = RUN("data");
    ASSERT_REFUSED(&none, 2, "check is missing");
    const struct process other = RUN("data", "clean");
    ASSERT_REFUSED(&other, 2, "not clean");
    const struct process help = RUN("data", "--help");
    assert_success(&help);
    assert_holds("help", help.out, "hybridop data check");
    const struct process options = RUN("data", "check", "--help");
    assert_success(&options);
    assert_holds("help", options.out, "--examples=N");
    const struct process missing = RUN("data", "check");
    assert_int_equal(missing.status, 2);
    const struct process number = RUN("data", "check", job, "--examples", "x");
    assert_int_equal(number.status, 2);
    const struct process color = RUN("data", "check", job, "--color", "red");
    assert_int_equal(color.status, 2);
    const struct process template =
        RUN("data", "check", job, "--set", "data.chat_template=llama-4");
    ASSERT_REFUSED(&template, 2, "data.chat_template", "llama-3");
}

/* Training reads the same rows: as many label tokens in its only step. */
static void test_training_on_conversations(void **state)
{
    (void)state;
    const char *const rows = write_text(
        "talk.jsonl", "%s%s%s", TALK(ASKED("hi") ", " SAID("good day")), TALK(ASKED("no answer")),
        TALK("{\"role\": \"system\", \"content\": \"be short\"}, " ASKED("a") ", " SAID(
            "b") ", " ASKED("c") ", " SAID("dd")));
    const json_t *const checked = at(check_json(rows, "data.max_length=128"), "train");
    const struct process done =
        TRAIN(job, scratch("run"), text("data.train=%s", rows), "data.max_length=128",
              text("cluster=%s", write_cluster("NB", 1, NULL)));
    assert_success(&done);
    assert_holds("note", done.err, "1 rows left out");
    const json_t *const step = step_line(read_metrics(scratch("run")), 1);
    assert_int_equal(number(step, "label_tokens"), number(checked, "label_tokens"));
    assert_int_equal(number(checked, "label_tokens"), 9 + 2 + 3);
}

/* The readers of all tasks, on the files they are for. */
static void test_real_files(void **state)
{
    (void)state;
    static const struct {
        const char *task, *file;
        int rows;
    } cases[] = {
        {"ag_news", "agnews/test.csv", 7600},
        {"multirc", "multirc/val.jsonl", 4848},
        {"squad", "squad/dev-v1.1.json", 10570},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const own =
            write_job("real.yaml", test_data("models/stories260K"), test_data(cases[i].file), NULL);
        const struct process done =
            RUN("data", "check", own, "--json", "--set", text("data.task=%s", cases[i].task),
                "--set", "data.max_length=512");
        assert_success(&done);
        json_error_t reason;
        const json_t *const train = at(keep_json(json_loads(done.out, 0, &reason)), "train");
        assert_int_equal(number(train, "rows"), cases[i].rows);
        assert_int_equal(number(at(train, "bos"), "begin"), number(train, "kept"));
    }
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
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_what_is_trained_on),
        cmocka_unit_test(test_control_characters_are_shown),
        cmocka_unit_test(test_rows_of_tokens_without_a_tokenizer),
        cmocka_unit_test(test_labels_and_eval_rows),
        cmocka_unit_test(test_longer_than_the_model),
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_training_on_conversations),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
