/* Closed forms of a pipeline: known values, and that no greedy schedule beats the lower bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "schedule/bound.h"
#include "schedule/greedy.h"
#include "support_schedule.h"

enum { PLANS = 6000, STAGES = 10 };

static void assert_ok(hop_status status, const struct hop_error *err)
{
    if (status != HOP_OK)
        fail_msg("%s", err->message);
}

/* Of one-block stages on devices of their own, one probe a task, links free. */
struct setting {
    int32_t bp_free, stages;
    double forward[STAGES], ratio;
    int32_t micro_batches, probes;
    double head, lower;
};

static struct hop_plan_times times_of(const struct hop_plan *plan,
                                      const struct hop_cost_table *cost)
{
    struct hop_plan_times times;
    struct hop_error err = {0};
    assert_ok(hop_plan_times_create(plan, cost, &times, &err), &err);
    return times;
}

static void assert_setting(const struct setting *s)
{
    int32_t devices[STAGES];
    enum hop_gradient gradients[STAGES];
    for (int32_t i = 0; i < STAGES; i++) {
        devices[i] = i;
        gradients[i] = i < s->bp_free ? HOP_GRADIENT_ZEROTH_ORDER : HOP_GRADIENT_BACKPROP;
    }
    struct hop_plan plan = support_plan(s->stages, devices, gradients);
    struct hop_cost_table cost = support_cost(&plan);
    plan.micro_batches = s->micro_batches;
    plan.probes = s->probes;
    plan.probe_batch = 1;
    for (int32_t i = 0; i < s->stages; i++) {
        cost.devices[i].forward[i] = s->forward[i];
        cost.devices[i].backward[i] = s->ratio * s->forward[i];
    }
    struct hop_plan_times times = times_of(&plan, &cost);
    assert_true(hop_bound_head(&times.times) == s->head);
    const double lower = hop_bound_lower(&times.times);
    if (lower != s->lower)
        fail_msg("lower bound %g, expected %g", lower, s->lower);
    hop_plan_times_free(&times);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

/* Heads from the published table; lower bounds from
 *     max( sum_N + sum_G + ((1 + Q) M - 1) max t_N,
 *          sum_N + (M - 1) max t_N + (1 + beta) sum_G, and the same with M max t on its stage,
 *          max_i sum_N + sum_{j<i} t_j + M (1 + beta + Q) t_i
 *                + min(beta sum_{j<i} t_j, sum_{j>i} t_j) )
 * worked out by hand. */
static void known_settings(void **state)
{
    (void)state;
    const struct setting settings[] = {
        {2, 4, {2, 2, 1, 1}, 2, 4, 1, 23, 21},   {2, 4, {1, 1, 1, 1}, 2, 4, 1, 21, 19},
        {2, 4, {1, 1, 1, 1}, 2, 4, 12, 65, 63},  {2, 6, {1, 1, 2, 2, 2, 2}, 2, 8, 12, 260, 248},
        {2, 4, {2, 2, 1, 1}, 2, 4, 12, 67, 108}, {2, 4, {1, 1, 1, 3}, 2, 4, 2, 49, 63},
        {0, 2, {4, 4}, 2, 2, 0, 36, 36},         {0, 1, {3}, 1, 5, 0, 30, 30},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_setting(&settings[i]);
}

static double greedy_time(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_greedy *greedy;
    struct hop_error err = {0};
    assert_ok(hop_greedy_create(cost, plan->part_count, plan->micro_batches, plan->probes,
                                plan->exit_probes, plan->probe_batch, &greedy, &err),
              &err);
    const double seconds = hop_greedy_makespan(greedy, plan, INFINITY);
    hop_greedy_free(greedy);
    return seconds;
}

/* So that the probes' way on is longer than the way back. */
static void delay_derivatives(const struct hop_plan *plan, struct hop_cost_table *cost)
{
    const int32_t head = plan->parts[plan->part_count - 1].device;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient == HOP_GRADIENT_ZEROTH_ORDER)
            cost->latency[head * plan->devices + plan->parts[p].device] += 40;
}

/* Times are multiples of 1/4, so that nothing is rounded. */
static void nothing_beats_the_lower_bound(void **state)
{
    (void)state;
    uint64_t random = 0xb0d;
    int32_t reached = 0, by_links = 0, reached_by_links = 0;
    int32_t of[HOP_ESTIMATORS] = {0}, reached_of[HOP_ESTIMATORS] = {0}, exits = 0,
            reached_exits = 0;
    for (int32_t n = 0; n < PLANS; n++) {
        struct hop_plan plan = support_random_plan(&random);
        if (n % 8 > 3)
            support_random_estimator(&plan, &random);
        struct hop_cost_table cost = support_random_cost(&plan, &random, 1);
        if (n % 8 > 3)
            support_random_estimator_cost(&cost, &random, 1);
        struct hop_plan_times free_links = times_of(&plan, &cost);
        const double without = hop_bound_lower(&free_links.times);
        if (n % 2)
            support_random_links(&cost, &random, 1);
        if (n % 4 == 3)
            delay_derivatives(&plan, &cost);
        struct hop_plan_times times = times_of(&plan, &cost);
        const double seconds = greedy_time(&plan, &cost);
        const double lower = hop_bound_lower(&times.times);
        if (lower > seconds)
            fail_msg("plan %d: bound %.17g, schedule %.17g", n, lower, seconds);
        assert_true(lower >= without);
        assert_true(lower > 0);
        reached += lower == seconds;
        by_links += lower > without;
        reached_by_links += lower > without && lower == seconds;
        of[plan.estimator] += hop_plan_has_zeroth_order(&plan);
        reached_of[plan.estimator] += hop_plan_has_zeroth_order(&plan) && lower == seconds;
        exits += plan.exit_probes > 0;
        reached_exits += plan.exit_probes > 0 && lower == seconds;
        hop_plan_times_free(&free_links);
        hop_plan_times_free(&times);
        hop_cost_free(&cost);
        hop_plan_free(&plan);
    }
    assert_true(reached > PLANS / 3);
    assert_true(by_links > PLANS / 5);
    assert_true(reached_by_links > PLANS / 50);
    for (int32_t e = 0; e < HOP_ESTIMATORS; e++) {
        assert_true(of[e] > PLANS / 40);
        assert_true(reached_of[e] > of[e] / 20);
    }
    assert_true(exits > PLANS / 20);
    assert_true(reached_exits > exits / 20);
    hop_plan_times_free(NULL);
}

/* Two BP-free devices of `npu` seconds a forward in front of three of 1 and a backward of 2
 * seconds, one block each; 8 micro-batches, links and STEPs free, one probe a task, no limit of
 * memory. */
struct savings {
    double lower, greedy;
};

static struct savings savings_of(enum hop_estimator estimator, double npu, int32_t probes)
{
    const int32_t devices[] = {0, 1, 2, 3, 4};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_ZEROTH_ORDER, HOP_GRADIENT_ZEROTH_ORDER,
                                           HOP_GRADIENT_BACKPROP, HOP_GRADIENT_BACKPROP,
                                           HOP_GRADIENT_BACKPROP};
    struct hop_plan plan = support_plan(5, devices, gradients);
    plan.estimator = estimator;
    plan.micro_batches = 8;
    plan.probes = probes;
    plan.probe_batch = 1;
    struct hop_cost_table cost = support_cost(&plan);
    for (int32_t i = 0; i < 5; i++) {
        cost.devices[i].forward[i] = cost.devices[i].probe[i] = i < 2 ? npu : 1;
        cost.devices[i].backward[i] = 2;
        plan.parts[i].in_flight = plan.micro_batches;
    }
    struct hop_plan_times times = times_of(&plan, &cost);
    const struct savings savings = {hop_bound_lower(&times.times), greedy_time(&plan, &cost)};
    assert_true(savings.lower <= savings.greedy * (1 + 1e-12));
    hop_plan_times_free(&times);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
    return savings;
}

