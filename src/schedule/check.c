#include "schedule/schedule.h"

#include <stdio.h>

#include "schedule/deadlock.h"
#include "schedule/estimator.h"
#include "schedule/meeting.h"
#include "schedule/task_index.h"

struct checker {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    struct hop_task_index index;
    struct hop_reductions reductions;
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

static bool is_wanted_kind(const struct checker *c, enum hop_task_kind kind, int32_t part)
{
    const struct hop_schedule *const schedule = c->schedule;
    if (kind == HOP_FORWARD || !schedule->training)
        return kind == HOP_FORWARD;
    switch (kind) {
    case HOP_BACKWARD:
    case HOP_DELTA:
        return hop_plan_gradient_task(c->plan, part) == kind;
    case HOP_PROBE:
        return schedule->probes > 0 && hop_plan_runs_probes(c->plan, part);
    case HOP_EXIT_PROBE:
        return schedule->exit_probes > 0 && hop_plan_runs_exit_probes(c->plan, part);
    case HOP_REDUCE:
        return true;
    case HOP_STEP:
        return c->plan->parts[part].gradient != HOP_GRADIENT_NONE;
    default:
        return false;
    }
}

static bool is_wanted(const struct checker *c, const struct hop_task *task)
{
    if (!is_wanted_kind(c, task->kind, task->part))
        return false;
    if (task->kind == HOP_REDUCE)
        return task->reduction < c->reductions.count &&
               hop_reduction_has(&c->reductions.items[task->reduction], task->part);
    return task->micro_batch < 0 || hop_part_handles(&c->plan->parts[task->part],
                                                     c->schedule->micro_batches, task->micro_batch);
}

static hop_status check_places(const struct checker *c, struct hop_error *err)
{
    for (int32_t d = 0; d < c->schedule->devices; d++) {
        for (int32_t i = 0; i < c->schedule->lists[d].count; i++) {
            const struct hop_task *const task = &c->schedule->lists[d].tasks[i];
            if (c->plan->parts[task->part].device != d)
                return broken(task, "is on another device than its part", err);
            if (!is_wanted(c, task))
                return broken(task, "is nothing the plan asks for", err);
        }
    }
    return HOP_OK;
}

/* The one task of that kind, part, micro-batch and reduction. */
static hop_status find_one(const struct checker *c, const struct hop_task *task,
                           const struct hop_task_ref **out, struct hop_error *err)
{
    int32_t count, found = 0;
    const struct hop_task_ref *const refs =
        hop_task_index_find(&c->index, task->kind, task->part, task->micro_batch, &count);
    for (int32_t i = 0; i < count; i++) {
        if (task_at(c, &refs[i])->reduction != task->reduction)
            continue;
        *out = &refs[i];
        found++;
    }
    if (found == 0)
        return broken(task, "is missing", err);
    return found == 1 ? HOP_OK : broken(task, "is there more than once", err);
}

static hop_status find_of(const struct checker *c, enum hop_task_kind kind, int32_t part,
                          int32_t micro_batch, const struct hop_task_ref **out,
                          struct hop_error *err)
{
    const struct hop_task task = {.kind = kind, .part = part, .micro_batch = micro_batch};
    return find_one(c, &task, out, err);
}

/* BACKWARD or DELTA. */
static hop_status check_gradient(const struct checker *c, enum hop_task_kind kind, int32_t part,
                                 int32_t m, struct hop_error *err)
{
    const struct hop_task_ref *forward = NULL, *gradient = NULL;
    HOP_TRY(find_of(c, HOP_FORWARD, part, m, &forward, err));
    HOP_TRY(find_of(c, kind, part, m, &gradient, err));
    if (gradient->task < forward->task)
        return broken(task_at(c, gradient), "comes before its FORWARD", err);
    int32_t count;
    const struct hop_task_ref *const probes =
        hop_task_index_find(&c->index, HOP_PROBE, part, m, &count);
    for (int32_t i = 0; kind == HOP_DELTA && i < count; i++)
        if (gradient->task < probes[i].task)
            return broken(task_at(c, gradient), "comes before a PROBE of its micro-batch", err);
    return HOP_OK;
}

/* The probes, or exit probes, of one part and micro-batch must tile [0, probes). */
static hop_status check_coverage(const struct checker *c, enum hop_task_kind kind, int32_t part,
                                 int32_t m, struct hop_error *err)
{
    const int32_t probes = kind == HOP_PROBE ? c->schedule->probes : c->schedule->exit_probes;
    int32_t covered = 0, used = 0, count;
    const struct hop_task_ref *const refs = hop_task_index_find(&c->index, kind, part, m, &count);
    while (covered < probes) {
        int32_t i = 0;
        while (i < count && task_at(c, &refs[i])->probe_lo != covered)
            i++;
        if (i == count)
            break;
        covered = task_at(c, &refs[i])->probe_hi;
        used++;
    }
    struct hop_task task = {.kind = kind, .part = part, .micro_batch = m, .probe_hi = probes};
    if (covered < probes) {
        task.probe_lo = covered;
        return broken(&task, "is missing", err);
    }
    return used == count ? HOP_OK : broken(&task, "is there more than once", err);
}

/* Why a PROBE or EXIT_PROBE needs its part's FORWARD of the micro-batch; NULL: it does not. */
static const char *forward_gives(const struct checker *c, enum hop_task_kind kind, int32_t part)
{
    if (kind == HOP_EXIT_PROBE)
        return part == hop_plan_last_zeroth_order(c->plan) ? "base loss" : NULL;
    if (c->plan->estimator == HOP_BOUNDARY)
        return "activations";
    return hop_plan_next(c->plan, part) < 0 ? "base loss" : NULL;
}

static hop_status check_probes(const struct checker *c, enum hop_task_kind kind, int32_t part,
                               int32_t m, struct hop_error *err)
{
    HOP_TRY(check_coverage(c, kind, part, m, err));
    const char *const given = forward_gives(c, kind, part);
    if (!given)
        return HOP_OK;
    const struct hop_task_ref *forward = NULL;
    HOP_TRY(find_of(c, HOP_FORWARD, part, m, &forward, err));
    int32_t count;
    const struct hop_task_ref *const refs = hop_task_index_find(&c->index, kind, part, m, &count);
    char rule[64];
    snprintf(rule, sizeof rule, "comes before the FORWARD with its %s", given);
    for (int32_t i = 0; i < count; i++)
        if (refs[i].task < forward->task)
            return broken(task_at(c, &refs[i]), rule, err);
    return HOP_OK;
}

static hop_status check_step(const struct checker *c, int32_t part, struct hop_error *err)
{
    const struct hop_task_ref *step = NULL;
    HOP_TRY(find_of(c, HOP_STEP, part, -1, &step, err));
    const struct hop_task_list *const list = &c->schedule->lists[step->device];
    for (int32_t i = step->task + 1; i < list->count; i++)
        if (list->tasks[i].part == part)
            return broken(&list->tasks[i], "comes after the STEP of its part", err);
    return HOP_OK;
}

/* The gradients of a part are added up when they are complete. */
static hop_status check_reduction(const struct checker *c, int32_t part, int32_t reduction,
                                  struct hop_error *err)
{
    const struct hop_task_ref *reduce = NULL;
    const struct hop_task task = {
        .kind = HOP_REDUCE, .part = part, .micro_batch = -1, .reduction = reduction};
    HOP_TRY(find_one(c, &task, &reduce, err));
    const struct hop_task_list *const list = &c->schedule->lists[reduce->device];
    for (int32_t i = reduce->task + 1; i < list->count; i++)
        if (list->tasks[i].part == part && list->tasks[i].kind == HOP_BACKWARD)
            return broken(&list->tasks[i], "comes after a REDUCE of its part", err);
    return HOP_OK;
}

static hop_status check_reductions(const struct checker *c, int32_t part, struct hop_error *err)
{
    for (int32_t r = 0; r < c->reductions.count; r++)
        if (is_wanted_kind(c, HOP_REDUCE, part) && hop_reduction_has(&c->reductions.items[r], part))
            HOP_TRY(check_reduction(c, part, r, err));
    return HOP_OK;
}

static hop_status check_micro_batch(const struct checker *c, int32_t part, int32_t m,
                                    struct hop_error *err)
{
    const struct hop_task_ref *ref;
    HOP_TRY(find_of(c, HOP_FORWARD, part, m, &ref, err));
    if (is_wanted_kind(c, HOP_BACKWARD, part))
        HOP_TRY(check_gradient(c, HOP_BACKWARD, part, m, err));
    if (is_wanted_kind(c, HOP_PROBE, part))
        HOP_TRY(check_probes(c, HOP_PROBE, part, m, err));
    if (is_wanted_kind(c, HOP_EXIT_PROBE, part))
        HOP_TRY(check_probes(c, HOP_EXIT_PROBE, part, m, err));
    return is_wanted_kind(c, HOP_DELTA, part) ? check_gradient(c, HOP_DELTA, part, m, err) : HOP_OK;
}

static hop_status check_part(const struct checker *c, int32_t part, struct hop_error *err)
{
    const struct hop_range range =
        hop_part_micro_batches(&c->plan->parts[part], c->schedule->micro_batches);
    for (int32_t m = range.lo; m < range.hi; m++)
        HOP_TRY(check_micro_batch(c, part, m, err));
    HOP_TRY(check_reductions(c, part, err));
    return is_wanted_kind(c, HOP_STEP, part) ? check_step(c, part, err) : HOP_OK;
}

/* Everything but deadlocks; c is filled. */
static hop_status check_rules(struct checker *c, struct hop_error *err)
{
    HOP_TRY(hop_plan_check(c->plan, err));
    HOP_TRY(hop_task_index_create(c->plan, c->schedule, &c->index, err));
    HOP_TRY(hop_reductions_derive(c->plan, &c->reductions, err));
    HOP_TRY(check_places(c, err));
    for (int32_t p = 0; p < c->plan->part_count; p++)
        HOP_TRY(check_part(c, p, err));
    return HOP_OK;
}

/* What the deadlock check asks about a schedule that keeps the rules. */
struct waits {
    struct hop_transfers transfers;
    struct hop_meetings meetings;
};

static void free_waits(struct waits *waits)
{
    hop_transfers_free(&waits->transfers);
    hop_meetings_free(&waits->meetings);
}

static hop_status derive_waits(const struct hop_plan *plan, const struct hop_schedule *schedule,
                               struct waits *waits, struct hop_error *err)
{
    struct checker c = {.plan = plan, .schedule = schedule};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(check_rules(&c, err));
    HOP_TRY_DONE(hop_transfers_derive(plan, schedule, &waits->transfers, err));
    HOP_TRY_DONE(hop_meetings_derive(plan, schedule, &c.reductions, &waits->meetings, err));
done:
    hop_task_index_free(&c.index);
    hop_reductions_free(&c.reductions);
    return status;
}

hop_status hop_schedule_check(const struct hop_plan *plan, const struct hop_schedule *schedule,
                              int32_t window, struct hop_error *err)
{
    if (window < 1)
        return hop_fail(err, HOP_INPUT, "schedule: %d buffers; at least 1 is needed", window);
    struct waits waits = {0};
    hop_status status = derive_waits(plan, schedule, &waits, err);
    if (status == HOP_OK)
        status = hop_deadlock_check(schedule, &waits.transfers, &waits.meetings, window, err);
    free_waits(&waits);
    return status;
}

/* A wider window only drops waits, so the smallest that works is found by bisection. */
static hop_status find_window(const struct hop_schedule *schedule, const struct waits *waits,
                              int32_t minimum, int32_t *window, struct hop_error *err)
{
    const struct hop_transfers *const transfers = &waits->transfers;
    int32_t low = minimum > 1 ? minimum : 1;
    int32_t high = transfers->count > low ? transfers->count : low;
    HOP_TRY(hop_deadlock_check(schedule, transfers, &waits->meetings, high, err));
    while (low < high) {
        struct hop_error ignored = {0};
        const int32_t middle = low + (high - low) / 2;
        const hop_status tried =
            hop_deadlock_check(schedule, transfers, &waits->meetings, middle, &ignored);
        if (tried == HOP_OK)
            high = middle;
        else if (tried == HOP_INPUT)
            low = middle + 1;
        else
            return hop_fail(err, tried, "%s", ignored.message);
    }
    *window = low;
    return HOP_OK;
}

hop_status hop_schedule_window(const struct hop_plan *plan, const struct hop_schedule *schedule,
                               int32_t minimum, int32_t *window, struct hop_error *err)
{
    struct waits waits = {0};
    hop_status status = derive_waits(plan, schedule, &waits, err);
    if (status == HOP_OK)
        status = find_window(schedule, &waits, minimum, window, err);
    free_waits(&waits);
    return status;
}
