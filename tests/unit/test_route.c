/* Routes of random plans: every message has its place, and no buffer is used for two things. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/route.h"
#include "runtime/slice.h"
#include "schedule/lists.h"
#include "support_schedule.h"

#define assert_ok(expression)                                                                      \
    do {                                                                                           \
        if ((expression) != HOP_OK)                                                                \
            fail_msg("%s: %s", #expression, err.message);                                          \
    } while (0)

static const struct hop_transfer *transfer_of(const struct hop_route *route, int32_t message)
{
    return &route->transfers.items[route->messages[message].transfer];
}

static bool has_shards(const struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (hop_plan_shards(plan, p) > 1)
            return true;
    return false;
}

/* The messages of a port that holds any are the rows of its part, each once; those sent to shards
 * behind it may be some of them, several times. */
static void check_rows(const struct hop_plan *plan, const struct hop_route *route,
                       const struct hop_port *port, int32_t part, bool outgoing)
{
    enum { ROWS = 23 };
    const struct hop_range own = hop_part_rows(&plan->parts[part], ROWS);
    int32_t times[ROWS] = {0};
    for (int32_t i = port->begin; i < port->end; i++) {
        const struct hop_transfer *const t = transfer_of(route, i);
        const struct hop_range range = hop_share_range(t->sample_lo, t->sample_hi, ROWS);
        assert_true(own.lo <= range.lo && range.hi <= own.hi);
        assert_int_equal(outgoing ? t->from_part : t->to_part, part);
        for (int32_t row = range.lo; row < range.hi; row++)
            times[row]++;
    }
    const bool once = port->begin < port->end && !(outgoing && has_shards(plan));
    for (int32_t row = own.lo; row < own.hi && once; row++)
        assert_int_equal(times[row], 1);
}

/* The task that filled each local buffer, and how many still want it. */
struct locals {
    int32_t filled_by[64], wanted[64];
};

static void fill_local(const struct hop_route *route, int32_t task, struct locals *locals)
{
    const struct hop_port *const port = &route->tasks[task].output;
    int32_t wanted = 0;
    for (int32_t i = port->begin; i < port->end; i++)
        wanted += route->messages[i].local;
    assert_int_equal(port->local >= 0, wanted > 0);
    if (!wanted)
        return;
    assert_true(port->local < route->local_slots[port->payload] && port->local < 64);
    assert_int_equal(locals[port->payload].wanted[port->local], 0);
    locals[port->payload].wanted[port->local] = wanted;
    locals[port->payload].filled_by[port->local] = task;
}

static void empty_locals(const struct hop_route *route, int32_t task, struct locals *locals)
{
    const struct hop_port *const port = &route->tasks[task].input;
    for (int32_t i = port->begin; i < port->end; i++) {
        if (!route->messages[i].local)
            continue;
        const int32_t from = transfer_of(route, i)->from_task;
        const int32_t slot = route->tasks[from].output.local;
        assert_int_equal(locals[port->payload].filled_by[slot], from);
        assert_true(locals[port->payload].wanted[slot] > 0);
        locals[port->payload].wanted[slot]--;
    }
}

/* Ring buffers are taken in turn by the tasks with a remote message. */
static void check_slot(const struct hop_route *route, const struct hop_port *port, int32_t *taken)
{
    bool remote = false;
    for (int32_t i = port->begin; i < port->end; i++)
        remote = remote || !route->messages[i].local;
    if (remote)
        assert_int_equal(port->slot, taken[port->payload]++ % route->window);
    else
        assert_int_equal(port->slot, -1);
}

static int32_t check_device(const struct hop_plan *plan, const struct hop_route *route)
{
    const struct hop_task_list *const list = &route->schedule.lists[route->device];
    int32_t received[HOP_PAYLOADS] = {0}, sent[HOP_PAYLOADS] = {0}, messages = 0;
    struct locals locals[HOP_PAYLOADS] = {0};
    for (int32_t i = 0; i < list->count; i++) {
        const struct hop_task_route *const task = &route->tasks[i];
        check_rows(plan, route, &task->input, list->tasks[i].part, false);
        check_rows(plan, route, &task->output, list->tasks[i].part, true);
        check_slot(route, &task->input, received);
        check_slot(route, &task->output, sent);
        fill_local(route, i, locals);
        empty_locals(route, i, locals);
        messages += task->input.end - task->input.begin + task->output.end - task->output.begin;
    }
    for (int p = 0; p < HOP_PAYLOADS; p++)
        assert_int_equal(received[p], route->receive_count[p]);
    assert_int_equal(messages, route->message_count);
    return messages;
}

