/* Greedy list scheduling. Every part runs the tasks of one kind in the order of micro-batches:
 * stage 0 may take any and takes the earliest, and every later stage gets its input in that order.
 * So the state of a part is how many tasks of each kind it has started and finished. */
#include "schedule/schedule.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"

struct progress {
    int32_t started[HOP_TASK_KINDS], finished[HOP_TASK_KINDS], wanted[HOP_TASK_KINDS];
    int32_t previous, next, head;
    int32_t in_flight; /* forwards whose backward is not done, at most; 0: not limited */
};

struct worker {
    bool busy;
    double end;
    struct hop_task task;
};

struct game {
    const struct hop_plan *plan;
    const struct hop_cost_table *cost;
    int32_t micro_batches, probes;
    struct progress *parts;
    struct worker *workers;
    struct hop_schedule schedule;
};

static const enum hop_task_kind priority[] = {HOP_BACKWARD, HOP_FORWARD, HOP_PROBE, HOP_STEP};
enum { PRIORITIES = sizeof priority / sizeof *priority };

static void start_part(struct game *game, int32_t p)
{
    const enum hop_gradient gradient = game->plan->parts[p].gradient;
    struct progress *const part = &game->parts[p];
    part->previous = hop_plan_previous(game->plan, p);
    part->next = hop_plan_next(game->plan, p);
    part->head = hop_plan_head(game->plan, p);
    part->in_flight = game->plan->parts[p].in_flight;
    part->wanted[HOP_FORWARD] = game->micro_batches;
    part->wanted[HOP_BACKWARD] = gradient == HOP_GRADIENT_BACKPROP ? game->micro_batches : 0;
    part->wanted[HOP_PROBE] = game->probes > 0 ? game->micro_batches : 0;
    part->wanted[HOP_STEP] = gradient != HOP_GRADIENT_NONE;
}

static hop_status create_lists(struct game *game, struct hop_error *err)
{
    struct hop_schedule *const schedule = &game->schedule;
    HOP_TRY(hop_calloc(&schedule->lists, (size_t)schedule->devices, sizeof *schedule->lists, err));
    for (int32_t d = 0; d < schedule->devices; d++) {
        size_t tasks = 0;
        for (int32_t p = 0; p < game->plan->part_count; p++)
            for (int32_t k = 0; game->plan->parts[p].device == d && k < HOP_TASK_KINDS; k++)
                tasks += (size_t)game->parts[p].wanted[k];
        struct hop_task_list *const list = &schedule->lists[d];
        HOP_TRY(hop_calloc(&list->tasks, tasks, sizeof *list->tasks, err));
    }
    return HOP_OK;
}

static hop_status start_game(struct game *game, struct hop_error *err)
{
    const struct hop_plan *const plan = game->plan;
    HOP_TRY(hop_calloc(&game->parts, (size_t)plan->part_count, sizeof *game->parts, err));
    HOP_TRY(hop_calloc(&game->workers, (size_t)plan->devices, sizeof *game->workers, err));
    game->schedule = (struct hop_schedule){.micro_batches = game->micro_batches,
                                           .probes = game->probes,
                                           .training = true,
                                           .devices = plan->devices};
    for (int32_t p = 0; p < plan->part_count; p++)
        start_part(game, p);
    return create_lists(game, err);
}

static void end_game(struct game *game)
{
    free(game->parts);
    free(game->workers);
    hop_schedule_free(&game->schedule);
}

/* Has the part that `part` waits for (-1: none) finished micro-batch m? */
static bool is_done(const struct game *game, int32_t part, enum hop_task_kind kind, int32_t m)
{
    return part < 0 || game->parts[part].finished[kind] > m;
}

static bool is_step_ready(const struct game *game, int32_t p)
{
    const struct progress *const part = &game->parts[p];
    for (int32_t k = 0; k < HOP_STEP; k++)
        if (part->finished[k] < part->wanted[k])
            return false;
    const struct progress *const head = &game->parts[part->head];
    return game->plan->parts[p].gradient != HOP_GRADIENT_ZEROTH_ORDER ||
           head->finished[HOP_PROBE] == head->wanted[HOP_PROBE];
}

