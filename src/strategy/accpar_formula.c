#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "strategy/accpar_plan.h"

/* Seconds of a block on the slowest shard of the part's gang. */
static double slowest_shard(const struct hop_plan *plan, const struct hop_cost_table *cost,
                            int32_t part, int32_t block, bool backward)
{
    double slowest = 0;
    for (int32_t p = hop_plan_shard(plan, part, -1); p >= 0; p = hop_plan_shard(plan, part, p)) {
        const struct hop_part *const shard = &plan->parts[p];
        const double share =
            (shard->sample_hi - shard->sample_lo) * (shard->tensor_hi - shard->tensor_lo);
        const double seconds = backward ? hop_cost_backward(cost, shard->device, block, block + 1)
                                        : hop_cost_forward(cost, shard->device, block, block + 1);
        slowest = fmax(slowest, share * seconds);
    }
    return slowest;
}

/* One micro-batch, forward and backward. */
static double lock_step(const struct hop_plan *plan, const struct hop_cost_table *cost,
                        int32_t part)
{
    const struct hop_task forward = {.kind = HOP_FORWARD, .part = part};
    const struct hop_task backward = {.kind = HOP_BACKWARD, .part = part};
    double seconds =
        hop_price_exchange(cost, plan, &forward) + hop_price_exchange(cost, plan, &backward);
    for (int32_t b = plan->parts[part].lo; b < plan->parts[part].hi; b++)
        seconds +=
            slowest_shard(plan, cost, part, b, false) + slowest_shard(plan, cost, part, b, true);
    return seconds;
}

/* clock (parts): when a part is done with what is before the reduction, and then with it. */
static void reduce(const struct hop_cost_table *cost, const struct hop_reduction *reduction,
                   double *clock)
{
    double start = 0;
    for (int32_t i = 0; i < reduction->count; i++)
        start = fmax(start, clock[reduction->parts[i]]);
    for (int32_t i = 0; i < reduction->count; i++)
        clock[reduction->parts[i]] = start + hop_price_reduction(cost, reduction);
}

static double play(const struct hop_plan *plan, const struct hop_cost_table *cost,
                   const struct hop_reductions *reductions, double *clock)
{
    double end = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        clock[p] = plan->micro_batches * lock_step(plan, cost, p);
    for (int32_t r = 0; r < reductions->count; r++)
        reduce(cost, &reductions->items[r], clock);
    for (int32_t p = 0; p < plan->part_count; p++)
        end = fmax(end, clock[p] + hop_price_task(cost, plan,
                                                  &(struct hop_task){.kind = HOP_STEP, .part = p}));
    return end;
}

double hop_accpar_formula(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_error err;
    struct hop_reductions reductions;
    double *clock;
    double seconds = NAN;
    if (hop_reductions_derive(plan, &reductions, &err) != HOP_OK)
        return NAN;
    if (hop_calloc(&clock, (size_t)plan->part_count, sizeof *clock, &err) == HOP_OK) {
        seconds = play(plan, cost, &reductions, clock);
        free(clock);
    }
    hop_reductions_free(&reductions);
    return seconds;
}
