#include "strategy/pipedream_flush.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/lists.h"
#include "schedule/price.h"

hop_status hop_pipedream_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                  int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                  struct hop_error *err)
{
    int32_t *warmup;
    (void)cost;
    (void)probes;
    HOP_TRY(hop_plan_check(plan, err));
    HOP_TRY(hop_calloc(&warmup, (size_t)plan->part_count, sizeof *warmup, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        warmup[p] = hop_plan_stages(plan, plan->parts[p].pipeline) - plan->parts[p].stage;
    const hop_status status = hop_schedule_one_f_one_b(plan, micro_batches, warmup, out, err);
    free(warmup);
    return status;
}

/* The stages are told one after another: sum is that of all so far, most the result so far. */
static double add_stage(double seconds, int32_t n, double *sum, double most)
{
    *sum += seconds;
    return fmax(most, *sum + (n - 1) * seconds);
}

double hop_pipedream_latency(const double *seconds, int32_t stages, int32_t n)
{
    double sum = 0, most = 0;
    for (int32_t q = 0; q < stages; q++)
        most = add_stage(seconds[q], n, &sum, most);
    return most;
}

/* Forward and backward of the stage's slowest part. */
static double stage_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost,
                            int32_t pipeline, int32_t stage)
{
    double slowest = 0;
    for (int32_t p = hop_plan_stage_part(plan, pipeline, stage, -1); p >= 0;
         p = hop_plan_stage_part(plan, pipeline, stage, p)) {
        const struct hop_task forward = {.kind = HOP_FORWARD, .part = p};
        const struct hop_task backward = {.kind = HOP_BACKWARD, .part = p};
        slowest = fmax(slowest, hop_price_span(cost, plan, &forward) +
                                    hop_price_span(cost, plan, &backward));
    }
    return slowest;
}

static double pipeline_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t pipeline)
{
    const int32_t first = hop_plan_stage_part(plan, pipeline, 0, -1);
    const struct hop_range range = hop_part_micro_batches(&plan->parts[first], plan->micro_batches);
    double sum = 0, most = 0;
    for (int32_t q = 0; range.hi > range.lo && q < hop_plan_stages(plan, pipeline); q++)
        most = add_stage(stage_seconds(plan, cost, pipeline, q), range.hi - range.lo, &sum, most);
    return most;
}

double hop_pipedream_formula(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    double most = 0;
    for (int32_t i = 0; i < hop_plan_pipelines(plan); i++)
        most = fmax(most, pipeline_seconds(plan, cost, i));
    return most + hop_pipedream_reduce_seconds(plan, cost);
}

static double device_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost,
                             const struct hop_reductions *reductions, int32_t device)
{
    double sum = 0;
    for (int32_t r = 0; r < reductions->count; r++)
        for (int32_t i = 0; i < reductions->items[r].count; i++)
            if (plan->parts[reductions->items[r].parts[i]].device == device)
                sum += hop_price_reduction(cost, &reductions->items[r]);
    return sum;
}

double hop_pipedream_reduce_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_reductions reductions;
    struct hop_error unused = {0};
    double most = 0;
    if (hop_reductions_derive(plan, &reductions, &unused) != HOP_OK)
        return NAN;
    for (int32_t d = 0; d < plan->devices; d++)
        most = fmax(most, device_seconds(plan, cost, &reductions, d));
    hop_reductions_free(&reductions);
    return most;
}
