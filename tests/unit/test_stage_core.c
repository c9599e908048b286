/* Stages whose adapters are cores: the same numbers as plain LoRA with the factors A and B R, and
 * derivatives with respect to R. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <malloc.h>

#include "support_model.h"

#include "base/random.h"
#include "model/core.h"

enum { PROBES = 3, HIDDEN = 8192 };

static struct hop_error err;

/* A small random model of odd sizes with a micro-batch of three uneven sequences. Blocks 0 and 1
 * train cores, block 2 plain adapters of another rank. */
struct tiny {
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_weights *weights;
    struct support_batch b;
};

static int set_up(void **state)
{
    static struct tiny t;
    static const int32_t lengths[] = {9, 4, 14};
    t.model = support_tiny_config();
    t.lora = support_all_targets(3, 6);
    t.lora.core = 4;
    t.lora.core_hi = 2;
    assert_ok(hop_weights_random(&t.model, 11, HOP_F32, &t.weights, &err));
    support_batch_random(&t.b, t.model.vocabulary, lengths, 3);
    t.b.batch.micro_batch = 2;
    *state = &t;
    return 0;
}

static int tear_down(void **state)
{
    const struct tiny *const t = *state;
    hop_weights_free(t->weights);
    return 0;
}

static struct hop_stage_config exact_config(const struct tiny *t, int32_t lo, int32_t hi)
{
    return (struct hop_stage_config){.model = t->model,
                                     .lora = t->lora,
                                     .dtype = HOP_F32,
                                     .lo = lo,
                                     .hi = hi,
                                     .embed = lo == 0,
                                     .head = hi == t->model.blocks,
                                     .gradient = HOP_GRADIENT_BACKPROP,
                                     .limits = support_limits(&t->b),
                                     .slots = 2,
                                     .probes = PROBES};
}

static struct hop_stage_config estimated_config(const struct tiny *t, int32_t lo, int32_t hi)
{
    struct hop_stage_config config = exact_config(t, lo, hi);
    config.gradient = HOP_GRADIENT_ZEROTH_ORDER;
    config.tangents = !config.head;
    return config;
}

static void open_stage(struct support_stage *s, const struct tiny *t, const struct hop_ops *ops,
                       const struct hop_stage_config *config)
{
    const struct hop_ops forward = hop_ops_forward_only(ops);
    const bool estimated = config->gradient == HOP_GRADIENT_ZEROTH_ORDER;
    support_stage_open(s, estimated ? &forward : ops, t->weights, config);
    support_random_adapters(s, 1, 0.2f);
}

/* The plain stage that computes the same: A and B R of `s` are its adapters. Returns the fixed
 * factors. */
static struct hop_parameters open_expanded(struct support_stage *plain, const struct tiny *t,
                                           const struct hop_ops *ops,
                                           const struct hop_stage_config *config,
                                           struct support_stage *s)
{
    struct hop_stage_config same = *config;
    struct hop_parameters fixed, expanded;
    const int32_t lo = config->lo, hi = config->hi;
    assert_ok(hop_core_fixed(t->weights, &t->model, &t->lora, lo, hi, &fixed, &err));
    assert_ok(hop_core_expand(&t->model, &t->lora, &fixed, hop_stage_parameters(s->stage), lo, hi,
                              &same.lora, &expanded, &err));
    open_stage(plain, t, ops, &same);
    struct hop_parameters *const p = hop_stage_parameters(plain->stage);
    assert_int_equal(p->total, expanded.total);
    memcpy(p->values, expanded.values, p->total * sizeof *p->values);
    assert_ok(hop_stage_adapters_changed(plain->stage, &err));
    hop_parameters_free(&expanded);
    return fixed;
}

