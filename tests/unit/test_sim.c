/* The event simulator: known schedules, invariants, links, buffers, memory and energy. */
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
#include "schedule/greedy.h"
#include "schedule/price.h"
#include "sim/simulate.h"
#include "support_schedule.h"

enum { PLANS = 4000, STAGES = 8, MOST_PARTS = 6 };

static void assert_ok(hop_status status, const struct hop_error *err)
{
    if (status != HOP_OK)
        fail_msg("%s", err->message);
}

static struct hop_simulation simulate(const struct hop_plan *plan,
                                      const struct hop_schedule *schedule,
                                      const struct hop_cost_table *cost, int32_t window)
{
    const struct hop_simulation_options options = {.window = window, .record = true};
    struct hop_simulation simulation;
    struct hop_error err = {0};
    assert_ok(hop_simulate(plan, schedule, cost, &options, &simulation, &err), &err);
    return simulation;
}

static double makespan_of(const struct hop_plan *plan, const struct hop_schedule *schedule,
                          const struct hop_cost_table *cost)
{
    struct hop_simulation simulation;
    struct hop_error err = {0};
    assert_ok(hop_simulate(plan, schedule, cost, NULL, &simulation, &err), &err);
    const double makespan = simulation.makespan;
    hop_simulation_free(&simulation);
    return makespan;
}

static struct hop_schedule greedy(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_schedule schedule;
    struct hop_error err = {0};
    assert_ok(hop_schedule_greedy(plan, cost, plan->micro_batches, plan->probes, &schedule, &err),
              &err);
    return schedule;
}

/* A pipeline of one-block stages, each on a device of its own. */
struct pipeline {
    struct hop_plan plan;
    struct hop_cost_table cost;
};

static struct pipeline pipeline_of(int32_t bp_free, int32_t stages, const double *forward,
                                   double ratio, int32_t micro_batches, int32_t probes)
{
    int32_t devices[STAGES] = {0};
    enum hop_gradient gradients[STAGES] = {HOP_GRADIENT_NONE};
    for (int32_t i = 0; i < stages; i++) {
        devices[i] = i;
        gradients[i] = i < bp_free ? HOP_GRADIENT_ZEROTH_ORDER : HOP_GRADIENT_BACKPROP;
    }
    struct pipeline p = {.plan = support_plan(stages, devices, gradients)};
    p.plan.micro_batches = micro_batches;
    p.plan.probes = probes;
    p.plan.probe_batch = 1;
    p.cost = support_cost(&p.plan);
    for (int32_t i = 0; i < stages; i++) {
        p.cost.devices[i].forward[i] = p.cost.devices[i].probe[i] = forward[i];
        p.cost.devices[i].backward[i] = ratio * forward[i];
    }
    return p;
}

static void free_pipeline(struct pipeline *p)
{
    hop_plan_free(&p->plan);
    hop_cost_free(&p->cost);
}

static struct hop_schedule empty_schedule(const struct hop_plan *plan)
{
    struct hop_schedule schedule = {.micro_batches = plan->micro_batches,
                                    .probes = plan->probes,
                                    .training = true,
                                    .devices = plan->devices};
    schedule.lists = calloc((size_t)plan->devices, sizeof *schedule.lists);
    for (int32_t d = 0; d < plan->devices; d++)
        schedule.lists[d].tasks = calloc(1024, sizeof(struct hop_task));
    return schedule;
}

static void append(struct hop_schedule *schedule, int32_t device, enum hop_task_kind kind,
                   int32_t part, int32_t m)
{
    struct hop_task_list *const list = &schedule->lists[device];
    assert_true(list->count < 1024);
    list->tasks[list->count++] = (struct hop_task){
        .kind = kind, .part = part, .micro_batch = m, .probe_hi = kind == HOP_PROBE};
}

/* As many forwards as `kept` allows, then a backward and a forward in turn. */
static void append_one_f_one_b(struct hop_schedule *schedule, int32_t stage, int32_t kept)
{
    const int32_t batches = schedule->micro_batches;
    int32_t forward = 0;
    for (; forward < batches && forward < kept; forward++)
        append(schedule, stage, HOP_FORWARD, stage, forward);
    for (int32_t m = 0; m < batches; m++) {
        append(schedule, stage, HOP_BACKWARD, stage, m);
        if (forward < batches)
            append(schedule, stage, HOP_FORWARD, stage, forward++);
    }
}

enum discipline { GPIPE, ONE_F_ONE_B, TWICE };

static int32_t kept_by(enum discipline discipline, int32_t stages, int32_t i, int32_t batches)
{
    if (discipline == GPIPE)
        return batches;
    return discipline == ONE_F_ONE_B ? stages - i : 2 * (stages - i) - 1;
}

static double play(enum discipline discipline, int32_t stages, const double *forward,
                   int32_t micro_batches)
{
    struct pipeline p = pipeline_of(0, stages, forward, 2, micro_batches, 0);
    struct hop_schedule schedule = empty_schedule(&p.plan);
    for (int32_t i = 0; i < stages; i++)
        append_one_f_one_b(&schedule, i, kept_by(discipline, stages, i, micro_batches));
    const double makespan = makespan_of(&p.plan, &schedule, &p.cost);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
    return makespan;
}

