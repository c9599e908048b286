/* Tangents of every operation that has one: the reference's against central differences of a double
 * precision forward written here, against the backward operation (<w, J v> = <J^T w, v>), and every
 * other backend against the reference.
 *
 * Bounds (relative 2-norm) as in test_ops.c: f32 1e-5, bf16 3e-3, and 6e-3 where an operand was
 * rounded on the way. The reference rounds its statistics (rstd, lse, u) and its result to f32,
 * which is all that separates it from the differences: 1e-6. */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_ops.h"

#define F32_BOUND    1e-5
#define BF16_BOUND   3e-3
#define MIXED_BOUND  6e-3
#define FINITE_BOUND 1e-6
#define DUAL_BOUND   1e-6

static const enum hop_dtype dtypes[] = {HOP_F32, HOP_BF16};

static void *at(const struct problem *p, int i)
{
    return p->array[i].device;
}

static double value(const struct problem *p, int i, int64_t j)
{
    return (double)p->array[i].value[j];
}

/* A tangent operation: which of the problem's arrays is its result, and the forward operation in
 * double along every tangent, `step` times the direction away. */
struct tangents {
    struct problem p;
    int result, count;
    void (*forward)(const struct problem *p, double step, double *out);
    /* gradient i belongs to the input that moves along (count, n) `along` */
    int upstream, pairs, gradient[4], along[4];
};

static double *doubles(size_t n)
{
    double *const out = calloc(n + 1, sizeof *out);
    assert_non_null(out);
    return out;
}

/* Central differences; the error is of the order of the square of the step. */
static void check_differences(struct tangents *t)
{
    const double step = 1e-5;
    const struct array *const got = &t->p.array[t->result];
    double *const above = doubles(got->n), *const below = doubles(got->n);
    double difference = 0.0, norm = 0.0;
    problem_run(&t->p, hop_backend_find("reference"), HOP_F32, 1);
    t->forward(&t->p, step, above);
    t->forward(&t->p, -step, below);
    for (size_t j = 0; j < got->n; j++) {
        const double wanted = (above[j] - below[j]) / (2.0 * step);
        difference += (wanted - (double)got->value[j]) * (wanted - (double)got->value[j]);
        norm += wanted * wanted;
    }
    if (!(sqrt(difference) <= FINITE_BOUND * sqrt(norm)))
        fail_msg("%s: off finite differences by %.3g of %.3g", t->p.name, sqrt(difference),
                 sqrt(norm));
    free(above);
    free(below);
}

/* <upstream, tangent c> and the sum of <gradient, direction c>. */
static void check_pair(const struct tangents *t, const struct hop_ops *ops, int c, double bound)
{
    const struct array *const up = &t->p.array[t->upstream];
    double forward = 0.0, backward = 0.0, tangent = 0.0, norm = 0.0;
    for (size_t j = 0; j < up->n; j++) {
        const double moved = value(&t->p, t->result, (int64_t)((size_t)c * up->n + j));
        forward += (double)up->value[j] * moved;
        tangent += moved * moved;
        norm += (double)up->value[j] * (double)up->value[j];
    }
    for (int i = 0; i < t->pairs; i++) {
        const struct array *const g = &t->p.array[t->gradient[i]];
        for (size_t j = 0; j < g->n; j++)
            backward +=
                (double)g->value[j] * value(&t->p, t->along[i], (int64_t)((size_t)c * g->n + j));
    }
    if (!(fabs(forward - backward) <= bound * sqrt(tangent * norm)))
        fail_msg("%s, %s, tangent %d: %.9g forward, %.9g backward", t->p.name, ops->name, c,
                 forward, backward);
}

static void check_pairs(struct tangents *t)
{
    for (int i = 0; hop_backends[i] && t->pairs; i++) {
        problem_run(&t->p, hop_backends[i], HOP_F32, 2);
        for (int c = 0; c < t->count; c++)
            check_pair(t, hop_backends[i], c, DUAL_BOUND);
    }
}

static void check(struct tangents *t, double bf16_bound, bool small)
{
    if (small)
        check_differences(t);
    check_pairs(t);
    for (int i = 0; i < 2; i++)
        problem_compare(&t->p, dtypes[i], dtypes[i] == HOP_F32 ? F32_BOUND : bf16_bound, F32_BOUND);
    problem_free(&t->p);
}

/* --- RMSNorm --- */

struct matrix {
    int64_t rows, dim;
    int32_t count;
};

enum { NORM_X, NORM_GAIN, NORM_DX, NORM_Y, NORM_RSTD, NORM_DY, NORM_UP, NORM_GRADIENT };

static void run_rmsnorm(const struct problem *p, struct device *d)
{
    const struct matrix *const s = p->shape;
    expect_ok(d, d->ops->rmsnorm_forward(d->backend, d->dtype, s->rows, s->dim, at(p, NORM_X),
                                         at(p, NORM_GAIN), 1e-5f, at(p, NORM_Y), at(p, NORM_RSTD),
                                         &d->err));
    expect_ok(d, d->ops->rmsnorm_tangent(d->backend, d->dtype, s->count, s->rows, s->dim,
                                         at(p, NORM_X), at(p, NORM_GAIN), at(p, NORM_RSTD),
                                         at(p, NORM_DX), at(p, NORM_DY), &d->err));
    expect_ok(d, d->ops->rmsnorm_backward(d->backend, d->dtype, s->rows, s->dim, at(p, NORM_X),
                                          at(p, NORM_GAIN), at(p, NORM_RSTD), at(p, NORM_UP),
                                          at(p, NORM_GRADIENT), &d->err));
}

