/* Stages against the reference implementation's numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <malloc.h>

#include "support_model.h"

#include "base/random.h"
#include "model/adapter.h"
#include "train/adamw.h"
#include "train/clip.h"
#include "train/zo.h"

static const struct hop_ops *backends[4];
static int backend_count;

static struct hop_stage_config whole_model(const struct hop_model_config *model,
                                           const struct support_batch *b)
{
    return (struct hop_stage_config){.model = *model,
                                     .dtype = HOP_F32,
                                     .hi = model->blocks,
                                     .embed = true,
                                     .head = true,
                                     .limits = support_limits(b)};
}

static int32_t read_ids(const json_t *list, int32_t *ids)
{
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (int32_t)n;
}

static void stories_greedy_loss(const struct hop_ops *ops, const struct hop_weights *weights,
                                const struct hop_model_config *model, const json_t *oracle)
{
    struct hop_error err = {0};
    static struct support_batch b;
    struct support_stage s;
    int32_t ids[SUPPORT_TOKENS];
    float logprob[SUPPORT_TOKENS];
    support_batch_begin(&b);
    const int32_t n = read_ids(json_object_get(oracle, "greedy_ids"), ids);
    support_batch_add(&b, ids, NULL, n);
    const struct hop_stage_config config = whole_model(model, &b);
    support_stage_open(&s, ops, weights, &config);
    assert_ok(hop_stage_forward(s.stage, &b.batch, -1, NULL, NULL, logprob, &err));
    const double loss = support_loss(logprob, (size_t)b.batch.labels, b.batch.labels);
    const double expected = json_number_value(json_object_get(oracle, "mean_nll_of_greedy_ids"));
    print_message("%s: mean NLL %.9f, expected %.9f\n", ops->name, loss, expected);
    assert_close(loss, expected, 1e-5);
    support_stage_close(&s);
}

static void stories_logits(const struct hop_ops *ops, const struct hop_weights *weights,
                           const struct hop_model_config *model, const json_t *oracle)
{
    struct hop_error err = {0};
    static struct support_batch b;
    struct support_stage s;
    int32_t ids[SUPPORT_TOKENS];
    float logits[512];
    support_batch_begin(&b);
    const int32_t n = read_ids(json_object_get(oracle, "prompt_ids"), ids);
    support_batch_add(&b, ids, NULL, n);
    struct hop_stage_config config = whole_model(model, &b);
    config.cache = 64;
    support_stage_open(&s, ops, weights, &config);
    assert_ok(hop_stage_decode(s.stage, ids, n, 0, logits, &err));
    const json_t *const expected = json_object_get(oracle, "prompt_last_logits");
    double worst = 0;
    for (size_t i = 0; i < 512; i++)
        worst =
            fmax(worst, fabs((double)logits[i] - json_number_value(json_array_get(expected, i))));
    print_message("%s: largest logit error %.3g\n", ops->name, worst);
    assert_true(worst < 1e-4);
    support_stage_close(&s);
}

static void test_stories_forward(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_model_config model;
    struct hop_weights *weights;
    char directory[512];
    strcpy(directory, support_data("models/stories260K"));
    json_t *const oracle = support_json(support_data("models/stories260K/forward_oracle.json"));
    assert_ok(hop_model_config_load(directory, &model, &err));
    assert_ok(hop_weights_open(directory, &model, &weights, &err));
    for (int i = 0; i < backend_count; i++) {
        stories_greedy_loss(backends[i], weights, &model, oracle);
        stories_logits(backends[i], weights, &model, oracle);
    }
    hop_weights_free(weights);
    json_decref(oracle);
}

/* The stories260K model under the adapter PyTorch started from. */
struct oracle {
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_weights *weights;
    json_t *json;
    struct support_batch b;
    char init[512], final[512];
};

static void oracle_open(struct oracle *o)
{
    struct hop_error err = {0};
    char directory[512];
    size_t i;
    const json_t *row;
    strcpy(directory, support_data("models/stories260K"));
    strcpy(o->init, support_data("lora/init"));
    strcpy(o->final, support_data("lora/final"));
    o->json = support_json(support_data("lora/oracle.json"));
    assert_ok(hop_model_config_load(directory, &o->model, &err));
    assert_ok(hop_weights_open(directory, &o->model, &o->weights, &err));
    assert_ok(hop_adapter_config(o->init, &o->model, &o->lora, &err));
    support_batch_begin(&o->b);
    json_array_foreach(json_object_get(o->json, "batch"), i, row)
    {
        int32_t ids[SUPPORT_TOKENS], labels[SUPPORT_TOKENS];
        const int32_t n = read_ids(json_object_get(row, "input_ids"), ids);
        read_ids(json_object_get(row, "labels"), labels);
        support_batch_add(&o->b, ids, labels, n);
    }
}

static void oracle_close(struct oracle *o)
{
    hop_weights_free(o->weights);
    json_decref(o->json);
}

static void compare_gradients(const struct hop_parameters *p, const json_t *norms, const char *who)
{
    double worst = 0;
    for (size_t i = 0; i < p->count; i++) {
        char name[HOP_TENSOR_NAME];
        hop_parameter_name(&p->items[i], name, sizeof name);
        const json_t *const entry = json_object_get(norms, name);
        assert_non_null(entry);
        const double expected = json_number_value(entry);
        const double norm = support_norm(p->gradients + p->items[i].offset, p->items[i].count);
        const double error = fabs(norm - expected) / fmax(expected, 1e-6);
        worst = fmax(worst, error);
        if (error > 1e-3)
            fail_msg("%s: gradient norm %g, expected %g", name, norm, expected);
    }
    print_message("%s: largest relative error of a gradient norm %.3g\n", who, worst);
}

