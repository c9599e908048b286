/* First lines: a beam of the starts with the least bounds, stage after stage. Of starts that hold
 * the same blocks on the same devices only the best goes on, so that the beam keeps different
 * orders. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "strategy/line_search.h"

enum { WIDTH = 24, LEAVES = 3 };

struct beam_node {
    struct hop_line_start line;
    double seconds;
    int32_t parent; /* in `kept`, or -1 */
};

struct beam {
    const struct hop_line_search *search;
    struct beam_node *kept;    /* (devices + 1) levels of at most WIDTH */
    int32_t kept_count, level; /* level: first of the last level */
    struct beam_node *fresh;   /* children of the last level, one for every state and cut */
    int32_t *places;           /* (states, blocks + 1) of a child in `fresh`, or -1 */
    int32_t fresh_count;
    struct beam_node leaves[LEAVES]; /* whole lines, best first */
    int32_t leaf_count;
};

static hop_status create_beam(const struct hop_line_search *search, struct beam *beam,
                              struct hop_error *err)
{
    const size_t devices = (size_t)search->pipeline->devices;
    const size_t cells = (size_t)search->order->states * ((size_t)search->pipeline->blocks + 1);
    *beam = (struct beam){.search = search};
    HOP_TRY(hop_calloc(&beam->kept, (devices + 1) * WIDTH, sizeof *beam->kept, err));
    HOP_TRY(hop_calloc(&beam->fresh, cells, sizeof *beam->fresh, err));
    HOP_TRY(hop_calloc(&beam->places, cells, sizeof *beam->places, err));
    memset(beam->places, -1, cells * sizeof *beam->places);
    return HOP_OK;
}

static void free_beam(struct beam *beam)
{
    free(beam->kept);
    free(beam->fresh);
    free(beam->places);
}

static void add_leaf(struct beam *beam, const struct beam_node *node)
{
    int32_t at = beam->leaf_count < LEAVES ? beam->leaf_count++ : LEAVES - 1;
    if (at == LEAVES - 1 && beam->leaves[at].line.cut && beam->leaves[at].seconds <= node->seconds)
        return;
    for (; at > 0 && beam->leaves[at - 1].seconds > node->seconds; at--)
        beam->leaves[at] = beam->leaves[at - 1];
    beam->leaves[at] = *node;
}

static void add_child(struct beam *beam, const struct beam_node *node)
{
    const int32_t blocks = beam->search->pipeline->blocks;
    if (isinf(node->seconds))
        return;
    if (node->line.cut == blocks) {
        add_leaf(beam, node);
        return;
    }
    int32_t *const place = &beam->places[node->line.state * (blocks + 1) + node->line.cut];
    if (*place < 0)
        *place = beam->fresh_count++;
    else if (beam->fresh[*place].seconds <= node->seconds)
        return;
    beam->fresh[*place] = *node;
}

static void extend(struct beam *beam, int32_t parent, int32_t type)
{
    const struct hop_line_search *const search = beam->search;
    const struct hop_pipeline *const pipeline = search->pipeline;
    const struct hop_line_start start = beam->kept[parent].line;
    const int32_t to = search->order->next[start.state * search->order->types + type];
    if (to < 0)
        return;
    for (int32_t hi = start.cut + 1; hi <= pipeline->blocks - search->order->missing[to]; hi++) {
        if (!hop_pipeline_fits(pipeline, type, start.cut, hi, hop_pipeline_least(pipeline, type)))
            continue;
        struct beam_node node = {.line = hop_line_extend(search->bound, &start, type, hi),
                                 .parent = parent};
        node.seconds = hop_line_seconds(search->bound, &node.line);
        search->left->starts--;
        add_child(beam, &node);
    }
}

static int compare(const void *a, const void *b)
{
    const struct beam_node *const x = a, *const y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    if (x->line.cut != y->line.cut)
        return x->line.cut > y->line.cut ? -1 : 1;
    return (x->line.state > y->line.state) - (x->line.state < y->line.state);
}

/* Makes the best children the next level. */
static void advance(struct beam *beam)
{
    const int32_t row = beam->search->pipeline->blocks + 1;
    for (int32_t i = 0; i < beam->fresh_count; i++)
        beam->places[beam->fresh[i].line.state * row + beam->fresh[i].line.cut] = -1;
    qsort(beam->fresh, (size_t)beam->fresh_count, sizeof *beam->fresh, compare);
    beam->level = beam->kept_count;
    for (int32_t i = 0; i < beam->fresh_count && i < WIDTH; i++)
        beam->kept[beam->kept_count++] = beam->fresh[i];
    beam->fresh_count = 0;
}

static void grow(struct beam *beam)
{
    beam->kept[beam->kept_count++] = (struct beam_node){.line = hop_line_empty(), .parent = -1};
    while (beam->level < beam->kept_count) {
        const int32_t end = beam->kept_count;
        for (int32_t parent = beam->level; parent < end; parent++)
            for (int32_t type = 0; type < beam->search->order->types; type++)
                extend(beam, parent, type);
        advance(beam);
    }
}

static int32_t read_runs(const struct beam *beam, const struct beam_node *leaf,
                         struct hop_run *runs)
{
    int32_t count = 1;
    for (int32_t n = leaf->parent; beam->kept[n].parent >= 0; n = beam->kept[n].parent)
        count++;
    const struct beam_node *node = leaf;
    for (int32_t i = count - 1; i >= 0; i--) {
        const struct beam_node *const parent = &beam->kept[node->parent];
        runs[i] = (struct hop_run){node->line.last, parent->line.cut, node->line.cut};
        node = parent;
    }
    return count;
}

hop_status hop_line_seed(struct hop_line_search *search, struct hop_error *err)
{
    struct beam beam = {0};
    struct hop_run *runs = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(create_beam(search, &beam, err));
    HOP_TRY_DONE(hop_calloc(&runs, (size_t)search->pipeline->devices, sizeof *runs, err));
    grow(&beam);
    for (int32_t i = 0; i < beam.leaf_count; i++) {
        if (beam.leaves[i].seconds >= search->seconds)
            break;
        const int32_t count = read_runs(&beam, &beam.leaves[i], runs);
        HOP_TRY_DONE(hop_line_climb(search, runs, count, err));
    }
done:
    free_beam(&beam);
    free(runs);
    return status;
}
