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

#include "schedule/estimator.h"
#include "schedule/price.h"
#include "strategy/closed_forms.h"
#include "strategy/line_bound.h"
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
        assert_true(part->memory_bytes ==
                    hop_price_memory(cost, plan, p, part->in_flight, part->pending));
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

static void compare_many(const char *name, enum hop_gradient front,
                         const struct hop_plan_request *estimator, int count, uint64_t state)
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
        struct hop_plan_request request = *estimator;
        support_estimator_costs(&cost);
        request.cost = &cost;
        request.micro_batches = support_between(&state, 1, 5);
        request.probes = support_between(&state, 1, 4);
        request.probe_batch = support_between(&state, 0, 2);
        request.devices = (enum hop_device_use)support_between(&state, 0, 2);
        request.bp_only = support_between(&state, 0, 9) == 0;
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
    const struct hop_plan_request formula = {.objective = HOP_OBJECTIVE_FORMULA};
    compare_many("hybridop", HOP_GRADIENT_ZEROTH_ORDER, &formula, 1500, 11);
}

static void simulated_plans_are_the_best(void **state)
{
    (void)state;
    const struct hop_plan_request difference = {0};
    compare_many("hybridop", HOP_GRADIENT_ZEROTH_ORDER, &difference, 700, 12);
}

static void plans_of_estimators_are_the_best(void **state)
{
    (void)state;
    const struct hop_plan_request requests[] = {
        {.estimator = HOP_CENTRAL},
        {.estimator = HOP_BOUNDARY},
        {.estimator = HOP_BOUNDARY, .directions = HOP_PER_SAMPLE},
        {.estimator = HOP_FEEDBACK},
        {.estimator = HOP_FEEDBACK, .feedback_blocks = 1},
        {.exit_probes = 1},
        {.exit_probes = 3, .exit_base = HOP_EXIT_FULL_MODEL},
        {.estimator = HOP_CENTRAL, .exit_probes = 2},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct hop_plan_request request = requests[i];
        compare_many("hybridop", HOP_GRADIENT_ZEROTH_ORDER, &request, 300, 61 + i);
        request.objective = HOP_OBJECTIVE_FORMULA;
        compare_many("hybridop", HOP_GRADIENT_ZEROTH_ORDER, &request, 300, 71 + i);
    }
}

static void frozen_plans_are_the_best(void **state)
{
    (void)state;
    const struct hop_plan_request simulated = {.estimator = HOP_BOUNDARY};
    const struct hop_plan_request formula = {.objective = HOP_OBJECTIVE_FORMULA};
    const struct hop_plan_request untrained = {.untrained = true, .exit_probes = 2};
    compare_many("frozen", HOP_GRADIENT_NONE, &simulated, 250, 13);
    compare_many("frozen", HOP_GRADIENT_NONE, &formula, 250, 14);
    compare_many("hybridop", HOP_GRADIENT_NONE, &untrained, 250, 15);
}

/* 2 BP-free devices with forward 2, or 3 where they must run backward too, and 2 BP-capable ones
 * with forward 1; backward takes twice as long. */
static struct hop_cost_table worked_example(double bp_free_forward)
{
    const double forward[] = {bp_free_forward, bp_free_forward, 1, 1}, backward[] = {0, 0, 2, 2};
    return support_plain_cluster(4, 4, forward, backward);
}

static void worked_example_is_reproduced(void **state)
{
    (void)state;
    struct hop_cost_table cost = worked_example(2);
    for (int objective = 0; objective < HOP_OBJECTIVES; objective++) {
        const struct hop_plan_request request = {.cost = &cost,
                                                 .micro_batches = 4,
                                                 .probes = 1,
                                                 .devices = HOP_DEVICES_ALL,
                                                 .objective = (enum hop_objective)objective};
        struct hop_plan plan = must_plan("hybridop", &request);
        assert_int_equal(plan.part_count, 4);
        assert_true(plan.formula_seconds == 23);
        assert_true(plan.simulated_seconds == 23);
        assert_true(hop_head_seconds(&plan, &cost) == 23);
        assert_true(hop_tail_seconds(&plan, &cost) == 24);
        hop_plan_free(&plan);
    }
    hop_cost_free(&cost);
}

