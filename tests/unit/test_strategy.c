/* Planners: who holds which blocks, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "strategy/strategy.h"
#include "support_planner.h"
#include "support_schedule.h"

/* Two BP-capable and two BP-free boards; backward takes as long as forward, links are free. */
static struct hop_cost_table four_boards(int32_t blocks)
{
    static const char *const names[] = {"gpu0", "npu0", "gpu1", "npu1"};
    const double forward[] = {0.5, 1, 0.25, 1}, backward[] = {0.5, 0, 0.25, 0};
    struct hop_cost_table cost = support_plain_cluster(blocks, 4, forward, backward);
    for (int32_t d = 0; d < 4; d++)
        snprintf(cost.devices[d].name, 16, "%s", names[d]);
    return cost;
}

static struct hop_plan_request request_of(const struct hop_cost_table *cost)
{
    return (struct hop_plan_request){
        .cost = cost, .micro_batches = 4, .probes = 2, .devices = HOP_DEVICES_ALL};
}

/* "npu0[0,2)z gpu0[2,5)b" */
static void describe(const struct hop_plan *plan, const struct hop_cost_table *cost, char *text,
                     size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int32_t p = 0; p < plan->part_count && at < size; p++) {
        const struct hop_part *const part = &plan->parts[p];
        at += (size_t)snprintf(text + at, size - at, "%s%s[%d,%d)%c", p ? " " : "",
                               cost->devices[part->device].name, part->lo, part->hi,
                               hop_gradient_names[part->gradient][0]);
    }
}

static void assert_plan(const char *strategy, const struct hop_plan_request *request,
                        const char *expected)
{
    struct hop_error err = {0};
    struct hop_plan plan;
    const struct hop_strategy *system;
    char text[512];
    assert_int_equal(hop_strategy_find(strategy, &system, &err), HOP_OK);
    if (system->plan(request, &plan, &err) != HOP_OK)
        fail_msg("%s", err.message);
    describe(&plan, request->cost, text, sizeof text);
    assert_string_equal(text, expected);
    assert_string_equal(plan.strategy, strategy);
    assert_int_equal(plan.micro_batches, request->micro_batches);
    if (request->probes != HOP_PROBES_AUTO)
        assert_int_equal(plan.probes, hop_plan_has_zeroth_order(&plan) ? request->probes : 0);
    assert_int_equal(hop_plan_check(&plan, &err), HOP_OK);
    struct hop_schedule schedule;
    assert_int_equal(
        system->schedule(&plan, request->cost, plan.micro_batches, plan.probes, &schedule, &err),
        HOP_OK);
    int32_t window = 0;
    assert_int_equal(hop_schedule_window(&plan, &schedule, 2, &window, &err), HOP_OK);
    hop_schedule_free(&schedule);
    assert_true(plan.simulated_seconds == support_simulated(&plan, request->cost));
    hop_plan_free(&plan);
}

static void assert_refused(const char *strategy, const struct hop_plan_request *request,
                           hop_status expected, const char *message)
{
    struct hop_error err = {0};
    struct hop_plan plan = {.part_count = -7};
    const struct hop_strategy *system;
    assert_int_equal(hop_strategy_find(strategy, &system, &err), HOP_OK);
    const hop_status status = system->plan(request, &plan, &err);
    if (status != expected || !strstr(err.message, message))
        fail_msg("status %d, message '%s'; expected '%s'", (int)status, err.message, message);
    assert_int_equal(plan.part_count, -7);
}

static void assert_blocks(const char *strategy, const struct hop_plan_request *request,
                          const int32_t *expected)
{
    struct hop_error err = {0};
    struct hop_plan plan;
    const struct hop_strategy *system;
    int32_t counts[4] = {0};
    assert_int_equal(hop_strategy_find(strategy, &system, &err), HOP_OK);
    assert_int_equal(system->plan(request, &plan, &err), HOP_OK);
    for (int32_t p = 0; p < plan.part_count; p++)
        counts[plan.parts[p].device] = plan.parts[p].hi - plan.parts[p].lo;
    assert_memory_equal(counts, expected, sizeof counts);
    hop_plan_free(&plan);
}

/* With many micro-batches the slowest stage is all that counts, so blocks follow the rates: a block
 * of a micro-batch takes 1 + Q forwards on a BP-free device, 2 + Q on a BP-capable one. */
