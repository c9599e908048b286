/* Chimera: its slots against the published makespans, its plans against their rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/lists.h"
#include "sim/simulate.h"
#include "strategy/chimera_slots.h"
#include "support_planner.h"
#include "support_schedule.h"
#include "support_systems.h"

enum { MOST = 12 };

/* D equal devices with a block each. */
static struct hop_cost_table equal_cluster(int32_t devices, double forward, double backward)
{
    double f[MOST], b[MOST];
    for (int32_t d = 0; d < devices; d++) {
        f[d] = forward;
        b[d] = backward;
    }
    return support_plain_cluster(devices, devices, f, b);
}

static struct hop_plan plan_of(int32_t devices, int32_t pipelines, int32_t micro_batches)
{
    struct hop_plan plan = {.strategy = "chimera",
                            .blocks = devices,
                            .devices = devices,
                            .micro_batches = micro_batches};
    plan.parts = calloc((size_t)(devices * pipelines), sizeof *plan.parts);
    assert_non_null(plan.parts);
    for (int32_t i = 0; i < pipelines; i++)
        for (int32_t s = 0; s < devices; s++)
            plan.parts[plan.part_count++] =
                (struct hop_part){.device = hop_chimera_device(devices, pipelines, i, s),
                                  .pipeline = i,
                                  .stage = s,
                                  .lo = s,
                                  .hi = s + 1,
                                  .sample_hi = 1,
                                  .tensor_hi = 1,
                                  .micro_lo = (double)i / pipelines,
                                  .micro_hi = (double)(i + 1) / pipelines,
                                  .gradient = HOP_GRADIENT_BACKPROP};
    return plan;
}

/* The order that the slots give, whichever the strategy would choose. */
static struct hop_schedule schedule_of(const struct hop_plan *plan, bool doubled)
{
    struct hop_schedule schedule;
    struct hop_error err = {0};
    const int32_t n = plan->micro_batches, pipelines = hop_plan_pipelines(plan);
    struct hop_slot *const slots = calloc((size_t)(2 * n * plan->part_count), sizeof *slots);
    int32_t count = 0;
    assert_non_null(slots);
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_range range = hop_part_micro_batches(&plan->parts[p], n);
        for (int32_t m = range.lo; m < range.hi; m++) {
            const struct hop_chimera_place place =
                hop_chimera_place(plan->devices, pipelines, doubled, plan->parts[p].stage,
                                  m - range.lo, range.hi - range.lo);
            slots[count++] = (struct hop_slot){{.kind = HOP_FORWARD, .part = p, .micro_batch = m},
                                               place.forward};
            slots[count++] = (struct hop_slot){{.kind = HOP_BACKWARD, .part = p, .micro_batch = m},
                                               place.backward};
        }
    }
    if (hop_schedule_from_slots(plan, n, slots, count, &schedule, &err) != HOP_OK)
        fail_msg("%s", err.message);
    free(slots);
    return schedule;
}

static double makespan(int32_t devices, int32_t pipelines, int32_t n, double backward, bool doubled)
{
    struct hop_error err = {0};
    struct hop_simulation simulation;
    int32_t window;
    struct hop_cost_table cost = equal_cluster(devices, 1, backward);
    struct hop_plan plan = plan_of(devices, pipelines, n);
    struct hop_schedule schedule = schedule_of(&plan, doubled);
    if (hop_schedule_window(&plan, &schedule, 1, &window, &err) != HOP_OK ||
        hop_simulate(&plan, &schedule, &cost, NULL, &simulation, &err) != HOP_OK)
        fail_msg("%s", err.message);
    const double seconds = simulation.makespan;
    assert_true(fabs(simulation.utilization - n * (1 + backward) / seconds) < 1e-12);
    hop_simulation_free(&simulation);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
    return seconds;
}

