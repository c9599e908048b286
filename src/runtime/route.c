#include "runtime/route.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const struct hop_endpoint nothing = {.transfer = -1};

static hop_status attach(struct hop_endpoint *end, int32_t index, const struct hop_transfer *t,
                         int32_t device, const struct hop_task *task, struct hop_error *err)
{
    if (end->transfer >= 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s of part %d, micro-batch %d has more than one %s transfer on a side",
                        hop_task_kind_names[task->kind], task->part, task->micro_batch,
                        hop_payload_names[t->payload]);
    *end = (struct hop_endpoint){.transfer = index,
                                 .payload = t->payload,
                                 .device = device,
                                 .local = t->from_device == t->to_device};
    return HOP_OK;
}

/* Hidden states must be handed over for exactly the probes the task runs. */
static hop_status check_range(const struct hop_transfer *t, const struct hop_task *task,
                              struct hop_error *err)
{
    if (t->payload != HOP_PROBE_ACTIVATION ||
        (t->probe_lo == task->probe_lo && t->probe_hi == task->probe_hi))
        return HOP_OK;
    return hop_fail(
        err, HOP_UNSUPPORTED,
        "PROBE of part %d, micro-batch %d runs probes [%d, %d) but a neighbour hands over [%d, %d)",
        task->part, task->micro_batch, task->probe_lo, task->probe_hi, t->probe_lo, t->probe_hi);
}

static hop_status attach_transfers(struct hop_route *route, struct hop_error *err)
{
    const struct hop_task *const tasks = route->schedule.lists[route->device].tasks;
    for (int32_t i = 0; i < route->transfers.count; i++) {
        const struct hop_transfer *const t = &route->transfers.items[i];
        if (t->payload == HOP_DERIVATIVE)
            continue;
        if (t->to_device == route->device) {
            HOP_TRY(check_range(t, &tasks[t->to_task], err));
            HOP_TRY(attach(&route->tasks[t->to_task].input, i, t, t->from_device,
                           &tasks[t->to_task], err));
        }
        if (t->from_device == route->device) {
            HOP_TRY(check_range(t, &tasks[t->from_task], err));
            HOP_TRY(attach(&route->tasks[t->from_task].output, i, t, t->to_device,
                           &tasks[t->from_task], err));
        }
    }
    return HOP_OK;
}

/* Does this device's task have the derivative transfer t? */
static bool has_derivative(const struct hop_route *route, const struct hop_transfer *t,
                           int32_t task)
{
    return t->payload == HOP_DERIVATIVE &&
           ((t->to_device == route->device && t->to_task == task) ||
            (t->from_device == route->device && t->from_task == task));
}

static hop_status group_derivatives(struct hop_route *route, int32_t tasks, struct hop_error *err)
{
    size_t capacity = 0;
    for (int32_t task = 0; task < tasks; task++) {
        route->tasks[task].derivatives_lo = route->derivative_count;
        for (int32_t i = 0; i < route->transfers.count; i++) {
            if (!has_derivative(route, &route->transfers.items[i], task))
                continue;
            HOP_TRY(hop_grow(&route->derivatives, &capacity, (size_t)route->derivative_count + 1,
                             sizeof *route->derivatives, err));
            route->derivatives[route->derivative_count++] = i;
        }
        route->tasks[task].derivatives_hi = route->derivative_count;
    }
    return HOP_OK;
}

/* Ring slots of remote ends, in list order. */
static hop_status assign_rings(struct hop_route *route, int32_t tasks, struct hop_error *err)
{
    int32_t sent[HOP_PAYLOADS] = {0};
    for (int p = 0; p < HOP_PAYLOADS; p++)
        HOP_TRY(hop_calloc(&route->receives[p], (size_t)tasks, sizeof(int32_t), err));
    for (int32_t i = 0; i < tasks; i++) {
        struct hop_endpoint *const in = &route->tasks[i].input, *const out =
                                                                    &route->tasks[i].output;
        if (in->transfer >= 0 && !in->local) {
            in->order = route->receive_count[in->payload]++;
            in->slot = in->order % route->window;
            route->receives[in->payload][in->order] = i;
        }
        if (out->transfer >= 0 && !out->local) {
            out->order = sent[out->payload]++;
            out->slot = out->order % route->window;
        }
    }
    return HOP_OK;
}

/* Local buffers by replaying the list: a slot is taken by the producing task and free again after
 * the consuming one. */
static hop_status assign_local(struct hop_route *route, int32_t tasks, struct hop_error *err)
{
    int32_t *slot_of = NULL; /* (transfers) */
    bool *busy = NULL;       /* (payloads, tasks) */
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&slot_of, (size_t)route->transfers.count, sizeof *slot_of, err));
    HOP_TRY_DONE(hop_calloc(&busy, (size_t)tasks * HOP_PAYLOADS, sizeof *busy, err));
    for (int32_t i = 0; i < tasks; i++) {
        struct hop_endpoint *const in = &route->tasks[i].input, *const out =
                                                                    &route->tasks[i].output;
        if (out->transfer >= 0 && out->local) {
            bool *const of_kind = busy + (size_t)out->payload * (size_t)tasks;
            while (of_kind[out->slot])
                out->slot++;
            of_kind[out->slot] = true;
            slot_of[out->transfer] = out->slot;
            if (out->slot >= route->local_slots[out->payload])
                route->local_slots[out->payload] = out->slot + 1;
        }
        if (in->transfer >= 0 && in->local) {
            in->slot = slot_of[in->transfer];
            busy[(size_t)in->payload * (size_t)tasks + (size_t)in->slot] = false;
        }
    }
done:
    free(slot_of);
    free(busy);
    return status;
}

static hop_status check_plan(const struct hop_plan *plan, struct hop_error *err)
{
    if (hop_plan_is_line(plan))
        return HOP_OK;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "plan: several pipelines, replicas or shards can be planned and simulated, not "
                    "run yet; choose a strategy with one part a stage");
}

hop_status hop_route_create(const struct hop_plan *plan, struct hop_schedule *schedule,
                            int32_t device, int32_t window, struct hop_route *out,
                            struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_route route = {.device = device};
    HOP_TRY_DONE(check_plan(plan, err));
    HOP_TRY_DONE(hop_schedule_window(plan, schedule, window, &route.window, err));
    HOP_TRY_DONE(hop_transfers_derive(plan, schedule, &route.transfers, err));
    const int32_t tasks = schedule->lists[device].count;
    HOP_TRY_DONE(hop_calloc(&route.tasks, (size_t)tasks, sizeof *route.tasks, err));
    for (int32_t i = 0; i < tasks; i++)
        route.tasks[i].input = route.tasks[i].output = nothing;
    route.schedule = *schedule;
    status = attach_transfers(&route, err);
    if (status == HOP_OK)
        status = group_derivatives(&route, tasks, err);
    if (status == HOP_OK)
        status = assign_rings(&route, tasks, err);
    if (status == HOP_OK)
        status = assign_local(&route, tasks, err);
    if (status != HOP_OK) {
        /* The schedule stays the caller's. */
        route.schedule = (struct hop_schedule){0};
        goto done;
    }
    *schedule = (struct hop_schedule){0};
    *out = route;
    return HOP_OK;
done:
    hop_route_free(&route);
    return status;
}

void hop_route_free(struct hop_route *route)
{
    if (!route)
        return;
    hop_schedule_free(&route->schedule);
    hop_transfers_free(&route->transfers);
    free(route->tasks);
    for (int p = 0; p < HOP_PAYLOADS; p++)
        free(route->receives[p]);
    free(route->derivatives);
    *route = (struct hop_route){0};
}
