#include "schedule/meeting.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/task_index.h"

struct builder {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    const struct hop_reductions *reductions;
    bool *in_gang; /* (parts) */
    struct hop_task_index index;
    struct hop_meeting *items;
    size_t count, capacity;
    struct hop_task_ref *members; /* of the items, one after the other */
    size_t member_count, member_capacity;
};

static const struct hop_task *task_at(const struct builder *b, int32_t device, int32_t task)
{
    return &b->schedule->lists[device].tasks[task];
}

static bool meets(const struct builder *b, const struct hop_task *task)
{
    switch (task->kind) {
    case HOP_FORWARD:
    case HOP_BACKWARD:
        return b->in_gang[task->part];
    case HOP_REDUCE:
        return true;
    default:
        return false;
    }
}

static hop_status check_reduction(const struct builder *b, const struct hop_task *task,
                                  struct hop_error *err)
{
    if (task->kind != HOP_REDUCE)
        return HOP_OK;
    if (task->reduction < b->reductions->count &&
        hop_reduction_has(&b->reductions->items[task->reduction], task->part))
        return HOP_OK;
    char text[HOP_TASK_TEXT];
    hop_task_describe(task, text, sizeof text);
    return hop_fail(err, HOP_INPUT, "schedule: %s is nothing the plan asks for", text);
}

/* The one task like `task` of another part. */
static hop_status find_partner(const struct builder *b, const struct hop_task *task, int32_t part,
                               struct hop_task_ref *out, struct hop_error *err)
{
    int32_t count, found = 0;
    const struct hop_task_ref *const refs =
        hop_task_index_find(&b->index, task->kind, part, task->micro_batch, &count);
    for (int32_t i = 0; i < count; i++) {
        if (task_at(b, refs[i].device, refs[i].task)->reduction != task->reduction)
            continue;
        *out = refs[i];
        found++;
    }
    if (found == 1)
        return HOP_OK;
    struct hop_task partner = *task;
    char here[HOP_TASK_TEXT], there[HOP_TASK_TEXT];
    partner.part = part;
    hop_task_describe(task, here, sizeof here);
    hop_task_describe(&partner, there, sizeof there);
    return hop_fail(err, HOP_INPUT, "schedule: %s runs together with %s, which is %s", here, there,
                    found ? "there more than once" : "missing");
}

/* The next part behind `after` that takes part; -1: none. */
static int32_t next_part(const struct builder *b, const struct hop_task *task, int32_t after)
{
    if (task->kind != HOP_REDUCE)
        return hop_plan_shard(b->plan, task->part, after);
    const struct hop_reduction *const reduction = &b->reductions->items[task->reduction];
    for (int32_t i = 0; i < reduction->count; i++)
        if (reduction->parts[i] > after)
            return reduction->parts[i];
    return -1;
}

static hop_status add_members(struct builder *b, const struct hop_task *task, struct hop_error *err)
{
    for (int32_t p = next_part(b, task, -1); p >= 0; p = next_part(b, task, p)) {
        struct hop_task_ref member = {0};
        HOP_TRY(find_partner(b, task, p, &member, err));
        HOP_TRY(hop_grow(&b->members, &b->member_capacity, b->member_count + 1, sizeof *b->members,
                         err));
        b->members[b->member_count++] = member;
    }
    return HOP_OK;
}

static bool is_first(const struct builder *b, size_t begin, int32_t device, int32_t task)
{
    for (size_t i = begin; i < b->member_count; i++)
        if (b->members[i].device < device ||
            (b->members[i].device == device && b->members[i].task < task))
            return false;
    return true;
}

/* Each member finds the same others; the first one adds them. */
static hop_status add_meeting(struct builder *b, int32_t device, int32_t task,
                              struct hop_error *err)
{
    const size_t begin = b->member_count;
    HOP_TRY(check_reduction(b, task_at(b, device, task), err));
    HOP_TRY(add_members(b, task_at(b, device, task), err));
    if (!is_first(b, begin, device, task)) {
        b->member_count = begin;
        return HOP_OK;
    }
    HOP_TRY(hop_grow(&b->items, &b->capacity, b->count + 1, sizeof *b->items, err));
    b->items[b->count++] = (struct hop_meeting){.count = (int32_t)(b->member_count - begin)};
    return HOP_OK;
}

static hop_status add_meetings(struct builder *b, struct hop_error *err)
{
    for (int32_t d = 0; d < b->schedule->devices; d++)
        for (int32_t i = 0; i < b->schedule->lists[d].count; i++)
            if (meets(b, task_at(b, d, i)))
                HOP_TRY(add_meeting(b, d, i, err));
    return HOP_OK;
}

/* Does anything meet at all? */
static bool has_meetings(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    bool found = !hop_plan_is_line(plan);
    for (int32_t d = 0; d < schedule->devices && !found; d++)
        for (int32_t i = 0; i < schedule->lists[d].count && !found; i++)
            found = schedule->lists[d].tasks[i].kind == HOP_REDUCE;
    return found;
}

static hop_status find_gangs(struct builder *b, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&b->in_gang, (size_t)b->plan->part_count, sizeof *b->in_gang, err));
    for (int32_t p = 0; p < b->plan->part_count; p++)
        b->in_gang[p] = hop_plan_shards(b->plan, p) > 1;
    return HOP_OK;
}

hop_status hop_meetings_derive(const struct hop_plan *plan, const struct hop_schedule *schedule,
                               const struct hop_reductions *reductions, struct hop_meetings *out,
                               struct hop_error *err)
{
    struct builder b = {.plan = plan, .schedule = schedule, .reductions = reductions};
    hop_status status = HOP_OK;
    if (!has_meetings(plan, schedule)) {
        *out = (struct hop_meetings){0};
        return HOP_OK;
    }
    HOP_TRY_DONE(hop_task_index_create(plan, schedule, &b.index, err));
    HOP_TRY_DONE(find_gangs(&b, err));
    HOP_TRY_DONE(add_meetings(&b, err));
    const struct hop_task_ref *members = b.members;
    for (size_t i = 0; i < b.count; i++) {
        b.items[i].members = members;
        members += b.items[i].count;
    }
    *out = (struct hop_meetings){.items = b.items, .count = (int32_t)b.count, .members = b.members};
    b.items = NULL;
    b.members = NULL;
done:
    hop_task_index_free(&b.index);
    free(b.in_gang);
    free(b.items);
    free(b.members);
    return status;
}

void hop_meetings_free(struct hop_meetings *meetings)
{
    if (!meetings)
        return;
    free(meetings->items);
    free(meetings->members);
    *meetings = (struct hop_meetings){0};
}
