/* Tangents, feedback, exits and directions of samples: what zeroth-order stages compute beside
 * plain probes. Everything here runs on backends without backward operations; backpropagation on
 * another stage of the same blocks says what is right. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <malloc.h>

#include "support_model.h"

#include "base/random.h"

enum { PROBES = 3, HIDDEN = 8192, PARAMETERS = 1 << 16 };

/* A small random model of odd sizes with a micro-batch of three uneven sequences. */
struct tiny {
    struct hop_model_config model;
    struct hop_weights *weights;
    struct support_batch b;
};

static void tiny_open_as(struct tiny *t, const struct hop_model_config *model)
{
    struct hop_error err = {0};
    static const int32_t lengths[] = {9, 4, 14};
    t->model = *model;
    assert_ok(hop_weights_random(&t->model, 11, HOP_F32, &t->weights, &err));
    support_batch_random(&t->b, t->model.vocabulary, lengths, 3);
    t->b.batch.micro_batch = 2;
}

static void tiny_open(struct tiny *t)
{
    const struct hop_model_config model = support_tiny_config();
    tiny_open_as(t, &model);
}

static size_t hidden_elements(const struct tiny *t)
{
    return (size_t)(t->b.batch.tokens * t->model.hidden);
}

/* Blocks [lo, hi) as part of a backpropagated model, or zeroth-order with tangents. */
static struct hop_stage_config exact_config(const struct tiny *t, int32_t lo, int32_t hi)
{
    return (struct hop_stage_config){.model = t->model,
                                     .lora = support_all_targets(3, 6),
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
    config.head = false;
    config.tangents = true;
    return config;
}

/* A stage over the tiny model's adapters; a zeroth-order one has no backward operations. */
static void open_stage(struct support_stage *s, const struct tiny *t, const struct hop_ops *ops,
                       const struct hop_stage_config *config)
{
    const struct hop_ops forward = hop_ops_forward_only(ops);
    const bool estimated = config->gradient == HOP_GRADIENT_ZEROTH_ORDER;
    support_stage_open(s, estimated ? &forward : ops, t->weights, config);
    support_random_adapters(s, 1, 0.2f);
}

static const struct hop_probe three[PROBES] = {{4, 0}, {5, 0}, {9, 0}};

static struct hop_probe_set probe_set(const struct hop_probe *probes, int32_t count)
{
    return (struct hop_probe_set){.seed = 9, .step = 3, .count = count, .probes = probes};
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void random_values(float *values, size_t n, uint64_t seed)
{
    const struct hop_random_key key = {.seed = seed, .domain = HOP_RANDOM_SAMPLE};
    hop_random_normal(&key, 0, n, values);
}

/* <gradient, z> for one direction of one sample. */
static double along(const struct tiny *t, const struct hop_parameters *p, uint16_t direction,
                    uint16_t sample, enum hop_distribution distribution)
{
    static float z[PARAMETERS];
    double sum = 0;
    const struct hop_direction key = {.seed = 9,
                                      .step = 3,
                                      .micro_batch = (uint16_t)t->b.batch.micro_batch,
                                      .direction = direction,
                                      .sample = sample,
                                      .distribution = distribution};
    for (size_t i = 0; i < p->count; i++) {
        assert_true(p->items[i].count <= PARAMETERS);
        hop_direction_values(&key, &p->items[i], 0, p->items[i].count, z);
        sum += dot(p->gradients + p->items[i].offset, z, p->items[i].count);
    }
    return sum;
}

/* Tangents of blocks [lo, hi) around `input`; output (count, tokens, hidden). */
static void tangents_of(const struct tiny *t, const struct hop_ops *ops,
                        const struct hop_stage_config *config, const struct hop_probe_set *set,
                        const float *input, const float *dinput, float *hidden, float *output)
{
    struct hop_error err = {0};
    struct support_stage s;
    open_stage(&s, t, ops, config);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, 1, input, hidden, NULL, &err));
    assert_ok(hop_stage_tangent(s.stage, &t->b.batch, 1, set, dinput, output, &err));
    support_stage_close(&s);
}

/* Difference quotients of the stage's output along the directions: of one side, or of both. */
static void quotients(const struct tiny *t, const struct hop_ops *ops, float epsilon, bool both,
                      float *output)
{
    struct hop_error err = {0};
    static float plus[PROBES * HIDDEN], minus[PROBES * HIDDEN];
    struct support_stage s;
    struct hop_probe up[PROBES], down[PROBES];
    const struct hop_stage_config config = estimated_config(t, 0, 2);
    const size_t n = PROBES * hidden_elements(t);
    for (int q = 0; q < PROBES; q++) {
        up[q] = (struct hop_probe){three[q].direction, epsilon};
        down[q] = (struct hop_probe){three[q].direction, both ? -epsilon : 0};
    }
    const struct hop_probe_set above = probe_set(up, PROBES), below = probe_set(down, PROBES);
    open_stage(&s, t, ops, &config);
    assert_ok(hop_stage_probe(s.stage, &t->b.batch, &above, NULL, plus, NULL, &err));
    assert_ok(hop_stage_probe(s.stage, &t->b.batch, &below, NULL, minus, NULL, &err));
    const double step = (both ? 2 : 1) * (double)epsilon;
    for (size_t i = 0; i < n; i++)
        output[i] = (float)(((double)plus[i] - (double)minus[i]) / step);
    support_stage_close(&s);
}

/* The error of a quotient falls as epsilon with one side and as its square with two, until rounding
 * is all that is left of it. */
