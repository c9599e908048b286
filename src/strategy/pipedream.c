/* PipeDream-Flush: every device runs forward and backward of a stage, one forward, one backward,
 * and all micro-batches are done before the step. The split is the one that most comparisons use,
 * equal shares by averaged costs, as GPipe's; by its published objective (the slowest stage,
 * transfers included) it is PipeDream's own optimizer, which may also replicate stages. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
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

static bool may_replicate(const struct hop_plan_request *request)
{
    return request->objective == HOP_OBJECTIVE_FORMULA && !request->fixed_blocks;
}

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
                               struct split *split, struct hop_error *err)
{
    int32_t *counts;
    HOP_TRY(hop_calloc(&counts, (size_t)crew->count, sizeof *counts, err));
    const hop_status status = hop_crew_deal(crew, request, counts, err);
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

/* Running sums over the blocks, of devices that PipeDream takes for equal. */
struct figures {
    double *storage, *seconds, *gradient, *output, *held, *kept;
};

/* It exchanges the gradients of all weights for every micro-batch. Here only those of the adapters
 * are, once for M of them: W is an M-th of their bytes. */
static void sum_block(const struct hop_plan_request *request, const struct hop_crew *crew,
                      double seconds, int32_t b, struct figures *figures)
{
    const struct hop_cost_table *const cost = request->cost;
    const bool first = b == 0;
    double held = 0, kept = 0;
    for (int32_t i = 0; i < crew->count; i++) {
        held = fmax(held, cost->devices[crew->devices[i]].state_bytes[b]);
        kept = fmax(kept, cost->devices[crew->devices[i]].activation_bytes[b]);
    }
    figures->seconds[b] = seconds + (first ? 0 : figures->seconds[b - 1]);
    figures->gradient[b] =
        cost->gradient_bytes[b] / request->micro_batches + (first ? 0 : figures->gradient[b - 1]);
    figures->output[b] = b + 1 < cost->blocks ? cost->boundary_bytes[b] : 0;
    figures->held[b] = held + (first ? 0 : figures->held[b - 1]);
    figures->kept[b] = kept + (first ? 0 : figures->kept[b - 1]);
}

static hop_status create_figures(const struct hop_plan_request *request,
                                 const struct hop_crew *crew, const double *seconds,
                                 struct figures *figures, struct hop_error *err)
{
    const size_t blocks = (size_t)request->cost->blocks;
    HOP_TRY(hop_calloc(&figures->storage, 5 * blocks, sizeof(double), err));
    figures->seconds = figures->storage;
    figures->gradient = figures->storage + blocks;
    figures->output = figures->storage + 2 * blocks;
    figures->held = figures->storage + 3 * blocks;
    figures->kept = figures->storage + 4 * blocks;
    for (int32_t b = 0; b < request->cost->blocks; b++)
        sum_block(request, crew, seconds[b], b, figures);
    return HOP_OK;
}

static double least_memory(const struct hop_cost_table *cost, const struct hop_crew *crew)
{
    double least = INFINITY;
    for (int32_t i = 0; i < crew->count; i++) {
        const struct hop_cost_device *const device = &cost->devices[crew->devices[i]];
        least = fmin(least, device->memory - device->fixed_bytes);
    }
    return least;
}

/* A replica has a row of every micro-batch. */
static int32_t most_replicas(const struct hop_cost_table *cost)
{
    const double samples = cost->micro_batch_samples;
    return samples < 1 ? 1 : samples < INT32_MAX ? (int32_t)samples : INT32_MAX;
}

static hop_status optimize(const struct hop_plan_request *request, const struct hop_crew *crew,
                           const double *seconds, struct split *split, struct hop_error *err)
{
    struct figures figures;
    double best;
    HOP_TRY(create_figures(request, crew, seconds, &figures, err));
    const struct hop_pipedream_model model = {.states = request->cost->blocks,
                                              .seconds = figures.seconds,
                                              .gradient = figures.gradient,
                                              .output = figures.output,
                                              .most_replicas = most_replicas(request->cost),
                                              .held = figures.held,
                                              .kept = figures.kept,
                                              .memory = least_memory(request->cost, crew),
                                              .most_kept = request->micro_batches};
    hop_status status =
        hop_pipedream_optimize(&model, crew->count, least_bandwidth(request->cost, crew), false,
                               split->stages, &split->count, &best, err);
    if (status == HOP_OK && split->count == 0)
        status = hop_fail(err, HOP_INFEASIBLE,
                          "plan: no stages of the %d blocks, replicated or not, fit %d devices of "
                          "%.4g bytes, the least they have; take devices out, use a smaller "
                          "micro-batch, or set objective: simulated",
                          model.states, crew->count, model.memory);
    free(figures.storage);
    return status;
}

static hop_status find_split(const struct hop_plan_request *request, const struct hop_crew *crew,
                             struct split *split, struct hop_error *err)
{
    double *seconds;
    if (!may_replicate(request))
        return split_evenly(request, crew, split, err);
    HOP_TRY(hop_calloc(&seconds, (size_t)request->cost->blocks, sizeof *seconds, err));
    hop_crew_average(crew, request->cost, seconds);
    const hop_status status = optimize(request, crew, seconds, split, err);
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
    HOP_TRY_DONE(
        hop_plan_begin_exact(request, hop_strategy_pipedream.name, crew->count, &plan, err));
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
    if (!may_replicate(request) || request->devices == HOP_DEVICES_AUTO)
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
