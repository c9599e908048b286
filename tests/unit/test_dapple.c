/* DAPPLE: its formula, its placement, its search against all plans, and plans for cost tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/price.h"
#include "strategy/dapple_authors.h"
#include "strategy/dapple_search.h"
#include "strategy/strategy.h"
#include "support_files.h"
#include "support_mutation.h"
#include "support_planner.h"
#include "support_replicas.h"
#include "support_schedule.h"

enum { STAGES_MOST = 8 };

/* Seconds of a line of one-block stages that each keep up to `kept[s]` micro-batches. */
static double simulate_line(const double *forward, const double *backward, const int32_t *kept,
                            int32_t stages, int32_t micro_batches)
{
    struct hop_cost_table cost = support_plain_cluster(stages, stages, forward, backward);
    int32_t devices[STAGES_MOST];
    enum hop_gradient gradients[STAGES_MOST];
    for (int32_t s = 0; s < stages; s++) {
        devices[s] = s;
        gradients[s] = HOP_GRADIENT_BACKPROP;
    }
    struct hop_plan plan = support_plan(stages, devices, gradients);
    plan.micro_batches = micro_batches;
    strcpy(plan.strategy, "dapple");
    for (int32_t s = 0; s < stages; s++)
        plan.parts[s].in_flight = kept[s];
    const double seconds = support_simulated(&plan, &cost);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
    return seconds;
}

struct vector {
    int32_t stages, micro_batches;
    double forward[STAGES_MOST], backward[STAGES_MOST];
    double formula, p_a, p_b;
};

static void check_vector(const struct vector *v)
{
    struct hop_pipeline_step steps[STAGES_MOST];
    int32_t p_a[STAGES_MOST], p_b[STAGES_MOST];
    for (int32_t s = 0; s < v->stages; s++) {
        steps[s] = (struct hop_pipeline_step){v->forward[s], v->backward[s], 0};
        p_a[s] = hop_in_flight_least(v->stages, s, v->micro_batches);
        p_b[s] = hop_in_flight_most(v->stages, s, v->micro_batches);
    }
    ASSERT_NEAR(hop_pivot_seconds(steps, v->stages, v->micro_batches), v->formula, 1e-12);
    ASSERT_NEAR(simulate_line(v->forward, v->backward, p_a, v->stages, v->micro_batches), v->p_a,
                1e-12);
    ASSERT_NEAR(simulate_line(v->forward, v->backward, p_b, v->stages, v->micro_batches), v->p_b,
                1e-12);
}