static void worked_example_of_gpipe(void **state)
{
    (void)state;
    struct hop_cost_table cost = worked_example(3);
    support_slow_backward(&cost, 2);
    struct hop_plan_request request = {.cost = &cost, .micro_batches = 4};
    struct hop_plan plan = must_plan("gpipe", &request);
    assert_true(plan.formula_seconds == 51);
    assert_true(plan.simulated_seconds == 51);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
    /* The BP-capable devices alone: twice the blocks and twice the rows a micro-batch. */
    const double forward[] = {99, 2, 2}, backward[] = {0, 4, 4};
    cost = support_plain_cluster(4, 3, forward, backward);
    request.micro_batches = 2;
    request.bp_only = true;
    plan = must_plan("gpipe", &request);
    assert_int_equal(plan.part_count, 2);
    assert_true(plan.formula_seconds == 36);
    assert_true(plan.simulated_seconds == 36);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* More probes than the published form can price: the same example simulates to 108. */
static void published_form_is_optimistic(void **state)
{
    (void)state;
    struct hop_cost_table cost = worked_example(2);
    const struct hop_plan_request request = {.cost = &cost,
                                             .micro_batches = 4,
                                             .probes = 12,
                                             .devices = HOP_DEVICES_ALL,
                                             .probe_batch = 1};
    struct hop_plan plan = must_plan("hybridop", &request);
    assert_true(plan.formula_seconds == 67);
    assert_true(plan.simulated_seconds == 108);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

static void devices_that_slow_the_run_stay_out(void **state)
{
    (void)state;
    const double forward[] = {500, 1, 1}, backward[] = {0, 1, 1};
    struct hop_cost_table cost = support_plain_cluster(8, 3, forward, backward);
    struct hop_plan_request request = {.cost = &cost, .micro_batches = 4, .probes = 1};
    struct hop_plan plan = must_plan("hybridop", &request);
    assert_int_equal(plan.part_count, 2);
    assert_int_equal(plan.probes, 0);
    assert_true(plan.all_devices_seconds > 1000);
    assert_true(plan.simulated_seconds < 100);
    hop_plan_free(&plan);
    request.devices = HOP_DEVICES_ALL;
    plan = must_plan("hybridop", &request);
    assert_int_equal(plan.part_count, 3);
    assert_true(isnan(plan.all_devices_seconds));
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* A device that changes nothing takes part: one without cost. */
static void ties_use_every_device(void **state)
{
    (void)state;
    const double forward[] = {1, 1}, backward[] = {0, 2};
    struct hop_cost_table cost = support_plain_cluster(2, 2, forward, backward);
    cost.devices[0].forward[0] = cost.devices[0].probe[0] = 0;
    cost.devices[1].forward[0] = cost.devices[1].probe[0] = 0;
    cost.devices[1].backward[0] = 0;
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 3, .bp_only = false};
    struct hop_plan plan = must_plan("frozen", &request);
    assert_int_equal(plan.part_count, 2);
    assert_true(isnan(plan.all_devices_seconds));
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

static void assert_equal_plans(const struct hop_plan *a, const struct hop_plan *b)
{
    assert_int_equal(a->part_count, b->part_count);
    for (int32_t p = 0; p < a->part_count; p++) {
        assert_int_equal(a->parts[p].device, b->parts[p].device);
        assert_int_equal(a->parts[p].lo, b->parts[p].lo);
        assert_int_equal(a->parts[p].hi, b->parts[p].hi);
    }
    assert_true(a->simulated_seconds == b->simulated_seconds);
    assert_true(a->bound_seconds == b->bound_seconds);
}

/* Too large for brute force: no random plan is better, or faster than what was proved. */
static void beat_random_lines(const struct hop_plan_request *estimator, uint64_t random)
{
    enum { CLUSTERS = 12, LINES = 300 };
    int planned = 0;
    for (int n = 0; n < CLUSTERS; n++) {
        const struct support_cluster kind = {.blocks = 32,
                                             .devices = 10,
                                             .links = n % 2,
                                             .tight = n % 3 == 0,
                                             .equal_blocks = n % 4 < 2};
        struct hop_cost_table cost = support_cluster(&kind, &random);
        struct hop_plan_request request = *estimator;
        support_estimator_costs(&cost);
        request.cost = &cost;
        request.micro_batches = 8;
        request.probes = support_between(&random, 1, 6);
        request.probe_batch = support_between(&random, 0, 2);
        request.devices = HOP_DEVICES_ALL;
        struct hop_plan plan, again, line;
        struct hop_error err = {0};
        if (plan_by("hybridop", &request, &plan, &err) != HOP_OK) {
            if (cost.device_count <= cost.blocks &&
                support_random_line(&request, request.probes, &random, &line))
                fail_msg("%s", err.message);
            hop_cost_free(&cost);
            continue;
        }
        planned++;
        assert_sound(&plan, &cost);
        assert_true(plan.bound_seconds <= plan.simulated_seconds);
        for (int i = 0; i < LINES && support_random_line(&request, request.probes, &random, &line);
             i++) {
            const double seconds = support_simulated(&line, &cost);
            assert_true(seconds >= plan.simulated_seconds * (1 - tie));
            assert_true(seconds >= plan.bound_seconds * (1 - tie));
            hop_plan_free(&line);
        }
        again = must_plan("hybridop", &request);
        assert_equal_plans(&plan, &again);
        hop_plan_free(&plan);
        hop_plan_free(&again);
        hop_cost_free(&cost);
    }
    assert_true(planned >= CLUSTERS / 2);
}

static const struct hop_plan_request estimators[] = {
    {.estimator = HOP_DIFFERENCE},
    {.estimator = HOP_CENTRAL},
    {.estimator = HOP_BOUNDARY},
    {.estimator = HOP_FEEDBACK},
    {.exit_probes = 2},
    {.estimator = HOP_FEEDBACK, .feedback_blocks = 1},
};
enum { ESTIMATORS = sizeof estimators / sizeof *estimators };

static void large_plans_beat_random_ones(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < ESTIMATORS; i++)
        beat_random_lines(&estimators[i], 21 + i);
}

static int32_t type_of(const struct hop_pipeline *pipeline, int32_t device)
{
    for (int32_t t = 0; t < pipeline->type_count; t++)
        for (int32_t i = 0; i < pipeline->types[t].count; i++)
            if (pipeline->types[t].devices[i] == device)
                return t;
    fail_msg("device %d has no type", device);
    return -1;
}

/* However much of a line is known, what it says of the whole is no more than the whole takes. */
static double assert_bounded(const struct hop_line_bound *bound, const struct hop_plan *line,
                             double seconds)
{
    struct hop_line_start start = hop_line_empty();
    double known = hop_line_seconds(bound, &start);
    for (int32_t p = 0; p < line->part_count; p++) {
        assert_true(known <= seconds * (1 + tie));
        start = hop_line_extend(bound, &start, type_of(bound->pipeline, line->parts[p].device),
                                line->parts[p].hi);
        known = hop_line_seconds(bound, &start);
    }
    assert_true(known <= seconds * (1 + tie));
    return known;
}

static void check_bounds(const struct hop_plan_request *estimator, uint64_t random)
{
    enum { CLUSTERS = 300, LINES = 20 };
    double quality = 0;
    int lines = 0;
    for (int n = 0; n < CLUSTERS; n++) {
        const struct support_cluster kind = {.blocks = 24,
                                             .devices = 7,
                                             .links = n % 2,
                                             .tight = n % 3 == 0,
                                             .equal_blocks = n % 4 < 2};
        struct hop_cost_table cost = support_cluster(&kind, &random);
        struct hop_plan_request request = *estimator;
        support_estimator_costs(&cost);
        request.cost = &cost;
        request.micro_batches = support_between(&random, 1, 12);
        request.probes = support_between(&random, 1, 6);
        request.probe_batch = support_between(&random, 0, 3);
        struct hop_pipeline pipeline;
        struct hop_order order;
        struct hop_line_bound bound;
        struct hop_plan line;
        struct hop_error err = {0};
        assert_int_equal(hop_pipeline_create(&request, request.probes, HOP_GRADIENT_ZEROTH_ORDER,
                                             &pipeline, &err),
                         HOP_OK);
        const bool front = pipeline.front_devices > 0;
        const bool fits = pipeline.devices == cost.device_count && cost.device_count <= cost.blocks;
        assert_int_equal(hop_order_line(&pipeline, true, front, &order, &err), HOP_OK);
        assert_int_equal(hop_line_bound_create(&pipeline, &order, front, &bound, &err), HOP_OK);
        for (int i = 0; fits && i < LINES; i++) {
            if (!support_random_line(&request, request.probes, &random, &line))
                break;
            const double seconds = support_simulated(&line, &cost);
            quality += assert_bounded(&bound, &line, seconds) / seconds;
            lines++;
            hop_plan_free(&line);
        }
        hop_line_bound_free(&bound);
        hop_order_free(&order);
        hop_pipeline_free(&pipeline);
        hop_cost_free(&cost);
    }
    print_message("%s, %d exit probes: %d lines take %.3f of their bound's seconds on average\n",
                  hop_estimator_names[estimator->estimator], estimator->exit_probes, lines,
                  lines / quality);
    assert_true(lines > CLUSTERS * LINES / 2);
}

static void bounds_hold_at_every_stage(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < ESTIMATORS; i++)
        check_bounds(&estimators[i], 51 + i);
}

/* Too many different devices for all their orders: fastest first, and nothing is proved. */
static void many_devices_stand_by_speed(void **state)
{
    enum { FRONT = 13, DEVICES = 26, BLOCKS = 40 };
    (void)state;
    double forward[DEVICES], backward[DEVICES];
    for (int32_t d = 0; d < DEVICES; d++) {
        forward[d] = 1 + 0.01 * (d * 7 % DEVICES);
        backward[d] = d < FRONT ? 0 : forward[d];
    }
    struct hop_cost_table cost = support_plain_cluster(BLOCKS, DEVICES, forward, backward);
    struct hop_plan_request request = {.cost = &cost, .micro_batches = 4, .probes = 1};
    for (int use = 0; use < 3; use++)
        for (int objective = 0; objective < HOP_OBJECTIVES; objective++) {
            request.devices = (enum hop_device_use)use;
            request.objective = (enum hop_objective)objective;
            struct hop_plan plan = must_plan("hybridop", &request);
            assert_sound(&plan, &cost);
            assert_true(isnan(plan.bound_seconds));
            assert_true(plan.part_count == DEVICES || use != HOP_DEVICES_ALL);
            for (int32_t p = 1; p < plan.part_count; p++)
                assert_true(plan.parts[p].gradient != plan.parts[p - 1].gradient ||
                            forward[plan.parts[p].device] > forward[plan.parts[p - 1].device]);
            hop_plan_free(&plan);
        }
    hop_cost_free(&cost);
}

static bool has_bp_free(const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp)
            return true;
    return false;
}

