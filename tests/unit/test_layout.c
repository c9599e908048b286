/* Plans of several pipelines, replicas and shards: rules, reductions, transfers, list builders, the
 * checker and the simulator; small cases by hand and properties of random ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/bound.h"
#include "schedule/lists.h"
#include "schedule/price.h"
#include "schedule/reduction.h"
#include "sim/simulate.h"
#include "support_schedule.h"

enum { LAYOUTS = 1500, PLAYED = 250, TEXT = 4096, MOST_PARTS = 16 };

static void assert_ok(hop_status status, const struct hop_error *err)
{
    if (status != HOP_OK)
        fail_msg("%s", err->message);
}

static void assert_message(hop_status status, const struct hop_error *err, hop_status expected,
                           const char *message)
{
    if (status != expected || !strstr(err->message, message))
        fail_msg("status %d, message '%s'; expected status %d, '%s'", (int)status, err->message,
                 (int)expected, message);
    assert_null(strchr(err->message, '\n'));
}

/* A plan over parts that the caller owns; part p is on device p. */
static struct hop_plan plan_of(struct hop_part *parts, int32_t count, int32_t blocks,
                               int32_t micro_batches)
{
    for (int32_t p = 0; p < count; p++) {
        parts[p].device = p;
        parts[p].gradient = HOP_GRADIENT_BACKPROP;
        parts[p].in_flight = micro_batches;
        if (parts[p].sample_hi == 0)
            parts[p].sample_hi = 1;
        if (parts[p].tensor_hi == 0)
            parts[p].tensor_hi = 1;
        if (parts[p].micro_hi == 0)
            parts[p].micro_hi = 1;
    }
    return (struct hop_plan){.strategy = "test",
                             .blocks = blocks,
                             .devices = count,
                             .micro_batches = micro_batches,
                             .micro_batch_samples = 6,
                             .parts = parts,
                             .part_count = count};
}

static void assert_list(const struct hop_schedule *schedule, int32_t device, const char *expected)
{
    char text[TEXT];
    support_list_text(schedule, device, false, text, sizeof text);
    assert_string_equal(text, expected);
}

static struct hop_schedule fill_drain(const struct hop_plan *plan)
{
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    assert_ok(hop_schedule_fill_drain(plan, plan->micro_batches, &schedule, &err), &err);
    assert_ok(hop_schedule_check(plan, &schedule, 64, &err), &err);
    return schedule;
}

static struct hop_schedule one_f_one_b(const struct hop_plan *plan, const int32_t *warmup)
{
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    assert_ok(hop_schedule_one_f_one_b(plan, plan->micro_batches, warmup, &schedule, &err), &err);
    assert_ok(hop_schedule_check(plan, &schedule, 64, &err), &err);
    return schedule;
}

static struct hop_simulation simulate(const struct hop_plan *plan,
                                      const struct hop_schedule *schedule,
                                      const struct hop_cost_table *cost)
{
    const struct hop_simulation_options options = {.record = true};
    struct hop_simulation simulation;
    struct hop_error err = {0};
    assert_ok(hop_simulate(plan, schedule, cost, &options, &simulation, &err), &err);
    return simulation;
}

static double makespan_of(const struct hop_plan *plan, const struct hop_schedule *schedule,
                          const struct hop_cost_table *cost)
{
    struct hop_simulation simulation = simulate(plan, schedule, cost);
    const double makespan = simulation.makespan;
    hop_simulation_free(&simulation);
    return makespan;
}

/* Rules */

static void ranges_round_and_tile(void **state)
{
    (void)state;
    const struct hop_range half = hop_share_range(0.5, 1, 3);
    assert_true(half.lo == 2 && half.hi == 3);
    const struct hop_part part = {
        .sample_lo = 0.25, .sample_hi = 0.5, .micro_lo = 0.5, .micro_hi = 1};
    const struct hop_range rows = hop_part_rows(&part, 6), none = hop_part_rows(&part, 1);
    assert_true(rows.lo == 2 && rows.hi == 3);
    assert_true(none.lo == 0 && none.hi == 1);
    const struct hop_range last = hop_part_micro_batches(&part, 5);
    assert_true(last.lo == 3 && last.hi == 5);
    assert_false(hop_part_handles(&part, 5, 2));
    assert_true(hop_part_handles(&part, 5, 3) && hop_part_handles(&part, 5, 4));
    assert_false(hop_part_handles(&part, 5, 5));
}

/* Two replicas in front of a gang, both of two parts. */
static void broken_stages_are_named(void **state)
{
    (void)state;
    const struct hop_part good[] = {{.stage = 0, .lo = 0, .hi = 2, .sample_hi = 0.5},
                                    {.stage = 0, .lo = 0, .hi = 2, .sample_lo = 0.5},
                                    {.stage = 1, .lo = 2, .hi = 4, .tensor_hi = 0.25},
                                    {.stage = 1, .lo = 2, .hi = 4, .tensor_lo = 0.25}};
    struct hop_part parts[4];
    struct hop_error err = {0};
    struct hop_plan plan;
#define BREAKS(change, status, message)                                                            \
    do {                                                                                           \
        memcpy(parts, good, sizeof parts);                                                         \
        plan = plan_of(parts, 4, 4, 2);                                                            \
        assert_ok(hop_plan_check(&plan, &err), &err);                                              \
        change;                                                                                    \
        assert_message(hop_plan_check(&plan, &err), &err, status, message);                        \
    } while (0)
    BREAKS(parts[1].sample_lo = 0.75, HOP_INPUT,
           "plan: no part of stage 0 in pipeline 0 takes the samples from 0.5 on");
    BREAKS(parts[1].sample_lo = 0.25, HOP_INPUT,
           "plan: parts 0 and 1 of stage 0 take the samples [0, 0.5) and [0.25, 1)");
    BREAKS(parts[1].sample_lo = 1, HOP_INPUT,
           "plan: part 1 takes the share [1, 1) of the samples; it must not be empty");
    BREAKS(parts[1].sample_hi = 1.5, HOP_INPUT, "the share [0.5, 1.5) of the samples");
    BREAKS(parts[1].sample_hi = NAN, HOP_INPUT, "of the samples");
    BREAKS(parts[1].hi = 3, HOP_INPUT,
           "plan: parts 0 and 1 of stage 0 hold blocks [0, 2) and [0, 3)");
    BREAKS(parts[1].gradient = HOP_GRADIENT_NONE, HOP_INPUT,
           "plan: parts 0 and 1 of stage 0 are backprop and none");
    BREAKS(parts[1].device = 0, HOP_INPUT, "plan: parts 0 and 1 both train block 0 on device 0");
    BREAKS(parts[3].tensor_lo = 0.5, HOP_INPUT,
           "plan: beside part 2 no part of stage 1 takes the tensors from 0.25 on");
    BREAKS(parts[2].tensor_lo = 0.125, HOP_INPUT, "takes the tensors from 0 on");
    BREAKS(parts[3].tensor_lo = 0.125, HOP_INPUT,
           "plan: parts 2 and 3 of stage 1 both take the tensors from 0.125 on");
    BREAKS(parts[3].device = 2, HOP_INPUT,
           "plan: shards 2 and 3 of stage 1 run in lock-step but are both on device 2");
    BREAKS(parts[3].tensor_hi = 0.25, HOP_INPUT, "the share [0.25, 0.25) of the tensors");
    BREAKS(parts[0].gradient = parts[1].gradient = HOP_GRADIENT_ZEROTH_ORDER, HOP_UNSUPPORTED,
           "plan: part 0 takes the share [0, 0.5) of the samples; in a plan with zeroth-order");
    BREAKS(parts[3].pipeline = 1, HOP_INPUT, "takes the tensors from 0.25 on");
    BREAKS(parts[0].pipeline = -1, HOP_INPUT, "plan: part 0 is in pipeline -1");
    BREAKS(parts[0].pipeline = 4, HOP_INPUT, "plan: part 0 is in pipeline 4");
#undef BREAKS
}