/* The worked example of the paper: 51 and 36 seconds; and what other orders give. */
static void first_order_pipelines_match_known_times(void **state)
{
    (void)state;
    const double front[] = {3, 3, 1, 1}, back[] = {1, 1, 3, 3}, two[] = {4, 4}, half[] = {2, 2};
    assert_true(play(GPIPE, 4, front, 4) == 51);
    assert_true(play(ONE_F_ONE_B, 4, front, 4) == 45);
    assert_true(play(GPIPE, 4, back, 4) == 51);
    assert_true(play(ONE_F_ONE_B, 4, back, 4) == 51);
    assert_true(play(GPIPE, 2, two, 2) == 36);
    assert_true(2 * play(GPIPE, 2, half, 2) == 36);
    const double slow_second[] = {1, 3, 1, 1};
    assert_true(play(GPIPE, 4, slow_second, 8) == 81);
    assert_true(play(ONE_F_ONE_B, 4, slow_second, 8) == 75);
    assert_true(play(TWICE, 4, slow_second, 8) == 75);
    const double ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int32_t uniform[][3] = {{4, 4, 21}, {4, 8, 33}, {6, 8, 39}, {8, 16, 69}};
    for (size_t i = 0; i < sizeof uniform / sizeof *uniform; i++) {
        assert_true(play(GPIPE, uniform[i][0], ones, uniform[i][1]) == uniform[i][2]);
        assert_true(play(ONE_F_ONE_B, uniform[i][0], ones, uniform[i][1]) == uniform[i][2]);
    }
}

/* Where nothing limits what is in flight. */
static void hybrid_pipelines_match_known_times(void **state)
{
    (void)state;
    const struct {
        int32_t bp_free, stages;
        double forward[STAGES];
        int32_t micro_batches, probes;
        double seconds;
    } cases[] = {
        {2, 4, {2, 2, 1, 1}, 4, 1, 23},   {2, 4, {1, 1, 1, 1}, 4, 1, 19},
        {2, 4, {1, 1, 1, 1}, 4, 12, 63},  {2, 6, {1, 1, 2, 2, 2, 2}, 8, 12, 248},
        {2, 4, {2, 2, 1, 1}, 4, 12, 108}, {2, 4, {1, 1, 1, 3}, 4, 2, 63},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pipeline p = pipeline_of(cases[i].bp_free, cases[i].stages, cases[i].forward, 2,
                                        cases[i].micro_batches, cases[i].probes);
        for (int32_t stage = 0; stage < cases[i].stages; stage++)
            p.plan.parts[stage].in_flight = p.plan.micro_batches;
        struct hop_schedule schedule = greedy(&p.plan, &p.cost);
        struct hop_simulation simulation = simulate(&p.plan, &schedule, &p.cost, 0);
        if (simulation.makespan != cases[i].seconds)
            fail_msg("case %zu: %g s, expected %g", i, simulation.makespan, cases[i].seconds);
        if (i == 0)
            for (int32_t d = 0; d < 4; d++)
                assert_true(simulation.busy[d] == 16);
        hop_simulation_free(&simulation);
        hop_schedule_free(&schedule);
        free_pipeline(&p);
    }
}

/* Appends "F0 P0 B0" to the list of device and part d. */
static void append_text(struct hop_schedule *schedule, int32_t d, const char *text)
{
    for (; *text; text += text[2] ? 3 : 2) {
        const enum hop_task_kind kind = *text == 'F'   ? HOP_FORWARD
                                        : *text == 'B' ? HOP_BACKWARD
                                                       : HOP_PROBE;
        append(schedule, d, kind, d, text[1] - '0');
    }
}

/* The worked example with probes before everything else, on all devices. Such a schedule has no
 * base loss when its probes reach the head: it can be played but not run. */
static void probes_first_is_slower(void **state)
{
    (void)state;
    const double forward[] = {2, 2, 1, 1};
    struct pipeline p = pipeline_of(2, 4, forward, 2, 4, 1);
    struct hop_schedule schedule = empty_schedule(&p.plan);
    append_text(&schedule, 0, "P0 P1 P2 P3 F0 F1 F2 F3");
    append_text(&schedule, 1, "P0 P1 P2 P3 F0 F1 F2 F3");
    append_text(&schedule, 2, "P0 P1 P2 P3 F0 F1 B0 F2 B1 F3 B2 B3");
    append_text(&schedule, 3, "P0 P1 P2 P3 F0 B0 F1 B1 F2 B2 F3 B3");
    for (int32_t d = 0; d < 4; d++)
        append(&schedule, d, HOP_STEP, d, -1);
    assert_true(makespan_of(&p.plan, &schedule, &p.cost) == 27);
    struct hop_error err = {0};
    assert_int_equal(hop_schedule_check(&p.plan, &schedule, 8, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "comes before the FORWARD with its base loss"));
    hop_schedule_free(&schedule);
    free_pipeline(&p);
}

/* BP-free devices at the tail: the gradient of a micro-batch leaves them when its probe, a pass of
 * a second pipeline through them alone, is done. */
static void tail_placement_matches_known_time(void **state)
{
    (void)state;
    const double forward[] = {1, 1, 2, 2};
    struct pipeline p = pipeline_of(0, 4, forward, 2, 4, 0);
    struct hop_part parts[MOST_PARTS];
    memcpy(parts, p.plan.parts, 4 * sizeof *parts);
    parts[4] = parts[2];
    parts[5] = parts[3];
    for (int32_t i = 0; i < 2; i++) {
        p.cost.devices[2 + i].backward[2 + i] = 0;
        parts[4 + i].pipeline = 1;
        parts[4 + i].stage = i;
        parts[4 + i].gradient = HOP_GRADIENT_NONE;
    }
    struct hop_plan plan = p.plan;
    plan.parts = parts;
    plan.part_count = 6;
    struct hop_schedule schedule = empty_schedule(&plan);
    for (int32_t d = 0; d < 4; d++)
        for (int32_t m = 0; m < 4; m++)
            append(&schedule, d, HOP_FORWARD, d, m);
    for (int32_t m = 0; m < 4; m++) {
        append(&schedule, 3, HOP_FORWARD, 5, m);
        append(&schedule, 3, HOP_BACKWARD, 3, m);
        append(&schedule, 2, HOP_FORWARD, 4, m);
        if (m)
            append(&schedule, 2, HOP_BACKWARD, 2, m - 1);
        append(&schedule, 1, HOP_BACKWARD, 1, m);
        append(&schedule, 0, HOP_BACKWARD, 0, m);
    }
    append(&schedule, 2, HOP_BACKWARD, 2, 3);
    assert_true(makespan_of(&plan, &schedule, &p.cost) == 24);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
}

