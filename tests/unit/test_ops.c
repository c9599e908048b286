/* Every operation: reference gradients by finite differences, other backends against the reference,
 * and equal bits from equal calls.
 *
 * Bounds (relative 2-norm): f32 1e-5. bf16 results may differ from the reference's by a rounding
 * here and there, 2^-9 at most each: 3e-3; products whose operands were rounded on the way 6e-3. */
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
#define FINITE_BOUND 2e-3

static const enum hop_dtype dtypes[] = {HOP_F32, HOP_BF16};

static void *at(const struct problem *p, int i)
{
    return p->array[i].device;
}

static void check(struct problem *problem, double bf16_bound, bool differentiate)
{
    if (differentiate && !problem->forward_only)
        problem_differentiate(problem, FINITE_BOUND);
    for (int t = 0; t < 2; t++)
        problem_compare(problem, dtypes[t], dtypes[t] == HOP_F32 ? F32_BOUND : bf16_bound,
                        F32_BOUND);
    problem_free(problem);
}

/* --- elementwise --- */

struct matrix {
    int64_t rows, dim;
};

static void run_rmsnorm(const struct problem *p, struct device *d)
{
    const struct matrix *const s = p->shape;
    expect_ok(d, d->ops->rmsnorm_forward(d->backend, d->dtype, s->rows, s->dim, at(p, 0), at(p, 1),
                                         1e-5f, at(p, 2), at(p, 3), &d->err));
    expect_ok(d, d->ops->rmsnorm_backward(d->backend, d->dtype, s->rows, s->dim, at(p, 0), at(p, 1),
                                          at(p, 3), at(p, 4), at(p, 5), &d->err));
}

static void test_rmsnorm(void **state)
{
    (void)state;
    static const struct matrix shapes[] = {{1, 8}, {3, 17}, {17, 64}, {64, 288}, {130, 100}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t n = (size_t)(shapes[i].rows * shapes[i].dim);
        struct problem p = {.name = "rmsnorm", .shape = &shapes[i], .run = run_rmsnorm};
        problem_add(&p, (struct array){.name = "x", .n = n});
        problem_add(&p, (struct array){.name = "gain", .n = (size_t)shapes[i].dim, .f32 = true});
        problem_add(&p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = n});
        problem_add(&p, (struct array){.name = "rstd",
                                       .role = ARRAY_OUTPUT,
                                       .n = (size_t)shapes[i].rows,
                                       .f32 = true});
        problem_add(&p, (struct array){.name = "dy", .role = ARRAY_UPSTREAM, .of = 2, .n = n});
        problem_add(&p, (struct array){.name = "dx", .role = ARRAY_GRADIENT, .of = 0, .n = n});
        check(&p, BF16_BOUND, i < 3);
    }
}

static void test_rmsnorm_backward_adds(void **state)
{
    (void)state;
    for (int i = 0; hop_backends[i]; i++) {
        struct device d;
        float x[] = {1, 2, 3, 4}, gain[] = {1, 1, 1, 1}, dy[] = {0, 0, 0, 0}, dx[] = {5, 6, 7, 8};
        const float rstd = 0.5f;
        device_open(&d, hop_backends[i], HOP_F32, 1);
        if (d.ops->host_memory) {
            expect_ok(&d, d.ops->rmsnorm_backward(d.backend, HOP_F32, 1, 4, x, gain, &rstd, dy, dx,
                                                  &d.err));
            assert_true(dx[0] == 5 && dx[1] == 6 && dx[2] == 7 && dx[3] == 8);
        }
        device_close(&d);
    }
}

static void run_swiglu(const struct problem *p, struct device *d)
{
    const struct matrix *const s = p->shape;
    const int64_t n = s->rows * s->dim;
    expect_ok(
        d, d->ops->swiglu_forward(d->backend, d->dtype, n, at(p, 0), at(p, 1), at(p, 2), &d->err));
    expect_ok(d, d->ops->swiglu_backward(d->backend, d->dtype, n, at(p, 0), at(p, 1), at(p, 3),
                                         at(p, 4), at(p, 5), &d->err));
}

static void test_swiglu(void **state)
{
    (void)state;
    static const struct matrix shapes[] = {{1, 1}, {3, 17}, {64, 768}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t n = (size_t)(shapes[i].rows * shapes[i].dim);
        struct problem p = {.name = "swiglu", .shape = &shapes[i], .run = run_swiglu};
        problem_add(&p, (struct array){.name = "gate", .n = n, .spread = 3});
        problem_add(&p, (struct array){.name = "up", .n = n});
        problem_add(&p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = n});
        problem_add(&p, (struct array){.name = "dy", .role = ARRAY_UPSTREAM, .of = 2, .n = n});
        problem_add(&p, (struct array){.name = "dgate", .role = ARRAY_GRADIENT, .of = 0, .n = n});
        problem_add(&p, (struct array){.name = "dup", .role = ARRAY_GRADIENT, .of = 1, .n = n});
        check(&p, BF16_BOUND, i < 2);
    }
}

