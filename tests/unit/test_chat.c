/* Conversations as tokens, and rows as chat data sets have them.
 *
 * Vectors are written token by token: contents separated by spaces, a star in front of those that
 * are trained on. */
#include "support_files.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <jansson.h>

#include "data/dataset.h"
#include "text/chat.h"

static struct hop_error err;

/* ---- model folders ---- */

static const char *write_in(const char *folder, const char *name, const char *text)
{
    char path[256];
    const char *const directory = hop_test_path(folder);
    mkdir(directory, 0755);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    hop_test_write_text(path, text);
    return directory;
}

static const char *write_json(const char *folder, const char *name, json_t *value)
{
    char *const text = json_dumps(value, JSON_COMPACT);
    assert_non_null(text);
    const char *const directory = write_in(folder, name, text);
    free(text);
    json_decref(value);
    return directory;
}

static void add(json_t *vocabulary, const char *content)
{
    json_object_set_new(vocabulary, content,
                        json_integer((json_int_t)json_object_size(vocabulary)));
}

/* Printable ASCII, space, line break, and two merges: "Hi" and an empty line. */
static json_t *make_vocabulary(void)
{
    json_t *const vocabulary = json_object();
    for (char c = '!'; c <= '~'; c++)
        add(vocabulary, (const char[]){c, '\0'});
    add(vocabulary, "\u0120");
    add(vocabulary, "\u010a");
    add(vocabulary, "\u010a\u010a");
    add(vocabulary, "Hi");
    return vocabulary;
}

/* A byte-level tokenizer.json with these special tokens behind the others, as Llama 3's and
 * ChatML's models have; `bos` is put in front of a text. */
static const char *write_tokenizer(const char *folder, const char *const *special, const char *bos,
                                   bool strips)
{
    json_t *const vocabulary = make_vocabulary(), *const added = json_array();
    json_t *post = json_null();
    for (size_t i = 0; special[i]; i++) {
        const int id = (int)(json_object_size(vocabulary) + i);
        json_array_append_new(added,
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                                        special[i], "special", 1, "lstrip", (int)strips, "rstrip",
                                        (int)strips, "normalized", 0, "single_word", 0));
        if (bos && strcmp(bos, special[i]) == 0)
            post = json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i]}}}",
                             "type", "TemplateProcessing", "single", "SpecialToken", "id", bos,
                             "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair",
                             "special_tokens", bos, "id", bos, "ids", id);
    }
    return write_json(
        folder, "tokenizer.json",
        json_pack("{s:s, s:o, s:n, s:{s:s, s:b, s:b}, s:o, s:{s:s}, s:{s:s, s:b, s:o, s:[s,s]}}",
                  "version", "1.0", "added_tokens", added, "normalizer", "pre_tokenizer", "type",
                  "ByteLevel", "add_prefix_space", 0, "use_regex", 0, "post_processor", post,
                  "decoder", "type", "ByteLevel", "model", "type", "BPE", "ignore_merges", 1,
                  "vocab", vocabulary, "merges", "\u010a \u010a", "H i"));
}

static const char *const llama3_tokens[] = {"<|begin_of_text|>",   "<|end_of_text|>",
                                            "<|start_header_id|>", "<|end_header_id|>",
                                            "<|eot_id|>",          NULL};
static const char *const chatml_tokens[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};

/* The parts of the official templates that tell them apart. */
static const char llama2_template[] =
    "{% if messages[0]['role'] == 'system' %}{% set content = '<<SYS>>\\n' + system_message %}"
    "{% endif %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}";
static const char llama3_template[] =
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
    "message['content'] | trim + '<|eot_id|>' %}{% set content = bos_token + content %}";
static const char dated_template[] =
    "{{- bos_token }}{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}"
    "{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- message['content'] | trim }}"
    "{{- \"<|eot_id|>\" }}";
static const char chatml_template[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}";

static const char *write_config(const char *folder, const char *bos, const char *template)
{
    return write_json(folder, "tokenizer_config.json",
                      json_pack("{s:s, s:s*}", "bos_token", bos, "chat_template", template));
}

static const char *llama3_model(const char *template)
{
    write_tokenizer("llama3", llama3_tokens, "<|begin_of_text|>", false);
    return write_config("llama3", "<|begin_of_text|>", template);
}

static const char *chatml_model(const char *template)
{
    write_tokenizer("chatml", chatml_tokens, NULL, false);
    return write_config("chatml", "<|endoftext|>", template);
}

