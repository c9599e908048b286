#include "schedule/schedule.h"

#include <stdlib.h>

#include "base/memory.h"

/* Appends the forward of one micro-batch on every part, first stage first. */
static void add_micro_batch(const struct hop_plan *plan, int32_t m, struct hop_schedule *schedule)
{
    for (int32_t stage = 0; stage < plan->part_count; stage++) {
        for (int32_t p = 0; p < plan->part_count; p++) {
            if (plan->parts[p].stage != stage)
                continue;
            struct hop_task_list *const list = &schedule->lists[plan->parts[p].device];
            list->tasks[list->count++] =
                (struct hop_task){.kind = HOP_FORWARD, .part = p, .micro_batch = m};
        }
    }
}

static hop_status create_lists(const struct hop_plan *plan, struct hop_schedule *schedule,
                               struct hop_error *err)
{
    HOP_TRY(hop_calloc(&schedule->lists, (size_t)plan->devices, sizeof *schedule->lists, err));
    for (int32_t d = 0; d < plan->devices; d++) {
        size_t tasks = 0;
        for (int32_t p = 0; p < plan->part_count; p++)
            if (plan->parts[p].device == d)
                tasks += (size_t)schedule->micro_batches;
        struct hop_task_list *const list = &schedule->lists[d];
        HOP_TRY(hop_calloc(&list->tasks, tasks, sizeof *list->tasks, err));
    }
    return HOP_OK;
}

hop_status hop_schedule_evaluation(const struct hop_plan *plan, int32_t micro_batches,
                                   struct hop_schedule *out, struct hop_error *err)
{
    if (micro_batches < 1)
        return hop_fail(err, HOP_INPUT, "schedule: %d micro-batches; at least 1 is needed",
                        micro_batches);
    HOP_TRY(hop_plan_check(plan, err));
    struct hop_schedule schedule = {.micro_batches = micro_batches, .devices = plan->devices};
    const hop_status status = create_lists(plan, &schedule, err);
    if (status != HOP_OK) {
        hop_schedule_free(&schedule);
        return status;
    }
    for (int32_t m = 0; m < micro_batches; m++)
        add_micro_batch(plan, m, &schedule);
    *out = schedule;
    return HOP_OK;
}