static void test_swiglu_in_place(void **state)
{
    (void)state;
    for (int i = 0; hop_backends[i]; i++) {
        struct device d;
        float gate[40], up[40], apart[40], dgate[40], dup[40];
        device_open(&d, hop_backends[i], HOP_F32, 2);
        for (int j = 0; j < 40; j++) {
            gate[j] = (float)(j - 20) * 0.3f;
            up[j] = (float)j * 0.1f;
        }
        if (d.ops->host_memory) {
            expect_ok(&d, d.ops->swiglu_backward(d.backend, HOP_F32, 40, gate, up, up, dgate, dup,
                                                 &d.err));
            expect_ok(&d, d.ops->swiglu_forward(d.backend, HOP_F32, 40, gate, up, apart, &d.err));
            float own_gate[40], own_up[40], dy[40];
            memcpy(own_gate, gate, sizeof gate);
            memcpy(own_up, up, sizeof up);
            memcpy(dy, up, sizeof up);
            expect_ok(&d, d.ops->swiglu_backward(d.backend, HOP_F32, 40, own_gate, own_up, dy,
                                                 own_gate, own_up, &d.err));
            expect_ok(&d, d.ops->swiglu_forward(d.backend, HOP_F32, 40, gate, up, gate, &d.err));
            assert_memory_equal(own_gate, dgate, sizeof dgate);
            assert_memory_equal(own_up, dup, sizeof dup);
            assert_memory_equal(gate, apart, sizeof apart);
        }
        device_close(&d);
    }
}

struct rope {
    int64_t rows;
    int32_t heads, head_dim, positions;
    int64_t stride;
};

static void run_rope(const struct problem *p, struct device *d)
{
    const struct rope *const s = p->shape;
    int32_t *const position = malloc((size_t)s->rows * sizeof *position);
    for (int64_t r = 0; r < s->rows; r++)
        position[r] = (int32_t)(r * 7 % s->positions);
    const size_t bytes = p->array[0].n * hop_dtype_size(d->dtype);
    void *const host = malloc(bytes);
    expect_ok(d, d->ops->read(d->backend, host, at(p, 0), bytes, &d->err));
    expect_ok(d, d->ops->write(d->backend, at(p, 3), host, bytes, &d->err));
    expect_ok(d, d->ops->rope_forward(d->backend, d->dtype, s->rows, s->heads, s->head_dim,
                                      s->stride, position, at(p, 1), at(p, 2), at(p, 3), &d->err));
    expect_ok(d, d->ops->read(d->backend, host, at(p, 4), bytes, &d->err));
    expect_ok(d, d->ops->write(d->backend, at(p, 5), host, bytes, &d->err));
    expect_ok(d, d->ops->rope_backward(d->backend, d->dtype, s->rows, s->heads, s->head_dim,
                                       s->stride, position, at(p, 1), at(p, 2), at(p, 5), &d->err));
    free(host);
    free(position);
}

static void test_rope(void **state)
{
    (void)state;
    static const struct rope shapes[] = {
        {1, 1, 8, 4, 8}, {17, 3, 48, 130, 144}, {64, 2, 64, 64, 160}, {130, 1, 128, 130, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct rope *const s = &shapes[i];
        const size_t n = (size_t)(s->rows * s->stride);
        const size_t table = (size_t)(s->positions * s->head_dim / 2);
        struct problem p = {.name = "rope", .shape = s, .run = run_rope};
        problem_add(&p, (struct array){.name = "x", .n = n});
        problem_add(&p, (struct array){.name = "cosine", .n = table, .f32 = true});
        problem_add(&p, (struct array){.name = "sine", .n = table, .f32 = true});
        problem_add(&p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = n});
        problem_add(&p, (struct array){.name = "dy", .role = ARRAY_UPSTREAM, .of = 3, .n = n});
        problem_add(&p, (struct array){.name = "dx", .role = ARRAY_GRADIENT, .of = 0, .n = n});
        check(&p, BF16_BOUND, i < 2);
    }
}

/* --- lookups --- */

static void run_lookup(const struct problem *p, struct device *d)
{
    const struct matrix *const s = p->shape;
    int32_t *const row = malloc((size_t)s->rows * sizeof *row);
    for (int64_t r = 0; r < s->rows; r++)
        row[r] = (int32_t)(2 * r + 1);
    expect_ok(d, d->ops->gather_forward(d->backend, d->dtype, s->rows, s->dim, at(p, 0), row,
                                        at(p, 1), &d->err));
    expect_ok(d, d->ops->gather_backward(d->backend, d->dtype, s->rows, s->dim, at(p, 2), row,
                                         2 * s->rows + 1, at(p, 3), &d->err));
    free(row);
}

