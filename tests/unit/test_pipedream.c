/* PipeDream-Flush: its schedule against DeepSpeed's slots, its optimizer against exhaustive search.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/pipedream_flush.h"
#include "strategy/pipedream_optimizer.h"
#include "support_planner.h"
#include "support_schedule.h"
#include "support_systems.h"

enum { MOST_STAGES = 8 };

static struct hop_plan plan_of_times(const double *forward, const double *backward, int32_t devices,
                                     int32_t micro_batches, struct hop_cost_table *cost)
{
    *cost = support_plain_cluster(devices, devices, forward, backward);
    const struct hop_plan_request request = support_request(cost, micro_batches);
    struct hop_plan plan = support_must_plan("pipedream-flush", &request);
    support_must_be_sound(&plan, cost);
    return plan;
}

/* Stage i of D keeps min(D - i, M) micro-batches, and equal stages take (M + D - 1)(f + b). */
static void equal_stages(void **state)
{
    (void)state;
    static const int32_t expected[][3] = {{4, 4, 21}, {4, 8, 33}, {6, 8, 39}, {8, 16, 69}};
    for (int32_t devices = 1; devices <= MOST_STAGES; devices++) {
        for (int32_t n = 1; n <= 20; n++) {
            double forward[MOST_STAGES], backward[MOST_STAGES];
            struct hop_cost_table cost;
            for (int32_t d = 0; d < devices; d++) {
                forward[d] = 1;
                backward[d] = 2;
            }
            struct hop_plan plan = plan_of_times(forward, backward, devices, n, &cost);
            assert_true(plan.simulated_seconds == 3 * (n + devices - 1));
            assert_true(plan.formula_seconds == plan.simulated_seconds);
            for (int32_t p = 0; p < devices; p++)
                assert_int_equal(plan.parts[p].in_flight, devices - p < n ? devices - p : n);
            for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
                if (expected[i][0] == devices && expected[i][1] == n)
                    assert_true(plan.simulated_seconds == expected[i][2]);
            hop_plan_free(&plan);
            hop_cost_free(&cost);
        }
    }
}

/* A closed form that is right where the bottleneck never waits for the stages behind it. */
static void unequal_stages(void **state)
{
    (void)state;
    static const struct {
        double forward[4], backward[4], formula, simulated;
        int32_t devices, micro_batches;
    } cases[] = {
        {{3, 3, 1, 1}, {6, 6, 2, 2}, 45, 45, 4, 4},
        {{1, 3, 1, 1}, {2, 6, 2, 2}, 75, 75, 4, 8},
        {{2, 1, 1, 1}, {4, 2, 2, 2}, 48, 51, 4, 8},
        {{1, 1, 2, 1}, {2, 2, 4, 2}, 30, 31, 4, 4},
        {{3, 2, 1}, {6, 4, 2}, 36, 39, 3, 4},
        {{1, 1, 1, 1}, {20, 2, 2, 2}, 168, 174, 4, 8},
        {{1, 1, 1, 1}, {2, 2, 2, 20}, 177, 177, 4, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_cost_table cost;
        struct hop_plan plan = plan_of_times(cases[i].forward, cases[i].backward, cases[i].devices,
                                             cases[i].micro_batches, &cost);
        assert_true(plan.formula_seconds == cases[i].formula);
        assert_true(plan.simulated_seconds == cases[i].simulated);
        hop_plan_free(&plan);
        hop_cost_free(&cost);
    }
}

/* What stage i of D does in step k, as DeepSpeed's TrainSchedule says: 'F', 'B' and the
 * micro-batch, or '.' */
static char deepspeed(int32_t devices, int32_t n, int32_t i, int32_t k, int32_t *m)
{
    const bool even = k % 2 == 0, forward = k % 2 == i % 2;
    if (forward)
        *m = even ? k / 2 - i / 2 : (k - 1) / 2 - i / 2;
    else
        *m = even ? k / 2 - devices + (i + 1) / 2 : (k - 1) / 2 - devices + 1 + i / 2;
    return *m < 0 || *m >= n ? '.' : forward ? 'F' : 'B';
}

static void the_order_is_deepspeeds(void **state)
{
    (void)state;
    const double one[MOST_STAGES] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int32_t devices = 1; devices <= MOST_STAGES; devices++) {
        for (int32_t n = 1; n <= 12; n++) {
            struct hop_cost_table cost;
            struct hop_schedule schedule;
            struct hop_error err = {0};
            struct hop_plan plan = plan_of_times(one, one, devices, n, &cost);
            assert_int_equal(hop_pipedream_schedule(&plan, &cost, n, 0, &schedule, &err), HOP_OK);
            for (int32_t i = 0; i < devices; i++) {
                const struct hop_task *task = schedule.lists[i].tasks;
                for (int32_t k = 0, m; k < 2 * (n + devices - 1); k++) {
                    const char what = deepspeed(devices, n, i, k, &m);
                    if (what == '.')
                        continue;
                    assert_int_equal(task->kind, what == 'F' ? HOP_FORWARD : HOP_BACKWARD);
                    assert_int_equal(task++->micro_batch, m);
                }
                assert_int_equal(task->kind, HOP_STEP);
            }
            hop_schedule_free(&schedule);
            hop_plan_free(&plan);
            hop_cost_free(&cost);
        }
    }
}

