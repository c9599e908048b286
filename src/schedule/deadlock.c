/* List execution with windowed buffers is a marked graph: what runs is fixed, only the times vary.
 * So it can get stuck if and only if its waits form a cycle.
 *
 * Nodes are the tasks, for each transfer that uses buffers its arrival, and for each meeting its
 * start, which waits for all that its members wait for. An edge a -> b says that b waits for a. */
#include "schedule/deadlock.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/string.h"
#include "schedule/buffers.h"

enum { EDGES_PER_TRANSFER = 4, CYCLE_SHOWN = 6 };

struct graph {
    const struct hop_schedule *schedule;
    const struct hop_transfers *transfers;
    const struct hop_meetings *meetings;
    int32_t *first;  /* (devices): node of the first task of each device's list */
    size_t *entries; /* (tasks): node that waits for what the task waits for */
    size_t tasks, nodes;
    size_t *from, *to; /* (edges) */
    size_t edges;
    size_t *begin;  /* (nodes + 1): edges by their source, after sort_edges() */
    size_t *target; /* (edges) */
    int32_t *waits; /* (nodes): edges into a node that are not yet resolved */
};

static void free_graph(struct graph *g)
{
    free(g->first);
    free(g->entries);
    free(g->from);
    free(g->to);
    free(g->begin);
    free(g->target);
    free(g->waits);
}

static size_t member_count(const struct hop_meetings *meetings)
{
    size_t members = 0;
    for (int32_t i = 0; i < meetings->count; i++)
        members += (size_t)meetings->items[i].count;
    return members;
}

static hop_status create_graph(struct graph *g, struct hop_error *err)
{
    const size_t transfers = (size_t)g->transfers->count;
    HOP_TRY(hop_calloc(&g->first, (size_t)g->schedule->devices, sizeof *g->first, err));
    for (int32_t d = 0; d < g->schedule->devices; d++) {
        g->first[d] = (int32_t)g->tasks;
        g->tasks += (size_t)g->schedule->lists[d].count;
    }
    g->nodes = g->tasks + transfers + (size_t)g->meetings->count;
    const size_t edges = g->tasks + EDGES_PER_TRANSFER * transfers + member_count(g->meetings);
    HOP_TRY(hop_calloc(&g->entries, g->tasks, sizeof *g->entries, err));
    HOP_TRY(hop_calloc(&g->from, edges, sizeof *g->from, err));
    HOP_TRY(hop_calloc(&g->to, edges, sizeof *g->to, err));
    HOP_TRY(hop_calloc(&g->target, edges, sizeof *g->target, err));
    HOP_TRY(hop_calloc(&g->begin, g->nodes + 1, sizeof *g->begin, err));
    return hop_calloc(&g->waits, g->nodes, sizeof *g->waits, err);
}

static void add_edge(struct graph *g, size_t from, size_t to)
{
    g->from[g->edges] = from;
    g->to[g->edges++] = to;
}

static size_t task_node(const struct graph *g, int32_t device, int32_t task)
{
    return (size_t)(g->first[device] + task);
}

static size_t producer(const struct graph *g, size_t x)
{
    return task_node(g, g->transfers->items[x].from_device, g->transfers->items[x].from_task);
}

static size_t consumer(const struct graph *g, size_t x)
{
    return task_node(g, g->transfers->items[x].to_device, g->transfers->items[x].to_task);
}

static void add_meetings(struct graph *g)
{
    for (size_t node = 0; node < g->tasks; node++)
        g->entries[node] = node;
    for (int32_t i = 0; i < g->meetings->count; i++) {
        const struct hop_meeting *const meeting = &g->meetings->items[i];
        const size_t start = g->tasks + (size_t)g->transfers->count + (size_t)i;
        for (int32_t k = 0; k < meeting->count; k++) {
            const size_t member =
                task_node(g, meeting->members[k].device, meeting->members[k].task);
            g->entries[member] = start;
            add_edge(g, start, member);
        }
    }
}

static void add_order(struct graph *g)
{
    for (int32_t d = 0; d < g->schedule->devices; d++)
        for (int32_t i = 1; i < g->schedule->lists[d].count; i++)
            add_edge(g, task_node(g, d, i - 1), g->entries[task_node(g, d, i)]);
}

static void add_dependencies(struct graph *g)
{
    for (size_t x = 0; x < (size_t)g->transfers->count; x++) {
        if (!hop_transfer_is_buffered(&g->transfers->items[x])) {
            add_edge(g, producer(g, x), g->entries[consumer(g, x)]);
            continue;
        }
        add_edge(g, producer(g, x), g->tasks + x);
        add_edge(g, g->tasks + x, g->entries[consumer(g, x)]);
    }
}

/* A receive is posted when the task that used its buffer before is done; a send buffer is free when
 * the message before was taken. */