struct random_case {
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_schedule schedule;
};

static struct random_case random_case(uint64_t *random, bool links)
{
    const double scale = support_between(random, 0, 1) ? 1 : 0.1;
    struct random_case c = {.plan = support_random_plan(random)};
    const bool estimator = support_between(random, 0, 1);
    if (estimator)
        support_random_estimator(&c.plan, random);
    c.cost = support_random_cost(&c.plan, random, scale);
    if (estimator)
        support_random_estimator_cost(&c.cost, random, scale);
    if (links)
        support_random_links(&c.cost, random, scale);
    c.schedule = greedy(&c.plan, &c.cost);
    return c;
}

static void free_case(struct random_case *c)
{
    hop_schedule_free(&c->schedule);
    hop_cost_free(&c->cost);
    hop_plan_free(&c->plan);
}

/* The planner's quick question, the lists and the simulator agree to the last bit. */
static void greedy_time_is_the_simulated_time(void **state)
{
    (void)state;
    uint64_t random = 0x1234567;
    int32_t slower_by_links = 0, of[HOP_ESTIMATORS] = {0}, exits = 0, base_losses = 0;
    for (int32_t n = 0; n < PLANS; n++) {
        struct random_case c = random_case(&random, n % 4 != 0);
        of[c.plan.estimator] += hop_plan_has_zeroth_order(&c.plan);
        exits += c.schedule.exit_probes > 0;
        base_losses += hop_plan_sends_base_loss(&c.plan);
        struct hop_greedy *quick;
        struct hop_error err = {0};
        assert_ok(hop_greedy_create(&c.cost, c.plan.part_count + n % 3, c.plan.micro_batches,
                                    c.plan.probes, c.plan.exit_probes, c.plan.probe_batch, &quick,
                                    &err),
                  &err);
        const double simulated = makespan_of(&c.plan, &c.schedule, &c.cost);
        assert_true(hop_greedy_makespan(quick, &c.plan, INFINITY) == simulated);
        assert_true(hop_greedy_makespan(quick, &c.plan, simulated) == simulated);
        assert_true(isinf(hop_greedy_makespan(quick, &c.plan, simulated * (1 - 1e-12))));
        assert_true(isinf(hop_greedy_makespan(quick, &c.plan, 0)));
        assert_true(hop_greedy_makespan(quick, &c.plan, INFINITY) == simulated);
        hop_greedy_free(quick);
        struct hop_cost_table free_links = c.cost;
        free_links.bandwidth = calloc((size_t)(c.plan.devices * c.plan.devices), sizeof(double));
        free_links.latency = calloc((size_t)(c.plan.devices * c.plan.devices), sizeof(double));
        for (int32_t i = 0; i < c.plan.devices * c.plan.devices; i++)
            free_links.bandwidth[i] = INFINITY;
        slower_by_links += simulated > makespan_of(&c.plan, &c.schedule, &free_links);
        free(free_links.bandwidth);
        free(free_links.latency);
        free_case(&c);
    }
    assert_true(slower_by_links > PLANS / 3);
    for (int32_t e = 0; e < HOP_ESTIMATORS; e++)
        assert_true(of[e] > PLANS / 40);
    assert_true(exits > PLANS / 20);
    assert_true(base_losses > PLANS / 100);
}

static double start_of(const struct hop_simulation *s, int32_t device, int32_t i)
{
    for (size_t e = 0; e < s->timeline.count; e++)
        if (s->timeline.events[e].device == device && i-- == 0)
            return s->timeline.events[e].start;
    return NAN;
}

static double end_of(const struct hop_simulation *s, int32_t device, int32_t i)
{
    for (size_t e = 0; e < s->timeline.count; e++)
        if (s->timeline.events[e].device == device && i-- == 0)
            return s->timeline.events[e].end;
    return NAN;
}

/* Do two messages need one resource in common? */
static bool compete(const struct hop_cost_table *cost, const struct hop_transfer *a,
                    const struct hop_transfer *b)
{
    const bool same = a->from_device == b->from_device && a->to_device == b->to_device;
    const bool opposite = a->from_device == b->to_device && a->to_device == b->from_device;
    const bool card = a->from_device == b->from_device || a->to_device == b->to_device;
    return same || (cost->half_duplex && opposite) || (cost->shared_nic && card);
}

/* A message leaves when it is made and when all that were made before and need one of its resources
 * have arrived, neither earlier nor later. */
static void assert_links(const struct random_case *c, const struct hop_simulation *s,
                         const struct hop_transfers *transfers)
{
    for (int32_t f = 0; f < s->flight_count; f++) {
        const struct hop_flight *const flight = &s->flights[f];
        const struct hop_transfer *const t = &transfers->items[flight->transfer];
        const double seconds = hop_cost_link(&c->cost, t->from_device, t->to_device,
                                             hop_price_bytes(&c->cost, &c->plan, t));
        const double made = end_of(s, t->from_device, t->from_task);
        double start = made;
        for (int32_t g = 0; g < f && seconds > 0; g++) {
            const struct hop_transfer *const before = &transfers->items[s->flights[g].transfer];
            assert_true(end_of(s, before->from_device, before->from_task) <= made);
            if (compete(&c->cost, before, t) && s->flights[g].end > s->flights[g].start)
                start = fmax(start, s->flights[g].end);
        }
        assert_true(flight->start == start);
        assert_true(flight->end == start + seconds);
    }
}

/* Every task starts when the one before it and its last input are done, neither earlier nor
 * later. */
