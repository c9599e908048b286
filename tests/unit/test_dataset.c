#include "support_dataset.h"
#include "support_files.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/dataset.h"

static struct hop_error err;

static struct hop_dataset_options options(int32_t max_length)
{
    return (struct hop_dataset_options){
        .task = HOP_TASK_JSONL, .max_length = max_length, .vocabulary = 100000, .eos = -1};
}

static struct hop_dataset *load(const char *text, struct hop_tokenizer *tokenizer,
                                struct hop_dataset_options with)
{
    struct hop_dataset *dataset = NULL;
    const char *const path = hop_test_write_text("rows.jsonl", text);
    ASSERT_OK(hop_dataset_load(path, tokenizer, &with, &dataset, &err));
    return dataset;
}

static void assert_row(const struct hop_example *e, const int32_t *ids, const int32_t *labels,
                       int32_t n)
{
    assert_int_equal(e->length, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(e->ids[i], ids[i]);
        assert_int_equal(e->labels[i], labels[i]);
    }
}

static void test_tokens_as_given(void **state)
{
    (void)state;
    struct hop_dataset *const d = load(
        "\xef\xbb\xbf{\"input_ids\": [1, 5, 6, 7], \"labels\": [-100, -100, 6, 7], \"id\": 3}\r\n"
        "\r\n  \n"
        "{\"input_ids\": [1, 5], \"labels\": [-100, -100]}\n"
        "{\"input_ids\": [1, 9, 4], \"labels\": [1, 9, -100]}",
        NULL, options(8));
    assert_int_equal(d->count, 2);
    assert_int_equal(d->rows, 3);
    assert_int_equal(d->unlabeled, 1);
    assert_int_equal(d->truncated, 0);
    assert_int_equal(d->tokens, 7);
    assert_int_equal(d->label_tokens, 3);
    assert_int_equal(d->longest, 4);
    assert_row(&d->examples[0], (int32_t[]){1, 5, 6, 7}, (int32_t[]){-100, -100, 6, 7}, 4);
    assert_int_equal(d->examples[0].prompt_length, 2);
    assert_int_equal(d->examples[0].answer, -1);
    assert_row(&d->examples[1], (int32_t[]){1, 9, 4}, (int32_t[]){1, 9, -100}, 3);
    assert_int_equal(d->examples[1].prompt_length, 1);
    hop_dataset_free(d);
    hop_dataset_free(NULL);
}

