#include "support_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

enum { DIRECTIONS = 3 };

int problem_add(struct problem *problem, struct array array)
{
    assert_true(problem->count < ARRAYS_MAX);
    array.value = calloc(array.n ? array.n : 1, sizeof *array.value);
    assert_non_null(array.value);
    problem->array[problem->count] = array;
    return problem->count++;
}

void problem_free(struct problem *problem)
{
    for (int i = 0; i < problem->count; i++)
        free(problem->array[i].value);
}

void expect_ok(struct device *device, hop_status status)
{
    if (status != HOP_OK)
        fail_msg("%s: %s", device->ops->name, device->err.message);
}

void device_open(struct device *device, const struct hop_ops *ops, enum hop_dtype dtype,
                 int threads)
{
    *device = (struct device){.ops = ops, .dtype = dtype};
    expect_ok(device, ops->open(threads, &device->backend, &device->err));
}

void device_close(struct device *device)
{
    device->ops->close(device->backend);
}

static enum hop_dtype type_of(const struct array *array, const struct device *device)
{
    return array->f32 ? HOP_F32 : device->dtype;
}

static float rounded(float value, enum hop_dtype dtype)
{
    return dtype == HOP_BF16 ? hop_bf16_to_f32(hop_bf16_from_f32(value)) : value;
}

static void randomize(struct problem *problem, enum hop_dtype dtype)
{
    for (int i = 0; i < problem->count; i++) {
        struct array *const array = &problem->array[i];
        if (array->role != ARRAY_INPUT && array->role != ARRAY_UPSTREAM)
            continue;
        const struct hop_random_key key = {.seed = 7, .step = (uint32_t)i};
        hop_random_normal(&key, 0, array->n, array->value);
        for (size_t j = 0; j < array->n; j++)
            array->value[j] = rounded(array->value[j] * (array->spread > 0 ? array->spread : 1.0f),
                                      array->f32 ? HOP_F32 : dtype);
    }
}

/* Through host memory of the element type. */
static void to_device(struct device *device, struct array *array)
{
    const enum hop_dtype dtype = type_of(array, device);
    const size_t bytes = array->n * hop_dtype_size(dtype);
    void *const host = malloc(bytes + 1);
    hop_convert(host, dtype, array->value, HOP_F32, array->n);
    expect_ok(device, device->ops->alloc(device->backend, bytes, &array->device, &device->err));
    expect_ok(device,
              device->ops->write(device->backend, array->device, host, bytes, &device->err));
    free(host);
}

static void from_device(struct device *device, struct array *array)
{
    const enum hop_dtype dtype = type_of(array, device);
    const size_t bytes = array->n * hop_dtype_size(dtype);
    void *const host = malloc(bytes + 1);
    expect_ok(device, device->ops->read(device->backend, host, array->device, bytes, &device->err));
    hop_convert(array->value, HOP_F32, host, dtype, array->n);
    device->ops->release(device->backend, array->device);
    array->device = NULL;
    free(host);
}

/* Results start from zero. */
static void run(struct problem *problem, struct device *device)
{
    for (int i = 0; i < problem->count; i++) {
        struct array *const array = &problem->array[i];
        if (array->role == ARRAY_OUTPUT || array->role == ARRAY_GRADIENT)
            memset(array->value, 0, array->n * sizeof *array->value);
        to_device(device, array);
    }
    problem->run(problem, device);
    for (int i = 0; i < problem->count; i++)
        from_device(device, &problem->array[i]);
}

void problem_run(struct problem *problem, const struct hop_ops *ops, enum hop_dtype dtype,
                 int threads)
{
    struct device device;
    randomize(problem, dtype);
    device_open(&device, ops, dtype, threads);
    run(problem, &device);
    device_close(&device);
}

static void keep_results(const struct problem *problem, float *kept[ARRAYS_MAX])
{
    for (int i = 0; i < problem->count; i++) {
        const struct array *const array = &problem->array[i];
        kept[i] = malloc(array->n * sizeof(float) + 1);
        memcpy(kept[i], array->value, array->n * sizeof(float));
    }
}

static void free_results(const struct problem *problem, float *kept[ARRAYS_MAX])
{
    for (int i = 0; i < problem->count; i++)
        free(kept[i]);
}

static double error_of(const float *got, const float *wanted, size_t n)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)wanted[i];
        difference += d * d;
        norm += (double)wanted[i] * (double)wanted[i];
    }
    return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

