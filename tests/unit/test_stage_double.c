/* Hidden states and their tangents against a forward pass in double precision that is written
 * straight from the formulas and knows nothing of stages, operations or automatic differentiation.
 * Its difference quotients, extrapolated to a step of zero, are exact to far below float. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

enum { TOKENS = 32, WIDE = 64, BLOCKS = 2, PROBES = 2, PARAMETERS = 8192 };

struct numbers {
    double x[TOKENS][WIDE];
};

/* What the pass computes with: frozen tensors of the model, adapters in double precision. */
struct subject {
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_weights *weights;
    struct support_batch b;
    struct hop_parameters layout;
    double adapters[PARAMETERS];
};

static const float *tensor(const struct subject *s, const char *name)
{
    const struct hop_tensor *const found = hop_weights_find(s->weights, name);
    assert_non_null(found);
    assert_int_equal(found->dtype, HOP_F32);
    return found->data;
}

/* Where factor A or B of a projection is; they all have one here. */
static const double *factor(const struct subject *s, int32_t block, enum hop_target target,
                            enum hop_factor which)
{
    for (size_t i = 0; i < s->layout.count; i++) {
        const struct hop_parameter *const item = &s->layout.items[i];
        if (item->block == block && item->target == target && item->factor == which)
            return s->adapters + item->offset;
    }
    fail_msg("no adapter");
    return NULL;
}

/* y = W x + scale B (A x) of one row. */
static void project_row(const struct subject *s, int32_t block, enum hop_target target,
                        const double *x, double *y)
{
    char name[HOP_TENSOR_NAME];
    double u[WIDE] = {0};
    hop_weight_name(block, target, name);
    const float *const w = tensor(s, name);
    const double *const a = factor(s, block, target, HOP_LORA_A);
    const double *const b = factor(s, block, target, HOP_LORA_B);
    const int64_t in = hop_target_in(&s->model, target), out = hop_target_out(&s->model, target);
    const int32_t rank = s->lora.rank;
    for (int32_t r = 0; r < rank; r++)
        for (int64_t i = 0; i < in; i++)
            u[r] += a[r * in + i] * x[i];
    for (int64_t o = 0; o < out; o++) {
        y[o] = 0;
        for (int64_t i = 0; i < in; i++)
            y[o] += (double)w[o * in + i] * x[i];
        for (int32_t r = 0; r < rank; r++)
            y[o] += s->lora.alpha / rank * b[o * rank + r] * u[r];
    }
}

static void project(const struct subject *s, int32_t block, enum hop_target target,
                    const struct numbers *x, struct numbers *y)
{
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        project_row(s, block, target, x->x[t], y->x[t]);
}

static void norm(const struct subject *s, int32_t block, enum hop_norm which,
                 const struct numbers *x, struct numbers *y)
{
    char name[HOP_TENSOR_NAME];
    hop_norm_name(block, which, name);
    const float *const gain = tensor(s, name);
    const int32_t n = s->model.hidden;
    for (int32_t t = 0; t < s->b.batch.tokens; t++) {
        double squares = 0;
        for (int32_t i = 0; i < n; i++)
            squares += x->x[t][i] * x->x[t][i];
        const double rstd = 1 / sqrt(squares / n + (double)s->model.norm_eps);
        for (int32_t i = 0; i < n; i++)
            y->x[t][i] = x->x[t][i] * rstd * (double)gain[i];
    }
}

static void rotate(const struct subject *s, int32_t heads, struct numbers *x)
{
    const int32_t d = s->model.head_dim, half = d / 2;
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        for (int32_t h = 0; h < heads; h++)
            for (int32_t j = 0; j < half; j++) {
                const double angle =
                    s->b.position[t] * pow((double)s->model.rope_theta, -2.0 * j / d);
                double *const pair = x->x[t] + h * d + j;
                const double a = pair[0], b = pair[half];
                pair[0] = a * cos(angle) - b * sin(angle);
                pair[half] = b * cos(angle) + a * sin(angle);
            }
}