static void compare_final(struct oracle *o, const struct hop_parameters *p, const char *who)
{
    struct hop_error err = {0};
    struct hop_parameters expected;
    double worst = 0;
    char worst_name[HOP_TENSOR_NAME] = "";
    assert_ok(hop_parameters_create(&o->model, &o->lora, 0, o->model.blocks, &expected, &err));
    assert_ok(hop_adapter_load(o->final, &o->model, &o->lora, &expected, &err));
    for (size_t i = 0; i < p->count; i++) {
        const struct hop_parameter *const item = &p->items[i];
        const double error =
            support_error(p->values + item->offset, expected.values + item->offset, item->count);
        if (error > worst)
            hop_parameter_name(item, worst_name, sizeof worst_name);
        worst = fmax(worst, error);
    }
    const double whole = support_error(p->values, expected.values, p->total);
    print_message("%s: normwise error of the final adapter %.3g, worst tensor %.3g (%s)\n", who,
                  whole, worst, worst_name);
    assert_true(whole < 1e-3 && worst < 5e-3);
    hop_parameters_free(&expected);
}

static void oracle_steps(struct oracle *o, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    struct support_stage s;
    struct hop_adamw adamw;
    float logprob[SUPPORT_TOKENS];
    struct hop_adamw_options options = hop_adamw_default();
    const json_t *const steps = json_object_get(o->json, "steps");
    struct hop_stage_config config = whole_model(&o->model, &o->b);
    config.lora = o->lora;
    config.gradient = HOP_GRADIENT_BACKPROP;
    config.slots = 1;
    options.weight_decay = 0.01;
    support_stage_open(&s, ops, o->weights, &config);
    struct hop_parameters *const p = hop_stage_parameters(s.stage);
    assert_ok(hop_adapter_load(o->init, &o->model, &o->lora, p, &err));
    assert_ok(hop_adamw_create(p->total, &adamw, &err));
    for (size_t step = 0; step < json_array_size(steps); step++) {
        const json_t *const expected = json_array_get(steps, step);
        assert_ok(hop_stage_adapters_changed(s.stage, &err));
        hop_parameters_zero_gradients(p);
        assert_ok(hop_stage_forward(s.stage, &o->b.batch, 0, NULL, NULL, logprob, &err));
        assert_ok(hop_stage_backward(s.stage, &o->b.batch, 0, NULL, NULL, &err));
        const double loss = hop_loss(logprob, (size_t)o->b.batch.labels, o->b.batch.label_total);
        const double wanted = json_number_value(json_object_get(expected, "loss"));
        if (step == 0)
            compare_gradients(p, json_object_get(o->json, "grad_norms_step1"), ops->name);
        assert_close(loss / wanted, 1, step == 0 ? 1e-5 : 1e-3);
        const double norm = sqrt(hop_sum_of_squares(p->gradients, p->total));
        const double wanted_norm = json_number_value(json_object_get(expected, "grad_norm"));
        assert_close(norm / wanted_norm, 1, 1e-3);
        hop_scale(p->gradients, p->total, hop_clip_coefficient(norm, 1.0));
        assert_ok(hop_adamw_step(&adamw, &options, 0.01, p->values, p->gradients, &err));
        print_message("%s: step %zu loss %.9f, expected %.9f\n", ops->name, step + 1, loss, wanted);
    }
    compare_final(o, p, ops->name);
    hop_adamw_free(&adamw);
    support_stage_close(&s);
}

static void test_lora_oracle(void **state)
{
    (void)state;
    static struct oracle o;
    oracle_open(&o);
    for (int i = 0; i < backend_count; i++)
        oracle_steps(&o, backends[i]);
    oracle_close(&o);
}

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

static void tiny_open(struct tiny *t, bool tied)
{
    struct hop_model_config model = support_tiny_config();
    model.tied = tied;
    tiny_open_as(t, &model);
}

/* With a bias on every projection. */
static void tiny_open_biased(struct tiny *t)
{
    struct hop_model_config model = support_tiny_config();
    model.attention_bias = model.mlp_bias = true;
    tiny_open_as(t, &model);
}

static struct hop_stage_config tiny_config(const struct tiny *t, int32_t lo, int32_t hi,
                                           enum hop_gradient gradient)
{
    return (struct hop_stage_config){.model = t->model,
                                     .lora = support_all_targets(3, 6),
                                     .dtype = HOP_F32,
                                     .lo = lo,
                                     .hi = hi,
                                     .embed = lo == 0,
                                     .head = hi == t->model.blocks,
                                     .gradient = gradient,
                                     .limits = support_limits(&t->b),
                                     .slots = gradient == HOP_GRADIENT_BACKPROP ? 2 : 0,
                                     .probes = 3};
}

static double forward_loss(struct support_stage *s, const struct hop_batch *batch,
                           const void *input)
{
    struct hop_error err = {0};
    float logprob[SUPPORT_TOKENS];
    assert_ok(hop_stage_forward(s->stage, batch, -1, input, NULL, logprob, &err));
    return hop_loss(logprob, (size_t)batch->labels, batch->label_total);
}

static void backward_once(struct support_stage *s, const struct hop_batch *batch, const void *input,
                          void *dinput)
{
    struct hop_error err = {0};
    float logprob[SUPPORT_TOKENS];
    hop_parameters_zero_gradients(hop_stage_parameters(s->stage));
    assert_ok(hop_stage_forward(s->stage, batch, 1, input, NULL, logprob, &err));
    assert_ok(hop_stage_backward(s->stage, batch, 1, NULL, dinput, &err));
}

/* Central difference of the loss along `direction` added to `values`, in double. */
static double difference(struct support_stage *s, const struct hop_batch *batch, const void *input,
                         float *values, const float *direction, size_t n)
{
    struct hop_error err = {0};
    const float step = 1e-2f;
    double loss[2];
    float *const saved = malloc(n * sizeof *saved);
    assert_non_null(saved);
    memcpy(saved, values, n * sizeof *saved);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            values[i] = saved[i] + (side ? step : -step) * direction[i];
        assert_ok(hop_stage_adapters_changed(s->stage, &err));
        loss[side] = forward_loss(s, batch, input);
    }
    memcpy(values, saved, n * sizeof *saved);
    assert_ok(hop_stage_adapters_changed(s->stage, &err));
    free(saved);
    return (loss[1] - loss[0]) / (2 * (double)step);
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The derivative along the gradient itself is its squared norm: large against rounding. */
static void check_slope(struct support_stage *s, const struct hop_batch *batch, const void *input,
                        float *values, const float *gradient, size_t n, const char *what)
{
    const double norm = support_norm(gradient, n);
    assert_true(norm > 1e-5);
    float *const direction = malloc(n * sizeof *direction);
    assert_non_null(direction);
    for (size_t i = 0; i < n; i++)
        direction[i] = (float)(gradient[i] / norm);
    const double measured = difference(s, batch, input, values, direction, n);
    const double exact = dot(gradient, direction, n);
    if (fabs(measured / exact - 1) > 5e-3)
        fail_msg("%s: finite difference %g, backward %g", what, measured, exact);
    free(direction);
}