/* ---- conversations ---- */

struct model {
    struct hop_tokenizer *tokenizer;
    struct hop_chat *chat;
};

static struct model open_model(const char *directory, enum hop_chat_family family)
{
    struct model model;
    ASSERT_OK(hop_tokenizer_load(directory, &model.tokenizer, &err));
    ASSERT_OK(hop_chat_load(directory, family, model.tokenizer, &model.chat, &err));
    return model;
}

static void close_model(struct model model)
{
    hop_chat_free(model.chat);
    hop_tokenizer_free(model.tokenizer);
}

/* "s", "u" and "a" and what is said, in turn, up to NULL. */
static size_t read_messages(const char *const *said, struct hop_chat_message *out)
{
    size_t n = 0;
    for (; said[2 * n]; n++) {
        const char *const content = said[2 * n + 1];
        const char role = *said[2 * n];
        out[n] = (struct hop_chat_message){.role = role == 's'   ? HOP_CHAT_SYSTEM
                                                   : role == 'u' ? HOP_CHAT_USER
                                                                 : HOP_CHAT_ASSISTANT,
                                           .content = content,
                                           .length = strlen(content)};
    }
    return n;
}

static void check_vector(struct model model, const char *expected, const struct hop_ids *ids,
                         const struct hop_ids *labels)
{
    char *const copy = strdup(expected), *rest = copy;
    size_t n = 0;
    assert_int_equal(ids->count, labels->count);
    for (char *token; (token = strsep(&rest, " ")); n++) {
        const bool trained = token[0] == '*' && token[1];
        const int32_t id = hop_tokenizer_id(model.tokenizer, token + trained);
        if (n >= ids->count || id < 0 || ids->data[n] != id ||
            labels->data[n] != (trained ? id : -100))
            fail_msg("token %zu should be %s (%d): found %d, label %d", n, token, id,
                     n < ids->count ? ids->data[n] : -1, n < ids->count ? labels->data[n] : -1);
    }
    assert_int_equal(ids->count, n);
    free(copy);
}

static void check_chat(struct model model, const char *expected, const char *const *said)
{
    struct hop_chat_message messages[16];
    struct hop_ids ids = {0}, labels = {0};
    const size_t n = read_messages(said, messages);
    ASSERT_OK(hop_chat_encode(model.chat, messages, n, -100, &ids, &labels, &err));
    check_vector(model, expected, &ids, &labels);
    hop_ids_free(&ids);
    hop_ids_free(&labels);
}
#define CHECK_CHAT(model, expected, ...)                                                           \
    check_chat((model), (expected), (const char *const[]){__VA_ARGS__, NULL})

static void check_refused(struct model model, const char *part, const char *const *said)
{
    struct hop_chat_message messages[16];
    struct hop_ids ids = {0}, labels = {0};
    const size_t n = read_messages(said, messages);
    ASSERT_REFUSED(hop_chat_encode(model.chat, messages, n, -100, &ids, &labels, &err), HOP_INPUT,
                   part);
    assert_int_equal(ids.count, 0);
    assert_int_equal(labels.count, 0);
    hop_ids_free(&ids);
    hop_ids_free(&labels);
}
#define CHECK_REFUSED(model, part, ...)                                                            \
    check_refused((model), (part), (const char *const[]){__VA_ARGS__, NULL})

/* ---- llama-2 ---- */

/* One BOS for every question; of the contents only the ends are stripped, and with a system message
 * only the end of the question. */
static void test_llama2(void **state)
{
    (void)state;
    const char *const directory = hop_test_data("tokenizers/tinyllama");
    if (!directory)
        skip();
    const struct model model = open_model(directory, HOP_CHAT_LLAMA2);
    CHECK_CHAT(model,
               "<s> ▁[ INST ] ▁Hello ▁[ / INST ] *▁Hi *▁there *. *▁ *</s> "
               "<s> ▁[ INST ] ▁And ? ▁[ / INST ] *▁The *▁end *▁ *</s>",
               "u", " Hello\n", "a", "\tHi there. ", "u", "And?", "a", "The end");
    CHECK_CHAT(model,
               "<s> ▁[ INST ] ▁<< SY S >> <0x0A> ▁Be ▁kind . <0x0A> < </ SY S >> <0x0A> <0x0A> "
               "▁Hello ▁[ / INST ] *▁b *<0x0A> *<0x0A> *c *▁ *</s>",
               "s", " Be kind.", "u", " Hello ", "a", "b\n\nc");
    CHECK_CHAT(model, "<s> ▁[ INST ] ▁Hello ▁[ / INST ] *▁▁ *</s>", "u", "Hello", "a", "");
    CHECK_CHAT(model, "<s> ▁[ INST ] ▁Hello ▁[ / INST ]", "u", "Hello");
    assert_int_equal(hop_chat_end(model.chat), 2);
    close_model(model);
}

