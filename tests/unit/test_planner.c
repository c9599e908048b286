/* The planners against exhaustive search, worked examples, and random plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/price.h"
#include "strategy/closed_forms.h"
#include "strategy/predict.h"
#include "strategy/strategy.h"
#include "support_planner.h"
#include "support_schedule.h"

static const double tie = 1e-9;

static hop_status plan_by(const char *name, const struct hop_plan_request *request,
                          struct hop_plan *plan, struct hop_error *err)
{
    const struct hop_strategy *strategy;
    assert_int_equal(hop_strategy_find(name, &strategy, err), HOP_OK);
    return strategy->plan(request, plan, err);
}

static struct hop_plan must_plan(const char *name, const struct hop_plan_request *request)
{
    struct hop_plan plan;
    struct hop_error err = {0};
    if (plan_by(name, request, &plan, &err) != HOP_OK)
        fail_msg("%s: %s", name, err.message);
    return plan;
}

static void assert_close(double actual, double expected, const char *what)
{
    if (!(fabs(actual - expected) <= tie * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, actual, expected);
}

/* What every plan owes its reader. */
static void assert_sound(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_error err = {0};
    if (hop_plan_check(plan, &err) != HOP_OK)
        fail_msg("%s", err.message);
    assert_true(plan->simulated_seconds == support_simulated(plan, cost));
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        assert_true(part->memory_bytes <= part->memory_limit);
        assert_true(part->memory_limit == cost->devices[part->device].memory);
        assert_true(part->memory_bytes == hop_price_memory(cost, part, part->in_flight));
    }
}

/* One random request, by the planner and by brute force. */
static void compare(const char *name, enum hop_gradient front,
                    const struct hop_plan_request *request, int32_t *infeasible, int32_t *left_out)
{
    const bool formula = request->objective == HOP_OBJECTIVE_FORMULA;
    const struct support_best best =
        support_brute_force(request, request->probes, front, formula, false);
    const bool all =
        request->devices == HOP_DEVICES_ALL || (formula && request->devices == HOP_DEVICES_DEFAULT);
    const bool crowded =
        request->devices != HOP_DEVICES_AUTO && best.usable > request->cost->blocks;
    const double some = all ? INFINITY : best.some;
    struct hop_plan plan;
    struct hop_error err = {0};
    const hop_status status = plan_by(name, request, &plan, &err);
    if (crowded || isinf(fmin(best.all, some))) {
        assert_int_equal(status, HOP_INFEASIBLE);
        assert_true(strlen(err.message) > 20 && !strchr(err.message, '\n'));
        ++*infeasible;
        return;
    }
    if (status != HOP_OK)
        fail_msg("%s; but %lld lines fit, the best takes %g", err.message, (long long)best.lines,
                 fmin(best.all, some));
    assert_sound(&plan, request->cost);
    const double seconds = formula ? plan.formula_seconds : plan.simulated_seconds;
    const bool leaves_out = some < best.all * (1 - tie);
    assert_close(seconds, leaves_out ? some : best.all, formula ? "formula" : "simulated");
    if (!formula)
        assert_close(plan.bound_seconds, plan.simulated_seconds, "bound");
    *left_out += leaves_out;
    if (leaves_out && !formula && !isinf(best.all))
        assert_close(plan.all_devices_seconds, best.all, "all devices");
    else
        assert_true(isnan(plan.all_devices_seconds));
    hop_plan_free(&plan);
}

static void compare_many(const char *name, enum hop_gradient front, enum hop_objective objective,
                         int count, uint64_t state)
{
    int32_t infeasible = 0, left_out = 0;
    for (int n = 0; n < count; n++) {
        const struct support_cluster kind = {.blocks = 10,
                                             .devices = 5,
                                             .lines = 3000,
                                             .links = n % 2,
                                             .tight = n % 3 == 0,
                                             .equal_blocks = n % 5 == 0};
        struct hop_cost_table cost = support_cluster(&kind, &state);
        const struct hop_plan_request request = {
            .cost = &cost,
            .micro_batches = support_between(&state, 1, 5),
            .probes = support_between(&state, 1, 4),
            .probe_batch = support_between(&state, 0, 2),
            .devices = (enum hop_device_use)support_between(&state, 0, 2),
            .bp_only = support_between(&state, 0, 9) == 0,
            .objective = objective};
        compare(name, front, &request, &infeasible, &left_out);
        hop_cost_free(&cost);
    }
    assert_in_range(infeasible, count / 50, count / 2);
    print_message("%d clusters, %d without a plan, %d with idle devices\n", count, infeasible,
                  left_out);
}

static void formula_plans_are_the_best(void **state)
{
    (void)state;
    compare_many("hybridop", HOP_GRADIENT_ZEROTH_ORDER, HOP_OBJECTIVE_FORMULA, 1500, 11);
}

static void simulated_plans_are_the_best(void **state)
{
    (void)state;
    compare_many("hybridop", HOP_GRADIENT_ZEROTH_ORDER, HOP_OBJECTIVE_SIMULATED, 700, 12);
}

static void frozen_plans_are_the_best(void **state)
{
    (void)state;
    compare_many("frozen", HOP_GRADIENT_NONE, HOP_OBJECTIVE_SIMULATED, 250, 13);
    compare_many("frozen", HOP_GRADIENT_NONE, HOP_OBJECTIVE_FORMULA, 250, 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula_plans_are_the_best),
        cmocka_unit_test(simulated_plans_are_the_best),
        cmocka_unit_test(frozen_plans_are_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
