/* The greedy rule, event by event: at every time at which something happens, first all tasks that
 * end there end, in the order of the devices, and send their messages; then every device that is
 * free takes a task. */
#include <math.h>

#include "schedule/greedy_internal.h"

static const enum hop_task_kind priority[] = {HOP_BACKWARD, HOP_DELTA,      HOP_FORWARD,
                                              HOP_PROBE,    HOP_EXIT_PROBE, HOP_STEP};
enum { PRIORITIES = sizeof priority / sizeof *priority };

/* Rounding of the work that is left on a device, relative to all of its work, at most. */
static const double rounding = 1e-9;

static double step_ready(const struct hop_greedy_part *part)
{
    for (int32_t k = 0; k < HOP_STEP; k++)
        if (part->finished[k] < part->wanted[k])
            return INFINITY;
    if (part->arrivals[HOP_STEP] < part->derivatives)
        return INFINITY;
    return part->last_arrival;
}

/* When the input of task `number` is there; INFINITY: not known yet. */
static double input_ready(const struct hop_greedy_part *part, enum hop_task_kind kind,
                          int32_t number)
{
    return number < part->arrivals[kind] ? part->arrival[kind][number] : INFINITY;
}

/* Micro-batches whose tasks of that kind are all done. */
static int32_t done_of(const struct hop_greedy *greedy, const struct hop_greedy_part *part,
                       enum hop_task_kind kind)
{
    const int32_t finished = part->finished[kind];
    return kind == HOP_PROBE ? finished / greedy->way[HOP_GREEDY_PROBES].tasks : finished;
}

static double forward_ready(const struct hop_greedy *greedy, const struct hop_greedy_part *part,
                            int32_t n)
{
    if (part->frees != HOP_TASK_KINDS && n - done_of(greedy, part, part->frees) >= part->in_flight)
        return INFINITY;
    return part->previous < 0 ? 0 : input_ready(part, HOP_FORWARD, n);
}

static double gradient_ready(const struct hop_greedy *greedy, const struct hop_greedy_part *part,
                             int32_t n)
{
    if (part->gradient == HOP_DELTA && part->wanted[HOP_PROBE] &&
        n >= done_of(greedy, part, HOP_PROBE))
        return INFINITY;
    if (part->next >= 0)
        return input_ready(part, part->gradient, n);
    return n < part->finished[HOP_FORWARD] ? 0 : INFINITY;
}

static double probe_ready(const struct hop_greedy *greedy, const struct hop_greedy_part *part,
                          enum hop_task_kind kind, int32_t n)
{
    const int32_t way = hop_greedy_way(kind), tasks = greedy->way[way].tasks;
    if (part->way[way].after_forward && n / tasks >= part->finished[HOP_FORWARD])
        return INFINITY;
    if (kind == HOP_PROBE && part->wanted[HOP_DELTA] &&
        n / tasks - part->finished[HOP_DELTA] >= part->pending)
        return INFINITY;
    return part->way[way].receives ? input_ready(part, kind, n) : 0;
}

/* When the part can start its next task of this kind; INFINITY: not known yet. A past time means
 * now. */
static double ready_at(const struct hop_greedy *greedy, const struct hop_greedy_part *part,
                       enum hop_task_kind kind)
{
    const int32_t n = part->started[kind];
    if (n >= part->wanted[kind])
        return INFINITY;
    switch (kind) {
    case HOP_FORWARD:
        return forward_ready(greedy, part, n);
    case HOP_BACKWARD:
    case HOP_DELTA:
        return gradient_ready(greedy, part, n);
    case HOP_PROBE:
    case HOP_EXIT_PROBE:
        return probe_ready(greedy, part, kind, n);
    default:
        return step_ready(part);
    }
}

static int32_t next_number(const struct hop_greedy *greedy, int32_t p, enum hop_task_kind kind)
{
    return greedy->parts[p].started[kind];
}

/* The part of the device with the earliest task of this kind that can start by `now`, or -1. Lowers
 * *wake to the first time after now at which one can. */
