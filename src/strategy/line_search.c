#include "strategy/line_search.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* A line's start in the heap: where it came from, to find its runs again. */
struct node {
    struct hop_line_start line;
    int32_t parent; /* or -1 */
    double seconds; /* no line that begins so is faster */
};

struct front {
    struct hop_line_search *search;
    struct node *nodes;
    size_t node_count, node_capacity;
    int32_t *heap;
    size_t open, heap_capacity;
    struct hop_run *runs;
};

/* Longer starts first among equals: they become whole lines, and good ones prune. */
static bool before(const struct front *front, int32_t a, int32_t b)
{
    const struct node *const x = &front->nodes[a], *const y = &front->nodes[b];
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds;
    if (x->line.cut != y->line.cut)
        return x->line.cut > y->line.cut;
    return a < b;
}

static void swap(int32_t *a, int32_t *b)
{
    const int32_t kept = *a;
    *a = *b;
    *b = kept;
}

static hop_status push(struct front *front, const struct node *node, struct hop_error *err)
{
    HOP_TRY(hop_grow(&front->nodes, &front->node_capacity, front->node_count + 1,
                     sizeof *front->nodes, err));
    HOP_TRY(
        hop_grow(&front->heap, &front->heap_capacity, front->open + 1, sizeof *front->heap, err));
    front->nodes[front->node_count] = *node;
    size_t at = front->open++;
    front->heap[at] = (int32_t)front->node_count++;
    for (; at > 0 && before(front, front->heap[at], front->heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&front->heap[at], &front->heap[(at - 1) / 2]);
    return HOP_OK;
}

static int32_t pop(struct front *front)
{
    const int32_t first = front->heap[0];
    front->heap[0] = front->heap[--front->open];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child < front->open && child <= 2 * at + 2; child++)
            if (before(front, front->heap[child], front->heap[least]))
                least = child;
        if (least == at)
            return first;
        swap(&front->heap[at], &front->heap[least]);
        at = least;
    }
}

static bool can_win(const struct front *front, double seconds)
{
    return seconds < front->search->seconds * (1 - HOP_PLAN_TIE);
}

/* Adds the ways to go on with one more device of the type. */
static hop_status grow_type(struct front *front, int32_t parent, int32_t type,
                            struct hop_error *err)
{
    struct hop_line_search *const search = front->search;
    const struct hop_pipeline *const pipeline = search->pipeline;
    const struct hop_line_start start = front->nodes[parent].line;
    const int32_t to = search->order->next[start.state * search->order->types + type];
    const double least = front->nodes[parent].seconds;
    if (to < 0)
        return HOP_OK;
    const int32_t end = pipeline->blocks - search->order->missing[to];
    for (int32_t hi = start.cut + 1; hi <= end; hi++) {
        if (!hop_pipeline_fits(pipeline, type, start.cut, hi, hop_pipeline_least(pipeline, type)))
            continue;
        struct node node = {.parent = parent,
                            .line = hop_line_extend(search->bound, &start, type, hi)};
        node.seconds = fmax(least, hop_line_seconds(search->bound, &node.line));
        search->left->starts--;
        if (can_win(front, node.seconds))
            HOP_TRY(push(front, &node, err));
    }
    return HOP_OK;
}

/* A line that wins is a new place to climb from. */
static hop_status simulate(struct front *front, int32_t leaf, struct hop_error *err)
{
    int32_t count = 0;
    for (int32_t n = leaf; front->nodes[n].parent >= 0; n = front->nodes[n].parent)
        count++;
    int32_t i = count;
    for (int32_t n = leaf; front->nodes[n].parent >= 0; n = front->nodes[n].parent) {
        const struct hop_line_start *const line = &front->nodes[n].line;
        front->runs[--i] =
            (struct hop_run){line->last, front->nodes[front->nodes[n].parent].line.cut, line->cut};
    }
    if (!hop_line_offer(front->search, front->runs, count))
        return HOP_OK;
    return hop_line_climb(front->search, front->runs, count, err);
}

static hop_status step(struct front *front, struct hop_error *err)
{
    const struct hop_line_search *const search = front->search;
    const int32_t n = pop(front);
    if (front->nodes[n].line.cut == search->pipeline->blocks)
        return simulate(front, n, err);
    for (int32_t type = 0; type < search->order->types; type++)
        HOP_TRY(grow_type(front, n, type, err));
    return HOP_OK;
}

hop_status hop_line_prove(struct hop_line_search *search, bool first_only, struct hop_error *err)
{
    const double began = search->seconds;
    struct front front = {.search = search};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(
        hop_calloc(&front.runs, (size_t)search->pipeline->devices, sizeof *front.runs, err));
    struct node root = {.line = hop_line_empty(), .parent = -1};
    root.seconds = hop_line_seconds(search->bound, &root.line);
    if (can_win(&front, root.seconds))
        HOP_TRY_DONE(push(&front, &root, err));
    while (front.open && can_win(&front, front.nodes[front.heap[0]].seconds) &&
           search->left->tasks > 0 && search->left->starts > 0 &&
           !(first_only && search->seconds < began))
        HOP_TRY_DONE(step(&front, err));
    search->proved = search->seconds;
    if (front.open)
        search->proved = fmin(search->proved, front.nodes[front.heap[0]].seconds);
done:
    free(front.nodes);
    free(front.heap);
    free(front.runs);
    return status;
}
