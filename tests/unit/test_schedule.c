/* Greedy schedules, derived transfers, the checker and its promise about deadlocks. */
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
#include "support_schedule.h"

enum { PLANS = 1500, PLAYED = 400, TEXT = 4096 };

static const int32_t four_devices[] = {0, 1, 2, 3};
static const enum hop_gradient hybrid[] = {HOP_GRADIENT_ZEROTH_ORDER, HOP_GRADIENT_ZEROTH_ORDER,
                                           HOP_GRADIENT_BACKPROP, HOP_GRADIENT_BACKPROP};

static void assert_ok(hop_status status, const struct hop_error *err)
{
    if (status != HOP_OK)
        fail_msg("%s", err->message);
}

static void assert_rejected(hop_status status, const struct hop_error *err, const char *part)
{
    if (status != HOP_INPUT || !strstr(err->message, part))
        fail_msg("status %d, message '%s'; expected '%s'", (int)status, err->message, part);
}

static struct hop_schedule priced_greedy(const struct hop_plan *plan,
                                         const struct hop_cost_table *cost)
{
    struct hop_error err = {0};
    struct hop_schedule schedule = {0};
    assert_ok(hop_schedule_greedy(plan, cost, plan->micro_batches, plan->probes, &schedule, &err),
              &err);
    return schedule;
}

/* With every block taking 1 and links free. */
static struct hop_schedule greedy(const struct hop_plan *plan)
{
    struct hop_cost_table cost = support_cost(plan);
    const struct hop_schedule schedule = priced_greedy(plan, &cost);
    hop_cost_free(&cost);
    return schedule;
}

/* One-sided differences or any estimator. */
static struct hop_plan random_plan(uint64_t *random)
{
    struct hop_plan plan = support_random_plan(random);
    if (support_between(random, 0, 1))
        support_random_estimator(&plan, random);
    return plan;
}

/* With random times, on random links where asked for. */
static struct hop_schedule random_greedy(const struct hop_plan *plan, bool links, uint64_t *random)
{
    struct hop_cost_table cost = support_random_cost(plan, random, 1);
    support_random_estimator_cost(&cost, random, 1);
    if (links)
        support_random_links(&cost, random, 1);
    const struct hop_schedule schedule = priced_greedy(plan, &cost);
    hop_cost_free(&cost);
    return schedule;
}

static void assert_list(const struct hop_schedule *schedule, int32_t device, bool parts,
                        const char *expected)
{
    char text[TEXT];
    support_list_text(schedule, device, parts, text, sizeof text);
    assert_string_equal(text, expected);
}

