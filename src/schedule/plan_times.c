/* The times of a plan, as the greedy scheduler prices them. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/bound.h"
#include "schedule/greedy_internal.h"
#include "schedule/price.h"

enum {
    FORWARD,
    BACKWARD,
    STEP,
    PROBE,
    LAST_PROBE,
    SEND,
    SEND_GRADIENT,
    SEND_PROBE,
    SEND_LAST_PROBE,
    ROWS
};

/* The PROBEs of a micro-batch: all but the last are alike. */
static double all_probes(const struct hop_greedy *greedy, double each, double last)
{
    return (greedy->probe_tasks - 1) * each + last;
}

static void fill_stage(const struct hop_greedy *greedy, int32_t stage, double *storage)
{
    const int32_t stages = greedy->plan->part_count;
    const struct hop_greedy_part *const part = &greedy->parts[greedy->stages[stage]];
    const bool sends = stage + 1 < stages;
    const double gradient = sends ? greedy->parts[greedy->stages[stage + 1]].send[HOP_GRADIENT] : 0;
    const double values[ROWS] = {
        [FORWARD] = part->seconds[HOP_FORWARD],
        [BACKWARD] = part->seconds[HOP_BACKWARD],
        [STEP] = part->seconds[HOP_STEP],
        [PROBE] = all_probes(greedy, part->seconds[HOP_PROBE], part->last_probe),
        [LAST_PROBE] = part->last_probe,
        [SEND] = part->send[HOP_ACTIVATION],
        [SEND_GRADIENT] = gradient,
        [SEND_PROBE] = all_probes(greedy, part->send[HOP_PROBE_ACTIVATION], part->send_last_probe),
        [SEND_LAST_PROBE] = part->send_last_probe,
    };
    for (int32_t row = 0; row < ROWS; row++)
        storage[row * stages + stage] = values[row];
}

static double derivative_step(const struct hop_greedy *greedy)
{
    double latest = 0;
    for (int32_t p = 0; p < greedy->plan->part_count; p++) {
        const struct hop_greedy_part *const part = &greedy->parts[p];
        if (part->zeroth_order)
            latest = fmax(latest, part->last_derivative + part->seconds[HOP_STEP]);
    }
    return latest;
}

static void fill(const struct hop_greedy *greedy, struct hop_plan_times *out)
{
    const int32_t stages = greedy->plan->part_count;
    double *const storage = out->storage;
    int32_t bp_free = 0;
    for (int32_t stage = 0; stage < stages; stage++) {
        fill_stage(greedy, stage, storage);
        bp_free += greedy->plan->parts[stage].gradient != HOP_GRADIENT_BACKPROP;
    }
    out->times = (struct hop_pipeline_times){
        .micro_batches = greedy->micro_batches,
        .stages = stages,
        .bp_free = bp_free,
        .forward = storage + FORWARD * stages,
        .backward = storage + BACKWARD * stages,
        .step = storage + STEP * stages,
        .send = storage + SEND * stages,
        .send_gradient = storage + SEND_GRADIENT * stages,
        .probe = greedy->probe_tasks ? storage + PROBE * stages : NULL,
        .send_probe = storage + SEND_PROBE * stages,
        .last_probe = storage + LAST_PROBE * stages,
        .send_last_probe = storage + SEND_LAST_PROBE * stages,
        .derivative_step = derivative_step(greedy),
    };
}

hop_status hop_plan_times_create(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                 struct hop_plan_times *out, struct hop_error *err)
{
    HOP_TRY(hop_plan_check(plan, err));
    HOP_TRY(hop_greedy_check(plan, err));
    HOP_TRY(hop_price_check(cost, plan, err));
    struct hop_greedy *greedy = NULL;
    struct hop_plan_times times = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_greedy_create(cost, plan->part_count, plan->micro_batches, plan->probes,
                                   plan->probe_batch, &greedy, err));
    HOP_TRY_DONE(hop_calloc(&times.storage, ROWS * (size_t)plan->part_count, sizeof(double), err));
    hop_greedy_begin(greedy, plan);
    fill(greedy, &times);
    *out = times;
done:
    hop_greedy_free(greedy);
    return status;
}

void hop_plan_times_free(struct hop_plan_times *times)
{
    if (!times)
        return;
    free(times->storage);
    *times = (struct hop_plan_times){0};
}