static void blocks_follow_rates(void **state)
{
    (void)state;
    const int32_t hybrid[] = {4, 3, 8, 3}, frozen[] = {2, 2, 4, 2}, least[] = {1, 1, 1, 1};
    const int32_t bp[] = {3, 0, 6, 0};
    struct hop_cost_table cost = four_boards(18);
    struct hop_plan_request request = request_of(&cost);
    request.micro_batches = 100;
    request.probes = 1;
    assert_blocks("hybridop", &request, hybrid);
    hop_cost_free(&cost);
    cost = four_boards(10);
    assert_blocks("frozen", &request, frozen);
    hop_cost_free(&cost);
    cost = four_boards(4);
    assert_blocks("hybridop", &request, least);
    hop_cost_free(&cost);
    cost = four_boards(9);
    request.bp_only = true;
    assert_blocks("hybridop", &request, bp);
    hop_cost_free(&cost);
}

static void fixed_blocks_are_kept(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(8);
    struct hop_plan_request request = request_of(&cost);
    const int32_t exact[] = {1, 3, 4, 0}, all_gpu[] = {3, 0, 5, 0}, negative[] = {9, -1, 0, 0};
    const int32_t short_sum[] = {1, 1, 1, 1}, only_npu[] = {0, 8, 0, 0};
    request.fixed_blocks = exact;
    assert_plan("hybridop", &request, "npu0[0,3)z gpu0[3,4)b gpu1[4,8)b");
    assert_plan("frozen", &request, "npu0[0,3)n gpu0[3,4)b gpu1[4,8)b");
    request.probes = HOP_PROBES_AUTO;
    assert_plan("hybridop", &request, "npu0[0,3)z gpu0[3,4)b gpu1[4,8)b");
    request.probes = 0;
    assert_refused("hybridop", &request, HOP_INPUT, "BP-free device npu0 untrained");
    assert_plan("frozen", &request, "npu0[0,3)n gpu0[3,4)b gpu1[4,8)b");
    request.probes = 2;
    request.bp_only = true;
    assert_refused("hybridop", &request, HOP_INPUT, "npu0 is BP-free and has 3 blocks");
    request.bp_only = false;
    request.fixed_blocks = all_gpu;
    assert_plan("hybridop", &request, "gpu0[0,3)b gpu1[3,8)b");
    assert_plan("gpipe", &request, "gpu0[0,3)b gpu1[3,8)b");
    request.fixed_blocks = negative;
    assert_refused("hybridop", &request, HOP_INPUT, "plan.blocks: npu0 has -1 blocks");
    assert_refused("gpipe", &request, HOP_INPUT, "plan.blocks: npu0 has -1 blocks");
    request.fixed_blocks = short_sum;
    assert_refused("hybridop", &request, HOP_INPUT,
                   "plan.blocks: the counts add up to 4; the model has 8 blocks");
    request.fixed_blocks = only_npu;
    assert_refused("hybridop", &request, HOP_INFEASIBLE, "no BP-capable device holds a block");
    assert_refused("gpipe", &request, HOP_INFEASIBLE, "npu0 has no backward times");
    request.fixed_blocks = exact;
    for (int32_t b = 0; b < 8; b++)
        cost.devices[2].state_bytes[b] = 10;
    cost.devices[2].memory = 35;
    assert_refused("hybridop", &request, HOP_INFEASIBLE,
                   "gpu1 cannot hold blocks [4, 8) with 1 micro-batches kept: 40 bytes needed, 35 "
                   "there, 5 too many");
    hop_cost_free(&cost);
}