static void test_gather(void **state)
{
    (void)state;
    static const struct matrix shapes[] = {{1, 1}, {3, 17}, {130, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t n = (size_t)(shapes[i].rows * shapes[i].dim);
        const size_t all = (size_t)((2 * shapes[i].rows + 1) * shapes[i].dim);
        struct problem p = {.name = "gather", .shape = &shapes[i], .run = run_lookup};
        problem_add(&p, (struct array){.name = "x", .n = all});
        problem_add(&p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = n});
        problem_add(&p, (struct array){.name = "dy", .role = ARRAY_UPSTREAM, .of = 1, .n = n});
        problem_add(&p, (struct array){.name = "dx", .role = ARRAY_GRADIENT, .of = 0, .n = all});
        check(&p, BF16_BOUND, true);
    }
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

enum { WORDS = 37 };

static void run_embed(const struct problem *p, struct device *d)
{
    const struct matrix *const s = p->shape;
    void *host;
    struct hop_weight *const table =
        make_weight(d, &p->array[0], WORDS, s->dim, HOP_WEIGHT_LOOKUP, &host);
    int32_t *const ids = malloc((size_t)s->rows * sizeof *ids);
    for (int64_t r = 0; r < s->rows; r++)
        ids[r] = (int32_t)(r * 5 % WORDS);
    expect_ok(d, d->ops->embed_forward(d->backend, d->dtype, table, (int32_t)s->rows, ids, at(p, 1),
                                       &d->err));
    expect_ok(d, d->ops->embed_backward(d->backend, d->dtype, s->dim, (int32_t)s->rows, ids,
                                        at(p, 2), at(p, 3), &d->err));
    d->ops->weight_free(d->backend, table);
    free(ids);
    free(host);
}

static void test_embed(void **state)
{
    (void)state;
    static const struct matrix shapes[] = {{1, 1}, {3, 17}, {130, 64}, {700, 72}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t n = (size_t)(shapes[i].rows * shapes[i].dim);
        const size_t all = (size_t)(WORDS * shapes[i].dim);
        struct problem p = {.name = "embed", .shape = &shapes[i], .run = run_embed};
        problem_add(&p, (struct array){.name = "table", .n = all});
        problem_add(&p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = n});
        problem_add(&p, (struct array){.name = "dy", .role = ARRAY_UPSTREAM, .of = 1, .n = n});
        problem_add(&p,
                    (struct array){
                        .name = "dtable", .role = ARRAY_GRADIENT, .of = 0, .n = all, .f32 = true});
        check(&p, BF16_BOUND, i < 3);
    }
}

/* --- projections --- */

struct projection {
    int64_t rows, in, out;
    int32_t n, rank, groups;
    bool residual, no_dx, bias;
};

enum {
    X = 0,
    RESIDUAL = 1,
    DX = 2
}; /* then W, A, B, y, u, dy, dA, dB, bias of the one projection tested */

static void run_groups(const struct problem *p, struct device *d, const int32_t *offset)
{
    const struct projection *const s = p->shape;
    void *host[3];
    struct hop_projection projection[3];
    const struct hop_lora lora = {.rank = s->rank,
                                  .groups = s->groups,
                                  .scale = 1.5f,
                                  .a = at(p, 4),
                                  .b = at(p, 5),
                                  .offset = offset};
    void *spare[6] = {0};
    for (int i = 0; i < s->n; i++) {
        projection[i] = (struct hop_projection){
            .weight = make_weight(d, &p->array[3], s->out, s->in,
                                  HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &host[i]),
            .bias = s->bias ? at(p, 11) : NULL,
            .lora = s->rank ? &lora : NULL,
            .y = at(p, 6),
            .u = s->rank ? at(p, 7) : NULL,
            .dy = at(p, 8),
            .da = s->rank ? at(p, 9) : NULL,
            .db = s->rank ? at(p, 10) : NULL};
        if (i == 0)
            continue;
        /* The others write elsewhere: only their part of dx is compared. */
        const size_t y = p->array[6].n * hop_dtype_size(d->dtype), u = p->array[7].n * 4;
        expect_ok(d, d->ops->alloc(d->backend, y, &spare[2 * i], &d->err));
        expect_ok(d, d->ops->alloc(d->backend, u + 64, &spare[2 * i + 1], &d->err));
        projection[i].y = spare[2 * i];
        projection[i].u = s->rank ? spare[2 * i + 1] : NULL;
        projection[i].da = projection[i].db = NULL;
    }
    expect_ok(d, d->ops->project_forward(d->backend, d->dtype, s->rows, at(p, X), projection, s->n,
                                         s->residual ? at(p, RESIDUAL) : NULL, &d->err));
    if (!p->forward_only)
        expect_ok(d, d->ops->project_backward(d->backend, d->dtype, s->rows, at(p, X), projection,
                                              s->n, s->no_dx ? NULL : at(p, DX), &d->err));
    for (int i = 0; i < s->n; i++) {
        struct hop_weight *own;
        memcpy(&own, &projection[i].weight, sizeof own);
        d->ops->weight_free(d->backend, own);
        d->ops->release(d->backend, spare[2 * i]);
        d->ops->release(d->backend, spare[2 * i + 1]);
        free(host[i]);
    }
}

