#include "sim/game.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/buffers.h"
#include "schedule/estimator.h"
#include "schedule/price.h"

static hop_status check_devices(const struct hop_game *game, struct hop_error *err)
{
    for (int32_t d = 0; d < game->schedule->devices; d++) {
        const struct hop_task_list *const list = &game->schedule->lists[d];
        for (int32_t i = 0; i < list->count; i++) {
            if (game->plan->parts[list->tasks[i].part].device == d)
                continue;
            char text[HOP_TASK_TEXT];
            hop_task_describe(&list->tasks[i], text, sizeof text);
            return hop_fail(err, HOP_INPUT, "schedule: %s is on another device than its part",
                            text);
        }
    }
    return HOP_OK;
}

static hop_status create_result(struct hop_game *game, struct hop_error *err)
{
    struct hop_simulation *const result = &game->result;
    const size_t devices = (size_t)game->plan->devices;
    result->devices = game->plan->devices;
    HOP_TRY(hop_calloc(&result->busy, devices, sizeof(double), err));
    HOP_TRY(hop_calloc(&result->peak_memory, devices, sizeof(double), err));
    HOP_TRY(hop_calloc(&result->bytes_sent, devices, sizeof(double), err));
    if (!game->record)
        return HOP_OK;
    return hop_calloc(&result->flights, (size_t)game->transfers.count, sizeof *result->flights,
                      err);
}

static hop_status create_arrays(struct hop_game *game, struct hop_error *err)
{
    const size_t devices = (size_t)game->plan->devices;
    const size_t transfers = (size_t)game->transfers.count;
    HOP_TRY(hop_calloc(&game->first, devices + 1, sizeof *game->first, err));
    for (int32_t d = 0; d < game->plan->devices; d++)
        game->first[d + 1] = game->first[d] + game->schedule->lists[d].count;
    game->tasks = game->first[devices];
    HOP_TRY(hop_calloc(&game->task, (size_t)game->tasks + 1, sizeof *game->task, err));
    HOP_TRY(hop_calloc(&game->outputs, transfers, sizeof *game->outputs, err));
    HOP_TRY(hop_calloc(&game->message, transfers, sizeof *game->message, err));
    HOP_TRY(hop_calloc(&game->meeting, (size_t)game->meetings.count, sizeof *game->meeting, err));
    HOP_TRY(hop_calloc(&game->device, devices, sizeof *game->device, err));
    HOP_TRY(hop_calloc(&game->round, devices, sizeof *game->round, err));
    HOP_TRY(hop_agenda_create(game->plan->devices, &game->agenda, err));
    return hop_network_create(game->cost, &game->network, err);
}

static int32_t producer(const struct hop_game *game, int32_t transfer)
{
    const struct hop_transfer *const t = &game->transfers.items[transfer];
    return game->first[t->from_device] + t->from_task;
}

static int32_t consumer(const struct hop_game *game, int32_t transfer)
{
    const struct hop_transfer *const t = &game->transfers.items[transfer];
    return game->first[t->to_device] + t->to_task;
}

/* One task sends its messages in an order that does not depend on the lists of the receivers, as
 * the greedy scheduler, which does not know them yet, must too. */
struct output {
    int32_t task, payload, to_part, probe_lo, transfer;
};

static int compare_outputs(const void *left, const void *right)
{
    const struct output *const a = left, *const b = right;
    if (a->task != b->task)
        return a->task < b->task ? -1 : 1;
    if (a->payload != b->payload)
        return a->payload < b->payload ? -1 : 1;
    if (a->to_part != b->to_part)
        return a->to_part < b->to_part ? -1 : 1;
    if (a->probe_lo != b->probe_lo)
        return a->probe_lo < b->probe_lo ? -1 : 1;
    return a->transfer < b->transfer ? -1 : a->transfer > b->transfer;
}

static hop_status link_outputs(struct hop_game *game, struct hop_error *err)
{
    const int32_t count = game->transfers.count;
    struct output *outputs;
    HOP_TRY(hop_calloc(&outputs, (size_t)count, sizeof *outputs, err));
    for (int32_t x = 0; x < count; x++) {
        const struct hop_transfer *const t = &game->transfers.items[x];
        outputs[x] =
            (struct output){producer(game, x), (int32_t)t->payload, t->to_part, t->probe_lo, x};
    }
    qsort(outputs, (size_t)count, sizeof *outputs, compare_outputs);
    int32_t x = 0;
    for (int32_t i = 0; i <= game->tasks; i++) {
        game->task[i].outputs = x;
        for (; x < count && outputs[x].task == i; x++)
            game->outputs[x] = outputs[x].transfer;
    }
    free(outputs);
    return HOP_OK;
}

static void link_inputs(struct hop_game *game)
{
    for (int32_t i = 0; i < game->tasks; i++)
        game->task[i].posts = game->task[i].meeting = -1;
    for (int32_t x = 0; x < game->transfers.count; x++) {
        game->message[x] = (struct hop_game_message){.waits = 1, .next_post = -1, .blocks = -1};
        game->task[consumer(game, x)].waits++;
    }
}

static void price_meeting(struct hop_game *game, const struct hop_meeting *members,
                          struct hop_game_meeting *meeting)
{
    const struct hop_task_ref *const first = &members->members[0];
    const struct hop_task *const task = &game->schedule->lists[first->device].tasks[first->task];
    if (task->kind == HOP_REDUCE) {
        const struct hop_reduction *const reduction = &game->reductions.items[task->reduction];
        meeting->seconds = hop_price_reduction(game->cost, reduction);
        meeting->bytes_sent = hop_price_reduction_bytes(game->cost, reduction);
        return;
    }
    meeting->seconds = hop_price_span(game->cost, game->plan, task);
    meeting->bytes_sent = hop_price_exchange_bytes(game->cost, game->plan, task);
}