static void compare_with(struct problem *problem, float *wanted[ARRAYS_MAX],
                         const struct device *device, double bound, double f32_bound)
{
    for (int i = 0; i < problem->count; i++) {
        const struct array *const array = &problem->array[i];
        const double error = error_of(array->value, wanted[i], array->n);
        const double limit = array->f32 ? f32_bound : bound;
        if (!(error <= limit))
            fail_msg("%s, %s, %s: %s is off by %.3g, bound %.3g", problem->name, device->ops->name,
                     hop_dtype_name(device->dtype), array->name, error, limit);
    }
}

static void expect_equal_bits(const struct problem *problem, float *wanted[ARRAYS_MAX],
                              const struct device *device)
{
    for (int i = 0; i < problem->count; i++) {
        const struct array *const array = &problem->array[i];
        if (memcmp(array->value, wanted[i], array->n * sizeof(float)) != 0)
            fail_msg("%s, %s, %s: %s differs between equal calls", problem->name, device->ops->name,
                     hop_dtype_name(device->dtype), array->name);
    }
}

static void compare_backend(struct problem *problem, const struct hop_ops *ops,
                            enum hop_dtype dtype, int threads, float *wanted[ARRAYS_MAX],
                            double bound, double f32_bound)
{
    struct device device;
    float *first[ARRAYS_MAX];
    device_open(&device, ops, dtype, threads);
    run(problem, &device);
    compare_with(problem, wanted, &device, bound, f32_bound);
    keep_results(problem, first);
    run(problem, &device);
    expect_equal_bits(problem, first, &device);
    free_results(problem, first);
    device_close(&device);
}

void problem_compare(struct problem *problem, enum hop_dtype dtype, double bound, double f32_bound)
{
    static const int threads[] = {1, 2, 4};
    struct device reference;
    float *wanted[ARRAYS_MAX];
    randomize(problem, dtype);
    device_open(&reference, hop_backend_find("reference"), dtype, 1);
    run(problem, &reference);
    device_close(&reference);
    keep_results(problem, wanted);
    for (int i = 0; hop_backends[i]; i++)
        for (int t = 0; t < 3 && hop_backends[i] != reference.ops; t++)
            compare_backend(problem, hop_backends[i], dtype, threads[t], wanted, bound, f32_bound);
    free_results(problem, wanted);
}

/* --- finite differences --- */

static double projection(const struct problem *problem)
{
    double sum = 0.0;
    for (int i = 0; i < problem->count; i++) {
        const struct array *const up = &problem->array[i];
        if (up->role != ARRAY_UPSTREAM)
            continue;
        const float *const output = problem->array[up->of].value;
        for (size_t j = 0; j < up->n; j++)
            sum += (double)up->value[j] * (double)output[j];
    }
    return sum;
}

static double shifted(struct problem *problem, struct device *device, struct array *input,
                      const float *base, const float *direction, float step)
{
    for (size_t j = 0; j < input->n; j++)
        input->value[j] = base[j] + step * direction[j];
    run(problem, device);
    return projection(problem);
}

static void check_direction(struct problem *problem, struct device *device,
                            const struct array *gradient, const float *derivative,
                            const float *base, int index, double bound)
{
    const float step = 0.01f;
    struct array *const input = &problem->array[gradient->of];
    const struct hop_random_key key = {.seed = 11, .step = (uint32_t)index};
    float *const direction = malloc(input->n * sizeof(float));
    hop_random_normal(&key, 0, input->n, direction);
    const double above = shifted(problem, device, input, base, direction, step);
    const double below = shifted(problem, device, input, base, direction, -step);
    const double numeric = (above - below) / (2.0 * (double)step);
    double analytic = 0.0, norm = 0.0;
    for (size_t j = 0; j < input->n; j++) {
        analytic += (double)derivative[j] * (double)direction[j];
        norm += (double)derivative[j] * (double)derivative[j];
    }
    memcpy(input->value, base, input->n * sizeof(float));
    free(direction);
    if (!(fabs(numeric - analytic) <= bound * sqrt(norm)))
        fail_msg("%s: %s: finite difference %.8g, backward %.8g, norm %.3g", problem->name,
                 gradient->name, numeric, analytic, sqrt(norm));
}

void problem_differentiate(struct problem *problem, double bound)
{
    struct device device;
    float *kept[ARRAYS_MAX];
    randomize(problem, HOP_F32);
    device_open(&device, hop_backend_find("reference"), HOP_F32, 1);
    run(problem, &device);
    keep_results(problem, kept);
    for (int i = 0; i < problem->count; i++)
        for (int d = 0; d < DIRECTIONS && problem->array[i].role == ARRAY_GRADIENT; d++)
            check_direction(problem, &device, &problem->array[i], kept[i],
                            kept[problem->array[i].of], d, bound);
    device_close(&device);
    free_results(problem, kept);
}
