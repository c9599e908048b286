/* What an executor makes of its probes, against gradients by backprop on the same blocks: boundary
 * gives exact directional derivatives, differences come near them, the gradient of a zeroth-order
 * part is the mean of g z, and feedback is exact where it has to be. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"
#include "support_schedule.h"

#include "runtime/executor_internal.h"
#include "schedule/estimator.h"

enum { SEQUENCES = 4, MICRO_BATCHES = 2, PROBES = 3, EXITS = 2, FRONT = 2, STEP = 5, SEED = 17 };
enum { MOST = MICRO_BATCHES * (PROBES + EXITS) * SEQUENCES };

static struct hop_transport transport;
static struct hop_weights *weights;
static struct support_batch content[MICRO_BATCHES];
static struct hop_batch batches[MICRO_BATCHES];

static struct hop_lora_config lora_config(void)
{
    return support_all_targets(2, 4);
}

static struct hop_part part_of(int32_t stage, int32_t lo, int32_t hi, enum hop_gradient gradient)
{
    return (struct hop_part){.stage = stage,
                             .lo = lo,
                             .hi = hi,
                             .sample_hi = 1,
                             .tensor_hi = 1,
                             .micro_hi = 1,
                             .gradient = gradient};
}

/* Two zeroth-order parts of a block each in front of a backprop one, all on one device. */
static struct hop_plan front_plan(enum hop_estimator estimator, enum hop_directions directions)
{
    static struct hop_part parts[FRONT + 1];
    for (int32_t p = 0; p < FRONT; p++)
        parts[p] = part_of(p, p, p + 1, HOP_GRADIENT_ZEROTH_ORDER);
    parts[FRONT] = part_of(FRONT, FRONT, support_tiny_config().blocks, HOP_GRADIENT_BACKPROP);
    return (struct hop_plan){.strategy = "test",
                             .blocks = support_tiny_config().blocks,
                             .devices = 1,
                             .micro_batches = MICRO_BATCHES,
                             .probes = estimator == HOP_FEEDBACK ? 0 : PROBES,
                             .probe_batch = 2,
                             .estimator = estimator,
                             .directions = directions,
                             .parts = parts,
                             .part_count = FRONT + 1};
}

/* Backprop through the first `blocks` blocks, with an output layer behind them. */
static struct hop_plan exact_plan(int32_t blocks)
{
    static struct hop_part parts[8]; /* by number of blocks */
    parts[blocks] = part_of(0, 0, blocks, HOP_GRADIENT_BACKPROP);
    return (struct hop_plan){.strategy = "test",
                             .blocks = blocks,
                             .devices = 1,
                             .micro_batches = 1,
                             .parts = &parts[blocks],
                             .part_count = 1};
}

static float adapter_value(size_t i)
{
    return 0.2f * (float)((int)(i * 7919 % 101) - 50) / 50;
}

/* Every part's adapters are those of its blocks in the model. */
static void set_adapters(struct hop_executor *executor)
{
    struct hop_error err = {0};
    const struct hop_lora_config lora = lora_config();
    for (int32_t p = 0; p < executor->part_count; p++) {
        struct hop_stage *const stage = executor->parts[p].stage;
        struct hop_parameters *const parameters = hop_stage_parameters(stage);
        const size_t at = (size_t)hop_lora_parameters(&executor->config.model, &lora, 0,
                                                      executor->plan->parts[p].lo);
        for (size_t i = 0; i < parameters->total; i++)
            parameters->values[i] = adapter_value(at + i);
        assert_ok(hop_stage_adapters_changed(stage, &err));
    }
}

struct options {
    float epsilon;
    enum hop_distribution distribution;
};

