#include "schedule/schedule.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "schedule/task_index.h"

/* A part of a neighbouring stage, and the samples that come from it. */
struct source {
    int32_t part;
    double sample_lo, sample_hi;
};

struct builder {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    struct hop_task_index index;
    /* Sources of each part in the stage before it and in the stage behind it, by samples: those of
     * part p before it are sources[begin[2 * p]] on, those behind it sources[begin[2 * p + 1]] on.
     */
    struct source *sources;
    size_t *begin;
    size_t source_count, source_capacity;
    struct hop_transfer *items;
    size_t count, capacity;
};

/* The task that receives, and what it asks for. */
struct need {
    enum hop_payload payload;
    enum hop_task_kind kind; /* of the task that sends */
    struct source from;
    int32_t micro_batch, probe_lo, probe_hi;
    int32_t to_device, to_task;
};

enum side { BEFORE, BEHIND };

/* Shards of the gang of part p with smaller tensors shares: its place among them. */
static int32_t place_of(const struct hop_plan *plan, int32_t p)
{
    int32_t place = 0;
    for (int32_t q = -1; (q = hop_plan_shard(plan, p, q)) >= 0;)
        place += plan->parts[q].tensor_lo < plan->parts[p].tensor_lo;
    return place;
}

/* Does part p take the samples from part q, among the shards of q's gang that all have them? */
static bool takes_from(const struct hop_plan *plan, int32_t p, int32_t q)
{
    for (int32_t r = -1; (r = hop_plan_shard(plan, q, r)) >= 0;)
        if (plan->parts[r].device == plan->parts[p].device)
            return r == q;
    return place_of(plan, q) == place_of(plan, p) % hop_plan_shards(plan, q);
}

static int compare_sources(const void *left, const void *right)
{
    const struct source *const a = left, *const b = right;
    if (a->sample_lo != b->sample_lo)
        return a->sample_lo < b->sample_lo ? -1 : 1;
    return a->part < b->part ? -1 : a->part > b->part;
}

static hop_status find_sources(struct builder *b, int32_t p, enum side side, struct hop_error *err)
{
    const struct hop_part *const to = &b->plan->parts[p];
    const int32_t stage = side == BEFORE ? to->stage - 1 : to->stage + 1;
    const size_t first = b->source_count;
    for (int32_t q = -1; (q = hop_plan_stage_part(b->plan, to->pipeline, stage, q)) >= 0;) {
        const struct hop_part *const from = &b->plan->parts[q];
        const struct source source = {q, fmax(from->sample_lo, to->sample_lo),
                                      fmin(from->sample_hi, to->sample_hi)};
        if (source.sample_lo >= source.sample_hi || !takes_from(b->plan, p, q))
            continue;
        HOP_TRY(hop_grow(&b->sources, &b->source_capacity, b->source_count + 1, sizeof *b->sources,
                         err));
        b->sources[b->source_count++] = source;
    }
    if (b->source_count > first)
        qsort(b->sources + first, b->source_count - first, sizeof *b->sources, compare_sources);
    b->begin[2 * p + (int32_t)side + 1] = b->source_count;
    return HOP_OK;
}

static hop_status find_all_sources(struct builder *b, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&b->begin, 2 * (size_t)b->plan->part_count + 1, sizeof *b->begin, err));
    for (int32_t p = 0; p < b->plan->part_count; p++) {
        HOP_TRY(find_sources(b, p, BEFORE, err));
        HOP_TRY(find_sources(b, p, BEHIND, err));
    }
    return HOP_OK;
}

static const struct hop_task *task_at(const struct builder *b, int32_t device, int32_t task)
{
    return &b->schedule->lists[device].tasks[task];
}

static hop_status missing(const struct builder *b, const struct need *need, struct hop_error *err)
{
    char consumer[HOP_TASK_TEXT], producer[HOP_TASK_TEXT];
    hop_task_describe(task_at(b, need->to_device, need->to_task), consumer, sizeof consumer);
    const struct hop_task wanted = {.kind = need->kind,
                                    .part = need->from.part,
                                    .micro_batch = need->micro_batch,
                                    .probe_lo = need->probe_lo,
                                    .probe_hi = need->probe_hi};
    hop_task_describe(&wanted, producer, sizeof producer);
    return hop_fail(err, HOP_INPUT, "schedule: %s needs the %s of %s, which is missing", consumer,
                    hop_payload_names[need->payload], producer);
}

