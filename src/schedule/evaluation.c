#include "schedule/schedule.h"

#include <stdlib.h>

#include "base/memory.h"

/* Of one part, and the order in which a micro-batch reaches it. */
struct visit {
    int32_t part, stage, gang;
};

/* By stage; the shards of a gang stand side by side, so that all devices meet in the same order. */
static int compare_visits(const void *left, const void *right)
{
    const struct visit *const a = left, *const b = right;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->gang != b->gang)
        return a->gang < b->gang ? -1 : 1;
    return a->part < b->part ? -1 : a->part > b->part;
}

static hop_status list_visits(const struct hop_plan *plan, struct visit **out,
                              struct hop_error *err)
{
    struct visit *visits;
    const size_t parts = (size_t)plan->part_count;
    HOP_TRY(hop_calloc(&visits, parts, sizeof *visits, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        visits[p] = (struct visit){p, plan->parts[p].stage, hop_plan_shard(plan, p, -1)};
    qsort(visits, parts, sizeof *visits, compare_visits);
    *out = visits;
    return HOP_OK;
}

/* Appends the forward of the k-th micro-batch of every pipeline on all of its parts. */
static void add_micro_batch(const struct hop_plan *plan, const struct visit *visits, int32_t k,
                            struct hop_schedule *schedule)
{
    for (int32_t i = 0; i < plan->part_count; i++) {
        const struct hop_part *const part = &plan->parts[visits[i].part];
        const struct hop_range range = hop_part_micro_batches(part, schedule->micro_batches);
        if (k >= range.hi - range.lo)
            continue;
        struct hop_task_list *const list = &schedule->lists[part->device];
        list->tasks[list->count++] = (struct hop_task){
            .kind = HOP_FORWARD, .part = visits[i].part, .micro_batch = range.lo + k};
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
    struct visit *visits = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(list_visits(plan, &visits, err));
    HOP_TRY_DONE(create_lists(plan, &schedule, err));
    for (int32_t k = 0; k < micro_batches; k++)
        add_micro_batch(plan, visits, k, &schedule);
    *out = schedule;
    schedule = (struct hop_schedule){0};
done:
    free(visits);
    hop_schedule_free(&schedule);
    return status;
}
