/* Asteroid: samples, latency, its search against all plans, and plans for cost tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/asteroid_latency.h"
#include "strategy/asteroid_samples.h"
#include "strategy/asteroid_search.h"
#include "strategy/strategy.h"
#include "support_files.h"
#include "support_planner.h"
#include "support_replicas.h"
#include "support_schedule.h"

enum { WORKERS_MOST = 4 };

static double slowest(const struct hop_asteroid_worker *workers, int32_t count)
{
    double seconds = 0;
    for (int32_t d = 0; d < count; d++)
        seconds = fmax(seconds, workers[d].samples * workers[d].seconds);
    return seconds;
}

/* Least time of the slowest worker over all ways to deal the samples; INFINITY: there is none. */
static double deal_all(struct hop_asteroid_worker *workers, int32_t count, int32_t d,
                       int32_t samples, int32_t least)
{
    double best = INFINITY;
    if (d == count || d >= WORKERS_MOST)
        return samples ? INFINITY : slowest(workers, count);
    for (int32_t y = least; y <= workers[d].most && y <= samples; y++) {
        workers[d].samples = y;
        best = fmin(best, deal_all(workers, count, d + 1, samples - y, least));
    }
    return best;
}

static void samples_are_dealt_best(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int32_t dealt = 0;
    for (int32_t trial = 0; trial < 500; trial++) {
        struct hop_asteroid_worker workers[WORKERS_MOST], copy[WORKERS_MOST];
        const int32_t count = support_between(&seed, 1, WORKERS_MOST);
        const int32_t samples = support_between(&seed, 1, 9), least = support_between(&seed, 0, 1);
        for (int32_t d = 0; d < count; d++)
            workers[d] = (struct hop_asteroid_worker){.seconds = support_between(&seed, 1, 40),
                                                      .most = support_between(&seed, 0, 9)};
        memcpy(copy, workers, sizeof copy);
        const double best = deal_all(copy, count, 0, samples, least);
        assert_true(hop_asteroid_allocate(workers, count, samples, least) == isfinite(best));
        if (!isfinite(best))
            continue;
        int32_t sum = 0;
        for (int32_t d = 0; d < count; d++) {
            assert_in_range(workers[d].samples, least, workers[d].most);
            sum += workers[d].samples;
        }
        assert_int_equal(sum, samples);
        assert_true(slowest(workers, count) == best);
        dealt++;
    }
    assert_true(dealt > 150);
}

/* What the steps of the instance "homog3" are for stages of 3, 2, 1 and 2, 2, 2 layers: 60 ms a
 * layer and micro-batch, 10 ms a transfer and direction. */
static void latency_of_three_devices(void **state)
{
    (void)state;
    const struct hop_pipeline_step uneven[] = {
        {0.06, 0.12, 0}, {0.01, 0.01, 0}, {0.04, 0.08, 0}, {0.01, 0.01, 0}, {0.02, 0.04, 0}};
    const struct hop_pipeline_step even[] = {
        {0.04, 0.08, 0}, {0.01, 0.01, 0}, {0.04, 0.08, 0}, {0.01, 0.01, 0}, {0.04, 0.08, 0}};
    assert_int_equal(hop_dominant_step(uneven, 5, 4), 0);
    ASSERT_NEAR(hop_asteroid_latency(uneven, 5, 4), 0.72, 1e-12);
    assert_int_equal(hop_dominant_step(even, 5, 4), 4);
    ASSERT_NEAR(hop_asteroid_latency(even, 5, 4), 0.76, 1e-12);
    ASSERT_NEAR(hop_asteroid_latency(even, 5, 16), 2.2, 1e-12);
}

static void all_reduces_of_early_and_late_steps(void **state)
{
    (void)state;
    /* dm = 2 (M 6 + 3 + 1 behind the others): Tw 1.5, Te 24, AR 10. */
    const struct hop_pipeline_step steps[] = {{1, 2, 0}, {0.5, 0.5, 0}, {2, 4, 10}};
    assert_int_equal(hop_dominant_step(steps, 3, 4), 2);
    ASSERT_NEAR(hop_asteroid_latency(steps, 3, 4), 35.5, 1e-12);
    /* dm = 0: the last step starts after 2.5 and ends 7 before 24 - 2.5 + ... + AR. */
    const struct hop_pipeline_step head[] = {{2, 4, 0}, {0.5, 0.5, 0}, {1, 2, 20}};
    assert_int_equal(hop_dominant_step(head, 3, 4), 0);
    ASSERT_NEAR(hop_asteroid_latency(head, 3, 4), 2.5 + (24 - 7) + 20, 1e-12);
    ASSERT_NEAR(hop_asteroid_latency(head, 1, 4), 24, 1e-12);
}

