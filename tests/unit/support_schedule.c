#include "support_schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/estimator.h"
#include "schedule/price.h"
#include "schedule/reduction.h"

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

/* Parts [lo, hi) of the front run probes; those before them, and those behind, are untrained. */
static void train_front(struct hop_plan *plan, int32_t front, int32_t lo, int32_t hi)
{
    for (int32_t p = 0; p < front; p++)
        plan->parts[p].gradient = lo <= p && p < hi ? HOP_GRADIENT_ZEROTH_ORDER : HOP_GRADIENT_NONE;
}

static void limit_kept(struct hop_plan *plan, uint64_t *state)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        if (plan->parts[p].gradient == HOP_GRADIENT_BACKPROP)
            continue;
        if (hop_plan_keeps(plan, p))
            plan->parts[p].in_flight = support_between(state, 1, plan->micro_batches);
        if (hop_plan_keeps_tangents(plan, p))
            plan->parts[p].pending = support_between(state, 1, plan->micro_batches);
    }
}

void support_random_estimator(struct hop_plan *plan, uint64_t *state)
{
    int32_t front = 0;
    while (front < plan->part_count && plan->parts[front].gradient != HOP_GRADIENT_BACKPROP)
        front++;
    const bool delta = front > 0 && front < plan->part_count;
    plan->estimator =
        (enum hop_estimator)support_between(state, 0, delta ? HOP_FEEDBACK : HOP_CENTRAL);
    plan->directions = support_between(state, 0, 1) ? HOP_PER_SAMPLE : HOP_SHARED;
    plan->exit_base = support_between(state, 0, 1) ? HOP_EXIT_FULL_MODEL : HOP_EXIT_OWN;
    if (!hop_estimator_has_exit(plan->estimator)) {
        train_front(plan, front, support_between(state, 0, 2) ? 0 : front - 1, front);
    } else if (front > 0 && support_between(state, 0, 2)) {
        train_front(plan, front, 0, support_between(state, 1, front));
        plan->exit_probes = support_between(state, 1, 3);
    }
    if (plan->estimator == HOP_FEEDBACK) {
        plan->probes = 0;
        plan->feedback_blocks = support_between(state, 0, plan->blocks);
    }
    limit_kept(plan, state);
}

/* Ends of `count` shares that tile [0, 1), multiples of 1 / grain, into ends[0 .. count]. */
static void random_shares(uint64_t *state, int32_t count, int32_t grain, double *ends)
{
    int32_t at = 0;
    ends[0] = 0;
    for (int32_t i = 1; i <= count; i++) {
        at = i == count ? grain : support_between(state, at + 1, grain - (count - i));
        ends[i] = (double)at / grain;
    }
}

enum { MOST_PIPELINES = 3, MOST_STAGES = 4, MOST_REPLICAS = 3, MOST_SHARDS = 3 };

static void add_part(struct hop_plan *plan, struct hop_part part)
{
    part.device = plan->part_count;
    part.forward_seconds = 1;
    part.memory_limit = INFINITY;
    plan->parts[plan->part_count++] = part;
}

static void add_gang(struct hop_plan *plan, uint64_t *state, struct hop_part part, bool shards)
{
    double ends[MOST_SHARDS + 1];
    const int32_t count = shards ? support_between(state, 1, MOST_SHARDS) : 1;
    random_shares(state, count, 4, ends);
    for (int32_t i = 0; i < count; i++) {
        part.tensor_lo = ends[i];
        part.tensor_hi = ends[i + 1];
        add_part(plan, part);
    }
}

static void add_stage(struct hop_plan *plan, uint64_t *state, struct hop_part part)
{
    double ends[MOST_REPLICAS + 1];
    const int32_t count =
        support_between(state, 0, 1) ? support_between(state, 1, MOST_REPLICAS) : 1;
    const bool shards = support_between(state, 0, 2) == 0;
    random_shares(state, count, 8, ends);
    part.in_flight = part.gradient == HOP_GRADIENT_BACKPROP ? support_between(state, 1, 4) : 0;
    for (int32_t i = 0; i < count; i++) {
        part.sample_lo = ends[i];
        part.sample_hi = ends[i + 1];
        add_gang(plan, state, part, shards);
    }
}