static void test_llama2_of_a_small_vocabulary(void **state)
{
    (void)state;
    const char *const directory = hop_test_data("models/stories260K");
    if (!directory)
        skip();
    const struct model model = open_model(directory, HOP_CHAT_LLAMA2);
    CHECK_CHAT(model,
               "<s> ▁ [ I N S T ] ▁He ll o ▁ [ / I N S T ] *▁H *i *▁there *. *▁ *</s> "
               "<s> ▁ [ I N S T ] ▁ A nd ? ▁ [ / I N S T ] *▁The *▁e *nd *▁ *</s>",
               "u", "Hello", "a", "Hi there.", "u", "And?", "a", "The end");
    close_model(model);
}

/* Tokens of the template come from the template only. */
static void test_special_tokens_in_contents(void **state)
{
    (void)state;
    const char *const directory = hop_test_data("tokenizers/tinyllama");
    if (directory) {
        const struct model model = open_model(directory, HOP_CHAT_LLAMA2);
        CHECK_CHAT(model, "<s> ▁[ INST ] ▁a </ s > ▁[ / INST ] *▁b *< *s *> *▁ *</s>", "u", "a</s>",
                   "a", "b<s>");
        close_model(model);
    }
    const struct model model = open_model(llama3_model(llama3_template), HOP_CHAT_AUTO);
    CHECK_CHAT(model,
               "<|begin_of_text|> <|start_header_id|> u s e r <|end_header_id|> \u010a\u010a < | e "
               "o t _ i d | > <|eot_id|>",
               "u", "<|eot_id|>");
    close_model(model);
}

static void test_llama2_order(void **state)
{
    (void)state;
    static const char *const special[] = {"<s>", "</s>", NULL};
    write_tokenizer("order", special, "<s>", false);
    const struct model model =
        open_model(write_config("order", "<s>", llama2_template), HOP_CHAT_AUTO);
    assert_int_equal(hop_chat_family(model.chat), HOP_CHAT_LLAMA2);
    CHECK_REFUSED(model, "messages[0]: the role is assistant where user is expected", "a", "x");
    CHECK_REFUSED(model, "messages[2]: the role is user where assistant is expected", "s", "x", "u",
                  "x", "u", "x");
    CHECK_REFUSED(model, "messages[1]: the role is system where user is expected", "s", "x", "s",
                  "x");
    CHECK_REFUSED(model, "messages[3]: the role is system", "s", "x", "u", "x", "a", "x", "s", "x");
    CHECK_REFUSED(model, "a system message alone", "s", "x");
    CHECK_REFUSED(model, "the conversation is empty", NULL);
    CHECK_REFUSED(model, "messages[1]: byte 2 of the content is not UTF-8", "u", "x", "a", "x\xff");
    close_model(model);
}

/* ---- llama-3 ---- */

#define HEADER(role) "<|start_header_id|> " role " <|end_header_id|> \u010a\u010a "
#define SYSTEM       HEADER("s y s t e m")
#define USER         HEADER("u s e r")
#define ASSISTANT    HEADER("a s s i s t a n t")
#define END          "<|eot_id|>"

static void test_llama3(void **state)
{
    (void)state;
    const struct model model = open_model(llama3_model(llama3_template), HOP_CHAT_AUTO);
    assert_int_equal(hop_chat_family(model.chat), HOP_CHAT_LLAMA3);
    CHECK_CHAT(model,
               "<|begin_of_text|> " SYSTEM "B e " END " " USER "Hi \u0120 y o u " END " " ASSISTANT
               "*o *k *" END " " USER "? " END " " ASSISTANT "*Hi *" END,
               "s", "\nBe ", "u", " Hi you", "a", "ok\n", "u", "?", "a", "Hi");
    CHECK_CHAT(model, "<|begin_of_text|> " USER "a " END " " USER "b " END, "u", "a", "u", "b");
    CHECK_CHAT(model, "<|begin_of_text|> " ASSISTANT "*" END, "a", " \n");
    close_model(model);
}

