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
    SEND,
    SEND_GRADIENT,
    PROBING /* the first of PROBING_ROWS of each way of probing */
};
enum { SECONDS, LAST, SEND_ALL, SEND_LAST, PROBING_ROWS };
enum { ROWS = PROBING + PROBING_ROWS * HOP_GREEDY_WAYS };

static const enum hop_task_kind probe_kinds[HOP_GREEDY_WAYS] = {
    [HOP_GREEDY_PROBES] = HOP_PROBE, [HOP_GREEDY_EXITS] = HOP_EXIT_PROBE};

static const struct hop_greedy_part *part_of(const struct hop_greedy *greedy, int32_t stage)
{
    return &greedy->parts[greedy->stages[stage]];
}

/* Row `row` of the numbers of a way of probing. */
static int32_t probing_row(int32_t way, int32_t row)
{
    return PROBING + PROBING_ROWS * way + row;
}

/* The PROBEs of a micro-batch: all but the last are alike. */
static double all_probes(const struct hop_greedy *greedy, int32_t way, double each, double last)
{
    return (greedy->way[way].tasks - 1) * each + last;
}

static void fill_probing(const struct hop_greedy *greedy, int32_t way, int32_t stage,
                         double *values)
{
    const struct hop_greedy_part *const part = part_of(greedy, stage);
    const struct hop_greedy_probing *const probing = &part->way[way];
    values[probing_row(way, SECONDS)] =
        all_probes(greedy, way, part->seconds[probe_kinds[way]], probing->last);
    values[probing_row(way, LAST)] = probing->last;
    values[probing_row(way, SEND_ALL)] = all_probes(greedy, way, probing->send, probing->send_last);
    values[probing_row(way, SEND_LAST)] = probing->send_last;
}

static void fill_stage(const struct hop_greedy *greedy, int32_t stage, double *storage)
{
    const int32_t stages = greedy->plan->part_count;
    const struct hop_greedy_part *const part = part_of(greedy, stage);
    const bool sends = stage + 1 < stages;
    double values[ROWS] = {
        [FORWARD] = part->seconds[HOP_FORWARD],
        [BACKWARD] = part->seconds[HOP_BACKWARD] + part->seconds[HOP_DELTA],
        [STEP] = part->seconds[HOP_STEP],
        [SEND] = part->send_activation,
        [SEND_GRADIENT] = sends ? part_of(greedy, stage + 1)->send_gradient : 0,
    };
    for (int32_t w = 0; w < HOP_GREEDY_WAYS; w++)
        fill_probing(greedy, w, stage, values);
    for (int32_t row = 0; row < ROWS; row++)
        storage[row * stages + stage] = values[row];
}

static double derivative_step(const struct hop_greedy *greedy, int32_t way)
{
    double latest = 0;
    for (int32_t p = 0; p < greedy->plan->part_count; p++) {
        const struct hop_greedy_part *const part = &greedy->parts[p];
        if (part->zeroth_order)
            latest = fmax(latest, part->way[way].derivative_last + part->seconds[HOP_STEP]);
    }
    return latest;
}

static struct hop_probing_times probing_times(const struct hop_greedy *greedy, int32_t way,
                                              const double *storage)
{
    const int32_t stages = greedy->plan->part_count;
    struct hop_probing_times times = {
        .seconds = storage + probing_row(way, SECONDS) * stages,
        .last = storage + probing_row(way, LAST) * stages,
        .send = storage + probing_row(way, SEND_ALL) * stages,
        .send_last = storage + probing_row(way, SEND_LAST) * stages,
        .derivative_step = derivative_step(greedy, way),
    };
    for (int32_t stage = 0; stage < stages; stage++) {
        if (!part_of(greedy, stage)->wanted[probe_kinds[way]])
            continue;
        if (times.hi == 0)
            times.lo = stage;
        times.hi = stage + 1;
    }
    return times;
}

/* From the end of the last BACKWARD or DELTA of all; a DELTA that makes derivatives waits for no
 * other. */
static double gradient_step(const struct hop_greedy *greedy, int32_t stage)
{
    if (stage == greedy->plan->part_count)
        return 0;
    const struct hop_greedy_part *const part = part_of(greedy, stage);
    return part->gradient == HOP_DELTA && greedy->derived_by == HOP_DELTA
               ? derivative_step(greedy, HOP_GREEDY_PROBES)
               : part->seconds[HOP_STEP];
}

static int32_t gradient_from(const struct hop_greedy *greedy)
{
    int32_t stage = greedy->plan->part_count;
    while (stage > 0 && part_of(greedy, stage - 1)->gradient != HOP_TASK_KINDS)
        stage--;
    return stage;
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
    const int32_t from = gradient_from(greedy);
    out->times = (struct hop_pipeline_times){
        .micro_batches = greedy->micro_batches,
        .stages = stages,
        .bp_free = bp_free,
        .gradient_from = from,
        .forward = storage + FORWARD * stages,
        .backward = storage + BACKWARD * stages,
        .step = storage + STEP * stages,
        .send = storage + SEND * stages,
        .send_gradient = storage + SEND_GRADIENT * stages,
        .gradient_step = gradient_step(greedy, from),
        .probes = probing_times(greedy, HOP_GREEDY_PROBES, storage),
        .exits = probing_times(greedy, HOP_GREEDY_EXITS, storage),
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
                                   plan->exit_probes, plan->probe_batch, &greedy, err));
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
