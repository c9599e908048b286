#include "support_systems.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedule/price.h"
#include "sim/simulate.h"

struct hop_plan_request support_request(const struct hop_cost_table *cost, int32_t micro_batches)
{
    return (struct hop_plan_request){
        .cost = cost, .micro_batches = micro_batches, .probes = 1, .devices = HOP_DEVICES_ALL};
}

hop_status support_plan_by(const char *system, const struct hop_plan_request *request,
                           struct hop_plan *out, struct hop_error *err)
{
    const struct hop_strategy *strategy;
    assert_int_equal(hop_strategy_find(system, &strategy, err), HOP_OK);
    return strategy->plan(request, out, err);
}

struct hop_plan support_must_plan(const char *system, const struct hop_plan_request *request)
{
    struct hop_plan plan = {0};
    struct hop_error err = {0};
    if (support_plan_by(system, request, &plan, &err) != HOP_OK)
        fail_msg("%s: %s", system, err.message);
    assert_string_equal(plan.strategy, system);
    assert_int_equal(plan.micro_batches, request->micro_batches);
    assert_int_equal(plan.probes, 0);
    return plan;
}

void support_must_refuse(const char *system, const struct hop_plan_request *request,
                         hop_status expected, const char *message)
{
    struct hop_plan plan = {.part_count = -7};
    struct hop_error err = {0};
    const hop_status status = support_plan_by(system, request, &plan, &err);
    if (status != expected || !strstr(err.message, message))
        fail_msg("status %d, message '%s'; expected '%s'", (int)status, err.message, message);
    assert_int_equal(plan.part_count, -7);
}

static void must_check(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    struct hop_error err = {0};
    int32_t window;
    if (hop_schedule_window(plan, schedule, 1, &window, &err) != HOP_OK)
        fail_msg("%s", err.message);
}

static void check_memory(const struct hop_plan *plan, const struct hop_cost_table *cost,
                         const struct hop_simulation *simulation)
{
    for (int32_t d = 0; d < plan->devices; d++) {
        double bytes = 0;
        int32_t parts = 0;
        for (int32_t p = 0; p < plan->part_count; p++) {
            const struct hop_part *const part = &plan->parts[p];
            if (part->device != d)
                continue;
            assert_true(part->memory_bytes == hop_price_part_memory(cost, part, part->in_flight));
            bytes += part->memory_bytes - (parts++ ? cost->devices[d].fixed_bytes : 0);
        }
        assert_true(bytes <= cost->devices[d].memory * (1 + 1e-12));
        assert_true(simulation->peak_memory[d] <= bytes * (1 + 1e-12));
    }
}

static void check_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                           const struct hop_strategy *strategy)
{
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    struct hop_error err = {0};
    if (strategy->schedule(plan, cost, plan->micro_batches, 0, &schedule, &err) != HOP_OK)
        fail_msg("%s", err.message);
    must_check(plan, &schedule);
    for (int32_t p = 0; p < plan->part_count; p++)
        assert_int_equal(plan->parts[p].in_flight, hop_schedule_slots(&schedule, p));
    if (hop_simulate(plan, &schedule, cost, NULL, &simulation, &err) != HOP_OK)
        fail_msg("%s", err.message);
    assert_true(plan->simulated_seconds == simulation.makespan);
    check_memory(plan, cost, &simulation);
    hop_simulation_free(&simulation);
    hop_schedule_free(&schedule);
}

static void check_fewer(const struct hop_plan *plan, const struct hop_cost_table *cost,
                        const struct hop_strategy *strategy)
{
    struct hop_schedule schedule;
    struct hop_error err = {0};
    for (int32_t n = 1; n < plan->micro_batches; n++) {
        if (strategy->schedule(plan, cost, n, 0, &schedule, &err) != HOP_OK)
            fail_msg("%d micro-batches: %s", n, err.message);
        must_check(plan, &schedule);
        for (int32_t p = 0; p < plan->part_count; p++)
            assert_true(hop_schedule_slots(&schedule, p) <= plan->parts[p].in_flight);
        hop_schedule_free(&schedule);
    }
}

void support_must_be_sound(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    const struct hop_strategy *strategy;
    struct hop_error err = {0};
    if (hop_plan_check(plan, &err) != HOP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(hop_strategy_find(plan->strategy, &strategy, &err), HOP_OK);
    assert_true(plan->formula_seconds == strategy->formula(plan, cost));
    assert_true(isfinite(plan->formula_seconds));
    check_schedule(plan, cost, strategy);
    check_fewer(plan, cost, strategy);
}

void support_plan_text(const struct hop_plan *plan, const struct hop_cost_table *cost, char *text,
                       size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int32_t p = 0; p < plan->part_count && at < size; p++)
        at += (size_t)snprintf(text + at, size - at, "%s%s[%d,%d)", p ? " " : "",
                               cost->devices[plan->parts[p].device].name, plan->parts[p].lo,
                               plan->parts[p].hi);
}