static hop_status add(struct builder *b, const struct need *need, const struct hop_task_ref *from,
                      int32_t probe_lo, int32_t probe_hi, struct hop_error *err)
{
    HOP_TRY(hop_grow(&b->items, &b->capacity, b->count + 1, sizeof *b->items, err));
    b->items[b->count++] =
        (struct hop_transfer){.payload = need->payload,
                              .from_device = from->device,
                              .to_device = need->to_device,
                              .from_part = need->from.part,
                              .to_part = task_at(b, need->to_device, need->to_task)->part,
                              .from_task = from->task,
                              .to_task = need->to_task,
                              .micro_batch = need->micro_batch,
                              .probe_lo = probe_lo,
                              .probe_hi = probe_hi,
                              .exit = need->kind == HOP_EXIT_PROBE,
                              .sample_lo = need->from.sample_lo,
                              .sample_hi = need->from.sample_hi};
    return HOP_OK;
}

static hop_status add_whole(struct builder *b, const struct need *need, struct hop_error *err)
{
    int32_t count;
    const struct hop_task_ref *const refs =
        hop_task_index_find(&b->index, need->kind, need->from.part, need->micro_batch, &count);
    if (!count)
        return missing(b, need, err);
    return add(b, need, &refs[0], need->probe_lo, need->probe_hi, err);
}

/* The PROBE or EXIT_PROBE among refs that runs probe `q`, or NULL. */
static const struct hop_task_ref *
find_probe(const struct builder *b, const struct hop_task_ref *refs, int32_t count, int32_t q)
{
    for (int32_t i = 0; i < count; i++) {
        const struct hop_task *const task = task_at(b, refs[i].device, refs[i].task);
        if (task->probe_lo <= q && q < task->probe_hi)
            return &refs[i];
    }
    return NULL;
}

/* One transfer from each PROBE or EXIT_PROBE that runs some of the probes: either side may split
 * them its own way. */
static hop_status add_probes(struct builder *b, const struct need *need, struct hop_error *err)
{
    int32_t count;
    const struct hop_task_ref *const refs =
        hop_task_index_find(&b->index, need->kind, need->from.part, need->micro_batch, &count);
    for (int32_t q = need->probe_lo; q < need->probe_hi;) {
        const struct hop_task_ref *const from = find_probe(b, refs, count, q);
        if (!from)
            return missing(b, need, err);
        const int32_t last = task_at(b, from->device, from->task)->probe_hi;
        const int32_t hi = last < need->probe_hi ? last : need->probe_hi;
        HOP_TRY(add(b, need, from, q, hi, err));
        q = hi;
    }
    return HOP_OK;
}

static bool sends_probes(const struct need *need)
{
    return need->kind == HOP_PROBE || need->kind == HOP_EXIT_PROBE;
}

/* What the tasks of one kind, of every micro-batch, send to a STEP. */
static hop_status add_of_each(struct builder *b, struct need *need, enum hop_payload payload,
                              enum hop_task_kind kind, int32_t from, int32_t probes,
                              struct hop_error *err)
{
    need->payload = payload;
    need->kind = kind;
    need->from = (struct source){from, 0, 1};
    for (int32_t m = 0; m < b->schedule->micro_batches; m++) {
        need->micro_batch = m;
        need->probe_lo = 0;
        need->probe_hi = probes;
        HOP_TRY(sends_probes(need) ? add_probes(b, need, err) : add_whole(b, need, err));
    }
    return HOP_OK;
}

static hop_status add_derivatives(struct builder *b, struct need *need, int32_t part,
                                  struct hop_error *err)
{
    const struct hop_schedule *const schedule = b->schedule;
    if (b->plan->parts[part].gradient != HOP_GRADIENT_ZEROTH_ORDER)
        return HOP_OK;
    int32_t from = -1;
    const enum hop_task_kind kind = hop_plan_derivative_task(b->plan, &from);
    if (schedule->probes > 0 && kind != HOP_TASK_KINDS)
        HOP_TRY(add_of_each(b, need, HOP_DERIVATIVE, kind, from, schedule->probes, err));
    if (schedule->exit_probes > 0)
        HOP_TRY(add_of_each(b, need, HOP_DERIVATIVE, HOP_EXIT_PROBE,
                            hop_plan_last_zeroth_order(b->plan), schedule->exit_probes, err));
    if (schedule->exit_probes > 0 && hop_plan_sends_base_loss(b->plan))
        HOP_TRY(
            add_of_each(b, need, HOP_BASE_LOSS, HOP_FORWARD, hop_plan_head(b->plan, part), 0, err));
    return HOP_OK;
}