static void impossible_requests_are_explained(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(3);
    struct hop_plan_request request = request_of(&cost);
    static const char *const crowded[] = {"hybridop", "frozen"};
    for (size_t i = 0; i < sizeof crowded / sizeof *crowded; i++) {
        request.devices = HOP_DEVICES_ALL;
        assert_refused(crowded[i], &request, HOP_INFEASIBLE, "4 devices share 3 blocks");
        request.devices = HOP_DEVICES_DEFAULT;
        assert_refused(crowded[i], &request, HOP_INFEASIBLE, "set plan.devices: auto");
    }
    hop_cost_free(&cost);
    cost = four_boards(8);
    request = request_of(&cost);
    request.probes = 0;
    assert_refused("hybridop", &request, HOP_INPUT,
                   "zo.probes: 0 leaves the adapters of the BP-free device npu0 untrained");
    assert_refused("hybridop", &request, HOP_INPUT, "strategy: frozen");
    request.probes = 2;
    request.micro_batches = 0;
    assert_refused("hybridop", &request, HOP_INPUT, "0 micro-batches");
    request.micro_batches = 4;
    request.probes = -2;
    assert_refused("single", &request, HOP_INPUT, "-2 probes");
    request.probes = INT32_MAX;
    assert_refused("hybridop", &request, HOP_INPUT, "are too many");
    request = request_of(&cost);
    cost.blocks = 0;
    assert_refused("hybridop", &request, HOP_INPUT, "the model has 0 blocks");
    cost.blocks = 8;
    cost.device_count = 0;
    assert_refused("hybridop", &request, HOP_INPUT, "the cluster has no device");
    cost.device_count = 4;
    cost.devices[0].bp = cost.devices[2].bp = false;
    assert_refused("hybridop", &request, HOP_INFEASIBLE, "no BP-capable device");
    assert_refused("frozen", &request, HOP_INFEASIBLE, "no BP-capable device");
    assert_refused("single", &request, HOP_INFEASIBLE, "no device is BP-capable");
    hop_cost_free(&cost);
}

static void missing_backward_times_are_explained(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(8);
    struct hop_plan_request request = request_of(&cost);
    assert_refused("gpipe", &request, HOP_INFEASIBLE, "npu0 has no backward times");
    request.bp_only = true;
    assert_plan("gpipe", &request, "gpu0[0,4)b gpu1[4,8)b");
    request.bp_only = false;
    cost.devices[1].bp = true;
    assert_refused("hybridop", &request, HOP_INFEASIBLE,
                   "npu0 is BP-capable but its costs have no backward times");
    request.devices = HOP_DEVICES_AUTO;
    request.micro_batches = 1;
    assert_plan("hybridop", &request, "gpu1[0,8)b");
    assert_plan("gpipe", &request, "gpu0[0,4)b gpu1[4,8)b");
    hop_cost_free(&cost);
}

/* Every message says what does not fit, and by how much. */
static void memory_refusals_name_bytes(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(8);
    struct hop_plan_request request = request_of(&cost);
    for (int32_t d = 0; d < 4; d++) {
        cost.devices[d].memory = 25;
        for (int32_t b = 0; b < 8; b++) {
            cost.devices[d].state_bytes[b] = 10;
            cost.devices[d].activation_bytes[b] = 1;
        }
    }
    assert_plan("hybridop", &request, "npu0[0,2)z npu1[2,4)z gpu0[4,6)b gpu1[6,8)b");
    assert_refused("gpipe", &request, HOP_INFEASIBLE, "npu0 has no backward times");
    request.objective = HOP_OBJECTIVE_FORMULA;
    cost.devices[0].activation_bytes[4] = cost.devices[2].activation_bytes[4] = 4;
    assert_refused("hybridop", &request, HOP_INFEASIBLE, "set objective: simulated");
    request.objective = HOP_OBJECTIVE_SIMULATED;
    cost.devices[1].memory = 9;
    assert_refused("hybridop", &request, HOP_INFEASIBLE,
                   "npu0 cannot hold a single block: the smallest needs 10 bytes, 9 are there, 1 "
                   "too few");
    request.devices = HOP_DEVICES_DEFAULT;
    assert_refused("hybridop", &request, HOP_INFEASIBLE,
                   "hold blocks [0, 6) of the 8 at most; the others need 20 bytes more");
    for (int32_t d = 0; d < 4; d++)
        cost.devices[d].state_bytes[5] = 30;
    assert_refused("hybridop", &request, HOP_INFEASIBLE,
                   "block 5 needs 30 bytes, more than any device has; npu1 comes closest with 25, "
                   "5 too few");
    request.bp_only = true;
    support_slow_backward(&cost, 2);
    assert_refused("gpipe", &request, HOP_INFEASIBLE,
                   "gpu0 cannot hold 4 blocks in 1 part with up to 4 micro-batches kept");
    assert_refused("single", &request, HOP_INFEASIBLE, "gpu0 cannot hold blocks [0, 8)");
    hop_cost_free(&cost);
}