#define DATES                                                                                      \
    "C u t t i n g \u0120 K n o w l e d g e \u0120 D a t e : \u0120 D e c e m b e r \u0120 2 0 2 " \
    "3 \u010a T o d a y \u0120 D a t e : \u0120 2 6 \u0120 J u l \u0120 2 0 2 4 \u010a\u010a "

/* Llama 3.1's says two dates before what the system says. */
static void test_llama3_with_dates(void **state)
{
    (void)state;
    const struct model model = open_model(llama3_model(dated_template), HOP_CHAT_AUTO);
    CHECK_CHAT(model,
               "<|begin_of_text|> " SYSTEM DATES "B e " END " " USER "a " END " " ASSISTANT
               "*b *" END,
               "s", " Be", "u", "a", "a", "b");
    CHECK_CHAT(model, "<|begin_of_text|> " SYSTEM DATES END " " USER "a " END, "u", "a");
    close_model(model);
    const struct model named = open_model(llama3_model(dated_template), HOP_CHAT_LLAMA3);
    CHECK_CHAT(named, "<|begin_of_text|> " USER "a " END, "u", "a");
    close_model(named);
}

/* ---- chatml ---- */

static void test_chatml(void **state)
{
    (void)state;
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    assert_int_equal(hop_chat_family(model.chat), HOP_CHAT_CHATML);
    CHECK_CHAT(model,
               "<|im_start|> s y s t e m \u010a B <|im_end|> \u010a "
               "<|im_start|> u s e r \u010a \u0120 Hi <|im_end|> \u010a "
               "<|im_start|> a s s i s t a n t \u010a *o *k *\u010a *<|im_end|> \u010a",
               "s", "B", "u", " Hi", "a", "ok\n");
    /* A token that reaches across the start of what is said belongs to it. */
    CHECK_CHAT(model, "<|im_start|> a s s i s t a n t *\u010a\u010a *o *<|im_end|> \u010a", "a",
               "\no");
    close_model(model);
}

static void test_chatml_of_models(void **state)
{
    (void)state;
    static const char with_bos[] = "{{ bos_token }}{{ '<|im_start|>' + message['role'] }}"
                                   "{{ '<|im_end|>' }}";
    static const char with_system[] =
        "{{- '<|im_start|>system\\n' }}{{- messages[0].content + '<|im_end|>\\n' }}"
        "{% if loop.first %}{{ '<|im_start|>system\\nBe ok<|im_end|>\\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\\n'}}";
    struct model model = open_model(chatml_model(with_bos), HOP_CHAT_AUTO);
    CHECK_CHAT(model, "<|endoftext|> <|im_start|> u s e r \u010a a <|im_end|> \u010a", "u", "a");
    close_model(model);
    model = open_model(chatml_model(with_system), HOP_CHAT_AUTO);
    CHECK_CHAT(model,
               "<|im_start|> s y s t e m \u010a B e \u0120 o k <|im_end|> \u010a "
               "<|im_start|> u s e r \u010a a <|im_end|> \u010a",
               "u", "a");
    CHECK_CHAT(model, "<|im_start|> s y s t e m \u010a a <|im_end|> \u010a", "s", "a");
    close_model(model);
}

/* Tokens that take the white space beside them take the template's too. */
static void test_stripping_tokens(void **state)
{
    (void)state;
    write_tokenizer("strips", chatml_tokens, NULL, true);
    const struct model model =
        open_model(write_config("strips", "<|endoftext|>", chatml_template), HOP_CHAT_AUTO);
    CHECK_CHAT(model,
               "<|im_start|> u s e r \u010a \u0120 a <|im_end|> "
               "<|im_start|> a s s i s t a n t \u010a *b *<|im_end|>",
               "u", " a ", "a", "b ");
    close_model(model);
}

/* ---- finding the template ---- */

static enum hop_chat_family family_of(const char *directory)
{
    const struct model model = open_model(directory, HOP_CHAT_AUTO);
    const enum hop_chat_family family = hop_chat_family(model.chat);
    close_model(model);
    return family;
}

static void test_places_of_the_template(void **state)
{
    (void)state;
    write_tokenizer("places", chatml_tokens, NULL, false);
    const char *directory =
        write_json("places", "tokenizer_config.json",
                   json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:I}", "chat_template", "name",
                             "tool_use", "template", "{{ tools }}", "name", "default", "template",
                             chatml_template, "model_max_length", (json_int_t)1 << 62));
    assert_int_equal(family_of(directory), HOP_CHAT_CHATML);
    write_in("places", "chat_template.jinja", llama3_template);
    assert_int_equal(family_of(directory), HOP_CHAT_AUTO); /* it lacks Llama 3's tokens */
    write_in("places", "chat_template.jinja", chatml_template);
    directory = write_in("places", "tokenizer_config.json", "{\"chat_template\": 1}");
    assert_int_equal(family_of(directory), HOP_CHAT_CHATML);
}