/* Equal and tail-heavy stages: the formula is exact. Head-heavy ones: it is optimistic. */
static void formula_and_simulation(void **state)
{
    (void)state;
    static const struct vector vectors[] = {
        {4, 4, {1, 1, 1, 1}, {2, 2, 2, 2}, 21, 21, 21},
        {4, 8, {1, 1, 1, 1}, {2, 2, 2, 2}, 33, 33, 33},
        {6, 8, {1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2}, 39, 39, 39},
        {4, 8, {2, 1, 1, 1}, {4, 2, 2, 2}, 48, 51, 48},
        {4, 4, {1, 1, 2, 1}, {2, 2, 4, 2}, 30, 31, 30},
        {3, 4, {3, 2, 1}, {6, 4, 2}, 36, 39, 39},
        {4, 8, {1, 1, 1, 1}, {20, 2, 2, 2}, 168, 174, 171},
        {4, 8, {1, 1, 1, 1}, {2, 2, 2, 20}, 177, 177, 177},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        check_vector(&vectors[i]);
}

static void all_reduce_ends_the_step(void **state)
{
    (void)state;
    /* The pivot is the last stage: T = 2 + 3 * 3 + max(AR_0 + 4, AR_1 + 2). */
    const struct hop_pipeline_step even[] = {{1, 2, 5}, {1, 2, 1}};
    ASSERT_NEAR(hop_pivot_seconds(even, 2, 4), 2 + 9 + 9, 1e-12);
    /* The pivot is the first one: the second ends AR_1 - (4 + 1) behind its last backward. */
    const struct hop_pipeline_step head[] = {{2, 4, 0}, {0.5, 1, 12}};
    assert_int_equal(hop_pivot_step(head, 2, 4), 0);
    ASSERT_NEAR(hop_pivot_seconds(head, 2, 4), 2 + 18 + 7, 1e-12);
    /* One stage: M (F + B) + AR. */
    ASSERT_NEAR(hop_pivot_seconds(even, 1, 4), 12 + 5, 1e-12);
}

static hop_cards cards(const int32_t *devices, int32_t count)
{
    hop_cards set = 0;
    for (int32_t i = 0; i < count; i++)
        set |= hop_card(devices[i]);
    return set;
}

#define CARDS(...)                                                                                 \
    cards((const int32_t[]){__VA_ARGS__},                                                          \
          (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static void placement(void **state)
{
    (void)state;
    int32_t ends[] = {4, 8, 10};
    const struct hop_card_machines machines = {ends, 3};
    const hop_cards used = CARDS(0, 1, 4);
    assert_true(hop_cards_place(&machines, 0, 5, HOP_CARDS_FRESH) == CARDS(0, 1, 2, 3, 4));
    assert_true(hop_cards_place(&machines, used, 2, HOP_CARDS_FRESH) == CARDS(8, 9));
    assert_true(hop_cards_place(&machines, used, 3, HOP_CARDS_FRESH) == 0);
    assert_true(hop_cards_place(&machines, used, 3, HOP_CARDS_APPEND) == CARDS(2, 3, 5));
    assert_true(hop_cards_place(&machines, 0, 1, HOP_CARDS_APPEND) == 0);
    assert_true(hop_cards_place(&machines, used, 4, HOP_CARDS_SCATTER) == CARDS(2, 5, 8, 3));
    assert_true(hop_cards_place(&machines, used, 8, HOP_CARDS_SCATTER) == 0);
    hop_cards found[HOP_CARD_POLICIES];
    assert_int_equal(hop_cards_next(&machines, used, 7, found), 1);
    assert_int_equal(hop_cards_next(&machines, used, 2, found), 3);
    assert_false(hop_cards_cross(&machines, CARDS(4, 7)));
    assert_true(hop_cards_cross(&machines, CARDS(3, 4)));
    assert_int_equal(hop_cards_away(&machines, CARDS(0, 5, 9), CARDS(4, 6)), 2);
    assert_int_equal(hop_cards_total(&machines), 10);
    assert_int_equal(hop_cards_count(hop_cards_first(10)), 10);
}

/* Two rounds of one device on two machines of two: every pair but none twice. */
static void rounds_of_replicas(void **state)
{
    (void)state;
    struct hop_error err = {0};
    int32_t ends[] = {2, 4};
    const struct hop_card_machines machines = {ends, 2};
    struct hop_cards_list list = {0};
    ASSERT_OK(hop_cards_rounds(&machines, 0, 1, 2, &list, &err));
    assert_int_equal(list.count, 2);
    assert_true(list.items[0] == CARDS(0, 2));
    assert_true(list.items[1] == CARDS(0, 1));
    free(list.items);
}

/* Three layers in a row, of 1, 2 and 3 seconds. */
static const char three_layers[] = "3\n"
                                   "1 3 6\n-1 2 5\n-1 -1 3\n-1 -1 -1\n"
                                   "8 16 24\n-1 8 16\n-1 -1 8\n-1 -1 -1\n"
                                   "4e6 8e6 9e6\n-1 4e6 5e6\n-1 -1 1e6\n-1 -1 -1\n"
                                   "100 200 0\n"
                                   "0\n1 0\n2 1 0\n";

static struct hop_error read_error;

static hop_status read_profile(const char *path)
{
    struct hop_dapple_profile profile;
    const hop_status status = hop_dapple_profile_load(path, &profile, &read_error);
    if (status == HOP_OK)
        hop_dapple_profile_free(&profile);
    return status;
}

static void profiles_are_checked(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_dapple_profile profile;
    ASSERT_OK(
        hop_dapple_profile_load(hop_test_write_text("three.dump", three_layers), &profile, &err));
    assert_int_equal(profile.layers, 3);
    hop_dapple_profile_scale(&profile, 2, 8);
    ASSERT_NEAR(hop_dapple_seconds(&profile), 24, 0);
    ASSERT_NEAR(hop_dapple_at(&profile, profile.compute, 1, 2), 20, 0);
    ASSERT_NEAR(hop_dapple_at(&profile, profile.parameters, 1, 2), 5e6, 0);
    ASSERT_NEAR(profile.output[1], 800, 0);
    assert_int_equal(profile.first[3], 3);
    assert_int_equal(profile.predecessors[1], 1);
    hop_dapple_profile_free(&profile);
    hop_test_mutate_text("profile.dump", three_layers, read_profile, &read_error);
}

/* One GPU a stage on two machines, by hand: blocks of 3 and 3 seconds, two transfers' worth of 200
 * bytes at 1 GB/s; the first stage is charged for the parameters of three layers, but on one GPU
 * nothing is reduced. T = 3 / 4 * 3 + 6 / 4 + 50e-9. */
static void authors_by_hand(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_dapple_profile profile;
    struct hop_dapple_answer answer;
    int32_t ends[] = {1, 2};
    const struct hop_card_machines machines = {ends, 2};
    const struct hop_dapple_question question = {
        .profile = &profile, .machines = &machines, .global_batch = 4, .micro_batch = 1};
    ASSERT_OK(
        hop_dapple_profile_load(hop_test_write_text("three.dump", three_layers), &profile, &err));
    ASSERT_OK(hop_dapple_bipartition(&question, &answer, &err));
    assert_int_equal(answer.stages[0].hi, 2);
    assert_true(answer.stages[1].cards == CARDS(1));
    ASSERT_NEAR(answer.speedup, 6 / (0.75 * 3 + 1.5 + 50e-9), 1e-12);
    hop_dapple_answer_free(&answer);
    ASSERT_OK(hop_dapple_pipelines(&question, 2, true, &answer, &err));
    assert_int_equal(answer.count, 2);
    ASSERT_NEAR(answer.speedup, 6 / (0.75 * 3 + 1.5 + 50e-9), 1e-12);
    hop_dapple_answer_free(&answer);
    /* Two replicas on two machines reduce 9 MB at 3 GB/s: 3 s + 3 ms. */
    ASSERT_NEAR(hop_dapple_parallel_speedup(&question), 6 / 3.003, 1e-12);
    /* An all-reduce of 1 GB on three GPUs of two machines. */
    int32_t three[] = {2, 3};
    const struct hop_card_machines uneven = {three, 2};
    ASSERT_NEAR(hop_dapple_all_reduce(&uneven, CARDS(0, 1, 2), 1e9), 4.0 / 9, 1e-12);
    ASSERT_NEAR(hop_dapple_all_reduce(&uneven, CARDS(0, 1), 1e9), 0.04, 1e-12);
    ASSERT_NEAR(hop_dapple_all_to_all(&uneven, CARDS(0, 1), CARDS(2), 1e9), 1, 1e-12);
    ASSERT_NEAR(hop_dapple_all_to_all(&uneven, CARDS(0), CARDS(1, 2), 1e9), 1.0 / 3, 1e-12);
    ASSERT_NEAR(hop_dapple_all_to_all(&uneven, CARDS(0), CARDS(1), 1e9), 0.04, 1e-12);
    hop_dapple_profile_free(&profile);
}

enum { LAYERS_MOST = 6, DEVICES_MOST = 5 };

/* A random problem with its storage. */
struct instance {
    struct hop_dapple_problem problem;
    double forward[LAYERS_MOST + 1], backward[LAYERS_MOST + 1], gradients[LAYERS_MOST + 1];
    double boundary[LAYERS_MOST];
    int32_t ends[DEVICES_MOST];
};

static void random_instance(struct instance *instance, int32_t devices, uint64_t *seed)
{
    struct hop_dapple_problem *const problem = &instance->problem;
    memset(instance, 0, sizeof *instance);
    problem->layers = support_between(seed, 1, LAYERS_MOST);
    problem->micro_batches = support_between(seed, 1, 12);
    problem->rows = support_between(seed, 1, 4);
    for (int32_t l = 0; l < problem->layers; l++) {
        instance->forward[l + 1] = instance->forward[l] + support_between(seed, 1, 8);
        instance->backward[l + 1] = instance->backward[l] + support_between(seed, 1, 16);
        instance->gradients[l + 1] = instance->gradients[l] + support_between(seed, 0, 20);
        instance->boundary[l] = support_between(seed, 0, 10);
    }
    for (int32_t placed = 0; placed < devices;) {
        placed += support_between(seed, 1, devices - placed);
        instance->ends[problem->machines.count++] = placed;
    }
    problem->machines.ends = instance->ends;
    problem->forward = instance->forward;
    problem->backward = instance->backward;
    problem->gradients = instance->gradients;
    problem->boundary = instance->boundary;
    problem->inside = (struct hop_dapple_link){0, 0.0625};
    problem->between = (struct hop_dapple_link){0.25, 0.5};
    problem->shared_nic = support_between(seed, 0, 1);
}

/* Least T over all cuts, widths and policies, stage by stage. */
static double brute_force(const struct hop_dapple_problem *problem, struct hop_dapple_stage *stages,
                          int32_t count, hop_cards occupied)
{
    const int32_t lo = count ? stages[count - 1].hi : 0;
    const hop_cards rest = hop_cards_first(hop_cards_total(&problem->machines)) & ~occupied;
    struct hop_pipeline_step steps[2 * DEVICES_MOST];
    double best = INFINITY;
    stages[count] = (struct hop_dapple_stage){lo, problem->layers, rest};
    if (hop_cards_count(rest) <= problem->rows) {
        hop_dapple_steps(problem, stages, count + 1, steps);
        best = hop_pivot_seconds(steps, 2 * count + 1, problem->micro_batches);
    }
    for (int32_t hi = lo + 1; hi < problem->layers; hi++)
        for (int32_t width = 1; width < hop_cards_count(rest) && width <= problem->rows; width++)
            for (int policy = 0; policy < HOP_CARD_POLICIES; policy++) {
                const hop_cards found =
                    hop_cards_place(&problem->machines, occupied, width, policy);
                if (!found)
                    continue;
                stages[count] = (struct hop_dapple_stage){lo, hi, found};
                best = fmin(best, brute_force(problem, stages, count + 1, occupied | found));
            }
    return best;
}

static void check_stages(const struct hop_dapple_problem *problem,
                         const struct hop_dapple_stage *stages, int32_t count, double seconds)
{
    struct hop_pipeline_step steps[2 * DEVICES_MOST];
    hop_cards used = 0;
    int32_t layers = 0;
    for (int32_t s = 0; s < count; s++) {
        assert_int_equal(stages[s].lo, layers);
        assert_true(stages[s].hi > layers);
        assert_true(stages[s].cards != 0 && !(stages[s].cards & used));
        assert_true(hop_cards_count(stages[s].cards) <= problem->rows);
        layers = stages[s].hi;
        used |= stages[s].cards;
    }
    assert_int_equal(layers, problem->layers);
    assert_true(used == hop_cards_first(hop_cards_total(&problem->machines)));
    hop_dapple_steps(problem, stages, count, steps);
    assert_true(seconds == hop_pivot_seconds(steps, 2 * count - 1, problem->micro_batches));
}

/* Two devices leave nothing to forget: the search is exact. With more it may miss the best plan,
 * but never claims a better one. */
static void search_against_all_plans(void **state)
{
    (void)state;
    struct hop_error err = {0};
    uint64_t seed = 7;
    int32_t plans = 0, best = 0;
    for (int32_t trial = 0; trial < 600; trial++) {
        struct instance instance;
        struct hop_dapple_stage stages[DEVICES_MOST], scratch[DEVICES_MOST + 1];
        int32_t count;
        double seconds;
        const int32_t devices = 1 + trial % DEVICES_MOST;
        random_instance(&instance, devices, &seed);
        const double least = brute_force(&instance.problem, scratch, 0, 0);
        ASSERT_OK(hop_dapple_search(&instance.problem, stages, &count, &seconds, &err));
        assert_true(isfinite(least) == (count > 0));
        if (!count)
            continue;
        check_stages(&instance.problem, stages, count, seconds);
        assert_true(seconds >= least * (1 - 1e-12));
        if (devices <= 2)
            ASSERT_NEAR(seconds, least, 1e-12 * least);
        plans++;
        best += seconds <= least * (1 + 1e-12);
    }
    assert_true(plans > 300);
    assert_int_equal(best, plans);
}

static const struct hop_strategy *strategy(void)
{
    struct hop_error err = {0};
    const struct hop_strategy *found;
    ASSERT_OK(hop_strategy_find("dapple", &found, &err));
    return found;
}

static void free_plan(struct hop_plan *plan)
{
    hop_plan_free(plan);
    free(plan);
}

/* Replicas of a stage split evenly, and every device takes part. */
static void check_even(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    const double rows = cost->micro_batch_samples;
    assert_int_equal(plan->part_count, cost->device_count);
    for (int32_t p = 0; p < plan->part_count; p++)
        for (int32_t q = 0; q < p; q++) {
            const struct hop_part *const a = &plan->parts[p], *const b = &plan->parts[q];
            const double more = (a->sample_hi - a->sample_lo) - (b->sample_hi - b->sample_lo);
            assert_true(a->stage != b->stage || fabs(more) * rows < 1 + 1e-9);
        }
}

static void random_clusters(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int32_t plans = 0, refused = 0;
    for (int32_t trial = 0; trial < 400; trial++) {
        struct hop_cost_table cost = support_replica_cluster(1 + trial % 6, trial % 3 == 0, &seed);
        const struct hop_plan_request request = {.cost = &cost,
                                                 .micro_batches = support_between(&seed, 1, 8)};
        struct hop_plan *const plan = support_replica_plan(strategy(), &request);
        if (plan) {
            support_check_replicas(plan, &request, strategy());
            check_even(plan, &cost);
            free_plan(plan);
        }
        *(plan ? &plans : &refused) += 1;
        hop_cost_free(&cost);
    }
    print_message("%d plans, %d refused\n", plans, refused);
    assert_true(plans > 200 && refused > 20);
}

/* Four equal devices on two machines, 1 + 2 seconds a block, 4 rows. */
static struct hop_cost_table four_devices(int32_t blocks)
{
    const double forward[] = {1, 1, 1, 1}, backward[] = {2, 2, 2, 2};
    struct hop_cost_table cost = support_plain_cluster(blocks, 4, forward, backward);
    cost.micro_batch_samples = 4;
    cost.machine[1] = cost.machine[0];
    cost.machine[3] = cost.machine[2];
    return cost;
}

static void slow_links(struct hop_cost_table *cost, double bandwidth)
{
    for (int32_t i = 0; i < 16; i++)
        if (cost->machine[i / 4] != cost->machine[i % 4])
            cost->bandwidth[i] = bandwidth;
}

/* Without communication data parallelism is best: M (F + B) / 4. */
static void free_links_replicate(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_devices(6);
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 4};
    struct hop_plan *const plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_int_equal(plan->parts[3].stage, 0);
    ASSERT_NEAR(plan->formula_seconds, 4 * 18.0 / 4, 1e-9);
    ASSERT_NEAR(plan->simulated_seconds, 4 * 18.0 / 4, 1e-9);
    free_plan(plan);
    hop_cost_free(&cost);
}

/* Gradients that are dear between machines keep the replicas of a stage on one. */
static void machines_hold_stages(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_devices(6);
    for (int32_t b = 0; b < 6; b++)
        cost.gradient_bytes[b] = 100;
    for (int32_t b = 0; b < 5; b++)
        cost.boundary_bytes[b] = 0.1;
    slow_links(&cost, 1);
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 16};
    struct hop_plan *const plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_int_equal(plan->part_count, 4);
    for (int32_t p = 0; p < 4; p++) {
        assert_int_equal(plan->parts[p].stage, p / 2);
        assert_int_equal(plan->parts[p].lo, p / 2 * 3);
        assert_int_equal(plan->parts[p].device, p);
        assert_int_equal(plan->parts[p].in_flight, 2 - p / 2);
        ASSERT_NEAR(plan->parts[p].sample_lo, p % 2 / 2.0, 0);
    }
    free_plan(plan);
    hop_cost_free(&cost);
}

/* Where transfers take a notable part of the time, stages warm up with 2 (S - i) - 1. */
static void notable_transfers_warm_up_longer(void **state)
{
    (void)state;
    for (int32_t slow = 0; slow < 2; slow++) {
        struct hop_cost_table cost = four_devices(4);
        cost.micro_batch_samples = 1;
        for (int32_t b = 0; b < 3; b++)
            cost.boundary_bytes[b] = slow ? 1 : 0.01;
        for (int32_t i = 0; i < 16; i++)
            cost.bandwidth[i] = 2;
        const struct hop_plan_request request = {.cost = &cost, .micro_batches = 16};
        struct hop_plan *const plan = support_replica_plan(strategy(), &request);
        assert_non_null(plan);
        assert_int_equal(plan->part_count, 4);
        for (int32_t s = 0; s < 4; s++)
            assert_int_equal(plan->parts[s].in_flight, slow ? 2 * (4 - s) - 1 : 4 - s);
        support_check_replicas(plan, &request, strategy());
        free_plan(plan);
        hop_cost_free(&cost);
    }
}

/* Weights are on every replica: what rules out data parallelism leaves a pipeline. */
static void memory_rules_plans_out(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_devices(4);
    struct hop_error err = {0};
    struct hop_plan plan = {.part_count = -7};
    for (int32_t d = 0; d < 4; d++) {
        cost.devices[d].memory = 20;
        for (int32_t b = 0; b < 4; b++) {
            cost.devices[d].state_bytes[b] = 10;
            cost.devices[d].activation_bytes[b] = 1;
        }
    }
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 4};
    struct hop_plan *const line = support_replica_plan(strategy(), &request);
    assert_non_null(line);
    support_check_replicas(line, &request, strategy());
    for (int32_t p = 0; p < 4; p++)
        assert_int_equal(line->parts[p].hi - line->parts[p].lo, 1);
    free_plan(line);
    cost.devices[2].memory = 10;
    ASSERT_REFUSED(strategy()->plan(&request, &plan, &err), HOP_INFEASIBLE,
                   "d2 cannot hold one block with one sample");
    cost.devices[2].memory = 20;
    for (int32_t d = 0; d < 4; d++)
        cost.devices[d].state_bytes[1] = 25;
    ASSERT_REFUSED(strategy()->plan(&request, &plan, &err), HOP_INFEASIBLE,
                   "no device can hold block 1 with one sample; d0 comes closest");
    for (int32_t d = 0; d < 4; d++)
        for (int32_t b = 0; b < 4; b++)
            cost.devices[d].state_bytes[b] = b < 3 ? 15 : 5;
    cost.devices[1].memory = cost.devices[3].memory = 10;
    ASSERT_REFUSED(strategy()->plan(&request, &plan, &err), HOP_INFEASIBLE,
                   "dapple finds no stages of 4 devices that fit their memory: the blocks with one "
                   "sample are 51 bytes");
    assert_int_equal(plan.part_count, -7);
    hop_cost_free(&cost);
}

