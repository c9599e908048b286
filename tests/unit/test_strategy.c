/* Planners: who holds which blocks, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "strategy/strategy.h"

static struct hop_device boards[] = {
    {.name = "gpu0", .bp = true, .rate = 2},
    {.name = "npu0", .bp = false, .rate = 1},
    {.name = "gpu1", .bp = true, .rate = 4},
    {.name = "npu1", .bp = false, .rate = 1},
};
static const struct hop_cluster four = {.devices = boards, .count = 4};

static struct hop_plan_request request_of(const struct hop_cluster *cluster, int32_t blocks)
{
    return (struct hop_plan_request){
        .cluster = cluster, .blocks = blocks, .micro_batches = 4, .probes = 2};
}

/* "npu0[0,2)z gpu0[2,5)b" */
static void describe(const struct hop_plan *plan, const struct hop_cluster *cluster, char *text,
                     size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int32_t p = 0; p < plan->part_count && at < size; p++) {
        const struct hop_part *const part = &plan->parts[p];
        at += (size_t)snprintf(text + at, size - at, "%s%s[%d,%d)%c", p ? " " : "",
                               cluster->devices[part->device].name, part->lo, part->hi,
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
    describe(&plan, request->cluster, text, sizeof text);
    assert_string_equal(text, expected);
    assert_string_equal(plan.strategy, strategy);
    assert_int_equal(plan.micro_batches, request->micro_batches);
    assert_int_equal(plan.probes, hop_plan_has_zeroth_order(&plan) ? request->probes : 0);
    assert_int_equal(hop_plan_check(&plan, &err), HOP_OK);
    struct hop_schedule schedule;
    assert_int_equal(system->schedule(&plan, plan.micro_batches, plan.probes, &schedule, &err),
                     HOP_OK);
    int32_t window = 0;
    assert_int_equal(hop_schedule_window(&plan, &schedule, 2, &window, &err), HOP_OK);
    hop_schedule_free(&schedule);
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

static void blocks_follow_rates(void **state)
{
    (void)state;
    struct hop_plan_request request = request_of(&four, 16);
    assert_plan("hybridop", &request, "npu0[0,2)z npu1[2,4)z gpu0[4,8)b gpu1[8,16)b");
    request.blocks = 4;
    assert_plan("hybridop", &request, "npu0[0,1)z npu1[1,2)z gpu0[2,3)b gpu1[3,4)b");
    request.blocks = 5;
    assert_plan("hybridop", &request, "npu0[0,1)z npu1[1,2)z gpu0[2,3)b gpu1[3,5)b");
    request.blocks = 11;
    assert_plan("hybridop", &request, "npu0[0,1)z npu1[1,2)z gpu0[2,5)b gpu1[5,11)b");
}

static void fixed_blocks_are_kept(void **state)
{
    (void)state;
    struct hop_plan_request request = request_of(&four, 8);
    const int32_t exact[] = {1, 3, 4, 0}, all_gpu[] = {3, 0, 5, 0}, negative[] = {9, -1, 0, 0};
    const int32_t short_sum[] = {1, 1, 1, 1}, only_npu[] = {0, 8, 0, 0};
    request.fixed_blocks = exact;
    assert_plan("hybridop", &request, "npu0[0,3)z gpu0[3,4)b gpu1[4,8)b");
    request.fixed_blocks = all_gpu;
    assert_plan("hybridop", &request, "gpu0[0,3)b gpu1[3,8)b");
    request.fixed_blocks = negative;
    assert_refused("hybridop", &request, HOP_INPUT, "plan.blocks: npu0 has -1 blocks");
    request.fixed_blocks = short_sum;
    assert_refused("hybridop", &request, HOP_INPUT,
                   "plan.blocks: the counts add up to 4; the model has 8 blocks");
    request.fixed_blocks = only_npu;
    assert_refused("hybridop", &request, HOP_INFEASIBLE, "no BP-capable device holds a block");
}

static void impossible_requests_are_explained(void **state)
{
    (void)state;
    struct hop_plan_request request = request_of(&four, 3);
    assert_refused("hybridop", &request, HOP_INFEASIBLE, "4 devices share 3 blocks");
    request = request_of(&four, 8);
    request.probes = 0;
    assert_refused("hybridop", &request, HOP_INPUT,
                   "zo.probes: 0 leaves the adapters of the BP-free device npu0 untrained");
    request = request_of(&four, 0);
    assert_refused("hybridop", &request, HOP_INPUT, "the model has 0 blocks");
    request = request_of(&four, 8);
    request.micro_batches = 0;
    assert_refused("hybridop", &request, HOP_INPUT, "0 micro-batches");
    request = request_of(&four, 8);
    request.probes = -1;
    assert_refused("single", &request, HOP_INPUT, "-1 probes");
    const struct hop_cluster none = {.devices = boards, .count = 0};
    request = request_of(&none, 8);
    assert_refused("hybridop", &request, HOP_INPUT, "the cluster has no device");
    const struct hop_cluster npu = {.devices = boards + 1, .count = 1};
    request = request_of(&npu, 8);
    assert_refused("hybridop", &request, HOP_INFEASIBLE, "no BP-capable device");
    assert_refused("single", &request, HOP_INFEASIBLE, "no device is BP-capable");
}

static void gpus_alone_are_a_plain_pipeline(void **state)
{
    (void)state;
    struct hop_device gpus[] = {{.name = "a", .bp = true, .rate = 1},
                                {.name = "b", .bp = true, .rate = 1}};
    const struct hop_cluster cluster = {.devices = gpus, .count = 2};
    struct hop_plan_request request = request_of(&cluster, 5);
    assert_plan("hybridop", &request, "a[0,3)b b[3,5)b");
    request.probes = 0;
    assert_plan("hybridop", &request, "a[0,3)b b[3,5)b");
}

static void single_marks_its_first_blocks(void **state)
{
    (void)state;
    struct hop_plan_request request = request_of(&four, 8);
    assert_plan("single", &request, "gpu0[0,8)b");
    request.zo_hi = 3;
    assert_plan("single", &request, "gpu0[0,3)z gpu0[3,8)b");
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
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % n;
}

/* Every device gets a block, all blocks are dealt, and nobody is a block or more off its share
 * unless the minimum of one block forces it. */
static void splits_stay_near_shares(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int n = 0; n < 2000; n++) {
        struct hop_device devices[6];
        const size_t count = 1 + draw(&random, 6);
        double total = 0;
        for (size_t d = 0; d < count; d++) {
            devices[d] = (struct hop_device){.name = boards[0].name,
                                             .bp = d == 0 || draw(&random, 2),
                                             .rate = 1 + draw(&random, 30)};
            total += devices[d].rate;
        }
        const struct hop_cluster cluster = {.devices = devices, .count = count};
        const struct hop_plan_request request =
            request_of(&cluster, (int32_t)(count + draw(&random, 40)));
        struct hop_error err = {0};
        struct hop_plan plan;
        const struct hop_strategy *system;
        assert_int_equal(hop_strategy_find("hybridop", &system, &err), HOP_OK);
        assert_int_equal(system->plan(&request, &plan, &err), HOP_OK);
        assert_int_equal(hop_plan_check(&plan, &err), HOP_OK);
        bool forced = false;
        for (size_t d = 0; d < count; d++)
            forced = forced || request.blocks * devices[d].rate / total < 1;
        for (int32_t p = 0; p < plan.part_count; p++) {
            const struct hop_part *const part = &plan.parts[p];
            const double rate = devices[part->device].rate;
            const double gap = part->hi - part->lo - request.blocks * rate / total;
            assert_true(part->hi > part->lo);
            assert_true(forced || (gap > -1 - 1e-9 && gap < 1 + 1e-9));
            assert_true(part->forward_seconds == (part->hi - part->lo) / rate);
        }
        hop_plan_free(&plan);
    }
}

static void fixed_blocks_are_read(void **state)
{
    (void)state;
    int32_t counts[4] = {9, 9, 9, 9};
    struct hop_error err = {0};
    json_t *object = json_pack("{s:i, s:i}", "gpu1", 5, "npu0", 3);
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &four, counts, &err), HOP_OK);
    const int32_t expected[4] = {0, 3, 5, 0};
    assert_memory_equal(counts, expected, sizeof counts);
    json_object_set_new(object, "gpu2", json_integer(1));
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &four, counts, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "job.yaml: plan.blocks: the cluster has no device 'gpu2'"));
    json_object_clear(object);
    json_object_set_new(object, "gpu0", json_real(1.5));
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &four, counts, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "job.yaml: plan.blocks.gpu0: a whole number from 0"));
    json_object_set_new(object, "gpu0", json_integer(-1));
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &four, counts, &err), HOP_INPUT);
    json_decref(object);
    object = json_array();
    assert_int_equal(hop_fixed_blocks_parse(object, "job.yaml", &four, counts, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "a map from device names"));
    json_decref(object);
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
                        "strategy: there is no 'zzzz'; choose one of hybridop, single");
    assert_null(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_follow_rates),
        cmocka_unit_test(fixed_blocks_are_kept),
        cmocka_unit_test(impossible_requests_are_explained),
        cmocka_unit_test(gpus_alone_are_a_plain_pipeline),
        cmocka_unit_test(single_marks_its_first_blocks),
        cmocka_unit_test(splits_stay_near_shares),
        cmocka_unit_test(fixed_blocks_are_read),
        cmocka_unit_test(unknown_names_get_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