static struct hop_executor *create(const struct hop_plan *plan, struct options options)
{
    struct hop_error err = {0};
    static const int32_t rank_of[] = {0};
    struct hop_batch_limits limits = {0}, part_limits[FRONT + 1];
    struct hop_executor *executor = NULL;
    struct hop_schedule schedule;
    struct hop_cost_table cost = support_cost(plan);
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        const struct hop_batch_limits own = support_limits(&content[m]);
        limits.sequences = own.sequences > limits.sequences ? own.sequences : limits.sequences;
        limits.tokens = own.tokens > limits.tokens ? own.tokens : limits.tokens;
        limits.labels = own.labels > limits.labels ? own.labels : limits.labels;
    }
    for (int32_t p = 0; p <= FRONT; p++)
        part_limits[p] = limits;
    struct hop_executor_config config = {.model = support_tiny_config(),
                                         .lora = lora_config(),
                                         .dtype = HOP_F32,
                                         .limits = limits,
                                         .part_limits = part_limits,
                                         .seed = SEED,
                                         .epsilon = options.epsilon,
                                         .distribution = options.distribution,
                                         .backend = "reference",
                                         .bp = true,
                                         .threads = 1,
                                         .rank_of = rank_of,
                                         .window = 1};
    config.model.blocks = plan->blocks;
    assert_ok(hop_schedule_greedy(plan, &cost, plan->micro_batches, plan->probes, &schedule, &err));
    assert_ok(hop_schedule_check(plan, &schedule, INT32_MAX, &err));
    assert_ok(
        hop_executor_create(&config, plan, &schedule, 1, weights, &transport, &executor, &err));
    set_adapters(executor);
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
    return executor;
}

/* One micro-batch of some rows, its gradients with respect to the front's adapters. */
static void exact_gradients(const struct hop_plan *plan, int32_t m, struct hop_range rows,
                            float *gradients)
{
    struct hop_error err = {0};
    struct hop_slice slice;
    struct hop_pass pass;
    struct hop_executor *const executor = create(plan, (struct options){.epsilon = 1});
    const struct hop_model_config model = support_tiny_config();
    const struct hop_lora_config lora = lora_config();
    assert_ok(hop_slice_create(&executor->config.limits, &slice, &err));
    struct hop_batch batch = *hop_slice_take(&slice, &batches[m], rows);
    batch.micro_batch = 0;
    assert_ok(hop_executor_run(executor, 0, STEP, &batch, &pass, &err));
    memcpy(gradients, hop_stage_parameters(executor->parts[0].stage)->gradients,
           (size_t)hop_lora_parameters(&model, &lora, 0, FRONT) * sizeof *gradients);
    hop_slice_free(&slice);
    hop_executor_free(executor);
}

/* All elements of a direction of the front, in the order of its parameters. */
static void direction_values(int32_t m, int32_t q, int32_t sample,
                             enum hop_distribution distribution, float *z)
{
    struct hop_error err = {0};
    struct hop_parameters parameters;
    const struct hop_model_config model = support_tiny_config();
    const struct hop_lora_config lora = lora_config();
    const struct hop_direction direction = {.seed = SEED,
                                            .step = STEP,
                                            .micro_batch = (uint16_t)m,
                                            .direction = (uint16_t)q,
                                            .sample = (uint16_t)sample,
                                            .distribution = distribution};
    assert_ok(hop_parameters_create(&model, &lora, 0, FRONT, &parameters, &err));
    for (size_t p = 0; p < parameters.count; p++) {
        const struct hop_parameter *const item = &parameters.items[p];
        hop_direction_values(&direction, item, 0, item->count, z + item->offset);
    }
    hop_parameters_free(&parameters);
}

static size_t front_total(void)
{
    const struct hop_model_config model = support_tiny_config();
    const struct hop_lora_config lora = lora_config();
    return (size_t)hop_lora_parameters(&model, &lora, 0, FRONT);
}

static float *floats(size_t n)
{
    float *const out = calloc(n, sizeof *out);
    if (!out)
        fail_msg("out of memory");
    return out;
}