/* Makespans of a unit (D, N, B = F, B = 2F). */
static void published_makespans(void **state)
{
    (void)state;
    static const int32_t expected[][4] = {
        {4, 4, 10, 16},  {6, 6, 16, 26},  {8, 8, 22, 36},   {10, 10, 28, 46}, {4, 8, 18, 30},
        {8, 16, 38, 66}, {6, 12, 28, 48}, {10, 20, 48, 84}, {4, 12, 26, 44},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const int32_t *const e = expected[i];
        assert_true(makespan(e[0], 2, e[1], 1, false) == e[2]);
        assert_true(makespan(e[0], 2, e[1], 2, false) == e[3]);
    }
}

/* One micro-batch for each direction, or for one of them. */
static void few_micro_batches(void **state)
{
    (void)state;
    assert_true(makespan(4, 2, 2, 1, false) == 8);
    assert_true(makespan(4, 2, 1, 1, false) == 8);
    assert_true(makespan(4, 2, 1, 2, false) == 12);
    for (int32_t devices = 2; devices <= 8; devices += 2)
        for (int32_t n = 2; n <= devices; n++)
            assert_true(makespan(devices, 2, n, 1, false) == 2 * devices + (n + 1) / 2 * 2 - 2);
}

/* Bubbles (D - 2f) / (2fN + D - 2f) of the time where B = F and N = D. */
static void more_pipelines_have_less_bubble(void **state)
{
    (void)state;
    assert_true(makespan(8, 4, 8, 1, false) == 18);
    for (int32_t devices = 2; devices <= MOST; devices += 2) {
        for (int32_t f = 1; f <= devices / 2; f++) {
            if (!hop_chimera_fits(devices, 2 * f))
                continue;
            const double seconds = makespan(devices, 2 * f, devices, 1, false);
            const double bubble = (double)(devices - 2 * f) / (2 * f * devices + devices - 2 * f);
            assert_true(fabs(1 - 2 * devices / seconds - bubble) < 1e-12);
        }
    }
}

/* Of a step with two pipelines, units end to end: (D - 2) / (2 N + D - 2) where B = F, and in one
 * unit (D - 2) / (3 N / 2 + D - 2) where B = 2 F. */
static void bubbles_of_two_pipelines(void **state)
{
    (void)state;
    for (int32_t devices = 2; devices <= 10; devices += 2) {
        for (int32_t n = devices; n <= 3 * devices; n += devices) {
            const double bubble = (devices - 2.0) / (2.0 * n + devices - 2);
            assert_true(fabs(1 - 2 * n / makespan(devices, 2, n, 1, false) - bubble) < 1e-12);
        }
        const double bubble = (devices - 2.0) / (1.5 * devices + devices - 2);
        assert_true(fabs(1 - 3 * devices / makespan(devices, 2, devices, 2, false) - bubble) <
                    1e-12);
    }
}

/* Without bubbles but at both ends: K double units of 2D micro-batches take 6KD + 2 (D/f - 2) where
 * B = 2F, less D/(2f) - 1 because the first of two forwards need not wait for the second. */
static void doubled_forwards_leave_no_bubble_between_units(void **state)
{
    (void)state;
    for (int32_t devices = 2; devices <= 8; devices += 2)
        for (int32_t f = 1; f <= devices / 2; f++)
            for (int32_t units = 1; units <= 3 && hop_chimera_fits(devices, 2 * f); units++)
                assert_true(makespan(devices, 2 * f, 2 * units * devices, 2, true) ==
                            6 * units * devices + 2 * (devices / f - 2) - (devices / (2 * f) - 1));
    assert_true(makespan(4, 2, 8, 2, true) < makespan(4, 2, 8, 2, false));
}

/* K units of D micro-batches with B = 2F whose backwards are halved: half as long as the doubled
 * order of twice as many. So the bubble is (D - 2) / (3 N + D - 2) of the time with two pipelines,
 * or less, as the first half of a forward goes on before the second one is done. */
