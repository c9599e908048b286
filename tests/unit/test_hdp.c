/* HDP: groups, partitions and shares, against exhaustive search where there are few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/hdp_groups.h"
#include "strategy/hdp_partition.h"
#include "strategy/pipedream_flush.h"
#include "support_planner.h"
#include "support_schedule.h"
#include "support_systems.h"

enum { MOST = 10 };

/* Partitions */

struct search {
    const struct hop_cost_table *cost;
    const int32_t *devices;
    int32_t count, micro_batches;
    bool used[MOST];
    double best;
};

/* Seconds of a stage on device d, or INFINITY where it does not fit. */
static double stage_of(const struct search *search, int32_t d, int32_t stage, int32_t lo,
                       int32_t hi)
{
    const struct hop_cost_device *const device = &search->cost->devices[d];
    const int32_t behind = search->count - stage;
    const int32_t kept = behind < search->micro_batches ? behind : search->micro_batches;
    double seconds = 0, bytes = device->fixed_bytes;
    for (int32_t b = lo; b < hi; b++) {
        seconds += device->forward[b] + device->backward[b];
        bytes += device->state_bytes[b] + kept * device->activation_bytes[b];
    }
    if (hi - lo == search->cost->blocks)
        bytes -= search->cost->tied_bytes;
    return bytes <= device->memory ? seconds : INFINITY;
}

static void extend(struct search *search, int32_t stage, int32_t lo, double slowest)
{
    if (stage == search->count && lo == search->cost->blocks)
        search->best = fmin(search->best, slowest);
    for (int32_t i = 0; stage < search->count && i < search->count; i++) {
        if (search->used[i])
            continue;
        search->used[i] = true;
        for (int32_t hi = lo + 1; hi <= search->cost->blocks; hi++)
            extend(search, stage + 1, hi,
                   fmax(slowest, stage_of(search, search->devices[i], stage, lo, hi)));
        search->used[i] = false;
    }
}

static void check_stages(const struct search *search, const struct hop_hdp_stage *stages,
                         double seconds)
{
    double slowest = 0;
    bool seen[MOST] = {false};
    for (int32_t q = 0; q < search->count; q++) {
        assert_int_equal(stages[q].lo, q ? stages[q - 1].hi : 0);
        assert_true(stages[q].hi > stages[q].lo);
        assert_false(seen[stages[q].device]);
        seen[stages[q].device] = true;
        slowest = fmax(slowest, stage_of(search, stages[q].device, q, stages[q].lo, stages[q].hi));
    }
    assert_int_equal(stages[search->count - 1].hi, search->cost->blocks);
    assert_true(fabs(slowest - seconds) <= 1e-12 * seconds);
}

static void partitions_are_exact(void **state)
{
    (void)state;
    uint64_t seed = 5;
    int32_t found = 0, refused = 0;
    for (int32_t i = 0; i < 400; i++) {
        const struct support_cluster kind = {.blocks = 7, .devices = 5, .tight = i % 3 != 0};
        struct hop_cost_table cost = support_cluster(&kind, &seed);
        support_slow_backward(&cost, 5);
        int32_t devices[MOST];
        struct hop_hdp_stage stages[MOST];
        struct hop_error err = {0};
        double seconds;
        struct search search = {.cost = &cost,
                                .devices = devices,
                                .micro_batches = support_between(&seed, 1, 6),
                                .best = INFINITY};
        for (int32_t d = 0; d < cost.device_count; d++)
            if (d == 0 || support_between(&seed, 0, 3))
                devices[search.count++] = d;
        extend(&search, 0, 0, 0);
        assert_int_equal(hop_hdp_partition(&cost, devices, search.count, search.micro_batches,
                                           stages, &seconds, &err),
                         HOP_OK);
        assert_true(isinf(seconds) ? isinf(search.best)
                                   : fabs(seconds - search.best) <= 1e-12 * seconds);
        if (isinf(seconds)) {
            refused++;
        } else {
            check_stages(&search, stages, seconds);
            found++;
        }
        hop_cost_free(&cost);
    }
    assert_true(found > 100 && refused > 50);
}