/* Clusters on which probes are nearly free: quick BP-free devices, slow backwards. */
static struct hop_cost_table idle_front(uint64_t *random)
{
    const struct support_cluster kind = {.blocks = 6, .devices = 3, .lines = 200};
    struct hop_cost_table cost = support_cluster(&kind, random);
    while (!has_bp_free(&cost)) {
        hop_cost_free(&cost);
        cost = support_cluster(&kind, random);
    }
    for (int32_t d = 0; d < cost.device_count; d++)
        for (int32_t b = 0; b < cost.blocks; b++) {
            struct hop_cost_device *const device = &cost.devices[d];
            device->step[b] = 0;
            device->forward[b] *= device->bp ? 0.1 : 0.02;
            device->probe[b] = device->forward[b];
        }
    return cost;
}

static double best_of(const struct hop_plan_request *request, int32_t probes, bool needs_front)
{
    const struct support_best best =
        support_brute_force(request, probes, HOP_GRADIENT_ZEROTH_ORDER,
                            request->objective == HOP_OBJECTIVE_FORMULA, needs_front);
    return fmin(best.all, request->devices == HOP_DEVICES_ALL ? INFINITY : best.some);
}

/* The number is the largest that costs nothing beside the fewest there can be: one more costs
 * something, itself nothing unless it is the 1 that is needed. */