static void link_meetings(struct hop_game *game)
{
    for (int32_t i = 0; i < game->meetings.count; i++) {
        const struct hop_meeting *const meeting = &game->meetings.items[i];
        for (int32_t k = 0; k < meeting->count; k++)
            game->task[game->first[meeting->members[k].device] + meeting->members[k].task].meeting =
                i;
        price_meeting(game, meeting, &game->meeting[i]);
    }
}

/* A task that sends waits until the message before in the same buffer was taken. */
static hop_status link_send_buffers(struct hop_game *game, int32_t window, struct hop_error *err)
{
    struct hop_buffer_pair *pairs;
    int32_t count;
    HOP_TRY(hop_buffer_pairs(&game->transfers, true, window, &pairs, &count, err));
    for (int32_t i = 0; i < count; i++) {
        const int32_t task = producer(game, pairs[i].after);
        game->message[pairs[i].before].blocks = task;
        game->task[task].waits++;
    }
    free(pairs);
    return HOP_OK;
}

/* A message leaves when its receive is posted: when the task that had the buffer before ends. */
static hop_status link_receive_buffers(struct hop_game *game, int32_t window, struct hop_error *err)
{
    struct hop_buffer_pair *pairs;
    int32_t count;
    HOP_TRY(hop_buffer_pairs(&game->transfers, false, window, &pairs, &count, err));
    for (int32_t i = count; i-- > 0;) {
        struct hop_game_task *const task = &game->task[consumer(game, pairs[i].before)];
        struct hop_game_message *const message = &game->message[pairs[i].after];
        message->waits++;
        message->next_post = task->posts;
        task->posts = pairs[i].after;
    }
    free(pairs);
    return HOP_OK;
}

/* Only PROBEs may be several a micro-batch. */
static bool is_first(const struct hop_task_list *list, int32_t i)
{
    return list->tasks[i].kind != HOP_PROBE || hop_task_list_is_first(list, i);
}

static bool is_last(const struct hop_task_list *list, int32_t i)
{
    return list->tasks[i].kind != HOP_PROBE || hop_task_list_is_last(list, i);
}

/* The tasks of a part that keep `bytes` of every micro-batch, and those that free them. */
static void keep_between(struct hop_game *game, int32_t p, enum hop_task_kind from,
                         enum hop_task_kind to, double bytes)
{
    const int32_t d = game->plan->parts[p].device;
    const struct hop_task_list *const list = &game->schedule->lists[d];
    for (int32_t i = 0; i < list->count; i++) {
        struct hop_game_task *const task = &game->task[game->first[d] + i];
        if (list->tasks[i].part != p)
            continue;
        if (list->tasks[i].kind == from && is_first(list, i))
            task->keeps += bytes;
        if (list->tasks[i].kind == to && is_last(list, i))
            task->frees += bytes;
    }
}

/* What a device holds all the time, and what a FORWARD or PROBE keeps for later tasks. */
static void price_memory(struct hop_game *game)
{
    const struct hop_plan *const plan = game->plan;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        struct hop_game_device *const device = &game->device[part->device];
        const double fixed = game->cost->devices[part->device].fixed_bytes;
        const double held = hop_price_memory(game->cost, plan, p, 0, 0);
        device->kept += device->holds ? held - fixed : held;
        device->holds = true;
        if (hop_plan_keeps(plan, p) && game->schedule->training)
            keep_between(game, p, HOP_FORWARD, hop_plan_frees(plan, p),
                         hop_price_memory(game->cost, plan, p, 1, 0) - held);
        if (hop_plan_keeps_tangents(plan, p))
            keep_between(game, p, HOP_PROBE, HOP_DELTA,
                         hop_price_memory(game->cost, plan, p, 0, 1) - held);
    }
    for (int32_t d = 0; d < plan->devices; d++)
        game->result.peak_memory[d] = game->device[d].kept;
}

hop_status hop_game_create(const struct hop_plan *plan, const struct hop_schedule *schedule,
                           const struct hop_cost_table *cost,
                           const struct hop_simulation_options *options, struct hop_game *out,
                           struct hop_error *err)
{
    struct hop_game game = {
        .plan = plan, .schedule = schedule, .cost = cost, .record = options && options->record};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_price_check(cost, plan, err));
    HOP_TRY_DONE(hop_transfers_derive(plan, schedule, &game.transfers, err));
    HOP_TRY_DONE(check_devices(&game, err));
    HOP_TRY_DONE(hop_reductions_derive(plan, &game.reductions, err));
    HOP_TRY_DONE(hop_meetings_derive(plan, schedule, &game.reductions, &game.meetings, err));
    HOP_TRY_DONE(create_result(&game, err));
    HOP_TRY_DONE(create_arrays(&game, err));
    HOP_TRY_DONE(link_outputs(&game, err));
    link_inputs(&game);
    link_meetings(&game);
    if (options && options->window > 0) {
        HOP_TRY_DONE(link_send_buffers(&game, options->window, err));
        HOP_TRY_DONE(link_receive_buffers(&game, options->window, err));
    }
    price_memory(&game);
    *out = game;
    game = (struct hop_game){0};
done:
    hop_game_free(&game);
    return status;
}

void hop_game_free(struct hop_game *game)
{
    if (!game)
        return;
    hop_transfers_free(&game->transfers);
    hop_reductions_free(&game->reductions);
    hop_meetings_free(&game->meetings);
    free(game->meeting);
    free(game->first);
    free(game->task);
    free(game->outputs);
    free(game->message);
    free(game->device);
    free(game->round);
    hop_agenda_free(&game->agenda);
    hop_network_free(&game->network);
    hop_simulation_free(&game->result);
    *game = (struct hop_game){0};
}