static void kept_micro_batches(void **state)
{
    (void)state;
    assert_int_equal(hop_asteroid_kept(1, 8), 1);
    assert_int_equal(hop_asteroid_kept(3, 8), 5);
    assert_int_equal(hop_asteroid_kept(5, 8), 8);
}

/* 6 layers of 10 ms a sample on three equal devices, links of 100 MB/s, 2 samples of 0.5 MB. */
static struct hop_cost_table three_devices(void)
{
    const double forward[] = {0.02, 0.02, 0.02}, backward[] = {0.04, 0.04, 0.04};
    struct hop_cost_table cost = support_plain_cluster(6, 3, forward, backward);
    cost.micro_batch_samples = 2;
    for (int32_t b = 0; b < 5; b++)
        cost.boundary_bytes[b] = 1e6;
    for (int32_t b = 0; b < 6; b++)
        cost.gradient_bytes[b] = 10e6;
    for (int32_t i = 0; i < 9; i++)
        cost.bandwidth[i] = 100e6;
    return cost;
}

static const struct hop_strategy *strategy(void)
{
    struct hop_error err = {0};
    const struct hop_strategy *found;
    ASSERT_OK(hop_strategy_find("asteroid", &found, &err));
    return found;
}

static void free_plan(struct hop_plan *plan)
{
    hop_plan_free(plan);
    free(plan);
}

/* The formula prefers 3, 2, 1 layers; the simulation, which knows that few micro-batches do not
 * fill the pipeline, 2, 2, 2. */
static void objectives_differ_where_micro_batches_are_few(void **state)
{
    (void)state;
    struct hop_cost_table cost = three_devices();
    struct hop_plan_request request = {
        .cost = &cost, .micro_batches = 4, .objective = HOP_OBJECTIVE_FORMULA};
    struct hop_plan *const formula = support_replica_plan(strategy(), &request);
    request.objective = HOP_OBJECTIVE_SIMULATED;
    struct hop_plan *const simulated = support_replica_plan(strategy(), &request);
    assert_non_null(formula);
    assert_non_null(simulated);
    const int32_t cuts[] = {3, 5, 6};
    assert_int_equal(formula->part_count, 3);
    for (int32_t p = 0; p < 3; p++) {
        assert_int_equal(formula->parts[p].hi, cuts[p]);
        assert_int_equal(formula->parts[p].in_flight, p == 0 ? 4 : 2 * (3 - p) - 1);
    }
    ASSERT_NEAR(formula->formula_seconds, 0.72, 1e-12);
    ASSERT_NEAR(formula->simulated_seconds, 0.80, 1e-12);
    assert_true(simulated->simulated_seconds <= formula->simulated_seconds);
    free_plan(formula);
    free_plan(simulated);
    hop_cost_free(&cost);
}

/* Seconds of 2, 2, 2 layers by simulation and by formula. */
static void even_stages(int32_t micro_batches, double simulated, double formula)
{
    struct hop_cost_table cost = three_devices();
    const int32_t devices[] = {0, 1, 2};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_BACKPROP, HOP_GRADIENT_BACKPROP,
                                           HOP_GRADIENT_BACKPROP};
    struct hop_plan plan = support_plan(3, devices, gradients);
    plan.blocks = 6;
    plan.micro_batches = micro_batches;
    strcpy(plan.strategy, "asteroid");
    for (int32_t p = 0; p < 3; p++) {
        plan.parts[p].lo = 2 * p;
        plan.parts[p].hi = 2 * p + 2;
        plan.parts[p].in_flight = hop_asteroid_kept(3 - p, micro_batches);
    }
    ASSERT_NEAR(support_simulated(&plan, &cost), simulated, 1e-9);
    ASSERT_NEAR(strategy()->formula(&plan, &cost), formula, 1e-9);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

