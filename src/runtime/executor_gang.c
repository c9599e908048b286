/* Shards that run a stage together: their hidden states are added up inside FORWARD and BACKWARD.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/executor_internal.h"
#include "schedule/plan_shard.h"

static hop_status join(struct hop_executor *executor, struct hop_executor_part *part,
                       struct hop_error *err)
{
    const struct hop_plan *const plan = executor->plan;
    int32_t *devices, count = 0;
    HOP_TRY(hop_calloc(&devices, (size_t)plan->part_count, sizeof *devices, err));
    for (int32_t p = -1; (p = hop_plan_shard(plan, part->index, p)) >= 0;)
        devices[count++] = plan->parts[p].device;
    part->gang = hop_circle_join(executor, devices, count);
    part->gang_id = hop_plan_shard(plan, part->index, -1);
    free(devices);
    return HOP_OK;
}

hop_status hop_executor_gang_create(struct hop_executor *executor, struct hop_executor_part *part,
                                    struct hop_error *err)
{
    const struct hop_executor_config *const config = &executor->config;
    part->shard = hop_plan_shard_of(executor->plan, &config->model, part->index);
    part->model = hop_shard_model(&config->model, &part->shard);
    if (hop_shard_is_whole(&part->shard))
        return HOP_OK;
    HOP_TRY(join(executor, part, err));
    const size_t exchanged =
        (size_t)config->part_limits[part->index].tokens * (size_t)config->model.hidden;
    const size_t chunk = hop_circle_chunk(&part->gang, exchanged, config->dtype);
    executor->chunk_bytes = chunk > executor->chunk_bytes ? chunk : executor->chunk_bytes;
    return HOP_OK;
}

bool hop_pass_is_joint(const struct hop_executor_pass *pass, const struct hop_task *task)
{
    const struct hop_executor_part *const part = hop_pass_part(pass, task);
    return (task->kind == HOP_FORWARD || task->kind == HOP_BACKWARD) && part->gang.count > 1 &&
           part->gang.timed;
}

static int32_t tag_of(const struct hop_executor_pass *pass, const struct hop_executor_part *part)
{
    return hop_route_reduction_tag(pass->route, pass->executor->reductions.count) + part->gang_id;
}

hop_status hop_pass_meet_gang(struct hop_executor_pass *pass, const struct hop_task *task,
                              struct hop_error *err)
{
    const struct hop_executor_part *const part = hop_pass_part(pass, task);
    if (!pass->emulation || !hop_pass_is_joint(pass, task))
        return HOP_OK;
    return hop_circle_meet(pass, &part->gang, tag_of(pass, part), err);
}

hop_status hop_executor_exchange(void *context, void *values, size_t count, enum hop_dtype dtype,
                                 struct hop_error *err)
{
    const struct hop_executor_part *const part = context;
    const struct hop_executor_pass *const pass = part->executor->pass;
    const double began = hop_clock_now();
    const hop_status status =
        hop_circle_add_up(pass, &part->gang, values, count, dtype, tag_of(pass, part), err);
    part->executor->exchanging += hop_clock_now() - began;
    return status;
}
