/* Counter-based random numbers: slices, domains, exactness of the elementary functions, moments. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <Random123/philox.h>

#include "base/random.h"

static const struct hop_random_key key = {.seed = 0x123456789abcdefu,
                                          .domain = HOP_RANDOM_SAMPLE,
                                          .step = 3,
                                          .micro_batch = 4,
                                          .probe = 5,
                                          .parameter = 6};

/* Any slice holds the same bits as the same place of the whole. */
static void test_slices(void **state)
{
    (void)state;
    enum { N = 700 };
    float whole[N], slice[N];
    hop_random_normal(&key, 0, N, whole);
    for (size_t begin = 0; begin < 200; begin += 7) {
        for (size_t n = 0; n + begin < N; n += 131) {
            hop_random_normal(&key, begin, n, slice);
            assert_memory_equal(slice, whole + begin, n * sizeof *slice);
        }
    }
}

static void differs(struct hop_random_key other)
{
    float a[8], b[8];
    hop_random_normal(&key, 0, 8, a);
    hop_random_normal(&other, 0, 8, b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void test_keys(void **state)
{
    (void)state;
    struct hop_random_key other = key;
    other.domain = HOP_RANDOM_INIT;
    differs(other);
    other = key;
    other.seed ^= 1ull << 40;
    differs(other);
    other = key;
    other.step++;
    differs(other);
    other = key;
    other.micro_batch++;
    differs(other);
    other = key;
    other.probe++;
    differs(other);
    other = key;
    other.parameter++;
    differs(other);
    other = key;
    other.sample++;
    differs(other);
}

/* Against Box-Muller in double from the same Philox words. */
static void test_exact(void **state)
{
    (void)state;
    enum { N = 400000 };
    float *const values = malloc(N * sizeof *values);
    double worst = 0;
    assert_non_null(values);
    hop_random_normal(&key, 0, N, values);
    for (size_t i = 0; i < N; i += 2) {
        const philox4x32_key_t k = {
            {(uint32_t)key.seed, (uint32_t)(key.seed >> 32) ^ (uint32_t)key.domain * 0x9e3779b9u}};
        const philox4x32_ctr_t counter = {{(uint32_t)(i / 4), key.parameter, key.step,
                                           (uint32_t)key.micro_batch << 16 | key.probe}};
        const philox4x32_ctr_t bits = philox4x32(counter, k);
        const uint32_t *const pair = bits.v + i % 4;
        const double radius = sqrt(-2 * log(((double)(pair[0] >> 8) + 1) * 0x1p-24));
        const double angle = 6.283185307179586476925 * (double)(pair[1] >> 8) * 0x1p-24;
        worst = fmax(worst, fabs(values[i] - radius * cos(angle)));
        worst = fmax(worst, fabs(values[i + 1] - radius * sin(angle)));
    }
    print_message("largest error of a normal number %.3g\n", worst);
    assert_true(worst < 1e-6);
    free(values);
}

static void test_moments(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    float *const values = malloc(N * sizeof *values);
    double mean = 0, square = 0, fourth = 0, uniform = 0;
    assert_non_null(values);
    hop_random_normal(&key, 0, N, values);
    for (size_t i = 0; i < N; i++) {
        const double x = (double)values[i];
        mean += x / N;
        square += x * x / N;
        fourth += x * x * x * x / N;
    }
    hop_random_uniform(&key, 0, N, values);
    for (size_t i = 0; i < N; i++) {
        assert_true(values[i] >= 0 && values[i] < 1);
        uniform += (double)values[i] / N;
    }
    assert_true(fabs(mean) < 5e-3);
    assert_true(fabs(square - 1) < 1e-2);
    assert_true(fabs(fourth - 3) < 5e-2);
    assert_true(fabs(uniform - 0.5) < 2e-3);
    free(values);
}

static void test_signs(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    float *const values = malloc(N * sizeof *values);
    float slice[300];
    double mean = 0, neighbours = 0;
    assert_non_null(values);
    hop_random_sign(&key, 0, N, values);
    for (size_t i = 0; i < N; i++) {
        assert_true(values[i] == 1 || values[i] == -1);
        mean += (double)values[i] / N;
        neighbours += i > 0 ? (double)values[i] * (double)values[i - 1] / N : 0;
    }
    assert_true(fabs(mean) < 5e-3);
    assert_true(fabs(neighbours) < 5e-3);
    for (size_t begin = 0; begin < 400; begin += 13) {
        for (size_t n = 0; n <= 300; n += 37) {
            hop_random_sign(&key, begin, n, slice);
            assert_memory_equal(slice, values + begin, n * sizeof *slice);
        }
    }
    free(values);
}

/* No sample of any seed below 2^48 draws from the key of another domain or sample. */
static void test_samples_apart(void **state)
{
    (void)state;
    enum { N = 64, SAMPLES = 300 };
    float drawn[4 + SAMPLES][N];
    for (uint32_t i = 0; i < 4 + SAMPLES; i++) {
        struct hop_random_key other = {.seed = 1};
        if (i < 4)
            other.domain = (enum hop_random_domain)i;
        else
            other.sample = (uint16_t)(i < 150 ? i - 3 : i * 199);
        hop_random_normal(&other, 0, N, drawn[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_memory_not_equal(drawn[i], drawn[j], sizeof drawn[i]);
    }
}

static void test_shuffle(void **state)
{
    (void)state;
    enum { N = 1000 };
    uint32_t order[N], again[N];
    bool seen[N] = {0};
    for (uint32_t i = 0; i < N; i++)
        order[i] = again[i] = i;
    hop_random_shuffle(&key, order, N);
    hop_random_shuffle(&key, again, N);
    assert_memory_equal(order, again, sizeof order);
    size_t fixed = 0;
    for (uint32_t i = 0; i < N; i++) {
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        fixed += order[i] == i;
    }
    assert_true(fixed < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),  cmocka_unit_test(test_keys),
        cmocka_unit_test(test_exact),   cmocka_unit_test(test_moments),
        cmocka_unit_test(test_signs),   cmocka_unit_test(test_samples_apart),
        cmocka_unit_test(test_shuffle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