static int32_t earliest_ready(const struct hop_greedy *greedy, int32_t device,
                              enum hop_task_kind kind, double now, double *wake)
{
    int32_t best = -1;
    for (int32_t p = greedy->devices[device].first; p >= 0; p = greedy->parts[p].next_here) {
        const double ready = ready_at(greedy, &greedy->parts[p], kind);
        if (ready > now)
            *wake = ready < *wake ? ready : *wake;
        else if (best < 0 || next_number(greedy, p, kind) < next_number(greedy, best, kind))
            best = p;
    }
    return best;
}

/* Of its micro-batch. */
static bool is_last_probe(const struct hop_greedy *greedy, int32_t way, int32_t number)
{
    const int32_t tasks = greedy->way[way].tasks;
    return number % tasks == tasks - 1;
}

static double seconds_of(const struct hop_greedy *greedy, const struct hop_greedy_part *part,
                         enum hop_task_kind kind, int32_t number)
{
    const int32_t way = hop_greedy_way(kind);
    return way >= 0 && is_last_probe(greedy, way, number) ? part->way[way].last
                                                          : part->seconds[kind];
}

/* Starts the next task of that kind; false when the makespan must pass `limit` then. */
static bool start_task(struct hop_greedy *greedy, int32_t d, int32_t p, enum hop_task_kind kind,
                       double now, double limit)
{
    struct hop_greedy_device *const device = &greedy->devices[d];
    struct hop_greedy_part *const part = &greedy->parts[p];
    device->busy = true;
    device->part = p;
    device->kind = kind;
    device->number = part->started[kind]++;
    const double seconds = seconds_of(greedy, part, kind, device->number);
    const double end = now + seconds;
    if (end > limit || now + device->left - rounding * device->work > limit)
        return false;
    device->left -= seconds;
    if (end > greedy->makespan)
        greedy->makespan = end;
    hop_agenda_set(&greedy->agenda, d, end);
    if (greedy->lists) {
        struct hop_task_list *const list = &greedy->lists->lists[d];
        list->tasks[list->count++] = hop_greedy_task(greedy, p, kind, device->number);
    }
    return true;
}

/* Starts the first task by priority, or stores when one can start. */
static bool fill_device(struct hop_greedy *greedy, int32_t d, double now, double limit)
{
    double wake = INFINITY;
    for (int32_t i = 0; i < PRIORITIES; i++) {
        const int32_t p = earliest_ready(greedy, d, priority[i], now, &wake);
        if (p >= 0)
            return start_task(greedy, d, p, priority[i], now, limit);
    }
    hop_agenda_set(&greedy->agenda, d, wake);
    return true;
}

/* Sends a message to part `to` and wakes its device when it arrives; returns that time. */
static double deliver(struct hop_greedy *greedy, int32_t from, int32_t to, double now,
                      double seconds)
{
    const int32_t receiver = greedy->parts[to].device;
    const double arrival =
        hop_network_send(&greedy->network, greedy->parts[from].device, receiver, now, seconds) +
        seconds;
    if (!greedy->devices[receiver].busy && arrival < greedy->agenda.time[receiver])
        hop_agenda_set(&greedy->agenda, receiver, arrival);
    return arrival;
}

static void send_input(struct hop_greedy *greedy, int32_t from, int32_t to, enum hop_task_kind kind,
                       double now, double seconds)
{
    struct hop_greedy_part *const part = &greedy->parts[to];
    part->arrival[kind][part->arrivals[kind]++] = deliver(greedy, from, to, now, seconds);
}

/* Sends something to the STEP of part `to`. */
static void send_to_step(struct hop_greedy *greedy, int32_t from, int32_t to, double now,
                         double seconds)
{
    struct hop_greedy_part *const part = &greedy->parts[to];
    part->last_arrival = fmax(part->last_arrival, deliver(greedy, from, to, now, seconds));
    part->arrivals[HOP_STEP]++;
}

