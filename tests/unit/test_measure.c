/* Fits, and measurements of this machine against the cost model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_files.h"

#include "cluster/measure.h"
#include "cluster/measure_fit.h"
#include "model/stage.h"
#include "model/weights.h"

/* Fits */

static void line_through_exact_points(void **state)
{
    (void)state;
    const double x[] = {1e9, 2e9, 4e9, 3.2e10}, overhead = 2.5e-4, rate = 8e11;
    double y[4];
    for (int i = 0; i < 4; i++)
        y[i] = overhead + x[i] / rate;
    const struct hop_line line = hop_fit_line(4, x, y);
    ASSERT_NEAR(line.intercept / overhead, 1, 1e-9);
    ASSERT_NEAR(line.slope * rate, 1, 1e-9);
    ASSERT_NEAR(line.r2, 1, 1e-9);
}

/* The quick points weigh as much as the slow ones: 1 % of noise moves the slope by about 1 % and
 * the intercept by a few percent, although it is a hundredth of the slowest time. */
static void line_through_noisy_points(void **state)
{
    (void)state;
    const double noise[] = {0.01, -0.008, 0.006, -0.01, 0.009, -0.007};
    double x[6], y[6];
    for (int i = 0; i < 6; i++) {
        x[i] = 1e9 * (double)(1 << i);
        y[i] = (5e-4 + x[i] / 1e12) * (1 + noise[i]);
    }
    const struct hop_line line = hop_fit_line(6, x, y);
    ASSERT_NEAR(line.slope * 1e12, 1, 0.02);
    ASSERT_NEAR(line.intercept / 5e-4, 1, 0.06);
    assert_true(line.r2 > 0.999 && line.r2 < 1);
}

static void lines_that_make_no_sense(void **state)
{
    (void)state;
    const double x[] = {1, 2, 4}, below[] = {0.8, 2, 4.4}, falling[] = {3, 2, 1}, one[] = {5};
    struct hop_line line = hop_fit_line(3, x, below);
    assert_true(line.intercept == 0);
    assert_true(line.slope > 0.8 && line.slope < 1.1);
    line = hop_fit_line(3, x, falling);
    assert_true(line.intercept == 0 && line.slope > 0);
    line = hop_fit_line(1, x + 2, one);
    assert_true(line.intercept == 0);
    ASSERT_NEAR(line.slope, 1.25, 1e-12);
    const double same[] = {2, 2};
    line = hop_fit_line(2, same, below + 1);
    assert_true(line.intercept == 0 && line.slope > 0);
}

enum { ROWS = 12, COLUMNS = 4 };

/* Bytes of made-up stages: columns of very different size, as parameters and a constant are. */
static void make_system(double *x, double *y, const double *c, double noise)
{
    for (int r = 0; r < ROWS; r++) {
        const double blocks = 1 << r % 3, slots = r / 3 % 2, rank = r / 6 + 1;
        const double row[COLUMNS] = {6e7 * blocks, 5e4 * blocks * rank, 6e7 * blocks * slots, 1};
        y[r] = 0;
        for (int k = 0; k < COLUMNS; k++) {
            x[r * COLUMNS + k] = row[k];
            y[r] += c[k] * row[k];
        }
        y[r] *= 1 + noise * (r % 2 ? 1 : -1);
    }
}

static void linear_system(void **state)
{
    (void)state;
    struct hop_error err = {0};
    const double c[COLUMNS] = {2, 16, 0.21, 4e7};
    double x[ROWS * COLUMNS], y[ROWS], found[COLUMNS], r2;
    make_system(x, y, c, 0);
    ASSERT_OK(hop_fit_linear(ROWS, COLUMNS, x, y, found, &r2, &err));
    for (int k = 0; k < COLUMNS; k++)
        ASSERT_NEAR(found[k] / c[k], 1, 1e-6);
    ASSERT_NEAR(r2, 1, 1e-12);
    make_system(x, y, c, 0.001);
    ASSERT_OK(hop_fit_linear(ROWS, COLUMNS, x, y, found, &r2, &err));
    ASSERT_NEAR(found[0] / c[0], 1, 0.01);
    ASSERT_NEAR(found[2] / c[2], 1, 0.02);
    assert_true(r2 > 0.9999 && r2 < 1);
}