/* A part without one is behind nothing that takes a gradient, in a plan that keeps the rules. */
static enum hop_task_kind gradient_task(const struct hop_plan *plan, int32_t part)
{
    const enum hop_task_kind kind = hop_plan_gradient_task(plan, part);
    return kind == HOP_TASK_KINDS ? HOP_BACKWARD : kind;
}

/* Do the parts of the stage that `from` is in have tasks to send what is needed? */
static bool is_sent(const struct builder *b, const struct need *need, int32_t from)
{
    switch (need->kind) {
    case HOP_PROBE:
        return hop_plan_runs_probes(b->plan, from);
    case HOP_EXIT_PROBE:
        return hop_plan_runs_exit_probes(b->plan, from);
    default:
        return true;
    }
}

static hop_status add_inputs(struct builder *b, struct need *need, int32_t part, enum side side,
                             struct hop_error *err)
{
    const size_t end = b->begin[2 * part + (int32_t)side + 1];
    for (size_t i = b->begin[2 * part + (int32_t)side]; i < end; i++) {
        need->from = b->sources[i];
        if (need->payload == HOP_GRADIENT)
            need->kind = gradient_task(b->plan, need->from.part);
        if (is_sent(b, need, need->from.part))
            HOP_TRY(sends_probes(need) ? add_probes(b, need, err) : add_whole(b, need, err));
    }
    return HOP_OK;
}

static hop_status add_needs(struct builder *b, int32_t device, int32_t i, struct hop_error *err)
{
    const struct hop_task *const task = task_at(b, device, i);
    struct need need = {.kind = task->kind,
                        .micro_batch = task->micro_batch,
                        .probe_lo = task->probe_lo,
                        .probe_hi = task->probe_hi,
                        .to_device = device,
                        .to_task = i};
    switch (task->kind) {
    case HOP_FORWARD:
        need.payload = HOP_ACTIVATION;
        return add_inputs(b, &need, task->part, BEFORE, err);
    case HOP_BACKWARD:
    case HOP_DELTA:
        need.payload = HOP_GRADIENT;
        return add_inputs(b, &need, task->part, BEHIND, err);
    case HOP_PROBE:
    case HOP_EXIT_PROBE:
        need.payload = HOP_PROBE_ACTIVATION;
        return add_inputs(b, &need, task->part, BEFORE, err);
    case HOP_STEP:
        return add_derivatives(b, &need, task->part, err);
    default:
        return HOP_OK;
    }
}

/* Most tasks have one input: room for that at once. */
static hop_status reserve_items(struct builder *b, struct hop_error *err)
{
    size_t tasks = 0;
    for (int32_t d = 0; d < b->schedule->devices; d++)
        tasks += (size_t)b->schedule->lists[d].count;
    return hop_grow(&b->items, &b->capacity, tasks, sizeof *b->items, err);
}

hop_status hop_transfers_derive(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                struct hop_transfers *out, struct hop_error *err)
{
    struct builder b = {.plan = plan, .schedule = schedule};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_task_index_create(plan, schedule, &b.index, err));
    HOP_TRY_DONE(find_all_sources(&b, err));
    HOP_TRY_DONE(reserve_items(&b, err));
    for (int32_t d = 0; d < schedule->devices; d++)
        for (int32_t i = 0; i < schedule->lists[d].count; i++)
            HOP_TRY_DONE(add_needs(&b, d, i, err));
    *out = (struct hop_transfers){.items = b.items, .count = (int32_t)b.count};
    b.items = NULL;
done:
    hop_task_index_free(&b.index);
    free(b.sources);
    free(b.begin);
    free(b.items);
    return status;
}

void hop_transfers_free(struct hop_transfers *transfers)
{
    if (!transfers)
        return;
    free(transfers->items);
    *transfers = (struct hop_transfers){0};
}