static void assert_starts(const struct random_case *c, const struct hop_simulation *s,
                          const struct hop_transfers *transfers)
{
    for (int32_t d = 0; d < c->plan.devices; d++) {
        for (int32_t i = 0; i < c->schedule.lists[d].count; i++) {
            double start = i ? end_of(s, d, i - 1) : 0;
            for (int32_t x = 0; x < transfers->count; x++) {
                const struct hop_transfer *const t = &transfers->items[x];
                if (t->to_device == d && t->to_task == i && t->from_device == d)
                    start = fmax(start, end_of(s, d, t->from_task));
            }
            for (int32_t f = 0; f < s->flight_count; f++) {
                const struct hop_transfer *const t = &transfers->items[s->flights[f].transfer];
                if (t->to_device == d && t->to_task == i)
                    start = fmax(start, s->flights[f].end);
            }
            assert_true(start_of(s, d, i) == start);
            assert_true(end_of(s, d, i) ==
                        start + hop_price_task(&c->cost, &c->plan, &c->schedule.lists[d].tasks[i]));
        }
    }
}

static void assert_list_order(const struct random_case *c, const struct hop_simulation *s)
{
    int32_t next[MOST_PARTS] = {0};
    for (size_t e = 0; e < s->timeline.count; e++) {
        const struct hop_event *const event = &s->timeline.events[e];
        const struct hop_task *const task =
            &c->schedule.lists[event->device].tasks[next[event->device]++];
        assert_memory_equal(task, &event->task, sizeof *task);
    }
    for (int32_t d = 0; d < c->plan.devices; d++)
        assert_int_equal(next[d], c->schedule.lists[d].count);
}

/* The way of micro-batch 0 to the head and back, as far as backprop goes. */
static double critical_path(const struct random_case *c)
{
    double seconds = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        const bool next = p + 1 < c->plan.part_count;
        const int32_t to = next ? part[1].device : part->device;
        const double bytes = next ? c->cost.boundary_bytes[part->hi - 1] : 0;
        seconds += hop_cost_forward(&c->cost, part->device, part->lo, part->hi) +
                   hop_cost_link(&c->cost, part->device, to, bytes);
        if (part->gradient != HOP_GRADIENT_BACKPROP)
            continue;
        seconds += hop_cost_backward(&c->cost, part->device, part->lo, part->hi) +
                   hop_cost_link(&c->cost, to, part->device, bytes);
    }
    return seconds;
}

static double work_of(const struct random_case *c, int32_t device)
{
    double seconds = 0;
    for (int32_t i = 0; i < c->schedule.lists[device].count; i++)
        seconds += hop_price_task(&c->cost, &c->plan, &c->schedule.lists[device].tasks[i]);
    return seconds;
}

static void assert_invariants(const struct random_case *c, const struct hop_simulation *s)
{
    const double slack = 1e-12 * s->makespan;
    double busy = 0;
    for (int32_t d = 0; d < c->plan.devices; d++) {
        assert_true(s->makespan >= s->busy[d] - slack);
        assert_true(s->busy[d] == work_of(c, d));
        busy += s->busy[d];
    }
    assert_true(s->makespan >= critical_path(c) - slack);
    assert_true(fabs(s->utilization * s->makespan * s->working - busy) <= 1e-9 * busy);
    assert_true(s->utilization > 0 && s->utilization <= 1 + 1e-12);
    for (int32_t p = 0; p < c->plan.part_count; p++)
        assert_true(hop_schedule_slots(&c->schedule, p) <= c->plan.parts[p].in_flight);
}

static void links_and_tasks_take_their_time(void **state)
{
    (void)state;
    uint64_t random = 0xfeed;
    for (int32_t n = 0; n < PLANS / 8; n++) {
        struct random_case c = random_case(&random, true);
        struct hop_simulation s = simulate(&c.plan, &c.schedule, &c.cost, 0);
        struct hop_transfers transfers;
        struct hop_error err = {0};
        assert_ok(hop_transfers_derive(&c.plan, &c.schedule, &transfers, &err), &err);
        assert_links(&c, &s, &transfers);
        assert_starts(&c, &s, &transfers);
        assert_list_order(&c, &s);
        assert_invariants(&c, &s);
        hop_transfers_free(&transfers);
        hop_simulation_free(&s);
        free_case(&c);
    }
}

/* When the inputs of a task are there, from the flights; NAN where it waits for its own device. */
static double inputs_at(const struct hop_simulation *s, const struct hop_transfers *transfers,
                        int32_t d, int32_t i)
{
    double ready = 0;
    for (int32_t f = 0; f < s->flight_count; f++) {
        const struct hop_transfer *const t = &transfers->items[s->flights[f].transfer];
        if (t->to_device == d && t->to_task == i)
            ready = fmax(ready, s->flights[f].end);
    }
    for (int32_t x = 0; x < transfers->count; x++) {
        const struct hop_transfer *const t = &transfers->items[x];
        if (t->to_device == d && t->to_task == i && t->from_device == d)
            ready = fmax(ready, end_of(s, d, t->from_task));
    }
    return ready;
}

/* The k-th of the tasks of that kind and part before position i that have ended. */
static int32_t count_before(const struct random_case *c, int32_t d, int32_t i,
                            enum hop_task_kind kind, int32_t part)
{
    int32_t count = 0;
    for (int32_t j = 0; j < i; j++)
        count += c->schedule.lists[d].tasks[j].kind == kind &&
                 c->schedule.lists[d].tasks[j].part == part;
    return count;
}

/* Micro-batches with all their PROBEs before position i. */
static int32_t probed_before(const struct random_case *c, int32_t d, int32_t i, int32_t part)
{
    const struct hop_plan *const plan = &c->plan;
    const int32_t each = plan->probe_batch > 0 && plan->probe_batch < plan->probes
                             ? plan->probe_batch
                             : plan->probes;
    return count_before(c, d, i, HOP_PROBE, part) / ((plan->probes + each - 1) / each);
}

/* Micro-batches whose kept activations are free before position i. */
static int32_t freed_before(const struct random_case *c, int32_t d, int32_t i, int32_t part)
{
    const enum hop_task_kind kind = hop_plan_frees(&c->plan, part);
    return kind == HOP_PROBE ? probed_before(c, d, i, part) : count_before(c, d, i, kind, part);
}

