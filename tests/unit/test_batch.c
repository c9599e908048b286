#include "support_files.h"

#include <stdlib.h>

#include "data/batch.h"

static struct hop_error err;

enum { VOCABULARY = 50 };

static int32_t first_ids[] = {1, 5, 6, 7}, first_labels[] = {-100, -100, 6, 7};
static int32_t second_ids[] = {1, 9}, second_labels[] = {1, 9};
static int32_t third_ids[] = {1, 2, 3, 4, 8}, third_labels[] = {-100, 2, -100, 4, -100};

static struct hop_example examples[] = {
    {.ids = first_ids, .labels = first_labels, .length = 4},
    {.ids = second_ids, .labels = second_labels, .length = 2},
    {.ids = third_ids, .labels = third_labels, .length = 5},
};
static const struct hop_dataset dataset = {.examples = examples, .count = 3, .longest = 5};

static const struct hop_batch_limits limits = {.sequences = 3, .tokens = 11, .labels = 5};

static void assert_ints(const int32_t *found, const int32_t *expected, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(found[i], expected[i]);
}

static struct hop_batch packed(void)
{
    static const uint32_t rows[] = {2, 1, 0};
    struct hop_batch batch;
    ASSERT_OK(hop_batch_create(&limits, &batch, &err));
    hop_batch_pack(&dataset, rows, 3, &batch);
    return batch;
}

static void assert_packed(const struct hop_batch *batch)
{
    assert_int_equal(batch->sequences, 3);
    assert_int_equal(batch->tokens, 11);
    assert_int_equal(batch->labels, 5);
    assert_ints(batch->ids, (int32_t[]){1, 2, 3, 4, 8, 1, 9, 1, 5, 6, 7}, 11);
    assert_ints(batch->position, (int32_t[]){0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3}, 11);
    assert_ints(batch->offset, (int32_t[]){0, 5, 7, 11}, 4);
    assert_ints(batch->label_row, (int32_t[]){0, 2, 5, 8, 9}, 5);
    assert_ints(batch->label_id, (int32_t[]){2, 4, 9, 6, 7}, 5);
}

static void test_pack(void **state)
{
    (void)state;
    struct hop_batch batch = packed();
    assert_packed(&batch);
    assert_int_equal(batch.label_total, 5);
    assert_int_equal(hop_batch_label_count(&dataset, (uint32_t[]){0, 2}, 2), 4);
    hop_batch_pack(&dataset, (uint32_t[]){1}, 1, &batch);
    assert_int_equal(batch.tokens, 2);
    assert_int_equal(batch.label_total, 1);
    hop_batch_free(&batch);
    hop_batch_free(NULL);
}

static void test_encode_and_decode(void **state)
{
    (void)state;
    int32_t words[64];
    struct hop_batch batch = packed(), back;
    batch.label_total = INT64_C(0x123456789a);
    batch.micro_batch = 7;
    assert_in_range(hop_batch_words(&limits), 1, 64);
    const size_t n = hop_batch_encode(&batch, words);
    assert_int_equal(n, hop_batch_words(&limits));
    ASSERT_OK(hop_batch_create(&limits, &back, &err));
    ASSERT_OK(hop_batch_decode(words, n, &limits, VOCABULARY, &back, &err));
    assert_packed(&back);
    assert_int_equal(back.label_total, batch.label_total);
    assert_int_equal(back.micro_batch, 7);
    hop_batch_free(&batch);
    hop_batch_free(&back);
}

