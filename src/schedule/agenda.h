/* When each of a few devices has something to do next: an indexed heap, earliest first, equal times
 * by index. Greedy scheduler and simulator take events from it in the same order. */
#ifndef HOP_SCHEDULE_AGENDA_H
#define HOP_SCHEDULE_AGENDA_H

#include <stdint.h>

#include "base/error.h"

struct hop_agenda {
    int32_t count, queued;
    int32_t *heap;  /* (queued) indices */
    int32_t *place; /* (count) in heap; -1: not queued */
    double *time;   /* (count) last time set, also after it was taken */
};

hop_status hop_agenda_create(int32_t count, struct hop_agenda *out, struct hop_error *err);
void hop_agenda_free(struct hop_agenda *agenda);
/* Nothing queued, all times INFINITY. */
void hop_agenda_clear(struct hop_agenda *agenda);

/* INFINITY takes the index out. */
void hop_agenda_set(struct hop_agenda *agenda, int32_t index, double time);
/* Takes out the earliest; -1: none. */
int32_t hop_agenda_take(struct hop_agenda *agenda);
/* Time of the earliest; INFINITY: none. */
double hop_agenda_next(const struct hop_agenda *agenda);

#endif