/* Do the tasks of the same device before position i allow this one there? */
static bool is_allowed(const struct random_case *c, int32_t d, int32_t i,
                       const struct hop_task *task)
{
    const struct hop_part *const part = &c->plan.parts[task->part];
    const int32_t forwards = count_before(c, d, i, HOP_FORWARD, task->part);
    const int32_t m = task->micro_batch;
    const bool is_head = part->stage + 1 == c->plan.part_count;
    const bool is_boundary = c->plan.estimator == HOP_BOUNDARY;
    switch (task->kind) {
    case HOP_FORWARD:
        return !hop_plan_keeps(&c->plan, task->part) ||
               m - freed_before(c, d, i, task->part) < part->in_flight;
    case HOP_BACKWARD:
        return m < forwards;
    case HOP_DELTA:
        return m < forwards && (!is_boundary || m < probed_before(c, d, i, task->part));
    case HOP_PROBE:
        if (part->pending && m - count_before(c, d, i, HOP_DELTA, task->part) >= part->pending)
            return false;
        return (!is_head && !is_boundary) || m < forwards;
    case HOP_EXIT_PROBE:
        return task->part != hop_plan_last_zeroth_order(&c->plan) || m < forwards;
    default:
        for (int32_t j = i; j < c->schedule.lists[d].count; j++)
            if (c->schedule.lists[d].tasks[j].part == task->part &&
                c->schedule.lists[d].tasks[j].kind != HOP_STEP)
                return false;
        return true;
    }
}

static int32_t rank_of(const struct hop_task *task)
{
    const int32_t ranks[HOP_TASK_KINDS] = {
        [HOP_BACKWARD] = 0, [HOP_DELTA] = 1,      [HOP_FORWARD] = 2,
        [HOP_PROBE] = 3,    [HOP_EXIT_PROBE] = 4, [HOP_STEP] = 5};
    return ranks[task->kind] * 10000 + task->micro_batch * 100 + task->probe_lo;
}

/* No device waits while a task could run, and none takes a task while a better one could run. */
static void greedy_on_links_follows_its_rules(void **state)
{
    (void)state;
    uint64_t random = 0xbeef;
    for (int32_t n = 0; n < PLANS / 16; n++) {
        struct random_case c = random_case(&random, true);
        struct hop_simulation s = simulate(&c.plan, &c.schedule, &c.cost, 0);
        struct hop_transfers transfers;
        struct hop_error err = {0};
        assert_ok(hop_transfers_derive(&c.plan, &c.schedule, &transfers, &err), &err);
        for (int32_t d = 0; d < c.plan.devices; d++) {
            const struct hop_task_list *const list = &c.schedule.lists[d];
            for (int32_t i = 0; i < list->count; i++) {
                const double start = start_of(&s, d, i), idle = i ? end_of(&s, d, i - 1) : 0;
                for (int32_t j = i + 1; j < list->count; j++) {
                    if (!is_allowed(&c, d, i, &list->tasks[j]))
                        continue;
                    const double ready = inputs_at(&s, &transfers, d, j);
                    assert_true(fmax(ready, idle) >= start);
                    assert_false(ready <= start &&
                                 rank_of(&list->tasks[j]) < rank_of(&list->tasks[i]));
                }
            }
        }
        hop_transfers_free(&transfers);
        hop_simulation_free(&s);
        free_case(&c);
    }
}

static double doubled_bandwidth(const struct random_case *c)
{
    const size_t links = (size_t)(c->plan.devices * c->plan.devices);
    struct hop_cost_table faster = c->cost;
    faster.bandwidth = calloc(links, sizeof(double));
    for (size_t i = 0; i < links; i++)
        faster.bandwidth[i] = 2 * c->cost.bandwidth[i];
    const double makespan = makespan_of(&c->plan, &c->schedule, &faster);
    free(faster.bandwidth);
    return makespan;
}