/* Stages end at `frozen` and at random blocks. */
static void add_pipeline(struct hop_plan *plan, uint64_t *state, struct hop_part part,
                         int32_t frozen)
{
    const int32_t most = support_between(state, 1, MOST_STAGES);
    part.stage = part.lo = 0;
    while (part.lo < plan->blocks) {
        const int32_t end = part.lo < frozen ? frozen : plan->blocks;
        part.gradient = part.lo < frozen ? HOP_GRADIENT_NONE : HOP_GRADIENT_BACKPROP;
        part.hi = part.stage + 1 < most ? support_between(state, part.lo + 1, end) : end;
        add_stage(plan, state, part);
        part.stage++;
        part.lo = part.hi;
    }
}

/* Gives the parts other numbers and devices. */
static void shuffle(struct hop_plan *plan, uint64_t *state)
{
    for (int32_t p = plan->part_count - 1; p > 0; p--) {
        const int32_t q = support_between(state, 0, p);
        const struct hop_part kept = plan->parts[p];
        plan->parts[p] = plan->parts[q];
        plan->parts[q] = kept;
    }
}

/* Moves parts to devices that have others, where no rule of plans forbids it. */
static void share_devices(struct hop_plan *plan, uint64_t *state)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_error ignored = {0};
        const int32_t kept = plan->parts[p].device;
        plan->parts[p].device = support_between(state, 0, plan->devices - 1);
        if (hop_plan_check(plan, &ignored) != HOP_OK)
            plan->parts[p].device = kept;
    }
}

struct hop_plan support_random_layout(uint64_t *state, bool shared)
{
    const size_t most = MOST_PIPELINES * (MOST_STAGES + 1) * MOST_REPLICAS * MOST_SHARDS;
    double ends[MOST_PIPELINES + 1];
    struct hop_plan plan = {.strategy = "test",
                            .blocks = support_between(state, 1, 8),
                            .micro_batches = support_between(state, 1, 8),
                            .micro_batch_samples = support_between(state, 1, 9),
                            .collective =
                                support_between(state, 0, 3) ? HOP_ALL_REDUCE : HOP_ALL_GATHER,
                            .parts = allocate(most, sizeof *plan.parts)};
    const int32_t pipelines =
        support_between(state, 0, 1) ? support_between(state, 1, MOST_PIPELINES) : 1;
    const int32_t frozen =
        support_between(state, 0, 3) ? 0 : support_between(state, 0, plan.blocks - 1);
    random_shares(state, pipelines, 8, ends);
    for (int32_t r = 0; r < pipelines; r++)
        add_pipeline(&plan, state,
                     (struct hop_part){.pipeline = r, .micro_lo = ends[r], .micro_hi = ends[r + 1]},
                     frozen);
    plan.devices = plan.part_count + support_between(state, 0, 1);
    shuffle(&plan, state);
    if (shared)
        share_devices(&plan, state);
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

void support_random_estimator_cost(struct hop_cost_table *cost, uint64_t *state, double scale)
{
    cost->micro_batch_samples = support_between(state, 1, 3);
    for (int32_t d = 0; d < cost->device_count; d++) {
        for (int32_t b = 0; b < cost->blocks; b++)
            cost->devices[d].feedback[b] = scale * support_between(state, 1, 4) / 4;
        cost->devices[d].exit_forward = scale * support_between(state, 0, 6) / 4;
        cost->devices[d].exit_bytes = support_between(state, 0, 30);
    }
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
    int32_t sent_number, received_number; /* buffer among those of its device and payload kind */
};

struct player {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    struct hop_reductions reductions;
    struct hop_transfers transfers;
    struct message *messages;
    int32_t *done; /* (devices): tasks done */
    int32_t window;
};

/* Does a task of that device send (receive) buffered messages of that kind? */
static bool uses_buffer(const struct player *player, int32_t device, int32_t task,
                        enum hop_payload payload, bool sending)
{
    for (int32_t x = 0; x < player->transfers.count; x++) {
        const struct hop_transfer *const t = &player->transfers.items[x];
        if (player->messages[x].buffered && t->payload == payload &&
            (sending ? t->from_device == device && t->from_task == task
                     : t->to_device == device && t->to_task == task))
            return true;
    }
    return false;
}

/* Counts the tasks of the same device that send (receive) messages of the kind of x before it. */
static int32_t number_of(const struct player *player, int32_t x, bool sending)
{
    const struct hop_transfer *const t = &player->transfers.items[x];
    const int32_t device = sending ? t->from_device : t->to_device;
    int32_t before = 0;
    for (int32_t i = 0; i < (sending ? t->from_task : t->to_task); i++)
        before += uses_buffer(player, device, i, t->payload, sending);
    return before;
}

static bool is_done(const struct player *player, int32_t device, int32_t task)
{
    return player->done[device] > task;
}

/* Were the messages that used the same buffer before taken (sending), or consumed (receiving)? */
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
            message->sent_number == number - player->window && !message->taken)
            return false;
        if (!sending && other->to_device == mine->to_device &&
            message->received_number == number - player->window &&
            !is_done(player, other->to_device, other->to_task))
            return false;
    }
    return true;
}