static void broken_pipelines_are_named(void **state)
{
    (void)state;
    const struct hop_part good[] = {
        {.pipeline = 0, .stage = 0, .lo = 0, .hi = 1, .micro_hi = 0.25},
        {.pipeline = 0, .stage = 1, .lo = 1, .hi = 4, .micro_hi = 0.25},
        {.pipeline = 1, .stage = 0, .lo = 0, .hi = 3, .micro_lo = 0.25},
        {.pipeline = 1, .stage = 1, .lo = 3, .hi = 4, .micro_lo = 0.25}};
    struct hop_part parts[4];
    struct hop_error err = {0};
    struct hop_plan plan;
#define BREAKS(change, message)                                                                    \
    do {                                                                                           \
        memcpy(parts, good, sizeof parts);                                                         \
        plan = plan_of(parts, 4, 4, 2);                                                            \
        assert_ok(hop_plan_check(&plan, &err), &err);                                              \
        change;                                                                                    \
        assert_message(hop_plan_check(&plan, &err), &err, HOP_INPUT, message);                     \
    } while (0)
    BREAKS(parts[1].micro_hi = 0.5,
           "plan: parts 0 and 1 of pipeline 0 handle the micro-batches [0, 0.25) and [0, 0.5)");
    BREAKS(parts[2].micro_lo = parts[3].micro_lo = 0.5,
           "plan: no pipeline handles the micro-batches from 0.25 on");
    BREAKS(parts[2].micro_lo = parts[3].micro_lo = 0,
           "plan: no pipeline handles the micro-batches from 0.25 on");
    BREAKS(parts[0].micro_hi = parts[1].micro_hi = 1,
           "plan: 1 of 2 pipelines handle all micro-batches");
    BREAKS(parts[2].pipeline = parts[3].pipeline = 2, "plan: no part is in pipeline 1");
    BREAKS(parts[3].stage = 2, "plan: no part has stage 1 in pipeline 1");
    BREAKS(parts[3].lo = 2, "plan: part 3 (stage 1) begins at block 2");
    BREAKS(parts[0].gradient = HOP_GRADIENT_NONE,
           "plan: block 0 is none in part 0 and backprop in part 2");
    BREAKS(parts[2].device = 0, "plan: parts 0 and 2 both train block 0 on device 0");
    BREAKS(parts[3].device = 1, "plan: parts 1 and 3 both train block 3 on device 1");
    BREAKS(parts[1].hi = 3, "plan: the last stage ends at block 3");
#undef BREAKS
    memcpy(parts, good, sizeof parts);
    plan = plan_of(parts, 4, 4, 2);
    parts[3].device = 0;
    assert_ok(hop_plan_check(&plan, &err), &err);
}

/* Reductions */

static void assert_reduction(const struct hop_reduction *r, int32_t lo, int32_t hi,
                             enum hop_factors factors, double tensor_lo, double tensor_hi,
                             const char *parts)
{
    char text[TEXT] = "";
    for (int32_t i = 0; i < r->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? " " : "",
                 r->parts[i]);
    assert_string_equal(text, parts);
    assert_int_equal(r->lo, lo);
    assert_int_equal(r->hi, hi);
    assert_int_equal(r->factors, factors);
    assert_true(r->tensor_lo == tensor_lo && r->tensor_hi == tensor_hi);
}

static struct hop_reductions reductions_of(const struct hop_plan *plan)
{
    struct hop_reductions reductions;
    struct hop_error err = {0};
    assert_ok(hop_plan_check(plan, &err), &err);
    assert_ok(hop_reductions_derive(plan, &reductions, &err), &err);
    return reductions;
}

static void groups_with_different_cuts_reduce_by_segments(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.pipeline = 0, .stage = 0, .lo = 0, .hi = 1, .micro_hi = 0.5},
                               {.pipeline = 0, .stage = 1, .lo = 1, .hi = 4, .micro_hi = 0.5},
                               {.pipeline = 1, .stage = 0, .lo = 0, .hi = 3, .micro_lo = 0.5},
                               {.pipeline = 1, .stage = 1, .lo = 3, .hi = 4, .micro_lo = 0.5}};
    struct hop_plan plan = plan_of(parts, 4, 4, 4);
    struct hop_reductions r = reductions_of(&plan);
    assert_int_equal(r.count, 3);
    assert_reduction(&r.items[0], 0, 1, HOP_FACTORS_ALL, 0, 1, "0 2");
    assert_reduction(&r.items[1], 1, 3, HOP_FACTORS_ALL, 0, 1, "1 2");
    assert_reduction(&r.items[2], 3, 4, HOP_FACTORS_ALL, 0, 1, "1 3");
    assert_true(r.items[1].devices[0] == 1 && r.items[1].devices[1] == 2);
    assert_true(hop_reduction_has(&r.items[2], 3) && !hop_reduction_has(&r.items[2], 0));
    hop_reductions_free(&r);
    hop_reductions_free(NULL);
    struct hop_schedule schedule = fill_drain(&plan);
    assert_list(&schedule, 0, "F0 F1 B1 B0 R S");
    assert_list(&schedule, 1, "F0 F1 B1 B0 R R S");
    assert_list(&schedule, 2, "F2 F3 B3 B2 R R S");
    assert_list(&schedule, 3, "F2 F3 B3 B2 R S");
    assert_int_equal(schedule.lists[2].tasks[5].reduction, 1);
    hop_schedule_free(&schedule);
}

/* A whole replica beside one of two shards: what shards split is added up slice by slice, what they
 * share over all three. */
static void shards_reduce_slices_and_shared_factors(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.lo = 0, .hi = 2, .sample_lo = 0.5, .tensor_hi = 0.25},
                               {.lo = 0, .hi = 2, .sample_hi = 0.5},
                               {.lo = 0, .hi = 2, .sample_lo = 0.5, .tensor_lo = 0.25}};
    struct hop_plan plan = plan_of(parts, 3, 2, 1);
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_reductions r = reductions_of(&plan);
    assert_int_equal(r.count, 3);
    assert_reduction(&r.items[0], 0, 2, HOP_FACTORS_SHARED, 0, 1, "0 1 2");
    assert_reduction(&r.items[1], 0, 2, HOP_FACTORS_SPLIT, 0, 0.25, "0 1");
    assert_reduction(&r.items[2], 0, 2, HOP_FACTORS_SPLIT, 0.25, 1, "1 2");
    for (int32_t i = 0; i < 9; i++)
        cost.bandwidth[i] = 2;
    cost.bandwidth[1 * 3 + 2] = 1;
    cost.latency[2 * 3 + 1] = 10;
    cost.gradient_bytes[0] = 8;
    cost.gradient_bytes[1] = 16;
    /* 12 bytes in rounds of 4 over the link from 1 to 2, or with 10 s more back at twice its speed.
     */
    assert_true(hop_price_reduction(&cost, &r.items[0]) == 4 * 12);
    assert_true(hop_price_reduction_bytes(&cost, &r.items[0]) == 16);
    /* 3 bytes among two, 9 bytes among two. */
    assert_true(hop_price_reduction(&cost, &r.items[1]) == 2 * 0.75);
    assert_true(hop_price_reduction_bytes(&cost, &r.items[1]) == 3);
    assert_true(hop_price_reduction(&cost, &r.items[2]) == 2 * 12.25);
    cost.half_duplex = true;
    assert_true(hop_price_reduction(&cost, &r.items[0]) == 4 * 12);
    assert_true(hop_price_reduction(&cost, &r.items[1]) == 4 * 0.75);
    hop_reductions_free(&r);
    hop_cost_free(&cost);
}

static void copies_alike_reduce_once(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.stage = 0, .lo = 0, .hi = 2, .sample_hi = 0.5},
                               {.stage = 0, .lo = 0, .hi = 2, .sample_lo = 0.5},
                               {.stage = 1, .lo = 2, .hi = 3}};
    struct hop_plan plan = plan_of(parts, 3, 3, 1);
    struct hop_reductions r = reductions_of(&plan);
    assert_int_equal(r.count, 1);
    assert_reduction(&r.items[0], 0, 2, HOP_FACTORS_ALL, 0, 1, "0 1");
    hop_reductions_free(&r);
    parts[0].gradient = parts[1].gradient = HOP_GRADIENT_NONE;
    r = reductions_of(&plan);
    assert_int_equal(r.count, 0);
    hop_reductions_free(&r);
}

/* Transfers */

static void transfers_text(const struct hop_plan *plan, const struct hop_schedule *schedule,
                           char *text, size_t size)
{
    struct hop_transfers transfers;
    struct hop_error err = {0};
    size_t at = 0;
    assert_ok(hop_transfers_derive(plan, schedule, &transfers, &err), &err);
    text[0] = '\0';
    for (int32_t x = 0; x < transfers.count && at < size; x++) {
        const struct hop_transfer *const t = &transfers.items[x];
        at += (size_t)snprintf(text + at, size - at, "%s%c%d>%d[%g,%g)", x ? " " : "",
                               t->payload == HOP_GRADIENT ? 'g' : 'a', t->from_part, t->to_part,
                               t->sample_lo, t->sample_hi);
    }
    hop_transfers_free(&transfers);
}

