#include "support_schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/price.h"

uint64_t support_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1dull;
}

int32_t support_between(uint64_t *state, int32_t lo, int32_t hi)
{
    return lo + (int32_t)((support_random(state) >> 33) % (uint64_t)(hi - lo + 1));
}

static void *allocate(size_t count, size_t size)
{
    void *const block = calloc(count ? count : 1, size);
    if (!block)
        abort();
    return block;
}

struct hop_plan support_plan(int32_t parts, const int32_t *devices,
                             const enum hop_gradient *gradients)
{
    struct hop_plan plan = {.strategy = "test",
                            .blocks = parts,
                            .micro_batches = 2,
                            .probes = 1,
                            .part_count = parts,
                            .parts = allocate((size_t)parts, sizeof *plan.parts)};
    for (int32_t p = 0; p < parts; p++) {
        plan.parts[p] = (struct hop_part){.device = devices[p],
                                          .stage = p,
                                          .lo = p,
                                          .hi = p + 1,
                                          .sample_hi = 1,
                                          .tensor_hi = 1,
                                          .micro_hi = 1,
                                          .gradient = gradients[p],
                                          .forward_seconds = 1,
                                          .memory_limit = INFINITY};
        if (gradients[p] == HOP_GRADIENT_BACKPROP)
            plan.parts[p].in_flight = hop_in_flight_most(parts - p, 0, INT32_MAX);
        if (devices[p] >= plan.devices)
            plan.devices = devices[p] + 1;
    }
    return plan;
}

struct hop_plan support_random_plan(uint64_t *state)
{
    int32_t devices[12];
    enum hop_gradient gradients[12];
    const int32_t blocks = support_between(state, 1, 12);
    const int32_t parts = support_between(state, 1, blocks < 6 ? blocks : 6);
    const int32_t count = support_between(state, 1, 6);
    const int32_t front = support_between(state, 0, parts);
    for (int32_t p = 0; p < parts; p++) {
        devices[p] =
            support_between(state, 0, 3) ? p % count : support_between(state, 0, count - 1);
        gradients[p] = p >= front                          ? HOP_GRADIENT_BACKPROP
                       : support_between(state, 0, 4) == 0 ? HOP_GRADIENT_NONE
                                                           : HOP_GRADIENT_ZEROTH_ORDER;
    }
    struct hop_plan plan = support_plan(parts, devices, gradients);
    plan.devices = count;
    plan.blocks = blocks;
    plan.micro_batches = support_between(state, 1, 8);
    plan.probes = support_between(state, 0, 4);
    plan.probe_batch = support_between(state, 0, 4);
    int32_t lo = 0;
    for (int32_t p = 0; p < parts; p++) {
        const int32_t rest = parts - p - 1;
        const int32_t hi = rest ? support_between(state, lo + 1, blocks - rest) : blocks;
        plan.parts[p].lo = lo;
        plan.parts[p].hi = lo = hi;
        if (plan.parts[p].in_flight && support_between(state, 0, 1))
            plan.parts[p].in_flight = support_between(state, 1, plan.parts[p].in_flight);
    }
    return plan;
}

struct hop_cost_table support_cost(const struct hop_plan *plan)
{
    struct hop_cost_table cost;
    struct hop_error err = {0};
    if (hop_cost_create(plan->blocks, plan->devices, &cost, &err) != HOP_OK)
        abort();
    for (int32_t d = 0; d < plan->devices; d++) {
        struct hop_cost_device *const device = &cost.devices[d];
        device->bp = true;
        device->name = allocate(16, 1);
        snprintf(device->name, 16, "d%d", d);
        device->backward = allocate((size_t)plan->blocks, sizeof(double));
        for (int32_t b = 0; b < plan->blocks; b++)
            device->forward[b] = device->backward[b] = device->probe[b] = 1;
    }
    return cost;
}