static void forward_rmsnorm(const struct problem *p, double step, double *out)
{
    const struct matrix *const s = p->shape;
    double *const x = doubles((size_t)s->dim);
    for (int64_t t = 0; t < s->count * s->rows; t++) {
        double squares = 0.0;
        for (int64_t j = 0; j < s->dim; j++) {
            x[j] = value(p, NORM_X, t % s->rows * s->dim + j) +
                   step * value(p, NORM_DX, t * s->dim + j);
            squares += x[j] * x[j];
        }
        const double scale = 1.0 / sqrt(squares / (double)s->dim + (double)1e-5f);
        for (int64_t j = 0; j < s->dim; j++)
            out[t * s->dim + j] = x[j] * scale * value(p, NORM_GAIN, j);
    }
    free(x);
}

static void test_rmsnorm(void **state)
{
    (void)state;
    static const struct matrix shapes[] = {
        {1, 8, 1}, {3, 17, 2}, {17, 64, 3}, {64, 288, 1}, {130, 100, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct matrix *const s = &shapes[i];
        const size_t n = (size_t)(s->rows * s->dim), all = n * (size_t)s->count;
        struct tangents t = {
            .p = {.name = "rmsnorm tangent", .shape = s, .run = run_rmsnorm},
            .result = NORM_DY,
            .count = s->count,
            .forward = forward_rmsnorm,
            .upstream = NORM_UP,
            .pairs = 1,
            .gradient = {NORM_GRADIENT},
            .along = {NORM_DX},
        };
        problem_add(&t.p, (struct array){.name = "x", .n = n});
        problem_add(&t.p, (struct array){.name = "gain", .n = (size_t)s->dim, .f32 = true});
        problem_add(&t.p, (struct array){.name = "dx", .n = all});
        problem_add(&t.p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = n});
        problem_add(&t.p,
                    (struct array){
                        .name = "rstd", .role = ARRAY_OUTPUT, .n = (size_t)s->rows, .f32 = true});
        problem_add(&t.p, (struct array){.name = "dy", .role = ARRAY_OUTPUT, .n = all});
        problem_add(&t.p, (struct array){.name = "upstream", .n = n});
        problem_add(&t.p, (struct array){.name = "gradient", .role = ARRAY_GRADIENT, .n = n});
        check(&t, BF16_BOUND, i < 3);
    }
}

/* --- SwiGLU --- */

enum { GLU_GATE, GLU_UP, GLU_DGATE, GLU_DUP, GLU_DY, GLU_UPSTREAM, GLU_BY_GATE, GLU_BY_UP };

static void run_swiglu(const struct problem *p, struct device *d)
{
    const struct matrix *const s = p->shape;
    const int64_t n = s->rows * s->dim;
    expect_ok(d, d->ops->swiglu_tangent(d->backend, d->dtype, s->count, n, at(p, GLU_GATE),
                                        at(p, GLU_UP), at(p, GLU_DGATE), at(p, GLU_DUP),
                                        at(p, GLU_DY), &d->err));
    expect_ok(d, d->ops->swiglu_backward(d->backend, d->dtype, n, at(p, GLU_GATE), at(p, GLU_UP),
                                         at(p, GLU_UPSTREAM), at(p, GLU_BY_GATE), at(p, GLU_BY_UP),
                                         &d->err));
}