static void assert_transfers(const struct hop_plan *plan, const char *expected)
{
    char text[TEXT];
    struct hop_schedule schedule = fill_drain(plan);
    transfers_text(plan, &schedule, text, sizeof text);
    assert_string_equal(text, expected);
    hop_schedule_free(&schedule);
}

/* Parts are numbered against the order of their samples: those of a task come by samples. */
static void unequal_replicas_split_and_concatenate(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.stage = 0, .lo = 0, .hi = 1, .sample_lo = 0.5},
                               {.stage = 0, .lo = 0, .hi = 1, .sample_hi = 0.5},
                               {.stage = 1, .lo = 1, .hi = 2, .sample_hi = 0.25},
                               {.stage = 1, .lo = 1, .hi = 2, .sample_lo = 0.25},
                               {.stage = 2, .lo = 2, .hi = 3}};
    const struct hop_plan plan = plan_of(parts, 5, 3, 1);
    assert_transfers(&plan, "g3>0[0.5,1) g2>1[0,0.25) g3>1[0.25,0.5) a1>2[0,0.25) g4>2[0,0.25) "
                            "a1>3[0.25,0.5) a0>3[0.5,1) g4>3[0.25,1) a2>4[0,0.25) a3>4[0.25,1)");
}

/* Two shards in front of three: the third takes from the first again; backward the first two. */
static void shards_take_from_one_shard(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.stage = 0, .lo = 0, .hi = 1, .tensor_lo = 0.5},
                               {.stage = 0, .lo = 0, .hi = 1, .tensor_hi = 0.5},
                               {.stage = 1, .lo = 1, .hi = 2, .tensor_hi = 0.25},
                               {.stage = 1, .lo = 1, .hi = 2, .tensor_lo = 0.25, .tensor_hi = 0.5},
                               {.stage = 1, .lo = 1, .hi = 2, .tensor_lo = 0.5}};
    struct hop_plan plan = plan_of(parts, 5, 2, 1);
    assert_transfers(&plan, "g3>0[0,1) g2>1[0,1) a1>2[0,1) a0>3[0,1) a1>4[0,1)");
    /* On device 0 the shards of both stages hand over without a message. */
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    char text[TEXT];
    parts[4].device = 0;
    assert_ok(hop_schedule_evaluation(&plan, 1, &schedule, &err), &err);
    assert_ok(hop_schedule_check(&plan, &schedule, 1, &err), &err);
    transfers_text(&plan, &schedule, text, sizeof text);
    assert_string_equal(text, "a0>4[0,1) a1>2[0,1) a0>3[0,1)");
    hop_schedule_free(&schedule);
}

/* Simulation by hand */

static void set_links(struct hop_cost_table *cost, double boundary)
{
    for (int32_t i = 0; i < cost->device_count * cost->device_count; i++)
        cost->bandwidth[i] = 1;
    for (int32_t b = 0; b + 1 < cost->blocks; b++)
        cost->boundary_bytes[b] = boundary;
}

static void set_times(struct hop_cost_table *cost, double forward, double backward)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        for (int32_t b = 0; b < cost->blocks; b++) {
            cost->devices[d].forward[b] = cost->devices[d].probe[b] = forward;
            cost->devices[d].backward[b] = backward;
        }
}

/* F 1 and 3 on the replicas, 3 and 9 on their links, F 4 and B 8 behind them from 12 to 24; the
 * gradients are back at 27 and 33, the slower B ends at 39; two rounds of 3 bytes. */
static void replicas_match_hand(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.stage = 0, .lo = 0, .hi = 1, .sample_hi = 0.25},
                               {.stage = 0, .lo = 0, .hi = 1, .sample_lo = 0.25},
                               {.stage = 1, .lo = 1, .hi = 2}};
    const struct hop_plan plan = plan_of(parts, 3, 2, 1);
    struct hop_cost_table cost = support_cost(&plan);
    set_times(&cost, 4, 8);
    set_links(&cost, 12);
    cost.gradient_bytes[0] = 6;
    cost.devices[0].step[0] = 1;
    for (int32_t d = 0; d < 3; d++)
        cost.devices[d].activation_bytes[0] = 8;
    struct hop_schedule schedule = fill_drain(&plan);
    struct hop_simulation s = simulate(&plan, &schedule, &cost);
    assert_true(s.makespan == 45 + 1);
    assert_true(s.busy[0] == 1 + 2 + 1 && s.busy[1] == 3 + 6 && s.busy[2] == 12);
    assert_true(s.bytes_sent[0] == 3 + 6 && s.bytes_sent[1] == 9 + 6 && s.bytes_sent[2] == 12);
    assert_true(s.peak_memory[0] == 2 && s.peak_memory[1] == 6);
    for (size_t e = 0; e < s.timeline.count; e++)
        if (s.timeline.events[e].task.kind == HOP_REDUCE)
            assert_true(s.timeline.events[e].start == 39 && s.timeline.events[e].end == 45);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
}

/* A gang of shares 1/4 and 3/4 on two blocks: forward 2 * 4 * 3/4 = 6, and 4 all-reduces of 12
 * bytes of two rounds of 6 bytes each, 48; backward 12 + 48. All-gathers take half. */
static void gang_matches_hand(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.lo = 0, .hi = 2, .tensor_hi = 0.25},
                               {.lo = 0, .hi = 2, .tensor_lo = 0.25}};
    struct hop_plan plan = plan_of(parts, 2, 2, 1);
    struct hop_cost_table cost = support_cost(&plan);
    set_times(&cost, 4, 8);
    set_links(&cost, 12);
    cost.gradient_bytes[0] = cost.gradient_bytes[1] = 4;
    cost.devices[1].step[0] = 8;
    struct hop_schedule schedule = fill_drain(&plan);
    assert_list(&schedule, 0, "F0 B0 R S");
    struct hop_simulation s = simulate(&plan, &schedule, &cost);
    /* Shared factors: 4 bytes in two rounds of 2; a shard steps half its factors and 3/4 of the
     * rest. */
    assert_true(s.makespan == 54 + 60 + 4 + 7);
    assert_true(s.busy[0] == 2 + 4 && s.busy[1] == 6 + 12 + 7);
    assert_true(s.bytes_sent[0] == 2 * 4 * 12 + 4 && s.bytes_sent[1] == s.bytes_sent[0]);
    assert_true(s.timeline.events[0].start == 0 && s.timeline.events[1].start == 0);
    assert_true(s.timeline.events[0].end == 54 && s.timeline.events[1].end == 54);
    hop_simulation_free(&s);
    plan.collective = HOP_ALL_GATHER;
    s = simulate(&plan, &schedule, &cost);
    assert_true(s.makespan == 30 + 36 + 4 + 7);
    assert_true(s.bytes_sent[0] == 2 * 4 * 6 + 4);
    hop_simulation_free(&s);
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
}

