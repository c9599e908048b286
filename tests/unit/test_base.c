#include "support_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/string.h"

static struct hop_error err;

/* Random123's published answer for Philox4x32-10 with counter and key 0: a change of the generator
 * would silently change every run. */
static void test_philox_known_answer(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const struct hop_random_key key = {0};
    float found[4];
    hop_random_uniform(&key, 0, 4, found);
    for (int i = 0; i < 4; i++)
        ASSERT_NEAR(found[i], (float)(bits[i] >> 8) * 0x1p-24f, 0);
}

static void test_every_key_field_counts(void **state)
{
    (void)state;
    const struct hop_random_key keys[] = {
        {0},
        {.seed = 1},
        {.seed = UINT64_C(1) << 32},
        {.domain = HOP_RANDOM_INIT},
        {.domain = HOP_RANDOM_SHUFFLE},
        {.domain = HOP_RANDOM_SAMPLE},
        {.step = 1},
        {.micro_batch = 1},
        {.probe = 1},
        {.parameter = 1},
    };
    enum { KEYS = sizeof keys / sizeof *keys };
    float values[KEYS][4];
    for (size_t i = 0; i < KEYS; i++)
        hop_random_uniform(&keys[i], 0, 4, values[i]);
    for (size_t i = 0; i < KEYS; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(values[i], values[j], sizeof values[i]);
}

static void test_slices_equal_the_whole(void **state)
{
    (void)state;
    enum { N = 103 };
    const struct hop_random_key key = {.seed = 42, .step = 3, .parameter = 9};
    float whole[N], slice[N];
    hop_random_normal(&key, 0, N, whole);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t n = 0; begin + n <= 20; n++) {
            hop_random_normal(&key, begin, n, slice);
            assert_memory_equal(slice, whole + begin, n * sizeof *slice);
        }
    hop_random_normal(&key, 50, N - 50, slice);
    assert_memory_equal(slice, whole + 50, (N - 50) * sizeof *slice);
}

enum { DRAWS = 1 << 20 };

static double moment(const float *x, double mean, int power)
{
    double sum = 0;
    for (size_t i = 0; i < DRAWS; i++)
        sum += pow(x[i] - mean, power);
    return sum / DRAWS;
}

/* Bounds are five standard deviations of each estimate. */
static void test_moments(void **state)
{
    (void)state;
    const struct hop_random_key key = {.seed = 7, .probe = 2};
    const double root = sqrt(DRAWS);
    float *const x = malloc(DRAWS * sizeof *x);
    hop_random_normal(&key, 0, DRAWS, x);
    ASSERT_NEAR(moment(x, 0, 1), 0, 5 / root);
    ASSERT_NEAR(moment(x, 0, 2), 1, 5 * sqrt(2) / root);
    ASSERT_NEAR(moment(x, 0, 3), 0, 5 * sqrt(15) / root);
    ASSERT_NEAR(moment(x, 0, 4), 3, 5 * sqrt(96) / root);
    hop_random_uniform(&key, 0, DRAWS, x);
    ASSERT_NEAR(moment(x, 0, 1), 0.5, 5 * sqrt(1.0 / 12) / root);
    ASSERT_NEAR(moment(x, 0.5, 2), 1.0 / 12, 5 * sqrt(1.0 / 180) / root);
    for (size_t i = 0; i < DRAWS; i++)
        if (!(x[i] >= 0 && x[i] < 1))
            fail_msg("draw %zu is %g", i, (double)x[i]);
    free(x);
}

static void test_shuffle_is_a_permutation(void **state)
{
    (void)state;
    enum { N = 1000 };
    uint32_t order[N], again[N];
    unsigned char seen[N] = {0};
    const struct hop_random_key key = {.seed = 5, .domain = HOP_RANDOM_SHUFFLE};
    size_t moved = 0;
    for (uint32_t i = 0; i < N; i++)
        order[i] = again[i] = i;
    hop_random_shuffle(&key, order, N);
    hop_random_shuffle(&key, again, N);
    assert_memory_equal(order, again, sizeof order);
    for (uint32_t i = 0; i < N; i++) {
        assert_in_range(order[i], 0, N - 1);
        assert_int_equal(seen[order[i]]++, 0);
        moved += order[i] != i;
    }
    assert_in_range(moved, N - 20, N);
    hop_random_shuffle(&key, order, 0);
    hop_random_shuffle(&key, order, 1);
}

