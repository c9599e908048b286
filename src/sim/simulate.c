#include "sim/simulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/string.h"
#include "sim/game.h"

enum { WAITING_SHOWN = 6 };

static hop_status append_waiting(const struct hop_game *game, int32_t d, struct hop_string *text,
                                 struct hop_error *err)
{
    char task[HOP_TASK_TEXT];
    hop_task_describe(&game->schedule->lists[d].tasks[game->device[d].next], task, sizeof task);
    return hop_string_printf(text, err, "%s%s on device %d", text->length ? ", " : "", task, d);
}

static hop_status list_waiting(const struct hop_game *game, struct hop_string *text,
                               struct hop_error *err)
{
    int32_t shown = 0;
    for (int32_t d = 0; d < game->plan->devices; d++)
        if (game->device[d].next < game->schedule->lists[d].count && shown++ < WAITING_SHOWN)
            HOP_TRY(append_waiting(game, d, text, err));
    return shown > WAITING_SHOWN ? hop_string_printf(text, err, " and others") : HOP_OK;
}

static hop_status check_finished(const struct hop_game *game, int32_t window, struct hop_error *err)
{
    if (game->done == game->tasks)
        return HOP_OK;
    char buffers[64] = "";
    if (window > 0)
        snprintf(buffers, sizeof buffers, " with %d buffer%s", window, window == 1 ? "" : "s");
    struct hop_string text = {0};
    hop_status status = list_waiting(game, &text, err);
    if (status == HOP_OK)
        status = hop_fail(err, HOP_INPUT,
                          "schedule:%s it gets stuck after %d of %d tasks; these wait: %s", buffers,
                          game->done, game->tasks, hop_string_text(&text));
    hop_string_free(&text);
    return status;
}

static void sum_up(const struct hop_game *game, struct hop_simulation *result)
{
    double busy = 0;
    for (int32_t d = 0; d < result->devices; d++) {
        if (!game->device[d].holds)
            continue;
        const struct hop_cost_device *const device = &game->cost->devices[d];
        result->working++;
        busy += result->busy[d];
        result->joules += device->idle_watts * result->makespan +
                          (device->busy_watts - device->idle_watts) * result->busy[d];
    }
    if (result->makespan > 0)
        result->utilization = busy / (result->makespan * result->working);
}

hop_status hop_simulate(const struct hop_plan *plan, const struct hop_schedule *schedule,
                        const struct hop_cost_table *cost,
                        const struct hop_simulation_options *options, struct hop_simulation *out,
                        struct hop_error *err)
{
    struct hop_game game;
    HOP_TRY(hop_game_create(plan, schedule, cost, options, &game, err));
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_game_play(&game, err));
    HOP_TRY_DONE(check_finished(&game, options ? options->window : 0, err));
    sum_up(&game, &game.result);
    *out = game.result;
    game.result = (struct hop_simulation){0};
done:
    hop_game_free(&game);
    return status;
}

void hop_simulation_free(struct hop_simulation *simulation)
{
    if (!simulation)
        return;
    free(simulation->busy);
    free(simulation->peak_memory);
    free(simulation->bytes_sent);
    free(simulation->flights);
    hop_timeline_free(&simulation->timeline);
    *simulation = (struct hop_simulation){0};
}