/* Reductions entered in opposite orders wait for each other. */
static void opposite_reductions_deadlock(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.pipeline = 0, .lo = 0, .hi = 2, .micro_hi = 0.5},
                               {.pipeline = 1, .lo = 0, .hi = 1, .micro_lo = 0.5},
                               {.pipeline = 1, .stage = 1, .lo = 1, .hi = 2, .micro_lo = 0.5}};
    struct hop_plan plan = plan_of(parts, 3, 2, 2);
    struct hop_schedule schedule = fill_drain(&plan);
    struct hop_task_list *const list = &schedule.lists[0];
    struct hop_error err = {0};
    assert_list(&schedule, 0, "F0 B0 R R S");
    const struct hop_task kept = list->tasks[2];
    list->tasks[2] = list->tasks[3];
    list->tasks[3] = kept;
    assert_ok(hop_schedule_check(&plan, &schedule, 1, &err), &err);
    /* On one device, behind each other: now they wait in a circle. */
    parts[2].device = 1;
    plan.devices = 2;
    hop_schedule_free(&schedule);
    const struct hop_slot slots[] = {
        {{HOP_FORWARD, 0, 0, 0, 0, 0}, 0},  {{HOP_FORWARD, 1, 1, 0, 0, 0}, 0},
        {{HOP_FORWARD, 2, 1, 0, 0, 0}, 1},  {{HOP_BACKWARD, 0, 0, 0, 0, 0}, 2},
        {{HOP_BACKWARD, 2, 1, 0, 0, 0}, 2}, {{HOP_BACKWARD, 1, 1, 0, 0, 0}, 3},
        {{HOP_REDUCE, 0, -1, 0, 0, 1}, 4}};
    const int32_t count = sizeof slots / sizeof *slots;
    assert_ok(hop_schedule_from_slots(&plan, 2, slots, count, &schedule, &err), &err);
    assert_list(&schedule, 0, "F0 B0 R R S");
    assert_int_equal(schedule.lists[0].tasks[2].reduction, 1);
    assert_list(&schedule, 1, "F1 F1 B1 B1 R R S S");
    assert_message(hop_schedule_check(&plan, &schedule, 4, &err), &err, HOP_INPUT, "deadlocks: ");
    assert_non_null(strstr(err.message, "REDUCE 1 of part 0 on device 0 waits for REDUCE 0 of "
                                        "part 1 on device 1 waits for the first"));
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_simulation s;
    assert_message(hop_simulate(&plan, &schedule, &cost, NULL, &s, &err), &err, HOP_INPUT,
                   "gets stuck after 6 of 13 tasks");
    uint64_t random = 9;
    assert_false(support_play(&plan, &schedule, 4, &random));
    hop_schedule_free(&schedule);
    assert_ok(hop_schedule_from_slots(&plan, 2, slots, count - 1, &schedule, &err), &err);
    assert_ok(hop_schedule_check(&plan, &schedule, 1, &err), &err);
    assert_true(support_play(&plan, &schedule, 1, &random));
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
}

/* Known times */

/* One block a stage and device, backward `ratio` times forward. */
struct pipeline {
    struct hop_part parts[MOST_PARTS];
    struct hop_plan plan;
    struct hop_cost_table cost;
};

static void begin_pipeline(struct pipeline *p, int32_t stages, const double *forward,
                           const double *backward, int32_t micro_batches)
{
    *p = (struct pipeline){0};
    for (int32_t i = 0; i < stages; i++)
        p->parts[i] = (struct hop_part){.stage = i, .lo = i, .hi = i + 1};
    p->plan = plan_of(p->parts, stages, stages, micro_batches);
    p->cost = support_cost(&p->plan);
    for (int32_t i = 0; i < stages; i++) {
        p->cost.devices[i].forward[i] = forward[i];
        p->cost.devices[i].backward[i] = backward[i];
    }
}

enum order { GPIPE, P_A, P_B };

static double time_of(enum order order, int32_t stages, const double *forward,
                      const double *backward, int32_t micro_batches)
{
    struct pipeline p;
    int32_t warmup[MOST_PARTS];
    begin_pipeline(&p, stages, forward, backward, micro_batches);
    for (int32_t i = 0; i < stages; i++)
        warmup[i] = order == P_A ? stages - i : 2 * (stages - i) - 1;
    struct hop_schedule schedule =
        order == GPIPE ? fill_drain(&p.plan) : one_f_one_b(&p.plan, warmup);
    const double makespan = makespan_of(&p.plan, &schedule, &p.cost);
    hop_schedule_free(&schedule);
    hop_cost_free(&p.cost);
    return makespan;
}

static void pipelines_match_known_times(void **state)
{
    (void)state;
    const struct {
        int32_t stages;
        double forward[8], first, last; /* backward of the end stages; 0: twice the forward */
        int32_t micro_batches;
        double gpipe, p_a, p_b; /* 0: not known */
    } cases[] = {
        {4, {3, 3, 1, 1}, 0, 0, 4, 51, 45, 0},
        {4, {1, 1, 3, 3}, 0, 0, 4, 51, 51, 0},
        {4, {1, 3, 1, 1}, 0, 0, 8, 81, 75, 75},
        {4, {1, 1, 1, 1}, 0, 0, 4, 21, 21, 0},
        {4, {1, 1, 1, 1}, 0, 0, 8, 33, 33, 0},
        {6, {1, 1, 1, 1, 1, 1}, 0, 0, 8, 39, 39, 0},
        {8, {1, 1, 1, 1, 1, 1, 1, 1}, 0, 0, 16, 69, 69, 0},
        {4, {2, 1, 1, 1}, 0, 0, 8, 0, 51, 48},
        {4, {1, 1, 2, 1}, 0, 0, 4, 0, 31, 30},
        {3, {3, 2, 1}, 0, 0, 4, 0, 39, 39},
        {4, {1, 1, 1, 1}, 20, 0, 8, 0, 174, 171},
        {4, {1, 1, 1, 1}, 0, 20, 8, 0, 177, 177},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t stages = cases[i].stages, batches = cases[i].micro_batches;
        double backward[8];
        for (int32_t stage = 0; stage < stages; stage++)
            backward[stage] = 2 * cases[i].forward[stage];
        if (cases[i].first > 0)
            backward[0] = cases[i].first;
        if (cases[i].last > 0)
            backward[stages - 1] = cases[i].last;
        const double expected[] = {cases[i].gpipe, cases[i].p_a, cases[i].p_b};
        for (int order = GPIPE; order <= P_B; order++) {
            const double seconds =
                time_of((enum order)order, stages, cases[i].forward, backward, batches);
            if (expected[order] > 0 && seconds != expected[order])
                fail_msg("case %zu, order %d: %g s, expected %g", i, order, seconds,
                         expected[order]);
        }
    }
}

/* What stage i of `stages` does in step k by the published rule of even and odd steps; -1: waits.
 */
static int32_t published_step(int32_t k, int32_t i, int32_t stages, bool *forward)
{
    *forward = (k % 2) == (i % 2);
    if (*forward)
        return k % 2 ? (k - 1) / 2 - i / 2 : k / 2 - i / 2;
    return k % 2 ? (k - 1) / 2 - stages + 1 + i / 2 : k / 2 - stages + (i + 1) / 2;
}

static void one_f_one_b_is_the_published_order(void **state)
{
    (void)state;
    const double ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int32_t stages = 1; stages <= 8; stages++) {
        for (int32_t batches = 1; batches <= 10; batches++) {
            struct pipeline p;
            begin_pipeline(&p, stages, ones, ones, batches);
            for (int32_t i = 0; i < stages; i++)
                p.parts[i].in_flight = stages - i;
            struct hop_schedule schedule = one_f_one_b(&p.plan, NULL);
            for (int32_t i = 0; i < stages; i++) {
                const struct hop_task *task = schedule.lists[i].tasks;
                for (int32_t k = 0; k < 2 * (batches + stages - 1); k++) {
                    bool forward;
                    const int32_t m = published_step(k, i, stages, &forward);
                    if (m < 0 || m >= batches)
                        continue;
                    assert_int_equal(task->kind, forward ? HOP_FORWARD : HOP_BACKWARD);
                    assert_int_equal(task++->micro_batch, m);
                }
                assert_int_equal(task - schedule.lists[i].tasks, 2 * batches);
                assert_int_equal(hop_schedule_slots(&schedule, i),
                                 batches < stages - i ? batches : stages - i);
            }
            assert_true(makespan_of(&p.plan, &schedule, &p.cost) == 2 * (batches + stages - 1));
            hop_schedule_free(&schedule);
            hop_cost_free(&p.cost);
        }
    }
}