static void fill_idle_time(enum hop_estimator estimator, uint64_t random)
{
    enum { CLUSTERS = 200 };
    const int32_t fewest = estimator == HOP_BOUNDARY;
    int more = 0, none = 0;
    for (int n = 0; n < CLUSTERS; n++) {
        struct hop_cost_table cost = idle_front(&random);
        const struct hop_plan_request request = {.cost = &cost,
                                                 .micro_batches = support_between(&random, 1, 2),
                                                 .probes = HOP_PROBES_AUTO,
                                                 .probe_batch = support_between(&random, 0, 2),
                                                 .estimator = estimator,
                                                 .devices =
                                                     n % 2 ? HOP_DEVICES_ALL : HOP_DEVICES_AUTO};
        struct hop_plan plan;
        struct hop_error err = {0};
        if (plan_by("hybridop", &request, &plan, &err) != HOP_OK) {
            assert_true(isinf(best_of(&request, 1, false)));
            hop_cost_free(&cost);
            continue;
        }
        const double without = best_of(&request, fewest, false) * (1 + tie);
        assert_close(plan.simulated_seconds, best_of(&request, plan.probes, false), "best");
        if (plan.probes == 0) {
            assert_false(hop_plan_has_zeroth_order(&plan));
            assert_true(best_of(&request, 1, true) > without || plan.part_count == 0);
            none++;
        } else {
            assert_true(hop_plan_has_zeroth_order(&plan));
            assert_true(plan.probes == 1 || plan.simulated_seconds <= without);
            assert_true(best_of(&request, plan.probes + 1, true) > without);
            more += plan.probes > 1;
        }
        hop_plan_free(&plan);
        hop_cost_free(&cost);
    }
    print_message("%s, %d clusters: more than one probe is free on %d, no BP-free device helps on "
                  "%d\n",
                  hop_estimator_names[estimator], CLUSTERS, more, none);
    assert_true(more >= CLUSTERS / 10);
}

