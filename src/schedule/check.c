#include "schedule/schedule.h"

#include "schedule/deadlock.h"
#include "schedule/task_index.h"

struct checker {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    struct hop_task_index index;
    int32_t probes; /* that every part must run */
};

static hop_status broken(const struct hop_task *task, const char *rule, struct hop_error *err)
{
    char text[HOP_TASK_TEXT];
    hop_task_describe(task, text, sizeof text);
    return hop_fail(err, HOP_INPUT, "schedule: %s %s", text, rule);
}

static const struct hop_task *task_at(const struct checker *c, const struct hop_task_ref *ref)
{
    return &c->schedule->lists[ref->device].tasks[ref->task];
}

static bool is_wanted(const struct checker *c, enum hop_task_kind kind, int32_t part)
{
    const enum hop_gradient gradient = c->plan->parts[part].gradient;
    switch (kind) {
    case HOP_FORWARD:
        return true;
    case HOP_BACKWARD:
        return c->schedule->training && gradient == HOP_GRADIENT_BACKPROP;
    case HOP_PROBE:
        return c->schedule->training && c->probes > 0;
    case HOP_STEP:
        return c->schedule->training && gradient != HOP_GRADIENT_NONE;
    default:
        return false;
    }
}

static hop_status check_places(const struct checker *c, struct hop_error *err)
{
    for (int32_t d = 0; d < c->schedule->devices; d++) {
        for (int32_t i = 0; i < c->schedule->lists[d].count; i++) {
            const struct hop_task *const task = &c->schedule->lists[d].tasks[i];
            if (c->plan->parts[task->part].device != d)
                return broken(task, "is on another device than its part", err);
            if (!is_wanted(c, task->kind, task->part))
                return broken(task, "is nothing the plan asks for", err);
        }
    }
    return HOP_OK;
}

/* The one task of that kind, part and micro-batch. */
static hop_status find_one(const struct checker *c, enum hop_task_kind kind, int32_t part,
                           int32_t micro_batch, const struct hop_task_ref **out,
                           struct hop_error *err)
{
    int32_t count;
    const struct hop_task_ref *const refs =
        hop_task_index_find(&c->index, kind, part, micro_batch, &count);
    const struct hop_task task = {.kind = kind, .part = part, .micro_batch = micro_batch};
    if (count == 0)
        return broken(&task, "is missing", err);
    if (count > 1)
        return broken(&task, "is there more than once", err);
    *out = refs;
    return HOP_OK;
}

static hop_status check_backward(const struct checker *c, int32_t part, int32_t m,
                                 struct hop_error *err)
{
    const struct hop_task_ref *forward = NULL, *backward = NULL;
    HOP_TRY(find_one(c, HOP_FORWARD, part, m, &forward, err));
    HOP_TRY(find_one(c, HOP_BACKWARD, part, m, &backward, err));
    if (backward->task < forward->task)
        return broken(task_at(c, backward), "comes before its FORWARD", err);
    return HOP_OK;
}

/* The probes of one part and micro-batch must tile [0, probes). */
static hop_status check_coverage(const struct checker *c, const struct hop_task_ref *refs,
                                 int32_t count, int32_t part, int32_t m, struct hop_error *err)
{
    int32_t covered = 0, used = 0;
    while (covered < c->probes) {
        int32_t i = 0;
        while (i < count && task_at(c, &refs[i])->probe_lo != covered)
            i++;
        if (i == count)
            break;
        covered = task_at(c, &refs[i])->probe_hi;
        used++;
    }
    if (covered < c->probes) {
        const struct hop_task task = {HOP_PROBE, part, m, covered, c->probes};
        return broken(&task, "is missing", err);
    }
    if (used != count) {
        const struct hop_task task = {HOP_PROBE, part, m, 0, c->probes};
        return broken(&task, "is there more than once", err);
    }
    return HOP_OK;
}