/* Where any number of devices is fine, few blocks leave some out. */
static void few_blocks_use_few_devices(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(2);
    struct hop_plan_request request = request_of(&cost);
    request.devices = HOP_DEVICES_AUTO;
    for (int objective = 0; objective < HOP_OBJECTIVES; objective++) {
        request.objective = (enum hop_objective)objective;
        request.micro_batches = 1;
        assert_plan("hybridop", &request, "gpu1[0,2)b");
    }
    support_slow_backward(&cost, 2);
    assert_plan("gpipe", &request, "gpu0[0,1)b npu0[1,2)b");
    request.bp_only = true;
    assert_plan("gpipe", &request, "gpu0[0,1)b gpu1[1,2)b");
    hop_cost_free(&cost);
}

static void gpus_alone_are_a_plain_pipeline(void **state)
{
    (void)state;
    const double forward[] = {1, 1}, backward[] = {1, 1};
    struct hop_cost_table cost = support_plain_cluster(5, 2, forward, backward);
    struct hop_plan_request request = request_of(&cost);
    assert_plan("hybridop", &request, "d0[0,3)b d1[3,5)b");
    request.probes = 0;
    assert_plan("hybridop", &request, "d0[0,3)b d1[3,5)b");
    request.probes = HOP_PROBES_AUTO;
    assert_plan("hybridop", &request, "d0[0,3)b d1[3,5)b");
    hop_cost_free(&cost);
}

/* The fastest device that can hold everything, the first among equals. */
static void single_takes_the_fastest_that_fits(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(8);
    struct hop_plan_request request = request_of(&cost);
    assert_plan("single", &request, "gpu1[0,8)b");
    for (int32_t k = 0; k < 8; k++) {
        cost.devices[0].state_bytes[k] = 10;
        cost.devices[2].state_bytes[k] = 10;
    }
    cost.devices[2].memory = 79;
    assert_plan("single", &request, "gpu0[0,8)b");
    cost.devices[0].memory = 78;
    assert_refused("single", &request, HOP_INFEASIBLE, "gpu0 cannot hold blocks [0, 8)");
    hop_cost_free(&cost);
    const double forward[] = {2, 1, 1}, backward[] = {2, 1, 1};
    struct hop_cost_table equal = support_plain_cluster(4, 3, forward, backward);
    request = request_of(&equal);
    assert_plan("single", &request, "d1[0,4)b");
    hop_cost_free(&equal);
}

static void single_marks_its_first_blocks(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(8);
    struct hop_plan_request request = request_of(&cost);
    assert_plan("single", &request, "gpu1[0,8)b");
    request.zo_hi = 3;
    assert_plan("single", &request, "gpu1[0,3)z gpu1[3,8)b");
    request.probes = HOP_PROBES_AUTO;
    assert_plan("single", &request, "gpu1[0,3)z gpu1[3,8)b");
    request.probes = 0;
    assert_refused("single", &request, HOP_INPUT, "zo.probes: 0 leaves the blocks");
    request.probes = 1;
    request.zo_hi = 8;
    assert_refused("single", &request, HOP_INPUT, "zo.blocks: [0, 8] leaves none of the 8 blocks");
    request.zo_hi = 9;
    assert_refused("single", &request, HOP_INPUT, "zo.blocks: [0, 9] is no range of the model's 8");
    request.zo_lo = 2, request.zo_hi = 4;
    assert_refused("single", &request, HOP_INPUT, "zo.blocks: [2, 4] does not begin at block 0");
    request.zo_lo = 4, request.zo_hi = 2;
    assert_refused("single", &request, HOP_INPUT, "zo.blocks: [4, 2] is no range");
    hop_cost_free(&cost);
}

/* All blocks are dealt, every device gets one, and the slowest stage is at most a block above what
 * perfectly divisible blocks would give: beyond that only the way through the pipeline counts. */
