/* Gradients of the copies of blocks, and of the factors that shards share, are added up. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/executor_internal.h"

hop_status hop_executor_reductions_create(struct hop_executor *executor, struct hop_error *err)
{
    HOP_TRY(hop_reductions_derive(executor->plan, &executor->reductions, err));
    return hop_calloc(&executor->reduction, (size_t)executor->reductions.count,
                      sizeof *executor->reduction, err);
}

static size_t parameters_between(const struct hop_executor *executor, int32_t lo, int32_t hi)
{
    return (size_t)hop_lora_parameters(&executor->config.model, &executor->config.lora, lo, hi);
}

/* The gradients of whole blocks stand together. */
static void take_blocks(const struct hop_executor *executor, const struct hop_reduction *reduction,
                        const struct hop_executor_part *part, struct hop_executor_reduction *out)
{
    const int32_t lo = executor->plan->parts[part->index].lo;
    out->offset = parameters_between(executor, lo, reduction->lo);
    out->total = parameters_between(executor, reduction->lo, reduction->hi);
}

static void take_factors(const struct hop_executor *executor, const struct hop_reduction *reduction,
                         const struct hop_executor_part *part, struct hop_executor_reduction *out)
{
    out->collects = true;
    out->sum = (struct hop_shard_sum){.lo = reduction->lo,
                                      .hi = reduction->hi,
                                      .shared = reduction->factors == HOP_FACTORS_SHARED,
                                      .piece = {.lo = reduction->tensor_lo,
                                                .hi = reduction->tensor_hi,
                                                .cuts_groups = part->shard.cuts_groups}};
    out->total =
        hop_shard_sum_count(&executor->config.model, &out->sum, hop_stage_parameters(part->stage));
}

static void join(const struct hop_executor *executor, const struct hop_reduction *reduction,
                 struct hop_executor_reduction *out)
{
    out->circle = hop_circle_join(executor, reduction->devices, reduction->count);
    if (out->circle.count == 0)
        return;
    const int32_t index = reduction->parts[out->circle.place];
    const struct hop_executor_part *const part = &executor->parts[executor->part_of[index]];
    if (reduction->factors == HOP_FACTORS_ALL)
        take_blocks(executor, reduction, part, out);
    else
        take_factors(executor, reduction, part, out);
}

hop_status hop_executor_reductions_join(struct hop_executor *executor, struct hop_error *err)
{
    size_t collected = 0;
    for (int32_t i = 0; i < executor->reductions.count; i++) {
        struct hop_executor_reduction *const r = &executor->reduction[i];
        join(executor, &executor->reductions.items[i], r);
        const size_t chunk = hop_circle_chunk(&r->circle, r->total, HOP_F32);
        executor->chunk_bytes = chunk > executor->chunk_bytes ? chunk : executor->chunk_bytes;
        if (r->collects && r->total > collected)
            collected = r->total;
    }
    executor->held += executor->chunk_bytes + collected * sizeof(float);
    HOP_TRY(hop_calloc(&executor->collected, collected, sizeof *executor->collected, err));
    return hop_calloc(&executor->chunk, executor->chunk_bytes, 1, err);
}

void hop_executor_reductions_free(struct hop_executor *executor)
{
    hop_reductions_free(&executor->reductions);
    free(executor->reduction);
    free(executor->collected);
    free(executor->chunk);
}

static bool is_timed(const struct hop_executor_pass *pass, const struct hop_executor_reduction *r)
{
    return pass->emulation && r->circle.timed;
}

static hop_status add_up(const struct hop_executor_pass *pass,
                         const struct hop_executor_reduction *r,
                         const struct hop_executor_part *part, int32_t tag, struct hop_error *err)
{
    const struct hop_model_config *const model = &pass->executor->config.model;
    struct hop_parameters *const parameters = hop_stage_parameters(part->stage);
    float *const collected = pass->executor->collected;
    if (!r->collects)
        return hop_circle_add_up(pass, &r->circle, parameters->gradients + r->offset, r->total,
                                 HOP_F32, tag, err);
    hop_shard_sum_take(model, &part->shard, &r->sum, parameters, parameters->gradients, collected);
    HOP_TRY(hop_circle_add_up(pass, &r->circle, collected, r->total, HOP_F32, tag, err));
    hop_shard_sum_put(model, &part->shard, &r->sum, parameters, collected, parameters->gradients);
    return HOP_OK;
}

hop_status hop_pass_reduce(struct hop_executor_pass *pass, const struct hop_task *task,
                           double *start, double *end, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_executor_reduction *const r = &executor->reduction[task->reduction];
    const int32_t tag = hop_route_reduction_tag(pass->route, task->reduction);
    *start = hop_clock_now();
    if (is_timed(pass, r))
        HOP_TRY(hop_circle_meet(pass, &r->circle, tag, err));
    HOP_TRY(add_up(pass, r, hop_pass_part(pass, task), tag, err));
    *end = hop_clock_now();
    if (is_timed(pass, r))
        hop_emulation_reduced(pass->emulation, &executor->reductions.items[task->reduction], *start,
                              start, end);
    else if (pass->emulation)
        hop_emulation_arrived(pass->emulation, *end);
    return HOP_OK;
}