static void probes_fill_idle_time(void **state)
{
    (void)state;
    fill_idle_time(HOP_DIFFERENCE, 31);
    fill_idle_time(HOP_CENTRAL, 32);
    fill_idle_time(HOP_BOUNDARY, 33);
}

/* Seconds of the same line with so many exit probes; INFINITY: it does not fit. */
static double with_exit_probes(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t exit_probes)
{
    struct hop_part parts[16];
    struct hop_plan other = *plan;
    struct hop_error err = {0};
    assert_true(plan->part_count <= 16);
    memcpy(parts, plan->parts, (size_t)plan->part_count * sizeof *parts);
    other.parts = parts;
    other.exit_probes = exit_probes;
    if (hop_plan_price(&other, cost, 1, &err) != HOP_OK)
        return INFINITY;
    return support_simulated(&other, cost);
}

/* Found behind the plan, which stays what it is without them. */
static void exit_probes_fill_idle_time(void **state)
{
    enum { CLUSTERS = 200 };
    (void)state;
    uint64_t random = 35;
    int some = 0;
    for (int n = 0; n < CLUSTERS; n++) {
        struct hop_cost_table cost = idle_front(&random);
        support_estimator_costs(&cost);
        struct hop_plan_request request = {.cost = &cost,
                                           .micro_batches = support_between(&random, 1, 3),
                                           .probes = support_between(&random, 1, 2),
                                           .probe_batch = support_between(&random, 0, 2),
                                           .estimator = n % 3 ? HOP_DIFFERENCE : HOP_CENTRAL,
                                           .exit_base = n % 2 ? HOP_EXIT_OWN : HOP_EXIT_FULL_MODEL,
                                           .devices = HOP_DEVICES_AUTO};
        struct hop_plan without, plan;
        struct hop_error err = {0};
        if (plan_by("hybridop", &request, &without, &err) != HOP_OK) {
            hop_cost_free(&cost);
            continue;
        }
        assert_int_equal(without.exit_probes, 0);
        request.exit_probes = HOP_PROBES_AUTO;
        plan = must_plan("hybridop", &request);
        assert_sound(&plan, &cost);
        assert_int_equal(plan.part_count, without.part_count);
        assert_true(plan.simulated_seconds <= without.simulated_seconds * (1 + tie));
        if (hop_plan_has_zeroth_order(&plan) && plan.exit_probes < 1024)
            assert_true(with_exit_probes(&plan, &cost, plan.exit_probes + 1) >
                        without.simulated_seconds * (1 + tie));
        some += plan.exit_probes > 0;
        hop_plan_free(&plan);
        hop_plan_free(&without);
        hop_cost_free(&cost);
    }
    print_message("%d clusters, exit probes are free on %d\n", CLUSTERS, some);
    assert_true(some >= CLUSTERS / 20);
}

