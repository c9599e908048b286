/* Published laws of first-order pipelines, against the simulator: closed forms, bubbles, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "sim/simulate.h"
#include "support_planner.h"
#include "support_schedule.h"
#include "support_systems.h"

enum { MOST_STAGES = 8, MOST_MICRO_BATCHES = 16 };

static struct hop_simulation play(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    const struct hop_strategy *strategy;
    struct hop_schedule schedule;
    struct hop_simulation seen;
    struct hop_error err = {0};
    if (hop_strategy_find(plan->strategy, &strategy, &err) != HOP_OK ||
        strategy->schedule(plan, cost, plan->micro_batches, 0, &schedule, &err) != HOP_OK ||
        hop_simulate(plan, &schedule, cost, NULL, &seen, &err) != HOP_OK)
        fail_msg("%s", err.message);
    hop_schedule_free(&schedule);
    return seen;
}

/* GPipe: T = sum (f + b) + (M - 1) (max f + max b), whatever the stages are. Whole numbers, so that
 * sums are exact. */
static void gpipe_formula_is_the_simulation(void **state)
{
    enum { PIPELINES = 500 };
    (void)state;
    uint64_t random = 7;
    for (int n = 0; n < PIPELINES; n++) {
        double forward[MOST_STAGES], backward[MOST_STAGES];
        const int32_t stages = support_between(&random, 1, MOST_STAGES);
        for (int32_t d = 0; d < stages; d++) {
            forward[d] = support_between(&random, 1, 9);
            backward[d] = support_between(&random, 1, 30);
        }
        struct hop_cost_table cost = support_plain_cluster(stages, stages, forward, backward);
        const struct hop_plan_request request =
            support_request(&cost, support_between(&random, 1, MOST_MICRO_BATCHES));
        struct hop_plan plan = support_must_plan("gpipe", &request);
        if (plan.simulated_seconds != plan.formula_seconds)
            fail_msg("pipeline %d of %d stages, M = %d: %g s, by formula %g", n, stages,
                     plan.micro_batches, plan.simulated_seconds, plan.formula_seconds);
        hop_plan_free(&plan);
        hop_cost_free(&cost);
    }
}

static struct hop_cost_table equal_stages(int32_t stages)
{
    double forward[MOST_STAGES] = {0}, backward[MOST_STAGES] = {0};
    for (int32_t d = 0; d < stages; d++) {
        forward[d] = 1;
        backward[d] = 2;
    }
    struct hop_cost_table cost = support_plain_cluster(stages, stages, forward, backward);
    for (int32_t d = 0; d < stages; d++)
        for (int32_t k = 0; k < stages; k++) {
            cost.devices[d].state_bytes[k] = 1000;
            cost.devices[d].activation_bytes[k] = 1;
        }
    return cost;
}

/* Equal stages: the bubble is (D - 1) / (M + D - 1) with GPipe and 1F1B alike. What stage i keeps
 * is M micro-batches with GPipe, and however many there are, at most D - i with 1F1B. */
static void check_equal_stages(const char *system, int32_t stages, int32_t micro_batches)
{
    struct hop_cost_table cost = equal_stages(stages);
    const struct hop_plan_request request = support_request(&cost, micro_batches);
    struct hop_plan plan = support_must_plan(system, &request);
    struct hop_simulation seen = play(&plan, &cost);
    const double bubble = (stages - 1.0) / (micro_batches + stages - 1.0);
    assert_true(fabs(1 - seen.utilization - bubble) < 1e-12);
    for (int32_t i = 0; i < stages; i++) {
        const int32_t kept = strcmp(system, "gpipe") == 0 ? micro_batches : stages - i;
        assert_true(seen.peak_memory[i] == 1000 + (kept < micro_batches ? kept : micro_batches));
    }
    hop_simulation_free(&seen);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

static void bubbles_and_memory_of_equal_stages(void **state)
{
    (void)state;
    for (int32_t stages = 1; stages <= MOST_STAGES; stages++)
        for (int32_t n = 1; n <= MOST_MICRO_BATCHES; n++) {
            check_equal_stages("gpipe", stages, n);
            check_equal_stages("pipedream-flush", stages, n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_formula_is_the_simulation),
        cmocka_unit_test(bubbles_and_memory_of_equal_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