static bool is_near(double value, double expected, double slack)
{
    return fabs(value - expected) <= slack;
}

/* The largest number of probes that makes the step no longer than without. */
static int32_t free_probes(enum hop_estimator estimator, double npu)
{
    const double without = savings_of(estimator, npu, 0).greedy;
    int32_t probes = 0;
    while (savings_of(estimator, npu, probes + 1).greedy <= without * (1 + 1e-12))
        probes++;
    return probes;
}

/* The published table of what tangents save over one-sided differences: simulated times, for a
 * backward of twice the forward. Ratios are printed with two digits. */
static void boundary_saves_what_the_table_says(void **state)
{
    (void)state;
    const int32_t probes[] = {1, 3, 12};
    const double difference[] = {34.2, 50.2, 122.2};
    const struct {
        double npu, ratio[3];
        int32_t free;
    } rows[] = {
        {0.1, {0.88, 0.60, 0.25}, 36}, {0.25, {0.88, 0.60, 0.25}, 14}, {0.5, {0.89, 0.61, 0.43}, 6},
        {1, {0.89, 0.63, 0.85}, 2},    {2, {0.83, 0.96, 0.99}, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int32_t k = 0; k < 3; k++) {
            const struct savings paper = savings_of(HOP_DIFFERENCE, rows[i].npu, probes[k]);
            const struct savings boundary = savings_of(HOP_BOUNDARY, rows[i].npu, probes[k]);
            if (!is_near(boundary.greedy / paper.greedy, rows[i].ratio[k], 0.0051))
                fail_msg("row %zu, %d probes: %g / %g", i, probes[k], boundary.greedy,
                         paper.greedy);
            assert_true(is_near(boundary.lower, boundary.greedy, 1e-9));
            if (i > 0)
                continue;
            assert_true(is_near(paper.greedy, difference[k], 1e-9));
            assert_true(is_near(boundary.greedy, 30.2, 1e-9));
        }
        if (rows[i].free < 0)
            continue;
        assert_int_equal(free_probes(HOP_BOUNDARY, rows[i].npu), rows[i].free);
        assert_int_equal(free_probes(HOP_DIFFERENCE, rows[i].npu), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_settings),
        cmocka_unit_test(nothing_beats_the_lower_bound),
        cmocka_unit_test(boundary_saves_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