static void test_unusable_templates(void **state)
{
    (void)state;
    static const struct {
        const char *config, *part;
    } cases[] = {
        {"{}", "the model has no chat template; set data.chat_template"},
        {"{\"chat_template\": null}", "the model has no chat template"},
        {"{\"chat_template\": 5}", "chat_template: expected a text"},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}", "named \"default\""},
        {"{\"chat_template\": [5]}", "named \"default\""},
        {"{\"chat_template\": \"<|user|> <|im_start|>\"}", "none of Llama 2's, Llama 3's"},
        {"{\"chat_template\": \"[INST] bos_token strip(\"}", "none of Llama 2's"},
        {"{\"chat_template\": \"<|im_start|> <|im_end|> | trim\"}", "none of Llama 2's"},
        {"{\"chat_template\": \"<|start_header_id|> <|end_header_id|> <|eot_id|> trim\"}",
         "no token <|start_header_id|>, which the llama-3 template needs"},
        {"{\"chat_template\": \"<<SYS>> [INST] bos_token strip( <|im_start|> <|im_end|>\", "
         "\"bos_token\": {\"content\": \"<none>\"}}",
         "no token <none>"},
        {"{\"chat_template\": ", "tokenizer_config.json:1:18: not valid JSON"},
    };
    write_tokenizer("unusable", chatml_tokens, NULL, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const directory =
            write_in("unusable", "tokenizer_config.json", cases[i].config);
        const struct model model = open_model(directory, HOP_CHAT_AUTO);
        assert_int_equal(hop_chat_family(model.chat), HOP_CHAT_AUTO);
        assert_int_equal(hop_chat_end(model.chat), -1);
        CHECK_REFUSED(model, cases[i].part, "u", "x");
        close_model(model);
    }
}

/* TinyLlama's own template is none of the three. */
static void test_unknown_template_of_a_real_model(void **state)
{
    (void)state;
    const char *const directory = hop_test_data("tokenizers/tinyllama");
    if (!directory)
        skip();
    const struct model model = open_model(directory, HOP_CHAT_AUTO);
    CHECK_REFUSED(model, "chat_template.jinja: the chat template is none of", "u", "x");
    close_model(model);
}

/* ---- rows ---- */

static struct hop_dataset_options options(struct model model, int32_t max_length)
{
    return (struct hop_dataset_options){
        .task = HOP_TASK_JSONL, .max_length = max_length, .eos = -1, .chat = model.chat};
}

static struct hop_dataset *load(const char *text, struct model model, int32_t max_length)
{
    const struct hop_dataset_options with = options(model, max_length);
    struct hop_dataset *dataset = NULL;
    const char *const path = hop_test_write_text("rows.jsonl", text);
    ASSERT_OK(hop_dataset_load(path, model.tokenizer, &with, &dataset, &err));
    return dataset;
}

#define ASKED(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define SAID(text)  "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define ROW(...)    "{\"messages\": [" __VA_ARGS__ "]}\n"

static void check_row(struct model model, const struct hop_example *row, const char *expected)
{
    const struct hop_ids ids = {.data = row->ids, .count = (size_t)row->length},
                         labels = {.data = row->labels, .count = (size_t)row->length};
    check_vector(model, expected, &ids, &labels);
}

/* "<|im_start|> u s e r \n a <|im_end|> \n" are 9 tokens, "<|im_start|> a s s i s t a n t \n" 11.
 */