struct hop_cost_table support_random_cost(const struct hop_plan *plan, uint64_t *state,
                                          double scale)
{
    struct hop_cost_table cost = support_cost(plan);
    const bool steps = support_between(state, 0, 1);
    for (int32_t d = 0; d < plan->devices; d++) {
        struct hop_cost_device *const device = &cost.devices[d];
        for (int32_t b = 0; b < plan->blocks; b++) {
            const int32_t forward = support_between(state, 1, 12);
            device->forward[b] = scale * forward / 4;
            device->backward[b] = scale * forward * support_between(state, 1, 3) / 4;
            device->probe[b] = scale * support_between(state, 0, forward) / 4;
            device->step[b] = steps ? scale * support_between(state, 0, 4) / 4 : 0;
            device->state_bytes[b] = support_between(state, 1, 100);
            device->activation_bytes[b] = support_between(state, 1, 20);
        }
        device->fixed_bytes = support_between(state, 0, 50);
    }
    return cost;
}

void support_random_links(struct hop_cost_table *cost, uint64_t *state, double scale)
{
    for (int32_t b = 0; b + 1 < cost->blocks; b++)
        cost->boundary_bytes[b] = 4.0 * support_between(state, 0, 8);
    for (int32_t i = 0; i < cost->device_count * cost->device_count; i++) {
        if (support_between(state, 0, 3) == 0)
            continue;
        cost->bandwidth[i] = (double)(4 << support_between(state, 0, 2)) / scale;
        cost->latency[i] = scale * support_between(state, 0, 2) / 4;
    }
    cost->half_duplex = support_between(state, 0, 3) == 0;
    cost->shared_nic = support_between(state, 0, 3) == 0;
}

void support_list_text(const struct hop_schedule *schedule, int32_t device, bool parts, char *text,
                       size_t size)
{
    const struct hop_task_list *const list = &schedule->lists[device];
    size_t at = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < list->count && at < size; i++) {
        const struct hop_task *const task = &list->tasks[i];
        if (i)
            at += (size_t)snprintf(text + at, size - at, " ");
        if (parts)
            at += (size_t)snprintf(text + at, size - at, "%d.", task->part);
        at += (size_t)snprintf(text + at, size - at, "%c", hop_task_kind_names[task->kind][0]);
        if (task->micro_batch >= 0)
            at += (size_t)snprintf(text + at, size - at, "%d", task->micro_batch);
    }
}

struct hop_schedule support_copy(const struct hop_schedule *schedule)
{
    struct hop_schedule copy = *schedule;
    copy.lists = allocate((size_t)schedule->devices, sizeof *copy.lists);
    for (int32_t d = 0; d < schedule->devices; d++) {
        const struct hop_task_list *const list = &schedule->lists[d];
        copy.lists[d].count = list->count;
        copy.lists[d].tasks = allocate((size_t)list->count + 1, sizeof *list->tasks);
        if (list->count)
            memcpy(copy.lists[d].tasks, list->tasks, (size_t)list->count * sizeof *list->tasks);
    }
    return copy;
}

struct message {
    bool buffered, sent, taken;
    int32_t sent_number, received_number; /* among those of its device and payload kind */
};

struct player {
    const struct hop_schedule *schedule;
    struct hop_transfers transfers;
    struct message *messages;
    int32_t *done; /* (devices): tasks done */
    int32_t window;
};

/* Counts the messages of the same device and kind that go before x on the sending or receiving
 * side. */
static int32_t number_of(const struct player *player, int32_t x, bool sending)
{
    const struct hop_transfer *const me = &player->transfers.items[x];
    int32_t before = 0;
    for (int32_t y = 0; y < player->transfers.count; y++) {
        const struct hop_transfer *const other = &player->transfers.items[y];
        if (!player->messages[y].buffered || other->payload != me->payload)
            continue;
        if (sending ? other->from_device != me->from_device : other->to_device != me->to_device)
            continue;
        const int32_t mine = sending ? me->from_task : me->to_task;
        const int32_t theirs = sending ? other->from_task : other->to_task;
        before += theirs < mine || (theirs == mine && y < x);
    }
    return before;
}

