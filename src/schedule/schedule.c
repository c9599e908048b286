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

int32_t hop_schedule_slots(const struct hop_schedule *schedule, int32_t part)
{
    int32_t kept = 0, most = 0;
    bool backward = false;
    for (int32_t d = 0; d < schedule->devices; d++) {
        const struct hop_task_list *const list = &schedule->lists[d];
        for (int32_t i = 0; i < list->count; i++) {
            if (list->tasks[i].part != part)
                continue;
            if (list->tasks[i].kind == HOP_BACKWARD) {
                backward = true;
                kept--;
            } else if (list->tasks[i].kind == HOP_FORWARD && ++kept > most) {
                most = kept;
            }
        }
    }
    return backward ? most : 0;
}

int32_t hop_schedule_probe_batch(const struct hop_schedule *schedule, int32_t part)
{
    int32_t most = 0;
    for (int32_t d = 0; d < schedule->devices; d++) {
        const struct hop_task_list *const list = &schedule->lists[d];
        for (int32_t i = 0; i < list->count; i++) {
            const struct hop_task *const task = &list->tasks[i];
            const int32_t batch = task->probe_hi - task->probe_lo;
            if (task->part == part && task->kind == HOP_PROBE && batch > most)
                most = batch;
        }
    }
    return most;
}