static void difference_case(const struct tiny *t, const struct hop_ops *ops)
{
    static float hidden[HIDDEN], tangent[PROBES * HIDDEN];
    static float wide[PROBES * HIDDEN], narrow[PROBES * HIDDEN];
    const size_t n = PROBES * hidden_elements(t);
    const struct hop_probe_set set = probe_set(three, PROBES);
    const struct hop_stage_config config = estimated_config(t, 0, 2);
    tangents_of(t, ops, &config, &set, NULL, NULL, hidden, tangent);
    for (int both = 0; both < 2; both++) {
        const float epsilon = both ? 4e-3f : 2e-3f;
        quotients(t, ops, epsilon, both, wide);
        quotients(t, ops, epsilon / 2, both, narrow);
        const double at = support_error(wide, tangent, n), half = support_error(narrow, tangent, n);
        print_message("%s: %d-sided difference, error %.3g, at half the step %.3g\n", ops->name,
                      both + 1, at, half);
        assert_true(half < (both ? 1e-3 : 2e-2));
        assert_close(at / half, both ? 4 : 2, both ? 0.4 : 0.1);
        /* Two steps cancel the leading error. */
        const double weight = both ? 1.0 / 3 : 1;
        for (size_t i = 0; i < n; i++)
            narrow[i] = (float)((1 + weight) * (double)narrow[i] - weight * (double)wide[i]);
        const double extrapolated = support_error(narrow, tangent, n);
        print_message("%s: extrapolated %.3g\n", ops->name, extrapolated);
        assert_true(extrapolated < (both ? 5e-5 : 1e-3));
    }
}

static void test_difference(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t);
    for (int i = 0; hop_backends[i]; i++)
        difference_case(&t, hop_backends[i]);
    hop_weights_free(t.weights);
}

/* Gradient of the loss with respect to the hidden states in front of block `lo`. */
static void gradient_behind(const struct tiny *t, int32_t lo, const float *hidden, float *delta)
{
    struct hop_error err = {0};
    static float logprob[SUPPORT_TOKENS];
    struct support_stage s;
    const struct hop_stage_config config = exact_config(t, lo, t->model.blocks);
    open_stage(&s, t, hop_backend_find("reference"), &config);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, hidden, NULL, logprob, &err));
    assert_ok(hop_stage_backward(s.stage, &t->b.batch, 0, NULL, delta, &err));
    support_stage_close(&s);
}

/* Adapter gradients of a stage whose output's gradient is delta. */
static void backpropagate(struct support_stage *s, const struct tiny *t, const float *input,
                          const float *delta)
{
    struct hop_error err = {0};
    static float hidden[HIDDEN];
    hop_parameters_zero_gradients(hop_stage_parameters(s->stage));
    assert_ok(hop_stage_forward(s->stage, &t->b.batch, 0, input, hidden, NULL, &err));
    assert_ok(hop_stage_backward(s->stage, &t->b.batch, 0, delta, NULL, &err));
}

/* <delta, J z> = <gradient, z>, with the gradient of the same blocks by backpropagation. Sums of
 * either sign cancel, so the error is relative to the length of a typical one, |gradient|. */
static double exactness(const struct tiny *t, const struct hop_ops *ops,
                        const struct hop_lora_config *lora, enum hop_distribution distribution)
{
    static float hidden[HIDDEN], tangent[PROBES * HIDDEN], delta[HIDDEN];
    struct support_stage s;
    struct hop_stage_config config = estimated_config(t, 0, 2), same = exact_config(t, 0, 2);
    struct hop_probe_set set = probe_set(three, PROBES);
    const size_t n = hidden_elements(t);
    double worst = 0;
    set.distribution = distribution;
    config.lora = same.lora = *lora;
    tangents_of(t, ops, &config, &set, NULL, NULL, hidden, tangent);
    gradient_behind(t, 2, hidden, delta);
    open_stage(&s, t, ops, &same);
    backpropagate(&s, t, NULL, delta);
    const struct hop_parameters *const p = hop_stage_parameters(s.stage);
    const double norm = support_norm(p->gradients, p->total);
    for (int q = 0; q < PROBES; q++) {
        const double derivative = dot(delta, tangent + (size_t)q * n, n);
        const double expected = along(t, p, three[q].direction, 0, distribution);
        worst = fmax(worst, fabs(derivative - expected) / norm);
        assert_true(fabs(expected) > 1e-3 * norm);
    }
    support_stage_close(&s);
    return worst;
}

static void test_exactness(void **state)
{
    (void)state;
    static struct tiny t;
    struct hop_model_config biased = support_tiny_config();
    biased.attention_bias = biased.mlp_bias = true;
    const struct hop_lora_config lora = support_all_targets(3, 6);
    for (int bias = 0; bias < 2; bias++) {
        const struct hop_model_config plain = support_tiny_config();
        tiny_open_as(&t, bias ? &biased : &plain);
        for (int i = 0; hop_backends[i]; i++)
            for (enum hop_distribution d = HOP_GAUSSIAN; d <= HOP_RADEMACHER; d++) {
                const double error = exactness(&t, hop_backends[i], &lora, d);
                print_message("%s, %s: <delta, J z> against <gradient, z> %.3g\n",
                              hop_backends[i]->name, hop_distribution_names[d], error);
                assert_true(error < 2e-6);
            }
        hop_weights_free(t.weights);
    }
}

