#include "schedule/task_index.h"

#include <stdlib.h>

#include "base/memory.h"

static hop_status out_of_range(const struct hop_task *task, int32_t device, const char *what,
                               struct hop_error *err)
{
    char text[HOP_TASK_TEXT];
    hop_task_describe(task, text, sizeof text);
    return hop_fail(err, HOP_INPUT, "schedule: device %d: %s: %s", device, text, what);
}

static bool has_its_probes(const struct hop_schedule *schedule, const struct hop_task *task)
{
    if (task->kind != HOP_PROBE && task->kind != HOP_EXIT_PROBE)
        return task->probe_lo == 0 && task->probe_hi == 0;
    const int32_t probes = task->kind == HOP_PROBE ? schedule->probes : schedule->exit_probes;
    return task->probe_lo >= 0 && task->probe_lo < task->probe_hi && task->probe_hi <= probes;
}

static hop_status check_task(const struct hop_plan *plan, const struct hop_schedule *schedule,
                             int32_t device, const struct hop_task *task, struct hop_error *err)
{
    if ((int)task->kind < 0 || task->kind >= HOP_TASK_KINDS)
        return out_of_range(task, device, "no such kind of task", err);
    if (task->part < 0 || task->part >= plan->part_count)
        return out_of_range(task, device, "the plan has no such part", err);
    if (task->kind == HOP_STEP || task->kind == HOP_REDUCE
            ? task->micro_batch != -1
            : task->micro_batch < 0 || task->micro_batch >= schedule->micro_batches)
        return out_of_range(task, device, "there is no such micro-batch", err);
    if (!has_its_probes(schedule, task))
        return out_of_range(task, device, "there are no such probes", err);
    if (task->reduction < 0 || (task->kind != HOP_REDUCE && task->reduction > 0))
        return out_of_range(task, device, "there is no such reduction", err);
    return HOP_OK;
}

static hop_status check_tasks(const struct hop_plan *plan, const struct hop_schedule *schedule,
                              size_t *total, struct hop_error *err)
{
    if (schedule->devices != plan->devices)
        return hop_fail(err, HOP_INPUT, "schedule: it is for %d devices, the plan for %d",
                        schedule->devices, plan->devices);
    if (schedule->micro_batches < 1 || schedule->probes < 0 || schedule->exit_probes < 0)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d micro-batches, %d probes and %d exit probes; at least 1, 0 "
                        "and 0 are needed",
                        schedule->micro_batches, schedule->probes, schedule->exit_probes);
    size_t tasks = 0;
    for (int32_t d = 0; d < schedule->devices; d++) {
        for (int32_t i = 0; i < schedule->lists[d].count; i++)
            HOP_TRY(check_task(plan, schedule, d, &schedule->lists[d].tasks[i], err));
        tasks += (size_t)schedule->lists[d].count;
    }
    /* Also keeps the index in proportion to a schedule that came by message. */
    if (tasks < (size_t)schedule->micro_batches)
        return hop_fail(err, HOP_INPUT,
                        "schedule: %zu tasks for %d micro-batches; FORWARDs are missing", tasks,
                        schedule->micro_batches);
    *total = tasks;
    return HOP_OK;
}

static size_t key_of(const struct hop_task_index *index, enum hop_task_kind kind, int32_t part,
                     int32_t micro_batch)
{
    const size_t row = (size_t)kind * (size_t)index->parts + (size_t)part;
    return row * (size_t)index->micro_batches + (size_t)(micro_batch < 0 ? 0 : micro_batch);
}

/* Counting sort by key: begin[key] first counts, then ends where the next key begins. */
static void fill(struct hop_task_index *index, const struct hop_schedule *schedule, size_t keys)
{
    for (int32_t d = 0; d < schedule->devices; d++)
        for (int32_t i = 0; i < schedule->lists[d].count; i++) {
            const struct hop_task *const task = &schedule->lists[d].tasks[i];
            index->begin[key_of(index, task->kind, task->part, task->micro_batch)]++;
        }
    size_t sum = 0;
    for (size_t k = 0; k <= keys; k++)
        sum = index->begin[k] += sum;
    for (int32_t d = schedule->devices - 1; d >= 0; d--)
        for (int32_t i = schedule->lists[d].count - 1; i >= 0; i--) {
            const struct hop_task *const task = &schedule->lists[d].tasks[i];
            const size_t key = key_of(index, task->kind, task->part, task->micro_batch);
            index->refs[--index->begin[key]] = (struct hop_task_ref){d, i};
        }
}

hop_status hop_task_index_create(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                 struct hop_task_index *out, struct hop_error *err)
{
    size_t total = 0;
    HOP_TRY(check_tasks(plan, schedule, &total, err));
    struct hop_task_index index = {.parts = plan->part_count,
                                   .micro_batches = schedule->micro_batches};
    const size_t keys = (size_t)HOP_TASK_KINDS * (size_t)index.parts * (size_t)index.micro_batches;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&index.begin, keys + 1, sizeof *index.begin, err));
    HOP_TRY_DONE(hop_calloc(&index.refs, total, sizeof *index.refs, err));
    fill(&index, schedule, keys);
    *out = index;
    index = (struct hop_task_index){0};
done:
    hop_task_index_free(&index);
    return status;
}

void hop_task_index_free(struct hop_task_index *index)
{
    if (!index)
        return;
    free(index->begin);
    free(index->refs);
    *index = (struct hop_task_index){0};
}

const struct hop_task_ref *hop_task_index_find(const struct hop_task_index *index,
                                               enum hop_task_kind kind, int32_t part,
                                               int32_t micro_batch, int32_t *count)
{
    const size_t key = key_of(index, kind, part, micro_batch);
    *count = (int32_t)(index->begin[key + 1] - index->begin[key]);
    return index->refs + index->begin[key];
}
