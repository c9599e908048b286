/* The flat form of a schedule: HEADER words, then for each device the number of tasks and TASK
 * words a task. */
#include "schedule/schedule.h"

#include <stdlib.h>

#include "base/memory.h"

enum { MAGIC = 0x4853434a, HEADER = 6, TASK = 6 };

hop_status hop_schedule_encode(const struct hop_schedule *schedule, int32_t **words, size_t *count,
                               struct hop_error *err)
{
    size_t n = HEADER;
    for (int32_t d = 0; d < schedule->devices; d++)
        n += 1 + (size_t)schedule->lists[d].count * TASK;
    int32_t *out;
    HOP_TRY(hop_calloc(&out, n, sizeof *out, err));
    int32_t *w = out;
    *w++ = MAGIC;
    *w++ = schedule->micro_batches;
    *w++ = schedule->probes;
    *w++ = schedule->exit_probes;
    *w++ = schedule->training;
    *w++ = schedule->devices;
    for (int32_t d = 0; d < schedule->devices; d++) {
        const struct hop_task_list *const list = &schedule->lists[d];
        *w++ = list->count;
        for (int32_t i = 0; i < list->count; i++) {
            const struct hop_task *const task = &list->tasks[i];
            *w++ = (int32_t)task->kind;
            *w++ = task->part;
            *w++ = task->micro_batch;
            *w++ = task->probe_lo;
            *w++ = task->probe_hi;
            *w++ = task->reduction;
        }
    }
    *words = out;
    *count = n;
    return HOP_OK;
}

static hop_status damaged(struct hop_error *err, const char *what)
{
    return hop_fail(err, HOP_INPUT,
                    "schedule message: %s; do all ranks run the same build of hybridop?", what);
}

static hop_status decode_task(const int32_t *w, struct hop_task *task, struct hop_error *err)
{
    if (w[0] < 0 || w[0] >= HOP_TASK_KINDS)
        return damaged(err, "unknown kind of task");
    if (w[1] < 0 || w[2] < -1 || w[3] < 0 || w[4] < w[3] || w[5] < 0)
        return damaged(err, "task out of range");
    *task = (struct hop_task){(enum hop_task_kind)w[0], w[1], w[2], w[3], w[4], w[5]};
    return HOP_OK;
}

/* Reads one device's list at words[*at] and moves *at behind it. */
static hop_status decode_list(const int32_t *words, size_t count, size_t *at,
                              struct hop_task_list *list, struct hop_error *err)
{
    if (*at >= count)
        return damaged(err, "too short");
    const int32_t tasks = words[(*at)++];
    if (tasks < 0 || (size_t)tasks > (count - *at) / TASK)
        return damaged(err, "too short for its tasks");
    HOP_TRY(hop_calloc(&list->tasks, (size_t)tasks, sizeof *list->tasks, err));
    list->count = tasks;
    for (int32_t i = 0; i < tasks; i++, *at += TASK)
        HOP_TRY(decode_task(words + *at, &list->tasks[i], err));
    return HOP_OK;
}

hop_status hop_schedule_decode(const int32_t *words, size_t count, struct hop_schedule *out,
                               struct hop_error *err)
{
    if (count < HEADER || words[0] != MAGIC)
        return damaged(err, "no schedule");
    struct hop_schedule schedule = {.micro_batches = words[1],
                                    .probes = words[2],
                                    .exit_probes = words[3],
                                    .training = words[4] != 0,
                                    .devices = words[5]};
    if (schedule.micro_batches < 1 || schedule.probes < 0 || schedule.exit_probes < 0 ||
        schedule.devices < 1 || (size_t)schedule.devices > count - HEADER)
        return damaged(err, "sizes out of range");
    hop_status status = HOP_OK;
    size_t at = HEADER;
    HOP_TRY_DONE(
        hop_calloc(&schedule.lists, (size_t)schedule.devices, sizeof *schedule.lists, err));
    for (int32_t d = 0; d < schedule.devices; d++)
        HOP_TRY_DONE(decode_list(words, count, &at, &schedule.lists[d], err));
    if (at != count) {
        status = damaged(err, "longer than its tasks");
        goto done;
    }
    *out = schedule;
    schedule = (struct hop_schedule){0};
done:
    hop_schedule_free(&schedule);
    return status;
}