/* For given lists, and links that serve one sender each: then nothing is reordered. */
static void better_links_are_never_slower(void **state)
{
    (void)state;
    uint64_t random = 0xabc;
    int32_t faster = 0, slower = 0;
    for (int32_t n = 0; n < PLANS / 4; n++) {
        struct random_case c = random_case(&random, true);
        c.cost.half_duplex = c.cost.shared_nic = false;
        const double plain = makespan_of(&c.plan, &c.schedule, &c.cost);
        const double slack = 1e-12 * plain, better = doubled_bandwidth(&c);
        assert_true(better <= plain + slack);
        faster += better < plain - slack;
        c.cost.half_duplex = true;
        const double half = makespan_of(&c.plan, &c.schedule, &c.cost);
        c.cost.half_duplex = false;
        c.cost.shared_nic = true;
        const double shared = makespan_of(&c.plan, &c.schedule, &c.cost);
        assert_true(half >= plain - slack);
        assert_true(shared >= plain - slack);
        slower += half > plain + slack || shared > plain + slack;
        free_case(&c);
    }
    assert_true(faster > PLANS / 40);
    assert_true(slower > PLANS / 40);
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

/* Whatever passes the rules gets stuck in the simulator exactly where the checker sees a cycle. */
static void windows_get_stuck_where_the_checker_says(void **state)
{
    (void)state;
    uint64_t random = 0x77;
    int32_t played = 0, stuck = 0;
    for (int32_t n = 0; n < PLANS / 4; n++) {
        struct random_case c = random_case(&random, n % 2);
        for (int32_t window = 1; window <= 3; window++) {
            struct hop_error err = {0}, rule = {0};
            struct hop_simulation s = {0};
            const struct hop_simulation_options options = {.window = window};
            if (window == 3)
                swap_two(&c.schedule, &random);
            const hop_status checked = hop_schedule_check(&c.plan, &c.schedule, window, &rule);
            if (checked != HOP_OK && !strstr(rule.message, "deadlocks"))
                continue;
            const hop_status status =
                hop_simulate(&c.plan, &c.schedule, &c.cost, &options, &s, &err);
            assert_int_equal(status, checked);
            if (status != HOP_OK)
                assert_non_null(strstr(err.message, "it gets stuck after"));
            played += status == HOP_OK;
            stuck += status != HOP_OK;
            hop_simulation_free(&s);
        }
        free_case(&c);
    }
    assert_true(played > PLANS / 8);
    assert_true(stuck > 20);
}

static double windowed(const struct random_case *c, int32_t window)
{
    struct hop_error err = {0};
    const struct hop_simulation_options options = {.window = window};
    struct hop_simulation s;
    if (hop_simulate(&c->plan, &c->schedule, &c->cost, &options, &s, &err) != HOP_OK)
        return INFINITY;
    const double makespan = s.makespan;
    hop_simulation_free(&s);
    return makespan;
}

static void give_own_devices(struct hop_plan *plan)
{
    plan->probes = 0;
    plan->devices = MOST_PARTS;
    for (int32_t p = 0; p < plan->part_count; p++)
        plan->parts[p].device = p;
}

/* With free links a buffer less only adds waits. Where links take time, messages of one kind may
 * leave before those of another that wait for a buffer; so there the property holds without
 * probes, with one kind of message a direction. */
static void fewer_buffers_are_never_faster(void **state)
{
    (void)state;
    uint64_t random = 0x5151;
    int32_t slower = 0;
    for (int32_t n = 0; n < PLANS / 4; n++) {
        struct random_case c = {.plan = support_random_plan(&random)};
        if (n % 2)
            give_own_devices(&c.plan);
        c.cost = support_random_cost(&c.plan, &random, 1);
        if (n % 2)
            support_random_links(&c.cost, &random, 1);
        c.cost.half_duplex = c.cost.shared_nic = false;
        c.schedule = greedy(&c.plan, &c.cost);
        double before = makespan_of(&c.plan, &c.schedule, &c.cost);
        assert_true(windowed(&c, 1000) == before);
        for (int32_t window = 8; window >= 1; window--) {
            const double now = windowed(&c, window);
            assert_true(now >= before);
            slower += now > before;
            before = now;
        }
        free_case(&c);
    }
    assert_true(slower > 20);
}

static void smallest_good_window_is_found(void **state)
{
    (void)state;
    uint64_t random = 0x9090;
    int32_t more_than_needed = 0;
    for (int32_t n = 0; n < PLANS / 8; n++) {
        struct random_case c = {.plan = support_random_plan(&random)};
        c.cost = support_random_cost(&c.plan, &random, 1);
        c.schedule = greedy(&c.plan, &c.cost);
        const double unlimited = makespan_of(&c.plan, &c.schedule, &c.cost);
        const double tolerance = support_between(&random, 0, 2) / 20.0;
        const int32_t least = support_between(&random, 1, 3);
        struct hop_error err = {0};
        int32_t window = 0, accepted = 0;
        assert_ok(hop_schedule_window(&c.plan, &c.schedule, least, &accepted, &err), &err);
        assert_ok(
            hop_simulation_window(&c.plan, &c.schedule, &c.cost, least, tolerance, &window, &err),
            &err);
        assert_true(window >= accepted);
        assert_ok(hop_schedule_check(&c.plan, &c.schedule, window, &err), &err);
        assert_true(windowed(&c, window) <= unlimited * (1 + tolerance));
        if (window > accepted)
            assert_true(windowed(&c, window - 1) > unlimited * (1 + tolerance));
        more_than_needed += window > accepted;
        free_case(&c);
    }
    assert_true(more_than_needed > 5);
}

/* Two stages, two micro-batches, one probe of the front; by hand:
 * d0: F0 0-2, F1 2-4, P0 4-6, P1 6-8, STEP after the derivatives.
 * Link d0 -> d1, 1 s + 8 bytes / 8: F0 2-4, F1 4-6, P0 6-8, P1 8-10.
 * d1: F0 4-5, B0 5-8, then F1 (there since 6) 8-9, B1 9-12, P0 12-13, P1 13-14, STEP 14-16.
 * Link d1 -> d0, 2 s + 4 bytes / 2: P0 13-17, P1 17-21; d0's STEP 21-22. */
static void small_run_matches_hand(void **state)
{
    (void)state;
    const double forward[] = {2, 1};
    struct pipeline p = pipeline_of(1, 2, forward, 3, 2, 1);
    p.plan.parts[1].in_flight = 1;
    struct hop_cost_table *const cost = &p.cost;
    cost->devices[0].step[0] = 1;
    cost->devices[1].step[1] = 2;
    cost->boundary_bytes[0] = 8;
    cost->latency[1] = 1;
    cost->bandwidth[1] = 8;
    cost->latency[2] = 2;
    cost->bandwidth[2] = 2;
    for (int32_t d = 0; d < 2; d++) {
        cost->devices[d].fixed_bytes = 7;
        cost->devices[d].state_bytes[d] = 100;
        cost->devices[d].activation_bytes[d] = 10 + d;
        cost->devices[d].idle_watts = 2;
        cost->devices[d].busy_watts = 5 + d;
    }
    struct hop_schedule schedule = greedy(&p.plan, cost);
    struct hop_simulation s = simulate(&p.plan, &schedule, cost, 0);
    assert_true(s.makespan == 22);
    assert_true(s.busy[0] == 9 && s.busy[1] == 12);
    assert_true(s.bytes_sent[0] == 4 * 8 && s.bytes_sent[1] == 2 * 4);
    assert_true(s.peak_memory[0] == 107 && s.peak_memory[1] == 118);
    assert_int_equal(s.working, 2);
    assert_true(s.utilization == 21.0 / 44);
    assert_true(s.joules == 2 * 22 + 3 * 9 + 2 * 22 + 4 * 12);
    assert_int_equal(s.flight_count, 6);
    assert_true(start_of(&s, 1, 4) == 12 && start_of(&s, 0, 4) == 21);
    cost->devices[1].busy_watts = NAN;
    struct hop_simulation unknown = simulate(&p.plan, &schedule, cost, 0);
    assert_true(isnan(unknown.joules));
    hop_simulation_free(&unknown);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
    hop_simulation_free(NULL);
}

/* Both ends of a half-duplex link have a message at 4: d0 its last forward, d1 its first
 * gradient. */
static void lower_device_sends_first(void **state)
{
    (void)state;
    const double forward[] = {1, 1};
    struct pipeline p = pipeline_of(0, 2, forward, 1, 4, 0);
    p.plan.parts[0].in_flight = 4;
    p.cost.latency[1] = p.cost.latency[2] = 1;
    p.cost.half_duplex = true;
    struct hop_schedule schedule = greedy(&p.plan, &p.cost);
    struct hop_simulation s = simulate(&p.plan, &schedule, &p.cost, 0);
    struct hop_transfers transfers;
    struct hop_error err = {0};
    assert_ok(hop_transfers_derive(&p.plan, &schedule, &transfers, &err), &err);
    const struct hop_flight *const last = &s.flights[3], *const gradient = &s.flights[4];
    assert_int_equal(transfers.items[last->transfer].payload, HOP_ACTIVATION);
    assert_int_equal(transfers.items[last->transfer].micro_batch, 3);
    assert_true(last->start == 4);
    assert_int_equal(transfers.items[gradient->transfer].payload, HOP_GRADIENT);
    assert_int_equal(transfers.items[gradient->transfer].micro_batch, 0);
    assert_true(gradient->start == 5);
    hop_transfers_free(&transfers);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
}

/* An idle device neither works nor draws; two parts of one device hold its fixed bytes once. */
static void idle_and_shared_devices_are_counted_once(void **state)
{
    (void)state;
    const int32_t devices[] = {1, 1};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_BACKPROP, HOP_GRADIENT_BACKPROP};
    struct hop_plan plan = support_plan(2, devices, gradients);
    struct hop_cost_table cost = support_cost(&plan);
    cost.devices[1].idle_watts = 1;
    cost.devices[1].busy_watts = 3;
    cost.devices[1].fixed_bytes = 1000;
    for (int32_t b = 0; b < 2; b++) {
        cost.devices[1].state_bytes[b] = 100;
        cost.devices[1].activation_bytes[b] = 10;
    }
    plan.probes = 0;
    plan.parts[0].in_flight = plan.parts[1].in_flight = 1;
    struct hop_schedule schedule = greedy(&plan, &cost);
    struct hop_simulation s = simulate(&plan, &schedule, &cost, 0);
    assert_int_equal(s.working, 1);
    assert_true(s.makespan == 8 && s.busy[1] == 8 && s.utilization == 1);
    assert_true(s.joules == 24);
    assert_true(s.peak_memory[0] == 0 && s.peak_memory[1] == 1220);
    assert_int_equal(s.flight_count, 0);
    assert_true(s.bytes_sent[1] == 0);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

/* What the plan predicts is what the replay finds, where a part really fills its slots. */
static void predicted_memory_is_never_passed(void **state)
{
    (void)state;
    uint64_t random = 0x4242;
    int32_t reached = 0;
    for (int32_t n = 0; n < PLANS / 8; n++) {
        struct random_case c = random_case(&random, n % 2);
        struct hop_simulation s = simulate(&c.plan, &c.schedule, &c.cost, 0);
        for (int32_t p = 0; p < c.plan.part_count; p++) {
            const struct hop_part *const part = &c.plan.parts[p];
            int32_t parts = 0;
            for (int32_t q = 0; q < c.plan.part_count; q++)
                parts += c.plan.parts[q].device == part->device;
            if (parts > 1)
                continue;
            const double predicted =
                hop_price_memory(&c.cost, &c.plan, p, part->in_flight, part->pending);
            assert_true(s.peak_memory[part->device] <= predicted);
            reached += part->in_flight && s.peak_memory[part->device] == predicted;
            /* Activations and tangents need not be most at the same time. */
            if (!part->pending)
                assert_true(s.peak_memory[part->device] ==
                            hop_price_memory(&c.cost, &c.plan, p,
                                             hop_schedule_slots(&c.schedule, p),
                                             hop_schedule_pending(&c.schedule, p)));
        }
        hop_simulation_free(&s);
        free_case(&c);
    }
    assert_true(reached > 50);
}

/* A gang of two behind one part: half of the samples and a quarter of the tensors are an eighth of
 * the time, three quarters as much again as the other shard. The rest of the samples is nobody's:
 * such a plan can be priced but not run. */
static void shares_are_priced(void **state)
{
    (void)state;
    const double forward[] = {8, 8, 8};
    struct pipeline p = pipeline_of(0, 3, forward, 2, 1, 0);
    for (int32_t d = 1; d < 3; d++) {
        struct hop_part *const part = &p.plan.parts[d];
        part->stage = part->lo = 1;
        part->hi = 3;
        part->sample_lo = 0.5;
        part->tensor_lo = d == 1 ? 0 : 0.75;
        part->tensor_hi = d == 1 ? 0.75 : 1;
        for (int32_t b = 1; b < 3; b++) {
            p.cost.devices[d].forward[b] = 4;
            p.cost.devices[d].backward[b] = 8;
            p.cost.devices[d].state_bytes[b] = 200;
            p.cost.devices[d].activation_bytes[b] = 40;
        }
        p.cost.devices[d].fixed_bytes = 3;
    }
    p.cost.boundary_bytes[0] = p.cost.boundary_bytes[1] = 6;
    struct hop_schedule schedule = empty_schedule(&p.plan);
    for (int32_t d = 0; d < 3; d++) {
        append(&schedule, d, HOP_FORWARD, d, 0);
        append(&schedule, d, HOP_BACKWARD, d, 0);
    }
    struct hop_simulation s = simulate(&p.plan, &schedule, &p.cost, 0);
    assert_true(s.makespan == 8 + 3 + 6 + 16);
    assert_true(s.busy[0] == 24 && s.busy[1] == 9 && s.busy[2] == 3);
    assert_true(s.peak_memory[1] == 3 + 300 + 30);
    assert_true(s.peak_memory[2] == 3 + 100 + 10);
    /* The activation goes to both shards, its gradient comes from the first. In each of two blocks
     * two all-reduces of half a boundary tensor, forward and backward. */
    assert_true(s.bytes_sent[0] == 2 * 3);
    assert_true(s.bytes_sent[1] == 3 + 2 * 2 * 2 * 3 && s.bytes_sent[2] == 2 * 2 * 2 * 3);
    assert_int_equal(s.timeline.count, 6);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
}

static void evaluation_keeps_nothing(void **state)
{
    (void)state;
    const double forward[] = {1, 2};
    struct pipeline p = pipeline_of(0, 2, forward, 1, 3, 0);
    struct hop_schedule schedule;
    struct hop_error err = {0};
    p.cost.devices[1].activation_bytes[1] = 80;
    p.cost.devices[1].state_bytes[1] = 5;
    assert_ok(hop_schedule_evaluation(&p.plan, 3, &schedule, &err), &err);
    struct hop_simulation s = simulate(&p.plan, &schedule, &p.cost, 1);
    assert_true(s.makespan == 7 && s.peak_memory[1] == 5);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
}

static void waiting_tasks_are_named(void **state)
{
    (void)state;
    const double forward[] = {1, 1};
    struct pipeline p = pipeline_of(0, 2, forward, 1, 2, 0);
    struct hop_schedule schedule = empty_schedule(&p.plan);
    for (int32_t d = 0; d < 2; d++) {
        append(&schedule, d, HOP_FORWARD, d, d);
        append(&schedule, d, HOP_BACKWARD, d, d);
        append(&schedule, d, HOP_FORWARD, d, 1 - d);
        append(&schedule, d, HOP_BACKWARD, d, 1 - d);
    }
    struct hop_simulation s;
    struct hop_error err = {0};
    assert_int_equal(hop_simulate(&p.plan, &schedule, &p.cost, NULL, &s, &err), HOP_INPUT);
    assert_string_equal(err.message,
                        "schedule: it gets stuck after 1 of 8 tasks; these wait: BACKWARD of part "
                        "0, micro-batch 0 on device 0, FORWARD of part 1, micro-batch 1 on device "
                        "1");
    schedule.lists[1].tasks[0].part = 0;
    assert_int_equal(hop_simulate(&p.plan, &schedule, &p.cost, NULL, &s, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "another device than its part"));
    p.plan.blocks = 7;
    assert_int_equal(hop_simulate(&p.plan, &schedule, &p.cost, NULL, &s, &err), HOP_INPUT);
    hop_schedule_free(&schedule);
    free_pipeline(&p);
}

static struct hop_task random_task(uint64_t *random)
{
    const int32_t lo = support_between(random, -1, 4);
    return (struct hop_task){(enum hop_task_kind)support_between(random, -1, HOP_TASK_KINDS),
                             support_between(random, -1, 6),
                             support_between(random, -1, 8),
                             support_between(random, 0, 1) ? lo : 0,
                             support_between(random, 0, 1) ? lo + support_between(random, -1, 3)
                                                           : 0,
                             support_between(random, 0, 7) ? 0 : support_between(random, -1, 2)};
}

static void garbage_is_refused_or_played(void **state)
{
    (void)state;
    uint64_t random = 0x666;
    int32_t refused = 0, played = 0;
    for (int32_t n = 0; n < PLANS; n++) {
        struct random_case c = random_case(&random, n % 2);
        for (int32_t change = support_between(&random, 1, 3); change > 0; change--) {
            struct hop_task_list *const list =
                &c.schedule.lists[support_between(&random, 0, c.plan.devices - 1)];
            const int32_t at = list->count ? support_between(&random, 0, list->count - 1) : -1;
            if (at >= 0 && support_between(&random, 0, 3))
                list->tasks[at] = support_between(&random, 0, 1)
                                      ? random_task(&random)
                                      : list->tasks[support_between(&random, 0, at)];
            else if (at >= 0)
                list->count = at;
        }
        const struct hop_simulation_options options = {.window = n % 3, .record = true};
        struct hop_simulation s = {0};
        struct hop_error err = {0};
        const hop_status status = hop_simulate(&c.plan, &c.schedule, &c.cost, &options, &s, &err);
        assert_true(status == HOP_OK || status == HOP_INPUT);
        assert_null(strchr(err.message, '\n'));
        refused += status != HOP_OK;
        played += status == HOP_OK;
        hop_simulation_free(&s);
        free_case(&c);
    }
    assert_true(refused > PLANS / 4 && played > PLANS / 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_order_pipelines_match_known_times),
        cmocka_unit_test(hybrid_pipelines_match_known_times),
        cmocka_unit_test(probes_first_is_slower),
        cmocka_unit_test(tail_placement_matches_known_time),
        cmocka_unit_test(greedy_time_is_the_simulated_time),
        cmocka_unit_test(links_and_tasks_take_their_time),
        cmocka_unit_test(greedy_on_links_follows_its_rules),
        cmocka_unit_test(better_links_are_never_slower),
        cmocka_unit_test(windows_get_stuck_where_the_checker_says),
        cmocka_unit_test(fewer_buffers_are_never_faster),
        cmocka_unit_test(smallest_good_window_is_found),
        cmocka_unit_test(small_run_matches_hand),
        cmocka_unit_test(lower_device_sends_first),
        cmocka_unit_test(idle_and_shared_devices_are_counted_once),
        cmocka_unit_test(predicted_memory_is_never_passed),
        cmocka_unit_test(shares_are_priced),
        cmocka_unit_test(evaluation_keeps_nothing),
        cmocka_unit_test(waiting_tasks_are_named),
        cmocka_unit_test(garbage_is_refused_or_played),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