static void formula_and_simulation(void **state)
{
    (void)state;
    even_stages(4, 0.76, 0.76);
    even_stages(16, 2.2, 2.2);
}

enum { DEVICES_MOST = 4 };

/* Adds the steps of a stage by the first algorithm; false: it does not fit. Independent of the
 * search but for that algorithm. */
static bool add_steps(const struct hop_asteroid_problem *problem,
                      const struct hop_asteroid_stage *stage, int32_t from,
                      struct hop_pipeline_step *step, int32_t *samples)
{
    const struct hop_cost_table *const cost = problem->cost;
    struct hop_asteroid_worker workers[DEVICES_MOST];
    double bytes = 0, round = 0;
    int32_t members = 0;
    for (int32_t i = 0; i < stage->count; i++) {
        const int32_t d = problem->devices[stage->first + i];
        const double seconds = hop_cost_forward(cost, d, stage->lo, stage->hi) +
                               hop_cost_backward(cost, d, stage->lo, stage->hi);
        workers[i] = (struct hop_asteroid_worker){.seconds = seconds / problem->rows};
        const double held = hop_cost_memory(cost, d, stage->lo, stage->hi, 0);
        const double kept = hop_cost_memory(cost, d, stage->lo, stage->hi,
                                            hop_asteroid_kept(from, problem->micro_batches)) -
                            held;
        for (int32_t y = 1; y <= problem->rows; y++)
            if (held + kept * y / problem->rows <= cost->devices[d].memory)
                workers[i].most = y;
    }
    if (!hop_asteroid_allocate(workers, stage->count, problem->rows,
                               problem->idle == HOP_ASTEROID_IDLE_NEVER))
        return false;
    *step = (struct hop_pipeline_step){0};
    for (int32_t i = 0; i < stage->count; i++) {
        const int32_t d = problem->devices[stage->first + i];
        const double share = (double)workers[i].samples / problem->rows;
        samples[i] = workers[i].samples;
        members += samples[i] > 0;
        step->forward =
            fmax(step->forward, share * hop_cost_forward(cost, d, stage->lo, stage->hi));
        step->backward =
            fmax(step->backward, share * hop_cost_backward(cost, d, stage->lo, stage->hi));
    }
    for (int32_t b = stage->lo; b < stage->hi; b++)
        bytes += cost->gradient_bytes[b];
    for (int32_t i = 0; i < stage->count && members > 1; i++)
        for (int32_t j = 0; j < stage->count; j++)
            if (i != j && samples[i] > 0 && samples[j] > 0)
                round =
                    fmax(round, hop_cost_link(cost, problem->devices[stage->first + i],
                                              problem->devices[stage->first + j], bytes / members));
    step->reduce = 2 * (members - 1) * round * (cost->half_duplex && members == 2 ? 2 : 1);
    return true;
}

static struct hop_pipeline_step link_step(const struct hop_asteroid_problem *problem,
                                          const struct hop_asteroid_stage *from,
                                          const struct hop_asteroid_stage *to)
{
    struct hop_pipeline_step step = {0};
    const double bytes = problem->cost->boundary_bytes[from->hi - 1];
    for (int32_t i = 0; i < from->count; i++)
        for (int32_t j = 0; j < to->count; j++)
            if (from->samples[i] > 0 && to->samples[j] > 0) {
                const int32_t a = problem->devices[from->first + i];
                const int32_t b = problem->devices[to->first + j];
                step.forward = fmax(step.forward, hop_cost_link(problem->cost, a, b, bytes));
                step.backward = fmax(step.backward, hop_cost_link(problem->cost, b, a, bytes));
            }
    return step;
}

static double latency_of(const struct hop_asteroid_problem *problem,
                         const struct hop_asteroid_stage *stages, int32_t count)
{
    struct hop_asteroid_stage dealt[DEVICES_MOST];
    struct hop_pipeline_step steps[2 * DEVICES_MOST];
    int32_t samples[DEVICES_MOST][DEVICES_MOST];
    for (int32_t s = 0; s < count; s++) {
        if (!add_steps(problem, &stages[s], count - s, &steps[2 * s], samples[s]))
            return INFINITY;
        dealt[s] = stages[s];
        dealt[s].samples = samples[s];
        if (s > 0)
            steps[2 * s - 1] = link_step(problem, &dealt[s - 1], &dealt[s]);
    }
    return hop_asteroid_latency(steps, 2 * count - 1, problem->micro_batches);
}