static hop_status check_probes(const struct checker *c, int32_t part, int32_t m,
                               struct hop_error *err)
{
    int32_t count;
    const struct hop_task_ref *const refs =
        hop_task_index_find(&c->index, HOP_PROBE, part, m, &count);
    HOP_TRY(check_coverage(c, refs, count, part, m, err));
    if (hop_plan_next(c->plan, part) >= 0)
        return HOP_OK;
    const struct hop_task_ref *forward = NULL;
    HOP_TRY(find_one(c, HOP_FORWARD, part, m, &forward, err));
    for (int32_t i = 0; i < count; i++)
        if (refs[i].task < forward->task)
            return broken(task_at(c, &refs[i]), "comes before the FORWARD with its base loss", err);
    return HOP_OK;
}

static hop_status check_step(const struct checker *c, int32_t part, struct hop_error *err)
{
    const struct hop_task_ref *step = NULL;
    HOP_TRY(find_one(c, HOP_STEP, part, -1, &step, err));
    const struct hop_task_list *const list = &c->schedule->lists[step->device];
    for (int32_t i = step->task + 1; i < list->count; i++)
        if (list->tasks[i].part == part)
            return broken(&list->tasks[i], "comes after the STEP of its part", err);
    return HOP_OK;
}

static hop_status check_part(const struct checker *c, int32_t part, struct hop_error *err)
{
    const struct hop_task_ref *ref;
    for (int32_t m = 0; m < c->schedule->micro_batches; m++) {
        HOP_TRY(find_one(c, HOP_FORWARD, part, m, &ref, err));
        if (is_wanted(c, HOP_BACKWARD, part))
            HOP_TRY(check_backward(c, part, m, err));
        if (is_wanted(c, HOP_PROBE, part))
            HOP_TRY(check_probes(c, part, m, err));
    }
    return is_wanted(c, HOP_STEP, part) ? check_step(c, part, err) : HOP_OK;
}

/* Everything but deadlocks. */
static hop_status check_rules(const struct hop_plan *plan, const struct hop_schedule *schedule,
                              struct hop_error *err)
{
    HOP_TRY(hop_plan_check(plan, err));
    struct checker c = {.plan = plan,
                        .schedule = schedule,
                        .probes = hop_plan_has_zeroth_order(plan) ? schedule->probes : 0};
    HOP_TRY(hop_task_index_create(plan, schedule, &c.index, err));
    hop_status status = check_places(&c, err);
    for (int32_t p = 0; status == HOP_OK && p < plan->part_count; p++)
        status = check_part(&c, p, err);
    hop_task_index_free(&c.index);
    return status;
}

hop_status hop_schedule_check(const struct hop_plan *plan, const struct hop_schedule *schedule,
                              int32_t window, struct hop_error *err)
{
    if (window < 1)
        return hop_fail(err, HOP_INPUT, "schedule: %d buffers; at least 1 is needed", window);
    HOP_TRY(check_rules(plan, schedule, err));
    struct hop_transfers transfers;
    HOP_TRY(hop_transfers_derive(plan, schedule, &transfers, err));
    const hop_status status = hop_deadlock_check(schedule, &transfers, window, err);
    hop_transfers_free(&transfers);
    return status;
}

/* A wider window only drops waits, so the smallest that works is found by bisection. */
hop_status hop_schedule_window(const struct hop_plan *plan, const struct hop_schedule *schedule,
                               int32_t minimum, int32_t *window, struct hop_error *err)
{
    HOP_TRY(check_rules(plan, schedule, err));
    struct hop_transfers transfers;
    HOP_TRY(hop_transfers_derive(plan, schedule, &transfers, err));
    int32_t low = minimum > 1 ? minimum : 1;
    int32_t high = transfers.count > low ? transfers.count : low;
    hop_status status = hop_deadlock_check(schedule, &transfers, high, err);
    while (status == HOP_OK && low < high) {
        struct hop_error ignored = {0};
        const int32_t middle = low + (high - low) / 2;
        const hop_status tried = hop_deadlock_check(schedule, &transfers, middle, &ignored);
        if (tried == HOP_OK)
            high = middle;
        else if (tried == HOP_INPUT)
            low = middle + 1;
        else
            status = hop_fail(err, tried, "%s", ignored.message);
    }
    if (status == HOP_OK)
        *window = low;
    hop_transfers_free(&transfers);
    return status;
}