/* A stage cannot keep more than the one before it; shards and replicas keep the same. */
static void warmup_never_grows_along_a_pipeline(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.stage = 0, .lo = 0, .hi = 1},
                               {.stage = 1, .lo = 1, .hi = 2, .sample_hi = 0.5},
                               {.stage = 1, .lo = 1, .hi = 2, .sample_lo = 0.5},
                               {.stage = 2, .lo = 2, .hi = 3}};
    struct hop_plan plan = plan_of(parts, 4, 3, 4);
    const int32_t warmup[] = {3, 9, 2, 4}, bad[] = {3, 1, 0, 1};
    struct hop_schedule schedule = one_f_one_b(&plan, warmup);
    assert_list(&schedule, 0, "F0 F1 F2 B0 F3 B1 B2 B3 S");
    assert_list(&schedule, 1, "F0 F1 B0 F2 B1 F3 B2 B3 R S");
    assert_list(&schedule, 3, "F0 F1 B0 F2 B1 F3 B2 B3 S");
    hop_schedule_free(&schedule);
    struct hop_error err = {0};
    assert_message(hop_schedule_one_f_one_b(&plan, 4, bad, &schedule, &err), &err, HOP_INPUT,
                   "schedule: part 2 warms up with 0 forwards");
    assert_message(hop_schedule_one_f_one_b(&plan, 0, warmup, &schedule, &err), &err, HOP_INPUT,
                   "schedule: 0 micro-batches");
    assert_message(hop_schedule_fill_drain(&plan, 0, &schedule, &err), &err, HOP_INPUT,
                   "schedule: 0 micro-batches");
    parts[0].gradient = HOP_GRADIENT_NONE;
    schedule = one_f_one_b(&plan, warmup);
    assert_list(&schedule, 0, "F0 F1 F2 F3");
    hop_schedule_free(&schedule);
    parts[3].device = 0;
    assert_message(hop_schedule_one_f_one_b(&plan, 4, warmup, &schedule, &err), &err, HOP_INPUT,
                   "schedule: parts 0 and 3 are on one device");
    parts[1] = parts[3];
    parts[1].stage = 1;
    plan.part_count = 2;
    plan.blocks = parts[1].hi = 2;
    parts[1].lo = 1;
    parts[0].gradient = HOP_GRADIENT_ZEROTH_ORDER;
    assert_message(hop_schedule_fill_drain(&plan, 2, &schedule, &err), &err, HOP_INPUT,
                   "schedule: part 0 is zeroth-order; this order has no probes");
    const struct hop_slot nowhere = {.task = {.part = 2}};
    parts[0].gradient = HOP_GRADIENT_BACKPROP;
    assert_message(hop_schedule_from_slots(&plan, 2, &nowhere, 1, &schedule, &err), &err, HOP_INPUT,
                   "schedule: slot 0 is of part 2; there are 2 parts");
}

/* Chimera: `stages` workers and 2 * pairs pipelines, half of them upward. */
struct chimera {
    struct hop_part *parts;
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_schedule schedule;
};

static void add_chimera_part(struct chimera *c, int32_t stages, int32_t pairs, int32_t pipeline,
                             int32_t stage)
{
    const int32_t shift = pipeline / 2 * (stages / pairs);
    const int32_t worker = pipeline % 2 ? stages - 1 - stage : stage;
    c->parts[c->plan.part_count++] = (struct hop_part){.device = (worker + shift) % stages,
                                                       .pipeline = pipeline,
                                                       .stage = stage,
                                                       .lo = stage,
                                                       .hi = stage + 1,
                                                       .sample_hi = 1,
                                                       .tensor_hi = 1,
                                                       .micro_lo = pipeline / (2.0 * pairs),
                                                       .micro_hi = (pipeline + 1) / (2.0 * pairs),
                                                       .gradient = HOP_GRADIENT_BACKPROP,
                                                       .in_flight = stages};
}

/* Micro-batch m of a unit u of 2 * stages slots: forward in slot stage + 2m, backward in slot
 * 2 * stages - 1 - stage + 2m. */
static int32_t fill_chimera_slots(const struct chimera *c, int32_t stages, int32_t a_unit,
                                  struct hop_slot *slots)
{
    int32_t count = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->parts[p];
        const struct hop_range range = hop_part_micro_batches(part, c->plan.micro_batches);
        for (int32_t m = range.lo; m < range.hi; m++) {
            const int32_t unit = (m - range.lo) / a_unit, local = (m - range.lo) % a_unit;
            const int64_t begin = 2 * stages * unit + 2 * local;
            slots[count++] = (struct hop_slot){{.kind = HOP_FORWARD, .part = p, .micro_batch = m},
                                               begin + part->stage};
            slots[count++] = (struct hop_slot){{.kind = HOP_BACKWARD, .part = p, .micro_batch = m},
                                               begin + 2 * stages - 1 - part->stage};
        }
    }
    return count;
}

static struct chimera chimera_of(int32_t stages, int32_t pairs, int32_t micro_batches, double ratio)
{
    struct chimera c = {.parts = calloc((size_t)(2 * pairs * stages), sizeof *c.parts)};
    c.plan = (struct hop_plan){.strategy = "test",
                               .blocks = stages,
                               .devices = stages,
                               .micro_batches = micro_batches,
                               .parts = c.parts};
    for (int32_t pipeline = 0; pipeline < 2 * pairs; pipeline++)
        for (int32_t stage = 0; stage < stages; stage++)
            add_chimera_part(&c, stages, pairs, pipeline, stage);
    c.cost = support_cost(&c.plan);
    set_times(&c.cost, 1, ratio);
    for (int32_t d = 0; d < stages; d++)
        for (int32_t b = 0; b < stages; b++)
            c.cost.devices[d].activation_bytes[b] = 1;
    struct hop_error err = {0};
    struct hop_slot *const slots =
        calloc((size_t)(2 * micro_batches * c.plan.part_count), sizeof *slots);
    const int32_t a_unit = stages / (2 * pairs) > 0 ? stages / (2 * pairs) : 1;
    const int32_t count = fill_chimera_slots(&c, stages, a_unit, slots);
    assert_ok(hop_schedule_from_slots(&c.plan, micro_batches, slots, count, &c.schedule, &err),
              &err);
    assert_ok(hop_schedule_check(&c.plan, &c.schedule, 64, &err), &err);
    free(slots);
    return c;
}

static void free_chimera(struct chimera *c)
{
    hop_schedule_free(&c->schedule);
    hop_cost_free(&c->cost);
    free(c->parts);
}

static void bidirectional_pipelines_match_known_times(void **state)
{
    (void)state;
    const struct {
        int32_t stages, pairs, micro_batches;
        double equal, twice; /* backward as long as forward, and twice as long; 0: not known */
        const char *kept;    /* micro-batches a worker keeps; "": not known */
    } cases[] = {
        {4, 1, 4, 10, 16, ""},   {6, 1, 6, 16, 26, "4 5 6 6 5 4"},
        {8, 1, 8, 22, 36, ""},   {10, 1, 10, 28, 46, ""},
        {4, 1, 2, 8, 0, ""},     {4, 1, 8, 18, 30, ""},
        {8, 1, 16, 38, 66, ""},  {6, 1, 12, 28, 48, ""},
        {10, 1, 20, 48, 84, ""}, {8, 2, 8, 18, 0, "7 8 8 7 7 8 8 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int ratio = 1; ratio <= 2; ratio++) {
            struct chimera c =
                chimera_of(cases[i].stages, cases[i].pairs, cases[i].micro_batches, ratio);
            struct hop_simulation s = simulate(&c.plan, &c.schedule, &c.cost);
            const double expected = ratio == 1 ? cases[i].equal : cases[i].twice;
            if (expected > 0 && s.makespan != expected)
                fail_msg("case %zu: %g s, expected %g", i, s.makespan, expected);
            char kept[TEXT] = "";
            for (int32_t d = 0; d < cases[i].stages; d++)
                snprintf(kept + strlen(kept), sizeof kept - strlen(kept), "%s%g", d ? " " : "",
                         s.peak_memory[d]);
            if (*cases[i].kept)
                assert_string_equal(kept, cases[i].kept);
            hop_simulation_free(&s);
            free_chimera(&c);
        }
    }
}

/* Properties */

struct layout {
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_schedule schedules[4];
    int32_t count;
};

static void add_schedule(struct layout *l, hop_status status, const struct hop_error *err)
{
    assert_ok(status, err);
    l->count++;
}

/* Micro-batch after micro-batch of each pipeline, forward and back. */
static hop_status one_by_one(const struct hop_plan *plan, struct hop_schedule *out,
                             struct hop_error *err)
{
    struct hop_slot *const slots =
        calloc((size_t)(2 * plan->micro_batches * plan->part_count), sizeof *slots);
    int32_t count = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const struct hop_range range = hop_part_micro_batches(part, plan->micro_batches);
        for (int32_t m = range.lo; m < range.hi; m++) {
            const int64_t begin = 40 * (m - range.lo), gang = hop_plan_shard(plan, p, -1);
            slots[count++] = (struct hop_slot){{.kind = HOP_FORWARD, .part = p, .micro_batch = m},
                                               1000 * (begin + part->stage) + gang};
            if (part->gradient == HOP_GRADIENT_BACKPROP)
                slots[count++] =
                    (struct hop_slot){{.kind = HOP_BACKWARD, .part = p, .micro_batch = m},
                                      1000 * (begin + 39 - part->stage) + gang};
        }
    }
    const hop_status status =
        hop_schedule_from_slots(plan, plan->micro_batches, slots, count, out, err);
    free(slots);
    return status;
}