/* Word indices of the message of packed(): 6 header words, 3 ends, 11 ids, 5 rows, 5 label ids. */
static void test_hostile_words(void **state)
{
    (void)state;
    static const struct {
        size_t word;
        int32_t value;
        const char *part;
    } cases[] = {
        {0, -1, "sequences"},
        {0, 4, "at most 3, 11, 5"},
        {0, 2, "words"},
        {1, INT32_MAX, "at most"},
        {1, INT32_MIN, "at most"},
        {2, 6, "at most"},
        {2, 4, "words"},
        {3, -1, "negative"},
        {5, -1, "negative"},
        {6, 0, "ends sequence 0"},
        {6, -5, "ends sequence 0"},
        {7, 5, "ends sequence 1"},
        {7, 12, "ends sequence 1"},
        {8, 10, "has 11 tokens, its sequences 10"},
        {9, -1, "token -1"},
        {19, VOCABULARY, "token 50"},
        {20, -1, "label 0 at row -1"},
        {21, 11, "label 1 at row 11"},
        {23, 1, "label 3 at row 1"},
        {25, -100, "label -100"},
        {29, VOCABULARY, "label 50"},
    };
    int32_t words[64];
    struct hop_batch batch = packed(), back;
    const size_t n = hop_batch_encode(&batch, words);
    ASSERT_OK(hop_batch_create(&limits, &back, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t saved = words[cases[i].word];
        words[cases[i].word] = cases[i].value;
        ASSERT_REFUSED(hop_batch_decode(words, n, &limits, VOCABULARY, &back, &err), HOP_INPUT,
                       cases[i].part);
        words[cases[i].word] = saved;
    }
    for (size_t shorter = 0; shorter < n; shorter++)
        ASSERT_REFUSED(hop_batch_decode(words, shorter, &limits, VOCABULARY, &back, &err),
                       HOP_INPUT, "words");
    ASSERT_OK(hop_batch_decode(words, n, &limits, VOCABULARY, &back, &err));
    hop_batch_free(&batch);
    hop_batch_free(&back);
}

static struct hop_dataset many(size_t count)
{
    struct hop_dataset out = {.count = count, .examples = calloc(count, sizeof *out.examples)};
    for (size_t i = 0; i < count; i++)
        out.examples[i] = examples[i % 3];
    return out;
}

/* Counts how often each row comes in the epoch that starts at step `begin`. */
static void assert_each_row_once(struct hop_loader *loader, int64_t begin)
{
    const size_t count = loader->dataset->count;
    unsigned char *const seen = calloc(count, 1);
    size_t total = 0;
    for (int64_t step = 0; step < loader->steps_per_epoch; step++) {
        const uint32_t *rows = NULL;
        const size_t n = hop_loader_rows(loader, begin + step, &rows);
        assert_in_range(n, 1, loader->batch_size);
        for (size_t i = 0; i < n; i++) {
            assert_in_range(rows[i], 0, count - 1);
            assert_int_equal(seen[rows[i]]++, 0);
        }
        total += n;
    }
    assert_int_equal(total, count);
    free(seen);
}

static void test_loader_visits_each_row_once_an_epoch(void **state)
{
    (void)state;
    struct hop_dataset rows = many(23);
    struct hop_loader loader;
    for (size_t batch = 1; batch <= 24; batch++) {
        ASSERT_OK(hop_loader_create(&rows, batch, 2, 42, true, &loader, &err));
        assert_int_equal(loader.steps_per_epoch, (23 + batch - 1) / batch);
        for (int64_t epoch = 0; epoch < 3; epoch++)
            assert_each_row_once(&loader, epoch * loader.steps_per_epoch);
        hop_loader_free(&loader);
    }
    free(rows.examples);
    hop_loader_free(NULL);
}

static void test_loader_order(void **state)
{
    (void)state;
    struct hop_dataset rows = many(30);
    struct hop_loader a, b;
    const uint32_t *x = NULL, *y = NULL;
    uint32_t first[10];
    ASSERT_OK(hop_loader_create(&rows, 10, 4, 42, true, &a, &err));
    ASSERT_OK(hop_loader_create(&rows, 10, 4, 42, true, &b, &err));
    for (int64_t step = 0; step < 9; step++)
        hop_loader_rows(&a, step, &x);
    hop_loader_rows(&b, 8, &y);
    assert_memory_equal(x, y, 10 * sizeof *x);
    hop_loader_rows(&a, 0, &x);
    memcpy(first, x, sizeof first);
    hop_loader_rows(&a, 3, &x);
    assert_memory_not_equal(first, x, sizeof first);
    hop_loader_free(&b);
    ASSERT_OK(hop_loader_create(&rows, 10, 4, 42, false, &b, &err));
    hop_loader_rows(&b, 5, &y);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(y[i], 20 + i);
    hop_loader_free(&a);
    hop_loader_free(&b);
    free(rows.examples);
}

static void test_loader_limits(void **state)
{
    (void)state;
    struct hop_loader loader;
    ASSERT_OK(hop_loader_create(&dataset, 3, 2, 1, true, &loader, &err));
    struct hop_batch_limits found = hop_loader_limits(&loader);
    assert_int_equal(found.sequences, 2);
    assert_int_equal(found.tokens, 9);
    assert_int_equal(found.labels, 4);
    hop_loader_free(&loader);
    ASSERT_OK(hop_loader_create(&dataset, 1, 8, 1, true, &loader, &err));
    found = hop_loader_limits(&loader);
    assert_int_equal(found.sequences, 1);
    assert_int_equal(found.tokens, 5);
    hop_loader_free(&loader);
    ASSERT_REFUSED(hop_loader_create(&dataset, 0, 8, 1, true, &loader, &err), HOP_INPUT, "of 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_encode_and_decode),
        cmocka_unit_test(test_hostile_words),
        cmocka_unit_test(test_loader_visits_each_row_once_an_epoch),
        cmocka_unit_test(test_loader_order),
        cmocka_unit_test(test_loader_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
