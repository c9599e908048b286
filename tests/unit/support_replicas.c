#include "support_replicas.h"

#include <math.h>
#include <stdlib.h>

#include "schedule/price.h"
#include "sim/simulate.h"
#include "support_files.h"
#include "support_planner.h"
#include "support_schedule.h"

static void fill_device(struct hop_cost_table *cost, int32_t d, bool tight, uint64_t *state)
{
    struct hop_cost_device *const device = &cost->devices[d];
    const double slow = device->bp ? support_between(state, 1, 3) : 12;
    for (int32_t b = 0; b < cost->blocks; b++) {
        device->forward[b] = support_between(state, 1, 6);
        device->backward[b] = slow * device->forward[b];
        device->state_bytes[b] = support_between(state, 1, 10);
        device->activation_bytes[b] = support_between(state, 1, 10);
    }
    device->fixed_bytes = support_between(state, 0, 3);
    if (tight)
        device->memory = support_between(state, 10, 60);
}

struct hop_cost_table support_replica_cluster(int32_t devices, bool tight, uint64_t *state)
{
    double forward[16], backward[16];
    for (int32_t d = 0; d < devices; d++) {
        forward[d] = 1;
        backward[d] = d == 0 || support_between(state, 0, 2) ? 1 : 0;
    }
    struct hop_cost_table cost =
        support_plain_cluster(support_between(state, 1, 6), devices, forward, backward);
    support_slow_backward(&cost, 12);
    cost.micro_batch_samples = support_between(state, 1, 4);
    for (int32_t d = 0; d < devices; d++) {
        fill_device(&cost, d, tight, state);
        cost.machine[d] = support_between(state, 0, devices - 1);
    }
    support_random_links(&cost, state, 1);
    for (int32_t b = 0; b < cost.blocks; b++)
        cost.gradient_bytes[b] = support_between(state, 0, 8);
    return cost;
}

static void check_part(const struct hop_plan *plan, const struct hop_cost_table *cost, int32_t p)
{
    const struct hop_part *const part = &plan->parts[p];
    const double rows = cost->micro_batch_samples;
    for (int32_t q = 0; q < p; q++)
        assert_int_not_equal(plan->parts[q].device, part->device);
    assert_true(part->gradient == HOP_GRADIENT_BACKPROP);
    ASSERT_NEAR(part->sample_lo * rows, round(part->sample_lo * rows), 1e-9);
    assert_true((part->sample_hi - part->sample_lo) * rows > 0.99);
    assert_true(part->in_flight >= 1 && part->in_flight <= plan->micro_batches);
    assert_true(part->memory_bytes == hop_price_part_memory(cost, part, part->in_flight));
    assert_true(part->memory_limit == cost->devices[part->device].memory);
    assert_true(part->memory_bytes <= part->memory_limit);
}

void support_check_replicas(const struct hop_plan *plan, const struct hop_plan_request *request,
                            const struct hop_strategy *strategy)
{
    struct hop_error err = {0};
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    int32_t window;
    ASSERT_OK(hop_plan_check(plan, &err));
    for (int32_t p = 0; p < plan->part_count; p++)
        check_part(plan, request->cost, p);
    ASSERT_OK(strategy->schedule(plan, request->cost, plan->micro_batches, 0, &schedule, &err));
    ASSERT_OK(hop_schedule_window(plan, &schedule, 2, &window, &err));
    ASSERT_OK(hop_simulate(plan, &schedule, request->cost, NULL, &simulation, &err));
    assert_true(plan->simulated_seconds == simulation.makespan);
    assert_true(plan->formula_seconds == strategy->formula(plan, request->cost));
    for (int32_t p = 0; p < plan->part_count; p++)
        assert_true(simulation.peak_memory[plan->parts[p].device] <=
                    plan->parts[p].memory_bytes * (1 + 1e-12));
    hop_simulation_free(&simulation);
    hop_schedule_free(&schedule);
}

struct hop_plan *support_replica_plan(const struct hop_strategy *strategy,
                                      const struct hop_plan_request *request)
{
    struct hop_error err = {0};
    struct hop_plan *const plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    const hop_status status = strategy->plan(request, plan, &err);
    if (status == HOP_OK)
        return plan;
    free(plan);
    ASSERT_REFUSED(status, HOP_INFEASIBLE, "plan: ");
    return NULL;
}