static void test_cut_conversations(void **state)
{
    (void)state;
    static const char rows[] = ROW(ASKED("a") "," SAID("b") "," ASKED("c") "," SAID("defg"));
    static const char first[] = "<|im_start|> u s e r \u010a a <|im_end|> \u010a "
                                "<|im_start|> a s s i s t a n t \u010a *b *<|im_end|>";
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    struct hop_dataset *d = load(rows, model, 49);
    assert_int_equal(d->examples[0].length, 49);
    assert_int_equal(d->truncated, 0);
    assert_int_equal(d->label_tokens, 7);
    hop_dataset_free(d);
    d = load(rows, model, 45);
    assert_int_equal(d->examples[0].length, 45);
    assert_int_equal(d->examples[0].whole, 49);
    assert_int_equal(d->truncated, 1);
    assert_int_equal(d->label_tokens, 4);
    hop_dataset_free(d);
    d = load(rows, model, 40);
    check_row(model, &d->examples[0], first);
    assert_int_equal(d->truncated, 1);
    hop_dataset_free(d);
    d = load(ROW(ASKED("aaaaaaaaaaaaaaaa") "," SAID("b")) ROW(ASKED("a") "," SAID("b")), model, 23);
    assert_int_equal(d->rows, 2);
    assert_int_equal(d->count, 1);
    assert_int_equal(d->unlabeled, 1);
    assert_int_equal(d->truncated, 0);
    hop_dataset_free(d);
    close_model(model);
}

static void test_bad_messages(void **state)
{
    (void)state;
    static const struct {
        const char *row, *part;
    } cases[] = {
        {"{\"messages\": {}}", "bad.jsonl:2: \"messages\" must be a list"},
        {"{\"messages\": []}", "bad.jsonl:2: messages: the conversation is empty"},
        {"{\"messages\": [\"a\"]}", "messages[0]: expected {\"role\""},
        {"{\"messages\": [{\"content\": \"a\"}]}", "messages[0]: \"role\" must be a string"},
        {ROW(ASKED("a") ", {\"role\": \"asistant\", \"content\": \"a\"}"),
         "messages[1]: unknown role \"asistant\"; it must be system, user or assistant; did you "
         "mean assistant?"},
        {ROW(ASKED("a") ", {\"role\": \"tool\", \"content\": \"a\"}"), "unknown role \"tool\""},
        {ROW("{\"role\": \"user\"}"), "bad.jsonl:2: messages[0]: \"content\" is missing"},
        {ROW("{\"role\": \"user\", \"content\": null}"), "\"content\" is not a string"},
        {ROW("{\"role\": \"user\", \"content\": [1]}"), "\"content\" is not a string"},
    };
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    const struct hop_dataset_options with = options(model, 64);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct hop_dataset *dataset = NULL;
        snprintf(text, sizeof text, "%s%s", ROW(ASKED("a") "," SAID("b")), cases[i].row);
        const char *const path = hop_test_write_text("bad.jsonl", text);
        ASSERT_REFUSED(hop_dataset_load(path, model.tokenizer, &with, &dataset, &err), HOP_INPUT,
                       cases[i].part);
        assert_null(dataset);
    }
    close_model(model);
}

/* Rows of text in a file do not need the template; the first conversation does. */
static void test_file_and_line_of_a_missing_template(void **state)
{
    (void)state;
    write_tokenizer("none", chatml_tokens, NULL, false);
    const struct model model =
        open_model(write_in("none", "tokenizer_config.json", "{}"), HOP_CHAT_AUTO);
    const struct hop_dataset_options with = options(model, 64);
    struct hop_dataset *dataset = load("{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n", model, 64);
    assert_int_equal(dataset->count, 2);
    hop_dataset_free(dataset);
    dataset = NULL;
    const char *const path =
        hop_test_write_text("bad.jsonl", "{\"text\": \"ab\"}\n" ROW(ASKED("a")));
    ASSERT_REFUSED(hop_dataset_load(path, model.tokenizer, &with, &dataset, &err), HOP_INPUT,
                   "bad.jsonl:2: ");
    assert_non_null(strstr(err.message, "set data.chat_template to llama-2, llama-3 or chatml"));
    close_model(model);
}

/* A list that is told by its first message too, as public chat data has it. */
static void test_prompt_beside_messages(void **state)
{
    (void)state;
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    struct hop_dataset *const d =
        load("{\"prompt\": \"a\", \"messages\": [" ASKED("a") "," SAID("b") "]}\n", model, 0);
    assert_int_equal(d->label_tokens, 2);
    hop_dataset_free(d);
    close_model(model);
}

/* ---- odd files ---- */

static void test_line_ends(void **state)
{
    (void)state;
    static const char one[] = "{\"prompt\": \"ab\", \"completion\": \"c\"}",
                      two[] = "{\"text\": \"de\"}",
                      talk[] = "{\"messages\": [" ASKED("a") "," SAID("b") "]}";
    static const char *const ends[] = {"\n", "\r\n", "\r", "\n\n", "\r\n \t\r\n", "\r\r"};
    static const char *const starts[] = {"", "\xef\xbb\xbf", "\r", "\n", "\xef\xbb\xbf\r\n"};
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
            char text[512];
            snprintf(text, sizeof text, "%s%s%s%s%s%s%s", starts[k], one, ends[i], two, ends[i],
                     talk, k % 2 ? ends[i] : "");
            struct hop_dataset *const d = load(text, model, 0);
            assert_int_equal(d->rows, 3);
            check_row(model, &d->examples[0], "a b *c");
            check_row(model, &d->examples[1], "*d *e");
            hop_dataset_free(d);
        }
    close_model(model);
}