static void finite_differences(const struct tiny *t)
{
    for (int i = 0; i < backend_count; i++) {
        struct support_stage s;
        const struct hop_stage_config config = tiny_config(t, 0, 3, HOP_GRADIENT_BACKPROP);
        support_stage_open(&s, backends[i], t->weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        backward_once(&s, &t->b.batch, NULL, NULL);
        struct hop_parameters *const p = hop_stage_parameters(s.stage);
        for (size_t k = 0; k < p->count; k++) {
            char name[HOP_TENSOR_NAME];
            hop_parameter_name(&p->items[k], name, sizeof name);
            check_slope(&s, &t->b.batch, NULL, p->values + p->items[k].offset,
                        p->gradients + p->items[k].offset, p->items[k].count, name);
        }
        support_stage_close(&s);
    }
}

static void test_finite_differences(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t, false);
    finite_differences(&t);
    hop_weights_free(t.weights);
    tiny_open_biased(&t);
    finite_differences(&t);
    hop_weights_free(t.weights);
}

static void random_values(float *values, size_t n, uint64_t seed)
{
    const struct hop_random_key key = {.seed = seed, .domain = HOP_RANDOM_SAMPLE};
    hop_random_normal(&key, 0, n, values);
}

static void test_input_gradient(void **state)
{
    (void)state;
    static struct tiny t;
    enum { N = SUPPORT_TOKENS };
    static float input[N], dinput[N];
    tiny_open(&t, false);
    const size_t n = (size_t)(t.b.batch.tokens * t.model.hidden);
    random_values(input, n, 8);
    for (int i = 0; i < backend_count; i++) {
        struct support_stage s;
        struct hop_stage_config config = tiny_config(&t, 1, 3, HOP_GRADIENT_BACKPROP);
        support_stage_open(&s, backends[i], t.weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        backward_once(&s, &t.b.batch, input, dinput);
        check_slope(&s, &t.b.batch, input, input, dinput, n, "input");
        /* The same adapter gradients without the input's. */
        struct hop_parameters *const p = hop_stage_parameters(s.stage);
        float *const with = malloc(p->total * sizeof *with);
        assert_non_null(with);
        memcpy(with, p->gradients, p->total * sizeof *with);
        backward_once(&s, &t.b.batch, input, NULL);
        assert_memory_equal(with, p->gradients, p->total * sizeof *with);
        free(with);
        support_stage_close(&s);
    }
    hop_weights_free(t.weights);
}

/* Runs the micro-batch through stages [0, cut) and [cut, 3) on separate memory; gradients of both
 * end up in `gradients` in the order of the whole model. */
static void chained(const struct tiny *t, const struct hop_ops *ops, int32_t cut, float *gradients,
                    float *logprob)
{
    struct hop_error err = {0};
    struct support_stage first, second;
    struct hop_stage_config a = tiny_config(t, 0, cut, HOP_GRADIENT_BACKPROP);
    struct hop_stage_config b = tiny_config(t, cut, 3, HOP_GRADIENT_BACKPROP);
    a.head = b.embed = false; /* also where one of them holds no block */
    static float hidden[SUPPORT_TOKENS], dhidden[SUPPORT_TOKENS];
    support_stage_open(&first, ops, t->weights, &a);
    support_stage_open(&second, ops, t->weights, &b);
    support_random_adapters(&first, 1, 0.2f);
    support_random_adapters(&second, 1, 0.2f);
    const struct hop_batch *const batch = &t->b.batch;
    assert_ok(hop_stage_forward(first.stage, batch, 0, NULL, hidden, NULL, &err));
    assert_ok(hop_stage_forward(second.stage, batch, 1, hidden, NULL, logprob, &err));
    assert_ok(hop_stage_backward(second.stage, batch, 1, NULL, dhidden, &err));
    assert_ok(hop_stage_backward(first.stage, batch, 0, dhidden, NULL, &err));
    const struct hop_parameters *const p = hop_stage_parameters(first.stage);
    const struct hop_parameters *const q = hop_stage_parameters(second.stage);
    memcpy(gradients, p->gradients, p->total * sizeof *gradients);
    memcpy(gradients + p->total, q->gradients, q->total * sizeof *gradients);
    support_stage_close(&first);
    support_stage_close(&second);
}

static void chained_equals_whole(const struct tiny *t)
{
    struct hop_error err = {0};
    static float logprob[SUPPORT_TOKENS], expected[SUPPORT_TOKENS], gradients[8192];
    for (int i = 0; i < backend_count; i++) {
        struct support_stage s;
        const struct hop_stage_config config = tiny_config(t, 0, 3, HOP_GRADIENT_BACKPROP);
        support_stage_open(&s, backends[i], t->weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, NULL, NULL, expected, &err));
        assert_ok(hop_stage_backward(s.stage, &t->b.batch, 0, NULL, NULL, &err));
        const struct hop_parameters *const p = hop_stage_parameters(s.stage);
        assert_true(p->total <= 8192);
        for (int32_t cut = 0; cut <= 3; cut++) {
            chained(t, backends[i], cut, gradients, logprob);
            assert_true(support_error(logprob, expected, (size_t)t->b.batch.labels) < 1e-6);
            assert_true(support_error(gradients, p->gradients, p->total) < 1e-6);
        }
        support_stage_close(&s);
    }
}

static void test_chained_equals_whole(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t, true);
    chained_equals_whole(&t);
    hop_weights_free(t.weights);
    tiny_open_biased(&t);
    chained_equals_whole(&t);
    hop_weights_free(t.weights);
}

/* Loss, adapter gradients, probes and decoding of a model. */
struct outcome {
    float logprob[SUPPORT_TOKENS], probed[3 * SUPPORT_TOKENS], logits[64], gradients[8192];
};