static void run_project(const struct problem *p, struct device *d)
{
    run_groups(p, d, NULL);
}

static void add_project(struct problem *p, const struct projection *s, bool differentiate)
{
    const size_t rows = (size_t)s->rows, in = (size_t)s->in, out = (size_t)s->out;
    const size_t rank = (size_t)s->rank, groups = (size_t)s->groups;
    const float narrow = 1.0f / sqrtf((float)s->in);
    problem_add(p, (struct array){.name = "x", .n = rows * in});
    problem_add(p, (struct array){.name = "residual", .n = rows * out});
    /* With several projections the outputs of only one are projected on dy, so dx is not its
     * gradient. */
    problem_add(p, (struct array){.name = "dx",
                                  .role = differentiate && s->n == 1 && !s->no_dx ? ARRAY_GRADIENT
                                                                                  : ARRAY_OUTPUT,
                                  .of = X,
                                  .n = rows * in});
    problem_add(p, (struct array){.name = "w", .n = out * in, .spread = narrow});
    problem_add(
        p, (struct array){.name = "a", .n = groups * rank * in, .spread = narrow, .f32 = true});
    problem_add(p,
                (struct array){.name = "b", .n = groups * out * rank, .spread = 0.3f, .f32 = true});
    problem_add(p, (struct array){.name = "y", .role = ARRAY_OUTPUT, .n = rows * out});
    problem_add(p,
                (struct array){.name = "u", .role = ARRAY_OUTPUT, .n = rows * rank, .f32 = true});
    problem_add(p, (struct array){.name = "dy", .role = ARRAY_UPSTREAM, .of = 6, .n = rows * out});
    problem_add(p, (struct array){.name = "da",
                                  .role = ARRAY_GRADIENT,
                                  .of = 4,
                                  .n = rank * in * (groups == 1),
                                  .f32 = true});
    problem_add(p, (struct array){.name = "db",
                                  .role = ARRAY_GRADIENT,
                                  .of = 5,
                                  .n = out * rank * (groups == 1),
                                  .f32 = true});
    problem_add(p, (struct array){.name = "bias", .n = s->bias ? out : 0, .f32 = true});
}

static void check_project_as(const struct projection *s, bool differentiate,
                             void (*run)(const struct problem *p, struct device *d))
{
    const size_t rows = (size_t)s->rows, in = (size_t)s->in, out = (size_t)s->out;
    const size_t rank = (size_t)s->rank, groups = (size_t)s->groups;
    char name[96];
    snprintf(name, sizeof name, "project %zu x %zu x %zu, n %d, rank %zu, groups %zu%s%s%s", rows,
             in, out, s->n, rank, groups, s->residual ? ", residual" : "",
             s->no_dx ? ", no dx" : "", s->bias ? ", bias" : "");
    struct problem p = {.name = name, .shape = s, .run = run, .forward_only = s->groups > 1};
    add_project(&p, s, differentiate);
    check(&p, BF16_BOUND, differentiate);
}

static void check_project(const struct projection *s, bool differentiate)
{
    check_project_as(s, differentiate, run_project);
}