/* Row `t` of one head over the tokens from `begin` on. */
static void attend(const struct subject *s, int32_t t, int32_t begin, int32_t head,
                   const struct numbers *q, const struct numbers *k, const struct numbers *v,
                   struct numbers *out)
{
    const int32_t d = s->model.head_dim;
    const int32_t at = head / (s->model.heads / s->model.kv_heads) * d;
    double total = 0;
    for (int32_t i = 0; i < d; i++)
        out->x[t][head * d + i] = 0;
    for (int32_t key = begin; key <= t; key++) {
        double score = 0;
        for (int32_t i = 0; i < d; i++)
            score += q->x[t][head * d + i] * k->x[key][at + i];
        const double weight = exp(score / sqrt(d));
        total += weight;
        for (int32_t i = 0; i < d; i++)
            out->x[t][head * d + i] += weight * v->x[key][at + i];
    }
    for (int32_t i = 0; i < d; i++)
        out->x[t][head * d + i] /= total;
}

static void add(const struct subject *s, const struct numbers *x, struct numbers *to)
{
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        for (int32_t i = 0; i < s->model.hidden; i++)
            to->x[t][i] += x->x[t][i];
}

static void attention_half(const struct subject *s, int32_t block, struct numbers *h)
{
    static struct numbers x, q, k, v, out;
    norm(s, block, HOP_INPUT_NORM, h, &x);
    project(s, block, HOP_Q_PROJ, &x, &q);
    project(s, block, HOP_K_PROJ, &x, &k);
    project(s, block, HOP_V_PROJ, &x, &v);
    rotate(s, s->model.heads, &q);
    rotate(s, s->model.kv_heads, &k);
    for (int32_t sequence = 0; sequence < s->b.batch.sequences; sequence++)
        for (int32_t t = s->b.offset[sequence]; t < s->b.offset[sequence + 1]; t++)
            for (int32_t head = 0; head < s->model.heads; head++)
                attend(s, t, s->b.offset[sequence], head, &q, &k, &v, &out);
    project(s, block, HOP_O_PROJ, &out, &x);
    add(s, &x, h);
}

static void feed_forward_half(const struct subject *s, int32_t block, struct numbers *h)
{
    static struct numbers x, gate, up;
    norm(s, block, HOP_POST_ATTENTION_NORM, h, &x);
    project(s, block, HOP_GATE_PROJ, &x, &gate);
    project(s, block, HOP_UP_PROJ, &x, &up);
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        for (int32_t i = 0; i < s->model.intermediate; i++)
            gate.x[t][i] *= up.x[t][i] / (1 + exp(-gate.x[t][i]));
    project(s, block, HOP_DOWN_PROJ, &gate, &x);
    add(s, &x, h);
}

/* Hidden states behind the last block. */
static void forward(const struct subject *s, struct numbers *h)
{
    const float *const table = tensor(s, HOP_EMBED_NAME);
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        for (int32_t i = 0; i < s->model.hidden; i++)
            h->x[t][i] = (double)table[s->b.ids[t] * s->model.hidden + i];
    for (int32_t block = 0; block < BLOCKS; block++) {
        attention_half(s, block, h);
        feed_forward_half(s, block, h);
    }
}

/* Central difference quotient along z. */
static void quotient(struct subject *s, const float *z, double step, struct numbers *out)
{
    static struct numbers side[2];
    static double saved[PARAMETERS];
    memcpy(saved, s->adapters, sizeof saved);
    for (int plus = 0; plus < 2; plus++) {
        for (size_t i = 0; i < s->layout.total; i++)
            s->adapters[i] = saved[i] + (plus ? step : -step) * (double)z[i];
        forward(s, &side[plus]);
    }
    memcpy(s->adapters, saved, sizeof saved);
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        for (int32_t i = 0; i < s->model.hidden; i++)
            out->x[t][i] = (side[1].x[t][i] - side[0].x[t][i]) / (2 * step);
}

/* The derivative along z, and how far two extrapolations of it differ. */
static double derivative(struct subject *s, const float *z, float *out)
{
    static struct numbers at[3];
    double difference = 0, size = 0;
    for (int i = 0; i < 3; i++)
        quotient(s, z, 4e-4 / (1 << i), &at[i]);
    for (int32_t t = 0; t < s->b.batch.tokens; t++)
        for (int32_t i = 0; i < s->model.hidden; i++) {
            const double rough = (4 * at[1].x[t][i] - at[0].x[t][i]) / 3;
            const double fine = (4 * at[2].x[t][i] - at[1].x[t][i]) / 3;
            out[t * s->model.hidden + i] = (float)fine;
            difference += (fine - rough) * (fine - rough);
            size += fine * fine;
        }
    return sqrt(difference / size);
}