/* More devices than are tried in every order stand by their memory. */
static void large_groups_stand_by_memory(void **state)
{
    (void)state;
    double one[MOST];
    int32_t devices[MOST];
    struct hop_hdp_stage stages[MOST];
    struct hop_error err = {0};
    double seconds;
    for (int32_t d = 0; d < MOST; d++) {
        one[d] = 1;
        devices[d] = d;
    }
    struct hop_cost_table cost = support_plain_cluster(20, MOST, one, one);
    for (int32_t d = 0; d < MOST; d++)
        cost.devices[d].memory = 100 + d % 5;
    assert_int_equal(hop_hdp_partition(&cost, devices, MOST, 4, stages, &seconds, &err), HOP_OK);
    assert_true(seconds == 4);
    const int32_t expected[] = {4, 9, 3, 8, 2, 7, 1, 6, 0, 5};
    for (int32_t q = 0; q < MOST; q++)
        assert_int_equal(stages[q].device, expected[q]);
    hop_cost_free(&cost);
}

/* Groups */

static void assert_groups(const struct hop_cost_table *cost, enum hop_hdp_policy policy, int32_t k,
                          int32_t count, const int32_t *expected)
{
    int32_t devices[MOST];
    struct hop_hdp_groups groups;
    struct hop_error err = {0};
    const struct hop_crew crew = {devices, cost->device_count};
    for (int32_t d = 0; d < cost->device_count; d++)
        devices[d] = d;
    assert_int_equal(hop_hdp_deal(cost, &crew, policy, k, &groups, &err), HOP_OK);
    assert_int_equal(groups.count, count);
    assert_memory_equal(groups.of, expected, (size_t)cost->device_count * sizeof *expected);
    hop_hdp_groups_free(&groups);
}

/* Two slow BP-free boards (4 a block), a middle and three fast BP-capable ones. */
static struct hop_cost_table six_boards(void)
{
    const double forward[] = {2, 1, 0.5, 2, 0.5, 0.5}, backward[] = {0, 1, 0.5, 0, 0.5, 0.5};
    struct hop_cost_table cost = support_plain_cluster(8, 6, forward, backward);
    support_slow_backward(&cost, 1);
    return cost;
}

static void policies_deal_devices(void **state)
{
    (void)state;
    struct hop_cost_table cost = six_boards();
    const int32_t kinds[] = {0, 1, 1, 0, 1, 1}, types[] = {0, 1, 2, 0, 2, 2};
    const int32_t nodes[] = {0, 1, 1, 0, 2, 3}, equal[] = {0, 0, 0, 0, 0, 0};
    const int32_t one[] = {0, 0, 0, 0, 0, 0}, two[] = {1, 1, 0, 1, 1, 0};
    assert_groups(&cost, HOP_HDP_KINDS, 0, 2, kinds);
    assert_groups(&cost, HOP_HDP_TYPES, 0, 3, types);
    cost.machine[3] = cost.machine[0];
    cost.machine[2] = cost.machine[1];
    assert_groups(&cost, HOP_HDP_NODES, 0, 4, nodes);
    assert_groups(&cost, HOP_HDP_EQUAL, 0, 1, equal);
    assert_groups(&cost, HOP_HDP_BALANCED, 1, 1, one);
    /* Rates 1/8 of the fast ones, then 1/16 and 1/32: 2 and 5 are as fast as the others. */
    assert_groups(&cost, HOP_HDP_BALANCED, 2, 2, two);
    hop_cost_free(&cost);
    const double forward[] = {2, 2, 1, 1, 1}, backward[] = {2, 2, 1, 1, 1};
    cost = support_plain_cluster(8, 5, forward, backward);
    /* One of each type a group; what is over joins the slowest, here the first of equal ones. */
    const int32_t dealt[] = {0, 1, 0, 1, 0};
    assert_groups(&cost, HOP_HDP_EQUAL, 0, 2, dealt);
    hop_cost_free(&cost);
}

/* Plans */

/* Micro-batches of the pipeline of a device. */
static int32_t share_of(const struct hop_plan *plan, int32_t device)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].device == device) {
            const struct hop_range range =
                hop_part_micro_batches(&plan->parts[p], plan->micro_batches);
            return range.hi - range.lo;
        }
    return 0;
}

