/* Message buffers cost memory and save waits: how many are enough? */
#include "sim/simulate.h"

struct question {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    const struct hop_cost_table *cost;
    double most; /* seconds of a mini-batch */
};

static hop_status makespan(const struct question *q, int32_t window, double *seconds,
                           struct hop_error *err)
{
    const struct hop_simulation_options options = {.window = window};
    struct hop_simulation simulation;
    HOP_TRY(hop_simulate(q->plan, q->schedule, q->cost, &options, &simulation, err));
    *seconds = simulation.makespan;
    hop_simulation_free(&simulation);
    return HOP_OK;
}

static hop_status is_enough(const struct question *q, int32_t window, bool *enough,
                            struct hop_error *err)
{
    double seconds = 0;
    HOP_TRY(makespan(q, window, &seconds, err));
    *enough = seconds <= q->most;
    return HOP_OK;
}

/* Doubles `step` from `low` until it is enough; with a buffer for every message it is. */
static hop_status find_enough(const struct question *q, int32_t *low, int32_t *high,
                              struct hop_error *err)
{
    bool enough = false;
    *high = *low;
    for (int32_t step = 1;; step *= 2) {
        HOP_TRY(is_enough(q, *high, &enough, err));
        if (enough || step > INT32_MAX / 4 || *high > INT32_MAX - step)
            return HOP_OK;
        *low = *high + 1;
        *high += step;
    }
}

hop_status hop_simulation_window(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                 const struct hop_cost_table *cost, int32_t least, double tolerance,
                                 int32_t *window, struct hop_error *err)
{
    struct question q = {plan, schedule, cost, 0};
    int32_t low = 1, high = 1;
    double unlimited = 0;
    HOP_TRY(hop_schedule_window(plan, schedule, least, &low, err));
    HOP_TRY(makespan(&q, 0, &unlimited, err));
    q.most = unlimited + (tolerance > 0 ? tolerance * unlimited : 0);
    HOP_TRY(find_enough(&q, &low, &high, err));
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        bool enough = false;
        HOP_TRY(is_enough(&q, middle, &enough, err));
        if (enough)
            high = middle;
        else
            low = middle + 1;
    }
    *window = low;
    return HOP_OK;
}