static void test_project(void **state)
{
    (void)state;
    static const struct projection small[] = {
        {1, 8, 24, 1, 4, 1, false, false, false},   {3, 33, 17, 1, 0, 1, true, false, false},
        {17, 40, 56, 1, 3, 1, true, false, false},  {5, 64, 48, 1, 8, 1, false, true, false},
        {18, 24, 40, 2, 8, 1, false, false, false}, {3, 33, 17, 1, 0, 1, false, false, true},
        {17, 40, 56, 1, 3, 1, true, false, true},
    };
    static const struct projection large[] = {
        {1, 288, 96, 3, 8, 1, false, false, false},   {3, 100, 130, 2, 16, 1, false, false, false},
        {64, 96, 288, 1, 64, 1, true, false, false},  {130, 72, 80, 3, 8, 1, false, false, false},
        {130, 72, 80, 3, 0, 1, false, false, false},  {12, 64, 64, 1, 8, 3, true, false, false},
        {390, 48, 64, 2, 8, 3, false, false, false},  {600, 64, 48, 1, 12, 1, true, false, false},
        {70, 64, 1100, 1, 8, 1, false, false, false}, {70, 1100, 64, 1, 8, 1, false, false, false},
        {300, 64, 64, 1, 0, 1, false, false, false},  {20, 64, 64, 2, 9, 1, false, true, false},
        {130, 72, 80, 3, 8, 1, false, false, true},   {130, 72, 80, 3, 0, 1, false, false, true},
        {390, 48, 64, 2, 8, 3, false, false, true},   {1, 288, 100, 1, 0, 1, true, false, true},
        {70, 64, 1100, 1, 8, 1, false, false, true},  {300, 64, 64, 1, 0, 1, true, false, true},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_project(&small[i], true);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        check_project(&large[i], false);
}

/* --- groups with unequal runs of rows --- */

struct uneven {
    struct projection projection; /* first: the shape of a problem */
    int32_t offset[6];
};

static const struct uneven unevens[] = {
    {{12, 24, 40, 1, 4, 3, false, false, false}, {0, 1, 9, 12}},
    {{20, 40, 56, 1, 3, 5, true, false, true}, {0, 7, 7, 8, 16, 20}},
    {{390, 48, 64, 2, 8, 4, false, false, true}, {0, 17, 130, 300, 390}},
    {{600, 64, 1100, 1, 8, 2, true, false, false}, {0, 599, 600}},
    {{3, 64, 80, 3, 1, 3, false, false, false}, {0, 1, 2, 3}},
};

static void run_uneven(const struct problem *p, struct device *d)
{
    const struct uneven *const s = p->shape;
    run_groups(p, d, s->offset);
}

/* Each group's rows alone, as a call of their own. */
static void run_apart(const struct problem *p, struct device *d)
{
    const struct uneven *const s = p->shape;
    const struct projection *const whole = &s->projection;
    const int64_t in = whole->in, out = whole->out, rank = whole->rank;
    for (int32_t g = 0; g < whole->groups; g++) {
        struct projection one = *whole;
        struct problem part = *p;
        const int64_t row = s->offset[g];
        one.rows = s->offset[g + 1] - row;
        one.groups = 1;
        part.shape = &one;
        const size_t step[] = {[X] = (size_t)(row * in),      [RESIDUAL] = (size_t)(row * out),
                               [4] = (size_t)(g * rank * in), [5] = (size_t)(g * out * rank),
                               [6] = (size_t)(row * out),     [7] = (size_t)(row * rank)};
        for (size_t i = 0; i < sizeof step / sizeof *step; i++)
            part.array[i].device = (char *)part.array[i].device +
                                   step[i] * (part.array[i].f32 ? 4 : hop_dtype_size(d->dtype));
        run_project(&part, d);
    }
}

/* The reference in one call is the reference group by group, and the others follow it. */
static void test_project_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof unevens / sizeof *unevens; i++) {
        const struct projection *const s = &unevens[i].projection;
        check_project_as(s, false, run_uneven);
        float *wanted = NULL;
        for (int apart = 0; apart < 2; apart++) {
            struct problem p = {
                .shape = s, .run = apart ? run_apart : run_uneven, .forward_only = true};
            add_project(&p, s, false);
            problem_run(&p, hop_backend_find("reference"), HOP_F32, 1);
            const size_t bytes = p.array[6].n * sizeof *wanted;
            if (apart)
                assert_memory_equal(p.array[6].value, wanted, bytes);
            else
                wanted = memcpy(malloc(bytes), p.array[6].value, bytes);
            problem_free(&p);
        }
        free(wanted);
    }
}

