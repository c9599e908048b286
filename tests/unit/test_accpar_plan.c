/* AccPar on cost tables: shares, memory, what is refused, and its formula against the simulator. */
#include "support_files.h"

#include <math.h>
#include <stdio.h>

#include "schedule/price.h"
#include "strategy/strategy.h"
#include "support_planner.h"
#include "support_schedule.h"

enum { UNITS = 1024 };

static const struct hop_strategy *find(const char *name)
{
    struct hop_error err = {0};
    const struct hop_strategy *strategy = NULL;
    ASSERT_OK(hop_strategy_find(name, &strategy, &err));
    return strategy;
}

static struct hop_plan plan_of(const char *strategy, const struct hop_plan_request *request)
{
    struct hop_error err = {0};
    struct hop_plan plan;
    ASSERT_OK(find(strategy)->plan(request, &plan, &err));
    return plan;
}

static void check_refused(const char *strategy, const struct hop_plan_request *request,
                          const char *reason)
{
    struct hop_error err = {0};
    struct hop_plan plan;
    ASSERT_REFUSED(find(strategy)->plan(request, &plan, &err), HOP_INFEASIBLE, reason);
}

static struct hop_plan_request request_of(const struct hop_cost_table *cost)
{
    return (struct hop_plan_request){.cost = cost, .micro_batches = 4, .probes = 1};
}

/* Two slow BP-free and two fast BP-capable boards: rates 1/8 and 1/2 a block. */
static struct hop_cost_table four_boards(int32_t blocks)
{
    const double forward[] = {1, 1, 2, 2}, backward[] = {1, 1, 0, 0};
    struct hop_cost_table cost = support_plain_cluster(blocks, 4, forward, backward);
    support_slow_backward(&cost, 3);
    cost.micro_batch_samples = 4;
    for (int32_t b = 0; b + 1 < blocks; b++)
        cost.boundary_bytes[b] = 1000;
    for (int32_t b = 0; b < blocks; b++)
        cost.gradient_bytes[b] = 80;
    return cost;
}

static void set_links(struct hop_cost_table *cost, double bandwidth, double latency)
{
    for (int32_t i = 0; i < cost->device_count * cost->device_count; i++) {
        cost->bandwidth[i] = bandwidth;
        cost->latency[i] = latency;
    }
}

static void set_memory(struct hop_cost_table *cost, double memory, double state, double activation)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        cost->devices[d].memory = memory;
        for (int32_t b = 0; b < cost->blocks; b++) {
            cost->devices[d].state_bytes[b] = state;
            cost->devices[d].activation_bytes[b] = activation;
        }
    }
}

static double tensor(const struct hop_part *part)
{
    return part->tensor_hi - part->tensor_lo;
}

/* tp */

/* The BP-free boards stand in front; 1/10 of the tensors each, 4/10 the others: 102.4 and 409.6
 * units of 1024, by largest remainder. */