static void subject_open(struct subject *s)
{
    struct hop_error err = {0};
    static const int32_t lengths[] = {9, 4, 14};
    s->model = support_tiny_config();
    s->model.blocks = BLOCKS + 1;
    s->lora = support_all_targets(3, 6);
    assert_ok(hop_weights_random(&s->model, 11, HOP_F32, &s->weights, &err));
    support_batch_random(&s->b, s->model.vocabulary, lengths, 3);
    assert_true(s->b.batch.tokens <= TOKENS && s->model.intermediate <= WIDE);
    assert_ok(hop_parameters_create(&s->model, &s->lora, 0, BLOCKS, &s->layout, &err));
    assert_true(s->layout.total <= PARAMETERS);
}

static void subject_close(struct subject *s)
{
    hop_parameters_free(&s->layout);
    hop_weights_free(s->weights);
}

static void open_stage(struct support_stage *stage, struct subject *s, const struct hop_ops *ops)
{
    const struct hop_stage_config config = {.model = s->model,
                                            .lora = s->lora,
                                            .dtype = HOP_F32,
                                            .hi = BLOCKS,
                                            .embed = true,
                                            .gradient = HOP_GRADIENT_ZEROTH_ORDER,
                                            .limits = support_limits(&s->b),
                                            .slots = 1,
                                            .probes = PROBES,
                                            .tangents = true};
    support_stage_open(stage, ops, s->weights, &config);
    support_random_adapters(stage, 1, 0.2f);
    const struct hop_parameters *const p = hop_stage_parameters(stage->stage);
    for (size_t i = 0; i < p->total; i++)
        s->adapters[i] = (double)p->values[i];
}

static void direction_of(const struct subject *s, uint16_t number, float *z)
{
    const struct hop_direction key = {.seed = 9, .step = 3, .direction = number};
    for (size_t i = 0; i < s->layout.count; i++)
        hop_direction_values(&key, &s->layout.items[i], 0, s->layout.items[i].count,
                             z + s->layout.items[i].offset);
}

static void tangents_case(struct subject *s, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    static float hidden[TOKENS * WIDE], tangent[PROBES * TOKENS * WIDE];
    static float expected[TOKENS * WIDE], z[PARAMETERS];
    static struct numbers exact;
    static const struct hop_probe probes[PROBES] = {{4, 0}, {5, 0}};
    const struct hop_probe_set set = {.seed = 9, .step = 3, .count = PROBES, .probes = probes};
    const size_t n = (size_t)(s->b.batch.tokens * s->model.hidden);
    struct support_stage stage;
    open_stage(&stage, s, ops);
    assert_ok(hop_stage_forward(stage.stage, &s->b.batch, 0, NULL, hidden, NULL, &err));
    forward(s, &exact);
    for (size_t i = 0; i < n; i++)
        expected[i] = (float)exact.x[i / (size_t)s->model.hidden][i % (size_t)s->model.hidden];
    assert_true(support_error(hidden, expected, n) < 1e-6);
    assert_ok(hop_stage_tangent(stage.stage, &s->b.batch, 0, &set, NULL, tangent, &err));
    for (size_t q = 0; q < PROBES; q++) {
        direction_of(s, probes[q].direction, z);
        const double spread = derivative(s, z, expected);
        const double error = support_error(tangent + q * n, expected, n);
        print_message("%s: tangent against double precision %.3g (itself exact to %.1g)\n",
                      ops->name, error, spread);
        assert_true(spread < 1e-8);
        assert_true(error < 2e-6);
    }
    support_stage_close(&stage);
}

static void test_tangents(void **state)
{
    (void)state;
    static struct subject s;
    subject_open(&s);
    for (int i = 0; hop_backends[i]; i++)
        tangents_case(&s, hop_backends[i]);
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tangents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