static struct layout random_layout(uint64_t *random, bool shared)
{
    struct hop_error err = {0};
    struct layout l = {.plan = support_random_layout(random, shared)};
    const int32_t batches = l.plan.micro_batches;
    l.cost = support_random_cost(&l.plan, random, 1);
    support_random_links(&l.cost, random, 1);
    for (int32_t b = 0; b < l.plan.blocks; b++)
        l.cost.gradient_bytes[b] = 4.0 * support_between(random, 0, 4);
    assert_ok(hop_plan_check(&l.plan, &err), &err);
    add_schedule(&l, hop_schedule_evaluation(&l.plan, batches, &l.schedules[l.count], &err), &err);
    add_schedule(&l, one_by_one(&l.plan, &l.schedules[l.count], &err), &err);
    if (shared)
        return l;
    add_schedule(&l, hop_schedule_fill_drain(&l.plan, batches, &l.schedules[l.count], &err), &err);
    add_schedule(&l, hop_schedule_one_f_one_b(&l.plan, batches, NULL, &l.schedules[l.count], &err),
                 &err);
    return l;
}

static void free_layout(struct layout *l)
{
    for (int32_t i = 0; i < l->count; i++)
        hop_schedule_free(&l->schedules[i]);
    hop_cost_free(&l->cost);
    hop_plan_free(&l->plan);
}

static bool is_trained(const struct hop_plan *plan, int32_t block)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].lo <= block && block < plan->parts[p].hi)
            return plan->parts[p].gradient == HOP_GRADIENT_BACKPROP;
    return false;
}

/* Every row of every micro-batch passes every block once, with the tensor shares that tile it. */
static void assert_rows_pass_once(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                  enum hop_task_kind kind)
{
    for (int32_t m = 0; m < plan->micro_batches; m++) {
        double passed[8][9] = {{0}};
        for (int32_t d = 0; d < schedule->devices; d++) {
            for (int32_t i = 0; i < schedule->lists[d].count; i++) {
                const struct hop_task *const task = &schedule->lists[d].tasks[i];
                if (task->kind != kind || task->micro_batch != m)
                    continue;
                const struct hop_part *const part = &plan->parts[task->part];
                const struct hop_range rows = hop_part_rows(part, plan->micro_batch_samples);
                for (int32_t b = part->lo; b < part->hi; b++)
                    for (int32_t row = rows.lo; row < rows.hi; row++)
                        passed[b][row] += part->tensor_hi - part->tensor_lo;
            }
        }
        for (int32_t b = 0; b < plan->blocks; b++)
            for (int32_t row = 0; row < plan->micro_batch_samples; row++)
                assert_true(passed[b][row] == (kind == HOP_FORWARD || is_trained(plan, b)));
    }
}

static bool is_first_stage(const struct hop_plan *plan, const struct hop_task *task)
{
    return plan->parts[task->part].stage == 0;
}

static bool is_last_stage(const struct hop_plan *plan, const struct hop_task *task)
{
    const int32_t pipeline = plan->parts[task->part].pipeline;
    return plan->parts[task->part].stage + 1 == hop_plan_stages(plan, pipeline);
}

/* The messages into a task are its rows, one range after the other, from parts that have them. */
static void assert_inputs(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    struct hop_transfers transfers;
    struct hop_error err = {0};
    assert_ok(hop_transfers_derive(plan, schedule, &transfers, &err), &err);
    int32_t x = 0;
    for (int32_t d = 0; d < schedule->devices; d++) {
        for (int32_t i = 0; i < schedule->lists[d].count; i++) {
            const struct hop_task *const task = &schedule->lists[d].tasks[i];
            const struct hop_part *const part = &plan->parts[task->part];
            double taken = part->sample_lo;
            for (; x < transfers.count && transfers.items[x].to_device == d &&
                   transfers.items[x].to_task == i;
                 x++) {
                const struct hop_transfer *const t = &transfers.items[x];
                const struct hop_part *const from = &plan->parts[t->from_part];
                assert_true(t->sample_lo == taken && t->sample_hi > t->sample_lo);
                assert_true(from->sample_lo <= t->sample_lo && t->sample_hi <= from->sample_hi);
                assert_int_equal(from->stage - part->stage, task->kind == HOP_FORWARD ? -1 : 1);
                assert_int_equal(from->device, t->from_device);
                assert_int_equal(schedule->lists[t->from_device].tasks[t->from_task].micro_batch,
                                 task->micro_batch);
                taken = t->sample_hi;
            }
            const bool first =
                task->kind == HOP_FORWARD ? is_first_stage(plan, task) : is_last_stage(plan, task);
            const bool alone = task->kind == HOP_REDUCE || task->kind == HOP_STEP || first;
            assert_true(taken == (alone ? part->sample_lo : part->sample_hi));
        }
    }
    assert_int_equal(x, transfers.count);
    hop_transfers_free(&transfers);
}

static bool holds(const struct hop_part *part, int32_t block, double tensor)
{
    return part->gradient == HOP_GRADIENT_BACKPROP && part->lo <= block && block < part->hi &&
           part->tensor_lo <= tensor && tensor < part->tensor_hi;
}

/* Shares of tensors are quarters: every quarter of every block is added up once, among all that
 * hold it, and so are the shared factors of sharded blocks. */
static void assert_reductions(const struct hop_plan *plan)
{
    struct hop_reductions r = reductions_of(plan);
    for (int32_t b = 0; b < plan->blocks; b++) {
        int32_t shared = 0, holders_of_any = 0;
        bool sharded = false;
        for (int32_t p = 0; p < plan->part_count; p++) {
            const struct hop_part *const part = &plan->parts[p];
            const bool any = holds(part, b, part->tensor_lo);
            holders_of_any += any;
            sharded = sharded || (any && part->tensor_hi - part->tensor_lo < 1);
        }
        for (int32_t quarter = 0; quarter < 4; quarter++) {
            int32_t holders = 0, found = 0;
            for (int32_t p = 0; p < plan->part_count; p++)
                holders += holds(&plan->parts[p], b, quarter / 4.0);
            for (int32_t i = 0; i < r.count; i++) {
                const struct hop_reduction *const item = &r.items[i];
                if (item->factors == HOP_FACTORS_SHARED || b < item->lo || b >= item->hi ||
                    quarter / 4.0 < item->tensor_lo || quarter / 4.0 >= item->tensor_hi)
                    continue;
                assert_int_equal(item->factors, sharded ? HOP_FACTORS_SPLIT : HOP_FACTORS_ALL);
                assert_int_equal(item->count, holders);
                for (int32_t k = 0; k < item->count; k++)
                    assert_true(holds(&plan->parts[item->parts[k]], b, quarter / 4.0));
                found++;
            }
            assert_int_equal(found, holders > 1);
        }
        for (int32_t i = 0; i < r.count; i++) {
            if (r.items[i].factors != HOP_FACTORS_SHARED || b < r.items[i].lo || b >= r.items[i].hi)
                continue;
            assert_int_equal(r.items[i].count, holders_of_any);
            shared++;
        }
        assert_int_equal(shared, sharded);
    }
    hop_reductions_free(&r);
}

/* Gangs run at the same time and the simulation keeps to the work and the order of its lists. */
static void assert_simulated(const struct layout *l, const struct hop_schedule *schedule,
                             int32_t window)
{
    const struct hop_simulation_options options = {.window = window, .record = true};
    struct hop_simulation s;
    struct hop_error err = {0};
    int32_t next[128] = {0};
    assert_ok(hop_simulate(&l->plan, schedule, &l->cost, &options, &s, &err), &err);
    double work[128] = {0}, last[128] = {0};
    for (size_t e = 0; e < s.timeline.count; e++) {
        const struct hop_event *const event = &s.timeline.events[e];
        const struct hop_task *const task =
            &schedule->lists[event->device].tasks[next[event->device]++];
        assert_memory_equal(task, &event->task, sizeof *task);
        assert_true(event->start >= last[event->device]);
        last[event->device] = event->end;
        work[event->device] += hop_price_task(&l->cost, &l->plan, task);
        if (task->kind != HOP_REDUCE)
            assert_true(event->end == event->start + hop_price_span(&l->cost, &l->plan, task));
    }
    for (int32_t d = 0; d < l->plan.devices; d++) {
        assert_int_equal(next[d], schedule->lists[d].count);
        assert_true(work[d] == s.busy[d] && last[d] <= s.makespan);
        assert_true(s.busy[d] <= s.makespan * (1 + 1e-12));
    }
    hop_simulation_free(&s);
}

