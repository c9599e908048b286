#include "runtime/route.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A message and where it belongs; sorting gives the order of route->messages. */
struct end {
    int32_t task;
    bool outgoing;
    int32_t to_part, probe_lo;
    struct hop_message message;
};

static int compare_ends(const void *left, const void *right)
{
    const struct end *const a = left, *const b = right;
    if (a->task != b->task)
        return a->task < b->task ? -1 : 1;
    if (a->outgoing != b->outgoing)
        return a->outgoing ? 1 : -1;
    if (a->to_part != b->to_part)
        return a->to_part < b->to_part ? -1 : 1;
    if (a->probe_lo != b->probe_lo)
        return a->probe_lo < b->probe_lo ? -1 : 1;
    return a->message.transfer < b->message.transfer ? -1 : 1;
}

/* Single numbers: they use no buffers. */
static bool is_number(const struct hop_transfer *t)
{
    return t->payload == HOP_DERIVATIVE || t->payload == HOP_BASE_LOSS;
}

static int32_t list_ends(const struct hop_route *route, struct end *ends)
{
    int32_t n = 0;
    for (int32_t i = 0; i < route->transfers.count; i++) {
        const struct hop_transfer *const t = &route->transfers.items[i];
        const bool local = t->from_device == t->to_device;
        if (is_number(t))
            continue;
        if (t->to_device == route->device)
            ends[n++] = (struct end){
                t->to_task, false, t->to_part, t->probe_lo, {i, t->from_device, local}};
        if (t->from_device == route->device)
            ends[n++] =
                (struct end){t->from_task, true, t->to_part, t->probe_lo, {i, t->to_device, local}};
    }
    qsort(ends, (size_t)n, sizeof *ends, compare_ends);
    return n;
}

static void attach(struct hop_route *route, const struct end *end)
{
    struct hop_task_route *const task = &route->tasks[end->task];
    struct hop_port *const port = end->outgoing ? &task->output : &task->input;
    if (port->begin == port->end)
        port->begin = port->end = route->message_count;
    port->payload = route->transfers.items[end->message.transfer].payload;
    port->end++;
    route->messages[route->message_count++] = end->message;
}

static hop_status attach_messages(struct hop_route *route, struct hop_error *err)
{
    const size_t most = 2 * (size_t)route->transfers.count;
    struct end *ends;
    HOP_TRY(hop_calloc(&ends, most, sizeof *ends, err));
    const int32_t n = list_ends(route, ends);
    const hop_status status = hop_calloc(&route->messages, (size_t)n, sizeof *route->messages, err);
    for (int32_t i = 0; i < n && status == HOP_OK; i++)
        attach(route, &ends[i]);
    free(ends);
    return status;
}

