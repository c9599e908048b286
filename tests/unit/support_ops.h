/* A harness for tests of tensor operations. A problem names its arrays once; the same description
 * then runs on any backend and element type, is compared with the reference, checked by finite
 * differences and repeated for equal bits. */
#ifndef HOP_TEST_SUPPORT_OPS_H
#define HOP_TEST_SUPPORT_OPS_H

#include <stdbool.h>

#include "ops/ops.h"

enum { ARRAYS_MAX = 18 };

enum array_role {
    ARRAY_INPUT,    /* random; differentiated where a gradient names it */
    ARRAY_UPSTREAM, /* random: gradient of an output */
    ARRAY_OUTPUT,   /* of forward */
    ARRAY_GRADIENT  /* of backward */
};

struct array {
    const char *name;
    enum array_role role;
    bool f32; /* always f32, whatever the element type of the call */
    int of;   /* upstream: index of its output; gradient: index of its input */
    size_t n;
    float spread; /* of the random numbers */
    float *value; /* (n) on the host; rounded to the element type where it is an activation */
    void *device; /* (n) backend memory during a run */
};

/* A backend opened for a run. */
struct device {
    const struct hop_ops *ops;
    struct hop_backend *backend;
    enum hop_dtype dtype;
    struct hop_error err;
};

struct problem {
    const char *name;
    const void *shape;
    int count;
    struct array array[ARRAYS_MAX];
    bool forward_only;
    /* Runs forward, and backward unless forward_only, on array[].device. */
    void (*run)(const struct problem *problem, struct device *device);
};

int problem_add(struct problem *problem, struct array array);

/* Aborts the test with the backend's message where status is not HOP_OK. */
void expect_ok(struct device *device, hop_status status);
void device_open(struct device *device, const struct hop_ops *ops, enum hop_dtype dtype,
                 int threads);
void device_close(struct device *device);

/* Random inputs, one run, results in array[].value. */
void problem_run(struct problem *problem, const struct hop_ops *ops, enum hop_dtype dtype,
                 int threads);
/* Every other backend against the reference, every array; f32 arrays within f32_bound, activations
 * of a bf16 run within bf16_bound; |got - wanted| / |wanted| in the 2-norm. Then again for equal
 * bits. */
void problem_compare(struct problem *problem, enum hop_dtype dtype, double bound, double f32_bound);
/* Reference gradients against central differences of sum(upstream * output) along random
 * directions. */
void problem_differentiate(struct problem *problem, double bound);
void problem_free(struct problem *problem);

#endif