static void halved_backwards_leave_half_the_bubble(void **state)
{
    (void)state;
    for (int32_t devices = 2; devices <= 8; devices += 2)
        for (int32_t f = 1; f <= devices / 2; f++)
            for (int32_t units = 1; units <= 3 && hop_chimera_fits(devices, 2 * f); units++) {
                const int32_t n = units * devices;
                const double halved = makespan(devices, 2 * f, 2 * n, 2, true) / 2;
                const double whole = 3.0 * n + devices / f - 2;
                assert_true(halved == whole - (devices / (2 * f) - 1) / 2.0);
                if (devices / f > 2)
                    assert_true(halved < makespan(devices, 2 * f, n, 2, false));
                if (f == 1)
                    assert_true(1 - 3 * n / halved <= (devices - 2.0) / (3.0 * n + devices - 2));
                if (devices / f > 2 && units > 1)
                    assert_true(halved < makespan(devices, 2 * f, n, 2, true));
            }
}

static void no_two_tasks_share_a_slot(void **state)
{
    (void)state;
    static bool taken[MOST][2 * 20 * MOST];
    for (int32_t devices = 2; devices <= MOST; devices += 2)
        for (int32_t pipelines = 2; pipelines <= devices; pipelines += 2)
            for (int doubled = 0; doubled < 2; doubled++) {
                memset(taken, 0, sizeof taken);
                const int32_t n = 4 * devices / pipelines;
                for (int32_t i = 0; i < pipelines && hop_chimera_fits(devices, pipelines); i++)
                    for (int32_t s = 0; s < devices; s++)
                        for (int32_t j = 0; j < n; j++) {
                            const int32_t d = hop_chimera_device(devices, pipelines, i, s);
                            const struct hop_chimera_place place =
                                hop_chimera_place(devices, pipelines, doubled != 0, s, j, n);
                            /* The second of a doubled forward has the slot of the first. */
                            if (!doubled || j % 2 == 0)
                                assert_false(taken[d][place.forward]);
                            assert_false(taken[d][place.backward]);
                            taken[d][place.forward] = taken[d][place.backward] = true;
                        }
            }
}