static void random_layouts_run(void **state)
{
    (void)state;
    uint64_t random = 0x1a1a1a;
    int32_t reduced = 0, gangs = 0, shared = 0;
    for (int32_t n = 0; n < LAYOUTS; n++) {
        struct layout l = random_layout(&random, n % 2);
        for (int32_t i = 0; i < l.count; i++) {
            const struct hop_schedule *const schedule = &l.schedules[i];
            struct hop_error err = {0};
            int32_t window = 0;
            assert_ok(hop_schedule_window(&l.plan, schedule, 1, &window, &err), &err);
            assert_ok(hop_schedule_check(&l.plan, schedule, window, &err), &err);
            assert_rows_pass_once(&l.plan, schedule, HOP_FORWARD);
            if (schedule->training)
                assert_rows_pass_once(&l.plan, schedule, HOP_BACKWARD);
            assert_inputs(&l.plan, schedule);
            assert_simulated(&l, schedule, 0);
            assert_simulated(&l, schedule, window);
        }
        assert_reductions(&l.plan);
        struct hop_reductions r = reductions_of(&l.plan);
        reduced += r.count > 0;
        hop_reductions_free(&r);
        bool in_gang = false, is_shared = false;
        for (int32_t p = 0; p < l.plan.part_count; p++) {
            in_gang = in_gang || hop_plan_shards(&l.plan, p) > 1;
            for (int32_t q = 0; q < p; q++)
                is_shared = is_shared || l.plan.parts[p].device == l.plan.parts[q].device;
        }
        gangs += in_gang;
        shared += is_shared;
        free_layout(&l);
    }
    assert_true(reduced > LAYOUTS / 2 && gangs > LAYOUTS / 4 && shared > LAYOUTS / 5);
}

/* The order of tasks changes when things end, not how long they take. */
static void work_does_not_depend_on_the_order(void **state)
{
    (void)state;
    uint64_t random = 0x2b2b;
    for (int32_t n = 0; n < LAYOUTS / 8; n++) {
        struct layout l = random_layout(&random, false);
        struct hop_simulation first = simulate(&l.plan, &l.schedules[1], &l.cost);
        for (int32_t i = 2; i < l.count; i++) {
            struct hop_simulation s = simulate(&l.plan, &l.schedules[i], &l.cost);
            for (int32_t d = 0; d < l.plan.devices; d++) {
                assert_true(fabs(s.busy[d] - first.busy[d]) <= 1e-12 * first.busy[d]);
                assert_true(fabs(s.bytes_sent[d] - first.bytes_sent[d]) <=
                            1e-12 * first.bytes_sent[d]);
            }
            hop_simulation_free(&s);
        }
        hop_simulation_free(&first);
        free_layout(&l);
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

/* Checker, simulator and a player that does things in random order agree on what gets stuck. */
static void verdict_agrees_with_play(void **state)
{
    (void)state;
    uint64_t random = 0x3c3c3c;
    int32_t accepted = 0, cycles = 0;
    for (int32_t n = 0; n < PLAYED; n++) {
        struct layout l = random_layout(&random, n % 2);
        struct hop_schedule *const schedule =
            &l.schedules[support_between(&random, 0, l.count - 1)];
        for (int32_t window = 1; window <= 2; window++) {
            struct hop_error err = {0}, stuck = {0};
            struct hop_simulation s = {0};
            const struct hop_simulation_options options = {.window = window};
            const hop_status status = hop_schedule_check(&l.plan, schedule, window, &err);
            if (status == HOP_OK || strstr(err.message, "deadlocks")) {
                assert_int_equal(support_play(&l.plan, schedule, window, &random),
                                 status == HOP_OK);
                assert_int_equal(hop_simulate(&l.plan, schedule, &l.cost, &options, &s, &stuck),
                                 status);
                hop_simulation_free(&s);
                accepted += status == HOP_OK;
                cycles += status != HOP_OK;
            }
            for (int32_t swaps = 0; swaps < 3; swaps++)
                swap_two(schedule, &random);
        }
        free_layout(&l);
    }
    assert_true(accepted > PLAYED / 2);
    assert_true(cycles > PLAYED / 20);
}

static void remove_task(struct hop_schedule *schedule, int32_t d, int32_t i)
{
    struct hop_task_list *const list = &schedule->lists[d];
    memmove(&list->tasks[i], &list->tasks[i + 1],
            (size_t)(list->count - i - 1) * sizeof *list->tasks);
    list->count--;
}

/* Every task that is left out or there twice is named. */
static void single_mutations_are_named(void **state)
{
    (void)state;
    uint64_t random = 0x4d4d;
    int32_t reduces = 0;
    for (int32_t n = 0; n < 40; n++) {
        struct layout l = random_layout(&random, false);
        const struct hop_schedule *const schedule = &l.schedules[2 + n % 2];
        for (int32_t d = 0; d < l.plan.devices; d++) {
            for (int32_t i = 0; i < schedule->lists[d].count; i++) {
                struct hop_schedule changed = support_copy(schedule);
                struct hop_task_list *const list = &changed.lists[d];
                const struct hop_task task = list->tasks[i];
                struct hop_error err = {0};
                char name[HOP_TASK_TEXT];
                hop_task_describe(&task, name, sizeof name);
                reduces += task.kind == HOP_REDUCE;
                if (n % 4 < 2)
                    remove_task(&changed, d, i);
                else
                    list->tasks[list->count++] = task;
                assert_message(hop_schedule_check(&l.plan, &changed, 8, &err), &err, HOP_INPUT,
                               name);
                hop_schedule_free(&changed);
            }
        }
        free_layout(&l);
    }
    assert_true(reduces > 100);
}

/* Whatever is in the lists, they are played or refused in one line. */
static void garbage_is_refused_or_played(void **state)
{
    (void)state;
    uint64_t random = 0x7a7a;
    int32_t refused = 0, played = 0;
    for (int32_t n = 0; n < LAYOUTS; n++) {
        struct layout l = random_layout(&random, n % 2);
        struct hop_schedule *const schedule =
            &l.schedules[support_between(&random, 0, l.count - 1)];
        struct hop_task_list *const list =
            &schedule->lists[support_between(&random, 0, l.plan.devices - 1)];
        for (int32_t change = 0; change < 2 && list->count; change++) {
            struct hop_task *const task =
                &list->tasks[support_between(&random, 0, list->count - 1)];
            int32_t *const fields[] = {&task->part, &task->micro_batch, &task->reduction};
            if (support_between(&random, 0, 2))
                *fields[support_between(&random, 0, 2)] = support_between(&random, -1, 4);
            else
                task->kind = (enum hop_task_kind)support_between(&random, -1, HOP_TASK_KINDS);
        }
        const struct hop_simulation_options options = {.window = n % 3, .record = true};
        struct hop_simulation s = {0};
        struct hop_error err = {0}, rule = {0};
        const hop_status status = hop_simulate(&l.plan, schedule, &l.cost, &options, &s, &err);
        const hop_status checked = hop_schedule_check(&l.plan, schedule, 4, &rule);
        assert_true(status == HOP_OK || status == HOP_INPUT);
        assert_true(checked == HOP_OK || checked == HOP_INPUT);
        assert_null(strchr(err.message, '\n'));
        refused += status != HOP_OK;
        played += status == HOP_OK;
        hop_simulation_free(&s);
        free_layout(&l);
    }
    assert_true(refused > LAYOUTS / 4 && played > LAYOUTS / 20);
}

static void misplaced_tasks_are_named(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.pipeline = 0, .lo = 0, .hi = 2, .micro_hi = 0.5},
                               {.pipeline = 1, .lo = 0, .hi = 2, .micro_lo = 0.5}};
    const struct hop_plan plan = plan_of(parts, 2, 2, 2);
    struct hop_schedule schedule = fill_drain(&plan);
    struct hop_task *const tasks = schedule.lists[0].tasks;
    struct hop_error err = {0};
    assert_list(&schedule, 0, "F0 B0 R S");
    const struct hop_task kept = tasks[1];
    tasks[1] = tasks[2];
    tasks[2] = kept;
    assert_message(hop_schedule_check(&plan, &schedule, 1, &err), &err, HOP_INPUT,
                   "BACKWARD of part 0, micro-batch 0 comes after a REDUCE of its part");
    tasks[2] = tasks[1];
    tasks[1] = kept;
    tasks[0].micro_batch = 1;
    assert_message(hop_schedule_check(&plan, &schedule, 1, &err), &err, HOP_INPUT,
                   "FORWARD of part 0, micro-batch 1 is nothing the plan asks for");
    tasks[0].micro_batch = 0;
    tasks[2].reduction = 1;
    assert_message(hop_schedule_check(&plan, &schedule, 1, &err), &err, HOP_INPUT,
                   "REDUCE 1 of part 0 is nothing the plan asks for");
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_simulation s;
    assert_message(hop_simulate(&plan, &schedule, &cost, NULL, &s, &err), &err, HOP_INPUT,
                   "REDUCE 1 of part 0 is nothing the plan asks for");
    schedule.lists[0].count = 2;
    assert_message(hop_simulate(&plan, &schedule, &cost, NULL, &s, &err), &err, HOP_INPUT,
                   "REDUCE 0 of part 1 runs together with REDUCE 0 of part 0, which is missing");
    hop_cost_free(&cost);
    hop_schedule_free(&schedule);
}