/* Each of the 24 orders of four things comes about equally often. */
static void test_shuffle_is_fair(void **state)
{
    (void)state;
    enum { TRIES = 24000 };
    size_t counts[256] = {0}, kinds = 0;
    for (uint32_t step = 0; step < TRIES; step++) {
        uint32_t order[] = {0, 1, 2, 3};
        const struct hop_random_key key = {.domain = HOP_RANDOM_SHUFFLE, .step = step};
        hop_random_shuffle(&key, order, 4);
        counts[order[0] << 6 | order[1] << 4 | order[2] << 2 | order[3]]++;
    }
    for (size_t i = 0; i < 256; i++)
        if (counts[i]) {
            kinds++;
            assert_in_range(counts[i], 850, 1150);
        }
    assert_int_equal(kinds, 24);
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Built from bits, where the library uses arithmetic. */
static uint32_t half_bits(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half >> 15) << 31, fraction = half & 1023u;
    const uint32_t exponent = half >> 10 & 31;
    if (exponent == 31)
        return sign | 0x7f800000u | fraction << 13;
    if (exponent == 0)
        return sign | to_bits((float)fraction * 0x1p-24f);
    return sign | (exponent + 112) << 23 | fraction << 13;
}

static void test_all_halves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const float expected = from_bits(half_bits((uint16_t)i));
        const float found = hop_f16_to_f32((uint16_t)i);
        if (isnan(expected) ? !isnan(found) : to_bits(found) != to_bits(expected))
            fail_msg("f16 %04x: expected %g, found %g", i, (double)expected, (double)found);
    }
}

static void test_f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1 << 16; i++) {
        const float value = hop_f16_to_f32((uint16_t)i);
        const uint16_t back = hop_f16_from_f32(value);
        if (isnan(value) ? !isnan(hop_f16_to_f32(back)) : back != i)
            fail_msg("f16 %04x: came back as %04x", i, back);
        if ((i & 0x7fff) >= 0x7bff)
            continue;
        const uint16_t even = (uint16_t)(i + (i & 1)), up = (uint16_t)(i + 1);
        const float middle = (value + hop_f16_to_f32(up)) / 2;
        if (hop_f16_from_f32(nextafterf(middle, value)) != i || hop_f16_from_f32(middle) != even ||
            hop_f16_from_f32(nextafterf(middle, 2 * middle)) != up)
            fail_msg("f16 %04x is rounded wrongly", i);
    }
    assert_int_equal(hop_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(hop_f16_from_f32(-65520.0f), 0xfc00);
    assert_int_equal(hop_f16_from_f32(INFINITY), 0x7c00);
}

static void test_all_bf16(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const float value = hop_bf16_to_f32((uint16_t)i);
        const uint16_t back = hop_bf16_from_f32(value);
        if (to_bits(value) != i << 16)
            fail_msg("bf16 %04x: found %08x", i, to_bits(value));
        if (isnan(value) ? !isnan(hop_bf16_to_f32(back)) : back != i)
            fail_msg("bf16 %04x: came back as %04x", i, back);
    }
}

/* Below, at and above the middle between each finite value and the next. */
static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint32_t up = i + 1, even = i & 1 ? up : i;
        if ((i & 0x7f80) == 0x7f80)
            continue;
        if (hop_bf16_from_f32(from_bits(i << 16 | 0x7fff)) != i ||
            hop_bf16_from_f32(from_bits(i << 16 | 0x8000)) != even ||
            hop_bf16_from_f32(from_bits(i << 16 | 0x8001)) != up)
            fail_msg("bf16 %04x is rounded wrongly", i);
    }
    assert_true(isnan(hop_bf16_to_f32(hop_bf16_from_f32(from_bits(0x7f800001)))));
}

static void test_convert(void **state)
{
    (void)state;
    static const float values[] = {1.0f, -2.5f, 0.0f, 1e-3f};
    static const uint16_t halves[] = {0x3c00, 0xc100};
    uint16_t narrow[4];
    float wide[4];
    hop_convert(narrow, HOP_BF16, values, HOP_F32, 4);
    hop_convert(wide, HOP_F32, narrow, HOP_BF16, 4);
    ASSERT_NEAR(wide[1], -2.5f, 0);
    ASSERT_NEAR(wide[3], 1e-3f, 1e-3f / 256);
    hop_convert(wide, HOP_F32, halves, HOP_F16, 2);
    ASSERT_NEAR(wide[1], -2.5f, 0);
    hop_convert(narrow, HOP_BF16, halves, HOP_F16, 2);
    assert_int_equal(narrow[0], 0x3f80);
    assert_int_equal(hop_dtype_size(HOP_F32), 4);
    assert_int_equal(hop_dtype_size(HOP_DTYPE_OTHER), 0);
    assert_string_equal(hop_dtype_name(HOP_BF16), "bf16");
}