/* Residual and result in one place, gradients added to what is there. */
static void test_project_in_place(void **state)
{
    (void)state;
    enum { ROWS = 20, DIM = 48 };
    for (int i = 0; hop_backends[i]; i++) {
        struct device d;
        device_open(&d, hop_backends[i], HOP_F32, 2);
        if (d.ops->host_memory) {
            static float x[ROWS * DIM], w[DIM * DIM], a[4 * DIM], b[DIM * 4], apart[ROWS * DIM],
                same[ROWS * DIM], u[ROWS * 4], once[4 * DIM], twice[4 * DIM];
            memset(once, 0, sizeof once);
            memset(twice, 0, sizeof twice);
            for (int j = 0; j < ROWS * DIM; j++)
                x[j] = same[j] = sinf((float)j);
            for (int j = 0; j < DIM * DIM; j++)
                w[j] = cosf((float)j) / DIM;
            for (int j = 0; j < 4 * DIM; j++)
                a[j] = b[j] = sinf((float)j * 3.0f);
            const struct hop_lora lora = {.rank = 4, .groups = 1, .scale = 2.0f, .a = a, .b = b};
            struct hop_weight *weight;
            expect_ok(&d, d.ops->weight_create(d.backend, w, HOP_F32, DIM, DIM, HOP_F32,
                                               HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &weight,
                                               &d.err));
            assert_int_equal(d.ops->weight_bytes(weight), 0);
            struct hop_projection p = {.weight = weight, .lora = &lora, .y = apart, .u = u};
            expect_ok(&d, d.ops->project_forward(d.backend, HOP_F32, ROWS, x, &p, 1, x, &d.err));
            p.y = same;
            expect_ok(&d, d.ops->project_forward(d.backend, HOP_F32, ROWS, x, &p, 1, same, &d.err));
            assert_memory_equal(apart, same, sizeof same);
            p.dy = x;
            p.da = once;
            expect_ok(&d,
                      d.ops->project_backward(d.backend, HOP_F32, ROWS, x, &p, 1, NULL, &d.err));
            p.da = twice;
            for (int k = 0; k < 2; k++)
                expect_ok(
                    &d, d.ops->project_backward(d.backend, HOP_F32, ROWS, x, &p, 1, NULL, &d.err));
            for (int j = 0; j < 4 * DIM; j++)
                assert_true(twice[j] == 2.0f * once[j]);
            d.ops->weight_free(d.backend, weight);
        }
        device_close(&d);
    }
}

/* A bias moves every row by itself, and no gradient. */
static void test_project_bias(void **state)
{
    (void)state;
    enum { ROWS = 9, IN = 40, OUT = 35 };
    for (int i = 0; hop_backends[i]; i++) {
        struct device d;
        device_open(&d, hop_backends[i], HOP_F32, 2);
        if (d.ops->host_memory) {
            static float x[ROWS * IN], w[OUT * IN], bias[OUT], y[2][ROWS * OUT], dx[2][ROWS * IN];
            struct hop_weight *weight;
            for (int j = 0; j < ROWS * IN; j++)
                x[j] = sinf((float)j);
            for (int j = 0; j < OUT * IN; j++)
                w[j] = cosf((float)j) / IN;
            for (int j = 0; j < OUT; j++)
                bias[j] = (float)(j + 1);
            expect_ok(&d, d.ops->weight_create(d.backend, w, HOP_F32, OUT, IN, HOP_F32,
                                               HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &weight,
                                               &d.err));
            for (int with = 0; with < 2; with++) {
                const struct hop_projection p = {
                    .weight = weight, .bias = with ? bias : NULL, .y = y[with], .dy = y[0]};
                expect_ok(&d,
                          d.ops->project_forward(d.backend, HOP_F32, ROWS, x, &p, 1, NULL, &d.err));
                expect_ok(&d, d.ops->project_backward(d.backend, HOP_F32, ROWS, x, &p, 1, dx[with],
                                                      &d.err));
            }
            for (int j = 0; j < ROWS * OUT; j++)
                assert_true(fabsf(y[1][j] - y[0][j] - bias[j % OUT]) < 1e-5f);
            assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
            d.ops->weight_free(d.backend, weight);
        }
        device_close(&d);
    }
}

/* --- attention --- */

struct attention {
    int32_t sequences, heads, kv_heads, head_dim;
    int32_t q[4], kv[4];  /* lengths */
    int32_t extra;        /* elements between the end of a row and the next */
    int32_t group, first; /* of heads cut out of a model */
};

static void run_attention(const struct problem *p, struct device *d)
{
    const struct attention *const s = p->shape;
    int32_t q[5] = {0}, kv[5] = {0};
    for (int i = 0; i < s->sequences; i++) {
        q[i + 1] = q[i] + s->q[i];
        kv[i + 1] = kv[i] + s->kv[i];
    }
    const struct hop_attention shape = {.sequences = s->sequences,
                                        .heads = s->heads,
                                        .kv_heads = s->kv_heads,
                                        .head_dim = s->head_dim,
                                        .group = s->group,
                                        .first = s->first,
                                        .q_offset = q,
                                        .kv_offset = kv,
                                        .q_stride = s->heads * s->head_dim + s->extra,
                                        .kv_stride = s->kv_heads * s->head_dim + s->extra,
                                        .scale = 1.0f / sqrtf((float)s->head_dim)};
    expect_ok(d, d->ops->attention_forward(d->backend, d->dtype, &shape, at(p, 0), at(p, 1),
                                           at(p, 2), at(p, 3), at(p, 4), &d->err));
    if (!p->forward_only)
        expect_ok(d, d->ops->attention_backward(d->backend, d->dtype, &shape, at(p, 0), at(p, 1),
                                                at(p, 2), at(p, 3), at(p, 4), at(p, 5), at(p, 6),
                                                at(p, 7), at(p, 8), &d->err));
}