/* kept (devices): micro-batches of both stages. */
static void count_kept(int32_t devices, int32_t pipelines, int32_t n, bool doubled, int32_t *kept)
{
    struct hop_plan plan = plan_of(devices, pipelines, n);
    struct hop_schedule schedule = schedule_of(&plan, doubled);
    memset(kept, 0, (size_t)devices * sizeof *kept);
    for (int32_t p = 0; p < plan.part_count; p++)
        kept[plan.parts[p].device] += hop_schedule_slots(&schedule, p);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static void assert_kept(int32_t devices, int32_t pipelines, int32_t n, const int32_t *expected)
{
    int32_t kept[MOST];
    count_kept(devices, pipelines, n, false, kept);
    for (int32_t d = 0; d < devices; d++)
        assert_int_equal(kept[d], expected[d]);
}

static void activations_in_flight(void **state)
{
    (void)state;
    const int32_t six[] = {4, 5, 6, 6, 5, 4}, eight[] = {7, 8, 8, 7, 7, 8, 8, 7};
    const int32_t four[] = {3, 4, 4, 3};
    assert_kept(6, 2, 6, six);
    assert_kept(6, 2, 18, six);
    assert_kept(8, 4, 8, eight);
    assert_kept(4, 2, 4, four);
    assert_kept(4, 2, 16, four);
}

/* Halved backwards need no more room than the fullest device has anyway, D micro-batches; the
 * others come halfway up to it. Doubled forwards keep up to 2 D. */
static void halves_keep_no_more(void **state)
{
    (void)state;
    int32_t whole[MOST], halves[MOST], doubled[MOST];
    for (int32_t devices = 2; devices <= 10; devices += 2)
        for (int32_t n = devices; n <= 3 * devices; n += devices) {
            count_kept(devices, 2, n, false, whole);
            count_kept(devices, 2, 2 * n, true, halves);
            count_kept(devices, 2, n, true, doubled);
            for (int32_t d = 0; d < devices; d++) {
                assert_int_equal(halves[d], whole[d] + devices);
                assert_true(halves[d] <= 2 * devices);
                assert_int_equal(doubled[d], n > devices ? whole[d] + devices : whole[d]);
            }
        }
}

/* Equal devices and blocks: the closed form is the simulation, and the faster order is taken. */
static void plans_of_equal_devices(void **state)
{
    (void)state;
    char text[256];
    struct hop_cost_table cost = equal_cluster(4, 1, 2);
    struct hop_plan_request request = support_request(&cost, 4);
    struct hop_plan plan = support_must_plan("chimera", &request);
    support_must_be_sound(&plan, &cost);
    support_plan_text(&plan, &cost, text, sizeof text);
    /* Four pipelines have no bubble at all, but memory has no limit here. */
    assert_int_equal(hop_plan_pipelines(&plan), 4);
    assert_true(plan.simulated_seconds == 12 && plan.formula_seconds == 12);
    hop_plan_free(&plan);
    for (int32_t d = 0; d < 4; d++) {
        cost.devices[d].memory = 2;
        for (int32_t b = 0; b < 4; b++)
            cost.devices[d].state_bytes[b] = 1;
    }
    plan = support_must_plan("chimera", &request);
    support_must_be_sound(&plan, &cost);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,1) d1[1,2) d2[2,3) d3[3,4) d3[0,1) d2[1,2) d1[2,3) d0[3,4)");
    assert_true(plan.simulated_seconds == 16 && plan.formula_seconds == 16);
    hop_plan_free(&plan);
    request.micro_batches = 8;
    plan = support_must_plan("chimera", &request);
    support_must_be_sound(&plan, &cost);
    assert_true(plan.simulated_seconds == 27 && plan.formula_seconds == 30);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* Of whole units, and of less than one. */
static void closed_form_of_equal_devices(void **state)
{
    (void)state;
    const struct hop_strategy *chimera;
    struct hop_error err = {0};
    assert_int_equal(hop_strategy_find("chimera", &chimera, &err), HOP_OK);
    for (int32_t devices = 2; devices <= 8; devices += 2) {
        for (int32_t n = 1; n <= 3 * devices; n += n < devices ? 1 : devices) {
            for (int32_t backward = 1; backward <= 2; backward++) {
                struct hop_cost_table cost = equal_cluster(devices, 1, backward);
                struct hop_plan plan = plan_of(devices, 2, n);
                assert_true(chimera->formula(&plan, &cost) ==
                            makespan(devices, 2, n, backward, false));
                hop_plan_free(&plan);
                hop_cost_free(&cost);
            }
        }
    }
}

/* A device that holds the activations of the single order only does not get the doubled one. */
static void doubling_needs_memory(void **state)
{
    (void)state;
    struct hop_cost_table cost = equal_cluster(4, 1, 2);
    struct hop_plan_request request = support_request(&cost, 8);
    for (int32_t d = 0; d < 4; d++) {
        cost.devices[d].memory = 2000 + 4;
        for (int32_t b = 0; b < 4; b++) {
            cost.devices[d].state_bytes[b] = 1000;
            cost.devices[d].activation_bytes[b] = 1;
        }
    }
    struct hop_plan plan = support_must_plan("chimera", &request);
    support_must_be_sound(&plan, &cost);
    assert_true(plan.simulated_seconds == 30);
    hop_plan_free(&plan);
    cost.devices[1].memory -= 1;
    support_must_refuse("chimera", &request, HOP_INFEASIBLE,
                        "d1 cannot hold 2 blocks in 2 parts with up to 2 micro-batches kept, as "
                        "chimera does: 2004 bytes needed, 2003 there, 1 too many");
    hop_cost_free(&cost);
}

/* D devices with memory for two pipelines whose fullest device keeps D micro-batches. */
static struct hop_cost_table cluster_of_two_pipelines(int32_t devices, double forward,
                                                      double backward)
{
    struct hop_cost_table cost = equal_cluster(devices, forward, backward);
    cost.micro_batch_samples = 2;
    for (int32_t d = 0; d < devices; d++) {
        cost.devices[d].memory = 2000 + devices;
        for (int32_t b = 0; b < devices; b++) {
            cost.devices[d].state_bytes[b] = 1000;
            cost.devices[d].activation_bytes[b] = 1;
        }
    }
    return cost;
}

static struct hop_plan plan_with_halves(struct hop_plan_request *request,
                                        struct hop_cost_table *halves)
{
    struct hop_plan plan;
    struct hop_error err = {0};
    if (hop_cost_halve(request->cost, halves, &err) != HOP_OK)
        fail_msg("%s", err.message);
    request->halves = halves;
    if (support_plan_by("chimera", request, &plan, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return plan;
}

static void check_halving(int32_t devices, int32_t n, double backward, double seconds, bool halved)
{
    struct hop_cost_table cost = cluster_of_two_pipelines(devices, 1, backward), halves;
    struct hop_plan_request request = support_request(&cost, n);
    struct hop_plan plan = plan_with_halves(&request, &halves);
    assert_int_equal(plan.micro_batches, halved ? 2 * n : n);
    assert_int_equal(plan.micro_batch_samples, halved ? 1 : 2);
    assert_ptr_equal(hop_request_cost(&request, &plan), halved ? &halves : &cost);
    assert_true(plan.simulated_seconds == seconds);
    support_must_be_sound(&plan, hop_request_cost(&request, &plan));
    hop_plan_free(&plan);
    hop_cost_free(&halves);
    hop_cost_free(&cost);
}

/* Taken where it is the fastest order that fits: not for a single unit, and not where a backward
 * takes no longer than a forward. */
static void halves_where_they_are_faster(void **state)
{
    (void)state;
    check_halving(4, 8, 2, 25.5, true);
    check_halving(6, 12, 2, 39, true);
    check_halving(8, 16, 2, 52.5, true);
    check_halving(4, 12, 2, 37.5, true);
    check_halving(4, 4, 2, 16, false);
    check_halving(4, 8, 1, 18, false);
}

/* The closed form has no halves, and neither have single rows. */
static void halves_of_other_requests(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_cost_table cost = cluster_of_two_pipelines(4, 1, 2), halves, none;
    struct hop_plan_request request = support_request(&cost, 8);
    request.objective = HOP_OBJECTIVE_FORMULA;
    struct hop_plan plan = plan_with_halves(&request, &halves);
    assert_int_equal(plan.micro_batches, 8);
    hop_plan_free(&plan);
    assert_int_equal(hop_cost_halve(&halves, &none, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "1 samples has no halves"));
    request.objective = HOP_OBJECTIVE_SIMULATED;
    cost.devices[1].memory = halves.devices[1].memory = 2003;
    support_must_refuse("chimera", &request, HOP_INFEASIBLE,
                        "d1 cannot hold 2 blocks in 2 parts with up to 2 micro-batches kept, as "
                        "chimera does: 2004 bytes needed, 2003 there, 1 too many");
    hop_cost_free(&halves);
    hop_cost_free(&cost);
}

static void odd_and_missing_devices(void **state)
{
    (void)state;
    const double forward[] = {1, 4, 1}, backward[] = {1, 4, 0};
    char text[256];
    struct hop_cost_table cost = support_plain_cluster(6, 3, forward, backward);
    struct hop_plan_request request = support_request(&cost, 4);
    support_must_refuse("chimera", &request, HOP_INFEASIBLE, "d2 has no backward times");
    request.devices = HOP_DEVICES_AUTO;
    struct hop_plan plan = support_must_plan("chimera", &request);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,3) d1[3,6) d1[0,3) d0[3,6)");
    hop_plan_free(&plan);
    support_slow_backward(&cost, 10);
    plan = support_must_plan("chimera", &request);
    support_plan_text(&plan, &cost, text, sizeof text);
    assert_string_equal(text, "d0[0,3) d1[3,6) d1[0,3) d0[3,6)");
    hop_plan_free(&plan);
    request.devices = HOP_DEVICES_ALL;
    support_must_refuse("chimera", &request, HOP_INFEASIBLE,
                        "3 devices take part; chimera needs an even number");
    request.bp_only = true;
    plan = support_must_plan("chimera", &request);
    support_must_be_sound(&plan, &cost);
    hop_plan_free(&plan);
    cost.devices[1].bp = false;
    support_must_refuse("chimera", &request, HOP_INFEASIBLE, "only d0 can take part");
    request.bp_only = false;
    hop_cost_free(&cost);
    cost = equal_cluster(4, 1, 1);
    cost.blocks = 3;
    support_must_refuse("chimera", &request, HOP_INFEASIBLE, "4 devices share 3 blocks");
    cost.blocks = 4;
    hop_cost_free(&cost);
}

static void random_clusters(void **state)
{
    (void)state;
    uint64_t seed = 7;
    int32_t found = 0, refused = 0, halved = 0;
    for (int32_t i = 0; i < 300; i++) {
        const struct support_cluster kind = {
            .blocks = 12, .devices = 8, .links = i % 2 != 0, .tight = i % 4 == 0};
        struct hop_cost_table cost = support_cluster(&kind, &seed);
        support_slow_backward(&cost, 8);
        struct hop_plan_request request = support_request(&cost, support_between(&seed, 1, 20));
        struct hop_plan plan, finer;
        struct hop_cost_table halves;
        struct hop_error err = {0};
        request.devices = HOP_DEVICES_AUTO;
        cost.micro_batch_samples = 2;
        const hop_status status = support_plan_by("chimera", &request, &plan, &err);
        if (status == HOP_OK) {
            support_must_be_sound(&plan, &cost);
            finer = plan_with_halves(&request, &halves);
            support_must_be_sound(&finer, hop_request_cost(&request, &finer));
            const bool halves_them = finer.micro_batches != plan.micro_batches;
            assert_true(halves_them ? finer.simulated_seconds < plan.simulated_seconds
                                    : finer.simulated_seconds == plan.simulated_seconds);
            halved += halves_them;
            hop_cost_free(&halves);
            hop_plan_free(&finer);
            hop_plan_free(&plan);
            found++;
        } else {
            assert_int_equal(status, HOP_INFEASIBLE);
            refused++;
        }
        hop_cost_free(&cost);
    }
    print_message("%d plans, %d with halves, %d refused\n", found, halved, refused);
    assert_true(found > 100 && refused > 20 && halved > 20);
}

static void strange_plans_are_refused(void **state)
{
    (void)state;
    const struct hop_strategy *chimera;
    struct hop_error err = {0};
    struct hop_schedule schedule = {.micro_batches = -7};
    struct hop_cost_table cost = equal_cluster(4, 1, 1);
    struct hop_plan plan = plan_of(4, 2, 4);
    assert_int_equal(hop_strategy_find("chimera", &chimera, &err), HOP_OK);
    assert_int_equal(chimera->schedule(&plan, &cost, 0, 0, &schedule, &err), HOP_INPUT);
    plan.parts[0].gradient = plan.parts[4].gradient = HOP_GRADIENT_NONE;
    assert_int_equal(chimera->schedule(&plan, &cost, 4, 0, &schedule, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "chimera runs backward on all"));
    plan.parts[0].gradient = plan.parts[4].gradient = HOP_GRADIENT_BACKPROP;
    plan.part_count = 4;
    for (int32_t p = 0; p < 4; p++)
        plan.parts[p].micro_hi = 1;
    assert_int_equal(chimera->schedule(&plan, &cost, 4, 0, &schedule, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "1 pipelines of 4 stages"));
    assert_int_equal(schedule.micro_batches, -7);
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_makespans),
        cmocka_unit_test(few_micro_batches),
        cmocka_unit_test(more_pipelines_have_less_bubble),
        cmocka_unit_test(bubbles_of_two_pipelines),
        cmocka_unit_test(doubled_forwards_leave_no_bubble_between_units),
        cmocka_unit_test(halved_backwards_leave_half_the_bubble),
        cmocka_unit_test(no_two_tasks_share_a_slot),
        cmocka_unit_test(activations_in_flight),
        cmocka_unit_test(halves_keep_no_more),
        cmocka_unit_test(plans_of_equal_devices),
        cmocka_unit_test(closed_form_of_equal_devices),
        cmocka_unit_test(doubling_needs_memory),
        cmocka_unit_test(halves_where_they_are_faster),
        cmocka_unit_test(halves_of_other_requests),
        cmocka_unit_test(odd_and_missing_devices),
        cmocka_unit_test(random_clusters),
        cmocka_unit_test(strange_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