static void test_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"rank", "alpha", "learning_rate", "targets"};
    assert_string_equal(hop_nearest_name("rnak", names, 4), "rank");
    assert_string_equal(hop_nearest_name("learning-rate", names, 4), "learning_rate");
    assert_string_equal(hop_nearest_name("target", names, 4), "targets");
    assert_null(hop_nearest_name("nothing_alike", names, 4));
    assert_null(hop_nearest_name("rank", names, 0));
    char long_name[200];
    memset(long_name, 'x', sizeof long_name);
    long_name[199] = '\0';
    hop_nearest_name(long_name, names, 4);
}

static void test_strings(void **state)
{
    (void)state;
    struct hop_string s = {0};
    assert_string_equal(hop_string_text(&s), "");
    ASSERT_OK(hop_string_append(&s, NULL, 0, &err));
    assert_string_equal(s.data, "");
    for (int i = 0; i < 1000; i++)
        ASSERT_OK(hop_string_printf(&s, &err, "%d,", i));
    assert_int_equal(s.length, strlen(s.data));
    assert_int_equal(s.length, 3890);
    hop_string_free(&s);
    assert_null(s.data);
}

static void test_errors(void **state)
{
    (void)state;
    struct hop_error e = {0};
    char long_text[3000];
    assert_int_equal(hop_fail(&e, HOP_INPUT, "file:%d\nbroken\r", 3), HOP_INPUT);
    assert_string_equal(e.message, "file:3 broken ");
    assert_int_equal(hop_wrap(&e, "device %s", "npu0"), HOP_INPUT);
    assert_string_equal(e.message, "device npu0: file:3 broken ");
    assert_int_equal(e.status, HOP_INPUT);
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    hop_fail(&e, HOP_IO, "%s", long_text);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
    hop_wrap(&e, "%s", long_text);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
    assert_int_equal(hop_status_exit_code(HOP_OK), 0);
    assert_int_equal(hop_status_exit_code(HOP_INPUT), 2);
    assert_int_equal(hop_status_exit_code(HOP_INFEASIBLE), 1);
    assert_string_equal(hop_status_text(HOP_PEER), "a peer failed");
}

static void test_memory(void **state)
{
    (void)state;
    unsigned char *bytes = NULL;
    int *items = NULL;
    size_t capacity = 0;
    ASSERT_OK(hop_calloc(&bytes, 0, 0, &err));
    assert_non_null(bytes);
    free(bytes);
    ASSERT_OK(hop_calloc_aligned(&bytes, 3, 7, &err));
    assert_int_equal((uintptr_t)bytes % HOP_ALIGN, 0);
    for (int i = 0; i < 21; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
    ASSERT_REFUSED(hop_calloc_aligned(&bytes, SIZE_MAX / 2, 4, &err), HOP_MEMORY, "out of memory");
    ASSERT_REFUSED(hop_grow(&items, &capacity, SIZE_MAX / 2, 8, &err), HOP_MEMORY, "out of memory");
    for (size_t n = 1; n < 100; n++) {
        ASSERT_OK(hop_grow(&items, &capacity, n, sizeof *items, &err));
        items[n - 1] = (int)n;
    }
    assert_int_equal(items[0], 1);
    assert_int_equal(items[98], 99);
    free(items);
    assert_int_equal(hop_align(0), 0);
    assert_int_equal(hop_align(65), 128);
}

static void test_clock(void **state)
{
    (void)state;
    const double begin = hop_clock_now();
    hop_clock_sleep(0.01);
    hop_clock_sleep(-1);
    assert_true(hop_clock_now() - begin >= 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answer),
        cmocka_unit_test(test_every_key_field_counts),
        cmocka_unit_test(test_slices_equal_the_whole),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_shuffle_is_a_permutation),
        cmocka_unit_test(test_shuffle_is_fair),
        cmocka_unit_test(test_all_halves),
        cmocka_unit_test(test_f16_rounds_to_nearest_even),
        cmocka_unit_test(test_all_bf16),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_convert),
        cmocka_unit_test(test_nearest_name),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