static void run_everything(const struct tiny *t, const struct hop_ops *ops, struct outcome *out)
{
    struct hop_error err = {0};
    struct support_stage s;
    struct hop_stage_config config = tiny_config(t, 0, 3, HOP_GRADIENT_BACKPROP);
    const struct hop_probe probes[] = {{0, 1e-2f}, {1, -1e-2f}, {2, 3e-2f}};
    const struct hop_probe_set set = {.seed = 9, .step = 3, .count = 3, .probes = probes};
    config.cache = 32;
    support_stage_open(&s, ops, t->weights, &config);
    support_random_adapters(&s, 1, 0.2f);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, NULL, NULL, out->logprob, &err));
    assert_ok(hop_stage_backward(s.stage, &t->b.batch, 0, NULL, NULL, &err));
    assert_ok(hop_stage_decode(s.stage, t->b.ids, 9, 0, out->logits, &err));
    const struct hop_parameters *const p = hop_stage_parameters(s.stage);
    memcpy(out->gradients, p->gradients, p->total * sizeof *out->gradients);
    support_stage_close(&s);
    config = tiny_config(t, 0, 3, HOP_GRADIENT_ZEROTH_ORDER);
    support_stage_open(&s, ops, t->weights, &config);
    support_random_adapters(&s, 1, 0.2f);
    assert_ok(hop_stage_probe(s.stage, &t->b.batch, &set, NULL, NULL, out->probed, &err));
    support_stage_close(&s);
}

static size_t tiny_total(const struct tiny *t)
{
    const struct hop_lora_config lora = support_all_targets(3, 6);
    return 3 * (size_t)hop_lora_block_parameters(&t->model, &lora);
}

static void compare_outcomes(const struct tiny *t, const struct outcome *a, const struct outcome *b,
                             double bound)
{
    const size_t labels = (size_t)t->b.batch.labels;
    assert_true(support_error(a->logprob, b->logprob, labels) < bound);
    assert_true(support_error(a->probed, b->probed, 3 * labels) < bound);
    assert_true(support_error(a->logits, b->logits, (size_t)t->model.vocabulary) < bound);
    assert_true(support_error(a->gradients, b->gradients, tiny_total(t)) < bound);
}

/* Every backend gives the reference's numbers, and every single kind of bias changes them. */
static void test_biases(void **state)
{
    (void)state;
    static struct tiny t;
    static struct outcome expected, found;
    tiny_open_biased(&t);
    run_everything(&t, hop_backend_find("reference"), &expected);
    for (int i = 0; i < backend_count; i++) {
        run_everything(&t, backends[i], &found);
        compare_outcomes(&t, &found, &expected, 1e-4);
    }
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        char name[HOP_TENSOR_NAME];
        hop_bias_name(1, target, name);
        float *const bias = (float *)(uintptr_t)hop_weights_find(t.weights, name)->data;
        const int64_t last = hop_target_out(&t.model, target) - 1;
        bias[last] += 0.5f;
        run_everything(&t, hop_backend_find("reference"), &found);
        bias[last] -= 0.5f;
        if (target == HOP_K_PROJ) /* moves all scores of a head alike, but for the rotation */
            assert_true(support_error(found.logprob, expected.logprob, 10) > 1e-7);
        else
            assert_true(support_error(found.logprob, expected.logprob, 10) > 1e-4);
    }
    struct hop_stage_config config = tiny_config(&t, 0, 1, HOP_GRADIENT_NONE);
    const size_t with = hop_stage_bytes(&config).weights;
    config.model.attention_bias = config.model.mlp_bias = false;
    /* q 24, k 12, v 12, o 24, gate 44, up 44, down 24 floats, in units of 64 bytes. */
    assert_int_equal(with - hop_stage_bytes(&config).weights, (2 + 1 + 1 + 2 + 3 + 3 + 2) * 64);
    hop_weights_free(t.weights);
}

/* The base that dynamic NTK scaling gives a sequence of `length` tokens. */
static double stretched_base(const struct hop_model_config *model, double length)
{
    const double dim = model->head_dim, factor = model->rope_factor;
    const double grown = factor * length / model->rope_original - factor + 1;
    return model->rope_theta * pow(grown, dim / (dim - 2));
}

/* Each sequence of a micro-batch (9, 4 and 14 tokens, original context 8) is computed as if it were
 * alone, with the base of its own length. */
static void dynamic_case(const struct tiny *t, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    static float together[3 * SUPPORT_TOKENS], alone[SUPPORT_TOKENS];
    static struct support_batch one;
    static const int32_t lengths[] = {9, 4, 14};
    const struct hop_probe probes[] = {{0, 0}, {1, 0}};
    const struct hop_probe_set set = {.seed = 9, .step = 3, .count = 2, .probes = probes};
    struct support_stage s;
    struct hop_stage_config config = tiny_config(t, 0, 3, HOP_GRADIENT_NONE);
    const size_t labels = (size_t)t->b.batch.labels;
    support_stage_open(&s, ops, t->weights, &config);
    support_random_adapters(&s, 1, 0.2f);
    assert_ok(hop_stage_probe(s.stage, &t->b.batch, &set, NULL, NULL, together, &err));
    assert_true(support_error(together + labels, together, labels) < 1e-6);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, -1, NULL, NULL, together, &err));
    support_stage_close(&s);
    int32_t begin = 0, label = 0;
    for (int i = 0; i < 3; begin += lengths[i++]) {
        config = tiny_config(t, 0, 3, HOP_GRADIENT_NONE);
        config.model.rope_scaling = HOP_ROPE_PLAIN;
        if (lengths[i] > 8)
            config.model.rope_theta = stretched_base(&t->model, lengths[i]);
        support_batch_begin(&one);
        support_batch_add(&one, t->b.ids + begin, NULL, lengths[i]);
        one.batch.labels = 0;
        for (; label < t->b.batch.labels && t->b.label_row[label] < begin + lengths[i]; label++) {
            one.label_row[one.batch.labels] = t->b.label_row[label] - begin;
            one.label_id[one.batch.labels++] = t->b.label_id[label];
        }
        const int32_t first = label - one.batch.labels;
        support_stage_open(&s, ops, t->weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        assert_ok(hop_stage_forward(s.stage, &one.batch, -1, NULL, NULL, alone, &err));
        assert_true(support_error(together + first, alone, (size_t)one.batch.labels) < 1e-6);
        support_stage_close(&s);
    }
    assert_int_equal(label, t->b.batch.labels);
}

