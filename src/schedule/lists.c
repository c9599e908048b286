#include "schedule/lists.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/reduction.h"

struct builder {
    const struct hop_plan *plan;
    struct hop_reductions reductions;
    struct hop_schedule schedule;
};

static void free_builder(struct builder *b)
{
    hop_reductions_free(&b->reductions);
    hop_schedule_free(&b->schedule);
}

static hop_status check_request(const struct hop_plan *plan, int32_t micro_batches,
                                struct hop_error *err)
{
    if (micro_batches < 1)
        return hop_fail(err, HOP_INPUT, "schedule: %d micro-batches; at least 1 is needed",
                        micro_batches);
    HOP_TRY(hop_plan_check(plan, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient == HOP_GRADIENT_ZEROTH_ORDER)
            return hop_fail(err, HOP_INPUT,
                            "schedule: part %d is %s; this order has no probes, only backprop and "
                            "untrained parts",
                            p, hop_gradient_names[HOP_GRADIENT_ZEROTH_ORDER]);
    return HOP_OK;
}

static hop_status check_devices(const struct hop_plan *plan, struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        for (int32_t q = 0; q < p; q++)
            if (plan->parts[q].device == plan->parts[p].device)
                return hop_fail(
                    err, HOP_INPUT,
                    "schedule: parts %d and %d are on one device; this order gives each "
                    "device one part",
                    q, p);
    return HOP_OK;
}

/* Micro-batches that the part handles. */
static struct hop_range batches_of(const struct builder *b, int32_t part)
{
    return hop_part_micro_batches(&b->plan->parts[part], b->schedule.micro_batches);
}

/* Tasks of a part in a complete schedule, at most. */
static size_t most_tasks(const struct builder *b, int32_t part)
{
    const struct hop_range range = batches_of(b, part);
    return 2 * (size_t)(range.hi - range.lo) + (size_t)b->reductions.count + 1;
}

/* Empty lists with room for `given` tasks (devices; NULL: none) and all that the plan asks for. */
static hop_status create_lists(struct builder *b, const int32_t *given, struct hop_error *err)
{
    const int32_t devices = b->schedule.devices = b->plan->devices;
    HOP_TRY(hop_calloc(&b->schedule.lists, (size_t)devices, sizeof *b->schedule.lists, err));
    for (int32_t d = 0; d < devices; d++) {
        size_t tasks = given ? (size_t)given[d] : 0;
        for (int32_t p = 0; p < b->plan->part_count; p++)
            tasks += b->plan->parts[p].device == d ? most_tasks(b, p) : 0;
        struct hop_task_list *const list = &b->schedule.lists[d];
        HOP_TRY(hop_calloc(&list->tasks, tasks, sizeof *list->tasks, err));
    }
    return HOP_OK;
}

static hop_status begin(struct builder *b, const struct hop_plan *plan, int32_t micro_batches,
                        struct hop_error *err)
{
    HOP_TRY(check_request(plan, micro_batches, err));
    b->plan = plan;
    b->schedule.micro_batches = micro_batches;
    b->schedule.training = true;
    return hop_reductions_derive(plan, &b->reductions, err);
}

static void add(struct builder *b, enum hop_task_kind kind, int32_t part, int32_t micro_batch)
{
    struct hop_task_list *const list = &b->schedule.lists[b->plan->parts[part].device];
    list->tasks[list->count++] =
        (struct hop_task){.kind = kind, .part = part, .micro_batch = micro_batch};
}

static bool is_listed(const struct builder *b, const struct hop_task *task)
{
    const struct hop_task_list *const list = &b->schedule.lists[b->plan->parts[task->part].device];
    for (int32_t i = 0; i < list->count; i++)
        if (list->tasks[i].kind == task->kind && list->tasks[i].part == task->part &&
            list->tasks[i].reduction == task->reduction)
            return true;
    return false;
}

static void add_missing(struct builder *b, const struct hop_task *task)
{
    struct hop_task_list *const list = &b->schedule.lists[b->plan->parts[task->part].device];
    if (!is_listed(b, task))
        list->tasks[list->count++] = *task;
}

/* All devices take the reductions in one order, so none waits for another in a circle. */
static void finish(struct builder *b, struct hop_schedule *out)
{
    for (int32_t r = 0; r < b->reductions.count; r++) {
        const struct hop_reduction *const reduction = &b->reductions.items[r];
        for (int32_t i = 0; i < reduction->count; i++)
            add_missing(b, &(struct hop_task){.kind = HOP_REDUCE,
                                              .part = reduction->parts[i],
                                              .micro_batch = -1,
                                              .reduction = r});
    }
    for (int32_t p = 0; p < b->plan->part_count; p++)
        if (b->plan->parts[p].gradient != HOP_GRADIENT_NONE)
            add_missing(b, &(struct hop_task){.kind = HOP_STEP, .part = p, .micro_batch = -1});
    *out = b->schedule;
    b->schedule = (struct hop_schedule){0};
}

hop_status hop_schedule_fill_drain(const struct hop_plan *plan, int32_t micro_batches,
                                   struct hop_schedule *out, struct hop_error *err)
{
    struct builder b = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(begin(&b, plan, micro_batches, err));
    HOP_TRY_DONE(check_devices(plan, err));
    HOP_TRY_DONE(create_lists(&b, NULL, err));
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_range range = batches_of(&b, p);
        for (int32_t m = range.lo; m < range.hi; m++)
            add(&b, HOP_FORWARD, p, m);
        for (int32_t m = range.hi - 1; m >= range.lo; m--)
            if (plan->parts[p].gradient == HOP_GRADIENT_BACKPROP)
                add(&b, HOP_BACKWARD, p, m);
    }
    finish(&b, out);
done:
    free_builder(&b);
    return status;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The least of a stage's parts. */
static int32_t stage_warmup(const struct hop_plan *plan, const int32_t *warmup, int32_t pipeline,
                            int32_t stage)
{
    int32_t least = INT32_MAX;
    for (int32_t p = -1; (p = hop_plan_stage_part(plan, pipeline, stage, p)) >= 0;)
        least = smaller(least, warmup ? warmup[p] : plan->parts[p].in_flight);
    return least;
}

static hop_status check_warmup(const struct hop_plan *plan, const int32_t *warmup,
                               struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const int32_t forwards = warmup ? warmup[p] : plan->parts[p].in_flight;
        if (forwards < 1 && plan->parts[p].gradient == HOP_GRADIENT_BACKPROP)
            return hop_fail(err, HOP_INPUT,
                            "schedule: part %d warms up with %d forwards; its first backward needs "
                            "1 at least",
                            p, forwards);
    }
    return HOP_OK;
}