/* A device that holds the model alone makes a group of its own: nothing is sent, nobody waits. */
static void one_device_groups_share_by_rate(void **state)
{
    (void)state;
    const double forward[] = {1, 3, 1, 0.5}, backward[] = {1, 3, 1, 0.5};
    struct hop_cost_table cost = support_plain_cluster(1, 4, forward, backward);
    struct hop_plan_request request = support_request(&cost, 26);
    struct hop_plan plan = support_must_plan("hdp", &request);
    support_must_be_sound(&plan, &cost);
    assert_int_equal(hop_plan_pipelines(&plan), 4);
    /* 13/3 a second: 12 seconds. */
    assert_true(plan.simulated_seconds == 12 && plan.formula_seconds == 12);
    assert_int_equal(share_of(&plan, 0), 6);
    assert_int_equal(share_of(&plan, 1), 2);
    assert_int_equal(share_of(&plan, 2), 6);
    assert_int_equal(share_of(&plan, 3), 12);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* BP-free boards run backward at their slow rate, so their group gets little. */
static void slow_groups_get_little(void **state)
{
    (void)state;
    const double forward[] = {1, 1, 1, 1}, backward[] = {0, 1, 0, 1};
    struct hop_cost_table cost = support_plain_cluster(4, 4, forward, backward);
    struct hop_plan_request request = support_request(&cost, 12);
    support_must_refuse("hdp", &request, HOP_INFEASIBLE, "d0 has no backward times and hdp");
    request.bp_only = true;
    struct hop_plan plan = support_must_plan("hdp", &request);
    support_must_be_sound(&plan, &cost);
    assert_true(plan.simulated_seconds == 48);
    assert_int_equal(share_of(&plan, 0), 0);
    hop_plan_free(&plan);
    request.bp_only = false;
    support_slow_backward(&cost, 10);
    plan = support_must_plan("hdp", &request);
    support_must_be_sound(&plan, &cost);
    assert_true(plan.simulated_seconds < 48);
    assert_true(share_of(&plan, 0) <= 2 && share_of(&plan, 0) >= 1);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* Every group holds the whole model: as memory shrinks there are fewer, at last one, then none. */
static void memory_makes_groups_fewer(void **state)
{
    (void)state;
    double one[] = {1, 1, 1, 1};
    struct hop_cost_table cost = support_plain_cluster(4, 4, one, one);
    struct hop_plan_request request = support_request(&cost, 8);
    const double memory[] = {4, 3, 2, 1.5, 1};
    const int32_t groups[] = {4, 2, 2, 1, 1};
    for (int32_t d = 0; d < 4; d++)
        for (int32_t b = 0; b < 4; b++)
            cost.devices[d].state_bytes[b] = 1;
    for (int32_t i = 0; i < 5; i++) {
        for (int32_t d = 0; d < 4; d++)
            cost.devices[d].memory = memory[i];
        struct hop_plan plan = support_must_plan("hdp", &request);
        support_must_be_sound(&plan, &cost);
        assert_int_equal(hop_plan_pipelines(&plan), groups[i]);
        hop_plan_free(&plan);
    }
    cost.devices[2].memory = 0.5;
    support_must_refuse("hdp", &request, HOP_INFEASIBLE,
                        "not even the group of all 4 devices does: 4 blocks need 4 bytes, 3.5 are "
                        "there (most on d0), 0.5 too few");
    cost.devices[0].memory = 1.5;
    support_must_refuse("hdp", &request, HOP_INFEASIBLE,
                        "no split of the 4 blocks fits even the group of all 4 devices");
    hop_cost_free(&cost);
}

/* Without links every deal's shares are the best there are; and no deal of the policies is better
 * than what was chosen. */
static double best_of_two(const struct hop_cost_table *cost, const struct hop_hdp_groups *groups,
                          int32_t micro_batches)
{
    double best = INFINITY, seconds[2][MOST];
    int32_t devices[2][MOST], count[2] = {0, 0};
    for (int32_t d = 0; d < cost->device_count; d++)
        devices[groups->of[d]][count[groups->of[d]]++] = d;
    for (int32_t share = 1; share < micro_batches; share++) {
        double slowest = 0;
        for (int g = 0; g < 2; g++) {
            struct hop_hdp_stage stages[MOST];
            struct hop_error err = {0};
            const int32_t n = g ? micro_batches - share : share;
            double most;
            assert_int_equal(hop_hdp_partition(cost, devices[g], count[g], n, stages, &most, &err),
                             HOP_OK);
            for (int32_t q = 0; q < count[g] && !isinf(most); q++)
                seconds[g][q] =
                    hop_cost_forward(cost, stages[q].device, stages[q].lo, stages[q].hi) +
                    hop_cost_backward(cost, stages[q].device, stages[q].lo, stages[q].hi);
            slowest = fmax(slowest,
                           isinf(most) ? INFINITY : hop_pipedream_latency(seconds[g], count[g], n));
        }
        best = fmin(best, slowest);
    }
    return best;
}

static void shares_are_the_best(void **state)
{
    (void)state;
    uint64_t seed = 21;
    int32_t compared = 0;
    for (int32_t i = 0; i < 150; i++) {
        const struct support_cluster kind = {.blocks = 6, .devices = 5, .tight = i % 4 == 0};
        struct hop_cost_table cost = support_cluster(&kind, &seed);
        support_slow_backward(&cost, 4);
        struct hop_plan_request request = support_request(&cost, support_between(&seed, 2, 9));
        struct hop_plan plan;
        struct hop_error err = {0};
        request.objective = HOP_OBJECTIVE_FORMULA;
        if (support_plan_by("hdp", &request, &plan, &err) == HOP_OK) {
            support_must_be_sound(&plan, &cost);
            for (enum hop_hdp_policy policy = 0; policy < HOP_HDP_POLICIES; policy++) {
                int32_t devices[MOST] = {0, 1, 2, 3, 4};
                const struct hop_crew crew = {devices, cost.device_count};
                struct hop_hdp_groups groups;
                if (crew.count < 2)
                    continue;
                assert_int_equal(hop_hdp_deal(&cost, &crew, policy, 2, &groups, &err), HOP_OK);
                if (groups.count == 2) {
                    const double best = best_of_two(&cost, &groups, request.micro_batches);
                    assert_true(isinf(best) || hop_plan_pipelines(&plan) > 1);
                    assert_true(plan.formula_seconds <= best * (1 + 1e-12) ||
                                hop_plan_pipelines(&plan) == 1);
                    compared += !isinf(best);
                }
                hop_hdp_groups_free(&groups);
            }
            hop_plan_free(&plan);
        }
        hop_cost_free(&cost);
    }
    assert_true(compared > 100);
}

static void random_clusters(void **state)
{
    (void)state;
    uint64_t seed = 9;
    int32_t found = 0, refused = 0, several = 0;
    for (int32_t i = 0; i < 200; i++) {
        const struct support_cluster kind = {
            .blocks = 10, .devices = 7, .links = i % 2 != 0, .tight = i % 3 == 0};
        struct hop_cost_table cost = support_cluster(&kind, &seed);
        support_slow_backward(&cost, 8);
        for (int32_t b = 0; b < cost.blocks; b++)
            cost.gradient_bytes[b] = support_between(&seed, 0, 100000);
        struct hop_plan_request request = support_request(&cost, support_between(&seed, 1, 12));
        struct hop_plan plan;
        struct hop_error err = {0};
        request.devices = HOP_DEVICES_AUTO;
        const hop_status status = support_plan_by("hdp", &request, &plan, &err);
        if (status == HOP_OK) {
            support_must_be_sound(&plan, &cost);
            several += hop_plan_pipelines(&plan) > 1;
            hop_plan_free(&plan);
            found++;
        } else {
            assert_int_equal(status, HOP_INFEASIBLE);
            refused++;
        }
        hop_cost_free(&cost);
    }
    assert_true(found > 100 && refused > 5 && several > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partitions_are_exact),   cmocka_unit_test(large_groups_stand_by_memory),
        cmocka_unit_test(policies_deal_devices),  cmocka_unit_test(one_device_groups_share_by_rate),
        cmocka_unit_test(slow_groups_get_little), cmocka_unit_test(memory_makes_groups_fewer),
        cmocka_unit_test(shares_are_the_best),    cmocka_unit_test(random_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