/* Every transfer has two ends. */
static int32_t check_plan(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    struct hop_error err = {0};
    struct hop_transfers transfers;
    int32_t messages = 0;
    assert_ok(hop_transfers_derive(plan, schedule, &transfers, &err));
    for (int32_t d = 0; d < plan->devices; d++) {
        struct hop_schedule copy = support_copy(schedule);
        struct hop_route route;
        assert_ok(hop_route_create(plan, &copy, d, 1, &route, &err));
        messages += check_device(plan, &route);
        hop_route_free(&route);
        hop_schedule_free(&copy);
    }
    assert_int_equal(messages, 2 * transfers.count);
    const int32_t count = transfers.count;
    hop_transfers_free(&transfers);
    return count;
}

static void test_random_plans(void **state)
{
    (void)state;
    uint64_t random = 5;
    int32_t plans = 0, transfers = 0;
    for (int i = 0; i < 3000; i++) {
        const bool shared = i % 2;
        struct hop_plan plan = support_random_layout(&random, shared);
        struct hop_schedule schedule = {0};
        struct hop_error err = {0};
        if (shared)
            assert_ok(hop_schedule_evaluation(&plan, plan.micro_batches, &schedule, &err));
        else
            assert_ok(hop_schedule_fill_drain(&plan, plan.micro_batches, &schedule, &err));
        transfers += check_plan(&plan, &schedule);
        plans++;
        hop_schedule_free(&schedule);
        hop_plan_free(&plan);
    }
    print_message("%d plans, %d transfers\n", plans, transfers);
    assert_true(plans > 300);
}

/* ---- slices ---- */

static void test_slices(void **state)
{
    (void)state;
    struct hop_error err = {0};
    const struct hop_batch_limits limits = {.sequences = 4, .tokens = 9, .labels = 5};
    struct hop_batch batch;
    struct hop_slice slice;
    assert_ok(hop_batch_create(&limits, &batch, &err));
    assert_ok(hop_slice_create(&limits, &slice, &err));
    static const int32_t offset[] = {0, 2, 5, 6, 9}, row[] = {0, 3, 3, 5, 8};
    memcpy(batch.offset, offset, sizeof offset);
    memcpy(batch.label_row, row, sizeof row);
    for (int32_t i = 0; i < 9; i++)
        batch.ids[i] = 10 + i;
    for (int32_t i = 0; i < 5; i++)
        batch.label_id[i] = 20 + i;
    batch.sequences = 4;
    batch.tokens = 9;
    batch.labels = 5;
    batch.label_total = 17;
    batch.micro_batch = 3;
    assert_ptr_equal(hop_slice_take(&slice, &batch, (struct hop_range){0, 4}), &batch);
    const struct hop_batch *const part = hop_slice_take(&slice, &batch, (struct hop_range){1, 3});
    assert_int_equal(part->sequences, 2);
    assert_int_equal(part->tokens, 4);
    assert_int_equal(part->labels, 3);
    assert_int_equal(part->label_total, 17);
    assert_int_equal(part->micro_batch, 3);
    assert_int_equal(part->ids[0], 12);
    assert_int_equal(part->offset[1], 3);
    assert_int_equal(part->offset[2], 4);
    assert_int_equal(part->label_row[0], 1);
    assert_int_equal(part->label_row[2], 3);
    assert_int_equal(part->label_id[0], 21);
    const struct hop_batch *const none = hop_slice_take(&slice, &batch, (struct hop_range){2, 2});
    assert_int_equal(none->sequences, 0);
    assert_int_equal(none->tokens, 0);
    assert_int_equal(none->labels, 0);
    hop_slice_free(&slice);
    hop_batch_free(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