/* <gradient, z> of directions [first, first + probes), in the order that passes report them.
 * Returns how many. */
static int32_t exact_derivatives(const struct hop_plan *plan, int32_t first, int32_t probes,
                                 enum hop_directions directions, enum hop_distribution distribution,
                                 double *g)
{
    const size_t total = front_total();
    float *const z = floats(total), *const gradients = floats(total);
    int32_t n = 0;
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        const int32_t values = directions == HOP_PER_SAMPLE ? batches[m].sequences : 1;
        for (int32_t v = 0; v < values; v++) {
            const struct hop_range rows = directions == HOP_PER_SAMPLE
                                              ? (struct hop_range){v, v + 1}
                                              : (struct hop_range){0, batches[m].sequences};
            exact_gradients(plan, m, rows, gradients);
            for (int32_t q = 0; q < probes; q++) {
                double sum = 0;
                direction_values(m, first + q, v, distribution, z);
                for (size_t i = 0; i < total; i++)
                    sum += (double)gradients[i] * (double)z[i];
                g[n + q * values + v] = sum;
            }
        }
        n += probes * values;
    }
    free(z);
    free(gradients);
    return n;
}

static double distance(const double *a, const double *b, int32_t n)
{
    double squares = 0, size = 0;
    for (int32_t i = 0; i < n; i++) {
        squares += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    assert_true(size > 0);
    return sqrt(squares / size);
}

/* The gradients of the front's parts, one after the other. */
static void front_gradients(const struct hop_executor *executor, float *out)
{
    for (int32_t p = 0; p < FRONT; p++) {
        const struct hop_parameters *const parameters =
            hop_stage_parameters(executor->parts[p].stage);
        memcpy(out, parameters->gradients, parameters->total * sizeof *out);
        out += parameters->total;
    }
}

/* Adds derivatives of a pass times their directions to a mean. */
static void add_mean(const struct hop_plan *plan, const double *g, int32_t first, int32_t probes,
                     enum hop_distribution distribution, double *mean)
{
    const size_t total = front_total();
    float *const z = floats(total);
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        const int32_t values = plan->directions == HOP_PER_SAMPLE ? batches[m].sequences : 1;
        for (int32_t i = 0; i < probes * values; i++, g++) {
            direction_values(m, first + i / values, i % values, distribution, z);
            for (size_t e = 0; e < total; e++)
                mean[e] += *g * (double)z[e] / (plan->probes + plan->exit_probes);
        }
    }
    free(z);
}

/* The gradient that a pass leaves is the mean of all its g z. */
static void check_estimate(const struct hop_executor *executor, const struct hop_pass *pass,
                           enum hop_distribution distribution)
{
    const size_t total = front_total();
    float *const gradients = floats(total);
    double *const mean = calloc(total, sizeof *mean), *const given = calloc(total, sizeof *given);
    assert_true(mean && given);
    add_mean(executor->plan, pass->derivative, 0, PROBES, distribution, mean);
    if (pass->exit_derivatives)
        add_mean(executor->plan, pass->exit_derivative, PROBES, EXITS, distribution, mean);
    front_gradients(executor, gradients);
    for (size_t i = 0; i < total; i++)
        given[i] = (double)gradients[i];
    const double error = distance(given, mean, (int32_t)total);
    if (!(error < 1e-5))
        fail_msg("the gradient differs from the mean of g z by %g", error);
    free(gradients);
    free(mean);
    free(given);
}

struct outcome {
    double derivative[MOST], exit_derivative[MOST];
    int32_t derivatives, exit_derivatives;
};