static void forward_swiglu(const struct problem *p, double step, double *out)
{
    const struct matrix *const s = p->shape;
    const int64_t n = s->rows * s->dim;
    for (int64_t t = 0; t < s->count * n; t++) {
        const double gate = value(p, GLU_GATE, t % n) + step * value(p, GLU_DGATE, t);
        const double up = value(p, GLU_UP, t % n) + step * value(p, GLU_DUP, t);
        out[t] = gate / (1.0 + exp(-gate)) * up;
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    static const struct matrix shapes[] = {{1, 1, 1}, {3, 17, 3}, {2, 40, 2}, {64, 768, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct matrix *const s = &shapes[i];
        const size_t n = (size_t)(s->rows * s->dim), all = n * (size_t)s->count;
        struct tangents t = {
            .p = {.name = "swiglu tangent", .shape = s, .run = run_swiglu},
            .result = GLU_DY,
            .count = s->count,
            .forward = forward_swiglu,
            .upstream = GLU_UPSTREAM,
            .pairs = 2,
            .gradient = {GLU_BY_GATE, GLU_BY_UP},
            .along = {GLU_DGATE, GLU_DUP},
        };
        problem_add(&t.p, (struct array){.name = "gate", .n = n, .spread = 3});
        problem_add(&t.p, (struct array){.name = "up", .n = n});
        problem_add(&t.p, (struct array){.name = "dgate", .n = all});
        problem_add(&t.p, (struct array){.name = "dup", .n = all});
        problem_add(&t.p, (struct array){.name = "dy", .role = ARRAY_OUTPUT, .n = all});
        problem_add(&t.p, (struct array){.name = "upstream", .n = n});
        problem_add(&t.p, (struct array){.name = "by gate", .role = ARRAY_GRADIENT, .n = n});
        problem_add(&t.p, (struct array){.name = "by up", .role = ARRAY_GRADIENT, .n = n});
        check(&t, BF16_BOUND, i < 3);
    }
}

/* --- projections --- */

struct projection {
    int64_t rows, in, out;
    int32_t count, n, rank, groups;
    bool residual, no_dx, still_a, still_b;
    int32_t offset[8]; /* of the groups; offset[groups] 0: equal runs */
};

enum {
    LINE_X,
    LINE_W,
    LINE_A,
    LINE_B,
    LINE_DX,
    LINE_DA,
    LINE_DB,
    LINE_RESIDUAL,
    LINE_Y,
    LINE_U,
    LINE_DY,
    LINE_UP,
    LINE_BY_X,
    LINE_BY_A,
    LINE_BY_B,
    LINE_ALSO_A, /* from adapter_gradient of a backend without backward */
    LINE_ALSO_B
};

static const int32_t *offset_of(const struct projection *s)
{
    return s->groups && s->offset[s->groups] ? s->offset : NULL;
}

static struct hop_weight *make_weight(struct device *d, const struct array *array, int64_t out,
                                      int64_t in, unsigned uses, void **host)
{
    struct hop_weight *weight;
    *host = malloc(array->n * hop_dtype_size(d->dtype) + 1);
    hop_convert(*host, d->dtype, array->value, HOP_F32, array->n);
    expect_ok(d, d->ops->weight_create(d->backend, *host, d->dtype, out, in, d->dtype, uses,
                                       &weight, &d->err));
    return weight;
}

/* n tangents at once of the same projection, each over the result of the one before. */
static void run_tangent(const struct problem *p, struct device *d, const struct hop_weight *weight,
                        const struct hop_lora *lora)
{
    const struct projection *const s = p->shape;
    struct hop_projection_tangent tangent[2];
    for (int i = 0; i < s->n; i++)
        tangent[i] = (struct hop_projection_tangent){.weight = weight,
                                                     .lora = s->rank ? lora : NULL,
                                                     .u = s->rank ? at(p, LINE_U) : NULL,
                                                     .groups = s->groups,
                                                     .da = s->still_a ? NULL : at(p, LINE_DA),
                                                     .db = s->still_b ? NULL : at(p, LINE_DB),
                                                     .offset = offset_of(s),
                                                     .dy = at(p, LINE_DY)};
    void *spare = NULL;
    if (s->n > 1) {
        expect_ok(d, d->ops->alloc(d->backend, p->array[LINE_DY].n * hop_dtype_size(d->dtype),
                                   &spare, &d->err));
        tangent[0].dy = spare;
    }
    expect_ok(d, d->ops->project_tangent(d->backend, d->dtype, s->count, s->rows, at(p, LINE_X),
                                         s->no_dx ? NULL : at(p, LINE_DX), tangent, s->n,
                                         s->residual ? at(p, LINE_RESIDUAL) : NULL, &d->err));
    d->ops->release(d->backend, spare);
}

static void run_adapter_gradient(const struct problem *p, struct device *d,
                                 const struct hop_projection *projection)
{
    const struct projection *const s = p->shape;
    const struct hop_ops limited = hop_ops_forward_only(d->ops);
    struct hop_projection only = {.weight = projection->weight,
                                  .lora = projection->lora,
                                  .u = projection->u,
                                  .dy = projection->dy,
                                  .da = s->rank ? at(p, LINE_ALSO_A) : NULL};
    expect_ok(
        d, limited.adapter_gradient(d->backend, d->dtype, s->rows, at(p, LINE_X), &only, &d->err));
    only.da = NULL;
    only.db = s->rank ? at(p, LINE_ALSO_B) : NULL;
    expect_ok(
        d, limited.adapter_gradient(d->backend, d->dtype, s->rows, at(p, LINE_X), &only, &d->err));
}

static void run_project(const struct problem *p, struct device *d)
{
    const struct projection *const s = p->shape;
    const struct hop_lora lora = {
        .rank = s->rank, .groups = 1, .scale = 1.5f, .a = at(p, LINE_A), .b = at(p, LINE_B)};
    void *host;
    struct hop_weight *const weight = make_weight(d, &p->array[LINE_W], s->out, s->in,
                                                  HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &host);
    const struct hop_projection projection = {.weight = weight,
                                              .lora = s->rank ? &lora : NULL,
                                              .y = at(p, LINE_Y),
                                              .u = s->rank ? at(p, LINE_U) : NULL,
                                              .dy = at(p, LINE_UP),
                                              .da = s->rank ? at(p, LINE_BY_A) : NULL,
                                              .db = s->rank ? at(p, LINE_BY_B) : NULL};
    expect_ok(d, d->ops->project_forward(d->backend, d->dtype, s->rows, at(p, LINE_X), &projection,
                                         1, NULL, &d->err));
    run_tangent(p, d, weight, &lora);
    expect_ok(d, d->ops->project_backward(d->backend, d->dtype, s->rows, at(p, LINE_X), &projection,
                                          1, at(p, LINE_BY_X), &d->err));
    run_adapter_gradient(p, d, &projection);
    d->ops->weight_free(d->backend, weight);
    free(host);
}

static int64_t group_of(const struct projection *s, int64_t row)
{
    int64_t group = 0;
    if (!offset_of(s))
        return s->groups ? row / (s->count * s->rows / s->groups) : 0;
    while (row >= s->offset[group + 1])
        group++;
    return group;
}

/* The moved entry j of array i: directions of groups that move. */
static double moved(const struct problem *p, int i, int64_t j, int along, int64_t k, double step)
{
    const struct projection *const s = p->shape;
    const bool still =
        !s->groups || (along == LINE_DA && s->still_a) || (along == LINE_DB && s->still_b);
    return value(p, i, j) + (still ? 0.0 : step * value(p, along, k));
}

static void project_row(const struct problem *p, int64_t t, double step, const double *x, double *u,
                        double *out)
{
    const struct projection *const s = p->shape;
    const int64_t g = group_of(s, t);
    for (int64_t r = 0; r < s->rank; r++) {
        u[r] = 0.0;
        for (int64_t j = 0; j < s->in; j++)
            u[r] += x[j] *
                    moved(p, LINE_A, r * s->in + j, LINE_DA, (g * s->rank + r) * s->in + j, step);
    }
    for (int64_t o = 0; o < s->out; o++) {
        double sum = s->residual ? step * value(p, LINE_RESIDUAL, t * s->out + o) : 0.0;
        for (int64_t j = 0; j < s->in; j++)
            sum += x[j] * value(p, LINE_W, o * s->in + j);
        for (int64_t r = 0; r < s->rank; r++)
            sum += 1.5 * u[r] *
                   moved(p, LINE_B, o * s->rank + r, LINE_DB, (g * s->out + o) * s->rank + r, step);
        out[t * s->out + o] = sum;
    }
}

static void forward_project(const struct problem *p, double step, double *out)
{
    const struct projection *const s = p->shape;
    double *const x = doubles((size_t)s->in), *const u = doubles((size_t)s->rank);
    for (int64_t t = 0; t < s->count * s->rows; t++) {
        for (int64_t j = 0; j < s->in; j++)
            x[j] = value(p, LINE_X, t % s->rows * s->in + j) +
                   (s->no_dx ? 0.0 : step * value(p, LINE_DX, t * s->in + j));
        project_row(p, t, step, x, u, out);
    }
    free(x);
    free(u);
}

static void add_project(struct problem *p, const struct projection *s)
{
    const size_t rows = (size_t)s->rows, all = rows * (size_t)s->count;
    const size_t in = (size_t)s->in, out = (size_t)s->out;
    const size_t a = (size_t)s->rank * in, b = out * (size_t)s->rank, groups = (size_t)s->groups;
    const float narrow = 1.0f / sqrtf((float)s->in);
    problem_add(p, (struct array){.name = "x", .n = rows * in});
    problem_add(p, (struct array){.name = "w", .n = out * in, .spread = narrow});
    problem_add(p, (struct array){.name = "a", .n = a, .spread = narrow, .f32 = true});
    problem_add(p, (struct array){.name = "b", .n = b, .spread = 0.3f, .f32 = true});
    problem_add(p, (struct array){.name = "dx", .n = all * in});
    problem_add(p, (struct array){.name = "da", .n = groups * a, .spread = narrow, .f32 = true});
    problem_add(p, (struct array){.name = "db", .n = groups * b, .spread = 0.5f, .f32 = true});
    problem_add(p, (struct array){.name = "residual", .n = all * out});
    problem_add(p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = rows * out});
    problem_add(p,
                (struct array){
                    .name = "u", .role = ARRAY_OUTPUT, .n = rows * (size_t)s->rank, .f32 = true});
    problem_add(p, (struct array){.name = "dy", .role = ARRAY_OUTPUT, .n = all * out});
    problem_add(p, (struct array){.name = "upstream", .n = rows * out});
    problem_add(p, (struct array){.name = "by x", .role = ARRAY_GRADIENT, .n = rows * in});
    problem_add(p, (struct array){.name = "by a", .role = ARRAY_GRADIENT, .n = a, .f32 = true});
    problem_add(p, (struct array){.name = "by b", .role = ARRAY_GRADIENT, .n = b, .f32 = true});
    problem_add(p, (struct array){.name = "also a", .role = ARRAY_GRADIENT, .n = a, .f32 = true});
    problem_add(p, (struct array){.name = "also b", .role = ARRAY_GRADIENT, .n = b, .f32 = true});
}

/* Gradients are of one projection and direction a tangent, so only such cases are pairs. */
static void find_pairs(struct tangents *t, const struct projection *s)
{
    if (s->residual || (s->groups && (s->groups != s->count || offset_of(s))))
        return;
    t->upstream = LINE_UP;
    const bool moves[] = {!s->no_dx, s->groups && !s->still_a, s->groups && !s->still_b};
    for (int i = 0; i < 3; i++)
        if (moves[i]) {
            t->gradient[t->pairs] = LINE_BY_X + i;
            t->along[t->pairs++] = LINE_DX + i;
        }
}

/* adapter_gradient() is that part of project_backward(), to the bit. */
static void check_adapter_gradient(struct problem *p)
{
    for (int i = 0; hop_backends[i]; i++)
        for (int t = 0; t < 2; t++) {
            problem_run(p, hop_backends[i], dtypes[t], 2);
            for (int j = 0; j < 2; j++)
                assert_memory_equal(p->array[LINE_BY_A + j].value, p->array[LINE_ALSO_A + j].value,
                                    p->array[LINE_BY_A + j].n * sizeof(float));
        }
}

static void check_project(const struct projection *s, bool small)
{
    char name[128];
    snprintf(name, sizeof name, "project tangent %d x %d x %d, count %d, n %d, rank %d, groups %d",
             (int)s->rows, (int)s->in, (int)s->out, s->count, s->n, s->rank, s->groups);
    struct tangents t = {.p = {.name = name, .shape = s, .run = run_project},
                         .result = LINE_DY,
                         .count = s->count,
                         .forward = forward_project};
    add_project(&t.p, s);
    find_pairs(&t, s);
    check_adapter_gradient(&t.p);
    check(&t, BF16_BOUND, small);
}

static void test_project(void **state)
{
    (void)state;
    static const struct projection small[] = {
        {.rows = 1, .in = 8, .out = 24, .count = 1, .n = 1, .rank = 1, .groups = 1},
        {.rows = 3, .in = 33, .out = 17, .count = 2, .n = 1, .residual = true},
        {.rows = 17, .in = 40, .out = 56, .count = 3, .n = 1, .rank = 3, .groups = 3},
        {.rows = 5, .in = 64, .out = 48, .count = 2, .n = 1, .rank = 8, .residual = true},
        {.rows = 6, .in = 24, .out = 40, .count = 2, .n = 1, .rank = 4, .groups = 2, .no_dx = true},
        {.rows = 6,
         .in = 24,
         .out = 40,
         .count = 1,
         .n = 1,
         .rank = 4,
         .groups = 1,
         .still_a = true},
        {.rows = 6,
         .in = 24,
         .out = 40,
         .count = 2,
         .n = 1,
         .rank = 4,
         .groups = 2,
         .still_b = true},
        {.rows = 9,
         .in = 20,
         .out = 30,
         .count = 2,
         .n = 1,
         .rank = 2,
         .groups = 4,
         .residual = true,
         .offset = {0, 4, 9, 13, 18}},
        {.rows = 8, .in = 20, .out = 30, .count = 2, .n = 1, .rank = 5, .groups = 4},
        {.rows = 7,
         .in = 20,
         .out = 30,
         .count = 3,
         .n = 1,
         .rank = 5,
         .groups = 6,
         .no_dx = true,
         .offset = {0, 5, 7, 12, 14, 19, 21}},
    };
    static const struct projection large[] = {
        {.rows = 64, .in = 96, .out = 288, .count = 1, .n = 1, .rank = 8, .groups = 1},
        {.rows = 130, .in = 72, .out = 80, .count = 3, .n = 2, .rank = 8, .groups = 3},
        {.rows = 300, .in = 64, .out = 48, .count = 2, .n = 1, .rank = 6, .groups = 2},
        {.rows = 70,
         .in = 64,
         .out = 1100,
         .count = 1,
         .n = 1,
         .rank = 8,
         .groups = 1,
         .residual = true},
        {.rows = 70,
         .in = 1100,
         .out = 64,
         .count = 1,
         .n = 1,
         .rank = 7,
         .groups = 1,
         .no_dx = true},
        {.rows = 300, .in = 64, .out = 64, .count = 2, .n = 1},
        {.rows = 270,
         .in = 64,
         .out = 80,
         .count = 2,
         .n = 2,
         .rank = 8,
         .groups = 6,
         .offset = {0, 17, 200, 270, 287, 470, 540}},
        {.rows = 270,
         .in = 64,
         .out = 80,
         .count = 2,
         .n = 1,
         .rank = 8,
         .groups = 4,
         .residual = true,
         .offset = {0, 100, 100, 300, 540}},
        {.rows = 40, .in = 64, .out = 80, .count = 1, .n = 1, .rank = 8, .no_dx = true},
        {.rows = 40, .in = 64, .out = 80, .count = 3, .n = 1, .no_dx = true, .residual = true},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_project(&small[i], true);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        check_project(&large[i], false);
}

/* --- attention --- */

struct attention {
    int32_t count, sequences, heads, kv_heads, head_dim;
    int32_t length[4];
    int32_t extra;        /* elements between the end of a row and the next */
    int32_t group, first; /* of heads cut out of a model */
};

enum {
    MIX_Q,
    MIX_K,
    MIX_V,
    MIX_DQ,
    MIX_DK,
    MIX_DV,
    MIX_OUT,
    MIX_LSE,
    MIX_DOUT,
    MIX_UP,
    MIX_BY_Q,
    MIX_BY_K,
    MIX_BY_V
};

static struct hop_attention shape_of(const struct attention *s, int32_t offset[5])
{
    offset[0] = 0;
    for (int i = 0; i < s->sequences; i++)
        offset[i + 1] = offset[i] + s->length[i];
    return (struct hop_attention){.sequences = s->sequences,
                                  .heads = s->heads,
                                  .kv_heads = s->kv_heads,
                                  .head_dim = s->head_dim,
                                  .group = s->group,
                                  .first = s->first,
                                  .q_offset = offset,
                                  .kv_offset = offset,
                                  .q_stride = s->heads * s->head_dim + s->extra,
                                  .kv_stride = s->kv_heads * s->head_dim + s->extra,
                                  .scale = 1.0f / sqrtf((float)s->head_dim)};
}

static void run_attention(const struct problem *p, struct device *d)
{
    int32_t offset[5];
    const struct attention *const s = p->shape;
    const struct hop_attention shape = shape_of(s, offset);
    expect_ok(d, d->ops->attention_forward(d->backend, d->dtype, &shape, at(p, MIX_Q), at(p, MIX_K),
                                           at(p, MIX_V), at(p, MIX_OUT), at(p, MIX_LSE), &d->err));
    expect_ok(d, d->ops->attention_tangent(d->backend, d->dtype, &shape, s->count, at(p, MIX_Q),
                                           at(p, MIX_K), at(p, MIX_V), at(p, MIX_OUT),
                                           at(p, MIX_LSE), at(p, MIX_DQ), at(p, MIX_DK),
                                           at(p, MIX_DV), at(p, MIX_DOUT), &d->err));
    if (p->forward_only)
        return;
    expect_ok(d, d->ops->attention_backward(d->backend, d->dtype, &shape, at(p, MIX_Q),
                                            at(p, MIX_K), at(p, MIX_V), at(p, MIX_OUT),
                                            at(p, MIX_LSE), at(p, MIX_UP), at(p, MIX_BY_Q),
                                            at(p, MIX_BY_K), at(p, MIX_BY_V), &d->err));
}

/* Row `row` of head `head` of q, k or v (array i), moved along tangent c. */
static double element(const struct problem *p, int i, int64_t c, int64_t index, double step)
{
    const int64_t n = (int64_t)p->array[i].n;
    return value(p, i, index) + step * value(p, i + MIX_DQ, c * n + index);
}

static void attend(const struct problem *p, const struct hop_attention *shape, int64_t c,
                   int64_t begin, int64_t row, int64_t head, double step, double *out)
{
    const int64_t d = shape->head_dim, q = row * shape->q_stride + head * d;
    const int64_t kv = (shape->first + head) / hop_attention_group(shape) * d;
    double total = 0.0;
    for (int64_t e = 0; e < d; e++)
        out[e] = 0.0;
    for (int64_t j = begin; j <= row; j++) {
        const int64_t k = j * shape->kv_stride + kv;
        double score = 0.0;
        for (int64_t e = 0; e < d; e++)
            score += element(p, MIX_Q, c, q + e, step) * element(p, MIX_K, c, k + e, step);
        const double weight = exp((double)shape->scale * score);
        total += weight;
        for (int64_t e = 0; e < d; e++)
            out[e] += weight * element(p, MIX_V, c, k + e, step);
    }
    for (int64_t e = 0; e < d; e++)
        out[e] /= total;
}

static void forward_attention(const struct problem *p, double step, double *out)
{
    int32_t offset[5];
    const struct attention *const s = p->shape;
    const struct hop_attention shape = shape_of(s, offset);
    for (int64_t c = 0; c < s->count; c++)
        for (int i = 0; i < s->sequences; i++)
            for (int64_t row = offset[i]; row < offset[i + 1]; row++)
                for (int64_t h = 0; h < s->heads; h++, out += s->head_dim)
                    attend(p, &shape, c, offset[i], row, h, step, out);
}

/* Keys whose largest feature they have in common, as trained models do: it moves all scores of a
 * query alike, which changes nothing. */
static void run_common_keys(const struct problem *p, struct device *d)
{
    int32_t offset[5];
    const struct attention *const s = p->shape;
    const struct hop_attention shape = shape_of(s, offset);
    const size_t n = p->array[MIX_K].n, bytes = n * hop_dtype_size(d->dtype);
    float *const k = malloc(n * sizeof *k);
    void *const own = malloc(bytes), *const common = malloc(bytes);
    expect_ok(d, d->ops->read(d->backend, own, at(p, MIX_K), bytes, &d->err));
    hop_convert(k, HOP_F32, own, d->dtype, n);
    for (size_t j = 0; j < n; j += (size_t)shape.head_dim)
        k[j] += 64.0f;
    hop_convert(common, d->dtype, k, HOP_F32, n);
    expect_ok(d, d->ops->write(d->backend, at(p, MIX_K), common, bytes, &d->err));
    run_attention(p, d);
    expect_ok(d, d->ops->write(d->backend, at(p, MIX_K), own, bytes, &d->err));
    free(common);
    free(own);
    free(k);
}

static size_t rows_of(const struct attention *s)
{
    size_t rows = 0;
    for (int i = 0; i < s->sequences; i++)
        rows += (size_t)s->length[i];
    return rows;
}

static void add_attention(struct problem *p, const struct attention *s)
{
    const size_t rows = rows_of(s);
    const size_t width = (size_t)(s->heads * s->head_dim), count = (size_t)s->count;
    const size_t q = rows * (width + (size_t)s->extra);
    const size_t kv = rows * (size_t)(s->kv_heads * s->head_dim + s->extra);
    problem_add(p, (struct array){.name = "q", .n = q, .spread = 2});
    problem_add(p, (struct array){.name = "k", .n = kv});
    problem_add(p, (struct array){.name = "v", .n = kv});
    problem_add(p, (struct array){.name = "dq", .n = count * q});
    problem_add(p, (struct array){.name = "dk", .n = count * kv});
    problem_add(p, (struct array){.name = "dv", .n = count * kv});
    problem_add(p, (struct array){.name = "out", .role = ARRAY_OUTPUT, .n = rows * width});
    problem_add(
        p, (struct array){
               .name = "lse", .role = ARRAY_OUTPUT, .n = rows * (size_t)s->heads, .f32 = true});
    problem_add(p, (struct array){.name = "dout", .role = ARRAY_OUTPUT, .n = count * rows * width});
    problem_add(p, (struct array){.name = "upstream", .n = rows * width});
    problem_add(p, (struct array){.name = "by q", .role = ARRAY_GRADIENT, .n = q});
    problem_add(p, (struct array){.name = "by k", .role = ARRAY_GRADIENT, .n = kv});
    problem_add(p, (struct array){.name = "by v", .role = ARRAY_GRADIENT, .n = kv});
}

static void check_attention(const struct attention *s, bool small)
{
    char name[128];
    snprintf(name, sizeof name, "attention tangent %d rows, %d/%d heads of %d, count %d",
             (int)rows_of(s), s->heads, s->kv_heads, s->head_dim, s->count);
    struct tangents t = {.p = {.name = name, .shape = s, .run = run_attention},
                         .result = MIX_DOUT,
                         .count = s->count,
                         .forward = forward_attention,
                         .upstream = MIX_UP,
                         .pairs = 3,
                         .gradient = {MIX_BY_Q, MIX_BY_K, MIX_BY_V},
                         .along = {MIX_DQ, MIX_DK, MIX_DV}};
    add_attention(&t.p, s);
    check(&t, MIXED_BOUND, small);
}

/* bf16 only: in f32 the scores themselves lose what they have in common. */
static void test_attention_common_keys(void **state)
{
    (void)state;
    static const struct attention shapes[] = {
        {2, 2, 4, 2, 64, {130, 20}, 0, 0, 0},
        {1, 1, 2, 2, 128, {200}, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct problem p = {.name = "attention tangent, common keys",
                            .shape = &shapes[i],
                            .run = run_common_keys,
                            .forward_only = true};
        add_attention(&p, &shapes[i]);
        problem_compare(&p, HOP_BF16, MIXED_BOUND, F32_BOUND);
        problem_free(&p);
    }
}

static void test_attention(void **state)
{
    (void)state;
    static const struct attention small[] = {
        {1, 1, 1, 1, 8, {1}, 0, 0, 0},
        {2, 2, 2, 1, 8, {3, 5}, 4, 0, 0},
        {3, 1, 4, 2, 12, {17}, 0, 0, 0},
        {1, 2, 5, 3, 8, {6, 3}, 4, 3, 2},
    };
    static const struct attention large[] = {
        {2, 3, 6, 6, 48, {17, 1, 64}, 0, 0, 0}, {3, 2, 9, 3, 64, {130, 30}, 32, 0, 0},
        {1, 1, 8, 2, 32, {200}, 0, 0, 0},       {2, 2, 2, 2, 128, {64, 100}, 0, 0, 0},
        {2, 1, 3, 1, 8, {97}, 5, 0, 0},         {1, 1, 5, 1, 20, {170}, 0, 0, 0},
        {2, 2, 7, 3, 64, {130, 30}, 0, 4, 3},   {1, 2, 3, 2, 32, {65, 40}, 0, 4, 2},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_attention(&small[i], true);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        check_attention(&large[i], false);
}

/* --- log-probabilities --- */

struct loss {
    int64_t rows, dim, words;
    int32_t labels, count;
    int32_t repeat; /* labels a row */
};

enum { LOSS_X, LOSS_HEAD, LOSS_DX, LOSS_SLOPE, LOSS_ONE, LOSS_GRADIENT };

static void find_labels(const struct loss *s, int32_t *row, int32_t *id)
{
    for (int32_t l = 0; l < s->labels; l++) {
        row[l] = (int32_t)(s->rows - 1 - (s->labels - 1 - l) / s->repeat);
        id[l] = (int32_t)((l * 131 + 5) % s->words);
    }
}

/* The gradient is that of the sum of all labels: upstream is one for each. */
static void run_loss(const struct problem *p, struct device *d)
{
    const struct loss *const s = p->shape;
    void *host;
    struct hop_weight *const head = make_weight(d, &p->array[LOSS_HEAD], s->words, s->dim,
                                                HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &host);
    const size_t labels = (size_t)s->labels, slopes = labels * (size_t)s->count;
    int32_t *const row = malloc(labels * sizeof *row), *const id = malloc(labels * sizeof *id);
    float *const slope = malloc(slopes * sizeof *slope), *const unused = malloc(labels * 4);
    float *const one = malloc(labels * sizeof *one);
    find_labels(s, row, id);
    for (size_t l = 0; l < labels; l++)
        one[l] = 1.0f;
    expect_ok(d, d->ops->loss_tangent(d->backend, d->dtype, s->count, s->rows, at(p, LOSS_X),
                                      at(p, LOSS_DX), head, s->labels, row, id, slope, &d->err));
    expect_ok(d, d->ops->write(d->backend, at(p, LOSS_SLOPE), slope, slopes * 4, &d->err));
    expect_ok(d, d->ops->write(d->backend, at(p, LOSS_ONE), one, labels * 4, &d->err));
    expect_ok(d,
              d->ops->loss_backward(d->backend, d->dtype, s->rows, at(p, LOSS_X), head, s->labels,
                                    row, id, -1.0f, unused, at(p, LOSS_GRADIENT), &d->err));
    d->ops->weight_free(d->backend, head);
    free(row);
    free(id);
    free(slope);
    free(unused);
    free(one);
    free(host);
}

static double logprob(const struct problem *p, int64_t c, int64_t row, int64_t id, double step)
{
    const struct loss *const s = p->shape;
    double total = 0.0, own = 0.0;
    for (int64_t o = 0; o < s->words; o++) {
        double logit = 0.0;
        for (int64_t j = 0; j < s->dim; j++)
            logit += (value(p, LOSS_X, row * s->dim + j) +
                      step * value(p, LOSS_DX, (c * s->rows + row) * s->dim + j)) *
                     value(p, LOSS_HEAD, o * s->dim + j);
        total += exp(logit);
        own = o == id ? logit : own;
    }
    return own - log(total);
}

static void forward_loss(const struct problem *p, double step, double *out)
{
    const struct loss *const s = p->shape;
    int32_t *const row = malloc((size_t)s->labels * 4), *const id = malloc((size_t)s->labels * 4);
    find_labels(s, row, id);
    for (int64_t c = 0; c < s->count; c++)
        for (int32_t l = 0; l < s->labels; l++)
            *out++ = logprob(p, c, row[l], id[l], step);
    free(row);
    free(id);
}

static void test_loss(void **state)
{
    (void)state;
    static const struct loss shapes[] = {
        {1, 8, 20, 1, 1, 1},       {5, 17, 33, 4, 3, 2},      {9, 24, 100, 9, 2, 1},
        {64, 64, 1000, 64, 2, 1},  {130, 48, 2100, 90, 3, 1}, {40, 32, 1024, 60, 1, 3},
        {300, 64, 600, 300, 1, 1}, {600, 32, 513, 570, 2, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct loss *const s = &shapes[i];
        char name[128];
        snprintf(name, sizeof name, "loss tangent %d rows, dim %d, %d words, %d labels, count %d",
                 (int)s->rows, (int)s->dim, (int)s->words, s->labels, s->count);
        const size_t x = (size_t)(s->rows * s->dim), count = (size_t)s->count;
        struct tangents t = {.p = {.name = name, .shape = s, .run = run_loss},
                             .result = LOSS_SLOPE,
                             .count = s->count,
                             .forward = forward_loss,
                             .upstream = LOSS_ONE,
                             .pairs = 1,
                             .gradient = {LOSS_GRADIENT},
                             .along = {LOSS_DX}};
        problem_add(&t.p, (struct array){.name = "x", .n = x});
        problem_add(
            &t.p, (struct array){.name = "head", .n = (size_t)(s->words * s->dim), .spread = 0.5f});
        problem_add(&t.p, (struct array){.name = "dx", .n = count * x});
        problem_add(&t.p, (struct array){.name = "slope",
                                         .role = ARRAY_OUTPUT,
                                         .n = count * (size_t)s->labels,
                                         .f32 = true});
        problem_add(&t.p,
                    (struct array){
                        .name = "one", .role = ARRAY_OUTPUT, .n = (size_t)s->labels, .f32 = true});
        problem_add(&t.p, (struct array){.name = "gradient", .role = ARRAY_GRADIENT, .n = x});
        check(&t, MIXED_BOUND, i < 3);
    }
}

/* --- results in place of operands, memory --- */

enum { PLACE_COUNT = 2, PLACE_ROWS = 9, PLACE_DIM = 40, PLACE_ALL = 2 * 9 * 40 };

static void fill(float *to, int n, float frequency)
{
    for (int j = 0; j < n; j++)
        to[j] = sinf((float)j * frequency);
}

/* Each result lands where the contract says it may, with the bits it has elsewhere. */
static void test_in_place(void **state)
{
    (void)state;
    enum { N = PLACE_ROWS * PLACE_DIM };
    static float x[N], up[N], gain[PLACE_DIM], rstd[PLACE_ROWS], dx[PLACE_ALL], dup[PLACE_ALL];
    static float w[PLACE_DIM * PLACE_DIM], apart[PLACE_ALL], same[PLACE_ALL];
    fill(x, N, 1.0f);
    fill(up, N, 0.3f);
    fill(gain, PLACE_DIM, 0.2f);
    fill(dx, PLACE_ALL, 0.7f);
    fill(dup, PLACE_ALL, 0.11f);
    fill(w, PLACE_DIM * PLACE_DIM, 0.9f);
    for (int r = 0; r < PLACE_ROWS; r++)
        rstd[r] = 1.3f;
    for (int i = 0; hop_backends[i]; i++) {
        struct device d;
        device_open(&d, hop_backends[i], HOP_F32, 2);
        if (!d.ops->host_memory) {
            device_close(&d);
            continue;
        }
        for (int again = 0; again < 2; again++) {
            float *const to = again ? memcpy(same, dx, sizeof dx) : apart;
            expect_ok(&d,
                      d.ops->rmsnorm_tangent(d.backend, HOP_F32, PLACE_COUNT, PLACE_ROWS, PLACE_DIM,
                                             x, gain, rstd, again ? same : dx, to, &d.err));
        }
        assert_memory_equal(same, apart, sizeof same);
        for (int again = 0; again < 2; again++) {
            float *const to = again ? memcpy(same, dx, sizeof dx) : apart;
            expect_ok(&d, d.ops->swiglu_tangent(d.backend, HOP_F32, PLACE_COUNT, N, x, up,
                                                again ? same : dx, dup, to, &d.err));
        }
        assert_memory_equal(same, apart, sizeof same);
        struct hop_weight *weight;
        expect_ok(&d, d.ops->weight_create(d.backend, w, HOP_F32, PLACE_DIM, PLACE_DIM, HOP_F32,
                                           HOP_WEIGHT_FORWARD, &weight, &d.err));
        for (int again = 0; again < 2; again++) {
            float *const to = again ? memcpy(same, dup, sizeof dup) : apart;
            const struct hop_projection_tangent p = {.weight = weight, .dy = to};
            expect_ok(&d, d.ops->project_tangent(d.backend, HOP_F32, PLACE_COUNT, PLACE_ROWS, x, dx,
                                                 &p, 1, again ? same : dup, &d.err));
        }
        assert_memory_equal(same, apart, sizeof same);
        d.ops->weight_free(d.backend, weight);
        device_close(&d);
    }
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Everything a stage calls in a step, on one backend. */
struct step {
    struct device d;
    struct hop_weight *weight;
    float x[64 * 32], moved[2 * 64 * 32], out[2 * 64 * 32], lse[64 * 2], u[64 * 4];
    float a[4 * 32], b[32 * 4], slope[2 * 64];
};

static void run_step(struct step *s)
{
    const struct hop_ops *const ops = s->d.ops;
    struct hop_backend *const backend = s->d.backend;
    static const int32_t offset[] = {0, 40, 64}, group[] = {0, 40, 64, 104, 128};
    static const int32_t row[] = {1, 5, 5, 60}, id[] = {3, 1, 2, 0};
    const struct hop_attention shape = {.sequences = 2,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 16,
                                        .q_offset = offset,
                                        .kv_offset = offset,
                                        .q_stride = 32,
                                        .kv_stride = 32,
                                        .scale = 0.25f};
    const struct hop_lora lora = {.rank = 4, .groups = 1, .scale = 1.0f, .a = s->a, .b = s->b};
    static float da[4 * 4 * 32], db[4 * 32 * 4];
    const struct hop_projection_tangent tangent = {.weight = s->weight,
                                                   .lora = &lora,
                                                   .u = s->u,
                                                   .groups = 4,
                                                   .da = da,
                                                   .db = db,
                                                   .offset = group,
                                                   .dy = s->out};
    const struct hop_projection projection = {
        .weight = s->weight, .lora = &lora, .u = s->u, .dy = s->x, .da = da, .db = db};
    expect_ok(&s->d, ops->project_tangent(backend, HOP_F32, 2, 64, s->x, s->moved, &tangent, 1,
                                          NULL, &s->d.err));
    expect_ok(&s->d, ops->adapter_gradient(backend, HOP_F32, 64, s->x, &projection, &s->d.err));
    expect_ok(&s->d,
              ops->attention_tangent(backend, HOP_F32, &shape, 2, s->x, s->x, s->x, s->x, s->lse,
                                     s->moved, s->moved, s->moved, s->out, &s->d.err));
    expect_ok(&s->d, ops->loss_tangent(backend, HOP_F32, 2, 64, s->x, s->moved, s->weight, 4, row,
                                       id, s->slope, &s->d.err));
}

/* The threading library takes a few words when its threads change, at any time; a call that
 * allocates does so always. */
static void test_no_allocation(void **state)
{
    (void)state;
    static struct step s;
    static float w[32 * 32];
    bool steady = false;
    device_open(&s.d, hop_backend_find("cpu"), HOP_F32, 2);
    expect_ok(&s.d, s.d.ops->weight_create(s.d.backend, w, HOP_F32, 32, 32, HOP_F32,
                                           HOP_WEIGHT_FORWARD, &s.weight, &s.d.err));
    run_step(&s);
    for (int call = 0; call < 6 && !steady; call++) {
        const size_t held = heap_bytes();
        run_step(&s);
        steady = heap_bytes() == held;
    }
    assert_true(steady);
    s.d.ops->weight_free(s.d.backend, s.weight);
    device_close(&s.d);
}

/* --- backends without backward --- */

static void test_forward_only(void **state)
{
    (void)state;
    for (int i = 0; hop_backends[i]; i++) {
        const struct hop_ops *const ops = hop_backends[i];
        const struct hop_ops limited = hop_ops_forward_only(ops);
        assert_non_null(limited.adapter_gradient);
        assert_true(limited.adapter_gradient == ops->adapter_gradient);
        assert_true(limited.rmsnorm_tangent && limited.rmsnorm_tangent == ops->rmsnorm_tangent);
        assert_true(limited.project_tangent && limited.project_tangent == ops->project_tangent);
        assert_true(limited.attention_tangent &&
                    limited.attention_tangent == ops->attention_tangent);
        assert_true(limited.swiglu_tangent && limited.swiglu_tangent == ops->swiglu_tangent);
        assert_true(limited.loss_tangent && limited.loss_tangent == ops->loss_tangent);
        struct hop_ops without = *ops;
        without.loss_tangent = NULL;
        assert_true(hop_ops_bp_capable(&without));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_project),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_common_keys),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_forward_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