static void send_derivatives(struct hop_greedy *greedy, int32_t from, int32_t way, bool last,
                             double now)
{
    for (int32_t p = 0; p < greedy->plan->part_count; p++) {
        const struct hop_greedy_part *const part = &greedy->parts[p];
        if (part->zeroth_order)
            send_to_step(greedy, from, p, now,
                         last ? part->way[way].derivative_last : part->way[way].derivative);
    }
}

static void send_base_losses(struct hop_greedy *greedy, int32_t head, double now)
{
    for (int32_t p = 0; p < greedy->plan->part_count; p++)
        if (greedy->parts[p].zeroth_order)
            send_to_step(greedy, head, p, now, greedy->parts[p].base_loss);
}

static void send_probe(struct hop_greedy *greedy, int32_t p, enum hop_task_kind kind,
                       int32_t number, double now)
{
    const struct hop_greedy_part *const part = &greedy->parts[p];
    const int32_t way = hop_greedy_way(kind);
    const struct hop_greedy_probing *const probing = &part->way[way];
    const bool last = is_last_probe(greedy, way, number);
    if (probing->sends)
        send_input(greedy, p, part->next, kind, now, last ? probing->send_last : probing->send);
    if (probing->derives)
        send_derivatives(greedy, p, way, last, now);
}

static void send_forward(struct hop_greedy *greedy, int32_t p, double now)
{
    const struct hop_greedy_part *const part = &greedy->parts[p];
    if (part->next >= 0)
        send_input(greedy, p, part->next, HOP_FORWARD, now, part->send_activation);
    else if (greedy->base_losses)
        send_base_losses(greedy, p, now);
}

/* Of a BACKWARD or DELTA. */
static void send_gradient(struct hop_greedy *greedy, int32_t p, enum hop_task_kind kind, double now)
{
    const struct hop_greedy_part *const part = &greedy->parts[p];
    if (part->sends_gradient)
        send_input(greedy, p, part->previous, greedy->parts[part->previous].gradient, now,
                   part->send_gradient);
    if (kind == HOP_DELTA && greedy->derived_by == HOP_DELTA)
        send_derivatives(greedy, p, HOP_GREEDY_PROBES, true, now);
}

static void end_task(struct hop_greedy *greedy, int32_t d, double now)
{
    struct hop_greedy_device *const device = &greedy->devices[d];
    const enum hop_task_kind kind = device->kind;
    device->busy = false;
    greedy->parts[device->part].finished[kind]++;
    if (kind == HOP_FORWARD)
        send_forward(greedy, device->part, now);
    else if (kind == HOP_BACKWARD || kind == HOP_DELTA)
        send_gradient(greedy, device->part, kind, now);
    else if (hop_greedy_way(kind) >= 0)
        send_probe(greedy, device->part, kind, device->number, now);
}

/* A device that a message of this very time wakes joins the round: it is taken in turn. */
static int32_t end_tasks(struct hop_greedy *greedy, double now)
{
    int32_t count = 0;
    while (hop_agenda_next(&greedy->agenda) <= now) {
        const int32_t d = hop_agenda_take(&greedy->agenda);
        greedy->round[count++] = d;
        if (greedy->devices[d].busy)
            end_task(greedy, d, now);
    }
    return count;
}

static bool start_all(struct hop_greedy *greedy, double limit)
{
    for (int32_t d = 0; d < greedy->cost->device_count; d++)
        if (greedy->devices[d].first >= 0 && !fill_device(greedy, d, 0, limit))
            return false;
    return true;
}

bool hop_greedy_play(struct hop_greedy *greedy, double limit)
{
    if (!start_all(greedy, limit))
        return false;
    for (double now; (now = hop_agenda_next(&greedy->agenda)) < INFINITY;) {
        const int32_t count = end_tasks(greedy, now);
        for (int32_t i = 0; i < count; i++)
            if (!fill_device(greedy, greedy->round[i], now, limit))
                return false;
    }
    return true;
}