/* The task that the device runs next, or NULL. */
static const struct hop_task *next_task(const struct player *player, int32_t device)
{
    const struct hop_task_list *const list = &player->schedule->lists[device];
    const int32_t next = player->done[device];
    return next < list->count ? &list->tasks[next] : NULL;
}

static bool is_ready(const struct player *player, int32_t device)
{
    const int32_t task = player->done[device];
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

/* Does part p run its own copy of that task at the same time? */
static bool takes_part(const struct player *player, const struct hop_task *task, int32_t p)
{
    const struct hop_part *const mine = &player->plan->parts[task->part];
    const struct hop_part *const other = &player->plan->parts[p];
    if (task->kind == HOP_REDUCE)
        return hop_reduction_has(&player->reductions.items[task->reduction], p);
    if (task->kind != HOP_FORWARD && task->kind != HOP_BACKWARD)
        return p == task->part;
    return other->pipeline == mine->pipeline && other->stage == mine->stage &&
           other->sample_lo == mine->sample_lo;
}

/* Is every device that runs the task with this one there, and ready? */
static bool can_run(const struct player *player, int32_t device)
{
    const struct hop_task *const task = next_task(player, device);
    if (!task)
        return false;
    for (int32_t p = 0; p < player->plan->part_count; p++) {
        if (!takes_part(player, task, p))
            continue;
        const struct hop_task *const other = next_task(player, player->plan->parts[p].device);
        if (!other || other->part != p || other->kind != task->kind ||
            other->micro_batch != task->micro_batch || other->reduction != task->reduction ||
            !is_ready(player, player->plan->parts[p].device))
            return false;
    }
    return true;
}

static void run_one(struct player *player, int32_t device)
{
    const int32_t task = player->done[device]++;
    for (int32_t x = 0; x < player->transfers.count; x++)
        if (player->transfers.items[x].from_device == device &&
            player->transfers.items[x].from_task == task)
            player->messages[x].sent = true;
}

static void run(struct player *player, int32_t device)
{
    const struct hop_task task = *next_task(player, device);
    for (int32_t p = 0; p < player->plan->part_count; p++)
        if (takes_part(player, &task, p))
            run_one(player, player->plan->parts[p].device);
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
    struct player player = {.plan = plan, .schedule = schedule, .window = window};
    if (hop_transfers_derive(plan, schedule, &player.transfers, &err) != HOP_OK ||
        hop_reductions_derive(plan, &player.reductions, &err) != HOP_OK)
        abort();
    player.messages = allocate((size_t)player.transfers.count, sizeof *player.messages);
    player.done = allocate((size_t)schedule->devices, sizeof *player.done);
    for (int32_t x = 0; x < player.transfers.count; x++) {
        const struct hop_transfer *const t = &player.transfers.items[x];
        player.messages[x].buffered = t->payload != HOP_DERIVATIVE && t->payload != HOP_BASE_LOSS &&
                                      t->from_device != t->to_device;
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
    hop_reductions_free(&player.reductions);
    free(player.messages);
    free(player.done);
    return finished;
}