static void list_one_f_one_b(struct builder *b, int32_t part, int32_t warmup)
{
    const struct hop_range range = batches_of(b, part);
    int32_t forward = range.lo;
    const bool trained = b->plan->parts[part].gradient == HOP_GRADIENT_BACKPROP;
    while (forward < range.hi && (!trained || forward - range.lo < warmup))
        add(b, HOP_FORWARD, part, forward++);
    for (int32_t m = range.lo; trained && m < range.hi; m++) {
        add(b, HOP_BACKWARD, part, m);
        if (forward < range.hi)
            add(b, HOP_FORWARD, part, forward++);
    }
}

/* What a stage sends is in flight on the stage before it, too. */
static void list_pipeline(struct builder *b, const int32_t *warmup, int32_t pipeline)
{
    const struct hop_plan *const plan = b->plan;
    int32_t most = INT32_MAX;
    for (int32_t stage = 0; stage < hop_plan_stages(plan, pipeline); stage++) {
        const int32_t first = hop_plan_stage_part(plan, pipeline, stage, -1);
        if (plan->parts[first].gradient == HOP_GRADIENT_BACKPROP)
            most = smaller(most, stage_warmup(plan, warmup, pipeline, stage));
        for (int32_t p = first; p >= 0; p = hop_plan_stage_part(plan, pipeline, stage, p))
            list_one_f_one_b(b, p, most);
    }
}

hop_status hop_schedule_one_f_one_b(const struct hop_plan *plan, int32_t micro_batches,
                                    const int32_t *warmup, struct hop_schedule *out,
                                    struct hop_error *err)
{
    struct builder b = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(begin(&b, plan, micro_batches, err));
    HOP_TRY_DONE(check_devices(plan, err));
    HOP_TRY_DONE(check_warmup(plan, warmup, err));
    HOP_TRY_DONE(create_lists(&b, NULL, err));
    for (int32_t pipeline = 0; pipeline < hop_plan_pipelines(plan); pipeline++)
        list_pipeline(&b, warmup, pipeline);
    finish(&b, out);
done:
    free_builder(&b);
    return status;
}

/* A slot and its place among those given. */
struct placed {
    int64_t slot;
    int32_t index;
};

static int compare_placed(const void *left, const void *right)
{
    const struct placed *const a = left, *const b = right;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static hop_status count_given(const struct hop_plan *plan, const struct hop_slot *slots,
                              int32_t count, int32_t *given, struct hop_error *err)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t part = slots[i].task.part;
        if (part < 0 || part >= plan->part_count)
            return hop_fail(err, HOP_INPUT, "schedule: slot %d is of part %d; there are %d parts",
                            i, part, plan->part_count);
        given[plan->parts[part].device]++;
    }
    return HOP_OK;
}

static hop_status list_slots(struct builder *b, const struct hop_slot *slots, int32_t count,
                             struct hop_error *err)
{
    struct placed *order;
    HOP_TRY(hop_calloc(&order, (size_t)count, sizeof *order, err));
    for (int32_t i = 0; i < count; i++)
        order[i] = (struct placed){slots[i].slot, i};
    qsort(order, (size_t)count, sizeof *order, compare_placed);
    for (int32_t i = 0; i < count; i++) {
        const struct hop_task *const task = &slots[order[i].index].task;
        struct hop_task_list *const list = &b->schedule.lists[b->plan->parts[task->part].device];
        list->tasks[list->count++] = *task;
    }
    free(order);
    return HOP_OK;
}

hop_status hop_schedule_from_slots(const struct hop_plan *plan, int32_t micro_batches,
                                   const struct hop_slot *slots, int32_t count,
                                   struct hop_schedule *out, struct hop_error *err)
{
    struct builder b = {0};
    int32_t *given = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(begin(&b, plan, micro_batches, err));
    HOP_TRY_DONE(hop_calloc(&given, (size_t)plan->devices, sizeof *given, err));
    HOP_TRY_DONE(count_given(plan, slots, count, given, err));
    HOP_TRY_DONE(create_lists(&b, given, err));
    HOP_TRY_DONE(list_slots(&b, slots, count, err));
    finish(&b, out);
done:
    free(given);
    free_builder(&b);
    return status;
}