/* The bundled model, whose sizes are a multiple of what the operations like. */
static void test_bundled_model(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    static const int32_t lengths[] = {11, 16, 5};
    const char *const directory = HOP_SOURCE_DIR "/models/wordnet-3m";
    const struct hop_lora_config lora = support_all_targets(4, 8);
    assert_ok(hop_model_config_load(directory, &t.model, &err));
    assert_ok(hop_weights_open(directory, &t.model, &t.weights, &err));
    support_batch_random(&t.b, t.model.vocabulary, lengths, 3);
    t.b.batch.micro_batch = 2;
    assert_true(hidden_elements(&t) <= HIDDEN);
    for (int i = 0; hop_backends[i]; i++) {
        const double error = exactness(&t, hop_backends[i], &lora, HOP_GAUSSIAN);
        print_message("%s: <delta, J z> against <gradient, z> %.3g\n", hop_backends[i]->name,
                      error);
        assert_true(error < 5e-6);
    }
    hop_weights_free(t.weights);
}

/* With every choice of adapted projections, also where the first ones leave the stream as it is. */
static void test_targets(void **state)
{
    (void)state;
    static struct tiny t;
    const struct hop_ops *const reference = hop_backend_find("reference");
    double worst = 0;
    tiny_open(&t);
    for (unsigned mask = 1; mask < 1u << HOP_TARGETS; mask++) {
        struct hop_lora_config lora = {.rank = 3, .alpha = 6};
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            lora.targets[target] = mask >> target & 1;
        worst = fmax(worst, exactness(&t, reference, &lora, HOP_GAUSSIAN));
    }
    print_message("largest error of any choice %.3g\n", worst);
    assert_true(worst < 4e-6);
    hop_weights_free(t.weights);
}

/* Blocks with different adapters: some have none, and the first has none at all. */
static void test_uneven_blocks(void **state)
{
    (void)state;
    static struct tiny t;
    struct hop_lora_config lora = support_all_targets(5, 6);
    tiny_open(&t);
    lora.blocks = 3;
    lora.ranks[1][HOP_K_PROJ] = 5;
    lora.ranks[1][HOP_UP_PROJ] = 2;
    lora.ranks[2][HOP_V_PROJ] = 1;
    for (int block = 1; block < 3; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            lora.alphas[block][target] = lora.ranks[block][target] > 0 ? 4 : 0;
    for (int i = 0; hop_backends[i]; i++)
        assert_true(exactness(&t, hop_backends[i], &lora, HOP_GAUSSIAN) < 2e-6);
    hop_weights_free(t.weights);
}

/* No adapter anywhere: the output does not move. */
static void test_no_adapters(void **state)
{
    (void)state;
    static struct tiny t;
    static float hidden[HIDDEN], tangent[PROBES * HIDDEN];
    const struct hop_probe_set set = probe_set(three, PROBES);
    tiny_open(&t);
    struct hop_stage_config config = estimated_config(&t, 0, 2);
    config.lora = (struct hop_lora_config){.rank = 3, .alpha = 6};
    for (int i = 0; hop_backends[i]; i++) {
        random_values(tangent, PROBES * hidden_elements(&t), 3);
        tangents_of(&t, hop_backends[i], &config, &set, NULL, NULL, hidden, tangent);
        for (size_t e = 0; e < PROBES * hidden_elements(&t); e++)
            assert_true(tangent[e] >= 0 && tangent[e] <= 0);
    }
    hop_weights_free(t.weights);
}

/* One stage, and the same blocks on two, the tangents handed on. */
static void chain_case(const struct tiny *t, const struct hop_ops *ops)
{
    static float whole[PROBES * HIDDEN], front[PROBES * HIDDEN], back[PROBES * HIDDEN];
    static float hidden[HIDDEN], between[HIDDEN], last[HIDDEN];
    const struct hop_probe_set set = probe_set(three, PROBES);
    const struct hop_stage_config both = estimated_config(t, 0, 2);
    const struct hop_stage_config first = estimated_config(t, 0, 1);
    const struct hop_stage_config second = estimated_config(t, 1, 2);
    const size_t n = hidden_elements(t);
    tangents_of(t, ops, &both, &set, NULL, NULL, hidden, whole);
    tangents_of(t, ops, &first, &set, NULL, NULL, between, front);
    tangents_of(t, ops, &second, &set, between, front, last, back);
    assert_memory_equal(last, hidden, n * sizeof *last);
    assert_true(support_error(back, whole, PROBES * n) < 1e-6);
    /* One after the other. */
    for (int q = 0; q < PROBES; q++) {
        const struct hop_probe_set one = probe_set(three + q, 1);
        tangents_of(t, ops, &second, &one, between, front + (size_t)q * n, last, back);
        assert_true(support_error(back, whole + (size_t)q * n, n) < 1e-6);
    }
    /* What comes in alone: linear in it. */
    struct hop_stage_config still = second;
    still.lora = (struct hop_lora_config){0};
    tangents_of(t, ops, &still, &set, between, front, last, back);
    for (size_t i = 0; i < PROBES * n; i++)
        front[i] *= -2;
    tangents_of(t, ops, &still, &set, between, front, last, whole);
    for (size_t i = 0; i < PROBES * n; i++)
        back[i] *= -2;
    assert_true(support_error(back, whole, PROBES * n) < 1e-6);
}

static void test_chain(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t);
    for (int i = 0; hop_backends[i]; i++)
        chain_case(&t, hop_backends[i]);
    hop_weights_free(t.weights);
}

/* delta with the rows of all samples but one cleared. */
static void only_sample(const struct tiny *t, int32_t sample, const float *delta, float *out)
{
    const size_t hidden = (size_t)t->model.hidden;
    const size_t lo = (size_t)t->b.offset[sample] * hidden;
    const size_t hi = (size_t)t->b.offset[sample + 1] * hidden;
    memset(out, 0, hidden_elements(t) * sizeof *out);
    memcpy(out + lo, delta + lo, (hi - lo) * sizeof *out);
}