/* What `single` and plan.blocks make of the estimators. */
static void other_planners_follow_the_estimator(void **state)
{
    static const int32_t blocks[] = {2, 1, 1, 2};
    (void)state;
    const double forward[] = {2, 2, 1, 1}, backward[] = {0, 0, 2, 2};
    struct hop_cost_table cost = support_plain_cluster(6, 4, forward, backward);
    support_estimator_costs(&cost);
    struct hop_plan_request request = {
        .cost = &cost, .micro_batches = 4, .probes = 2, .zo_hi = 3, .fixed_blocks = blocks};
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "single" : "hybridop";
        for (int estimator = 0; estimator < HOP_ESTIMATORS; estimator++) {
            request.estimator = (enum hop_estimator)estimator;
            request.exit_probes = hop_estimator_has_exit(request.estimator) ? 2 : HOP_PROBES_AUTO;
            struct hop_plan plan = must_plan(name, &request);
            assert_sound(&plan, &cost);
            assert_int_equal(plan.estimator, estimator);
            assert_int_equal(plan.probes, estimator == HOP_FEEDBACK ? 0 : 2);
            assert_int_equal(plan.exit_probes, estimator > HOP_CENTRAL ? 0 : 2);
            assert_int_equal(plan.parts[0].gradient, HOP_GRADIENT_ZEROTH_ORDER);
            assert_int_equal(plan.parts[0].in_flight, estimator > HOP_CENTRAL ? 4 : 0);
            hop_plan_free(&plan);
        }
        request.untrained = true;
        struct hop_plan plan = must_plan(name, &request);
        assert_int_equal(plan.parts[0].gradient, HOP_GRADIENT_NONE);
        assert_int_equal(plan.probes + plan.exit_probes, 0);
        hop_plan_free(&plan);
        request.untrained = false;
    }
    hop_cost_free(&cost);
}