/* What the gradients of plain factors say of the cores: dR = B^T dB'. */
static void check_gradients(struct support_stage *s, struct support_stage *plain,
                            const struct hop_parameters *fixed)
{
    const struct hop_parameters *const p = hop_stage_parameters(s->stage);
    const struct hop_parameters *const q = hop_stage_parameters(plain->stage);
    double difference = 0, norm = 0;
    for (size_t i = 0, j = 0; i < p->count; i++) {
        const struct hop_parameter *const item = &p->items[i];
        const bool core = item->factor == HOP_LORA_CORE;
        const struct hop_parameter *const from = &q->items[core ? j + 1 : j];
        const int64_t rank = item->rows;
        for (size_t e = 0; e < item->count; e++) {
            double expected = core ? 0 : (double)q->gradients[from->offset + e];
            for (int64_t o = 0; core && o < from->rows; o++)
                expected +=
                    (double)fixed->values[(int64_t)from->offset + o * rank + (int64_t)e / rank] *
                    (double)q->gradients[(int64_t)from->offset + o * rank + (int64_t)e % rank];
            const double found = (double)p->gradients[item->offset + e];
            difference += (found - expected) * (found - expected);
            norm += expected * expected;
        }
        j += core ? 2 : 1;
    }
    assert_true(norm > 0);
    assert_true(sqrt(difference / norm) < 1e-6);
}

static void equal_case(const struct tiny *t, const struct hop_ops *ops)
{
    static float logprob[2][SUPPORT_TOKENS];
    struct support_stage s, plain;
    const struct hop_stage_config config = exact_config(t, 0, 3);
    const size_t labels = (size_t)t->b.batch.labels;
    open_stage(&s, t, ops, &config);
    struct hop_parameters fixed = open_expanded(&plain, t, ops, &config, &s);
    assert_int_equal(hop_stage_parameters(s.stage)->count, 2 * 7 + 14);
    for (int i = 0; i < 2; i++) {
        struct hop_stage *const stage = i == 0 ? s.stage : plain.stage;
        assert_ok(hop_stage_forward(stage, &t->b.batch, 1, NULL, NULL, logprob[i], &err));
        assert_ok(hop_stage_backward(stage, &t->b.batch, 1, NULL, NULL, &err));
    }
    assert_memory_equal(logprob[0], logprob[1], labels * sizeof(float));
    check_gradients(&s, &plain, &fixed);
    /* Gradients add up. */
    for (int i = 0; i < 2; i++) {
        struct hop_stage *const stage = i == 0 ? s.stage : plain.stage;
        assert_ok(hop_stage_forward(stage, &t->b.batch, 0, NULL, NULL, logprob[i], &err));
        assert_ok(hop_stage_backward(stage, &t->b.batch, 0, NULL, NULL, &err));
    }
    check_gradients(&s, &plain, &fixed);
    hop_parameters_free(&fixed);
    support_stage_close(&s);
    support_stage_close(&plain);
}

static void test_equals_plain(void **state)
{
    for (int i = 0; hop_backends[i]; i++)
        equal_case(*state, hop_backends[i]);
    struct hop_ops device = *hop_backend_find("reference");
    device.host_memory = false;
    equal_case(*state, &device);
}

/* A core of zero changes nothing. */
static void test_starts_as_the_model(void **state)
{
    const struct tiny *const t = *state;
    static float logprob[2][SUPPORT_TOKENS];
    for (int bare = 0; bare < 2; bare++) {
        struct support_stage s;
        struct hop_stage_config config = exact_config(t, 0, 3);
        if (bare)
            config.lora = (struct hop_lora_config){.rank = 1, .alpha = 1};
        support_stage_open(&s, hop_backend_find("reference"), t->weights, &config);
        hop_parameters_initialise(hop_stage_parameters(s.stage), 3);
        assert_ok(hop_stage_adapters_changed(s.stage, &err));
        assert_ok(hop_stage_forward(s.stage, &t->b.batch, -1, NULL, NULL, logprob[bare], &err));
        support_stage_close(&s);
    }
    assert_memory_equal(logprob[0], logprob[1], (size_t)t->b.batch.labels * sizeof(float));
}

static double loss_of(struct support_stage *s, const struct tiny *t)
{
    static float logprob[SUPPORT_TOKENS];
    assert_ok(hop_stage_adapters_changed(s->stage, &err));
    assert_ok(hop_stage_forward(s->stage, &t->b.batch, -1, NULL, NULL, logprob, &err));
    return support_loss(logprob, (size_t)t->b.batch.labels, (double)t->b.batch.label_total);
}

