/* PipeDream-Flush: every device runs forward and backward of a stage, one forward, one backward,
 * and all micro-batches are done before the step. The split is the one that most comparisons use,
 * equal shares by averaged costs, as GPipe's; by its published objective (the slowest stage,
 * transfers included) it is PipeDream's own optimizer, which may also replicate stages. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "strategy/balance.h"
#include "strategy/crew.h"
#include "strategy/fixed_plan.h"
#include "strategy/parts.h"
#include "strategy/pipedream_flush.h"
#include "strategy/pipedream_optimizer.h"
#include "strategy/systems.h"

/* Stages of blocks [lo, hi), in order; their devices follow one another in the crew. */
struct split {
    struct hop_pipedream_stage *stages;
    int32_t count;
};

/* One device a stage. counts (devices of the crew). */
static void cut(const int32_t *counts, int32_t devices, struct split *split)
{
    int32_t lo = 0;
    for (int32_t i = 0; i < devices; i++) {
        split->stages[i] = (struct hop_pipedream_stage){lo, lo + counts[i], 1};
        lo += counts[i];
    }
    split->count = devices;
}

static hop_status split_evenly(const struct hop_plan_request *request, const struct hop_crew *crew,
                               const double *seconds, struct split *split, struct hop_error *err)
{
    int32_t *counts;
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&counts, (size_t)crew->count, sizeof *counts, err));
    for (int32_t i = 0; request->fixed_blocks && i < crew->count; i++)
        counts[i] = request->fixed_blocks[crew->devices[i]];
    if (!request->fixed_blocks)
        status = hop_balance(seconds, request->cost->blocks, crew->count, counts, err);
    if (status == HOP_OK)
        cut(counts, crew->count, split);
    free(counts);
    return status;
}

/* PipeDream knows one bandwidth: the least between any two devices. */
static double least_bandwidth(const struct hop_cost_table *cost, const struct hop_crew *crew)
{
    double least = INFINITY;
    for (int32_t i = 0; i < crew->count; i++)
        for (int32_t j = 0; j < crew->count; j++)
            if (i != j)
                least =
                    fmin(least,
                         cost->bandwidth[crew->devices[i] * cost->device_count + crew->devices[j]]);
    return least;
}

/* It exchanges the gradients of all weights for every micro-batch. Here only those of the adapters
 * are, once for M of them: W is an M-th of their bytes. */
static hop_status optimize(const struct hop_plan_request *request, const struct hop_crew *crew,
                           const double *seconds, struct split *split, struct hop_error *err)
{
    const struct hop_cost_table *const cost = request->cost;
    const size_t blocks = (size_t)cost->blocks;
    double *figures, best;
    HOP_TRY(hop_calloc(&figures, 3 * blocks, sizeof *figures, err));
    double *const done = figures, *const gradient = figures + blocks;
    double *const output = figures + 2 * blocks;
    for (size_t b = 0; b < blocks; b++) {
        done[b] = seconds[b] + (b ? done[b - 1] : 0);
        gradient[b] = cost->gradient_bytes[b] / request->micro_batches + (b ? gradient[b - 1] : 0);
        output[b] = b + 1 < blocks ? cost->boundary_bytes[b] : 0;
    }
    const struct hop_pipedream_model model = {cost->blocks, done, gradient, output, NULL};
    const hop_status status =
        hop_pipedream_optimize(&model, crew->count, least_bandwidth(cost, crew), false,
                               split->stages, &split->count, &best, err);
    free(figures);
    return status;
}

static hop_status find_split(const struct hop_plan_request *request, const struct hop_crew *crew,
                             struct split *split, struct hop_error *err)
{
    double *seconds;
    HOP_TRY(hop_calloc(&seconds, (size_t)request->cost->blocks, sizeof *seconds, err));
    hop_crew_average(crew, request->cost, seconds);
    const hop_status status = request->objective == HOP_OBJECTIVE_FORMULA && !request->fixed_blocks
                                  ? optimize(request, crew, seconds, split, err)
                                  : split_evenly(request, crew, seconds, split, err);
    free(seconds);
    return status;
}

/* Replicas share the samples of every micro-batch evenly. */
static void add_parts(const struct hop_crew *crew, const struct split *split, struct hop_plan *plan)
{
    for (int32_t s = 0, device = 0; s < split->count; s++) {
        const struct hop_pipedream_stage *const stage = &split->stages[s];
        for (int32_t i = 0; i < stage->replicas; i++, device++) {
            hop_plan_add_stage(plan, crew->devices[device], stage->lo, stage->hi,
                               HOP_GRADIENT_BACKPROP);
            struct hop_part *const part = &plan->parts[plan->part_count - 1];
            part->stage = s;
            part->sample_lo = (double)i / stage->replicas;
            part->sample_hi = (double)(i + 1) / stage->replicas;
        }
    }
}

static hop_status build(const struct hop_plan_request *request, const struct hop_crew *crew,
                        struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan = {0};
    struct split split = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&split.stages, (size_t)crew->count, sizeof *split.stages, err));
    HOP_TRY_DONE(find_split(request, crew, &split, err));
    HOP_TRY_DONE(hop_plan_begin(request, hop_strategy_pipedream.name, crew->count, &plan, err));
    plan.probes = plan.exit_probes = 0;
    add_parts(crew, &split, &plan);
    HOP_TRY_DONE(hop_crew_price(&hop_strategy_pipedream, request->cost, &plan, err));
    *out = plan;
    plan = (struct hop_plan){0};
done:
    free(split.stages);
    hop_plan_free(&plan);
    return status;
}

static hop_status plan_pipedream(const struct hop_plan_request *request, struct hop_plan *out,
                                 struct hop_error *err)
{
    struct hop_crew crew = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(hop_fixed_blocks_check(request, err));
    HOP_TRY_DONE(hop_crew_create(request, hop_strategy_pipedream.name, true, &crew, err));
    HOP_TRY_DONE(hop_crew_limit(request, &crew, err));
    HOP_TRY_DONE(build(request, &crew, out, err));
done:
    hop_crew_free(&crew);
    return status;
}

const struct hop_strategy hop_strategy_pipedream = {
    .name = "pipedream-flush",
    .summary = "equal shares on every device, one forward, one backward",
    .uses_fixed_blocks = true,
    .plan = plan_pipedream,
    .schedule = hop_pipedream_schedule,
    .formula = hop_pipedream_formula,
};
