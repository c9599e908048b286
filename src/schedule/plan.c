#include "schedule/plan.h"

#include <stdlib.h>

#include "schedule/estimator.h"

void hop_plan_free(struct hop_plan *plan)
{
    if (!plan)
        return;
    free(plan->parts);
    plan->parts = NULL;
    plan->part_count = 0;
}

const char *const hop_collective_names[] = {"all-reduce", "all-gather", NULL};
const char *const hop_estimator_names[] = {"difference", "central", "boundary", "feedback", NULL};
const char *const hop_directions_names[] = {"shared", "per-sample", NULL};
const char *const hop_exit_base_names[] = {"own", "full-model", NULL};

int32_t hop_plan_pipelines(const struct hop_plan *plan)
{
    int32_t count = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].pipeline >= count)
            count = plan->parts[p].pipeline + 1;
    return count;
}

int32_t hop_plan_stages(const struct hop_plan *plan, int32_t pipeline)
{
    int32_t count = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].pipeline == pipeline && plan->parts[p].stage >= count)
            count = plan->parts[p].stage + 1;
    return count;
}

int32_t hop_plan_stage_part(const struct hop_plan *plan, int32_t pipeline, int32_t stage,
                            int32_t after)
{
    for (int32_t p = after + 1; p < plan->part_count; p++)
        if (plan->parts[p].pipeline == pipeline && plan->parts[p].stage == stage)
            return p;
    return -1;
}

int32_t hop_plan_shard(const struct hop_plan *plan, int32_t part, int32_t after)
{
    const struct hop_part *const of = &plan->parts[part];
    for (int32_t p = after + 1; p < plan->part_count; p++) {
        const struct hop_part *const other = &plan->parts[p];
        if (other->pipeline == of->pipeline && other->stage == of->stage &&
            other->sample_lo == of->sample_lo && other->sample_hi == of->sample_hi)
            return p;
    }
    return -1;
}

int32_t hop_plan_shards(const struct hop_plan *plan, int32_t part)
{
    int32_t count = 0;
    for (int32_t p = hop_plan_shard(plan, part, -1); p >= 0; p = hop_plan_shard(plan, part, p))
        count++;
    return count;
}

static bool is_whole(double lo, double hi)
{
    return lo == 0 && hi == 1;
}

bool hop_plan_is_line(const struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->pipeline != 0 || !is_whole(part->sample_lo, part->sample_hi) ||
            !is_whole(part->tensor_lo, part->tensor_hi) ||
            !is_whole(part->micro_lo, part->micro_hi))
            return false;
    }
    return hop_plan_stages(plan, 0) == plan->part_count;
}

int32_t hop_plan_previous(const struct hop_plan *plan, int32_t part)
{
    return hop_plan_stage_part(plan, plan->parts[part].pipeline, plan->parts[part].stage - 1, -1);
}

int32_t hop_plan_next(const struct hop_plan *plan, int32_t part)
{
    return hop_plan_stage_part(plan, plan->parts[part].pipeline, plan->parts[part].stage + 1, -1);
}

int32_t hop_plan_head(const struct hop_plan *plan, int32_t part)
{
    const int32_t pipeline = plan->parts[part].pipeline;
    return hop_plan_stage_part(plan, pipeline, hop_plan_stages(plan, pipeline) - 1, -1);
}

struct hop_range hop_part_rows(const struct hop_part *part, int32_t rows)
{
    return hop_share_range(part->sample_lo, part->sample_hi, rows);
}

struct hop_range hop_part_micro_batches(const struct hop_part *part, int32_t n)
{
    return hop_share_range(part->micro_lo, part->micro_hi, n);
}

bool hop_part_handles(const struct hop_part *part, int32_t micro_batches, int32_t m)
{
    const struct hop_range range = hop_part_micro_batches(part, micro_batches);
    return range.lo <= m && m < range.hi;
}

bool hop_plan_has_zeroth_order(const struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient == HOP_GRADIENT_ZEROTH_ORDER)
            return true;
    return false;
}

bool hop_plan_sends_gradient(const struct hop_plan *plan, int32_t part)
{
    const int32_t previous = hop_plan_previous(plan, part);
    return previous >= 0 && hop_plan_gradient_task(plan, part) != HOP_TASK_KINDS &&
           hop_plan_gradient_task(plan, previous) != HOP_TASK_KINDS;
}
