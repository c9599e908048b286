#include "strategy/asteroid_samples.h"

#include <math.h>

static int32_t room(const struct hop_asteroid_worker *worker)
{
    return worker->most - worker->samples;
}

/* The device with room that takes least time with one sample more; -1: there is none. */
static int32_t quickest(const struct hop_asteroid_worker *workers, int32_t count)
{
    int32_t best = -1;
    double least = INFINITY;
    for (int32_t d = 0; d < count; d++) {
        const double seconds = (workers[d].samples + 1) * workers[d].seconds;
        if (room(&workers[d]) > 0 && seconds < least) {
            least = seconds;
            best = d;
        }
    }
    return best;
}

static int32_t slowest(const struct hop_asteroid_worker *workers, int32_t count)
{
    int32_t worst = 0;
    for (int32_t d = 1; d < count; d++)
        if (workers[d].samples * workers[d].seconds >
            workers[worst].samples * workers[worst].seconds)
            worst = d;
    return worst;
}

/* One round in proportion to speed; returns what it dealt. */
static int32_t deal(struct hop_asteroid_worker *workers, int32_t count, int32_t samples)
{
    double speed = 0;
    int32_t dealt = 0;
    for (int32_t d = 0; d < count; d++)
        speed += room(&workers[d]) > 0 ? 1 / workers[d].seconds : 0;
    for (int32_t d = 0; d < count; d++) {
        if (room(&workers[d]) <= 0)
            continue;
        const double part = floor(samples / workers[d].seconds / speed);
        int32_t given = (int32_t)fmin(part, room(&workers[d]));
        given = given < samples - dealt ? given : samples - dealt;
        workers[d].samples += given;
        dealt += given;
    }
    return dealt;
}

static void offload(struct hop_asteroid_worker *workers, int32_t count, int32_t least)
{
    for (;;) {
        const int32_t from = slowest(workers, count), to = quickest(workers, count);
        if (to < 0 || to == from || workers[from].samples <= least ||
            (workers[to].samples + 1) * workers[to].seconds >=
                workers[from].samples * workers[from].seconds)
            return;
        workers[from].samples--;
        workers[to].samples++;
    }
}

bool hop_asteroid_allocate(struct hop_asteroid_worker *workers, int32_t count, int32_t samples,
                           int32_t least)
{
    int32_t left = samples;
    for (int32_t d = 0; d < count; d++) {
        if (workers[d].most < least || left < least)
            return false;
        workers[d].samples = least;
        left -= least;
    }
    while (left > 0) {
        const int32_t dealt = deal(workers, count, left);
        left -= dealt;
        if (dealt > 0)
            continue;
        const int32_t next = quickest(workers, count);
        if (next < 0)
            return false;
        workers[next].samples++;
        left--;
    }
    offload(workers, count, least);
    return true;
}