/* As many micro-batches as memory allows, where it does not allow the warm-up of any plan. */
static void memory_limits_the_warm_up(void **state)
{
    (void)state;
    const double forward[] = {1, 1}, backward[] = {2, 2};
    struct hop_cost_table cost = support_plain_cluster(2, 2, forward, backward);
    for (int32_t d = 0; d < 2; d++) {
        cost.devices[d].memory = 15;
        for (int32_t b = 0; b < 2; b++) {
            cost.devices[d].state_bytes[b] = 10;
            cost.devices[d].activation_bytes[b] = 4;
        }
    }
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 4};
    struct hop_plan *const plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_int_equal(plan->part_count, 2);
    assert_int_equal(plan->parts[0].in_flight, 1);
    support_check_replicas(plan, &request, strategy());
    /* One at a time: 4 (1 + 1 + 2 + 2) by simulation, which the formula does not know. */
    ASSERT_NEAR(plan->simulated_seconds, 24, 1e-9);
    ASSERT_NEAR(plan->formula_seconds, 15, 1e-9);
    free_plan(plan);
    hop_cost_free(&cost);
}

/* The planner sees the mean of the devices: unlike ones get what equal ones of that mean would. */
static void blind_to_the_devices(void **state)
{
    (void)state;
    struct hop_cost_table cost = four_devices(8);
    const double speed[] = {0.25, 1.75, 0.5, 1.5};
    cost.micro_batch_samples = 1;
    for (int32_t d = 0; d < 4; d++)
        for (int32_t b = 0; b < 8; b++) {
            cost.devices[d].forward[b] *= speed[d];
            cost.devices[d].backward[b] *= speed[d];
        }
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 8};
    struct hop_plan *const plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    for (int32_t p = 0; p < 4; p++)
        assert_int_equal(plan->parts[p].hi - plan->parts[p].lo, 2);
    /* The stage of the slowest device sets the pace: 7 (3.5 + 7) and the way of one micro-batch. */
    assert_true(plan->simulated_seconds >= 8 * 10.5);
    free_plan(plan);
    hop_cost_free(&cost);
}