static void greedy_order_is_for_lines(void **state)
{
    (void)state;
    struct hop_part parts[] = {{.lo = 0, .hi = 2, .sample_hi = 0.5},
                               {.lo = 0, .hi = 2, .sample_lo = 0.5}};
    const struct hop_plan plan = plan_of(parts, 2, 2, 2);
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_schedule schedule;
    struct hop_error err = {0};
    assert_false(hop_plan_is_line(&plan));
    assert_message(hop_schedule_greedy(&plan, &cost, 2, 0, &schedule, &err), &err, HOP_UNSUPPORTED,
                   "schedule: the greedy order is for one pipeline");
    struct hop_plan_times times;
    assert_message(hop_plan_times_create(&plan, &cost, &times, &err), &err, HOP_UNSUPPORTED,
                   "schedule: the greedy order is for one pipeline");
    hop_cost_free(&cost);
}

/* A pipeline keeps no more than it handles; replicas hold whole weights and their samples'
 * activations, and share the device's memory with the part of another stage. */
static void prices_follow_shares(void **state)
{
    (void)state;
    struct hop_part parts[] = {
        {.pipeline = 0, .stage = 0, .lo = 0, .hi = 1, .sample_hi = 0.25, .micro_hi = 0.75},
        {.pipeline = 0, .stage = 0, .lo = 0, .hi = 1, .sample_lo = 0.25, .micro_hi = 0.75},
        {.pipeline = 0, .stage = 1, .lo = 1, .hi = 2, .micro_hi = 0.75},
        {.pipeline = 1, .stage = 0, .lo = 0, .hi = 1, .micro_lo = 0.75},
        {.pipeline = 1, .stage = 1, .lo = 1, .hi = 2, .micro_lo = 0.75}};
    struct hop_plan plan = plan_of(parts, 5, 2, 4);
    struct hop_cost_table cost = support_cost(&plan);
    struct hop_error err = {0};
    for (int32_t d = 0; d < 5; d++)
        for (int32_t b = 0; b < 2; b++) {
            cost.devices[d].state_bytes[b] = 100;
            cost.devices[d].activation_bytes[b] = 8;
            cost.devices[d].fixed_bytes = 5;
        }
    parts[4].device = 0;
    assert_ok(hop_plan_check(&plan, &err), &err);
    assert_ok(hop_plan_price(&plan, &cost, 1, &err), &err);
    const int32_t kept[] = {3, 3, 1, 1, 1};
    const double bytes[] = {105 + 3 * 2, 105 + 3 * 6, 113, 113, 113};
    for (int32_t p = 0; p < 5; p++) {
        assert_int_equal(parts[p].in_flight, kept[p]);
        assert_true(parts[p].memory_bytes == bytes[p]);
    }
    assert_true(parts[0].forward_seconds == 0.25 && parts[1].forward_seconds == 0.75);
    cost.devices[0].memory = 5 + 100 + 2 + 100 + 8 + 3;
    assert_ok(hop_plan_price(&plan, &cost, 1, &err), &err);
    assert_true(parts[0].in_flight == 2 && parts[4].in_flight == 1);
    cost.devices[0].memory = 5 + 100 + 2 + 100 + 8 - 1;
    assert_message(hop_plan_price(&plan, &cost, 1, &err), &err, HOP_INFEASIBLE,
                   "plan: d0 cannot hold blocks [0, 1)");
    hop_cost_free(&cost);
}

/* Files and messages */

static bool same_part(const struct hop_part *a, const struct hop_part *b)
{
    return a->device == b->device && a->pipeline == b->pipeline && a->stage == b->stage &&
           a->lo == b->lo && a->hi == b->hi && a->sample_lo == b->sample_lo &&
           a->sample_hi == b->sample_hi && a->tensor_lo == b->tensor_lo &&
           a->tensor_hi == b->tensor_hi && a->micro_lo == b->micro_lo &&
           a->micro_hi == b->micro_hi && a->gradient == b->gradient && a->in_flight == b->in_flight;
}

static void layouts_survive_files(void **state)
{
    (void)state;
    uint64_t random = 0x5e5e;
    char text[128][8];
    const char *names[128];
    for (int32_t d = 0; d < 128; d++) {
        snprintf(text[d], sizeof text[d], "d%d", d);
        names[d] = text[d];
    }
    for (int32_t n = 0; n < 300; n++) {
        struct hop_plan plan = support_random_layout(&random, n % 2), back;
        struct hop_error err = {0};
        json_t *const object = hop_plan_json(&plan, names);
        assert_non_null(object);
        assert_ok(hop_plan_parse(object, "plan.json", names, plan.devices, &back, &err), &err);
        assert_int_equal(back.part_count, plan.part_count);
        assert_int_equal(back.collective, plan.collective);
        for (int32_t p = 0; p < plan.part_count; p++)
            assert_true(same_part(&plan.parts[p], &back.parts[p]));
        json_object_set_new(object, "collective", json_string("all-reduse"));
        struct hop_plan none;
        assert_message(hop_plan_parse(object, "plan.json", names, plan.devices, &none, &err), &err,
                       HOP_INPUT,
                       "collective: there is no 'all-reduse'; did you mean 'all-reduce'");
        json_decref(object);
        hop_plan_free(&back);
        hop_plan_free(&plan);
    }
}

static void reductions_survive_messages(void **state)
{
    (void)state;
    uint64_t random = 0x6f6f;
    for (int32_t n = 0; n < 200; n++) {
        struct layout l = random_layout(&random, false);
        struct hop_schedule back = {0};
        struct hop_error err = {0};
        int32_t *words = NULL;
        size_t count = 0;
        assert_ok(hop_schedule_encode(&l.schedules[2], &words, &count, &err), &err);
        assert_ok(hop_schedule_decode(words, count, &back, &err), &err);
        for (int32_t d = 0; d < l.plan.devices; d++) {
            const struct hop_task_list *const list = &l.schedules[2].lists[d];
            assert_int_equal(back.lists[d].count, list->count);
            assert_memory_equal(back.lists[d].tasks, list->tasks,
                                (size_t)list->count * sizeof *list->tasks);
        }
        free(words);
        hop_schedule_free(&back);
        free_layout(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_round_and_tile),
        cmocka_unit_test(broken_stages_are_named),
        cmocka_unit_test(broken_pipelines_are_named),
        cmocka_unit_test(groups_with_different_cuts_reduce_by_segments),
        cmocka_unit_test(shards_reduce_slices_and_shared_factors),
        cmocka_unit_test(copies_alike_reduce_once),
        cmocka_unit_test(unequal_replicas_split_and_concatenate),
        cmocka_unit_test(shards_take_from_one_shard),
        cmocka_unit_test(replicas_match_hand),
        cmocka_unit_test(gang_matches_hand),
        cmocka_unit_test(opposite_reductions_deadlock),
        cmocka_unit_test(pipelines_match_known_times),
        cmocka_unit_test(one_f_one_b_is_the_published_order),
        cmocka_unit_test(warmup_never_grows_along_a_pipeline),
        cmocka_unit_test(bidirectional_pipelines_match_known_times),
        cmocka_unit_test(random_layouts_run),
        cmocka_unit_test(work_does_not_depend_on_the_order),
        cmocka_unit_test(verdict_agrees_with_play),
        cmocka_unit_test(single_mutations_are_named),
        cmocka_unit_test(garbage_is_refused_or_played),
        cmocka_unit_test(misplaced_tasks_are_named),
        cmocka_unit_test(greedy_order_is_for_lines),
        cmocka_unit_test(prices_follow_shares),
        cmocka_unit_test(layouts_survive_files),
        cmocka_unit_test(reductions_survive_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
