/* Event by event, as in the greedy scheduler: at every time at which something happens, first all
 * tasks that end there end, in the order of the devices, and send their messages; then every device
 * that is free starts the next task of its list if its inputs are there; for a task that several
 * devices run together, the last of them starts it on all. */
#include <math.h>

#include "schedule/price.h"
#include "sim/game.h"

static const struct hop_task *task_at(const struct hop_game *game, int32_t device, int32_t i)
{
    return &game->schedule->lists[device].tasks[i];
}

static void keep(struct hop_game *game, int32_t d, double bytes)
{
    struct hop_game_device *const device = &game->device[d];
    device->kept += bytes;
    if (device->kept > game->result.peak_memory[d])
        game->result.peak_memory[d] = device->kept;
}

/* Starts the next task of a device; meeting: NULL where it runs alone. */
static hop_status start_task(struct hop_game *game, int32_t d, double now,
                             const struct hop_game_meeting *meeting, struct hop_error *err)
{
    struct hop_game_device *const device = &game->device[d];
    const double keeps = game->task[game->first[d] + device->next].keeps;
    const struct hop_task *const task = task_at(game, d, device->next++);
    const double work = hop_price_task(game->cost, game->plan, task);
    const double end = now + (meeting ? meeting->seconds : work);
    device->busy = true;
    device->waiting = false;
    game->result.busy[d] += work;
    game->result.bytes_sent[d] += meeting ? meeting->bytes_sent : 0;
    if (end > game->result.makespan)
        game->result.makespan = end;
    keep(game, d, keeps);
    hop_agenda_set(&game->agenda, d, end);
    if (!game->record)
        return HOP_OK;
    const struct hop_event event = {.device = d, .task = *task, .start = now, .end = end};
    return hop_timeline_add(&game->result.timeline, &event, err);
}

/* The device waits for the others, or starts the task on all of them. */
static hop_status join_meeting(struct hop_game *game, int32_t d, int32_t index, double now,
                               struct hop_error *err)
{
    const struct hop_meeting *const members = &game->meetings.items[index];
    struct hop_game_meeting *const meeting = &game->meeting[index];
    game->device[d].waiting = true;
    hop_agenda_set(&game->agenda, d, INFINITY);
    if (++meeting->arrived < members->count)
        return HOP_OK;
    for (int32_t i = 0; i < members->count; i++)
        HOP_TRY(start_task(game, members->members[i].device, now, meeting, err));
    return HOP_OK;
}

static hop_status start_next(struct hop_game *game, int32_t d, double now, struct hop_error *err)
{
    const int32_t meeting = game->task[game->first[d] + game->device[d].next].meeting;
    return meeting < 0 ? start_task(game, d, now, NULL, err)
                       : join_meeting(game, d, meeting, now, err);
}

static hop_status fill_device(struct hop_game *game, int32_t d, double now, struct hop_error *err)
{
    const struct hop_game_device *const device = &game->device[d];
    const struct hop_game_task *const task = &game->task[game->first[d] + device->next];
    if (device->busy || device->waiting)
        return HOP_OK;
    const bool known = device->next < game->schedule->lists[d].count && !task->waits;
    if (known && task->ready <= now)
        return start_next(game, d, now, err);
    hop_agenda_set(&game->agenda, d, known ? task->ready : INFINITY);
    return HOP_OK;
}

/* Something that task i of device d waits for is there at `time`. */
static void satisfy(struct hop_game *game, int32_t d, int32_t i, double time)
{
    const struct hop_game_device *const device = &game->device[d];
    struct hop_game_task *const task = &game->task[game->first[d] + i];
    task->ready = time > task->ready ? time : task->ready;
    if (--task->waits == 0 && !device->busy && device->next == i &&
        task->ready < game->agenda.time[d])
        hop_agenda_set(&game->agenda, d, task->ready);
}

static void send_message(struct hop_game *game, int32_t x, double now)
{
    const struct hop_transfer *const t = &game->transfers.items[x];
    const double seconds = hop_price_transfer(game->cost, game->plan, t);
    const double start =
        hop_network_send(&game->network, t->from_device, t->to_device, now, seconds);
    const double arrival = start + seconds;
    satisfy(game, t->to_device, t->to_task, arrival);
    if (game->message[x].blocks >= 0)
        satisfy(game, t->from_device, game->message[x].blocks - game->first[t->from_device],
                arrival);
    if (t->from_device == t->to_device)
        return;
    game->result.bytes_sent[t->from_device] += hop_price_bytes(game->cost, game->plan, t);
    if (game->record)
        game->result.flights[game->result.flight_count++] =
            (struct hop_flight){.transfer = x, .start = start, .end = arrival};
}

static void release_message(struct hop_game *game, int32_t x, double now)
{
    if (--game->message[x].waits == 0)
        send_message(game, x, now);
}

static void end_task(struct hop_game *game, int32_t d, double now)
{
    struct hop_game_device *const device = &game->device[d];
    const struct hop_game_task *const state = &game->task[game->first[d] + device->next - 1];
    device->busy = false;
    game->done++;
    device->kept -= state->frees;
    for (int32_t i = state->outputs; i < state[1].outputs; i++)
        release_message(game, game->outputs[i], now);
    for (int32_t x = state->posts; x >= 0; x = game->message[x].next_post)
        release_message(game, x, now);
}

static int32_t end_tasks(struct hop_game *game, double now)
{
    int32_t count = 0;
    while (hop_agenda_next(&game->agenda) <= now) {
        const int32_t d = hop_agenda_take(&game->agenda);
        game->round[count++] = d;
        if (game->device[d].busy)
            end_task(game, d, now);
    }
    return count;
}

hop_status hop_game_play(struct hop_game *game, struct hop_error *err)
{
    for (int32_t d = 0; d < game->plan->devices; d++)
        HOP_TRY(fill_device(game, d, 0, err));
    for (double now; (now = hop_agenda_next(&game->agenda)) < INFINITY;) {
        const int32_t count = end_tasks(game, now);
        for (int32_t i = 0; i < count; i++)
            HOP_TRY(fill_device(game, game->round[i], now, err));
    }
    return HOP_OK;
}