static void test_lines_are_counted_by_their_ends(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"text\": \"ab\"}\n\n{\"text\": 1}", "{\"text\": \"ab\"}\r\n\r\n{\"text\": 1}",
        "{\"text\": \"ab\"}\r\r{\"text\": 1}", "\xef\xbb\xbf\r\n{\"text\": \"ab\"}\r{\"text\": 1}"};
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    const struct hop_dataset_options with = options(model, 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hop_dataset *dataset = NULL;
        const char *const path = hop_test_write_text("lines.jsonl", texts[i]);
        ASSERT_REFUSED(hop_dataset_load(path, model.tokenizer, &with, &dataset, &err), HOP_INPUT,
                       "lines.jsonl:3: \"text\" must be a string");
    }
    static const char *const empty[] = {"", "\xef\xbb\xbf", "\r", "\r\n\n", "\xef\xbb\xbf\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        struct hop_dataset *dataset = NULL;
        const char *const path = hop_test_write_text("lines.jsonl", empty[i]);
        ASSERT_REFUSED(hop_dataset_load(path, model.tokenizer, &with, &dataset, &err), HOP_INPUT,
                       "no rows");
    }
    close_model(model);
}

enum { LONG = 1 << 20 };

/* `head`, a megabyte of 'a', `tail`. */
static const char *long_text(const char *head, const char *tail)
{
    static char text[LONG + 256];
    const size_t n = strlen(head);
    memcpy(text, head, n);
    memset(text + n, 'a', LONG);
    strcpy(text + n + LONG, tail);
    return text;
}

static void test_very_long_rows(void **state)
{
    (void)state;
    const struct model model = open_model(chatml_model(chatml_template), HOP_CHAT_AUTO);
    struct hop_dataset *d =
        load(long_text("{\"prompt\": \"", "\", \"completion\": \"bc\"}\n"), model, 16);
    check_row(model, &d->examples[0], "a a a a a a a a a a a a a a *b *c");
    assert_int_equal(d->examples[0].whole, LONG + 2);
    assert_int_equal(d->truncated, 1);
    hop_dataset_free(d);
    d = load(long_text("{\"messages\": [" ASKED("b") ", {\"role\": \"assistant\", \"content\": \"",
                       "\"}]}\n"),
             model, 22);
    check_row(model, &d->examples[0],
              "<|im_start|> u s e r \u010a b <|im_end|> \u010a <|im_start|> a s s i s t a n t "
              "\u010a *a *a");
    assert_int_equal(d->examples[0].whole, 9 + 11 + LONG + 2);
    hop_dataset_free(d);
    const struct hop_dataset_options with = options(model, 22);
    struct hop_dataset *dataset = NULL;
    const char *const path = hop_test_write_text(
        "long.jsonl",
        long_text("{\"messages\": [{\"role\": \"user\", \"content\": \"", "\"}, " SAID("b") "]}"));
    ASSERT_REFUSED(hop_dataset_load(path, model.tokenizer, &with, &dataset, &err), HOP_INPUT,
                   "none of the 1 rows has a label token left within max_length 22");
    close_model(model);
}

/* A tokenizer got a padding token for which the model has no row: rows that do not use it are fine,
 * and in a conversation its name is text. */
static void test_padding_token_beyond_the_model(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<|im_start|>", "<|im_end|>", "<pad>", NULL};
    write_tokenizer("pad", tokens, NULL, false);
    const struct model model =
        open_model(write_config("pad", "<|im_end|>", chatml_template), HOP_CHAT_AUTO);
    struct hop_dataset_options with = options(model, 64);
    with.vocabulary = hop_tokenizer_id(model.tokenizer, "<pad>");
    assert_int_equal(with.vocabulary, hop_tokenizer_vocabulary(model.tokenizer) - 1);
    struct hop_dataset *d = NULL;
    const char *path = hop_test_write_text(
        "pad.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n" ROW(SAID("<pad>")));
    ASSERT_OK(hop_dataset_load(path, model.tokenizer, &with, &d, &err));
    check_row(model, &d->examples[1],
              "<|im_start|> a s s i s t a n t \u010a *< *p *a *d *> *<|im_end|> \u010a");
    hop_dataset_free(d);
    d = NULL;
    path = hop_test_write_text(
        "pad.jsonl", "{\"text\": \"ab\"}\n{\"prompt\": \"a<pad>\", \"completion\": \"b\"}\n");
    ASSERT_REFUSED(hop_dataset_load(path, model.tokenizer, &with, &d, &err), HOP_INPUT,
                   "pad.jsonl:2: token 1 has id ");
    close_model(model);
}

