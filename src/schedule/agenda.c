#include "schedule/agenda.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"

hop_status hop_agenda_create(int32_t count, struct hop_agenda *out, struct hop_error *err)
{
    struct hop_agenda agenda = {.count = count};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&agenda.heap, (size_t)count, sizeof *agenda.heap, err));
    HOP_TRY_DONE(hop_calloc(&agenda.place, (size_t)count, sizeof *agenda.place, err));
    HOP_TRY_DONE(hop_calloc(&agenda.time, (size_t)count, sizeof *agenda.time, err));
    hop_agenda_clear(&agenda);
    *out = agenda;
    agenda = (struct hop_agenda){0};
done:
    hop_agenda_free(&agenda);
    return status;
}

void hop_agenda_free(struct hop_agenda *agenda)
{
    if (!agenda)
        return;
    free(agenda->heap);
    free(agenda->place);
    free(agenda->time);
    *agenda = (struct hop_agenda){0};
}

void hop_agenda_clear(struct hop_agenda *agenda)
{
    agenda->queued = 0;
    for (int32_t i = 0; i < agenda->count; i++) {
        agenda->place[i] = -1;
        agenda->time[i] = INFINITY;
    }
}

static bool is_before(const struct hop_agenda *agenda, int32_t a, int32_t b)
{
    return agenda->time[a] < agenda->time[b] || (agenda->time[a] == agenda->time[b] && a < b);
}

static void put(struct hop_agenda *agenda, int32_t place, int32_t index)
{
    agenda->heap[place] = index;
    agenda->place[index] = place;
}

static void move_up(struct hop_agenda *agenda, int32_t place, int32_t index)
{
    while (place > 0 && is_before(agenda, index, agenda->heap[(place - 1) / 2])) {
        put(agenda, place, agenda->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(agenda, place, index);
}

static void move_down(struct hop_agenda *agenda, int32_t place, int32_t index)
{
    for (int32_t child; (child = 2 * place + 1) < agenda->queued; place = child) {
        if (child + 1 < agenda->queued &&
            is_before(agenda, agenda->heap[child + 1], agenda->heap[child]))
            child++;
        if (!is_before(agenda, agenda->heap[child], index))
            break;
        put(agenda, place, agenda->heap[child]);
    }
    put(agenda, place, index);
}

/* The last one fills the hole and goes where it belongs. */
static void take_out(struct hop_agenda *agenda, int32_t index)
{
    const int32_t place = agenda->place[index];
    agenda->place[index] = -1;
    const int32_t last = agenda->heap[--agenda->queued];
    if (last == index)
        return;
    move_up(agenda, place, last);
    move_down(agenda, agenda->place[last], last);
}

void hop_agenda_set(struct hop_agenda *agenda, int32_t index, double time)
{
    agenda->time[index] = time;
    if (isinf(time)) {
        if (agenda->place[index] >= 0)
            take_out(agenda, index);
        return;
    }
    if (agenda->place[index] < 0)
        put(agenda, agenda->queued++, index);
    move_up(agenda, agenda->place[index], index);
    move_down(agenda, agenda->place[index], index);
}

int32_t hop_agenda_take(struct hop_agenda *agenda)
{
    if (!agenda->queued)
        return -1;
    const int32_t index = agenda->heap[0];
    take_out(agenda, index);
    return index;
}

double hop_agenda_next(const struct hop_agenda *agenda)
{
    return agenda->queued ? agenda->time[agenda->heap[0]] : INFINITY;
}