static void check_attention(const struct attention *s, bool differentiate)
{
    size_t queries = 0, keys = 0;
    bool cached = false;
    for (int i = 0; i < s->sequences; i++) {
        queries += (size_t)s->q[i];
        keys += (size_t)s->kv[i];
        cached = cached || s->q[i] != s->kv[i];
    }
    char name[96];
    snprintf(name, sizeof name, "attention %zu/%zu rows, %d/%d heads of %d", queries, keys,
             s->heads, s->kv_heads, s->head_dim);
    const size_t width = (size_t)(s->heads * s->head_dim);
    const size_t q = queries * (width + (size_t)s->extra);
    const size_t kv = keys * (size_t)(s->kv_heads * s->head_dim + s->extra);
    struct problem p = {.name = name, .shape = s, .run = run_attention, .forward_only = cached};
    problem_add(&p, (struct array){.name = "q", .n = q, .spread = 2});
    problem_add(&p, (struct array){.name = "k", .n = kv});
    problem_add(&p, (struct array){.name = "v", .n = kv});
    problem_add(&p, (struct array){.name = "out", .role = ARRAY_OUTPUT, .n = queries * width});
    problem_add(
        &p, (struct array){
                .name = "lse", .role = ARRAY_OUTPUT, .n = queries * (size_t)s->heads, .f32 = true});
    problem_add(
        &p, (struct array){.name = "dout", .role = ARRAY_UPSTREAM, .of = 3, .n = queries * width});
    problem_add(&p, (struct array){.name = "dq", .role = ARRAY_GRADIENT, .of = 0, .n = q});
    problem_add(&p, (struct array){.name = "dk", .role = ARRAY_GRADIENT, .of = 1, .n = kv});
    problem_add(&p, (struct array){.name = "dv", .role = ARRAY_GRADIENT, .of = 2, .n = kv});
    check(&p, MIXED_BOUND, differentiate);
}