static void test_cutting(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        int32_t max_length, n;
        int32_t ids[8], labels[8];
    } cases[] = {
        {"{\"input_ids\": [1, 2, 3, 4, 5, 6], \"labels\": [-100, -100, -100, -100, 5, 6]}",
         4,
         4,
         {1, 4, 5, 6},
         {-100, -100, 5, 6}},
        {"{\"input_ids\": [1, 2, 3, 4, 5, 6], \"labels\": [-100, -100, -100, -100, 5, 6]}",
         3,
         3,
         {1, 5, 6},
         {-100, 5, 6}},
        {"{\"input_ids\": [1, 2, 3, 4, 5, 6], \"labels\": [-100, -100, -100, -100, 5, 6]}",
         2,
         2,
         {1, 5},
         {-100, 5}},
        {"{\"input_ids\": [1, 2, 3, 4], \"labels\": [1, 2, 3, 4]}", 3, 3, {1, 2, 3}, {1, 2, 3}},
        {"{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, 2, -100, 4]}",
         3,
         3,
         {1, 2, 3},
         {-100, 2, -100}},
        {"{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, -100, 4]}",
         0,
         4,
         {1, 2, 3, 4},
         {-100, -100, -100, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_dataset *const d = load(cases[i].row, NULL, options(cases[i].max_length));
        assert_int_equal(d->truncated, cases[i].max_length != 0);
        assert_row(&d->examples[0], cases[i].ids, cases[i].labels, cases[i].n);
        hop_dataset_free(d);
    }
}

/* Lines may end with a carriage return alone. One inside a string must be escaped: raw, it ends
 * the line there. */
static void test_lone_carriage_returns(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset_options with = options(0);
    struct hop_dataset *refused = NULL;
    with.eos = HOP_TEST_EOS;
    struct hop_dataset *d = load("{\"prompt\": \"one\\rtwo\\r\", \"completion\": \" \\rthree\"}\r\r"
                                 "{\"prompt\": \"four\", \"completion\": \" five\"}\r",
                                 t, with);
    assert_int_equal(d->count, 2);
    hop_test_pair(t, &d->examples[0], "one\rtwo\r", " \rthree");
    hop_test_pair(t, &d->examples[1], "four", " five");
    hop_dataset_free(d);
    const char *const path = hop_test_write_text(
        "bad.jsonl", "{\"text\": \"a\"}\r{\"prompt\": \"one\rtwo\", \"completion\": \"x\"}\r");
    ASSERT_REFUSED(hop_dataset_load(path, t, &with, &refused, &err), HOP_INPUT,
                   "bad.jsonl:2: not valid JSON");
    with.task = HOP_TASK_AG_NEWS;
    d = load("\"3\",\"Oil\rup\",\"It\r\"\r\"1\",War,b\r", t, with);
    assert_int_equal(d->count, 2);
    hop_test_pair(t, &d->examples[0], "Oil\rup It\r Topic:", " Business");
    hop_test_pair(t, &d->examples[1], "War b Topic:", " World");
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

static void test_limit(void **state)
{
    (void)state;
    struct hop_dataset_options with = options(8);
    with.limit = 1;
    struct hop_dataset *const d =
        load("{\"input_ids\": [1, 2], \"labels\": [1, 2]}\nnot even JSON\n", NULL, with);
    assert_int_equal(d->rows, 1);
    hop_dataset_free(d);
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        hop_status status;
        const char *part;
    } cases[] = {
        {"", HOP_INPUT, "no rows"},
        {"\n\n", HOP_INPUT, "no rows"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n\n{\"text\n", HOP_INPUT,
         "bad.jsonl:3: not valid JSON"},
        {"[1]\n", HOP_INPUT, "bad.jsonl:1: the line must be one JSON object"},
        {"{\"a\": 1}\n", HOP_INPUT, "bad.jsonl:1: no known key"},
        {"{\"text\": 1}\n", HOP_INPUT, "bad.jsonl:1: \"text\" must be a string"},
        {"{\"prompt\": \"a\"}\n", HOP_INPUT, "\"completion\" must be a string"},
        {"{\"completion\": \"a\"}\n", HOP_INPUT, "\"prompt\" must be a string"},
        {"{\"prompt\": [], \"completion\": []}\n", HOP_UNSUPPORTED, "is a list"},
        {"{\"messages\": []}\n", HOP_INPUT, "bad.jsonl:1: \"messages\" are text, but the model"},
        {"{\"text\": \"a\"}\n", HOP_INPUT, "bad.jsonl:1: the row is text, but the model has no"},
        {"{\"input_ids\": [1]}\n", HOP_INPUT, "\"labels\" must be a list"},
        {"{\"input_ids\": {}, \"labels\": []}\n", HOP_INPUT, "\"input_ids\" must be a list"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}\n", HOP_INPUT, "2 input_ids but 1 labels"},
        {"{\"input_ids\": [1, 2.5], \"labels\": [1, 2]}\n", HOP_INPUT, "input_ids[1] is not an"},
        {"{\"input_ids\": [1, 100000], \"labels\": [1, 2]}\n", HOP_INPUT,
         "bad.jsonl:1: token 1 has id 100000, the model's vocabulary has 100000"},
        {"{\"input_ids\": [1, -1], \"labels\": [1, 2]}\n", HOP_INPUT, "token 1 has id -1"},
        {"{\"input_ids\": [1, 4294967297], \"labels\": [1, 2]}\n", HOP_INPUT, "token 1 has id -1"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, -2]}\n", HOP_INPUT, "label 1 is -2"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, 100000]}\n", HOP_INPUT, "label 1 is 100000"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n", HOP_INPUT,
         "none of the 1 rows has a label token"},
        {"{\"input_ids\": [], \"labels\": []}\n", HOP_INPUT, "none of the 1 rows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_dataset *dataset = NULL;
        const struct hop_dataset_options with = options(8);
        const char *const path = hop_test_write_text("bad.jsonl", cases[i].text);
        ASSERT_REFUSED(hop_dataset_load(path, NULL, &with, &dataset, &err), cases[i].status,
                       cases[i].part);
        assert_null(dataset);
    }
}

static void test_prompt_and_completion(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset_options with = options(0);
    with.eos = HOP_TEST_EOS;
    struct hop_dataset *const d =
        load("{\"prompt\": \"Once upon\", \"completion\": \" a time\"}\n"
             "{\"text\": \"The end\"}\n{\"prompt\": \"\", \"completion\": \"\"}\n",
             t, with);
    assert_int_equal(d->count, 3);
    hop_test_pair(t, &d->examples[0], "Once upon", " a time");
    hop_test_pair(t, &d->examples[2], "", "");
    const struct hop_example *const text = &d->examples[1];
    assert_int_equal(text->prompt_length, 1);
    assert_int_equal(text->ids[text->length - 1], HOP_TEST_EOS);
    for (int32_t i = 0; i < text->length; i++)
        assert_int_equal(text->labels[i], text->ids[i]);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* A cut prompt must be as long for a short answer as for a long one, or its length tells the
 * answer. */
static void test_cut_does_not_tell_the_answer(void **state)
{
    (void)state;
    static const char *const labels[] = {"yes", "certainly not, never"};
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset_options with = options(20);
    with.eos = HOP_TEST_EOS;
    with.labels = labels;
    with.label_count = 2;
    static const char prompt[] = "one two three four five six seven eight nine ten eleven twelve "
                                 "thirteen fourteen fifteen sixteen";
    char rows[1024];
    snprintf(rows, sizeof rows,
             "{\"prompt\": \"%s\", \"completion\": \" %s\"}\n"
             "{\"prompt\": \"%s\", \"completion\": \" %s\"}\n",
             prompt, labels[0], prompt, labels[1]);
    struct hop_dataset *const d = load(rows, t, with);
    assert_int_equal(d->truncated, 2);
    assert_int_equal(d->examples[0].prompt_length, d->examples[1].prompt_length);
    assert_true(d->examples[0].length < d->examples[1].length);
    assert_true(d->examples[1].length <= 20);
    for (int32_t i = 0; i < d->examples[0].prompt_length; i++)
        assert_int_equal(d->examples[0].ids[i], d->examples[1].ids[i]);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* A news text that is too long loses its end; its headline and the question behind it stay. */
static void test_cut_keeps_headline_and_question(void **state)
{
    (void)state;
    struct hop_string text = {0};
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset_options with = options(32);
    with.task = HOP_TASK_AG_NEWS;
    struct hop_dataset *const d =
        load("{\"text\": \"A headline. And then a long report about many people who went to many "
             "places and did many things there on that day\", \"label\": 1}\n",
             t, with);
    const struct hop_example *const e = &d->examples[0];
    assert_int_equal(d->truncated, 1);
    assert_true(e->length <= 32);
    ASSERT_OK(hop_tokenizer_decode(t, e->ids, (size_t)e->prompt_length, true, &text, &err));
    assert_non_null(strstr(text.data, "A headline."));
    assert_non_null(strstr(text.data, " Topic:"));
    assert_null(strstr(text.data, "on that day"));
    hop_string_free(&text);
    hop_dataset_free(d);
    hop_tokenizer_free(t);
}

/* A text of a mebibyte of words, between `before` and `after`. */
static char *long_row(const char *before, const char *after)
{
    static const char word[] = "word ";
    const size_t words = (((size_t)1 << 20) + sizeof word - 2) / (sizeof word - 1);
    const size_t head = strlen(before), n = words * (sizeof word - 1);
    char *const row = malloc(head + n + strlen(after) + 1);
    assert_non_null(row);
    memcpy(row, before, head);
    for (size_t i = 0; i < words; i++)
        memcpy(row + head + i * (sizeof word - 1), word, sizeof word - 1);
    memcpy(row + head + n, after, strlen(after) + 1);
    return row;
}

static struct hop_dataset *load_long(const char *before, const char *after,
                                     struct hop_tokenizer *tokenizer,
                                     struct hop_dataset_options with)
{
    char *const row = long_row(before, after);
    struct hop_dataset *const d = load(row, tokenizer, with);
    free(row);
    assert_int_equal(d->count, 1);
    assert_true(d->examples[0].whole > 100000);
    return d;
}

/* Which part of the row stands there. */
static void assert_shows(struct hop_tokenizer *t, const struct hop_example *e, const char *start,
                         const char *end)
{
    struct hop_string text = {0};
    ASSERT_OK(hop_tokenizer_decode(t, e->ids, (size_t)e->length, true, &text, &err));
    assert_non_null(strstr(text.data, start));
    assert_true(text.length >= strlen(end));
    assert_string_equal(text.data + text.length - strlen(end), end);
    hop_string_free(&text);
}

/* A row of 1 MiB is kept whole without a limit, and cut like any other with one. */
static void test_row_of_a_megabyte(void **state)
{
    (void)state;
    static const struct {
        enum hop_data_task task;
        const char *before, *after, *start, *end;
    } cases[] = {
        {HOP_TASK_JSONL, "{\"prompt\": \"begin ", "behind\", \"completion\": \" the end\"}\n",
         "word word behind", "behind the end"},
        {HOP_TASK_JSONL, "{\"text\": \"begin ", "behind\"}\n", "begin word", "word"},
        {HOP_TASK_JSONL, "{\"prompt\": \"begin\", \"completion\": \" ", "behind\"}\n", "word word",
         "word"},
        {HOP_TASK_AG_NEWS, "\"2\",\"begin\",\"", "behind\"\n", "begin word", " Topic: Sports"},
        {HOP_TASK_AG_NEWS, "{\"text\": \"begin ", "behind\", \"label\": 1}\n", "begin word",
         " Topic: Sports"},
    };
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_dataset_options with = options(0);
        with.task = cases[i].task;
        struct hop_dataset *const whole = load_long(cases[i].before, cases[i].after, t, with);
        assert_int_equal(whole->truncated, 0);
        assert_int_equal(whole->longest, whole->examples[0].whole);
        with.max_length = 64;
        struct hop_dataset *const cut = load_long(cases[i].before, cases[i].after, t, with);
        assert_int_equal(cut->truncated, 1);
        assert_int_equal(cut->examples[0].whole, whole->longest);
        assert_in_range(cut->longest, 48, 64);
        assert_int_equal(cut->examples[0].ids[0], whole->examples[0].ids[0]);
        assert_shows(t, &cut->examples[0], cases[i].start, cases[i].end);
        hop_dataset_free(whole);
        hop_dataset_free(cut);
    }
    hop_tokenizer_free(t);
}

/* A cut news item has BOS, its question and the answer's first tokens, however small the limit. */
static void assert_core(const struct hop_example *cut, const struct hop_example *whole,
                        int32_t limit, int32_t question)
{
    const int32_t answer = whole->length - whole->prompt_length, room = limit - 1 - question;
    const int32_t kept = answer < room ? answer : room;
    assert_true(cut->length <= limit);
    assert_int_equal(cut->length - cut->prompt_length, kept);
    assert_int_equal(cut->ids[0], whole->ids[0]);
    assert_memory_equal(cut->ids + cut->prompt_length - question,
                        whole->ids + whole->prompt_length - question,
                        (size_t)(question + kept) * sizeof *cut->ids);
    for (int32_t j = cut->prompt_length; j < cut->length; j++)
        assert_int_equal(cut->labels[j], cut->ids[j]);
}

/* Below that core a row has nothing to learn from, and a file of such rows is refused. */
static void test_prompt_longer_than_any_limit(void **state)
{
    (void)state;
    static const char row[] =
        "{\"text\": \"A headline and a long report of many things\", \"label\": 2}\n";
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset_options with = options(0);
    struct hop_ids question = {0};
    with.task = HOP_TASK_AG_NEWS;
    with.eos = HOP_TEST_EOS;
    ASSERT_OK(hop_tokenizer_encode(t, "Topic:", 6, false, &question, &err));
    struct hop_dataset *const whole = load(row, t, with);
    const struct hop_example *const w = &whole->examples[0];
    const int32_t asked = (int32_t)question.count;
    for (with.max_length = 1; with.max_length < asked + 2; with.max_length++) {
        struct hop_dataset *refused = NULL;
        const char *const path = hop_test_write_text("bad.jsonl", row);
        ASSERT_REFUSED(hop_dataset_load(path, t, &with, &refused, &err), HOP_INPUT,
                       "none of the 1 rows has a label token left within max_length");
    }
    for (; with.max_length <= w->length; with.max_length++) {
        struct hop_dataset *const d = load(row, t, with);
        assert_core(&d->examples[0], w, with.max_length, asked);
        hop_dataset_free(d);
    }
    hop_ids_free(&question);
    hop_dataset_free(whole);
    hop_tokenizer_free(t);
}

static void test_cut_keeps_bos_and_answer(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    struct hop_dataset_options with = options(0);
    with.eos = HOP_TEST_EOS;
    const char *const row =
        "{\"prompt\": \"one two three four five six seven eight\", \"completion\": \" nine\"}\n";
    struct hop_dataset *const whole = load(row, t, with);
    const struct hop_example *const w = &whole->examples[0];
    with.max_length = w->length - 3;
    struct hop_dataset *const cut = load(row, t, with);
    const struct hop_example *const c = &cut->examples[0];
    assert_int_equal(c->length, with.max_length);
    assert_int_equal(cut->truncated, 1);
    assert_int_equal(c->ids[0], w->ids[0]);
    for (int32_t i = 1; i < c->length; i++) {
        assert_int_equal(c->ids[i], w->ids[i + 3]);
        assert_int_equal(c->labels[i], w->labels[i + 3]);
    }
    hop_dataset_free(whole);
    hop_dataset_free(cut);
    hop_tokenizer_free(t);
}

static void assert_candidate(struct hop_tokenizer *t, const struct hop_dataset *d, size_t i,
                             const char *name, const char *form)
{
    struct hop_ids ids = {0};
    ASSERT_OK(hop_tokenizer_encode(t, form, strlen(form), false, &ids, &err));
    assert_string_equal(d->label_names[i], name);
    assert_int_equal(d->label_ids[i].count, ids.count);
    assert_memory_equal(d->label_ids[i].data, ids.data, ids.count * sizeof *ids.data);
    hop_ids_free(&ids);
}

static void test_labels(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    static const char *const labels[] = {"Yes", " No", "Maybe so"};
    struct hop_dataset_options with = options(0);
    struct hop_dataset *dataset = NULL;
    with.labels = labels;
    with.label_count = 3;
    struct hop_dataset *const d = load("{\"prompt\": \"a?\", \"completion\": \" No\"}\n"
                                       "{\"prompt\": \"b?\", \"completion\": \" Yes\"}\n",
                                       t, with);
    assert_int_equal(d->label_count, 3);
    assert_int_equal(d->examples[0].answer, 1);
    assert_int_equal(d->examples[1].answer, 0);
    assert_candidate(t, d, 0, "Yes", " Yes");
    assert_candidate(t, d, 1, "No", " No");
    assert_candidate(t, d, 2, "Maybe so", " Maybe so");
    hop_dataset_free(d);
    const char *path =
        hop_test_write_text("bad.jsonl", "\n{\"prompt\": \"\", \"completion\": \"x\"}");
    ASSERT_REFUSED(hop_dataset_load(path, t, &with, &dataset, &err), HOP_INPUT,
                   "bad.jsonl:2: the completion \"x\" is none of the 3 labels");
    path = hop_test_write_text("bad.jsonl", "{\"text\": \"x\"}");
    ASSERT_REFUSED(hop_dataset_load(path, t, &with, &dataset, &err), HOP_INPUT,
                   "every row needs \"prompt\"");
    hop_tokenizer_free(t);
}

static void test_ag_news(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    static const char *const files[] = {
        "\xef\xbb\xbf\"3\",\"Oil\\up\",\"It, too.\"\r\n\r\n\"1\",\"War\",\"a \"\"b\"\"\"\r\n",
        "Class Index,Title,Description\n3,Oil\\up,\"It, too.\"\n1,War,\"a \"\"b\"\"\"\n",
        "\n{\"text\": \"Oil\\\\up It, too.\", \"label\": 2}\n{\"text\": \"War a \\\"b\\\"\", "
        "\"label\": 0}\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct hop_dataset_options with = options(0);
        with.task = HOP_TASK_AG_NEWS;
        with.eos = HOP_TEST_EOS;
        struct hop_dataset *const d = load(files[i], t, with);
        assert_int_equal(d->count, 2);
        hop_test_pair(t, &d->examples[0], "Oil\\up It, too. Topic:", " Business");
        hop_test_pair(t, &d->examples[1], "War a \"b\" Topic:", " World");
        assert_int_equal(d->examples[0].answer, 2);
        assert_int_equal(d->label_count, 4);
        assert_candidate(t, d, 1, "Sports", " Sports");
        assert_candidate(t, d, 3, "Tech", " Tech");
        hop_dataset_free(d);
    }
    hop_tokenizer_free(t);
}

static void test_ag_news_malformed(void **state)
{
    (void)state;
    struct hop_tokenizer *const t = hop_test_tokenizer();
    if (!t)
        skip();
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "no rows"},
        {"\"1\",\"a\"\n", "bad.csv:1: 2 fields"},
        {"\"1\",\"a\",\"b\"\n\n\"5\",\"a\",\"b\"\n", "bad.csv:3: the class \"5\" must be 1 to 4"},
        {"\"0\",\"a\",\"b\"\n", "must be 1 to 4"},
        {"\"12\",\"a\",\"b\"\n", "must be 1 to 4"},
        {"\"1\",\"a\",\"b\n", "bad.csv:1: broken quoting"},
        {"\"1\",\"a\",\"\xff\"\n", "bad.csv:1"},
        {"{\"text\": \"a\", \"label\": 4}\n", "bad.csv:1: \"label\" must be 0 to 3"},
        {"{\"text\": \"a\", \"label\": \"1\"}\n", "bad.csv:1: \"label\" must be 0 to 3"},
        {"{\"label\": 1}\n", "bad.csv:1: \"text\" is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_dataset *dataset = NULL;
        struct hop_dataset_options with = options(0);
        with.task = HOP_TASK_AG_NEWS;
        const char *const path = hop_test_write_text("bad.csv", cases[i].text);
        ASSERT_REFUSED(hop_dataset_load(path, t, &with, &dataset, &err), HOP_INPUT, cases[i].part);
    }
    hop_tokenizer_free(t);
}

static void test_ag_news_real(void **state)
{
    (void)state;
    const char *const csv = hop_test_data("agnews/test.csv");
    const char *const jsonl = hop_test_data("agnews/train.jsonl");
    struct hop_tokenizer *const t = csv && jsonl ? hop_test_tokenizer() : NULL;
    if (!t)
        skip();
    struct hop_dataset_options with = options(128);
    struct hop_dataset *dataset = NULL;
    with.task = HOP_TASK_AG_NEWS;
    ASSERT_OK(hop_dataset_load(csv, t, &with, &dataset, &err));
    assert_int_equal(dataset->rows, 7600);
    assert_int_equal(dataset->count, 7600);
    assert_in_range(dataset->longest, 1, 128);
    hop_dataset_free(dataset);
    with.limit = 500;
    ASSERT_OK(hop_dataset_load(jsonl, t, &with, &dataset, &err));
    assert_int_equal(dataset->rows, 500);
    hop_dataset_free(dataset);
    hop_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_as_given),
        cmocka_unit_test(test_cutting),
        cmocka_unit_test(test_lone_carriage_returns),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_prompt_and_completion),
        cmocka_unit_test(test_cut_does_not_tell_the_answer),
        cmocka_unit_test(test_cut_keeps_headline_and_question),
        cmocka_unit_test(test_row_of_a_megabyte),
        cmocka_unit_test(test_prompt_longer_than_any_limit),
        cmocka_unit_test(test_cut_keeps_bos_and_answer),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_ag_news),
        cmocka_unit_test(test_ag_news_malformed),
        cmocka_unit_test(test_ag_news_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