/* The loss along a random direction of the cores alone, against their gradient. */
static void test_finite_differences(void **state)
{
    const struct tiny *const t = *state;
    static float logprob[SUPPORT_TOKENS], z[HIDDEN];
    for (int i = 0; hop_backends[i]; i++) {
        struct support_stage s;
        const struct hop_stage_config config = exact_config(t, 0, 3);
        const struct hop_random_key key = {.seed = 5, .domain = HOP_RANDOM_SAMPLE};
        const double h = 2e-3;
        double slope = 0, losses[2];
        open_stage(&s, t, hop_backends[i], &config);
        struct hop_parameters *const p = hop_stage_parameters(s.stage);
        const size_t cores = (size_t)hop_lora_parameters(&t->model, &t->lora, 0, 2);
        assert_int_equal(cores, 2 * 7 * 16);
        assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, NULL, NULL, logprob, &err));
        assert_ok(hop_stage_backward(s.stage, &t->b.batch, 0, NULL, NULL, &err));
        hop_random_normal(&key, 0, cores, z);
        for (size_t e = 0; e < cores; e++)
            slope += (double)z[e] * (double)p->gradients[e];
        for (int side = 0; side < 2; side++) {
            const float step = (float)(side == 0 ? h : -2 * h);
            for (size_t e = 0; e < cores; e++)
                p->values[e] += step * z[e];
            losses[side] = loss_of(&s, t);
        }
        const double measured = (losses[0] - losses[1]) / (2 * h);
        print_message("%s: slope %.6f, gradient along it %.6f\n", hop_backends[i]->name, measured,
                      slope);
        assert_close(measured / slope, 1, 5e-3);
        support_stage_close(&s);
    }
}

static const struct hop_probe probes[PROBES] = {{4, 1e-2f}, {5, -2e-2f}, {9, 5e-3f}};

static struct hop_probe_set probe_set(enum hop_distribution distribution)
{
    return (struct hop_probe_set){
        .seed = 9, .step = 3, .count = PROBES, .probes = probes, .distribution = distribution};
}

/* values += epsilon z of one probe and sample. */
static void move(struct support_stage *s, const struct tiny *t, int q, uint16_t sample,
                 enum hop_distribution distribution)
{
    static float z[HIDDEN];
    struct hop_parameters *const p = hop_stage_parameters(s->stage);
    const struct hop_direction key = {.seed = 9,
                                      .step = 3,
                                      .micro_batch = (uint16_t)t->b.batch.micro_batch,
                                      .direction = probes[q].direction,
                                      .sample = sample,
                                      .distribution = distribution};
    for (size_t i = 0; i < p->count; i++) {
        hop_direction_values(&key, &p->items[i], 0, p->items[i].count, z);
        for (size_t e = 0; e < p->items[i].count; e++)
            p->values[p->items[i].offset + e] += probes[q].epsilon * z[e];
    }
    assert_ok(hop_stage_adapters_changed(s->stage, &err));
}

/* Each probe (of each sample) is the forward of a stage whose cores were moved. */
static void probe_case(const struct tiny *t, const struct hop_ops *ops, bool per_sample,
                       enum hop_distribution distribution)
{
    static float probed[PROBES * HIDDEN], moved[HIDDEN];
    struct support_stage s;
    struct hop_stage_config config = estimated_config(t, 0, 2);
    const struct hop_probe_set set = probe_set(distribution);
    const struct hop_batch *const batch = &t->b.batch;
    const size_t hidden = (size_t)t->model.hidden, tokens = (size_t)batch->tokens;
    config.per_sample = per_sample;
    open_stage(&s, t, ops, &config);
    assert_ok(hop_stage_probe(s.stage, batch, &set, NULL, probed, NULL, &err));
    support_stage_close(&s);
    for (int q = 0; q < PROBES; q++) {
        for (int32_t sample = 0; sample < batch->sequences; sample++) {
            const size_t first = (size_t)batch->offset[sample] * hidden;
            const size_t n = (size_t)batch->offset[sample + 1] * hidden - first;
            open_stage(&s, t, ops, &config);
            move(&s, t, q, per_sample ? (uint16_t)sample : 0, distribution);
            assert_ok(hop_stage_forward(s.stage, batch, -1, NULL, moved, NULL, &err));
            assert_true(support_error(probed + (size_t)q * tokens * hidden + first, moved + first,
                                      n) < 1e-6);
            support_stage_close(&s);
        }
    }
}

static void test_probes(void **state)
{
    struct hop_ops device = *hop_backend_find("reference");
    device.host_memory = false;
    for (int per_sample = 0; per_sample < 2; per_sample++) {
        for (int i = 0; hop_backends[i]; i++)
            probe_case(*state, hop_backends[i], per_sample, HOP_GAUSSIAN);
        probe_case(*state, &device, per_sample, HOP_RADEMACHER);
    }
}

