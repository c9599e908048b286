#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

const char *const hop_task_kind_names[] = {"FORWARD", "BACKWARD", "PROBE", "EXIT_PROBE",
                                           "DELTA",   "REDUCE",   "STEP",  NULL};
const char *const hop_payload_names[] = {"activation", "gradient",  "probe activation",
                                         "derivative", "base loss", NULL};

void hop_schedule_free(struct hop_schedule *schedule)
{
    if (!schedule)
        return;
    for (int32_t d = 0; schedule->lists && d < schedule->devices; d++)
        free(schedule->lists[d].tasks);
    free(schedule->lists);
    *schedule = (struct hop_schedule){0};
}

void hop_task_describe(const struct hop_task *task, char *text, size_t size)
{
    const bool known = (int)task->kind >= 0 && task->kind < HOP_TASK_KINDS;
    const char *const kind = known ? hop_task_kind_names[task->kind] : "unknown task";
    if (known && task->kind == HOP_REDUCE)
        snprintf(text, size, "%s %d of part %d", kind, task->reduction, task->part);
    else if (task->micro_batch < 0)
        snprintf(text, size, "%s of part %d", kind, task->part);
    else if (task->probe_hi > task->probe_lo)
        snprintf(text, size, "%s of part %d, micro-batch %d, probes [%d, %d)", kind, task->part,
                 task->micro_batch, task->probe_lo, task->probe_hi);
    else
        snprintf(text, size, "%s of part %d, micro-batch %d", kind, task->part, task->micro_batch);
}

static bool is_alike(const struct hop_task *a, const struct hop_task *b)
{
    return a->kind == b->kind && a->part == b->part && a->micro_batch == b->micro_batch;
}

bool hop_task_list_is_first(const struct hop_task_list *list, int32_t index)
{
    for (int32_t i = index - 1; i >= 0; i--)
        if (is_alike(&list->tasks[i], &list->tasks[index]))
            return false;
    return true;
}

bool hop_task_list_is_last(const struct hop_task_list *list, int32_t index)
{
    for (int32_t i = index + 1; i < list->count; i++)
        if (is_alike(&list->tasks[i], &list->tasks[index]))
            return false;
    return true;
}

/* part -1: any. */
static bool has_task(const struct hop_schedule *schedule, enum hop_task_kind kind, int32_t part)
{
    for (int32_t d = 0; d < schedule->devices; d++)
        for (int32_t i = 0; i < schedule->lists[d].count; i++) {
            const struct hop_task *const task = &schedule->lists[d].tasks[i];
            if (task->kind == kind && (part < 0 || task->part == part))
                return true;
        }
    return false;
}

/* The kind of task that frees what FORWARD kept; HOP_TASK_KINDS: nothing is kept. */
static enum hop_task_kind freed_by(const struct hop_schedule *schedule, int32_t part)
{
    if (has_task(schedule, HOP_BACKWARD, part))
        return HOP_BACKWARD;
    if (!has_task(schedule, HOP_DELTA, -1))
        return HOP_TASK_KINDS;
    if (has_task(schedule, HOP_PROBE, part))
        return HOP_PROBE;
    return has_task(schedule, HOP_DELTA, part) ? HOP_DELTA : HOP_TASK_KINDS;
}

/* Only PROBEs may be several a micro-batch. */
static bool is_start(const struct hop_task_list *list, int32_t i, enum hop_task_kind kind)
{
    return list->tasks[i].kind == kind && (kind != HOP_PROBE || hop_task_list_is_first(list, i));
}

static bool is_end(const struct hop_task_list *list, int32_t i, enum hop_task_kind kind)
{
    return list->tasks[i].kind == kind && (kind != HOP_PROBE || hop_task_list_is_last(list, i));
}

/* Micro-batches between their first task of kind `from` and their last of kind `to`, at most. */
static int32_t most_between(const struct hop_schedule *schedule, int32_t part,
                            enum hop_task_kind from, enum hop_task_kind to)
{
    int32_t kept = 0, most = 0;
    for (int32_t d = 0; d < schedule->devices; d++) {
        const struct hop_task_list *const list = &schedule->lists[d];
        for (int32_t i = 0; i < list->count; i++) {
            if (list->tasks[i].part != part)
                continue;
            if (is_start(list, i, from) && ++kept > most)
                most = kept;
            kept -= is_end(list, i, to);
        }
    }
    return most;
}

int32_t hop_schedule_slots(const struct hop_schedule *schedule, int32_t part)
{
    const enum hop_task_kind freed = freed_by(schedule, part);
    return freed == HOP_TASK_KINDS ? 0 : most_between(schedule, part, HOP_FORWARD, freed);
}

int32_t hop_schedule_pending(const struct hop_schedule *schedule, int32_t part)
{
    return has_task(schedule, HOP_DELTA, part) ? most_between(schedule, part, HOP_PROBE, HOP_DELTA)
                                               : 0;
}

int32_t hop_schedule_probe_batch(const struct hop_schedule *schedule, int32_t part)
{
    int32_t most = 0;
    for (int32_t d = 0; d < schedule->devices; d++) {
        const struct hop_task_list *const list = &schedule->lists[d];
        for (int32_t i = 0; i < list->count; i++) {
            const struct hop_task *const task = &list->tasks[i];
            const int32_t batch = task->probe_hi - task->probe_lo;
            if (task->part == part && batch > most)
                most = batch;
        }
    }
    return most;
}