/* Played by hand with every forward and backward taking 1. */
static void small_hybrid_matches_hand(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    struct hop_schedule schedule = greedy(&plan);
    assert_list(&schedule, 0, false, "F0 F1 P0 P1 S");
    assert_list(&schedule, 1, false, "F0 F1 P0 P1 S");
    assert_list(&schedule, 2, false, "F0 F1 P0 B0 P1 B1 S");
    assert_list(&schedule, 3, false, "F0 B0 F1 B1 P0 P1 S");
    assert_int_equal(hop_schedule_slots(&schedule, 0), 0);
    assert_int_equal(hop_schedule_slots(&schedule, 2), 2);
    assert_int_equal(hop_schedule_slots(&schedule, 3), 1);
    assert_int_equal(hop_schedule_probe_batch(&schedule, 1), 1);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static void two_parts_on_one_device_match_hand(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 0};
    struct hop_plan plan = support_plan(2, devices, hybrid + 1);
    struct hop_schedule schedule = greedy(&plan);
    assert_list(&schedule, 0, true, "0.F0 1.F0 1.B0 0.F1 1.F1 1.B1 0.P0 1.P0 0.P1 1.P1 0.S 1.S");
    struct hop_error err = {0};
    assert_ok(hop_schedule_check(&plan, &schedule, 1, &err), &err);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static void evaluation_runs_forward_only(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 1, 0};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_ZEROTH_ORDER, HOP_GRADIENT_BACKPROP,
                                           HOP_GRADIENT_BACKPROP};
    struct hop_plan plan = support_plan(3, devices, gradients);
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    assert_ok(hop_schedule_evaluation(&plan, 2, &schedule, &err), &err);
    assert_list(&schedule, 0, true, "0.F0 2.F0 0.F1 2.F1");
    assert_list(&schedule, 1, true, "1.F0 1.F1");
    assert_ok(hop_schedule_check(&plan, &schedule, 1, &err), &err);
    assert_int_equal(hop_schedule_slots(&schedule, 2), 0);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static void transfers_of_small_hybrid(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    struct hop_schedule schedule = greedy(&plan);
    struct hop_transfers transfers;
    struct hop_error err = {0};
    assert_ok(hop_transfers_derive(&plan, &schedule, &transfers, &err), &err);
    int32_t counts[HOP_PAYLOADS] = {0};
    for (int32_t x = 0; x < transfers.count; x++) {
        const struct hop_transfer *const t = &transfers.items[x];
        counts[t->payload]++;
        assert_int_equal(schedule.lists[t->from_device].tasks[t->from_task].part, t->from_part);
        assert_int_equal(schedule.lists[t->to_device].tasks[t->to_task].part, t->to_part);
        if (x)
            assert_true(t[-1].to_device < t->to_device ||
                        (t[-1].to_device == t->to_device && t[-1].to_task <= t->to_task));
    }
    assert_int_equal(counts[HOP_ACTIVATION], 3 * 2);
    assert_int_equal(counts[HOP_PROBE_ACTIVATION], 3 * 2);
    assert_int_equal(counts[HOP_GRADIENT], 1 * 2);
    assert_int_equal(counts[HOP_DERIVATIVE], 2 * 2);
    hop_transfers_free(&transfers);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

/* The small hybrid of each kind: two zeroth-order stages in front of two backprop stages. */
struct kind {
    enum hop_estimator estimator;
    int32_t probes, exit_probes;
    enum hop_exit_base exit_base;
};
static const struct kind kinds[] = {
    {HOP_DIFFERENCE, 3, 0, HOP_EXIT_OWN}, {HOP_CENTRAL, 3, 0, HOP_EXIT_OWN},
    {HOP_DIFFERENCE, 2, 3, HOP_EXIT_OWN}, {HOP_DIFFERENCE, 0, 2, HOP_EXIT_FULL_MODEL},
    {HOP_CENTRAL, 1, 2, HOP_EXIT_OWN},    {HOP_BOUNDARY, 3, 0, HOP_EXIT_OWN},
    {HOP_FEEDBACK, 0, 0, HOP_EXIT_OWN},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct hop_plan plan_of(const struct kind *kind)
{
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    plan.estimator = kind->estimator;
    plan.probes = kind->probes;
    plan.exit_probes = kind->exit_probes;
    plan.exit_base = kind->exit_base;
    return plan;
}

/* Of two micro-batches, all probes of one at once. */
static void transfers_of_every_kind(void **state)
{
    (void)state;
    static const int32_t expected[KINDS][HOP_PAYLOADS] = {
        {3 * 2, 1 * 2, 3 * 2, 2 * 2, 0},
        {3 * 2, 1 * 2, 3 * 2, 2 * 2, 0},
        {3 * 2, 1 * 2, 3 * 2 + 1 * 2, 4 * 2, 0},
        {3 * 2, 1 * 2, 1 * 2, 2 * 2, 2 * 2},
        {3 * 2, 1 * 2, 3 * 2 + 1 * 2, 4 * 2, 0},
        {3 * 2, 2 * 2, 1 * 2, 2 * 2, 0},
        {3 * 2, 3 * 2, 0, 0, 0},
    };
    for (int32_t k = 0; k < KINDS; k++) {
        struct hop_plan plan = plan_of(&kinds[k]);
        struct hop_schedule schedule = greedy(&plan);
        struct hop_transfers transfers;
        struct hop_error err = {0};
        assert_ok(hop_transfers_derive(&plan, &schedule, &transfers, &err), &err);
        int32_t counts[HOP_PAYLOADS] = {0};
        for (int32_t x = 0; x < transfers.count; x++) {
            const struct hop_transfer *const t = &transfers.items[x];
            const struct hop_task *const from = &schedule.lists[t->from_device].tasks[t->from_task];
            counts[t->payload]++;
            assert_int_equal(t->exit, from->kind == HOP_EXIT_PROBE);
            if (t->payload == HOP_DERIVATIVE || t->payload == HOP_PROBE_ACTIVATION)
                assert_int_equal(t->probe_hi - t->probe_lo,
                                 t->exit ? plan.exit_probes : plan.probes);
        }
        for (int32_t payload = 0; payload < HOP_PAYLOADS; payload++)
            if (counts[payload] != expected[k][payload])
                fail_msg("kind %d: %d %s messages, expected %d", k, counts[payload],
                         hop_payload_names[payload], expected[k][payload]);
        hop_transfers_free(&transfers);
        hop_schedule_free(&schedule);
        hop_plan_free(&plan);
    }
}

/* Played by hand with every forward, backward, pass and feedback of a block taking 1. */
static void estimators_match_hand(void **state)
{
    (void)state;
    static const struct {
        struct kind kind;
        const char *lists[4];
        int32_t slots[4], pending, feedback_blocks;
    } cases[] = {
        /* d3: F0 3-4, B0 4-5, F1 5-6, B1 6-7; d2: B0 5-6, B1 7-8. */
        {{HOP_BOUNDARY, 1, 0, HOP_EXIT_OWN},
         {"F0 F1 P0 P1 S", "F0 F1 P0 P1 D0 D1 S", "F0 F1 B0 B1 S", "F0 B0 F1 B1 S"},
         {2, 2, 2, 1},
         2,
         0},
        {{HOP_FEEDBACK, 0, 0, HOP_EXIT_OWN},
         {"F0 F1 D0 D1 S", "F0 F1 D0 D1 S", "F0 F1 B0 B1 S", "F0 B0 F1 B1 S"},
         {2, 2, 2, 1},
         0,
         0},
        /* The block of d0 is not fed. */
        {{HOP_FEEDBACK, 0, 0, HOP_EXIT_OWN},
         {"F0 F1 S", "F0 F1 D0 D1 S", "F0 F1 B0 B1 S", "F0 B0 F1 B1 S"},
         {0, 2, 2, 1},
         0,
         1},
        {{HOP_DIFFERENCE, 0, 1, HOP_EXIT_FULL_MODEL},
         {"F0 F1 E0 E1 S", "F0 F1 E0 E1 S", "F0 F1 B0 B1 S", "F0 B0 F1 B1 S"},
         {0, 0, 2, 1},
         0,
         0},
        /* Two passes a probe: d0 P0 2-4, P1 4-6; d1 P0 4-6, P1 6-8; d2 B0 5-6, P0 6-8, B1 8-9,
         * P1 9-11. */
        {{HOP_CENTRAL, 1, 0, HOP_EXIT_OWN},
         {"F0 F1 P0 P1 S", "F0 F1 P0 P1 S", "F0 F1 B0 P0 B1 P1 S", "F0 B0 F1 B1 P0 P1 S"},
         {0, 0, 2, 1},
         0,
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_plan plan = plan_of(&cases[i].kind);
        plan.feedback_blocks = cases[i].feedback_blocks;
        struct hop_cost_table cost = support_cost(&plan);
        for (int32_t d = 0; d < 4; d++)
            for (int32_t b = 0; b < 4; b++)
                cost.devices[d].feedback[b] = 1;
        struct hop_schedule schedule = priced_greedy(&plan, &cost);
        for (int32_t d = 0; d < 4; d++) {
            assert_list(&schedule, d, false, cases[i].lists[d]);
            assert_int_equal(hop_schedule_slots(&schedule, d), cases[i].slots[d]);
            assert_int_equal(hop_schedule_pending(&schedule, d), d == 1 ? cases[i].pending : 0);
        }
        assert_int_equal(schedule.probes, plan.probes);
        assert_int_equal(schedule.exit_probes, plan.exit_probes);
        hop_schedule_free(&schedule);
        hop_cost_free(&cost);
        hop_plan_free(&plan);
    }
}

/* With a slot and one micro-batch of tangents the same device works one micro-batch at a time. */
static void limits_of_kept_micro_batches_hold(void **state)
{
    (void)state;
    struct hop_plan plan = plan_of(&(struct kind){HOP_BOUNDARY, 1, 0, HOP_EXIT_OWN});
    plan.parts[0].in_flight = plan.parts[1].in_flight = plan.parts[1].pending = 1;
    struct hop_schedule schedule = greedy(&plan);
    assert_list(&schedule, 0, false, "F0 P0 F1 P1 S");
    assert_list(&schedule, 1, false, "F0 P0 F1 D0 P1 D1 S");
    assert_int_equal(hop_schedule_slots(&schedule, 1), 1);
    assert_int_equal(hop_schedule_pending(&schedule, 1), 1);
    hop_schedule_free(&schedule);
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_error err = {0};
    assert_rejected(hop_schedule_greedy(&plan, &cost, 2, 0, &schedule, &err), &err,
                    "0 probes for a plan with 1");
    plan.probes = 0;
    assert_rejected(hop_schedule_greedy(&plan, &cost, 2, 1, &schedule, &err), &err,
                    "1 probes for a plan with 0");
    schedule = priced_greedy(&plan, &cost);
    assert_list(&schedule, 0, false, "F0 F1 S");
    assert_list(&schedule, 1, false, "F0 F1 S");
    assert_ok(hop_schedule_check(&plan, &schedule, 2, &err), &err);
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

static void passes_and_messages_are_priced(void **state)
{
    (void)state;
    const struct hop_task probe = {HOP_PROBE, 1, 0, 0, 3, 0},
                          exit = {HOP_EXIT_PROBE, 1, 0, 0, 2, 0};
    const struct hop_task forward = {.kind = HOP_FORWARD, .part = 1},
                          delta = {.kind = HOP_DELTA, .part = 1},
                          before = {HOP_EXIT_PROBE, 0, 0, 0, 2, 0};
    const struct hop_transfer hidden = {.payload = HOP_PROBE_ACTIVATION,
                                        .from_part = 1,
                                        .probe_hi = 3,
                                        .sample_hi = 1},
                              derivative = {.payload = HOP_DERIVATIVE, .probe_hi = 3},
                              loss = {.payload = HOP_BASE_LOSS};
    struct hop_plan plan = plan_of(&(struct kind){HOP_DIFFERENCE, 3, 2, HOP_EXIT_OWN});
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_cost_device *const device = &cost.devices[1];
    cost.micro_batch_samples = 5;
    cost.boundary_bytes[1] = 100;
    device->forward[1] = 8;
    device->probe[1] = 4;
    device->feedback[1] = 2;
    device->activation_bytes[1] = 10;
    device->exit_forward = 0.5;
    device->exit_bytes = 7;
    assert_true(hop_price_task(&cost, &plan, &forward) == 8.5);
    assert_true(hop_price_task(&cost, &plan, &probe) == 8 + 2 * 4);
    assert_true(hop_price_task(&cost, &plan, &exit) == 8 + 4 + 2 * 0.5);
    assert_true(hop_price_task(&cost, &plan, &before) == 2);
    assert_true(hop_price_bytes(&cost, &plan, &hidden) == 300);
    assert_true(hop_price_bytes(&cost, &plan, &derivative) == 12);
    assert_true(hop_price_bytes(&cost, &plan, &loss) == 4);
    assert_true(hop_price_memory(&cost, &plan, 1, 0, 0) == 7);
    assert_true(hop_price_memory(&cost, &plan, 0, 0, 0) == 0);
    plan.exit_base = HOP_EXIT_FULL_MODEL;
    assert_true(hop_price_task(&cost, &plan, &forward) == 8);
    plan.exit_base = HOP_EXIT_OWN;
    plan.estimator = HOP_CENTRAL;
    plan.directions = HOP_PER_SAMPLE;
    assert_true(hop_price_task(&cost, &plan, &forward) == 8);
    assert_true(hop_price_task(&cost, &plan, &probe) == 8 + 5 * 4);
    assert_true(hop_price_task(&cost, &plan, &exit) == 8 + 3 * 4 + 4 * 0.5);
    assert_true(hop_price_bytes(&cost, &plan, &hidden) == 600);
    assert_true(hop_price_bytes(&cost, &plan, &derivative) == 60);
    assert_true(hop_price_bytes(&cost, &plan, &loss) == 20);
    plan.exit_probes = 0;
    plan.estimator = HOP_BOUNDARY;
    assert_true(hop_price_task(&cost, &plan, &probe) == 8 + 2 * 4);
    assert_true(hop_price_task(&cost, &plan, &delta) == 0);
    assert_true(hop_price_bytes(&cost, &plan, &hidden) == 300);
    assert_true(hop_price_memory(&cost, &plan, 1, 2, 1) == 2 * 10 + 300);
    plan.estimator = HOP_FEEDBACK;
    plan.probes = 0;
    assert_true(hop_price_task(&cost, &plan, &delta) == 2);
    assert_int_equal(hop_plan_feedback_lo(&plan), 0);
    plan.feedback_blocks = 1;
    assert_int_equal(hop_plan_feedback_lo(&plan), 1);
    assert_true(hop_price_task(&cost, &plan, &delta) == 2);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

/* Replays a schedule in predicted time, by rules written apart from the scheduler's. */
struct replay {
    const struct hop_plan *plan;
    const struct hop_cost_table *cost;
    const struct hop_schedule *schedule;
    double *start[8], *end[8]; /* (devices)(tasks); negative: not known yet */
};

static const struct hop_task *task_of(const struct replay *r, int32_t d, int32_t i)
{
    return &r->schedule->lists[d].tasks[i];
}

static double later(double a, double b)
{
    return a < 0 || b < 0 ? -1 : a > b ? a : b;
}

/* When the last task of that kind ends that runs the probe (-1: whichever); -1: not known, 0: there
 * is none. */
static double end_of(const struct replay *r, enum hop_task_kind kind, int32_t part, int32_t m,
                     int32_t probe)
{
    double end = 0;
    if (part < 0 || part >= r->plan->part_count || m < 0)
        return 0;
    const int32_t d = r->plan->parts[part].device;
    for (int32_t i = 0; i < r->schedule->lists[d].count; i++) {
        const struct hop_task *const task = task_of(r, d, i);
        if (task->kind == kind && task->part == part && task->micro_batch == m &&
            (probe < 0 || (task->probe_lo <= probe && probe < task->probe_hi)))
            end = later(end, r->end[d][i]);
    }
    return end;
}

/* When the activations of the micro-batch are free. */
static double freed_at(const struct replay *r, int32_t p, int32_t m)
{
    if (r->plan->parts[p].gradient == HOP_GRADIENT_BACKPROP)
        return end_of(r, HOP_BACKWARD, p, m, -1);
    return end_of(r, r->plan->estimator == HOP_BOUNDARY ? HOP_PROBE : HOP_DELTA, p, m, -1);
}

/* All of its part is done, and what makes derivatives and base losses on others. */
static double step_ready_at(const struct replay *r, int32_t p)
{
    const struct hop_plan *const plan = r->plan;
    const int32_t head = plan->part_count - 1, last = hop_plan_last_zeroth_order(plan);
    double ready = 0;
    for (int32_t m = 0; m < r->schedule->micro_batches; m++) {
        for (int32_t kind = 0; kind < HOP_STEP; kind++)
            ready = later(ready, end_of(r, (enum hop_task_kind)kind, p, m, -1));
        if (plan->parts[p].gradient != HOP_GRADIENT_ZEROTH_ORDER)
            continue;
        if (plan->estimator == HOP_BOUNDARY)
            ready = later(ready, end_of(r, HOP_DELTA, last, m, -1));
        else
            ready = later(ready, end_of(r, HOP_PROBE, head, m, -1));
        ready = later(ready, end_of(r, HOP_EXIT_PROBE, last, m, -1));
        if (hop_plan_sends_base_loss(plan))
            ready = later(ready, end_of(r, HOP_FORWARD, head, m, -1));
    }
    return ready;
}

/* When everything the task waits for is done; -1: not known yet. */
static double ready_at(const struct replay *r, const struct hop_task *task)
{
    const struct hop_plan *const plan = r->plan;
    const int32_t p = task->part, m = task->micro_batch, last = plan->part_count - 1;
    const bool is_boundary = plan->estimator == HOP_BOUNDARY;
    double ready = 0;
    switch (task->kind) {
    case HOP_FORWARD:
        ready = end_of(r, HOP_FORWARD, p - 1, m, -1);
        if (plan->parts[p].in_flight)
            ready = later(ready, freed_at(r, p, m - plan->parts[p].in_flight));
        return ready;
    case HOP_BACKWARD:
        ready = end_of(r, HOP_FORWARD, p, m, -1);
        return p == last ? ready : later(ready, end_of(r, HOP_BACKWARD, p + 1, m, -1));
    case HOP_DELTA:
        ready = later(end_of(r, HOP_FORWARD, p, m, -1), end_of(r, HOP_PROBE, p, m, -1));
        ready = later(ready, end_of(r, HOP_DELTA, p + 1, m, -1));
        return later(ready, end_of(r, HOP_BACKWARD, p + 1, m, -1));
    case HOP_PROBE:
        ready = end_of(r, HOP_PROBE, p - 1, m, task->probe_hi - 1);
        if (plan->parts[p].pending)
            ready = later(ready, end_of(r, HOP_DELTA, p, m - plan->parts[p].pending, -1));
        return p == last || is_boundary ? later(ready, end_of(r, HOP_FORWARD, p, m, -1)) : ready;
    case HOP_EXIT_PROBE:
        ready = end_of(r, HOP_EXIT_PROBE, p - 1, m, task->probe_hi - 1);
        return p == hop_plan_last_zeroth_order(plan)
                   ? later(ready, end_of(r, HOP_FORWARD, p, m, -1))
                   : ready;
    default:
        return step_ready_at(r, p);
    }
}

static bool is_fed(const struct hop_plan *plan, int32_t block)
{
    int32_t fed = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient == HOP_GRADIENT_ZEROTH_ORDER && plan->parts[p].hi > fed)
            fed = plan->parts[p].hi;
    return plan->estimator == HOP_FEEDBACK &&
           (plan->feedback_blocks == 0 || block + plan->feedback_blocks >= fed);
}

static double seconds_of(const struct replay *r, const struct hop_task *task)
{
    const struct hop_part *const part = &r->plan->parts[task->part];
    const struct hop_cost_device *const device = &r->cost->devices[part->device];
    const int32_t passes =
        (task->probe_hi - task->probe_lo) * (r->plan->estimator == HOP_CENTRAL ? 2 : 1);
    const bool is_last = task->part == hop_plan_last_zeroth_order(r->plan);
    double seconds = 0;
    if (is_last && task->kind == HOP_EXIT_PROBE)
        seconds = passes * device->exit_forward;
    if (is_last && task->kind == HOP_FORWARD && r->plan->exit_probes > 0 &&
        r->plan->estimator == HOP_DIFFERENCE && r->plan->exit_base == HOP_EXIT_OWN)
        seconds = device->exit_forward;
    for (int32_t b = part->lo; b < part->hi; b++) {
        const double of_block[HOP_TASK_KINDS] = {
            [HOP_FORWARD] = device->forward[b],
            [HOP_BACKWARD] = device->backward[b],
            [HOP_PROBE] = device->forward[b] + (passes - 1) * device->probe[b],
            [HOP_EXIT_PROBE] = device->forward[b] + (passes - 1) * device->probe[b],
            [HOP_DELTA] = is_fed(r->plan, b) ? device->feedback[b] : 0,
            [HOP_STEP] = device->step[b],
        };
        seconds += of_block[task->kind];
    }
    return seconds;
}

static bool advance(struct replay *r)
{
    bool moved = false;
    for (int32_t d = 0; d < r->schedule->devices; d++) {
        for (int32_t i = 0; i < r->schedule->lists[d].count; i++) {
            if (r->end[d][i] >= 0)
                continue;
            const double ready = ready_at(r, task_of(r, d, i));
            const double start = later(ready, i ? r->end[d][i - 1] : 0);
            if (start < 0)
                break;
            r->start[d][i] = start;
            r->end[d][i] = start + seconds_of(r, task_of(r, d, i));
            moved = true;
        }
    }
    return moved;
}

static void begin_replay(struct replay *r)
{
    for (int32_t d = 0; d < r->schedule->devices; d++) {
        const int32_t count = r->schedule->lists[d].count;
        r->start[d] = calloc((size_t)count + 1, sizeof(double));
        r->end[d] = calloc((size_t)count + 1, sizeof(double));
        for (int32_t i = 0; i < count; i++)
            r->end[d][i] = -1;
    }
    while (advance(r))
        ;
}

static void end_replay(struct replay *r)
{
    for (int32_t d = 0; d < r->schedule->devices; d++) {
        free(r->start[d]);
        free(r->end[d]);
    }
}

static int32_t rank_of(enum hop_task_kind kind)
{
    const int32_t ranks[HOP_TASK_KINDS] = {
        [HOP_BACKWARD] = 0, [HOP_DELTA] = 1,      [HOP_FORWARD] = 2,
        [HOP_PROBE] = 3,    [HOP_EXIT_PROBE] = 4, [HOP_STEP] = 5};
    return ranks[kind];
}

static bool goes_first(const struct hop_task *a, const struct hop_task *b)
{
    if (rank_of(a->kind) != rank_of(b->kind))
        return rank_of(a->kind) < rank_of(b->kind);
    return a->micro_batch < b->micro_batch ||
           (a->micro_batch == b->micro_batch && a->probe_lo < b->probe_lo);
}

/* Whenever a device starts a task, no other could have started earlier and none that was ready has
 * a higher priority. */
static void assert_priorities(const struct replay *r, int32_t d)
{
    for (int32_t i = 0; i < r->schedule->lists[d].count; i++) {
        const double start = r->start[d][i];
        assert_true(r->end[d][i] >= 0);
        for (int32_t j = i + 1; j < r->schedule->lists[d].count; j++) {
            const struct hop_task *const other = task_of(r, d, j);
            const double ready = ready_at(r, other);
            assert_true(later(ready, i ? r->end[d][i - 1] : 0) >= start);
            assert_false(ready <= start && goes_first(other, task_of(r, d, i)));
        }
    }
}

static void assert_caps(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const int32_t slots = hop_schedule_slots(schedule, p);
        const int32_t pending = hop_schedule_pending(schedule, p);
        if (hop_plan_keeps(plan, p))
            assert_in_range(slots, 1, (uint32_t)plan->parts[p].in_flight);
        else
            assert_int_equal(slots, 0);
        if (hop_plan_keeps_tangents(plan, p))
            assert_in_range(pending, 1, (uint32_t)plan->parts[p].pending);
        else
            assert_int_equal(pending, 0);
    }
}

/* Probes go in batches of probe_batch, the last of a micro-batch may be smaller. */
static void assert_batches(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    for (int32_t d = 0; d < schedule->devices; d++) {
        for (int32_t i = 0; i < schedule->lists[d].count; i++) {
            const struct hop_task *const task = &schedule->lists[d].tasks[i];
            if (task->kind != HOP_PROBE && task->kind != HOP_EXIT_PROBE)
                continue;
            const int32_t all = task->kind == HOP_PROBE ? plan->probes : plan->exit_probes;
            const int32_t batch = plan->probe_batch ? plan->probe_batch : all;
            const int32_t rest = all - task->probe_lo;
            assert_int_equal(task->probe_lo % batch, 0);
            assert_int_equal(task->probe_hi - task->probe_lo, rest < batch ? rest : batch);
        }
    }
}

static void greedy_follows_its_rules(void **state)
{
    (void)state;
    uint64_t random = 0x9e3779b97f4a7c15ull;
    for (int32_t n = 0; n < PLANS; n++) {
        struct hop_plan plan = random_plan(&random);
        struct hop_cost_table cost = support_random_cost(&plan, &random, 1);
        support_random_estimator_cost(&cost, &random, 1);
        struct hop_schedule schedule = priced_greedy(&plan, &cost);
        struct hop_error err = {0};
        int32_t window = 0;
        assert_ok(hop_schedule_window(&plan, &schedule, 1, &window, &err), &err);
        assert_ok(hop_schedule_check(&plan, &schedule, window, &err), &err);
        assert_ok(hop_schedule_check(&plan, &schedule, window + 1, &err), &err);
        if (window > 1)
            assert_rejected(hop_schedule_check(&plan, &schedule, window - 1, &err), &err,
                            "deadlocks");
        assert_caps(&plan, &schedule);
        assert_batches(&plan, &schedule);
        struct replay replay = {.plan = &plan, .cost = &cost, .schedule = &schedule};
        begin_replay(&replay);
        for (int32_t d = 0; d < plan.devices; d++)
            assert_priorities(&replay, d);
        end_replay(&replay);
        hop_cost_free(&cost);
        hop_schedule_free(&schedule);
        hop_plan_free(&plan);
    }
}

static void greedy_is_deterministic_and_encodes(void **state)
{
    (void)state;
    uint64_t random = 77;
    for (int32_t n = 0; n < 300; n++) {
        struct hop_plan plan = random_plan(&random);
        struct hop_cost_table cost = support_random_cost(&plan, &random, 0.1);
        support_random_links(&cost, &random, 0.1);
        struct hop_schedule first = priced_greedy(&plan, &cost);
        struct hop_schedule second = priced_greedy(&plan, &cost), decoded = {0};
        hop_cost_free(&cost);
        struct hop_error err = {0};
        int32_t *words = NULL, *again = NULL;
        size_t count = 0, count_again = 0;
        assert_ok(hop_schedule_encode(&first, &words, &count, &err), &err);
        assert_ok(hop_schedule_encode(&second, &again, &count_again, &err), &err);
        assert_int_equal(count, count_again);
        assert_memory_equal(words, again, count * sizeof *words);
        free(again);
        assert_ok(hop_schedule_decode(words, count, &decoded, &err), &err);
        assert_ok(hop_schedule_encode(&decoded, &again, &count_again, &err), &err);
        assert_int_equal(count, count_again);
        assert_memory_equal(words, again, count * sizeof *words);
        free(words);
        free(again);
        hop_schedule_free(&decoded);
        hop_schedule_free(&second);
        hop_schedule_free(&first);
        hop_plan_free(&plan);
    }
}

static void damaged_words_are_refused(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    struct hop_schedule schedule = greedy(&plan), decoded;
    struct hop_error err = {0};
    int32_t *words = NULL;
    size_t count = 0;
    assert_ok(hop_schedule_encode(&schedule, &words, &count, &err), &err);
    for (size_t n = 0; n < count; n++)
        assert_rejected(hop_schedule_decode(words, n, &decoded, &err), &err, "schedule message");
    uint64_t random = 5;
    for (int32_t n = 0; n < 20000; n++) {
        const size_t at = (size_t)support_between(&random, 0, (int32_t)count - 1);
        const int32_t kept = words[at];
        words[at] = support_between(&random, 0, 1) ? (int32_t)support_random(&random)
                                                   : support_between(&random, -2, 30);
        if (hop_schedule_decode(words, count, &decoded, &err) == HOP_OK) {
            (void)hop_schedule_check(&plan, &decoded, 2, &err);
            hop_schedule_free(&decoded);
        }
        words[at] = kept;
    }
    free(words);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static struct hop_task remove_task(struct hop_schedule *schedule, int32_t d, int32_t i)
{
    struct hop_task_list *const list = &schedule->lists[d];
    const struct hop_task task = list->tasks[i];
    memmove(&list->tasks[i], &list->tasks[i + 1],
            (size_t)(list->count - i - 1) * sizeof *list->tasks);
    list->count--;
    return task;
}

static void insert_task(struct hop_schedule *schedule, int32_t d, int32_t i, struct hop_task task)
{
    struct hop_task_list *const list = &schedule->lists[d];
    memmove(&list->tasks[i + 1], &list->tasks[i], (size_t)(list->count - i) * sizeof *list->tasks);
    list->tasks[i] = task;
    list->count++;
}

enum mutation { DROP, DOUBLE, WRONG_DEVICE, MUTATIONS };

static void assert_mutation_named(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                  int32_t d, int32_t i, enum mutation mutation)
{
    struct hop_schedule changed = support_copy(schedule);
    struct hop_error err = {0};
    const struct hop_task task = changed.lists[d].tasks[i];
    char name[HOP_TASK_TEXT];
    hop_task_describe(&task, name, sizeof name);
    if (mutation == DOUBLE)
        insert_task(&changed, d, i, task);
    else
        remove_task(&changed, d, i);
    if (mutation == WRONG_DEVICE) {
        const int32_t other = (d + 1) % plan->devices;
        insert_task(&changed, other, changed.lists[other].count, task);
    }
    assert_rejected(hop_schedule_check(plan, &changed, 8, &err), &err, name);
    hop_schedule_free(&changed);
}

static void single_mutations_are_named(void **state)
{
    (void)state;
    for (int32_t k = 0; k < KINDS; k++) {
        struct hop_plan plan = plan_of(&kinds[k]);
        struct hop_schedule schedule = greedy(&plan);
        for (int32_t d = 0; d < schedule.devices; d++)
            for (int32_t i = 0; i < schedule.lists[d].count; i++)
                for (int32_t mutation = DROP; mutation < MUTATIONS; mutation++)
                    assert_mutation_named(&plan, &schedule, d, i, (enum mutation)mutation);
        hop_schedule_free(&schedule);
        hop_plan_free(&plan);
    }
}

/* Must `a` come before `b` in a list, whatever the other devices do? */
static bool must_precede(const struct hop_plan *plan, const struct hop_task *a,
                         const struct hop_task *b)
{
    const int32_t head = 3, last_zeroth_order = 1;
    if (a->part != b->part)
        return false;
    if (b->kind == HOP_STEP)
        return true;
    if (a->micro_batch != b->micro_batch)
        return false;
    if (a->kind != HOP_FORWARD)
        return a->kind == HOP_PROBE && b->kind == HOP_DELTA;
    return b->kind == HOP_BACKWARD || b->kind == HOP_DELTA ||
           (b->kind == HOP_PROBE && (b->part == head || plan->estimator == HOP_BOUNDARY)) ||
           (b->kind == HOP_EXIT_PROBE && b->part == last_zeroth_order);
}

static int32_t count_named_swaps(const struct kind *kind)
{
    struct hop_plan plan = plan_of(kind);
    struct hop_schedule schedule = greedy(&plan);
    int32_t swaps = 0;
    for (int32_t d = 0; d < schedule.devices; d++) {
        for (int32_t i = 0; i + 1 < schedule.lists[d].count; i++) {
            struct hop_task *const list = schedule.lists[d].tasks;
            for (int32_t j = i + 1; j < schedule.lists[d].count; j++) {
                if (!must_precede(&plan, &list[i], &list[j]))
                    continue;
                struct hop_schedule moved = support_copy(&schedule);
                struct hop_error err = {0};
                insert_task(&moved, d, i, remove_task(&moved, d, j));
                assert_rejected(hop_schedule_check(&plan, &moved, 8, &err), &err, "of part");
                hop_schedule_free(&moved);
                swaps++;
            }
        }
    }
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
    return swaps;
}

static void swaps_across_a_dependency_are_named(void **state)
{
    (void)state;
    for (int32_t k = 0; k < KINDS; k++)
        assert_true(count_named_swaps(&kinds[k]) > 20);
}

static void wrong_fields_are_named(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    struct hop_schedule schedule = greedy(&plan);
    struct hop_error err = {0};
    struct hop_task *const task = &schedule.lists[2].tasks[0];
    const struct hop_task kept = *task;
    const struct {
        struct hop_task task;
        const char *message;
    } cases[] = {
        {{HOP_FORWARD, 9, 0, 0, 0, 0},
         "FORWARD of part 9, micro-batch 0: the plan has no such part"},
        {{HOP_FORWARD, 2, 2, 0, 0, 0},
         "FORWARD of part 2, micro-batch 2: there is no such micro-batch"},
        {{HOP_STEP, 2, 0, 0, 0, 0}, "STEP of part 2, micro-batch 0: there is no such micro-batch"},
        {{HOP_FORWARD, 2, 0, 0, 1, 0}, "there are no such probes"},
        {{HOP_PROBE, 2, 0, 0, 2, 0},
         "PROBE of part 2, micro-batch 0, probes [0, 2): there are no such"},
        {{HOP_PROBE, 2, 0, 0, 0, 0}, "there are no such probes"},
        {{HOP_REDUCE, 2, 0, 0, 0, 0}, "REDUCE 0 of part 2: there is no such micro-batch"},
        {{HOP_REDUCE, 2, -1, 0, 0, 0}, "REDUCE 0 of part 2 is nothing the plan asks for"},
        {{HOP_REDUCE, 2, -1, 0, 0, -1}, "REDUCE -1 of part 2: there is no such reduction"},
        {{HOP_FORWARD, 2, 0, 0, 0, 1},
         "FORWARD of part 2, micro-batch 0: there is no such reduction"},
        {{HOP_EXIT_PROBE, 2, 0, 0, 0, 0},
         "EXIT_PROBE of part 2, micro-batch 0: there are no such probes"},
        {{HOP_DELTA, 2, 0, 0, 0, 0}, "DELTA of part 2, micro-batch 0 is nothing the plan"},
        {{HOP_FORWARD, 1, 0, 0, 0, 0}, "is on another device than its part"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *task = cases[i].task;
        assert_rejected(hop_schedule_check(&plan, &schedule, 2, &err), &err, cases[i].message);
    }
    *task = kept;
    assert_rejected(hop_schedule_check(&plan, &schedule, 0, &err), &err, "0 buffers");
    plan.devices++;
    assert_rejected(hop_schedule_check(&plan, &schedule, 2, &err), &err, "4 devices");
    plan.devices--;
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

/* The front runs 6 forwards ahead before its probe; the back wants the probe after 3 of them. */
static void window_cycle_is_named_and_real(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 1};
    struct hop_plan plan = support_plan(2, devices, hybrid + 1);
    plan.micro_batches = 6;
    struct hop_schedule schedule = greedy(&plan);
    struct hop_task_list *const back = &schedule.lists[1];
    int32_t probe = 0;
    while (back->tasks[probe].kind != HOP_PROBE)
        probe++;
    insert_task(&schedule, 1, 6, remove_task(&schedule, 1, probe));
    assert_list(&schedule, 1, false, "F0 B0 F1 B1 F2 B2 P0 F3 B3 F4 B4 F5 B5 P1 P2 P3 P4 P5 S");
    struct hop_error err = {0};
    assert_rejected(hop_schedule_check(&plan, &schedule, 1, &err), &err,
                    "with 1 buffer it deadlocks: ");
    assert_non_null(strstr(err.message, "PROBE of part 1, micro-batch 0"));
    assert_non_null(strstr(err.message, "PROBE of part 0, micro-batch 0"));
    int32_t window = 0;
    assert_ok(hop_schedule_window(&plan, &schedule, 1, &window, &err), &err);
    assert_int_equal(window, 2);
    uint64_t random = 3;
    assert_false(support_play(&plan, &schedule, 1, &random));
    assert_true(support_play(&plan, &schedule, 2, &random));
    assert_ok(hop_schedule_window(&plan, &schedule, 5, &window, &err), &err);
    assert_int_equal(window, 5);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

/* Splits some probe tasks in two, each side its own way. */
static void split_probes(struct hop_schedule *schedule, uint64_t *random)
{
    for (int32_t d = 0; d < schedule->devices; d++) {
        struct hop_task_list *const list = &schedule->lists[d];
        struct hop_task *const tasks = calloc(2 * (size_t)list->count + 2, sizeof *tasks);
        int32_t n = 0;
        for (int32_t i = 0; i < list->count; i++) {
            tasks[n++] = list->tasks[i];
            const int32_t lo = list->tasks[i].probe_lo, hi = list->tasks[i].probe_hi;
            if (hi - lo < 2 || !support_between(random, 0, 1))
                continue;
            tasks[n] = tasks[n - 1];
            tasks[n].probe_lo = tasks[n - 1].probe_hi = support_between(random, lo + 1, hi - 1);
            n++;
        }
        free(list->tasks);
        list->tasks = tasks;
        list->count = n;
    }
}

static void swap_two(struct hop_schedule *schedule, uint64_t *random)
{
    struct hop_task_list *const list =
        &schedule->lists[support_between(random, 0, schedule->devices - 1)];
    if (list->count < 2)
        return;
    struct hop_task *const a = &list->tasks[support_between(random, 0, list->count - 1)];
    struct hop_task *const b = &list->tasks[support_between(random, 0, list->count - 1)];
    const struct hop_task kept = *a;
    *a = *b;
    *b = kept;
}

/* Property: accepted schedules finish whatever the order of events, cycles really get stuck. */
static void verdict_agrees_with_play(void **state)
{
    (void)state;
    uint64_t random = 0xabcdef12345ull;
    int32_t accepted = 0, cycles = 0, swapped_cycles = 0;
    for (int32_t n = 0; n < PLAYED; n++) {
        struct hop_plan plan = random_plan(&random);
        struct hop_schedule schedule = random_greedy(&plan, n % 2, &random);
        split_probes(&schedule, &random);
        for (int32_t window = 1; window <= 3; window++) {
            const bool swapped = window == 3;
            if (swapped)
                swap_two(&schedule, &random);
            struct hop_error err = {0};
            if (hop_schedule_check(&plan, &schedule, window, &err) == HOP_OK) {
                assert_true(support_play(&plan, &schedule, window, &random));
                accepted++;
            } else if (strstr(err.message, "deadlocks")) {
                assert_false(support_play(&plan, &schedule, window, &random));
                cycles++;
                swapped_cycles += swapped;
            }
        }
        hop_schedule_free(&schedule);
        hop_plan_free(&plan);
    }
    assert_true(accepted > PLAYED / 2);
    assert_true(cycles > 20);
    assert_true(swapped_cycles > 5);
}

/* No window helps against a cycle of plain dependencies. */
static void wrong_order_has_no_window(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 1};
    struct hop_plan plan = support_plan(2, devices, hybrid + 2);
    struct hop_schedule schedule = greedy(&plan);
    assert_list(&schedule, 0, false, "F0 F1 B0 B1 S");
    insert_task(&schedule, 0, 1, remove_task(&schedule, 0, 2));
    insert_task(&schedule, 1, 0, remove_task(&schedule, 1, 2));
    assert_list(&schedule, 1, false, "F1 F0 B0 B1 S");
    struct hop_error err = {0};
    int32_t window = -7;
    assert_rejected(hop_schedule_window(&plan, &schedule, 1, &window, &err), &err, "deadlocks");
    assert_int_equal(window, -7);
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static void missing_partner_is_named(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    plan.probes = 2;
    struct hop_schedule schedule = greedy(&plan);
    struct hop_transfers transfers;
    struct hop_error err = {0};
    schedule.lists[1].tasks[2].probe_hi = 1;
    assert_rejected(hop_transfers_derive(&plan, &schedule, &transfers, &err), &err,
                    "PROBE of part 2, micro-batch 0, probes [0, 2) needs the probe activation of "
                    "PROBE of part 1, micro-batch 0, probes [0, 2), which is missing");
    remove_task(&schedule, 1, 0);
    assert_rejected(hop_transfers_derive(&plan, &schedule, &transfers, &err), &err,
                    "FORWARD of part 2, micro-batch 0 needs the activation of FORWARD of part 1, "
                    "micro-batch 0, which is missing");
    hop_schedule_free(&schedule);
    hop_plan_free(&plan);
}

static void impossible_requests_are_named(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_schedule schedule;
    struct hop_error err = {0};
    assert_rejected(hop_schedule_greedy(&plan, &cost, 0, 1, &schedule, &err), &err,
                    "0 micro-batches");
    assert_rejected(hop_schedule_greedy(&plan, &cost, 1, -1, &schedule, &err), &err, "-1 probes");
    assert_rejected(hop_schedule_greedy(&plan, &cost, 1 << 16, 1 << 16, &schedule, &err), &err,
                    "too many");
    assert_rejected(hop_schedule_evaluation(&plan, 0, &schedule, &err), &err, "0 micro-batches");
    plan.probe_batch = -1;
    assert_rejected(hop_schedule_greedy(&plan, &cost, 1, 1, &schedule, &err), &err, "-1 at once");
    plan.probe_batch = 0;
    plan.devices = 5;
    assert_rejected(hop_schedule_greedy(&plan, &cost, 1, 1, &schedule, &err), &err,
                    "plan: it is for 4 blocks and 5 devices, the cost table for 4 and 4");
    plan.devices = 4;
    free(cost.devices[3].backward);
    cost.devices[3].backward = NULL;
    assert_int_equal(hop_schedule_greedy(&plan, &cost, 1, 1, &schedule, &err), HOP_INFEASIBLE);
    assert_non_null(strstr(err.message, "part 3 runs backward on d3, which has no backward"));
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

/* The first step of a run repeats a probe: one more than the plan has. */
static void extra_probe_goes_into_the_last_task(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, four_devices, hybrid);
    struct hop_cost_table cost = support_cost(&plan);
    const int32_t expected[][2] = {{0, 4}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 4}};
    plan.probes = 3;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct hop_schedule schedule;
        struct hop_error err = {0};
        plan.probe_batch = expected[i][0];
        assert_ok(hop_schedule_greedy(&plan, &cost, 2, plan.probes + 1, &schedule, &err), &err);
        assert_int_equal(schedule.probes, 4);
        assert_int_equal(hop_schedule_probe_batch(&schedule, 2), expected[i][1]);
        assert_ok(hop_schedule_check(&plan, &schedule, 8, &err), &err);
        hop_schedule_free(&schedule);
    }
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

static struct hop_part priced_part(int32_t stage, int32_t stages, enum hop_gradient gradient,
                                   double memory, int32_t fewest, hop_status expected)
{
    const enum hop_gradient gradients[] = {gradient, gradient, gradient, gradient};
    struct hop_plan plan = support_plan(stages, four_devices, gradients);
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_error err = {0};
    struct hop_cost_device *const device = &cost.devices[stage];
    plan.micro_batches = 4;
    device->fixed_bytes = 5;
    device->state_bytes[stage] = 100;
    device->activation_bytes[stage] = 10;
    device->memory = memory;
    assert_int_equal(hop_plan_price(&plan, &cost, fewest, &err), expected);
    if (expected != HOP_OK) {
        assert_non_null(strstr(err.message, "plan: d"));
        assert_non_null(strstr(err.message, "bytes needed"));
    }
    const struct hop_part part = plan.parts[stage];
    hop_cost_free(&cost);
    hop_plan_free(&plan);
    return part;
}

/* 105 bytes and 10 a micro-batch kept; three backprop stages want 5 of M = 4, 3 and 1. */
static void in_flight_follows_memory(void **state)
{
    (void)state;
    const enum hop_gradient bp = HOP_GRADIENT_BACKPROP;
    const struct {
        int32_t stage;
        double memory;
        int32_t fewest, kept;
    } cases[] = {
        {0, INFINITY, 1, 4}, {1, INFINITY, 1, 3}, {2, INFINITY, 1, 1}, {0, 145, 1, 4},
        {0, 144.5, 1, 3},    {0, 135, 0, 3},      {0, 115, 1, 1},      {1, 125, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct hop_part part =
            priced_part(cases[i].stage, 3, bp, cases[i].memory, cases[i].fewest, HOP_OK);
        assert_int_equal(part.in_flight, cases[i].kept);
        assert_true(part.memory_bytes == 105 + 10 * cases[i].kept);
        assert_true(part.memory_limit == cases[i].memory);
        assert_true(part.forward_seconds == 1);
    }
    priced_part(0, 3, bp, 114.5, 1, HOP_INFEASIBLE);
    priced_part(0, 3, bp, 134.5, 0, HOP_INFEASIBLE);
    priced_part(1, 3, bp, 124.5, 0, HOP_INFEASIBLE);
    const struct hop_part front = priced_part(0, 2, HOP_GRADIENT_ZEROTH_ORDER, 105, 1, HOP_OK);
    assert_int_equal(front.in_flight, 0);
    assert_true(front.memory_bytes == 105);
    priced_part(0, 2, HOP_GRADIENT_ZEROTH_ORDER, 104.5, 1, HOP_INFEASIBLE);
}

/* The last zeroth-order part: 105 bytes, 7 of an output layer, 10 a micro-batch of activations and
 * 2 x 2 a micro-batch of tangents; M = 4. */
static void zeroth_order_parts_keep_what_fits(void **state)
{
    (void)state;
    const struct {
        enum hop_estimator estimator;
        int32_t probes, exit_probes;
        double memory;
        int32_t in_flight, pending; /* in_flight -1: does not fit */
        double bytes;
    } cases[] = {
        {HOP_BOUNDARY, 2, 0, INFINITY, 4, 4, 161}, {HOP_BOUNDARY, 2, 0, 157, 4, 3, 157},
        {HOP_BOUNDARY, 2, 0, 149, 4, 1, 149},      {HOP_BOUNDARY, 2, 0, 148.5, 3, 3, 147},
        {HOP_BOUNDARY, 2, 0, 119, 1, 1, 119},      {HOP_BOUNDARY, 2, 0, 118.5, -1, 0, 0},
        {HOP_FEEDBACK, 0, 0, INFINITY, 4, 0, 145}, {HOP_FEEDBACK, 0, 0, 144.5, 3, 0, 135},
        {HOP_FEEDBACK, 0, 0, 114.5, -1, 0, 0},     {HOP_CENTRAL, 2, 1, 112, 0, 0, 112},
        {HOP_CENTRAL, 2, 1, 111.5, -1, 0, 0},      {HOP_CENTRAL, 2, 0, 105, 0, 0, 105},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_plan plan = plan_of(&(struct kind){cases[i].estimator, cases[i].probes,
                                                      cases[i].exit_probes, HOP_EXIT_OWN});
        struct hop_cost_table cost = support_cost(&plan);
        struct hop_cost_device *const device = &cost.devices[1];
        struct hop_error err = {0};
        plan.micro_batches = 4;
        cost.boundary_bytes[1] = 2;
        device->fixed_bytes = 5;
        device->state_bytes[1] = 100;
        device->activation_bytes[1] = 10;
        device->exit_bytes = 7;
        device->memory = cases[i].memory;
        assert_int_equal(hop_plan_price(&plan, &cost, i % 2, &err),
                         cases[i].in_flight < 0 ? HOP_INFEASIBLE : HOP_OK);
        if (cases[i].in_flight >= 0) {
            assert_int_equal(plan.parts[1].in_flight, cases[i].in_flight);
            assert_int_equal(plan.parts[1].pending, cases[i].pending);
            assert_true(plan.parts[1].memory_bytes == cases[i].bytes);
            assert_int_equal(plan.parts[0].in_flight,
                             cases[i].estimator == HOP_CENTRAL ? 0 : plan.micro_batches);
            assert_int_equal(plan.parts[0].pending, 0);
        }
        hop_cost_free(&cost);
        hop_plan_free(&plan);
    }
}

/* Each of three parts on one device fits alone. Together they hold 5 + 300 bytes and 10 a
 * micro-batch; the first is served first, but leaves one for each of the others. */
static void parts_of_a_device_share_its_memory(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 0, 0};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_BACKPROP, HOP_GRADIENT_BACKPROP,
                                           HOP_GRADIENT_BACKPROP};
    const struct {
        double memory;
        int32_t kept[3]; /* 0: does not fit */
    } cases[] = {
        {385, {4, 3, 1}},   {384.5, {4, 2, 1}}, {375, {4, 2, 1}},   {365, {4, 1, 1}},
        {364.5, {3, 1, 1}}, {335, {1, 1, 1}},   {334.5, {0, 0, 0}},
    };
    struct hop_plan plan = support_plan(3, devices, gradients);
    struct hop_cost_table cost = support_cost(&plan);
    plan.micro_batches = 4;
    cost.devices[0].fixed_bytes = 5;
    for (int32_t b = 0; b < 3; b++) {
        cost.devices[0].state_bytes[b] = 100;
        cost.devices[0].activation_bytes[b] = 10;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_error err = {0};
        cost.devices[0].memory = cases[i].memory;
        assert_int_equal(hop_plan_price(&plan, &cost, 1, &err),
                         cases[i].kept[0] ? HOP_OK : HOP_INFEASIBLE);
        for (int32_t p = 0; p < 3 && cases[i].kept[0]; p++)
            assert_int_equal(plan.parts[p].in_flight, cases[i].kept[p]);
    }
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_hybrid_matches_hand),
        cmocka_unit_test(two_parts_on_one_device_match_hand),
        cmocka_unit_test(evaluation_runs_forward_only),
        cmocka_unit_test(transfers_of_small_hybrid),
        cmocka_unit_test(transfers_of_every_kind),
        cmocka_unit_test(estimators_match_hand),
        cmocka_unit_test(limits_of_kept_micro_batches_hold),
        cmocka_unit_test(passes_and_messages_are_priced),
        cmocka_unit_test(greedy_follows_its_rules),
        cmocka_unit_test(greedy_is_deterministic_and_encodes),
        cmocka_unit_test(damaged_words_are_refused),
        cmocka_unit_test(single_mutations_are_named),
        cmocka_unit_test(swaps_across_a_dependency_are_named),
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(window_cycle_is_named_and_real),
        cmocka_unit_test(verdict_agrees_with_play),
        cmocka_unit_test(wrong_order_has_no_window),
        cmocka_unit_test(missing_partner_is_named),
        cmocka_unit_test(impossible_requests_are_named),
        cmocka_unit_test(extra_probe_goes_into_the_last_task),
        cmocka_unit_test(in_flight_follows_memory),
        cmocka_unit_test(zeroth_order_parts_keep_what_fits),
        cmocka_unit_test(parts_of_a_device_share_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