static void test_attention(void **state)
{
    (void)state;
    static const struct attention small[] = {
        {1, 1, 1, 8, {1}, {1}, 0, 0, 0},
        {2, 2, 1, 8, {3, 5}, {3, 5}, 4, 0, 0},
        {1, 4, 2, 12, {17}, {17}, 0, 0, 0},
        {2, 5, 3, 8, {6, 3}, {6, 3}, 4, 3, 2},
    };
    static const struct attention large[] = {
        {3, 6, 6, 48, {17, 1, 64}, {17, 1, 64}, 0, 0, 0},
        {2, 9, 3, 64, {130, 30}, {130, 30}, 32, 0, 0},
        {1, 8, 2, 32, {200}, {200}, 0, 0, 0},
        {2, 2, 2, 128, {64, 100}, {64, 100}, 0, 0, 0},
        {1, 3, 1, 8, {97}, {97}, 5, 0, 0},
        {3, 4, 2, 64, {1, 7, 3}, {40, 200, 3}, 0, 0, 0},
        {1, 5, 1, 20, {70}, {170}, 0, 0, 0},
        {2, 7, 3, 64, {130, 30}, {130, 30}, 0, 4, 3},
        {2, 3, 2, 32, {65, 40}, {65, 40}, 0, 4, 2},
        {1, 3, 1, 48, {20}, {90}, 0, 8, 2},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_attention(&small[i], true);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        check_attention(&large[i], false);
}

/* --- loss --- */

struct loss {
    int64_t rows, dim, words;
    int32_t labels;
    int32_t repeat; /* labels a row */
};

static void run_loss(const struct problem *p, struct device *d)
{
    const struct loss *const s = p->shape;
    void *host;
    struct hop_weight *const head = make_weight(d, &p->array[1], s->words, s->dim,
                                                HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &host);
    const size_t labels = (size_t)s->labels;
    int32_t *const row = malloc(labels * sizeof *row), *const id = malloc(labels * sizeof *id);
    float *const logprob = malloc(labels * sizeof *logprob);
    float *const again = malloc(labels * sizeof *again);
    for (int32_t l = 0; l < s->labels; l++) {
        row[l] = (int32_t)(s->rows - 1 - (s->labels - 1 - l) / s->repeat);
        id[l] = (int32_t)((l * 131 + 5) % s->words);
    }
    expect_ok(d, d->ops->loss_forward(d->backend, d->dtype, s->rows, at(p, 0), head, s->labels, row,
                                      id, logprob, &d->err));
    expect_ok(d, d->ops->loss_backward(d->backend, d->dtype, s->rows, at(p, 0), head, s->labels,
                                       row, id, 0.25f, again, at(p, 4), &d->err));
    assert_memory_equal(logprob, again, labels * sizeof *logprob);
    for (size_t l = 0; l < labels; l++)
        logprob[l] *= -0.25f;
    expect_ok(d, d->ops->write(d->backend, at(p, 2), logprob, labels * sizeof(float), &d->err));
    d->ops->weight_free(d->backend, head);
    free(row);
    free(id);
    free(logprob);
    free(again);
    free(host);
}

/* Upstream is one for every label: the scalar is the loss itself. */
static void ones(const struct problem *p, struct device *d)
{
    float *const up = p->array[3].value;
    (void)d;
    for (size_t l = 0; l < p->array[3].n; l++)
        up[l] = 1.0f;
    run_loss(p, d);
    expect_ok(d, d->ops->write(d->backend, at(p, 3), up, p->array[3].n * sizeof(float), &d->err));
}

static void test_loss(void **state)
{
    (void)state;
    static const struct loss shapes[] = {
        {1, 8, 20, 1, 1},        {5, 17, 33, 4, 2},      {9, 24, 100, 9, 1},
        {64, 64, 1000, 64, 1},   {130, 48, 2100, 90, 1}, {40, 32, 1024, 60, 3},
        {300, 64, 1500, 300, 1}, {600, 32, 513, 570, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct loss *const s = &shapes[i];
        char name[96];
        snprintf(name, sizeof name, "loss %d rows, dim %d, %d words, %d labels", (int)s->rows,
                 (int)s->dim, (int)s->words, (int)s->labels);
        const size_t x = (size_t)(s->rows * s->dim);
        struct problem p = {.name = name, .shape = s, .run = ones};
        problem_add(&p, (struct array){.name = "x", .n = x});
        problem_add(
            &p, (struct array){.name = "head", .n = (size_t)(s->words * s->dim), .spread = 0.5f});
        problem_add(&p,
                    (struct array){
                        .name = "loss", .role = ARRAY_OUTPUT, .n = (size_t)s->labels, .f32 = true});
        problem_add(&p, (struct array){.name = "one",
                                       .role = ARRAY_UPSTREAM,
                                       .of = 2,
                                       .n = (size_t)s->labels,
                                       .f32 = true});
        problem_add(&p, (struct array){.name = "dx", .role = ARRAY_GRADIENT, .of = 0, .n = x});
        check(&p, MIXED_BOUND, i < 3);
    }
}

/* --- weights and the registry --- */

static void test_weight_conversion(void **state)
{
    (void)state;
    const float host[] = {1.0f, 2.0f, 3.0f, 4.0f, -5.0f, 6.0f};
    uint16_t half[6];
    hop_convert(half, HOP_BF16, host, HOP_F32, 6);
    for (int i = 0; hop_backends[i]; i++) {
        struct device d;
        device_open(&d, hop_backends[i], HOP_F32, 2);
        const int32_t ids[] = {1, 0};
        float y[6];
        struct hop_weight *weight;
        expect_ok(&d,
                  d.ops->weight_create(d.backend, half, HOP_BF16, 2, 3, HOP_F32,
                                       HOP_WEIGHT_LOOKUP | HOP_WEIGHT_FORWARD, &weight, &d.err));
        assert_int_equal(d.ops->weight_bytes(weight), sizeof host);
        if (d.ops->host_memory) {
            expect_ok(&d, d.ops->embed_forward(d.backend, HOP_F32, weight, 2, ids, y, &d.err));
            assert_true(y[0] == 4.0f && y[1] == -5.0f && y[5] == 3.0f);
        }
        d.ops->weight_free(d.backend, weight);
        d.ops->weight_free(d.backend, NULL);
        device_close(&d);
    }
}

static void test_forward_only(void **state)
{
    (void)state;
    for (int i = 0; hop_backends[i]; i++) {
        const struct hop_ops limited = hop_ops_forward_only(hop_backends[i]);
        assert_true(hop_ops_bp_capable(hop_backends[i]));
        assert_false(hop_ops_bp_capable(&limited));
        assert_true(limited.project_forward == hop_backends[i]->project_forward);
        assert_null(limited.project_backward);
        assert_null(limited.loss_backward);
        assert_ptr_equal(hop_backend_find(hop_backends[i]->name), hop_backends[i]);
    }
    assert_null(hop_backend_find("abacus"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm),        cmocka_unit_test(test_rmsnorm_backward_adds),
        cmocka_unit_test(test_swiglu),         cmocka_unit_test(test_swiglu_in_place),
        cmocka_unit_test(test_rope),           cmocka_unit_test(test_gather),
        cmocka_unit_test(test_embed),          cmocka_unit_test(test_project),
        cmocka_unit_test(test_project_groups), cmocka_unit_test(test_project_in_place),
        cmocka_unit_test(test_project_bias),   cmocka_unit_test(test_attention),
        cmocka_unit_test(test_loss),           cmocka_unit_test(test_weight_conversion),
        cmocka_unit_test(test_forward_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