/* Least latency of `count` stages over all cuts of blocks and devices. */
static double brute_force(const struct hop_asteroid_problem *problem,
                          struct hop_asteroid_stage *stages, int32_t s, int32_t count)
{
    const int32_t lo = s ? stages[s - 1].hi : 0;
    const int32_t first = s ? stages[s - 1].first + stages[s - 1].count : 0;
    double best = INFINITY;
    if (s >= DEVICES_MOST)
        return INFINITY;
    if (s == count - 1) {
        stages[s] = (struct hop_asteroid_stage){lo, problem->cost->blocks, first,
                                                problem->count - first, NULL};
        return latency_of(problem, stages, count);
    }
    for (int32_t hi = lo + 1; hi < problem->cost->blocks; hi++)
        for (int32_t end = first + 1; end < problem->count; end++) {
            stages[s] = (struct hop_asteroid_stage){lo, hi, first, end - first, NULL};
            best = fmin(best, brute_force(problem, stages, s + 1, count));
        }
    return best;
}

/* Up to two stages leave nothing to forget: the search is exact. With more it may miss the best
 * pipeline, but never claims a better one. */
static void search_against_all_plans(void **state)
{
    (void)state;
    struct hop_error err = {0};
    uint64_t seed = 5;
    int32_t plans = 0, best = 0;
    for (int32_t trial = 0; trial < 300; trial++) {
        const int32_t devices[] = {0, 1, 2, 3};
        struct hop_cost_table cost =
            support_replica_cluster(1 + trial % DEVICES_MOST, trial % 3 == 0, &seed);
        const struct hop_asteroid_problem problem = {.cost = &cost,
                                                     .devices = devices,
                                                     .count = cost.device_count,
                                                     .micro_batches = support_between(&seed, 1, 10),
                                                     .rows = (int32_t)cost.micro_batch_samples,
                                                     .idle = trial % 2 ? HOP_ASTEROID_IDLE_NEVER
                                                                       : HOP_ASTEROID_IDLE_OUT};
        struct hop_asteroid_search *search;
        ASSERT_OK(hop_asteroid_search(&problem, &search, &err));
        for (int32_t p = 1; p <= hop_asteroid_most_stages(search); p++) {
            struct hop_asteroid_stage stages[DEVICES_MOST];
            const double least = brute_force(&problem, stages, 0, p);
            const double seconds = hop_asteroid_seconds(search, p);
            assert_true(isfinite(least) || !isfinite(seconds));
            if (!isfinite(seconds))
                continue;
            assert_true(seconds >= least * (1 - 1e-12));
            if (p <= 2)
                ASSERT_NEAR(seconds, least, 1e-12 * least);
            hop_asteroid_stages(search, p, stages);
            ASSERT_NEAR(latency_of(&problem, stages, p), seconds, 1e-12 * seconds);
            plans++;
            best += seconds <= least * (1 + 1e-12);
        }
        hop_asteroid_search_free(search);
        hop_cost_free(&cost);
    }
    print_message("%d of %d pipelines are the best\n", best, plans);
    assert_true(plans > 300);
    assert_true(best * 100 >= plans * 99);
}

static void random_clusters(void **state)
{
    (void)state;
    uint64_t seed = 13;
    int32_t plans = 0, refused = 0, partial = 0;
    for (int32_t trial = 0; trial < 300; trial++) {
        struct hop_cost_table cost = support_replica_cluster(1 + trial % 6, trial % 3 == 0, &seed);
        const struct hop_plan_request request = {
            .cost = &cost,
            .micro_batches = support_between(&seed, 1, 8),
            .devices = trial % 5 == 0 ? HOP_DEVICES_ALL : HOP_DEVICES_DEFAULT,
            .objective = trial % 2 ? HOP_OBJECTIVE_FORMULA : HOP_OBJECTIVE_SIMULATED};
        struct hop_plan *const plan = support_replica_plan(strategy(), &request);
        if (plan) {
            support_check_replicas(plan, &request, strategy());
            partial += plan->part_count < cost.device_count;
            if (request.devices == HOP_DEVICES_ALL)
                assert_int_equal(plan->part_count, cost.device_count);
            free_plan(plan);
        }
        *(plan ? &plans : &refused) += 1;
        hop_cost_free(&cost);
    }
    print_message("%d plans, %d leave devices out, %d refused\n", plans, partial, refused);
    assert_true(plans > 150 && partial > 20 && refused > 20);
}