/* May the part start its next task of this kind? */
static bool is_ready(const struct game *game, int32_t p, enum hop_task_kind kind)
{
    const struct progress *const part = &game->parts[p];
    const int32_t m = part->started[kind];
    if (m >= part->wanted[kind])
        return false;
    switch (kind) {
    case HOP_FORWARD:
        return is_done(game, part->previous, HOP_FORWARD, m) &&
               (!part->in_flight || m - part->finished[HOP_BACKWARD] < part->in_flight);
    case HOP_BACKWARD:
        return is_done(game, p, HOP_FORWARD, m) && is_done(game, part->next, HOP_BACKWARD, m);
    case HOP_PROBE:
        return is_done(game, part->previous, HOP_PROBE, m) &&
               (p != part->head || is_done(game, p, HOP_FORWARD, m));
    case HOP_STEP:
        return is_step_ready(game, p);
    default:
        return false;
    }
}

/* The part of the device whose ready task of this kind has the earliest micro-batch, or -1. */
static int32_t earliest_ready(const struct game *game, int32_t device, enum hop_task_kind kind)
{
    int32_t best = -1;
    for (int32_t p = 0; p < game->plan->part_count; p++)
        if (game->plan->parts[p].device == device && is_ready(game, p, kind) &&
            (best < 0 || game->parts[p].started[kind] < game->parts[best].started[kind]))
            best = p;
    return best;
}

static void begin_task(struct game *game, int32_t device, int32_t p, enum hop_task_kind kind,
                       double now)
{
    struct hop_task task = {.kind = kind, .part = p, .micro_batch = game->parts[p].started[kind]++};
    if (kind == HOP_STEP)
        task.micro_batch = -1;
    if (kind == HOP_PROBE)
        task.probe_hi = game->probes;
    struct hop_task_list *const list = &game->schedule.lists[device];
    list->tasks[list->count++] = task;
    game->workers[device] = (struct worker){
        .busy = true, .end = now + hop_price_task(game->cost, game->plan, &task), .task = task};
}

static void fill_device(struct game *game, int32_t device, double now)
{
    for (int32_t i = 0; i < PRIORITIES; i++) {
        const int32_t p = earliest_ready(game, device, priority[i]);
        if (p < 0)
            continue;
        begin_task(game, device, p, priority[i], now);
        return;
    }
}

/* Ends the tasks that end next and stores that time; false when nothing runs. */
static bool advance(struct game *game, double *now)
{
    double next = 0;
    bool running = false;
    for (int32_t d = 0; d < game->plan->devices; d++) {
        const struct worker *const worker = &game->workers[d];
        if (worker->busy && (!running || worker->end < next))
            next = worker->end;
        running = running || worker->busy;
    }
    for (int32_t d = 0; d < game->plan->devices; d++) {
        struct worker *const worker = &game->workers[d];
        if (!worker->busy || worker->end > next)
            continue;
        worker->busy = false;
        game->parts[worker->task.part].finished[worker->task.kind]++;
    }
    *now = next;
    return running;
}

static void play(struct game *game)
{
    double now = 0;
    do {
        for (int32_t d = 0; d < game->plan->devices; d++)
            if (!game->workers[d].busy)
                fill_device(game, d, now);
    } while (advance(game, &now));
}

hop_status hop_schedule_greedy(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                               struct hop_error *err)
{
    if (micro_batches < 1 || probes < 0)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d micro-batches and %d probes; at least 1 and 0 are needed",
                        micro_batches, probes);
    HOP_TRY(hop_plan_check(plan, err));
    struct game game = {.plan = plan,
                        .cost = cost,
                        .micro_batches = micro_batches,
                        .probes = hop_plan_has_zeroth_order(plan) ? probes : 0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(start_game(&game, err));
    play(&game);
    *out = game.schedule;
    game.schedule = (struct hop_schedule){0};
done:
    end_game(&game);
    return status;
}
