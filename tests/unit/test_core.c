/* Cores: their factors against a full singular value decomposition. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "support_model.h"

#include "base/random.h"
#include "model/core.h"

#define BUNDLED HOP_SOURCE_DIR "/models/wordnet-3m"

static struct hop_error err;

/* A full decomposition to compare with */

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool turn(double *a, double *b, size_t n)
{
    const double aa = dot(a, a, n), bb = dot(b, b, n), ab = dot(a, b, n);
    if (fabs(ab) <= 1e-14 * sqrt(aa * bb) + 1e-30)
        return false;
    const double z = (bb - aa) / (2 * ab);
    const double t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z));
    const double c = 1 / sqrt(1 + t * t), s = c * t;
    for (size_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        a[i] = c * x - s * y;
        b[i] = s * x + c * y;
    }
    return true;
}

static int descending(const void *a, const void *b)
{
    const double *const x = a, *const y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* Squared singular values by one-sided Jacobi rotations of the shorter side's vectors, largest
 * first; returns how many. */
static size_t jacobi(const float *w, size_t out, size_t in, double *squares)
{
    const bool wide = out <= in;
    const size_t n = wide ? out : in, length = wide ? in : out;
    double *const rows = malloc(out * in * sizeof *rows);
    bool rotated = true;
    assert_non_null(rows);
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++)
            rows[wide ? o * in + i : i * out + o] = (double)w[o * in + i];
    for (int sweep = 0; rotated && sweep < 50; sweep++) {
        rotated = false;
        for (size_t p = 0; p < n; p++)
            for (size_t q = p + 1; q < n; q++)
                rotated |= turn(rows + p * length, rows + q * length, length);
    }
    assert_false(rotated);
    for (size_t r = 0; r < n; r++)
        squares[r] = dot(rows + r * length, rows + r * length, length);
    qsort(squares, n, sizeof *squares, descending);
    free(rows);
    return n;
}

/* Squared norm of w - b a. */
static double missing(const float *w, size_t out, size_t in, size_t rank, const float *a,
                      const float *b)
{
    double sum = 0;
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            double left = (double)w[o * in + i];
            for (size_t r = 0; r < rank; r++)
                left -= (double)b[o * rank + r] * (double)a[r * in + i];
            sum += left * left;
        }
    }
    return sum;
}

/* Rows of a orthonormal, columns of b orthogonal and by descending length, signs fixed. */
static void check_shape(const float *a, const float *b, size_t out, size_t in, size_t rank,
                        double largest)
{
    double before = INFINITY;
    for (size_t r = 0; r < rank; r++) {
        double most = 0, length = 0;
        for (size_t i = 0; i < in; i++)
            most = fabs((double)a[r * in + i]) > fabs(most) ? (double)a[r * in + i] : most;
        assert_true(most > 0);
        for (size_t s = 0; s < rank; s++) {
            double rows = 0, columns = 0;
            for (size_t i = 0; i < in; i++)
                rows += (double)a[r * in + i] * (double)a[s * in + i];
            for (size_t o = 0; o < out; o++)
                columns += (double)b[o * rank + r] * (double)b[o * rank + s];
            assert_true(fabs(rows - (r == s)) < 1e-6);
            if (r != s)
                assert_true(fabs(columns) <= 1e-6 * largest);
            else
                length = columns;
        }
        assert_true(length <= before * (1 + 1e-6) + 1e-12 * largest);
        before = length;
    }
}

static void check_factors(const float *w, size_t out, size_t in, size_t rank, const char *what)
{
    float *const a = malloc(rank * in * sizeof *a), *const b = malloc(out * rank * sizeof *b);
    double *const squares = malloc(out * sizeof *squares);
    double optimal = 0;
    assert_true(a && b && squares);
    const size_t n = jacobi(w, out, in, squares);
    for (size_t r = rank; r < n; r++)
        optimal += squares[r];
    assert_ok(hop_core_factors(w, HOP_F32, (int64_t)out, (int64_t)in, (int32_t)rank, a, b, &err));
    check_shape(a, b, out, in, rank, squares[0]);
    const double found = sqrt(missing(w, out, in, rank, a, b));
    print_message("%s (%zu, %zu) rank %zu: error %.6f, optimal %.6f\n", what, out, in, rank, found,
                  sqrt(optimal));
    assert_true(found <= (1 + 1e-3) * sqrt(optimal) + 1e-6 * sqrt(squares[0]));
    free(a);
    free(b);
    free(squares);
}

static float *random_matrix(size_t out, size_t in, uint64_t seed)
{
    const struct hop_random_key key = {.seed = seed, .domain = HOP_RANDOM_SAMPLE};
    float *const w = malloc(out * in * sizeof *w);
    assert_non_null(w);
    hop_random_normal(&key, 0, out * in, w);
    return w;
}

