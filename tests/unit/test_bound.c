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
    for (int32_t n = 0; n < PLANS; n++) {
        struct hop_plan plan = support_random_plan(&random);
        struct hop_cost_table cost = support_random_cost(&plan, &random, 1);
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
        hop_plan_times_free(&free_links);
        hop_plan_times_free(&times);
        hop_cost_free(&cost);
        hop_plan_free(&plan);
    }
    assert_true(reached > PLANS / 3);
    assert_true(by_links > PLANS / 5);
    assert_true(reached_by_links > PLANS / 50);
    hop_plan_times_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_settings),
        cmocka_unit_test(nothing_beats_the_lower_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