/* The derivative of a sample's loss along its own direction is what its rows say. */
static void sample_case(const struct tiny *t, const struct hop_ops *ops)
{
    static float hidden[HIDDEN], tangent[PROBES * HIDDEN], shared[PROBES * HIDDEN];
    static float delta[HIDDEN], part[HIDDEN];
    struct support_stage s;
    struct hop_stage_config config = estimated_config(t, 0, 2);
    const struct hop_stage_config same = exact_config(t, 0, 2);
    const struct hop_probe_set set = probe_set(three, PROBES);
    const size_t n = hidden_elements(t);
    double worst = 0;
    tangents_of(t, ops, &config, &set, NULL, NULL, hidden, shared);
    config.per_sample = true;
    tangents_of(t, ops, &config, &set, NULL, NULL, hidden, tangent);
    gradient_behind(t, 2, hidden, delta);
    open_stage(&s, t, ops, &same);
    const struct hop_parameters *const p = hop_stage_parameters(s.stage);
    for (int32_t sample = 0; sample < t->b.batch.sequences; sample++) {
        only_sample(t, sample, delta, part);
        backpropagate(&s, t, NULL, part);
        const double norm = support_norm(p->gradients, p->total);
        for (size_t q = 0; q < PROBES; q++) {
            const uint16_t direction = three[q].direction;
            const double own = dot(part, tangent + q * n, n);
            const double common = dot(part, shared + q * n, n);
            const double expected = along(t, p, direction, (uint16_t)sample, HOP_GAUSSIAN);
            const double of_first = along(t, p, direction, 0, HOP_GAUSSIAN);
            worst = fmax(worst, fabs(own - expected) / norm);
            worst = fmax(worst, fabs(common - of_first) / norm);
            assert_int_equal(fabs(own - common) < 1e-3 * norm, sample == 0);
        }
    }
    print_message("%s: own directions %.3g\n", ops->name, worst);
    assert_true(worst < 2e-6);
    support_stage_close(&s);
}

static void test_samples(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t);
    for (int i = 0; hop_backends[i]; i++)
        sample_case(&t, hop_backends[i]);
    hop_weights_free(t.weights);
}

/* theta + epsilon z of one sample as the adapters of a whole stage. */
static void displace(struct support_stage *s, const struct tiny *t, const struct hop_probe *probe,
                     uint16_t sample)
{
    struct hop_error err = {0};
    static float z[PARAMETERS];
    struct hop_parameters *const p = hop_stage_parameters(s->stage);
    const struct hop_direction key = {.seed = 9,
                                      .step = 3,
                                      .micro_batch = (uint16_t)t->b.batch.micro_batch,
                                      .direction = probe->direction,
                                      .sample = sample};
    support_random_adapters(s, 1, 0.2f);
    for (size_t i = 0; i < p->count; i++) {
        hop_direction_values(&key, &p->items[i], 0, p->items[i].count, z);
        for (size_t e = 0; e < p->items[i].count; e++)
            p->values[p->items[i].offset + e] += probe->epsilon * z[e];
    }
    assert_ok(hop_stage_adapters_changed(s->stage, &err));
}

/* The rows of every sample in every probe are those of a stage that has moved along that sample's
 * direction alone. */
static void sample_probe_case(const struct tiny *t, const struct hop_ops *ops, int32_t count)
{
    struct hop_error err = {0};
    static float probed[PROBES * HIDDEN], expected[HIDDEN];
    static const struct hop_probe probes[PROBES] = {{4, 2e-2f}, {5, -1e-2f}, {4, -2e-2f}};
    const struct hop_probe_set set = probe_set(probes, count);
    struct support_stage s, moved;
    struct hop_stage_config config = estimated_config(t, 0, 2);
    config.per_sample = true;
    open_stage(&s, t, ops, &config);
    open_stage(&moved, t, ops, &config);
    assert_ok(hop_stage_probe(s.stage, &t->b.batch, &set, NULL, probed, NULL, &err));
    for (size_t q = 0; q < (size_t)count; q++) {
        for (int32_t sample = 0; sample < t->b.batch.sequences; sample++) {
            const size_t lo = (size_t)(t->b.offset[sample] * t->model.hidden);
            const size_t hi = (size_t)(t->b.offset[sample + 1] * t->model.hidden);
            const float *const rows = probed + q * hidden_elements(t) + lo;
            displace(&moved, t, &probes[q], (uint16_t)sample);
            assert_ok(hop_stage_forward(moved.stage, &t->b.batch, -1, NULL, expected, NULL, &err));
            assert_true(support_error(rows, expected + lo, hi - lo) < 1e-6);
            displace(&moved, t, &probes[q], (uint16_t)sample + 1);
            assert_ok(hop_stage_forward(moved.stage, &t->b.batch, -1, NULL, expected, NULL, &err));
            assert_true(support_error(rows, expected + lo, hi - lo) > 1e-3);
        }
    }
    support_stage_close(&s);
    support_stage_close(&moved);
}

static void test_sample_probes(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t);
    for (int i = 0; hop_backends[i]; i++) {
        sample_probe_case(&t, hop_backends[i], PROBES);
        sample_probe_case(&t, hop_backends[i], 1);
    }
    hop_weights_free(t.weights);
}

/* A head without blocks says what an output layer makes of hidden states. */
static void head_of(const struct tiny *t, const struct hop_ops *ops, const float *hidden,
                    float *logprob)
{
    struct hop_error err = {0};
    struct support_stage s;
    struct hop_stage_config config = exact_config(t, t->model.blocks, t->model.blocks);
    config.slots = 0;
    open_stage(&s, t, ops, &config);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, -1, hidden, NULL, logprob, &err));
    support_stage_close(&s);
}