static void splits_stay_near_shares(void **state)
{
    enum { CLUSTERS = 300, MICRO_BATCHES = 40 };
    (void)state;
    uint64_t random = 1;
    for (int n = 0; n < CLUSTERS; n++) {
        double forward[6], backward[6], rates = 0, slowest = 0, way = 0, most = 0;
        const int32_t count = support_between(&random, 1, 6);
        for (int32_t d = 0; d < count; d++) {
            const bool bp = d == 0 || support_between(&random, 0, 1);
            forward[d] = 1.0 / support_between(&random, 1, 30);
            backward[d] = bp ? forward[d] : 0;
            const double each = forward[d] + backward[d];
            rates += 1 / each;
            slowest = fmax(slowest, each);
        }
        const int32_t blocks = count + support_between(&random, 0, 40);
        struct hop_cost_table cost = support_plain_cluster(blocks, count, forward, backward);
        struct hop_plan_request request = request_of(&cost);
        request.micro_batches = MICRO_BATCHES;
        struct hop_error err = {0};
        struct hop_plan plan;
        const struct hop_strategy *system;
        assert_int_equal(hop_strategy_find("frozen", &system, &err), HOP_OK);
        assert_int_equal(system->plan(&request, &plan, &err), HOP_OK);
        assert_int_equal(hop_plan_check(&plan, &err), HOP_OK);
        assert_int_equal(plan.part_count, count);
        for (int32_t p = 0; p < plan.part_count; p++) {
            const struct hop_part *const part = &plan.parts[p];
            const int32_t d = part->device;
            const double held = part->hi - part->lo;
            assert_true(held > 0);
            assert_true(fabs(part->forward_seconds - held * forward[d]) < 1e-12);
            most = fmax(most, held * (forward[d] + backward[d]));
            way += held * (forward[d] + backward[d]);
        }
        assert_true(MICRO_BATCHES * most <= plan.simulated_seconds + 1e-9);
        assert_true(most <= blocks / rates + slowest + way / MICRO_BATCHES);
        hop_plan_free(&plan);
        hop_cost_free(&cost);
    }
}

static void fixed_blocks_are_read(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_boards(8);
    int32_t counts[4] = {9, 9, 9, 9};
    struct hop_error err = {0};
    json_t *object = json_pack("{s:i, s:i}", "gpu1", 5, "npu0", 3);
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &cost, counts, &err), HOP_OK);
    const int32_t expected[4] = {0, 3, 5, 0};
    assert_memory_equal(counts, expected, sizeof counts);
    json_object_set_new(object, "gpu2", json_integer(1));
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &cost, counts, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "job.yaml: plan.blocks: the cluster has no device 'gpu2'"));
    json_object_clear(object);
    json_object_set_new(object, "gpu0", json_real(1.5));
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &cost, counts, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "job.yaml: plan.blocks.gpu0: a whole number from 0"));
    json_object_set_new(object, "gpu0", json_integer(-1));
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &cost, counts, &err), HOP_INPUT);
    json_decref(object);
    object = json_array();
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &cost, counts, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "a map from device names"));
    json_decref(object);
    hop_cost_free(&cost);
}

static void unknown_names_get_a_hint(void **state)
{
    (void)state;
    const struct hop_strategy *system = NULL;
    struct hop_error err = {0};
    assert_int_equal(hop_strategy_find("hybridopp", &system, &err), HOP_INPUT);
    assert_string_equal(err.message, "strategy: there is no 'hybridopp'; did you mean 'hybridop'?");
    assert_int_equal(hop_strategy_find("zzzz", &system, &err), HOP_INPUT);
    assert_string_equal(err.message,
                        "strategy: there is no 'zzzz'; choose one of hybridop, frozen, gpipe, "
                        "pipedream-flush, chimera, hdp, dapple, asteroid, accpar, accpar-full, "
                        "single");
    assert_null(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_follow_rates),
        cmocka_unit_test(fixed_blocks_are_kept),
        cmocka_unit_test(impossible_requests_are_explained),
        cmocka_unit_test(missing_backward_times_are_explained),
        cmocka_unit_test(memory_refusals_name_bytes),
        cmocka_unit_test(few_blocks_use_few_devices),
        cmocka_unit_test(gpus_alone_are_a_plain_pipeline),
        cmocka_unit_test(single_takes_the_fastest_that_fits),
        cmocka_unit_test(single_marks_its_first_blocks),
        cmocka_unit_test(splits_stay_near_shares),
        cmocka_unit_test(fixed_blocks_are_read),
        cmocka_unit_test(unknown_names_get_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