static void memory_and_missing_devices(void **state)
{
    (void)state;
    const double forward[] = {1, 1, 1}, backward[] = {1, 0, 1};
    char text[128];
    struct hop_cost_table cost = support_plain_cluster(6, 3, forward, backward);
    struct hop_plan_request request = support_request(&cost, 4);
    support_must_refuse("pipedream-flush", &request, HOP_INFEASIBLE,
                        "d1 has no backward times and pipedream-flush runs backward on every "
                        "device");
    request.bp_only = true;
    struct hop_plan plan = support_must_plan("pipedream-flush", &request);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,3) d2[3,6)");
    hop_plan_free(&plan);
    request.bp_only = false;
    support_slow_backward(&cost, 10);
    for (int32_t d = 0; d < 3; d++) {
        cost.devices[d].memory = 2 * (100 + 3 - d); /* two blocks, min(D - i, M) kept */
        for (int32_t b = 0; b < 6; b++) {
            cost.devices[d].state_bytes[b] = 100;
            cost.devices[d].activation_bytes[b] = 1;
        }
    }
    plan = support_must_plan("pipedream-flush", &request);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,2) d1[2,4) d2[4,6)");
    hop_plan_free(&plan);
    cost.devices[0].memory -= 3;
    support_must_refuse("pipedream-flush", &request, HOP_INFEASIBLE,
                        "d0 cannot hold 2 blocks in 1 part with up to 3 micro-batches kept, as "
                        "pipedream-flush does: 206 bytes needed, 203 there, 3 too many");
    request.objective = HOP_OBJECTIVE_FORMULA;
    cost.devices[0].memory = 101;
    support_must_refuse("pipedream-flush", &request, HOP_INFEASIBLE,
                        "no stages of the 6 blocks, replicated or not, fit 3 devices of 101 bytes");
    const int32_t counts[] = {1, 2, 3};
    request.fixed_blocks = counts;
    cost.devices[0].memory = cost.devices[2].memory = INFINITY;
    plan = support_must_plan("pipedream-flush", &request);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,1) d1[1,3) d2[3,6)");
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* The published objective may replicate stages: heavy gradients forbid it, slow links ask for it.
 */
static void by_formula_stages_are_replicated(void **state)
{
    (void)state;
    const double one[] = {1, 1, 1, 1};
    char text[128];
    struct hop_cost_table cost = support_plain_cluster(3, 4, one, one);
    struct hop_plan_request request = support_request(&cost, 8);
    cost.micro_batch_samples = 8;
    request.objective = HOP_OBJECTIVE_FORMULA;
    struct hop_plan plan = support_must_plan("pipedream-flush", &request);
    support_must_be_sound(&plan, &cost);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,3) d1[0,3) d2[0,3) d3[0,3)");
    assert_true(plan.parts[2].sample_lo == 0.5 && plan.parts[2].sample_hi == 0.75);
    assert_true(plan.simulated_seconds == 8 * 6 / 4.0);
    hop_plan_free(&plan);
    cost.micro_batch_samples = 1; /* no replica without a row */
    support_must_refuse("pipedream-flush", &request, HOP_INFEASIBLE,
                        "no stages of the 3 blocks, replicated or not, fit 4 devices");
    request.bp_only = true;
    cost.devices[3].bp = false;
    plan = support_must_plan("pipedream-flush", &request);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,1) d1[1,2) d2[2,3)");
    hop_plan_free(&plan);
    cost.micro_batch_samples = 8;
    request.bp_only = false;
    for (int32_t i = 0; i < 16; i++)
        cost.bandwidth[i] = i % 5 ? 1 : INFINITY;
    for (int32_t b = 0; b < 3; b++)
        cost.gradient_bytes[b] = b < 2 ? 0 : 1e6;
    plan = support_must_plan("pipedream-flush", &request);
    support_must_be_sound(&plan, &cost);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,2) d1[0,2) d2[0,2) d3[2,3)");
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* Every way to cut a chain into stages and to deal the devices. */
struct search {
    const struct hop_pipedream_model *model;
    int32_t devices;
    double bandwidth, best;
    bool straight;
};

static double since(const double *running, int32_t lo, int32_t hi)
{
    return running[hi - 1] - (lo ? running[lo - 1] : 0);
}