static void exit_case(const struct tiny *t, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    static float hidden[PROBES * HIDDEN], plain[PROBES * HIDDEN];
    static float logprob[PROBES * SUPPORT_TOKENS], expected[SUPPORT_TOKENS];
    static const struct hop_probe probes[PROBES] = {{4, 2e-2f}, {5, -1e-2f}, {4, -2e-2f}};
    const struct hop_probe_set set = probe_set(probes, PROBES);
    const size_t labels = (size_t)t->b.batch.labels, n = hidden_elements(t);
    struct support_stage s, without;
    struct hop_stage_config config = estimated_config(t, 0, 2);
    open_stage(&without, t, ops, &config);
    config.exit = true;
    open_stage(&s, t, ops, &config);
    assert_ok(hop_stage_forward(without.stage, &t->b.batch, -1, NULL, plain, NULL, &err));
    head_of(t, ops, plain, expected);
    for (int32_t slot = -1; slot < 2; slot++) {
        memset(hidden, 0, sizeof hidden);
        memset(logprob, 0, sizeof logprob);
        assert_ok(hop_stage_forward(s.stage, &t->b.batch, slot, NULL, hidden, logprob, &err));
        assert_true(support_error(hidden, plain, n) < 1e-6);
        assert_true(support_error(logprob, expected, labels) < 1e-6);
        hop_stage_release(s.stage, slot);
    }
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, NULL, hidden, NULL, &err));
    assert_true(support_error(hidden, plain, n) < 1e-6);
    assert_ok(hop_stage_probe(without.stage, &t->b.batch, &set, NULL, plain, NULL, &err));
    for (int wants = 0; wants < 3; wants++) { /* both, output, log-probabilities */
        memset(hidden, 0, sizeof hidden);
        memset(logprob, 0, sizeof logprob);
        assert_ok(hop_stage_probe(s.stage, &t->b.batch, &set, NULL, wants == 2 ? NULL : hidden,
                                  wants == 1 ? NULL : logprob, &err));
        if (wants < 2)
            assert_true(support_error(hidden, plain, PROBES * n) < 1e-6);
        for (size_t q = 0; q < PROBES && wants != 1; q++) {
            head_of(t, ops, plain + q * n, expected);
            assert_true(support_error(logprob + q * labels, expected, labels) < 1e-6);
        }
    }
    support_stage_close(&s);
    support_stage_close(&without);
}

static void test_exit(void **state)
{
    (void)state;
    static struct tiny t;
    for (int tied = 0; tied < 2; tied++) {
        struct hop_model_config model = support_tiny_config();
        model.tied = tied;
        tiny_open_as(&t, &model);
        for (int i = 0; hop_backends[i]; i++)
            exit_case(&t, hop_backends[i]);
        hop_weights_free(t.weights);
    }
}

static const struct hop_parameter *parameter_of(const struct hop_parameters *p, int32_t block,
                                                enum hop_target target, enum hop_factor factor)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].block == block && p->items[i].target == target &&
            p->items[i].factor == factor)
            return &p->items[i];
    fail_msg("block %d has no such parameter", block);
    return NULL;
}

/* Are the gradients of one projection the same? */
static void same_gradient(const struct hop_parameters *p, const struct hop_parameters *expected,
                          int32_t block, enum hop_target target)
{
    for (enum hop_factor factor = HOP_LORA_A; factor <= HOP_LORA_B; factor++) {
        const struct hop_parameter *const a = parameter_of(p, block, target, factor);
        const struct hop_parameter *const b = parameter_of(expected, block, target, factor);
        const float *const gradient = expected->gradients + b->offset;
        assert_true(support_norm(gradient, b->count) > 1e-6);
        assert_true(support_error(p->gradients + a->offset, gradient, b->count) < 1e-6);
    }
}

/* A stage's gradients by feedback of delta to the micro-batch in slot 0, which stays. */
static void feed_back(struct support_stage *s, const struct tiny *t, float *delta)
{
    struct hop_error err = {0};
    static float hidden[HIDDEN];
    assert_ok(hop_stage_forward(s->stage, &t->b.batch, 0, NULL, hidden, NULL, &err));
    gradient_behind(t, 2, hidden, delta);
    assert_ok(hop_stage_feedback(s->stage, &t->b.batch, 0, 0, delta, &err));
}

/* The last operation of block [lo, lo + 1) is down_proj, whose gradient is then exact. */
static void exact_down(const struct tiny *t, const struct hop_ops *ops,
                       const struct hop_parameters *p, int32_t hi, const float *delta)
{
    struct support_stage s;
    const struct hop_stage_config config = exact_config(t, 0, hi);
    open_stage(&s, t, ops, &config);
    backpropagate(&s, t, NULL, delta);
    same_gradient(p, hop_stage_parameters(s.stage), hi - 1, HOP_DOWN_PROJ);
    support_stage_close(&s);
}

static void feedback_case(const struct tiny *t, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    static float delta[HIDDEN], once[PARAMETERS];
    struct support_stage s;
    struct hop_stage_config config = estimated_config(t, 0, 2);
    config.tangents = false;
    config.probes = 0;
    open_stage(&s, t, ops, &config);
    feed_back(&s, t, delta);
    const struct hop_parameters *const p = hop_stage_parameters(s.stage);
    exact_down(t, ops, p, 2, delta);
    exact_down(t, ops, p, 1, delta);
    for (size_t i = 0; i < p->count; i++) {
        const enum hop_target target = p->items[i].target;
        const double norm = support_norm(p->gradients + p->items[i].offset, p->items[i].count);
        assert_int_equal(norm > 0, target == HOP_O_PROJ || target == HOP_DOWN_PROJ);
    }
    /* Added to, from a slot that stays as it is. */
    assert_true(p->total <= PARAMETERS);
    memcpy(once, p->gradients, p->total * sizeof *once);
    assert_ok(hop_stage_feedback(s.stage, &t->b.batch, 0, 0, delta, &err));
    for (size_t i = 0; i < p->total; i++)
        once[i] *= 2;
    assert_true(support_error(p->gradients, once, p->total) < 1e-6);
    /* To block 1 only. */
    assert_ok(hop_stage_feedback(s.stage, &t->b.batch, 0, 1, delta, &err));
    for (size_t i = 0; i < p->count; i++) {
        const struct hop_parameter *const item = &p->items[i];
        for (size_t k = item->offset; item->block == 1 && k < item->offset + item->count; k++)
            once[k] *= 1.5f;
    }
    assert_true(support_error(p->gradients, once, p->total) < 1e-6);
    support_stage_close(&s);
}

