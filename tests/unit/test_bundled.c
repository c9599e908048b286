/* The model in models/ against what a second implementation (tools/, PyTorch) says of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"
#include "text/tokenizer.h"

#define MODEL   HOP_SOURCE_DIR "/models/wordnet-3m"
#define VECTORS HOP_SOURCE_DIR "/tests/data/wordnet-3m/"

/* Tokenizer */

static void check_ids(const char *text, const json_t *expected, const struct hop_ids *ids)
{
    if (ids->count != json_array_size(expected))
        fail_msg("\"%s\": %zu ids, expected %zu", text, ids->count, json_array_size(expected));
    for (size_t i = 0; i < ids->count; i++)
        if (ids->data[i] != json_integer_value(json_array_get(expected, i)))
            fail_msg("\"%s\": id %zu is %d, expected %lld", text, i, ids->data[i],
                     (long long)json_integer_value(json_array_get(expected, i)));
}

static void check_line(struct hop_tokenizer *tokenizer, const json_t *line)
{
    struct hop_error err = {0};
    struct hop_ids ids = {0};
    struct hop_string decoded = {0};
    const char *const text = json_string_value(json_object_get(line, "text"));
    const size_t length = json_string_length(json_object_get(line, "text"));
    assert_non_null(text);
    assert_ok(hop_tokenizer_encode(tokenizer, text, length, false, &ids, &err));
    check_ids(text, json_object_get(line, "ids"), &ids);
    assert_ok(hop_tokenizer_decode(tokenizer, ids.data, ids.count, false, &decoded, &err));
    assert_int_equal(decoded.length, length);
    assert_memory_equal(hop_string_text(&decoded), text, length);
    hop_string_free(&decoded);
    hop_ids_free(&ids);
}

static void test_tokenizer(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_tokenizer *tokenizer;
    char *line = NULL;
    size_t capacity = 0, lines = 0;
    FILE *const file = fopen(VECTORS "tokenizer.jsonl", "r");
    assert_non_null(file);
    assert_ok(hop_tokenizer_load(MODEL, &tokenizer, &err));
    for (; getline(&line, &capacity, file) > 0; lines++) {
        json_t *const value = json_loads(line, JSON_ALLOW_NUL, NULL);
        check_line(tokenizer, value);
        json_decref(value);
    }
    assert_true(lines > 100);
    free(line);
    fclose(file);
    hop_tokenizer_free(tokenizer);
}

/* Logits and loss */

struct model {
    struct hop_backend *backend;
    struct hop_weights *weights;
    struct hop_stage *stage;
};

static void open_model(const char *backend, int32_t tokens, struct model *m)
{
    struct hop_error err = {0};
    struct hop_stage_config config = {.lora = {.rank = 1, .alpha = 1},
                                      .dtype = HOP_F32,
                                      .embed = true,
                                      .head = true,
                                      .limits = {1, tokens, tokens},
                                      .cache = tokens};
    const struct hop_ops *const ops = hop_backend_find(backend);
    assert_non_null(ops);
    assert_ok(hop_model_config_load(MODEL, &config.model, &err));
    config.hi = config.model.blocks;
    assert_ok(hop_weights_open(MODEL, &config.model, &m->weights, &err));
    assert_ok(ops->open(1, &m->backend, &err));
    assert_ok(hop_stage_create(ops, m->backend, m->weights, &config, &m->stage, &err));
}

static void close_model(const char *backend, struct model *m)
{
    hop_stage_free(m->stage);
    hop_weights_free(m->weights);
    hop_backend_find(backend)->close(m->backend);
}

static int32_t read_ids(const json_t *array, int32_t *ids)
{
    const size_t n = json_array_size(array);
    assert_in_range(n, 2, SUPPORT_TOKENS);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return (int32_t)n;
}

static void check_logits(const char *backend, const json_t *vectors)
{
    struct hop_error err = {0};
    struct model m;
    static int32_t ids[SUPPORT_TOKENS];
    static float logits[8192];
    const json_t *const expected = json_object_get(vectors, "last_logits");
    const int32_t n = read_ids(json_object_get(vectors, "ids"), ids);
    open_model(backend, n, &m);
    assert_ok(hop_stage_decode(m.stage, ids, n, 0, logits, &err));
    for (size_t i = 0; i < json_array_size(expected); i++)
        assert_close(logits[i], json_number_value(json_array_get(expected, i)), 2e-4);
    close_model(backend, &m);
}

/* Every token of a text but the first is predicted from those before it. */
static void check_loss(const char *backend, const json_t *vectors)
{
    struct hop_error err = {0};
    struct model m;
    static struct support_batch b;
    static float logprob[SUPPORT_TOKENS];
    const int32_t n = read_ids(json_object_get(vectors, "text_ids"), b.ids);
    for (int32_t i = 0; i < n; i++)
        b.position[i] = i;
    for (int32_t i = 0; i + 1 < n; i++) {
        b.label_row[i] = i;
        b.label_id[i] = b.ids[i + 1];
    }
    b.offset[1] = n;
    b.batch = (struct hop_batch){.sequences = 1,
                                 .tokens = n,
                                 .labels = n - 1,
                                 .ids = b.ids,
                                 .position = b.position,
                                 .offset = b.offset,
                                 .label_row = b.label_row,
                                 .label_id = b.label_id,
                                 .label_total = n - 1};
    open_model(backend, n, &m);
    assert_ok(hop_stage_forward(m.stage, &b.batch, -1, NULL, NULL, logprob, &err));
    assert_close(support_loss(logprob, (size_t)n - 1, n - 1),
                 json_number_value(json_object_get(vectors, "mean_nll")), 2e-5);
    close_model(backend, &m);
}

static void test_model(void **state)
{
    (void)state;
    json_t *const vectors = support_json(VECTORS "logits.json");
    assert_non_null(vectors);
    for (const struct hop_ops *const *ops = hop_backends; *ops; ops++) {
        check_logits((*ops)->name, vectors);
        check_loss((*ops)->name, vectors);
    }
    json_decref(vectors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokenizer),
                                       cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