/* Decoding: a call's tokens turn with the base of everything so far. */
static void dynamic_decode_case(const struct tiny *t, const struct hop_ops *ops)
{
    struct hop_error err = {0};
    float logits[2][64];
    for (int plain = 0; plain < 2; plain++) {
        struct support_stage s;
        struct hop_stage_config config = tiny_config(t, 0, 3, HOP_GRADIENT_NONE);
        config.cache = 16;
        config.limits.tokens = plain ? 14 : 4; /* pieces of one call share its length */
        if (plain) {
            config.model.rope_scaling = HOP_ROPE_PLAIN;
            config.model.rope_theta = stretched_base(&t->model, 14);
        }
        support_stage_open(&s, ops, t->weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        assert_ok(hop_stage_decode(s.stage, t->b.ids + 13, 14, 0, logits[plain], &err));
        support_stage_close(&s);
    }
    assert_true(support_error(logits[0], logits[1], (size_t)t->model.vocabulary) < 1e-5);
}

static void test_dynamic_rope(void **state)
{
    (void)state;
    static struct tiny t;
    struct hop_model_config model = support_tiny_config();
    model.rope_scaling = HOP_ROPE_DYNAMIC;
    model.rope_factor = 3;
    model.max_positions = model.rope_original = 8;
    tiny_open_as(&t, &model);
    for (int i = 0; i < backend_count; i++) {
        dynamic_case(&t, backends[i]);
        dynamic_decode_case(&t, backends[i]);
    }
    struct hop_ops device = *hop_backend_find("reference");
    device.host_memory = false;
    dynamic_case(&t, &device);
    finite_differences(&t);
    chained_equals_whole(&t);
    hop_weights_free(t.weights);
}

/* The attention factor multiplies cosine and sine, in backward too. */
static void test_yarn_gradients(void **state)
{
    (void)state;
    static struct tiny t;
    struct hop_model_config model = support_tiny_config();
    model.rope_scaling = HOP_ROPE_YARN;
    model.rope_factor = 4;
    model.rope_attention = 0.8;
    model.rope_high = 32;
    model.rope_low = 1;
    model.rope_original = 32;
    tiny_open_as(&t, &model);
    finite_differences(&t);
    chained_equals_whole(&t);
    hop_weights_free(t.weights);
}

static void bf16_case(const struct tiny *t, const struct hop_ops *ops, enum hop_dtype dtype,
                      float *logprob, float *gradients)
{
    struct hop_error err = {0};
    struct support_stage s;
    struct hop_stage_config config = tiny_config(t, 0, 3, HOP_GRADIENT_BACKPROP);
    config.dtype = dtype;
    support_stage_open(&s, ops, t->weights, &config);
    support_random_adapters(&s, 1, 0.2f);
    assert_ok(hop_stage_forward(s.stage, &t->b.batch, 0, NULL, NULL, logprob, &err));
    assert_ok(hop_stage_backward(s.stage, &t->b.batch, 0, NULL, NULL, &err));
    const struct hop_parameters *const p = hop_stage_parameters(s.stage);
    memcpy(gradients, p->gradients, p->total * sizeof *gradients);
    support_stage_close(&s);
}

static void test_bf16(void **state)
{
    (void)state;
    static struct tiny t;
    static float exact[SUPPORT_TOKENS], rounded[SUPPORT_TOKENS];
    static float exact_gradients[8192], gradients[8192];
    tiny_open(&t, false);
    const size_t total =
        3 * (size_t)hop_lora_block_parameters(
                &t.model, &(struct hop_lora_config){.rank = 3, .targets = {1, 1, 1, 1, 1, 1, 1}});
    for (int i = 0; i < backend_count; i++) {
        bf16_case(&t, backends[i], HOP_F32, exact, exact_gradients);
        bf16_case(&t, backends[i], HOP_BF16, rounded, gradients);
        const double forward = support_error(rounded, exact, (size_t)t.b.batch.labels);
        const double backward = support_error(gradients, exact_gradients, total);
        print_message("%s: bf16 against f32: log-probabilities %.3g, gradients %.3g\n",
                      backends[i]->name, forward, backward);
        assert_true(forward < 1e-2);
        assert_true(backward < 3e-2);
    }
    hop_weights_free(t.weights);
}

/* Property 3: as epsilon goes to 0 a directional derivative equals <gradient, z>. */
static void test_probe_derivative(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    static float logprob[3 * SUPPORT_TOKENS];
    tiny_open(&t, false);
    const size_t labels = (size_t)t.b.batch.labels;
    for (int i = 0; i < backend_count; i++) {
        struct support_stage s;
        struct hop_stage_config config = tiny_config(&t, 0, 3, HOP_GRADIENT_BACKPROP);
        support_stage_open(&s, backends[i], t.weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        backward_once(&s, &t.b.batch, NULL, NULL);
        struct support_stage z;
        config = tiny_config(&t, 0, 3, HOP_GRADIENT_ZEROTH_ORDER);
        support_stage_open(&z, backends[i], t.weights, &config);
        support_random_adapters(&z, 1, 0.2f);
        const float epsilon = 2e-3f;
        const struct hop_probe probes[] = {{4, epsilon}, {4, -epsilon}, {5, epsilon}};
        const struct hop_probe_set set = {.seed = 9, .step = 3, .count = 3, .probes = probes};
        assert_ok(hop_stage_probe(z.stage, &t.b.batch, &set, NULL, NULL, logprob, &err));
        const double plus = hop_loss(logprob, labels, t.b.batch.label_total);
        const double minus = hop_loss(logprob + labels, labels, t.b.batch.label_total);
        struct hop_parameters *const p = hop_stage_parameters(z.stage);
        const uint16_t direction = 4;
        const float one = 1;
        hop_parameters_zero_gradients(p);
        hop_parameters_add_directions(p, 9, 3, 2, &direction, &one, 1);
        const double expected =
            dot(hop_stage_parameters(s.stage)->gradients, p->gradients, p->total);
        const double measured = (plus - minus) / (2 * (double)epsilon);
        print_message("%s: directional derivative %.6f, <gradient, z> %.6f\n", backends[i]->name,
                      measured, expected);
        assert_close(measured / expected, 1, 5e-3);
        support_stage_close(&s);
        support_stage_close(&z);
    }
    hop_weights_free(t.weights);
}

/* Through two stages, the first perturbed: a batch of probes gives what single probes give, and a
 * probe of epsilon 0 what the forward gives. */
static void probes_case(const struct tiny *t, const struct hop_ops *ops, bool exact)
{
    struct hop_error err = {0};
    struct support_stage first, second;
    static float hidden[3 * SUPPORT_TOKENS], one_hidden[SUPPORT_TOKENS];
    static float logprob[3 * SUPPORT_TOKENS], one[SUPPORT_TOKENS];
    const struct hop_stage_config a = tiny_config(t, 0, 2, HOP_GRADIENT_ZEROTH_ORDER);
    const struct hop_stage_config b = tiny_config(t, 2, 3, HOP_GRADIENT_BACKPROP);
    const struct hop_batch *const batch = &t->b.batch;
    const size_t labels = (size_t)batch->labels;
    const struct hop_probe probes[] = {{0, 1e-2f}, {0, 0}, {7, 2e-2f}};
    struct hop_probe_set set = {.seed = 9, .step = 3, .count = 3, .probes = probes};
    support_stage_open(&first, ops, t->weights, &a);
    support_stage_open(&second, ops, t->weights, &b);
    support_random_adapters(&first, 1, 0.2f);
    support_random_adapters(&second, 1, 0.2f);
    assert_ok(hop_stage_probe(first.stage, batch, &set, NULL, hidden, NULL, &err));
    assert_ok(hop_stage_probe(second.stage, batch, &set, hidden, NULL, logprob, &err));
    for (int32_t q = 0; q < 3; q++) {
        set = (struct hop_probe_set){.seed = 9, .step = 3, .count = 1, .probes = probes + q};
        assert_ok(hop_stage_probe(first.stage, batch, &set, NULL, one_hidden, NULL, &err));
        assert_ok(hop_stage_probe(second.stage, batch, &set, one_hidden, NULL, one, &err));
        assert_true(support_error(logprob + (size_t)q * labels, one, labels) < 1e-6);
    }
    assert_true(support_error(logprob, logprob + labels, labels) > 1e-5);
    assert_ok(hop_stage_forward(first.stage, batch, -1, NULL, one_hidden, NULL, &err));
    assert_ok(hop_stage_forward(second.stage, batch, -1, one_hidden, NULL, one, &err));
    if (exact)
        assert_memory_equal(one, logprob + labels, labels * sizeof *one);
    assert_true(support_error(one, logprob + labels, labels) < 1e-6);
    support_stage_close(&first);
    support_stage_close(&second);
}

static void test_probes(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t, false);
    for (int i = 0; i < backend_count; i++)
        probes_case(&t, backends[i], strcmp(backends[i]->name, "reference") == 0);
    hop_weights_free(t.weights);
}

/* Logits after each token, from the cache in uneven pieces and from scratch. */
static void test_decode(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    static const int32_t pieces[] = {5, 1, 1, 3, 1};
    float cached[64], fresh[64];
    tiny_open(&t, false);
    for (int i = 0; i < backend_count; i++) {
        struct support_stage s;
        struct hop_stage_config config = tiny_config(&t, 0, 3, HOP_GRADIENT_NONE);
        config.cache = 16;
        config.limits.tokens = 4;
        support_stage_open(&s, backends[i], t.weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        for (int32_t k = 0, past = 0; k < 5; past += pieces[k++]) {
            assert_ok(hop_stage_decode(s.stage, t.b.ids + past, pieces[k], past, cached, &err));
            config.limits.tokens = 32;
            struct support_stage whole;
            support_stage_open(&whole, backends[i], t.weights, &config);
            support_random_adapters(&whole, 1, 0.2f);
            assert_ok(hop_stage_decode(whole.stage, t.b.ids, past + pieces[k], 0, fresh, &err));
            assert_true(support_error(cached, fresh, (size_t)t.model.vocabulary) < 1e-5);
            support_stage_close(&whole);
        }
        assert_fails(hop_stage_decode(s.stage, t.b.ids, 6, 11, cached, &err), HOP_INPUT, "16");
        support_stage_close(&s);
    }
    hop_weights_free(t.weights);
}

/* Calls of a decoding: each row continues sequence `place` with n tokens after past, of the batch's
 * tokens from `from` on. Place 1 is taken a second time by another sequence. */
struct continuation {
    int32_t place, from, past, n;
};
static const struct continuation calls[][3] = {
    {{1, 0, 0, 5}, {0, 9, 0, 3}, {2, 13, 0, 6}},
    {{2, 19, 6, 1}, {1, 5, 5, 1}},
    {{0, 12, 3, 1}, {1, 14, 0, 7}, {2, 20, 7, 2}},
    {{1, 21, 7, 1}},
};

/* The call over both stages; row s of logits is that of its s-th sequence. */
static int32_t continue_both(struct support_stage *stages, const struct tiny *t,
                             const struct continuation *rows, float *logits)
{
    struct hop_error err = {0};
    int32_t ids[32], offset[4] = {0}, past[3], place[3], count = 0;
    float hidden[32 * 64];
    for (; count < 3 && rows[count].n > 0; count++) {
        memcpy(ids + offset[count], t->b.ids + rows[count].from,
               (size_t)rows[count].n * sizeof *ids);
        offset[count + 1] = offset[count] + rows[count].n;
        past[count] = rows[count].past;
        place[count] = rows[count].place;
    }
    const struct hop_continuation call = {.sequences = count,
                                          .tokens = offset[count],
                                          .ids = ids,
                                          .offset = offset,
                                          .past = past,
                                          .place = place};
    assert_ok(hop_stage_continue(stages[0].stage, &call, NULL, hidden, NULL, &err));
    assert_ok(hop_stage_continue(stages[1].stage, &call, hidden, NULL, logits, &err));
    return count;
}

/* Several sequences over two stages are each what one stage makes of it alone. */
static void continue_case(const struct tiny *t, const struct hop_ops *ops, enum hop_dtype dtype,
                          double tolerance)
{
    struct hop_error err = {0};
    struct support_stage stages[2], alone;
    float logits[3 * 64], expected[64];
    const size_t vocabulary = (size_t)t->model.vocabulary;
    for (int k = 0; k < 3; k++) {
        struct hop_stage_config config =
            tiny_config(t, k == 1 ? 1 : 0, k == 0 ? 1 : 3, HOP_GRADIENT_NONE);
        config.dtype = dtype;
        config.cache = 16;
        config.cache_sequences = 3;
        support_stage_open(k < 2 ? &stages[k] : &alone, ops, t->weights, &config);
        support_random_adapters(k < 2 ? &stages[k] : &alone, 1, 0.2f);
    }
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        const int32_t n = continue_both(stages, t, calls[c], logits);
        for (int32_t s = 0; s < n; s++) {
            const struct continuation *const row = &calls[c][s];
            assert_ok(hop_stage_decode(alone.stage, t->b.ids + row->from - row->past,
                                       row->past + row->n, 0, expected, &err));
            assert_true(support_error(logits + (size_t)s * vocabulary, expected, vocabulary) <
                        tolerance);
        }
    }
    const int32_t offset[] = {0, 2}, past = 15, place = 0, beyond = 3, none = 0;
    struct hop_continuation call = {.sequences = 1,
                                    .tokens = 2,
                                    .ids = t->b.ids,
                                    .offset = offset,
                                    .past = &past,
                                    .place = &place};
    float hidden[2 * 64];
    assert_fails(hop_stage_continue(stages[0].stage, &call, NULL, hidden, NULL, &err), HOP_INPUT,
                 "16");
    call.past = &none;
    call.place = &beyond;
    assert_fails(hop_stage_continue(stages[0].stage, &call, NULL, hidden, NULL, &err), HOP_INTERNAL,
                 "cache of 3");
    for (int k = 0; k < 2; k++)
        support_stage_close(&stages[k]);
    support_stage_close(&alone);
}

static void test_continue(void **state)
{
    (void)state;
    static struct tiny t;
    tiny_open(&t, false);
    assert_true(t.model.hidden <= 64 && t.model.vocabulary <= 64);
    for (int i = 0; i < backend_count; i++) {
        continue_case(&t, backends[i], HOP_F32, 1e-5);
        continue_case(&t, backends[i], HOP_BF16, 2e-2);
    }
    hop_weights_free(t.weights);
}

/* A sequence beyond the original context turns by its own length, the others by theirs. */
static void test_continue_dynamic(void **state)
{
    (void)state;
    static struct tiny t;
    struct hop_model_config model = support_tiny_config();
    model.rope_scaling = HOP_ROPE_DYNAMIC;
    model.rope_factor = 4;
    model.rope_original = model.max_positions = 5;
    tiny_open_as(&t, &model);
    struct hop_error err = {0};
    struct support_stage s, alone;
    struct hop_stage_config config = tiny_config(&t, 0, 3, HOP_GRADIENT_NONE);
    config.cache = 16;
    config.cache_sequences = 2;
    const int32_t offset[] = {0, 4, 12}, past[] = {0, 0}, place[] = {1, 0};
    const struct hop_continuation call = {.sequences = 2,
                                          .tokens = 12,
                                          .ids = t.b.ids,
                                          .offset = offset,
                                          .past = past,
                                          .place = place};
    float logits[2 * 64], expected[64];
    for (int i = 0; i < backend_count; i++) {
        support_stage_open(&s, backends[i], t.weights, &config);
        support_stage_open(&alone, backends[i], t.weights, &config);
        assert_ok(hop_stage_continue(s.stage, &call, NULL, NULL, logits, &err));
        for (int q = 0; q < 2; q++) {
            assert_ok(hop_stage_decode(alone.stage, t.b.ids + offset[q], offset[q + 1] - offset[q],
                                       0, expected, &err));
            assert_true(support_error(logits + (size_t)q * (size_t)t.model.vocabulary, expected,
                                      (size_t)t.model.vocabulary) < 1e-5);
        }
        support_stage_close(&s);
        support_stage_close(&alone);
    }
    hop_weights_free(t.weights);
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* What the planner is told is what creation takes from the heap (weights are mapped, gains are
 * not). */
static void bytes_case(const struct hop_stage_config *config, const struct hop_weights *weights)
{
    struct support_stage s;
    const struct hop_stage_bytes bytes = hop_stage_bytes(config);
    const size_t before = heap_bytes();
    support_stage_open(&s, hop_backend_find("reference"), weights, config);
    const size_t taken = heap_bytes() - before;
    const size_t gains = (size_t)config->model.hidden * 4 * (size_t)(2 * (config->hi - config->lo));
    const size_t expected =
        bytes.parameters + (size_t)config->slots * bytes.kept + bytes.scratch + gains;
    print_message("estimate %zu bytes, heap %zu bytes\n", expected, taken);
    /* Objects, lists and the allocator's own words. */
    assert_true(taken >= expected && taken - expected < 40000);
    static float logprob[8 * SUPPORT_TOKENS];
    static struct support_batch b;
    struct hop_error err = {0};
    const int32_t ids[] = {1, 2, 3, 4};
    support_batch_begin(&b);
    support_batch_add(&b, ids, NULL, 4);
    /* The first call of a size may grow the backend's own scratch memory, and the threading library
     * takes a few words when its threads change, at any time. A call that allocates does so always.
     */
    bool steady = false;
    for (int call = 0; call < 6 && !steady; call++) {
        const size_t held = heap_bytes();
        assert_ok(hop_stage_forward(s.stage, &b.batch, -1, NULL, NULL, logprob, &err));
        steady = heap_bytes() == held;
    }
    assert_true(steady);
    support_stage_close(&s);
}

/* Frozen bytes are those of the tensors the stage lists (hidden is a multiple of the alignment
 * here). */
static void check_weight_bytes(const struct hop_stage_config *config)
{
    struct hop_error err = {0};
    struct hop_tensor_want *wants;
    size_t count, total = 0;
    assert_ok(hop_weights_list(&config->model, config->lo, config->hi, config->embed, config->head,
                               &wants, &count, &err));
    for (size_t i = 0; i < count; i++)
        total += (size_t)(wants[i].shape[0] * (wants[i].rank == 2 ? wants[i].shape[1] : 1)) * 4;
    assert_int_equal(hop_stage_bytes(config).weights, total);
    free(wants);
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
    model.intermediate = 200;
    assert_ok(hop_weights_random(&model, 1, HOP_F32, &weights, &err));
    struct hop_stage_config config = {.model = model,
                                      .lora = support_all_targets(8, 16),
                                      .dtype = HOP_F32,
                                      .hi = 3,
                                      .embed = true,
                                      .head = true,
                                      .gradient = HOP_GRADIENT_BACKPROP,
                                      .limits = {.sequences = 8, .tokens = 512, .labels = 300},
                                      .slots = 3};
    bytes_case(&config, weights);
    check_weight_bytes(&config);
    config.model.tied = true;
    check_weight_bytes(&config);
    config.model.tied = false;
    config.model.attention_bias = true;
    check_weight_bytes(&config);
    config.model.attention_bias = false;
    config.gradient = HOP_GRADIENT_ZEROTH_ORDER;
    config.slots = 0;
    config.probes = 4;
    bytes_case(&config, weights);
    config.gradient = HOP_GRADIENT_NONE;
    config.cache = 128;
    bytes_case(&config, weights);
    config.model.rope_scaling = HOP_ROPE_DYNAMIC;
    config.model.rope_original = 64;
    const size_t plain = hop_stage_bytes(&config).scratch;
    bytes_case(&config, weights);
    config.model.rope_scaling = HOP_ROPE_PLAIN;
    assert_int_equal(plain - hop_stage_bytes(&config).scratch, 2 * 512 * 8 * 4);
    hop_weights_free(weights);
}

static void test_forward_only(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    tiny_open(&t, false);
    const struct hop_ops ops = hop_ops_forward_only(hop_backend_find("reference"));
    struct hop_backend *backend;
    struct hop_stage *stage = NULL;
    struct hop_stage_config config = tiny_config(&t, 0, 3, HOP_GRADIENT_BACKPROP);
    assert_ok(ops.open(1, &backend, &err));
    assert_fails(hop_stage_create(&ops, backend, t.weights, &config, &stage, &err), HOP_UNSUPPORTED,
                 "zeroth-order");
    assert_null(stage);
    config = tiny_config(&t, 0, 3, HOP_GRADIENT_ZEROTH_ORDER);
    assert_ok(hop_stage_create(&ops, backend, t.weights, &config, &stage, &err));
    assert_fails(hop_stage_backward(stage, &t.b.batch, 0, NULL, NULL, &err), HOP_INTERNAL, "slot");
    hop_stage_free(stage);
    hop_stage_free(NULL);
    ops.close(backend);
    hop_weights_free(t.weights);
}

/* A backend whose memory is not the host's takes the copying paths; the numbers stay the same. */
static void test_device_memory(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    static float logprob[SUPPORT_TOKENS], expected[SUPPORT_TOKENS], gradients[8192], device[8192];
    static float probed[3 * SUPPORT_TOKENS], expected_probed[3 * SUPPORT_TOKENS];
    tiny_open(&t, false);
    struct hop_ops ops = *hop_backend_find("reference");
    const size_t labels = (size_t)t.b.batch.labels;
    const struct hop_probe probes[] = {{0, 1e-2f}, {1, 1e-2f}};
    const struct hop_probe_set set = {.seed = 9, .step = 3, .count = 2, .probes = probes};
    size_t total = 0;
    for (int host = 1; host >= 0; host--) {
        struct support_stage s;
        ops.host_memory = host;
        chained(&t, &ops, 1, host ? gradients : device, host ? expected : logprob);
        const struct hop_stage_config config = tiny_config(&t, 0, 3, HOP_GRADIENT_ZEROTH_ORDER);
        support_stage_open(&s, &ops, t.weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        total = hop_stage_parameters(s.stage)->total;
        assert_ok(hop_stage_probe(s.stage, &t.b.batch, &set, NULL, NULL,
                                  host ? expected_probed : probed, &err));
        support_stage_close(&s);
    }
    assert_memory_equal(logprob, expected, labels * sizeof *logprob);
    assert_memory_equal(probed, expected_probed, 2 * labels * sizeof *probed);
    assert_memory_equal(device, gradients, total * sizeof *device);
    hop_weights_free(t.weights);
}

/* A stage in the middle whose adapters have another kind of gradient still passes the gradient on.
 */
static void test_untrained_passes_gradient(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct tiny t;
    static float input[SUPPORT_TOKENS], output[SUPPORT_TOKENS], dinput[2][SUPPORT_TOKENS];
    tiny_open(&t, false);
    const size_t n = (size_t)(t.b.batch.tokens * t.model.hidden);
    random_values(input, n, 8);
    for (int trained = 0; trained < 2; trained++) {
        struct support_stage s;
        struct hop_stage_config config =
            tiny_config(&t, 1, 2, trained ? HOP_GRADIENT_BACKPROP : HOP_GRADIENT_ZEROTH_ORDER);
        config.slots = 1;
        support_stage_open(&s, hop_backend_find("reference"), t.weights, &config);
        support_random_adapters(&s, 1, 0.2f);
        assert_ok(hop_stage_forward(s.stage, &t.b.batch, 0, input, output, NULL, &err));
        assert_ok(hop_stage_backward(s.stage, &t.b.batch, 0, output, dinput[trained], &err));
        const struct hop_parameters *const p = hop_stage_parameters(s.stage);
        assert_int_equal(support_norm(p->gradients, p->total) > 0, trained);
        support_stage_close(&s);
    }
    assert_memory_equal(dinput[0], dinput[1], n * sizeof(float));
    hop_weights_free(t.weights);
}

int main(void)
{
    for (int i = 0; hop_backends[i]; i++)
        backends[backend_count++] = hop_backends[i];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories_forward),
        cmocka_unit_test(test_lora_oracle),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_input_gradient),
        cmocka_unit_test(test_chained_equals_whole),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_dynamic_rope),
        cmocka_unit_test(test_yarn_gradients),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_probe_derivative),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_continue_dynamic),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_forward_only),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_untrained_passes_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
