#include "train/learning_rate.h"

#include <math.h>
#include <stddef.h>

const char *const hop_scheduler_names[] = {"constant", "linear", "cosine", NULL};

double hop_learning_rate_at(const struct hop_learning_rate *schedule, int64_t completed)
{
    static const double pi = 3.14159265358979323846;
    const int64_t warmup = schedule->warmup_steps;
    if (completed < warmup)
        return schedule->peak * (double)completed / (double)warmup;
    const int64_t falling = schedule->total_steps - warmup;
    const double progress = (double)(completed - warmup) / (double)(falling > 1 ? falling : 1);
    switch (schedule->scheduler) {
    case HOP_SCHEDULER_LINEAR:
        return progress < 1 ? schedule->peak * (1 - progress) : 0;
    case HOP_SCHEDULER_COSINE:
        return progress < 1 ? schedule->peak * 0.5 * (1 + cos(pi * progress)) : 0;
    default:
        return schedule->peak;
    }
}