/* <gradient, z> of one sample's direction. */
static double along(const struct tiny *t, const struct hop_parameters *p, uint16_t direction,
                    uint16_t sample, enum hop_distribution distribution)
{
    static float z[HIDDEN];
    double sum = 0;
    const struct hop_direction key = {.seed = 9,
                                      .step = 3,
                                      .micro_batch = (uint16_t)t->b.batch.micro_batch,
                                      .direction = direction,
                                      .sample = sample,
                                      .distribution = distribution};
    for (size_t i = 0; i < p->count; i++) {
        hop_direction_values(&key, &p->items[i], 0, p->items[i].count, z);
        for (size_t e = 0; e < p->items[i].count; e++)
            sum += (double)z[e] * (double)p->gradients[p->items[i].offset + e];
    }
    return sum;
}

/* delta with the rows of one sample only, or all of it. */
static void keep_rows(const struct tiny *t, const float *delta, int32_t sample, float *to)
{
    const size_t hidden = (size_t)t->model.hidden;
    const size_t begin = sample < 0 ? 0 : (size_t)t->b.batch.offset[sample] * hidden;
    const size_t end =
        (size_t)(sample < 0 ? t->b.batch.tokens : t->b.batch.offset[sample + 1]) * hidden;
    memset(to, 0, (size_t)t->b.batch.tokens * hidden * sizeof *to);
    memcpy(to + begin, delta + begin, (end - begin) * sizeof *to);
}

/* <delta, J z> = <dR, z>, also with a direction of its own for every sample. */
static void identity_case(const struct tiny *t, const struct hop_ops *ops, bool per_sample,
                          enum hop_distribution distribution)
{
    static float hidden[HIDDEN], tangent[PROBES * HIDDEN], delta[HIDDEN], rows[HIDDEN];
    struct support_stage s, exact;
    struct hop_stage_config config = estimated_config(t, 0, 2);
    const struct hop_stage_config same = exact_config(t, 0, 2);
    const struct hop_probe_set set = probe_set(distribution);
    const struct hop_random_key key = {.seed = 8, .domain = HOP_RANDOM_SAMPLE};
    const struct hop_batch *const batch = &t->b.batch;
    const size_t n = (size_t)(batch->tokens * t->model.hidden);
    config.per_sample = per_sample;
    hop_random_normal(&key, 0, n, delta);
    open_stage(&s, t, ops, &config);
    assert_ok(hop_stage_forward(s.stage, batch, 1, NULL, hidden, NULL, &err));
    assert_ok(hop_stage_tangent(s.stage, batch, 1, &set, NULL, tangent, &err));
    support_stage_close(&s);
    open_stage(&exact, t, hop_backend_find("reference"), &same);
    struct hop_parameters *const p = hop_stage_parameters(exact.stage);
    for (int32_t sample = per_sample ? 0 : -1; sample < (per_sample ? batch->sequences : 0);
         sample++) {
        keep_rows(t, delta, sample, rows);
        hop_parameters_zero_gradients(p);
        assert_ok(hop_stage_forward(exact.stage, batch, 0, NULL, hidden, NULL, &err));
        assert_ok(hop_stage_backward(exact.stage, batch, 0, rows, NULL, &err));
        const double norm = support_norm(p->gradients, p->total);
        for (size_t q = 0; q < PROBES; q++) {
            double derivative = 0;
            for (size_t e = 0; e < n; e++)
                derivative += (double)rows[e] * (double)tangent[q * n + e];
            const double expected =
                along(t, p, probes[q].direction, sample < 0 ? 0 : (uint16_t)sample, distribution);
            assert_true(fabs(expected) > 1e-3 * norm);
            assert_true(fabs(derivative - expected) < 4e-6 * norm);
        }
    }
    support_stage_close(&exact);
}

static void test_boundary_identity(void **state)
{
    struct hop_ops device = *hop_backend_find("reference");
    device.host_memory = false;
    for (int per_sample = 0; per_sample < 2; per_sample++) {
        for (int i = 0; hop_backends[i]; i++)
            for (enum hop_distribution d = HOP_GAUSSIAN; d <= HOP_RADEMACHER; d++)
                identity_case(*state, hop_backends[i], per_sample, d);
        identity_case(*state, &device, per_sample, HOP_GAUSSIAN);
    }
}