static struct outcome run(const struct hop_plan *plan, struct options options)
{
    struct hop_error err = {0};
    struct hop_pass pass;
    struct outcome out;
    struct hop_executor *const executor = create(plan, options);
    assert_ok(hop_executor_run(executor, 0, STEP, batches, &pass, &err));
    check_estimate(executor, &pass, options.distribution);
    out.derivatives = pass.derivatives;
    out.exit_derivatives = pass.exit_derivatives;
    memcpy(out.derivative, pass.derivative, (size_t)pass.derivatives * sizeof(double));
    if (pass.exit_derivatives)
        memcpy(out.exit_derivative, pass.exit_derivative,
               (size_t)pass.exit_derivatives * sizeof(double));
    hop_executor_free(executor);
    return out;
}

static const struct {
    enum hop_directions directions;
    enum hop_distribution distribution;
} kinds[] = {{HOP_SHARED, HOP_GAUSSIAN},
             {HOP_SHARED, HOP_RADEMACHER},
             {HOP_PER_SAMPLE, HOP_GAUSSIAN},
             {HOP_PER_SAMPLE, HOP_RADEMACHER}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void test_boundary_is_exact(void **state)
{
    (void)state;
    const struct hop_plan exact = exact_plan(support_tiny_config().blocks);
    for (int k = 0; k < KINDS; k++) {
        double g[MOST];
        const struct hop_plan plan = front_plan(HOP_BOUNDARY, kinds[k].directions);
        const struct outcome out =
            run(&plan, (struct options){.distribution = kinds[k].distribution});
        const int32_t n =
            exact_derivatives(&exact, 0, PROBES, kinds[k].directions, kinds[k].distribution, g);
        assert_int_equal(out.derivatives, n);
        const double error = distance(out.derivative, g, n);
        print_message("%s, %s: %d derivatives, off by %.2e\n",
                      hop_directions_names[kinds[k].directions],
                      hop_distribution_names[kinds[k].distribution], n, error);
        assert_true(error < 1e-5);
    }
}

static void assert_between(double value, double least, double most)
{
    if (!(value > least && value < most))
        fail_msg("%g is not between %g and %g", value, least, most);
}

/* By how much halving epsilon brings differences nearer to <gradient, z>. */
static void check_order(enum hop_estimator estimator, double least, double most)
{
    static const float epsilons[] = {1.0f / 128, 1.0f / 256};
    const struct hop_plan exact = exact_plan(support_tiny_config().blocks);
    const struct hop_plan exact_exit = exact_plan(FRONT);
    for (int k = 0; k < KINDS; k++) {
        double g[MOST], exit[MOST], error[2], exit_error[2];
        const int32_t n =
            exact_derivatives(&exact, 0, PROBES, kinds[k].directions, kinds[k].distribution, g);
        const int32_t exits = exact_derivatives(&exact_exit, PROBES, EXITS, kinds[k].directions,
                                                kinds[k].distribution, exit);
        for (int e = 0; e < 2; e++) {
            struct hop_plan plan = front_plan(estimator, kinds[k].directions);
            plan.exit_probes = EXITS;
            const struct outcome out =
                run(&plan, (struct options){.epsilon = epsilons[e],
                                            .distribution = kinds[k].distribution});
            assert_int_equal(out.derivatives, n);
            assert_int_equal(out.exit_derivatives, exits);
            error[e] = distance(out.derivative, g, n);
            exit_error[e] = distance(out.exit_derivative, exit, exits);
        }
        print_message("%s, %s, %s: off by %.2e and %.2e; exits by %.2e and %.2e\n",
                      hop_estimator_names[estimator], hop_directions_names[kinds[k].directions],
                      hop_distribution_names[kinds[k].distribution], error[0], error[1],
                      exit_error[0], exit_error[1]);
        assert_between(error[0] / error[1], least, most);
        assert_between(exit_error[0] / exit_error[1], least, most);
    }
}

static void test_difference(void **state)
{
    (void)state;
    check_order(HOP_DIFFERENCE, 1.6, 2.4);
}

static void test_central(void **state)
{
    (void)state;
    check_order(HOP_CENTRAL, 3.2, 4.8);
}

/* Exit probes against the full model: all of a micro-batch are off by C / epsilon. */
static void test_full_model(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        const struct options options = {.epsilon = 0.01f, .distribution = kinds[k].distribution};
        struct hop_plan plan = front_plan(HOP_DIFFERENCE, kinds[k].directions);
        plan.exit_probes = EXITS;
        const struct outcome own = run(&plan, options);
        plan.exit_base = HOP_EXIT_FULL_MODEL;
        const struct outcome full = run(&plan, options);
        const double *a = full.exit_derivative, *b = own.exit_derivative;
        for (int32_t m = 0; m < MICRO_BATCHES; m++) {
            const int32_t values = kinds[k].directions == HOP_PER_SAMPLE ? batches[m].sequences : 1;
            for (int32_t v = 0; v < values; v++) {
                assert_true(fabs(a[v] - b[v]) > 1e-2);
                for (int32_t q = 1; q < EXITS; q++)
                    assert_close(a[q * values + v] - b[q * values + v], a[v] - b[v], 1e-3);
            }
            a += EXITS * values;
            b += EXITS * values;
        }
        assert_memory_equal(full.derivative, own.derivative,
                            (size_t)own.derivatives * sizeof(double));
    }
}