static void devices_of_a_request(void **state)
{
    (void)state;
    const double forward[] = {1, 1, 1}, backward[] = {2, 0, 2};
    struct hop_cost_table cost = support_plain_cluster(2, 3, forward, backward);
    struct hop_error err = {0};
    struct hop_plan plan = {0};
    struct hop_plan_request request = {.cost = &cost, .micro_batches = 4};
    ASSERT_REFUSED(strategy()->plan(&request, &plan, &err), HOP_INFEASIBLE,
                   "d1 has no backward times and dapple runs backward on every device");
    request.devices = HOP_DEVICES_AUTO;
    ASSERT_OK(strategy()->plan(&request, &plan, &err));
    assert_int_equal(plan.part_count, 2);
    assert_int_equal(plan.parts[1].device, 2);
    hop_plan_free(&plan);
    support_slow_backward(&cost, 10);
    request.devices = HOP_DEVICES_ALL;
    ASSERT_REFUSED(strategy()->plan(&request, &plan, &err), HOP_INFEASIBLE,
                   "3 devices share 2 blocks of 1 samples");
    request.bp_only = true;
    ASSERT_OK(strategy()->plan(&request, &plan, &err));
    assert_int_equal(plan.parts[1].device, 2);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula_and_simulation),
        cmocka_unit_test(all_reduce_ends_the_step),
        cmocka_unit_test(placement),
        cmocka_unit_test(rounds_of_replicas),
        cmocka_unit_test(profiles_are_checked),
        cmocka_unit_test(authors_by_hand),
        cmocka_unit_test(search_against_all_plans),
        cmocka_unit_test(random_clusters),
        cmocka_unit_test(free_links_replicate),
        cmocka_unit_test(machines_hold_stages),
        cmocka_unit_test(notable_transfers_warm_up_longer),
        cmocka_unit_test(memory_rules_plans_out),
        cmocka_unit_test(memory_limits_the_warm_up),
        cmocka_unit_test(blind_to_the_devices),
        cmocka_unit_test(devices_of_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