static void refusals_of_exit_probes_name_them(void **state)
{
    (void)state;
    const double forward[] = {1, 1}, backward[] = {0, 2};
    struct hop_cost_table cost = support_plain_cluster(4, 2, forward, backward);
    struct hop_plan_request request = {.cost = &cost,
                                       .micro_batches = 2,
                                       .probes = 1,
                                       .exit_probes = 1,
                                       .devices = HOP_DEVICES_ALL};
    struct hop_plan plan;
    struct hop_error err = {0};
    cost.devices[0].memory = 10;
    cost.devices[0].exit_bytes = 11;
    assert_int_equal(plan_by("hybridop", &request, &plan, &err), HOP_INFEASIBLE);
    assert_non_null(strstr(err.message, "11 bytes on d0"));
    request.exit_probes = HOP_PROBES_AUTO;
    plan = must_plan("hybridop", &request);
    assert_int_equal(plan.exit_probes, 0);
    hop_plan_free(&plan);
    request.exit_probes = 1;
    request.estimator = HOP_BOUNDARY;
    assert_int_equal(plan_by("hybridop", &request, &plan, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "boundary knows no early exit"));
    hop_cost_free(&cost);
}

/* Beyond HOP_PROBES_MOST nobody asks: a BP-free device whose blocks cost nothing. */
static void probes_end_somewhere(void **state)
{
    (void)state;
    const double forward[] = {0, 0}, backward[] = {0, 1};
    struct hop_cost_table cost = support_plain_cluster(2, 2, forward, backward);
    struct hop_plan_request request = {
        .cost = &cost, .micro_batches = 2, .probes = HOP_PROBES_AUTO, .devices = HOP_DEVICES_ALL};
    for (int objective = 0; objective < HOP_OBJECTIVES; objective++) {
        request.objective = (enum hop_objective)objective;
        struct hop_plan plan = must_plan("hybridop", &request);
        assert_int_equal(plan.probes, 1024);
        hop_plan_free(&plan);
    }
    request.bp_only = true;
    struct hop_plan plan = must_plan("hybridop", &request);
    assert_int_equal(plan.probes, 0);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* gpipe: the heaviest share, by blocks averaged over the devices, is as light as can be. */
static double heaviest(const double *costs, int32_t blocks, int32_t shares)
{
    if (shares == 1) {
        double sum = 0;
        for (int32_t b = 0; b < blocks; b++)
            sum += costs[b];
        return sum;
    }
    double best = INFINITY, sum = 0;
    for (int32_t b = 0; b + shares <= blocks; b++) {
        sum += costs[b];
        best = fmin(best, fmax(sum, heaviest(costs + b + 1, blocks - b - 1, shares - 1)));
    }
    return best;
}

static void gpipe_balances_average_costs(void **state)
{
    enum { CLUSTERS = 200 };
    (void)state;
    uint64_t random = 41;
    for (int n = 0; n < CLUSTERS; n++) {
        const struct support_cluster kind = {
            .blocks = 9, .devices = 5, .links = n % 2, .equal_blocks = n % 3 == 0};
        struct hop_cost_table cost = support_cluster(&kind, &random);
        support_slow_backward(&cost, 5);
        const struct hop_plan_request request = {.cost = &cost,
                                                 .micro_batches = support_between(&random, 1, 6)};
        if (cost.device_count > cost.blocks) {
            hop_cost_free(&cost);
            continue;
        }
        struct hop_plan plan = must_plan("gpipe", &request);
        double costs[9] = {0}, most = 0, sum = 0, forward = 0, backward = 0;
        for (int32_t b = 0; b < cost.blocks; b++)
            for (int32_t d = 0; d < cost.device_count; d++)
                costs[b] +=
                    (cost.devices[d].forward[b] + cost.devices[d].backward[b]) / cost.device_count;
        for (int32_t p = 0; p < plan.part_count; p++) {
            double share = 0, f = 0, b = 0;
            assert_int_equal(plan.parts[p].device, p);
            assert_int_equal(plan.parts[p].gradient, HOP_GRADIENT_BACKPROP);
            assert_int_equal(plan.parts[p].in_flight, request.micro_batches);
            for (int32_t k = plan.parts[p].lo; k < plan.parts[p].hi; k++) {
                share += costs[k];
                f += cost.devices[p].forward[k];
                b += cost.devices[p].backward[k];
            }
            most = fmax(most, share);
            sum += f + b;
            forward = fmax(forward, f);
            backward = fmax(backward, b);
        }
        assert_close(most, heaviest(costs, cost.blocks, cost.device_count), "heaviest share");
        assert_close(plan.formula_seconds, sum + (request.micro_batches - 1) * (forward + backward),
                     "formula");
        assert_sound(&plan, &cost);
        struct hop_error err = {0};
        struct hop_schedule schedule;
        const struct hop_strategy *gpipe;
        int32_t window;
        assert_int_equal(hop_strategy_find("gpipe", &gpipe, &err), HOP_OK);
        assert_int_equal(gpipe->schedule(&plan, &cost, plan.micro_batches, 0, &schedule, &err),
                         HOP_OK);
        if (hop_schedule_window(&plan, &schedule, 2, &window, &err) != HOP_OK)
            fail_msg("%s", err.message);
        hop_schedule_free(&schedule);
        hop_plan_free(&plan);
        hop_cost_free(&cost);
    }
}

/* Predicting a plan gives what its planner said. */
static void predictions_agree_with_planners(void **state)
{
    (void)state;
    struct hop_cost_table cost = worked_example(2);
    support_slow_backward(&cost, 8);
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 4, .probes = 2};
    for (int i = 0; hop_strategies[i]; i++) {
        struct hop_plan plan = must_plan(hop_strategies[i]->name, &request);
        const double simulated = plan.simulated_seconds, formula = plan.formula_seconds;
        struct hop_simulation simulation;
        struct hop_error err = {0};
        plan.simulated_seconds = plan.formula_seconds = NAN;
        plan.parts[0].memory_bytes = 7;
        assert_int_equal(hop_plan_predict(&plan, &cost, NULL, &simulation, &err), HOP_OK);
        assert_true(plan.simulated_seconds == simulated && simulation.makespan == simulated);
        assert_true(plan.formula_seconds == formula ||
                    (isnan(formula) && isnan(plan.formula_seconds)));
        assert_true(plan.parts[0].memory_bytes == hop_price_memory(&cost, &plan, 0,
                                                                   plan.parts[0].in_flight,
                                                                   plan.parts[0].pending));
        hop_simulation_free(&simulation);
        plan.blocks++;
        assert_int_equal(hop_plan_predict(&plan, &cost, NULL, &simulation, &err), HOP_INPUT);
        assert_non_null(strstr(err.message, "5 blocks and 4 devices"));
        hop_plan_free(&plan);
    }
    hop_cost_free(&cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula_plans_are_the_best),
        cmocka_unit_test(simulated_plans_are_the_best),
        cmocka_unit_test(plans_of_estimators_are_the_best),
        cmocka_unit_test(frozen_plans_are_the_best),
        cmocka_unit_test(worked_example_is_reproduced),
        cmocka_unit_test(worked_example_of_gpipe),
        cmocka_unit_test(published_form_is_optimistic),
        cmocka_unit_test(devices_that_slow_the_run_stay_out),
        cmocka_unit_test(ties_use_every_device),
        cmocka_unit_test(large_plans_beat_random_ones),
        cmocka_unit_test(bounds_hold_at_every_stage),
        cmocka_unit_test(many_devices_stand_by_speed),
        cmocka_unit_test(probes_fill_idle_time),
        cmocka_unit_test(exit_probes_fill_idle_time),
        cmocka_unit_test(other_planners_follow_the_estimator),
        cmocka_unit_test(refusals_of_exit_probes_name_them),
        cmocka_unit_test(probes_end_somewhere),
        cmocka_unit_test(gpipe_balances_average_costs),
        cmocka_unit_test(predictions_agree_with_planners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