static void test_feedback(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t);
    for (int i = 0; hop_backends[i]; i++)
        feedback_case(&t, hop_backends[i]);
    hop_weights_free(t.weights);
}

static float *matrix(const struct tiny *t, int32_t block, enum hop_target target, size_t *n)
{
    char name[HOP_TENSOR_NAME];
    hop_weight_name(block, target, name);
    *n = (size_t)(hop_target_in(&t->model, target) * hop_target_out(&t->model, target));
    return (float *)(uintptr_t)hop_weights_find(t->weights, name)->data;
}

/* Where the feed-forward half adds nothing, o_proj is the last operation of its block. */
static void test_feedback_attention(void **state)
{
    (void)state;
    static struct tiny t;
    static float delta[HIDDEN];
    size_t n;
    tiny_open(&t);
    float *const down = matrix(&t, 1, HOP_DOWN_PROJ, &n);
    memset(down, 0, n * sizeof *down);
    for (int i = 0; hop_backends[i]; i++) {
        struct support_stage s, exact;
        struct hop_stage_config config = estimated_config(&t, 0, 2), same = exact_config(&t, 0, 2);
        config.lora.targets[HOP_DOWN_PROJ] = same.lora.targets[HOP_DOWN_PROJ] = false;
        open_stage(&s, &t, hop_backends[i], &config);
        open_stage(&exact, &t, hop_backends[i], &same);
        feed_back(&s, &t, delta);
        backpropagate(&exact, &t, NULL, delta);
        same_gradient(hop_stage_parameters(s.stage), hop_stage_parameters(exact.stage), 1,
                      HOP_O_PROJ);
        support_stage_close(&s);
        support_stage_close(&exact);
    }
    hop_weights_free(t.weights);
}

/* A slot holds its micro-batch until it is released, whatever is computed around it. */
static void slots_case(const struct tiny *t, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    static float hidden[HIDDEN], first[PROBES * HIDDEN], again[PROBES * HIDDEN], delta[HIDDEN];
    const struct hop_batch *const batch = &t->b.batch;
    const struct hop_probe_set set = probe_set(three, PROBES);
    struct support_stage s;
    const struct hop_stage_config config = estimated_config(t, 0, 2);
    const size_t bytes = PROBES * hidden_elements(t) * sizeof(float);
    random_values(delta, hidden_elements(t), 8);
    open_stage(&s, t, ops, &config);
    assert_fails(hop_stage_tangent(s.stage, batch, 1, &set, NULL, first, &err), HOP_INTERNAL,
                 "slot 1");
    assert_fails(hop_stage_feedback(s.stage, batch, 0, 0, delta, &err), HOP_INTERNAL, "slot 0");
    assert_ok(hop_stage_forward(s.stage, batch, 1, NULL, hidden, NULL, &err));
    assert_ok(hop_stage_tangent(s.stage, batch, 1, &set, NULL, first, &err));
    assert_ok(hop_stage_feedback(s.stage, batch, 1, 0, delta, &err));
    assert_ok(hop_stage_forward(s.stage, batch, 0, NULL, hidden, NULL, &err));
    assert_ok(hop_stage_tangent(s.stage, batch, 1, &set, NULL, again, &err));
    assert_memory_equal(first, again, bytes);
    assert_fails(hop_stage_forward(s.stage, batch, 1, NULL, hidden, NULL, &err), HOP_INTERNAL,
                 "slot 1 still holds");
    assert_fails(hop_stage_backward(s.stage, batch, 1, delta, NULL, &err), HOP_INTERNAL,
                 "forward operations");
    hop_stage_release(s.stage, 1);
    assert_fails(hop_stage_tangent(s.stage, batch, 1, &set, NULL, first, &err), HOP_INTERNAL,
                 "slot 1");
    assert_ok(hop_stage_forward(s.stage, batch, 1, NULL, hidden, NULL, &err));
    hop_stage_release(s.stage, -1);
    hop_stage_release(s.stage, 2);
    support_stage_close(&s);
}

static void test_slots(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t);
    for (int i = 0; hop_backends[i]; i++)
        slots_case(&t, hop_backends[i]);
    hop_weights_free(t.weights);
}