/* Two fast BP-capable boards and two BP-free ones whose backward is slow: 8 blocks, 4 samples. */
static struct hop_cost_table slow_backward(void)
{
    const double forward[] = {0.02, 0.02, 0.04, 0.04}, backward[] = {0.04, 0.04, 0, 0};
    struct hop_cost_table cost = support_plain_cluster(8, 4, forward, backward);
    support_slow_backward(&cost, 20);
    cost.micro_batch_samples = 4;
    for (int32_t b = 0; b < 7; b++)
        cost.boundary_bytes[b] = 4e4;
    for (int32_t i = 0; i < 16; i++)
        cost.bandwidth[i] = 100e6;
    return cost;
}

/* A device that would only slow the rest gets no sample, holds nothing and is not in the plan. */
static void slow_devices_are_left_out(void **state)
{
    (void)state;
    struct hop_cost_table cost = slow_backward();
    struct hop_plan_request request = {.cost = &cost, .micro_batches = 8};
    struct hop_plan *plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_int_equal(plan->part_count, 2);
    assert_true(plan->parts[0].device < 2 && plan->parts[1].device < 2);
    const double seconds = plan->simulated_seconds;
    free_plan(plan);
    request.bp_only = true;
    plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_true(plan->simulated_seconds == seconds);
    free_plan(plan);
    request.bp_only = false;
    request.devices = HOP_DEVICES_ALL;
    plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_int_equal(plan->part_count, 4);
    assert_true(plan->simulated_seconds > seconds);
    free_plan(plan);
    hop_cost_free(&cost);
}

/* Speeds 3 : 1 and 4 samples: the fast one takes 3. Then memory for 2 only: 2 and 2. */
static void samples_follow_speed_and_memory(void **state)
{
    (void)state;
    const double forward[] = {1, 3}, backward[] = {2, 6};
    struct hop_cost_table cost = support_plain_cluster(1, 2, forward, backward);
    cost.micro_batch_samples = 4;
    cost.devices[0].activation_bytes[0] = cost.devices[1].activation_bytes[0] = 40;
    cost.devices[0].state_bytes[0] = cost.devices[1].state_bytes[0] = 100;
    const struct hop_plan_request request = {.cost = &cost, .micro_batches = 8};
    struct hop_plan *plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    assert_int_equal(plan->part_count, 2);
    ASSERT_NEAR(plan->parts[0].sample_hi, 0.75, 0);
    ASSERT_NEAR(plan->formula_seconds, 8 * 3 * 0.75, 1e-12);
    free_plan(plan);
    cost.devices[0].memory = 120;
    cost.devices[1].memory = 140;
    plan = support_replica_plan(strategy(), &request);
    assert_non_null(plan);
    /* The one with more memory comes first. */
    assert_int_equal(plan->parts[0].device, 1);
    ASSERT_NEAR(plan->parts[0].sample_hi, 0.5, 0);
    ASSERT_NEAR(plan->parts[1].memory_bytes, 120, 1e-9);
    free_plan(plan);
    cost.devices[1].memory = 110;
    struct hop_plan none = {.part_count = -7};
    struct hop_error err = {0};
    ASSERT_REFUSED(strategy()->plan(&request, &none, &err), HOP_INFEASIBLE,
                   "asteroid finds no stages of 2 devices that fit their memory");
    assert_int_equal(none.part_count, -7);
    hop_cost_free(&cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_dealt_best),
        cmocka_unit_test(latency_of_three_devices),
        cmocka_unit_test(all_reduces_of_early_and_late_steps),
        cmocka_unit_test(kept_micro_batches),
        cmocka_unit_test(objectives_differ_where_micro_batches_are_few),
        cmocka_unit_test(formula_and_simulation),
        cmocka_unit_test(search_against_all_plans),
        cmocka_unit_test(random_clusters),
        cmocka_unit_test(slow_devices_are_left_out),
        cmocka_unit_test(samples_follow_speed_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