static void test_random(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{64, 64, 8}, {172, 64, 4}, {48, 200, 1}, {5, 9, 5},
                                       {12, 7, 7},  {1, 1, 1},    {100, 33, 8}, {160, 160, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        float *const w = random_matrix(shapes[i][0], shapes[i][1], i);
        check_factors(w, shapes[i][0], shapes[i][1], shapes[i][2], "random");
        free(w);
    }
}

/* Fewer directions than the core wants, and none at all. */
static void test_deficient(void **state)
{
    (void)state;
    enum { OUT = 40, IN = 30 };
    float w[OUT * IN] = {0};
    check_factors(w, OUT, IN, 4, "zero");
    float *const u = random_matrix(OUT, 2, 1), *const v = random_matrix(2, IN, 2);
    for (size_t o = 0; o < OUT; o++)
        for (size_t i = 0; i < IN; i++)
            w[o * IN + i] = u[2 * o] * v[i] + 1e-3f * u[2 * o + 1] * v[IN + i];
    check_factors(w, OUT, IN, 6, "of rank 2");
    free(u);
    free(v);
}

static void check_model(const char *directory)
{
    struct hop_model_config config;
    struct hop_weights *weights;
    assert_ok(hop_model_config_load(directory, &config, &err));
    assert_ok(hop_weights_open(directory, &config, &weights, &err));
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        char name[HOP_TENSOR_NAME];
        const size_t out = (size_t)hop_target_out(&config, target);
        const size_t in = (size_t)hop_target_in(&config, target);
        hop_weight_name(1, target, name);
        const struct hop_tensor *const tensor = hop_weights_find(weights, name);
        float *const w = malloc(out * in * sizeof *w);
        assert_true(tensor && w);
        hop_convert(w, HOP_F32, tensor->data, tensor->dtype, out * in);
        check_factors(w, out, in, 8, name);
        free(w);
    }
    hop_weights_free(weights);
}

static void test_bundled(void **state)
{
    (void)state;
    check_model(BUNDLED);
}

static void test_stories(void **state)
{
    (void)state;
    char directory[512];
    strcpy(directory, support_data("models/stories260K"));
    check_model(directory);
}

static void factors_on(int threads, const float *w, float *a, float *b)
{
    omp_set_num_threads(threads);
    assert_ok(hop_core_factors(w, HOP_F32, 90, 130, 8, a, b, &err));
}

static void test_same_bits(void **state)
{
    (void)state;
    enum { OUT = 90, IN = 130, RANK = 8 };
    const int threads = omp_get_max_threads();
    float a[3][RANK * IN], b[3][OUT * RANK];
    float *const w = random_matrix(OUT, IN, 5);
    for (size_t i = 0; i < 3; i++)
        factors_on((int)i + 1, w, a[i], b[i]);
    for (size_t i = 1; i < 3; i++) {
        assert_memory_equal(a[i], a[0], sizeof a[0]);
        assert_memory_equal(b[i], b[0], sizeof b[0]);
    }
    omp_set_num_threads(threads);
    free(w);
}

/* bf16 weights are exactly what they stand for. */
static void test_bf16(void **state)
{
    (void)state;
    enum { OUT = 33, IN = 47, RANK = 3 };
    float a[2][RANK * IN], b[2][OUT * RANK];
    uint16_t narrow[OUT * IN];
    float *const w = random_matrix(OUT, IN, 6);
    hop_convert(narrow, HOP_BF16, w, HOP_F32, OUT * IN);
    hop_convert(w, HOP_F32, narrow, HOP_BF16, OUT * IN);
    assert_ok(hop_core_factors(w, HOP_F32, OUT, IN, RANK, a[0], b[0], &err));
    assert_ok(hop_core_factors(narrow, HOP_BF16, OUT, IN, RANK, a[1], b[1], &err));
    assert_memory_equal(a[0], a[1], sizeof a[0]);
    assert_memory_equal(b[0], b[1], sizeof b[0]);
    free(w);
}

static void test_refusals(void **state)
{
    (void)state;
    float w[12] = {1, 2, 3}, a[12], b[12];
    assert_fails(hop_core_factors(w, HOP_F32, 3, 4, 4, a, b, &err), HOP_INPUT, "rank 4");
    w[7] = NAN;
    assert_fails(hop_core_factors(w, HOP_F32, 3, 4, 2, a, b, &err), HOP_INPUT, "no number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),    cmocka_unit_test(test_deficient),
        cmocka_unit_test(test_bundled),   cmocka_unit_test(test_stories),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