/* What a stage was not created for is refused. */
static void test_refusals(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    static float hidden[HIDDEN], tangent[4 * HIDDEN];
    static const struct hop_probe four[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
    const struct hop_ops ops = hop_ops_forward_only(hop_backend_find("reference"));
    const struct hop_probe_set set = probe_set(three, PROBES), many = probe_set(four, 4);
    struct hop_backend *backend;
    struct hop_stage *stage = NULL;
    tiny_open(&t);
    assert_ok(ops.open(1, &backend, &err));
    struct hop_stage_config config = estimated_config(&t, 0, 2);
    config.slots = 0;
    assert_fails(hop_stage_create(&ops, backend, t.weights, &config, &stage, &err), HOP_INTERNAL,
                 "tangents");
    config = estimated_config(&t, 0, 3);
    config.head = config.exit = true;
    config.tangents = false;
    assert_fails(hop_stage_create(&ops, backend, t.weights, &config, &stage, &err), HOP_INTERNAL,
                 "two output layers");
    config = estimated_config(&t, 0, 2);
    config.gradient = HOP_GRADIENT_NONE;
    config.tangents = false;
    assert_fails(hop_stage_create(&ops, backend, t.weights, &config, &stage, &err), HOP_UNSUPPORTED,
                 "no backward");
    for (int tangents = 0; tangents < 2; tangents++) {
        config = estimated_config(&t, 0, 2);
        config.tangents = tangents;
        assert_ok(hop_stage_create(&ops, backend, t.weights, &config, &stage, &err));
        assert_ok(hop_stage_forward(stage, &t.b.batch, 0, NULL, hidden, NULL, &err));
        assert_fails(
            hop_stage_tangent(stage, &t.b.batch, 0, tangents ? &many : &set, NULL, tangent, &err),
            HOP_INTERNAL, tangents ? "4 tangents" : "without them");
        hop_stage_free(stage);
    }
    ops.close(backend);
    hop_weights_free(t.weights);
}

/* Everything a zeroth-order stage computes here. */
struct outcome {
    float hidden[HIDDEN], tangent[PROBES * HIDDEN], probed[PROBES * HIDDEN];
    float logprob[PROBES * SUPPORT_TOKENS], gradients[PARAMETERS];
};

static void run_everything(const struct tiny *t, const struct hop_ops *ops, enum hop_dtype dtype,
                           struct outcome *out)
{
    struct hop_error err = {0};
    static const struct hop_probe probes[] = {{4, 2e-2f}, {5, -2e-2f}, {6, 2e-2f}};
    static float input[PROBES * HIDDEN], raw[(PROBES + 1) * HIDDEN];
    const struct hop_probe_set set = probe_set(probes, PROBES);
    const size_t n = hidden_elements(t);
    struct support_stage s;
    struct hop_stage_config config = estimated_config(t, 1, 3);
    config.per_sample = config.exit = true;
    config.dtype = dtype;
    memset(out, 0, sizeof *out);
    open_stage(&s, t, ops, &config);
    random_values(raw, PROBES * n, 8);
    hop_convert(input, dtype, raw, HOP_F32, PROBES * n);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, input, raw, NULL, &err));
    hop_convert(out->hidden, HOP_F32, raw, dtype, n);
    assert_ok(hop_stage_tangent(s.stage, &t->b.batch, 0, &set, input, raw, &err));
    hop_convert(out->tangent, HOP_F32, raw, dtype, PROBES * n);
    assert_ok(hop_stage_feedback(s.stage, &t->b.batch, 0, 0, input, &err));
    assert_ok(hop_stage_probe(s.stage, &t->b.batch, &set, input, raw, out->logprob, &err));
    hop_convert(out->probed, HOP_F32, raw, dtype, PROBES * n);
    const struct hop_parameters *const p = hop_stage_parameters(s.stage);
    assert_true(p->total <= PARAMETERS);
    memcpy(out->gradients, p->gradients, p->total * sizeof *out->gradients);
    support_stage_close(&s);
}

static double largest_error(const struct tiny *t, const struct outcome *a, const struct outcome *b)
{
    const size_t n = PROBES * hidden_elements(t), labels = PROBES * (size_t)t->b.batch.labels;
    const double errors[] = {support_error(a->hidden, b->hidden, hidden_elements(t)),
                             support_error(a->tangent, b->tangent, n),
                             support_error(a->probed, b->probed, n),
                             support_error(a->logprob, b->logprob, labels),
                             support_error(a->gradients, b->gradients, PARAMETERS)};
    double worst = 0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        worst = fmax(worst, errors[i]);
    return worst;
}

/* Backends agree; a backend whose memory is not the host's gives the same bytes; bf16 rounds. */
static void test_backends(void **state)
{
    (void)state;
    static struct tiny t;
    static struct outcome expected, found;
    tiny_open(&t);
    struct hop_ops ops = *hop_backend_find("reference");
    run_everything(&t, &ops, HOP_F32, &expected);
    ops.host_memory = false;
    run_everything(&t, &ops, HOP_F32, &found);
    assert_memory_equal(&found, &expected, sizeof found);
    for (int i = 0; hop_backends[i]; i++) {
        run_everything(&t, hop_backends[i], HOP_F32, &found);
        const double error = largest_error(&t, &found, &expected);
        run_everything(&t, hop_backends[i], HOP_BF16, &found);
        const double rounded = largest_error(&t, &found, &expected);
        print_message("%s: error %.3g, in bf16 %.3g\n", hop_backends[i]->name, error, rounded);
        assert_true(error < 2e-6);
        assert_true(rounded < 3e-2);
    }
    hop_weights_free(t.weights);
}