/* Does this device's task have the transfer t of derivatives or base losses? */
static bool has_derivative(const struct hop_route *route, const struct hop_transfer *t,
                           int32_t task)
{
    return is_number(t) && ((t->to_device == route->device && t->to_task == task) ||
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

static int32_t count_locals(const struct hop_route *route, const struct hop_port *port)
{
    int32_t n = 0;
    for (int32_t i = port->begin; i < port->end; i++)
        n += route->messages[i].local;
    return n;
}

static bool is_remote(const struct hop_route *route, const struct hop_port *port)
{
    return count_locals(route, port) < port->end - port->begin;
}

static void widen(int32_t *width, const struct hop_port *port)
{
    if (port->end - port->begin > *width)
        *width = port->end - port->begin;
}

static void assign_receive(struct hop_route *route, int32_t task)
{
    struct hop_port *const port = &route->tasks[task].input;
    port->slot = -1;
    if (is_remote(route, port)) {
        const int32_t order = route->receive_count[port->payload]++;
        port->slot = order % route->window;
        route->receives[port->payload][order] = task;
        widen(&route->receive_width[port->payload], port);
    } else if (port->end - port->begin > 1)
        route->gathers[port->payload] = true;
}

static void assign_send(struct hop_route *route, int32_t task, int32_t *sent)
{
    struct hop_port *const port = &route->tasks[task].output;
    port->slot = -1;
    if (!is_remote(route, port))
        return;
    port->slot = sent[port->payload]++ % route->window;
    widen(&route->send_width[port->payload], port);
}

/* Ring slots, in list order. */
static hop_status assign_rings(struct hop_route *route, int32_t tasks, struct hop_error *err)
{
    int32_t sent[HOP_PAYLOADS] = {0};
    for (int p = 0; p < HOP_PAYLOADS; p++)
        HOP_TRY(hop_calloc(&route->receives[p], (size_t)tasks, sizeof(int32_t), err));
    for (int32_t i = 0; i < tasks; i++) {
        assign_receive(route, i);
        assign_send(route, i, sent);
    }
    return HOP_OK;
}

/* The first of a kind's local buffers that nobody waits for any more. */
static void take_local(struct hop_route *route, struct hop_port *port, int32_t *waiting)
{
    port->local = -1;
    const int32_t consumers = count_locals(route, port);
    if (!consumers)
        return;
    port->local = 0;
    while (waiting[port->local])
        port->local++;
    waiting[port->local] = consumers;
    if (port->local >= route->local_slots[port->payload])
        route->local_slots[port->payload] = port->local + 1;
}

static void release_locals(const struct hop_route *route, const struct hop_port *port,
                           int32_t *waiting)
{
    for (int32_t i = port->begin; i < port->end; i++) {
        const struct hop_message *const message = &route->messages[i];
        const struct hop_transfer *const t = &route->transfers.items[message->transfer];
        if (message->local)
            waiting[route->tasks[t->from_task].output.local]--;
    }
}

/* Local buffers by replaying the list: one is taken by the producing task and free again after the
 * last consuming one. */
static hop_status assign_local(struct hop_route *route, int32_t tasks, struct hop_error *err)
{
    int32_t *waiting; /* (payloads, tasks): consumers still to come */
    HOP_TRY(hop_calloc(&waiting, (size_t)tasks * HOP_PAYLOADS, sizeof *waiting, err));
    for (int32_t i = 0; i < tasks; i++) {
        struct hop_task_route *const task = &route->tasks[i];
        take_local(route, &task->output, waiting + (size_t)task->output.payload * (size_t)tasks);
        release_locals(route, &task->input, waiting + (size_t)task->input.payload * (size_t)tasks);
    }
    free(waiting);
    return HOP_OK;
}

static hop_status follow(struct hop_route *route, int32_t tasks, struct hop_error *err)
{
    HOP_TRY(attach_messages(route, err));
    HOP_TRY(group_derivatives(route, tasks, err));
    HOP_TRY(assign_rings(route, tasks, err));
    return assign_local(route, tasks, err);
}

hop_status hop_route_create(const struct hop_plan *plan, struct hop_schedule *schedule,
                            int32_t device, int32_t window, struct hop_route *out,
                            struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_route route = {.device = device};
    HOP_TRY_DONE(hop_schedule_window(plan, schedule, window, &route.window, err));
    HOP_TRY_DONE(hop_transfers_derive(plan, schedule, &route.transfers, err));
    const int32_t tasks = schedule->lists[device].count;
    HOP_TRY_DONE(hop_calloc(&route.tasks, (size_t)tasks, sizeof *route.tasks, err));
    HOP_TRY_DONE(follow(&route, tasks, err));
    route.schedule = *schedule;
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
    free(route->messages);
    for (int p = 0; p < HOP_PAYLOADS; p++)
        free(route->receives[p]);
    free(route->derivatives);
    *route = (struct hop_route){0};
}

int32_t hop_route_reduction_tag(const struct hop_route *route, int32_t reduction)
{
    return route->transfers.count + reduction;
}