static bool is_done(const struct player *player, int32_t device, int32_t task)
{
    return player->done[device] > task;
}

/* Was the message that used the same buffer before taken (sending), or consumed (receiving)? */
static bool has_buffer(const struct player *player, int32_t x, bool sending)
{
    const struct message *const me = &player->messages[x];
    const int32_t number = sending ? me->sent_number : me->received_number;
    const struct hop_transfer *const mine = &player->transfers.items[x];
    for (int32_t y = 0; y < player->transfers.count; y++) {
        const struct hop_transfer *const other = &player->transfers.items[y];
        const struct message *const message = &player->messages[y];
        if (!message->buffered || other->payload != mine->payload)
            continue;
        if (sending && other->from_device == mine->from_device &&
            message->sent_number == number - player->window)
            return message->taken;
        if (!sending && other->to_device == mine->to_device &&
            message->received_number == number - player->window)
            return is_done(player, other->to_device, other->to_task);
    }
    return true;
}

static bool can_run(const struct player *player, int32_t device)
{
    const int32_t task = player->done[device];
    if (task >= player->schedule->lists[device].count)
        return false;
    for (int32_t x = 0; x < player->transfers.count; x++) {
        const struct hop_transfer *const t = &player->transfers.items[x];
        const struct message *const message = &player->messages[x];
        if (t->to_device == device && t->to_task == task &&
            (message->buffered ? !message->taken : !is_done(player, t->from_device, t->from_task)))
            return false;
        if (t->from_device == device && t->from_task == task && message->buffered &&
            !has_buffer(player, x, true))
            return false;
    }
    return true;
}

static void run(struct player *player, int32_t device)
{
    const int32_t task = player->done[device]++;
    for (int32_t x = 0; x < player->transfers.count; x++)
        if (player->transfers.items[x].from_device == device &&
            player->transfers.items[x].from_task == task)
            player->messages[x].sent = true;
}

/* Does one thing that can happen: a task of a device, or the arrival of a message. */
static bool act(struct player *player, uint64_t *state)
{
    const int32_t devices = player->schedule->devices;
    const int32_t choices = devices + player->transfers.count;
    const int32_t first = support_between(state, 0, choices - 1);
    for (int32_t i = 0; i < choices; i++) {
        const int32_t choice = (first + i) % choices, x = choice - devices;
        if (choice < devices) {
            if (!can_run(player, choice))
                continue;
            run(player, choice);
            return true;
        }
        struct message *const message = &player->messages[x];
        if (!message->buffered || !message->sent || message->taken || !has_buffer(player, x, false))
            continue;
        message->taken = true;
        return true;
    }
    return false;
}

bool support_play(const struct hop_plan *plan, const struct hop_schedule *schedule, int32_t window,
                  uint64_t *state)
{
    struct hop_error err = {0};
    struct player player = {.schedule = schedule, .window = window};
    if (hop_transfers_derive(plan, schedule, &player.transfers, &err) != HOP_OK)
        abort();
    player.messages = allocate((size_t)player.transfers.count, sizeof *player.messages);
    player.done = allocate((size_t)schedule->devices, sizeof *player.done);
    for (int32_t x = 0; x < player.transfers.count; x++) {
        const struct hop_transfer *const t = &player.transfers.items[x];
        player.messages[x].buffered =
            t->payload != HOP_DERIVATIVE && t->from_device != t->to_device;
    }
    for (int32_t x = 0; x < player.transfers.count; x++) {
        player.messages[x].sent_number = number_of(&player, x, true);
        player.messages[x].received_number = number_of(&player, x, false);
    }
    while (act(&player, state))
        ;
    bool finished = true;
    for (int32_t d = 0; d < schedule->devices; d++)
        finished = finished && player.done[d] == schedule->lists[d].count;
    hop_transfers_free(&player.transfers);
    free(player.messages);
    free(player.done);
    return finished;
}