static void linear_system_without_an_answer(void **state)
{
    (void)state;
    struct hop_error err = {0};
    /* The second column is twice the first. */
    const double x[] = {1, 2, 2, 4, 3, 6}, y[] = {1, 2, 3};
    double found[3] = {7, 7, 7}, r2 = 7;
    ASSERT_REFUSED(hop_fit_linear(3, 2, x, y, found, &r2, &err), HOP_NUMERIC, "do not determine");
    ASSERT_REFUSED(hop_fit_linear(1, 2, x, y, found, &r2, &err), HOP_NUMERIC, "do not determine");
    assert_true(found[0] == 7 && found[1] == 7 && r2 == 7);
}

static void medians(void **state)
{
    (void)state;
    double odd[] = {9, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {5}, spread;
    ASSERT_NEAR(hop_median(3, odd, &spread), 2, 0);
    ASSERT_NEAR(spread, (5.5 - 1.5) / 2, 1e-12);
    ASSERT_NEAR(hop_median(4, even, NULL), 2.5, 0);
    ASSERT_NEAR(hop_median(1, one, &spread), 5, 0);
    ASSERT_NEAR(spread, 0, 0);
}

/* Measurements */

static struct hop_model_config small_model(void)
{
    return (struct hop_model_config){.hidden = 256,
                                     .intermediate = 768,
                                     .blocks = 6,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .head_dim = 32,
                                     .vocabulary = 1000,
                                     .max_positions = 128,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 10000,
                                     .rope_factor = 1};
}

static struct hop_measure_request request_for(const struct hop_model_config *model,
                                              const struct hop_ops *ops, int32_t tokens,
                                              double seconds)
{
    struct hop_measure_request request = {.model = *model,
                                          .lora = {.rank = 8, .alpha = 16},
                                          .dtype = HOP_BF16,
                                          .ops = ops,
                                          .threads = 1,
                                          .tokens = tokens,
                                          .labels = 4,
                                          .rows = {1, 2, 4},
                                          .row_count = 3,
                                          .probes = {1, 2},
                                          .probe_count = 2,
                                          .seconds = seconds};
    request.lora.targets[HOP_Q_PROJ] = request.lora.targets[HOP_V_PROJ] = true;
    return request;
}

static const struct hop_ops *backend(void)
{
    const struct hop_ops *const cpu = hop_backend_find("cpu");
    return cpu ? cpu : hop_backend_find("reference");
}

static void check_memory(const struct hop_measurement *m)
{
    const struct hop_measured_memory *const memory = &m->memory;
    for (int32_t s = 0; s < memory->count; s++)
        ASSERT_NEAR(memory->stages[s].estimate / memory->stages[s].held, 1, 0.03);
    for (int t = 0; t < HOP_MEMORY_TERMS; t++)
        if (memory->term[t].held > 0)
            ASSERT_NEAR(memory->term[t].estimate / memory->term[t].held, 1, 0.03);
    assert_true(memory->r2 > 0.9999);
    /* bf16; norm gains are held in the file's type and in f32. */
    ASSERT_NEAR(memory->lambda_1, 2, 0.06);
}

static double kept_per_parameter(const struct hop_measurement *m)
{
    const struct hop_stage_config config = {
        .model = m->request.model,
        .lora = m->request.lora,
        .dtype = m->request.dtype,
        .hi = 1,
        .gradient = HOP_GRADIENT_BACKPROP,
        .limits = {.sequences = 4, .tokens = 4 * m->request.tokens, .labels = 16},
        .slots = 1};
    return (double)hop_stage_bytes(&config).kept /
           (double)hop_model_block_parameters(&m->request.model);
}

static void times_and_bytes(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_measurement m;
    const struct hop_model_config model = small_model();
    const struct hop_measure_request request = request_for(&model, backend(), 32, 1);
    ASSERT_OK(hop_measure(&request, &m, &err));
    assert_int_equal(m.stage_count, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(m.points[r].block.forward.repetitions > 0);
        assert_true(m.points[r].block.forward.seconds > 0);
        assert_true(m.points[r].block.backward.seconds > 0);
        assert_true(m.points[r].head.forward.seconds > 0);
    }
    /* Four times the work: anything near the same would be overhead only. */
    assert_true(m.points[2].block.forward.seconds > 1.3 * m.points[0].block.forward.seconds);
    assert_true(m.rate.rate > 0 && m.rate.overhead >= 0 && m.rate.points == 3);
    assert_true(m.rate.backward_ratio > 0.2 && m.rate.backward_ratio < 10);
    assert_true(m.bandwidth > 1e8 && m.available > 0 && m.step.seconds > 0);
    check_memory(&m);
    /* Values, gradients and two moments of f32. */
    ASSERT_NEAR(m.memory.lambda_23, 16, 0.5);
    ASSERT_NEAR(m.memory.lambda_4 / kept_per_parameter(&m), 1, 0.03);
}

static void forward_only(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_measurement m;
    struct hop_cost_table cost;
    const struct hop_model_config model = small_model();
    const struct hop_ops ops = hop_ops_forward_only(backend());
    const struct hop_measure_request request = request_for(&model, &ops, 32, 0.5);
    ASSERT_OK(hop_measure(&request, &m, &err));
    assert_false(m.bp);
    assert_true(isnan(m.rate.backward_ratio) && m.memory.lambda_4 == 0);
    assert_int_equal(m.points[0].block.backward.repetitions, 0);
    check_memory(&m);
    /* Two probes at once hold two sets of perturbed values. */
    ASSERT_NEAR(m.memory.lambda_23, 16 + 2 * 4, 0.7);
    ASSERT_OK(hop_measured_cost(&m, "npu", &cost, &err));
    assert_false(cost.devices[0].bp);
    assert_null(cost.devices[0].backward);
    hop_cost_free(&cost);
}

static void cost_of_all_blocks(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_measurement m;
    struct hop_cost_table cost, model_cost;
    const struct hop_model_config model = small_model();
    const struct hop_measure_request request = request_for(&model, backend(), 16, 0.5);
    ASSERT_OK(hop_measure(&request, &m, &err));
    ASSERT_OK(hop_measured_cost(&m, "gpu", &cost, &err));
    const struct hop_cost_device *const device = &cost.devices[0];
    assert_int_equal(cost.blocks, 6);
    assert_true(cost.micro_batch_samples == 4);
    assert_string_equal(device->name, "gpu");
    for (int b = 1; b < 5; b++) {
        assert_true(device->forward[b] == m.points[2].block.forward.seconds);
        assert_true(device->backward[b] == m.points[2].block.backward.seconds);
        assert_true(device->step[b] == m.step.seconds);
    }
    assert_true(device->forward[0] > device->forward[1]);
    assert_true(device->forward[5] > device->forward[4]);
    const struct hop_workload workload = hop_measured_workload(&m, 4);
    struct hop_device measured = hop_measured_device(&m, "gpu");
    const struct hop_cluster cluster = {.devices = &measured, .count = 1};
    ASSERT_OK(hop_cost_from_model(&workload, &cluster, &model_cost, &err));
    for (int b = 0; b < 6; b++) {
        assert_true(device->state_bytes[b] == model_cost.devices[0].state_bytes[b]);
        assert_true(device->activation_bytes[b] == model_cost.devices[0].activation_bytes[b]);
    }
    assert_true(device->fixed_bytes > model_cost.devices[0].fixed_bytes);
    hop_cost_free(&cost);
    hop_cost_free(&model_cost);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_measurement m = {.elapsed = 77};
    const struct hop_model_config model = small_model();
    struct hop_measure_request request = request_for(&model, backend(), 1 << 14, 1);
    request.rows[2] = 1 << 15;
    ASSERT_REFUSED(hop_measure(&request, &m, &err), HOP_INFEASIBLE, "use fewer rows");
    assert_true(m.elapsed == 77);
}

/* The cost model on the fitted profile, against the times themselves */

/* How far the times are from being a property of the machine: equal calls that differ, and more
 * work that took less time. INFINITY: a size was not measured for lack of time. */
static double unsteadiness(const struct hop_measurement *m)
{
    double worst = 0;
    for (int32_t r = 0; r < m->request.row_count; r++) {
        const struct hop_measured_part *const block = &m->points[r].block;
        if (block->forward.seconds <= 0 || block->backward.seconds <= 0)
            return INFINITY;
        worst = fmax(worst, fmax(block->forward.spread, block->backward.spread));
        if (r == 0)
            continue;
        const struct hop_measured_part *const less = &m->points[r - 1].block;
        worst = fmax(worst, less->forward.seconds / block->forward.seconds - 1);
        worst = fmax(worst, less->backward.seconds / block->backward.seconds - 1);
    }
    return worst;
}

/* The largest error over the micro-batch sizes; *spread: the largest one of equal calls. */
static double prediction_error(const char *what, const struct hop_measure_request *request,
                               double *spread)
{
    struct hop_error err = {0};
    struct hop_measurement m;
    double worst = 0;
    ASSERT_OK(hop_measure(request, &m, &err));
    *spread = fmax(*spread, unsteadiness(&m));
    /* Any two points lie on a line. */
    if (m.rate.points < 3)
        return INFINITY;
    struct hop_device device = hop_measured_device(&m, "here");
    const struct hop_cluster cluster = {.devices = &device, .count = 1};
    for (int32_t r = 0; r < m.request.row_count; r++) {
        const struct hop_workload workload = hop_measured_workload(&m, m.request.rows[r]);
        const struct hop_measured_part *const block = &m.points[r].block;
        struct hop_cost_table cost;
        ASSERT_OK(hop_cost_from_model(&workload, &cluster, &cost, &err));
        const double forward = cost.devices[0].forward[1] / block->forward.seconds - 1;
        const double backward = cost.devices[0].backward[1] / block->backward.seconds - 1;
        print_message("%s, %d samples of %d tokens: forward %.3f ms, predicted %+.1f %%; backward "
                      "%.3f ms, predicted %+.1f %%\n",
                      what, m.request.rows[r], m.request.tokens, 1e3 * block->forward.seconds,
                      100 * forward, 1e3 * block->backward.seconds, 100 * backward);
        worst = fmax(worst, fmax(fabs(forward), fabs(backward)));
        hop_cost_free(&cost);
    }
    return worst;
}

/* Other programs slow down some of the points and not others: the best of a few tries counts. Where
 * equal calls took different times in every one of them, there was nothing to predict. */
static void check_prediction(const char *what, const struct hop_measure_request *request)
{
#ifdef __SANITIZE_ADDRESS__
    print_message("skip: times of a sanitizer build say nothing\n");
    skip();
#endif
    double best = INFINITY, steadiest = INFINITY;
    for (int i = 0; i < 5 && best > 0.3; i++) {
        double spread = 0;
        best = fmin(best, prediction_error(what, request, &spread));
        steadiest = fmin(steadiest, spread);
    }
    if (best <= 0.3)
        return;
    if (isinf(steadiest)) {
        print_message("skip: this machine is too slow to measure all sizes in the time allowed\n");
        skip();
    }
    if (steadiest > 0.15) {
        print_message("skip: equal calls took times that differ by %.0f %% and more; let nothing "
                      "else run meanwhile\n",
                      100 * steadiest);
        skip();
    }
    fail_msg("%s: the cost model is off by %.0f %%", what, 100 * best);
}

static void predicts_the_bundled_model(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_model_config model;
    const char *const folder = HOP_SOURCE_DIR "/models/wordnet-3m";
    ASSERT_OK(hop_model_config_load(folder, &model, &err));
    struct hop_measure_request request = request_for(&model, backend(), 64, 1.5);
    assert_true(hop_measure_has_weights(folder));
    request.directory = folder;
    check_prediction("wordnet-3m", &request);
}

static void predicts_a_wide_block(void **state)
{
    (void)state;
    struct hop_model_config model = small_model();
    model.hidden = 2048;
    model.intermediate = 8192;
    model.heads = 32;
    model.kv_heads = 8;
    model.head_dim = 64;
    model.blocks = 2;
    struct hop_measure_request request = request_for(&model, backend(), 16, 5);
    request.rows[2] = 3;
    request.probe_count = 0;
    check_prediction("2048-wide block", &request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_through_exact_points),
        cmocka_unit_test(line_through_noisy_points),
        cmocka_unit_test(lines_that_make_no_sense),
        cmocka_unit_test(linear_system),
        cmocka_unit_test(linear_system_without_an_answer),
        cmocka_unit_test(medians),
        cmocka_unit_test(times_and_bytes),
        cmocka_unit_test(forward_only),
        cmocka_unit_test(cost_of_all_blocks),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(predicts_the_bundled_model),
        cmocka_unit_test(predicts_a_wide_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