/* Sequences whose length decides their rotation, and rotations that also scale. */
static void test_rope(void **state)
{
    (void)state;
    static struct tiny t;
    const struct hop_lora_config lora = support_all_targets(3, 6);
    for (int yarn = 0; yarn < 2; yarn++) {
        struct hop_model_config model = support_tiny_config();
        model.rope_scaling = yarn ? HOP_ROPE_YARN : HOP_ROPE_DYNAMIC;
        model.rope_factor = yarn ? 4 : 3;
        model.max_positions = model.rope_original = yarn ? 32 : 8;
        model.rope_attention = 0.8;
        model.rope_high = 32;
        model.rope_low = 1;
        tiny_open_as(&t, &model);
        for (int i = 0; hop_backends[i]; i++)
            assert_true(exactness(&t, hop_backends[i], &lora, HOP_GAUSSIAN) < 2e-6);
        hop_weights_free(t.weights);
    }
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Do calls stop to allocate after the first of a size? */
static void check_steady(struct support_stage *s, const struct hop_stage_config *config,
                         const struct support_batch *b)
{
    struct hop_error err = {0};
    static float hidden[64 * 64], probed[PROBES * 64 * 64], logprob[PROBES * SUPPORT_TOKENS];
    const struct hop_probe_set set = probe_set(three, PROBES);
    bool steady = false;
    for (int call = 0; call < 6 && !steady; call++) {
        const size_t held = heap_bytes();
        if (config->slots > 0) {
            assert_ok(hop_stage_forward(s->stage, &b->batch, 0, NULL, hidden, logprob, &err));
            assert_ok(hop_stage_tangent(s->stage, &b->batch, 0, &set, NULL, probed, &err));
            assert_ok(hop_stage_feedback(s->stage, &b->batch, 0, 0, hidden, &err));
            hop_stage_release(s->stage, 0);
        }
        assert_ok(hop_stage_probe(s->stage, &b->batch, &set, NULL, probed, NULL, &err));
        steady = heap_bytes() == held;
    }
    assert_true(steady);
}

/* What the planner is told is what creation takes from the heap. */
static void bytes_case(const struct hop_stage_config *config, const struct hop_weights *weights)
{
    struct support_stage s;
    static struct support_batch b;
    static const int32_t lengths[] = {20, 30};
    const struct hop_ops ops = hop_ops_forward_only(hop_backend_find("reference"));
    const struct hop_stage_bytes bytes = hop_stage_bytes(config);
    const size_t before = heap_bytes();
    support_stage_open(&s, &ops, weights, config);
    const size_t taken = heap_bytes() - before;
    const size_t vectors = (size_t)(2 * (config->hi - config->lo) + config->exit);
    const size_t expected = bytes.parameters + (size_t)config->slots * bytes.kept + bytes.scratch +
                            vectors * (size_t)config->model.hidden * sizeof(float);
    print_message("estimate %zu bytes, heap %zu bytes\n", expected, taken);
    /* Objects, lists and the allocator's own words. */
    assert_true(taken >= expected && taken - expected < 40000);
    support_batch_random(&b, config->model.vocabulary, lengths, 2);
    check_steady(&s, config, &b);
    support_stage_close(&s);
}

/* Every new thing costs what it needs, and nothing where it is not asked for. */
static void check_growth(const struct hop_stage_config *plain)
{
    struct hop_stage_config config = *plain;
    const struct hop_stage_bytes before = hop_stage_bytes(&config);
    const size_t tokens = (size_t)config.limits.tokens, probes = (size_t)config.probes;
    const size_t sequences = (size_t)config.limits.sequences;
    config.exit = true;
    struct hop_stage_bytes after = hop_stage_bytes(&config);
    const size_t table = (size_t)(config.model.vocabulary * config.model.hidden) * sizeof(float);
    const size_t gain = (size_t)config.model.hidden * sizeof(float);
    assert_int_equal(after.weights - before.weights, table + gain);
    assert_int_equal(after.scratch, before.scratch);
    config.model.tied = true;
    assert_int_equal(hop_stage_bytes(&config).weights - before.weights, gain);
    config = *plain;
    config.per_sample = true;
    after = hop_stage_bytes(&config);
    /* Parameters are values and gradients. */
    assert_int_equal(after.scratch - before.scratch,
                     (sequences - 1) * probes * before.parameters / 2);
    config = *plain;
    config.slots = 1;
    const struct hop_stage_bytes slot = hop_stage_bytes(&config);
    config.tangents = true;
    after = hop_stage_bytes(&config);
    assert_int_equal(after.kept, slot.kept);
    assert_int_equal(after.scratch - slot.scratch,
                     tokens * (size_t)config.model.intermediate * sizeof(float));
}

static void test_bytes(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_model_config model = support_tiny_config();
    struct hop_weights *weights;
    if (heap_bytes() == 0) {
        print_message("skip: this allocator does not say how much it gave out\n");
        skip();
    }
    model.hidden = 64;
    model.head_dim = 16;
    model.intermediate = 208;
    assert_ok(hop_weights_random(&model, 1, HOP_F32, &weights, &err));
    struct hop_stage_config config = {.model = model,
                                      .lora = support_all_targets(8, 16),
                                      .dtype = HOP_F32,
                                      .hi = 2,
                                      .embed = true,
                                      .gradient = HOP_GRADIENT_ZEROTH_ORDER,
                                      .limits = {.sequences = 4, .tokens = 512, .labels = 300},
                                      .probes = PROBES};
    check_growth(&config);
    config.exit = config.per_sample = true;
    bytes_case(&config, weights);
    config.slots = 2;
    config.tangents = true;
    bytes_case(&config, weights);
    config.per_sample = config.exit = false;
    bytes_case(&config, weights);
    hop_weights_free(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_difference),    cmocka_unit_test(test_exactness),
        cmocka_unit_test(test_bundled_model), cmocka_unit_test(test_targets),
        cmocka_unit_test(test_uneven_blocks), cmocka_unit_test(test_no_adapters),
        cmocka_unit_test(test_chain),         cmocka_unit_test(test_samples),
        cmocka_unit_test(test_sample_probes), cmocka_unit_test(test_exit),
        cmocka_unit_test(test_feedback),      cmocka_unit_test(test_feedback_attention),
        cmocka_unit_test(test_slots),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_backends),      cmocka_unit_test(test_rope),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