static void test_shares_follow_rates(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(5);
    const struct hop_plan_request request = request_of(&cost);
    struct hop_plan plan = plan_of("accpar", &request);
    const int32_t devices[] = {2, 3, 0, 1}, units[] = {102, 102, 410, 410};
    double at = 0;
    assert_int_equal(plan.part_count, 4);
    for (int32_t p = 0; p < 4; p++) {
        const struct hop_part *const part = &plan.parts[p];
        assert_int_equal(part->device, devices[p]);
        assert_int_equal(part->lo, 0);
        assert_int_equal(part->hi, 5);
        assert_int_equal(part->stage, 0);
        assert_int_equal(part->gradient, HOP_GRADIENT_BACKPROP);
        assert_true(part->tensor_lo == at);
        assert_true(tensor(part) == (double)units[p] / UNITS);
        at = part->tensor_hi;
    }
    assert_true(at == 1);
    assert_int_equal(plan.probes, 0);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* By hand: a block takes the slowest shard 410/1024 of 1 s each way. 8 all-reduces of 1000 bytes
 * among two devices, a message of 500 bytes each way in turn, 2 rounds: 2 (0.5 + 500/1000) s. */
static void test_iteration_by_hand(void **state)
{
    (void)state;
    const double forward[] = {1, 1}, backward[] = {2, 2};
    struct hop_error err = {0};
    struct hop_cost_table cost = support_plain_cluster(2, 2, forward, backward);
    struct hop_plan_request request = request_of(&cost);
    cost.micro_batch_samples = 1;
    cost.boundary_bytes[0] = 1000;
    cost.devices[0].step[1] = 7;
    set_links(&cost, 1000, 0.5);
    struct hop_plan plan = plan_of("accpar", &request);
    const double step = hop_price_task(&cost, &plan, &(struct hop_task){.kind = HOP_STEP});
    struct hop_reductions reductions;
    ASSERT_OK(hop_reductions_derive(&plan, &reductions, &err));
    assert_int_equal(reductions.count, 1);
    const double reduce = hop_price_reduction(&cost, &reductions.items[0]);
    ASSERT_NEAR(plan.formula_seconds, 4 * (2 * (0.5 + 1) + 8 * 2 * 1.0) + reduce + step, 1e-9);
    ASSERT_NEAR(plan.simulated_seconds, plan.formula_seconds, 1e-9);
    assert_true(step > 0 && reduce > 0);
    hop_reductions_free(&reductions);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

static void test_one_device(void **state)
{
    (void)state;
    const double forward[] = {1}, backward[] = {2};
    struct hop_cost_table cost = support_plain_cluster(3, 1, forward, backward);
    const struct hop_plan_request request = request_of(&cost);
    struct hop_plan plan = plan_of("accpar", &request);
    assert_int_equal(plan.part_count, 1);
    assert_true(tensor(&plan.parts[0]) == 1);
    ASSERT_NEAR(plan.simulated_seconds, 4 * 9, 1e-12);
    ASSERT_NEAR(plan.formula_seconds, 4 * 9, 1e-12);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

static void test_bp_only(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(5);
    struct hop_plan_request request = request_of(&cost);
    request.bp_only = true;
    struct hop_plan plan = plan_of("accpar", &request);
    assert_int_equal(plan.part_count, 2);
    assert_int_equal(plan.parts[0].device, 0);
    assert_true(tensor(&plan.parts[0]) == 0.5);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* Boards that cannot run backward at all. */
static void test_without_backward(void **state)
{
    (void)state;
    const double forward[] = {1, 2}, backward[] = {1, 0}, none[] = {0, 0};
    struct hop_cost_table cost = support_plain_cluster(3, 2, forward, backward);
    struct hop_cost_table frozen = support_plain_cluster(3, 2, forward, none);
    struct hop_plan_request request = request_of(&cost);
    check_refused("accpar", &request, "d1 has no backward times and accpar runs backward on every");
    check_refused("accpar-full", &request, "accpar-full runs backward on every device");
    request.devices = HOP_DEVICES_AUTO;
    struct hop_plan plan = plan_of("accpar", &request);
    assert_int_equal(plan.part_count, 1);
    hop_plan_free(&plan);
    request.cost = &frozen;
    check_refused("accpar", &request, "no device can run backward");
    hop_cost_free(&cost);
    hop_cost_free(&frozen);
}

/* A board a million times slower rounds to nothing, and gets one unit only where it must. */
static void test_tiny_shares(void **state)
{
    (void)state;
    const double forward[] = {1, 1e6}, backward[] = {1, 1e6};
    struct hop_cost_table cost = support_plain_cluster(3, 2, forward, backward);
    struct hop_plan_request request = request_of(&cost);
    struct hop_plan plan = plan_of("accpar", &request);
    assert_int_equal(plan.part_count, 1);
    hop_plan_free(&plan);
    request.devices = HOP_DEVICES_ALL;
    plan = plan_of("accpar", &request);
    assert_int_equal(plan.part_count, 2);
    assert_true(tensor(&plan.parts[1]) == 1.0 / UNITS);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* The fast boards hold 300 of 1000 bytes each; the slow ones take what is left. */
static void test_memory_bounds_shares(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(5);
    const struct hop_plan_request request = request_of(&cost);
    set_memory(&cost, 300, 200, 0);
    struct hop_plan plan = plan_of("accpar", &request);
    for (int32_t p = 0; p < plan.part_count; p++) {
        assert_true(plan.parts[p].memory_bytes <= 300);
        assert_int_equal(plan.parts[p].in_flight, 1);
    }
    assert_true(tensor(&plan.parts[2]) == 307.0 / UNITS);
    assert_true(tensor(&plan.parts[0]) == 205.0 / UNITS);
    hop_plan_free(&plan);
    set_memory(&cost, 240, 200, 0);
    check_refused("accpar", &request, "4 devices that share all tensors hold 95.7 % of the model");
    check_refused("accpar-full", &request, "of 1000 bytes too few");
    hop_cost_free(&cost);
}

/* Formula and simulator */

struct tally {
    int32_t planned, split, refused, exact;
};

static void check_plan(const struct hop_plan *plan, const struct hop_plan_request *request,
                       struct tally *tally)
{
    struct hop_error err = {0};
    struct hop_schedule schedule;
    double covered = 0;
    ASSERT_OK(hop_plan_check(plan, &err));
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        covered += tensor(part) * (part->sample_hi - part->sample_lo);
        assert_true(part->memory_bytes <= part->memory_limit);
        assert_true(part->tensor_lo * UNITS == floor(part->tensor_lo * UNITS));
        tally->split += part->sample_lo > 0;
    }
    ASSERT_NEAR(covered, 1, 1e-12);
    ASSERT_OK(find(plan->strategy)
                  ->schedule(plan, request->cost, plan->micro_batches, 0, &schedule, &err));
    ASSERT_OK(hop_schedule_check(plan, &schedule, 1, &err));
    hop_schedule_free(&schedule);
    ASSERT_NEAR(support_simulated(plan, request->cost), plan->simulated_seconds, 0);
    assert_true(plan->formula_seconds >= plan->simulated_seconds * (1 - 1e-9));
    tally->exact += plan->formula_seconds <= plan->simulated_seconds * (1 + 1e-9);
    tally->planned++;
}

static double try_plan(const char *strategy, const struct hop_plan_request *request,
                       struct tally *tally)
{
    struct hop_error err = {0};
    struct hop_plan plan;
    const hop_status status = find(strategy)->plan(request, &plan, &err);
    if (status == HOP_INFEASIBLE) {
        tally->refused++;
        return INFINITY;
    }
    ASSERT_OK(status);
    check_plan(&plan, request, tally);
    const double seconds = plan.simulated_seconds;
    hop_plan_free(&plan);
    return seconds;
}

static void try_clusters(bool equal_blocks, struct tally *tally)
{
    uint64_t random = 77;
    for (int trial = 0; trial < 300; trial++) {
        const struct support_cluster kind = {.blocks = 6,
                                             .devices = 7,
                                             .links = support_between(&random, 0, 3) > 0,
                                             .tight = support_between(&random, 0, 1),
                                             .equal_blocks = equal_blocks};
        struct hop_cost_table cost = support_cluster(&kind, &random);
        struct hop_plan_request request = request_of(&cost);
        support_slow_backward(&cost, 5);
        cost.micro_batch_samples = support_between(&random, 1, 16);
        request.micro_batches = support_between(&random, 1, 6);
        request.bp_only = support_between(&random, 0, 3) == 0;
        const double tensors = try_plan("accpar", &request, tally);
        const double all = try_plan("accpar-full", &request, tally);
        assert_true(all <= tensors * (1 + 1e-12));
        hop_cost_free(&cost);
    }
    assert_true(tally->planned > 200);
    assert_true(tally->split > 100);
    assert_true(tally->refused > 10);
}

/* Where blocks cost alike on a device, the slowest shard is the same in all of them. */
static void test_formula_is_the_simulation(void **state)
{
    (void)state;
    struct tally tally = {0};
    try_clusters(true, &tally);
    assert_int_equal(tally.exact, tally.planned);
}

/* Elsewhere the formula waits for the slowest shard of every block, the simulation for the slowest
 * of a task. */
static void test_formula_is_no_shorter(void **state)
{
    (void)state;
    struct tally tally = {0};
    try_clusters(false, &tally);
    assert_true(tally.exact < tally.planned);
}

/* full */

/* Slow links and memory for copies: rows are shared, tensors are not. With one row, or memory for
 * one model only, nothing can be copied. */
static void test_full_shares_rows(void **state)
{
    (void)state;
    const double forward[] = {1, 1}, backward[] = {1, 1};
    struct hop_cost_table cost = support_plain_cluster(4, 2, forward, backward);
    const struct hop_plan_request request = request_of(&cost);
    cost.micro_batch_samples = 4;
    for (int32_t b = 0; b < 3; b++)
        cost.boundary_bytes[b] = 1000;
    set_links(&cost, 100, 0);
    set_memory(&cost, 400, 100, 0);
    struct hop_plan plan = plan_of("accpar-full", &request);
    assert_int_equal(plan.part_count, 2);
    for (int32_t p = 0; p < 2; p++) {
        assert_true(tensor(&plan.parts[p]) == 1);
        assert_true(plan.parts[p].sample_lo == p * 0.5);
        assert_true(plan.parts[p].sample_hi == 0.5 + p * 0.5);
    }
    ASSERT_NEAR(plan.simulated_seconds, 4 * 4.0, 1e-9);
    hop_plan_free(&plan);
    set_memory(&cost, 399, 100, 0);
    plan = plan_of("accpar-full", &request);
    assert_true(tensor(&plan.parts[0]) == 0.5);
    hop_plan_free(&plan);
    set_memory(&cost, 400, 100, 0);
    cost.micro_batch_samples = 1;
    plan = plan_of("accpar-full", &request);
    assert_true(tensor(&plan.parts[0]) == 0.5);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* The BP-free boards hold one model together, the others one each: rows are shared between the
 * kinds of boards and between the fast ones, tensors among the slow ones. */
static void test_full_mixes(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(5);
    const struct hop_plan_request request = request_of(&cost);
    cost.micro_batch_samples = 10;
    set_memory(&cost, 1000, 200, 0);
    set_links(&cost, 100, 0);
    cost.devices[2].memory = cost.devices[3].memory = 600;
    struct hop_plan plan = plan_of("accpar-full", &request);
    const double rows[] = {0, 0, 0.2, 0.6, 1};
    assert_int_equal(plan.part_count, 4);
    for (int32_t p = 0; p < 4; p++) {
        assert_true(tensor(&plan.parts[p]) == (p < 2 ? 0.5 : 1));
        ASSERT_NEAR(plan.parts[p].sample_lo, rows[p], 1e-15);
        ASSERT_NEAR(plan.parts[p].sample_hi, p < 2 ? 0.2 : rows[p + 1], 1e-15);
    }
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_follow_rates),
        cmocka_unit_test(test_iteration_by_hand),
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_bp_only),
        cmocka_unit_test(test_without_backward),
        cmocka_unit_test(test_tiny_shares),
        cmocka_unit_test(test_memory_bounds_shares),
        cmocka_unit_test(test_formula_is_the_simulation),
        cmocka_unit_test(test_formula_is_no_shorter),
        cmocka_unit_test(test_full_shares_rows),
        cmocka_unit_test(test_full_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
