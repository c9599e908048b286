/* Directions of probes: distributions, independence, and the sum that estimates a gradient. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "support_model.h"

#include "model/direction.h"

static struct hop_error err;

enum { N = 1 << 14 };
static const struct hop_parameter large = {.block = 3,
                                           .target = HOP_UP_PROJ,
                                           .factor = HOP_LORA_B,
                                           .rows = N / 8,
                                           .columns = 8,
                                           .count = N};

static double correlation(const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += (double)a[i] * (double)b[i];
    return sum / N;
}

/* Every pair of (micro-batch, probe, sample) draws independent numbers of variance one. The
 * deviation of a correlation is 1 / sqrt(N) = 0.0078. */
static void check_independent(enum hop_distribution distribution)
{
    enum { DIRECTIONS = 36 };
    float(*const z)[N] = malloc(DIRECTIONS * sizeof *z);
    assert_non_null(z);
    for (uint16_t i = 0; i < DIRECTIONS; i++) {
        const struct hop_direction direction = {.seed = 11,
                                                .step = 2,
                                                .micro_batch = i / 12,
                                                .direction = i / 4 % 3,
                                                .sample = i % 4,
                                                .distribution = distribution};
        hop_direction_values(&direction, &large, 0, N, z[i]);
        double mean = 0;
        for (size_t k = 0; k < N; k++)
            mean += (double)z[i][k] / N;
        assert_true(fabs(mean) < 0.05);
        assert_true(fabs(correlation(z[i], z[i]) - 1) < 0.06);
        for (uint16_t j = 0; j < i; j++)
            assert_true(fabs(correlation(z[i], z[j])) < 0.045);
    }
    free(z);
}

static void test_independent(void **state)
{
    (void)state;
    check_independent(HOP_GAUSSIAN);
    check_independent(HOP_RADEMACHER);
}

static void test_rademacher(void **state)
{
    (void)state;
    float z[256];
    const struct hop_direction direction = {.seed = 4, .distribution = HOP_RADEMACHER};
    hop_direction_values(&direction, &large, 77, 256, z);
    for (size_t i = 0; i < 256; i++)
        assert_true(z[i] == 1 || z[i] == -1);
}

static void test_slices(void **state)
{
    (void)state;
    float whole[1000], slice[1000];
    for (enum hop_distribution distribution = HOP_GAUSSIAN; distribution <= HOP_RADEMACHER;
         distribution++) {
        const struct hop_direction direction = {
            .seed = 1, .step = 9, .direction = 2, .sample = 5, .distribution = distribution};
        hop_direction_values(&direction, &large, 0, 1000, whole);
        for (size_t begin = 0; begin < 300; begin += 17) {
            hop_direction_values(&direction, &large, begin, 1000 - begin, slice);
            assert_memory_equal(slice, whole + begin, (1000 - begin) * sizeof *slice);
        }
    }
}

/* In the order the header promises. */
static void add_one_by_one(struct hop_parameters *p, const struct hop_direction_set *set,
                           const float *coefficients)
{
    const int32_t samples = set->samples > 0 ? set->samples : 1;
    for (size_t i = 0; i < p->count; i++) {
        const struct hop_parameter *const item = &p->items[i];
        float *const z = malloc(item->count * sizeof *z);
        assert_non_null(z);
        for (int32_t k = 0; k < set->count * samples; k++) {
            const struct hop_direction direction = {.seed = set->seed,
                                                    .step = set->step,
                                                    .micro_batch = set->micro_batch,
                                                    .direction =
                                                        (uint16_t)(set->first + k / samples),
                                                    .sample = (uint16_t)(k % samples),
                                                    .distribution = set->distribution};
            hop_direction_values(&direction, item, 0, item->count, z);
            for (size_t e = 0; e < item->count; e++)
                p->gradients[item->offset + e] =
                    fmaf(coefficients[k], z[e], p->gradients[item->offset + e]);
        }
        free(z);
    }
}

static void check_estimate(struct hop_direction_set set)
{
    const struct hop_model_config config = support_tiny_config();
    const struct hop_lora_config lora = support_all_targets(8, 8);
    const float coefficients[] = {0.5f, -2, 3, 0.25f, -1, 7, -0.125f, 0.75f, 1, -5, 2, 0.1f};
    struct hop_parameters once, twice, slow;
    assert_true(set.count * (set.samples > 0 ? set.samples : 1) <= 12);
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &once, &err));
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &twice, &err));
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &slow, &err));
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    hop_parameters_add_estimate(&once, &set, coefficients);
    omp_set_num_threads(3);
    hop_parameters_add_estimate(&twice, &set, coefficients);
    omp_set_num_threads(threads);
    add_one_by_one(&slow, &set, coefficients);
    assert_memory_equal(once.gradients, twice.gradients, once.total * sizeof(float));
    for (size_t i = 0; i < once.total; i++)
        assert_true(fabsf(once.gradients[i] - slow.gradients[i]) < 2e-5f);
    hop_parameters_free(&once);
    hop_parameters_free(&twice);
    hop_parameters_free(&slow);
}

static void test_estimate(void **state)
{
    (void)state;
    check_estimate(
        (struct hop_direction_set){.seed = 5, .step = 6, .micro_batch = 7, .first = 2, .count = 3});
    check_estimate((struct hop_direction_set){
        .seed = 5, .step = 6, .micro_batch = 7, .count = 3, .samples = 4});
    check_estimate((struct hop_direction_set){.seed = 8,
                                              .micro_batch = 1,
                                              .first = 1,
                                              .count = 2,
                                              .samples = 5,
                                              .distribution = HOP_RADEMACHER});
}

/* One sample of its own is the direction all samples share. */
static void test_first_sample_is_shared(void **state)
{
    (void)state;
    const struct hop_model_config config = support_tiny_config();
    const struct hop_lora_config lora = support_all_targets(4, 8);
    const float coefficients[] = {0.5f, -2};
    const uint16_t directions[] = {3, 4};
    struct hop_direction_set set = {.seed = 5, .step = 6, .micro_batch = 7, .first = 3, .count = 2};
    struct hop_parameters shared, own, listed;
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &shared, &err));
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &own, &err));
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &listed, &err));
    hop_parameters_add_estimate(&shared, &set, coefficients);
    set.samples = 1;
    hop_parameters_add_estimate(&own, &set, coefficients);
    hop_parameters_add_directions(&listed, 5, 6, 7, directions, coefficients, 2);
    assert_memory_equal(shared.gradients, own.gradients, own.total * sizeof(float));
    assert_memory_equal(shared.gradients, listed.gradients, own.total * sizeof(float));
    hop_parameters_free(&shared);
    hop_parameters_free(&own);
    hop_parameters_free(&listed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_independent),
        cmocka_unit_test(test_rademacher),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_estimate),
        cmocka_unit_test(test_first_sample_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