static hop_status add_windows(struct graph *g, bool sending, int32_t window, struct hop_error *err)
{
    struct hop_buffer_pair *pairs;
    int32_t count;
    HOP_TRY(hop_buffer_pairs(g->transfers, sending, window, &pairs, &count, err));
    for (int32_t i = 0; i < count; i++) {
        const size_t before = (size_t)pairs[i].before, after = (size_t)pairs[i].after;
        if (sending)
            add_edge(g, g->tasks + before, g->entries[producer(g, after)]);
        else
            add_edge(g, consumer(g, before), g->tasks + after);
    }
    free(pairs);
    return HOP_OK;
}

static void sort_edges(struct graph *g)
{
    for (size_t e = 0; e < g->edges; e++) {
        g->begin[g->from[e]]++;
        g->waits[g->to[e]]++;
    }
    size_t sum = 0;
    for (size_t n = 0; n <= g->nodes; n++)
        sum = g->begin[n] += sum;
    for (size_t e = g->edges; e-- > 0;)
        g->target[--g->begin[g->from[e]]] = g->to[e];
}

/* Removes nodes that wait for nothing until none is left; returns how many went. */
static size_t resolve(struct graph *g, size_t *queue)
{
    size_t head = 0, tail = 0;
    for (size_t n = 0; n < g->nodes; n++)
        if (!g->waits[n])
            queue[tail++] = n;
    while (head < tail) {
        const size_t n = queue[head++];
        for (size_t e = g->begin[n]; e < g->begin[n + 1]; e++)
            if (--g->waits[g->target[e]] == 0)
                queue[tail++] = g->target[e];
    }
    return tail;
}

static const struct hop_task *task_of(const struct graph *g, size_t node, int32_t *device)
{
    for (*device = g->schedule->devices - 1;
         (size_t)g->first[*device] > node || !g->schedule->lists[*device].count;)
        (*device)--;
    return &g->schedule->lists[*device].tasks[node - (size_t)g->first[*device]];
}

static hop_status append_task(const struct graph *g, size_t node, struct hop_string *text,
                              struct hop_error *err)
{
    int32_t device;
    char task[HOP_TASK_TEXT];
    hop_task_describe(task_of(g, node, &device), task, sizeof task);
    return hop_string_printf(text, err, "%s%s on device %d", text->length ? " waits for " : "",
                             task, device);
}

/* Names the tasks from `start` along waits_for back to `start`. */
static hop_status describe_cycle(const struct graph *g, const size_t *waits_for, size_t start,
                                 struct hop_string *text, struct hop_error *err)
{
    size_t node = start;
    int32_t shown = 0;
    do {
        if (node < g->tasks && shown++ < CYCLE_SHOWN)
            HOP_TRY(append_task(g, node, text, err));
        node = waits_for[node];
    } while (node != start);
    return hop_string_printf(text, err, " waits for %sthe first",
                             shown > CYCLE_SHOWN ? "further tasks and " : "");
}

/* Every unresolved node waits for an unresolved one, so walking those waits ends in a cycle. */
static hop_status report_cycle(const struct graph *g, size_t *waits_for, int32_t window,
                               struct hop_error *err)
{
    size_t node = 0;
    for (size_t e = 0; e < g->edges; e++)
        if (g->waits[g->from[e]] && g->waits[g->to[e]])
            node = g->to[e], waits_for[g->to[e]] = g->from[e];
    for (size_t step = 0; step < g->nodes; step++)
        node = waits_for[node];
    while (node >= g->tasks)
        node = waits_for[node];
    struct hop_string text = {0};
    hop_status status = describe_cycle(g, waits_for, node, &text, err);
    if (status == HOP_OK)
        status = hop_fail(err, HOP_INPUT, "schedule: with %d buffer%s it deadlocks: %s", window,
                          window == 1 ? "" : "s", hop_string_text(&text));
    hop_string_free(&text);
    return status;
}

hop_status hop_deadlock_check(const struct hop_schedule *schedule,
                              const struct hop_transfers *transfers,
                              const struct hop_meetings *meetings, int32_t window,
                              struct hop_error *err)
{
    struct graph g = {.schedule = schedule, .transfers = transfers, .meetings = meetings};
    size_t *scratch = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(create_graph(&g, err));
    HOP_TRY_DONE(hop_calloc(&scratch, g.nodes, sizeof *scratch, err));
    add_meetings(&g);
    add_order(&g);
    add_dependencies(&g);
    HOP_TRY_DONE(add_windows(&g, true, window, err));
    HOP_TRY_DONE(add_windows(&g, false, window, err));
    sort_edges(&g);
    if (resolve(&g, scratch) < g.nodes)
        status = report_cycle(&g, scratch, window, err);
done:
    free(scratch);
    free_graph(&g);
    return status;
}