static void extend(struct search *search, int32_t lo, int32_t left, double slowest)
{
    const struct hop_pipedream_model *const model = search->model;
    if (lo == model->states) {
        search->best = left == 0 ? fmin(search->best, slowest) : search->best;
        return;
    }
    for (int32_t m = 1; m <= (search->straight ? 1 : left) && m <= left; m++) {
        for (int32_t hi = lo + 1; hi <= model->states; hi++) {
            const bool whole = lo == 0 && hi == model->states;
            const int32_t kept = left - m + 1 < model->most_kept ? left - m + 1 : model->most_kept;
            if (since(model->held, lo, hi) + kept * since(model->kept, lo, hi) / m >
                    model->memory ||
                (model->most_replicas && m > model->most_replicas))
                continue;
            double seconds =
                (since(model->seconds, lo, hi) +
                 4 * (m - 1) * since(model->gradient, lo, hi) / (search->bandwidth * m)) /
                m;
            /* The authors charge the first stage for no transfer. */
            if (lo && !whole)
                seconds = fmax(seconds, 2 * model->output[lo - 1] / (search->bandwidth * m));
            if (lo && hi < model->states)
                seconds = fmax(seconds, 2 * model->output[hi - 1] / (search->bandwidth * m));
            extend(search, hi, left - m, fmax(slowest, seconds));
        }
    }
}

static void running_sums(double *values, int32_t count, uint64_t *seed, int32_t most)
{
    for (int32_t i = 0; i < count; i++)
        values[i] = support_between(seed, 0, most) + (i ? values[i - 1] : 0);
}

static void the_optimizer_is_exact(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int32_t found = 0;
    for (int32_t i = 0; i < 600; i++) {
        double seconds[6], gradient[6], output[6], held[6], kept[6], best;
        struct hop_pipedream_stage stages[5];
        struct hop_error err = {0};
        int32_t count;
        const int32_t n = support_between(&seed, 1, 6), devices = support_between(&seed, 1, 5);
        running_sums(seconds, n, &seed, 20);
        running_sums(gradient, n, &seed, 10);
        running_sums(held, n, &seed, 10);
        running_sums(kept, n, &seed, 3);
        for (int32_t j = 0; j < n; j++)
            output[j] = support_between(&seed, 0, 20);
        const struct hop_pipedream_model model = {.states = n,
                                                  .seconds = seconds,
                                                  .gradient = gradient,
                                                  .output = output,
                                                  .most_replicas = support_between(&seed, 0, 3),
                                                  .held = held,
                                                  .kept = kept,
                                                  .memory = support_between(&seed, 5, 90),
                                                  .most_kept = support_between(&seed, 1, 4)};
        struct search search = {&model, devices, support_between(&seed, 1, 8), INFINITY,
                                i % 3 == 0};
        extend(&search, 0, devices, 0);
        assert_int_equal(hop_pipedream_optimize(&model, devices, search.bandwidth, search.straight,
                                                stages, &count, &best, &err),
                         HOP_OK);
        if (isinf(search.best)) {
            assert_true(isinf(best) && count == 0);
            continue;
        }
        found++;
        assert_true(fabs(best - search.best) <= 1e-12 * best);
        int32_t used = 0;
        for (int32_t s = 0; s < count; s++) {
            assert_int_equal(stages[s].lo, s ? stages[s - 1].hi : 0);
            used += stages[s].replicas;
        }
        assert_int_equal(stages[count - 1].hi, n);
        assert_int_equal(used, devices);
    }
    assert_true(found > 200);
}

static void random_clusters(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int32_t found = 0, refused = 0;
    for (int32_t i = 0; i < 400; i++) {
        const struct support_cluster kind = {
            .blocks = 12, .devices = 7, .links = i % 2 != 0, .tight = i % 4 == 0};
        struct hop_cost_table cost = support_cluster(&kind, &seed);
        support_slow_backward(&cost, 8);
        cost.micro_batch_samples = support_between(&seed, 1, 4);
        for (int32_t b = 0; b < cost.blocks; b++)
            cost.gradient_bytes[b] = support_between(&seed, 0, 1000);
        struct hop_plan_request request = support_request(&cost, support_between(&seed, 1, 12));
        struct hop_plan plan;
        struct hop_error err = {0};
        request.objective = i % 3 ? HOP_OBJECTIVE_SIMULATED : HOP_OBJECTIVE_FORMULA;
        const hop_status status = support_plan_by("pipedream-flush", &request, &plan, &err);
        if (status == HOP_OK) {
            support_must_be_sound(&plan, &cost);
            if (!kind.links && hop_plan_is_line(&plan))
                assert_true(plan.formula_seconds <= plan.simulated_seconds * (1 + 1e-12));
            hop_plan_free(&plan);
            found++;
        } else {
            assert_int_equal(status, HOP_INFEASIBLE);
            refused++;
        }
        hop_cost_free(&cost);
    }
    assert_true(found > 200 && refused > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_stages),
        cmocka_unit_test(unequal_stages),
        cmocka_unit_test(the_order_is_deepspeeds),
        cmocka_unit_test(memory_and_missing_devices),
        cmocka_unit_test(by_formula_stages_are_replicated),
        cmocka_unit_test(the_optimizer_is_exact),
        cmocka_unit_test(random_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