/* Feedback to cores is the chain rule of that to plain factors. */
static void feedback_case(const struct tiny *t, const struct hop_ops *ops)
{
    static float hidden[HIDDEN], delta[HIDDEN];
    struct support_stage s, plain;
    const struct hop_stage_config config = estimated_config(t, 0, 2);
    const struct hop_random_key key = {.seed = 8, .domain = HOP_RANDOM_SAMPLE};
    hop_random_normal(&key, 0, (size_t)(t->b.batch.tokens * t->model.hidden), delta);
    open_stage(&s, t, ops, &config);
    struct hop_parameters fixed = open_expanded(&plain, t, ops, &config, &s);
    for (int i = 0; i < 2; i++) {
        struct hop_stage *const stage = i == 0 ? s.stage : plain.stage;
        assert_ok(hop_stage_forward(stage, &t->b.batch, 1, NULL, hidden, NULL, &err));
        assert_ok(hop_stage_feedback(stage, &t->b.batch, 1, 0, delta, &err));
    }
    check_gradients(&s, &plain, &fixed);
    hop_parameters_free(&fixed);
    support_stage_close(&s);
    support_stage_close(&plain);
}

static void test_feedback(void **state)
{
    for (int i = 0; hop_backends[i]; i++)
        feedback_case(*state, hop_backends[i]);
    struct hop_ops device = *hop_backend_find("reference");
    device.host_memory = false;
    feedback_case(*state, &device);
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* What the planner is told is what creation takes from the heap. */
static void test_bytes(void **state)
{
    (void)state;
    enum { LISTS = 40000 };
    struct hop_model_config model = support_tiny_config();
    struct hop_weights *weights;
    if (heap_bytes() == 0) {
        print_message("skip: this allocator does not say how much it gave out\n");
        skip();
    }
    model.hidden = 64;
    model.head_dim = 16;
    model.intermediate = 200;
    assert_ok(hop_weights_random(&model, 1, HOP_F32, &weights, &err));
    struct hop_stage_config config = {.model = model,
                                      .lora = support_all_targets(8, 16),
                                      .dtype = HOP_F32,
                                      .hi = 3,
                                      .embed = true,
                                      .gradient = HOP_GRADIENT_ZEROTH_ORDER,
                                      .limits = {4, 64, 64},
                                      .slots = 2,
                                      .probes = 3,
                                      .tangents = true};
    const size_t plain = hop_stage_bytes(&config).parameters;
    config.lora.core = 24;
    config.lora.core_lo = 1;
    config.lora.core_hi = 3;
    const struct hop_stage_bytes bytes = hop_stage_bytes(&config);
    struct support_stage s;
    const size_t before = heap_bytes();
    support_stage_open(&s, hop_backend_find("reference"), weights, &config);
    const size_t taken = heap_bytes() - before;
    const size_t gains = (size_t)model.hidden * sizeof(float) * 6;
    const size_t expected = bytes.parameters + 2 * bytes.kept + bytes.scratch + gains;
    print_message("estimate %zu bytes, heap %zu bytes\n", expected, taken);
    assert_true(bytes.parameters > 2 * plain);
    assert_true(taken >= expected && taken - expected < LISTS);
    support_stage_close(&s);
    hop_weights_free(weights);
}

static void test_refusals(void **state)
{
    const struct tiny *const t = *state;
    const struct hop_ops *const ops = hop_backend_find("reference");
    struct hop_backend *backend;
    struct hop_stage *stage = NULL;
    struct hop_stage_config config = exact_config(t, 0, 3);
    assert_ok(ops->open(1, &backend, &err));
    config.lora.core = 13;
    assert_fails(hop_stage_create(ops, backend, t->weights, &config, &stage, &err), HOP_INPUT,
                 "model.layers.0.self_attn.k_proj.weight");
    config = exact_config(t, 0, 3);
    config.shard = (struct hop_shard){.lo = 0, .hi = 0.5};
    config.probes = 0;
    assert_fails(hop_stage_create(ops, backend, t->weights, &config, &stage, &err), HOP_UNSUPPORTED,
                 "cores");
    ops->close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_plain),
        cmocka_unit_test(test_starts_as_the_model),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_boundary_identity),
        cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