/* ---- the ends of rows ---- */

/* The row begins with BOS once (never, where bos is -1) and its last token is a trained EOS. */
static void check_ends(const struct hop_example *row, int32_t bos, int32_t eos)
{
    int32_t bos_count = 0, eos_count = 0;
    for (int32_t i = 0; i < row->length; i++) {
        bos_count += row->ids[i] == bos;
        eos_count += row->ids[i] == eos;
    }
    assert_int_equal(bos_count, bos >= 0);
    if (bos >= 0)
        assert_int_equal(row->ids[0], bos);
    assert_int_equal(eos_count, 1);
    assert_int_equal(row->ids[row->length - 1], eos);
    assert_int_equal(row->labels[row->length - 1], eos);
}

static void check_family(const char *directory, const char *bos, const char *eos)
{
    char text[512];
    const struct model model = open_model(directory, HOP_CHAT_AUTO);
    const int32_t bos_id = bos ? hop_tokenizer_id(model.tokenizer, bos) : -1;
    struct hop_dataset_options with = options(model, 6);
    struct hop_dataset *d = NULL;
    with.eos = hop_tokenizer_id(model.tokenizer, eos);
    assert_true(with.eos >= 0);
    const char *const spelled = bos ? bos : "";
    snprintf(text, sizeof text,
             "{\"prompt\": \"Hi\", \"completion\": \" a\"}\n"
             "{\"prompt\": \"%sHi\", \"completion\": \" a%s\"}\n"
             "{\"prompt\": \"Hi Hi Hi Hi Hi Hi Hi Hi\", \"completion\": \"a\"}\n"
             "{\"text\": \"Hi\"}\n{\"text\": \"%sHi%s\"}\n",
             spelled, eos, spelled, eos);
    const char *const path = hop_test_write_text("ends.jsonl", text);
    ASSERT_OK(hop_dataset_load(path, model.tokenizer, &with, &d, &err));
    assert_int_equal(d->count, 5);
    assert_int_equal(d->truncated, 1);
    for (size_t i = 0; i < d->count; i++)
        check_ends(&d->examples[i], bos_id, with.eos);
    hop_dataset_free(d);
    close_model(model);
}

static void test_ends_of_llama3(void **state)
{
    (void)state;
    check_family(llama3_model(NULL), "<|begin_of_text|>", "<|end_of_text|>");
}

static void test_ends_of_llama2(void **state)
{
    (void)state;
    const char *const directory = hop_test_data("tokenizers/tinyllama");
    if (!directory)
        skip();
    check_family(directory, "<s>", "</s>");
}

static void test_ends_of_gpt2(void **state)
{
    (void)state;
    const char *const directory = hop_test_data("tokenizers/gpt2");
    if (!directory)
        skip();
    check_family(directory, NULL, "<|endoftext|>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama2),
        cmocka_unit_test(test_llama2_of_a_small_vocabulary),
        cmocka_unit_test(test_special_tokens_in_contents),
        cmocka_unit_test(test_llama2_order),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_llama3_with_dates),
        cmocka_unit_test(test_chatml),
        cmocka_unit_test(test_chatml_of_models),
        cmocka_unit_test(test_stripping_tokens),
        cmocka_unit_test(test_places_of_the_template),
        cmocka_unit_test(test_unusable_templates),
        cmocka_unit_test(test_unknown_template_of_a_real_model),
        cmocka_unit_test(test_cut_conversations),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_file_and_line_of_a_missing_template),
        cmocka_unit_test(test_prompt_beside_messages),
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_lines_are_counted_by_their_ends),
        cmocka_unit_test(test_very_long_rows),
        cmocka_unit_test(test_padding_token_beyond_the_model),
        cmocka_unit_test(test_ends_of_llama3),
        cmocka_unit_test(test_ends_of_llama2),
        cmocka_unit_test(test_ends_of_gpt2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