/* Of the last block in front of the gradient, down_proj gets what backprop gives it; what does not
 * write into the residual stream gets nothing. */
static void test_feedback(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_pass pass;
    const size_t total = front_total();
    float *const expected = floats(total), *const one = floats(total), *const given = floats(total);
    const struct hop_plan exact = exact_plan(support_tiny_config().blocks);
    const struct hop_plan plan = front_plan(HOP_FEEDBACK, HOP_SHARED);
    struct hop_executor *const executor = create(&plan, (struct options){.epsilon = 1});
    assert_ok(hop_executor_run(executor, 0, STEP, batches, &pass, &err));
    assert_int_equal(pass.derivatives, 0);
    front_gradients(executor, given);
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        exact_gradients(&exact, m, (struct hop_range){0, batches[m].sequences}, one);
        for (size_t i = 0; i < total; i++)
            expected[i] += one[i];
    }
    const struct hop_parameters *const first = hop_stage_parameters(executor->parts[0].stage);
    const struct hop_parameters *const last = hop_stage_parameters(executor->parts[1].stage);
    for (size_t p = 0; p < last->count; p++) {
        const struct hop_parameter *const item = &last->items[p];
        const float *const gradient = last->gradients + item->offset;
        const bool writes = item->target == HOP_O_PROJ || item->target == HOP_DOWN_PROJ;
        assert_int_equal(support_norm(gradient, item->count) > 0, writes);
        assert_int_equal(support_norm(first->gradients + item->offset, item->count) > 0, writes);
        if (item->target == HOP_DOWN_PROJ)
            assert_true(support_error(gradient, expected + first->total + item->offset,
                                      item->count) < 1e-5);
    }
    hop_executor_free(executor);
    free(expected);
    free(one);
    free(given);
}

static int set_up(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static const int32_t lengths[MICRO_BATCHES][SEQUENCES] = {{4, 7, 3, 9}, {8, 5, 6}};
    const struct hop_model_config model = support_tiny_config();
    assert_ok(hop_transport_open(&transport, &err));
    assert_ok(hop_weights_random(&model, 3, HOP_F32, &weights, &err));
    int64_t labels = 0;
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        support_batch_random(&content[m], model.vocabulary, lengths[m], SEQUENCES - m);
        batches[m] = content[m].batch;
        batches[m].micro_batch = m;
        labels += batches[m].labels;
    }
    for (int32_t m = 0; m < MICRO_BATCHES; m++)
        batches[m].label_total = labels;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hop_weights_free(weights);
    hop_transport_close(&transport);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boundary_is_exact), cmocka_unit_test(test_difference),
        cmocka_unit_test(test_central),           cmocka_unit_test(test_full_model),
        cmocka_unit_test(test_feedback),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
