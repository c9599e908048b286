/* Local search: a block from one stage to another, with those in between sliding, or two devices of
 * one class that change places, with or without their blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "strategy/line_search.h"

double hop_line_simulate(struct hop_line_search *search, const struct hop_run *runs, int32_t count,
                         double limit)
{
    const struct hop_pipeline *const pipeline = search->pipeline;
    struct hop_error unused = {0};
    hop_pipeline_fill(pipeline, runs, count, search->scratch);
    if (hop_plan_price(search->scratch, pipeline->cost, 1, &unused) != HOP_OK)
        return INFINITY;
    const bool probed = runs[0].type < pipeline->front_types;
    const int32_t probes = probed ? pipeline->probe_tasks + pipeline->exit_tasks : 0;
    search->left->tasks -= (int64_t)count * pipeline->micro_batches * (2 + probes);
    search->left->simulations++;
    return hop_greedy_makespan(search->greedy, search->scratch, limit);
}

bool hop_line_offer(struct hop_line_search *search, const struct hop_run *runs, int32_t count)
{
    const double limit = search->seconds * (1 - HOP_PLAN_TIE);
    const double seconds = hop_line_simulate(search, runs, count, limit);
    if (!(seconds < limit))
        return false;
    search->seconds = seconds;
    search->count = count;
    memmove(search->runs, runs, (size_t)count * sizeof *runs);
    return true;
}

double hop_line_judge(const struct hop_line_search *search, const struct hop_run *runs,
                      int32_t count)
{
    struct hop_line_start line = hop_line_empty();
    for (int32_t i = 0; i < count; i++) {
        const struct hop_run *const run = &runs[i];
        if (search->order->next[line.state * search->order->types + run->type] < 0 ||
            run->lo >= run->hi ||
            !hop_pipeline_fits(search->pipeline, run->type, run->lo, run->hi,
                               hop_pipeline_least(search->pipeline, run->type)))
            return INFINITY;
        line = hop_line_extend(search->bound, &line, run->type, run->hi);
    }
    return hop_line_seconds(search->bound, &line);
}

struct climb {
    struct hop_line_search *search;
    struct hop_run *from, *trial; /* the line that is varied, and a variant */
    bool improved;
};

static void try_trial(struct climb *climb)
{
    struct hop_line_search *const search = climb->search;
    const double bound = hop_line_judge(search, climb->trial, search->count);
    if (search->left->tasks > 0 && bound < search->seconds * (1 - HOP_PLAN_TIE) &&
        hop_line_offer(search, climb->trial, search->count))
        climb->improved = true;
}

static void copy_line(const struct climb *climb)
{
    memcpy(climb->trial, climb->from, (size_t)climb->search->count * sizeof *climb->trial);
}

/* Moves `blocks` blocks from stage a to stage b. */
static void move_blocks(struct climb *climb, int32_t a, int32_t b, int32_t blocks)
{
    copy_line(climb);
    for (int32_t i = a; i < b; i++) {
        climb->trial[i].hi -= blocks;
        climb->trial[i + 1].lo -= blocks;
    }
    for (int32_t i = a; i > b; i--) {
        climb->trial[i].lo += blocks;
        climb->trial[i - 1].hi += blocks;
    }
    try_trial(climb);
}

/* Swaps the devices of stages a < b; with `blocks` each keeps its number of blocks. */
static void swap_devices(struct climb *climb, int32_t a, int32_t b, bool blocks)
{
    copy_line(climb);
    struct hop_run *const line = climb->trial;
    const int32_t type = line[a].type;
    line[a].type = line[b].type;
    line[b].type = type;
    const int32_t shift = (line[b].hi - line[b].lo) - (line[a].hi - line[a].lo);
    if (blocks && !shift)
        return;
    for (int32_t i = a; blocks && i < b; i++) {
        line[i].hi += shift;
        line[i + 1].lo += shift;
    }
    try_trial(climb);
}

static void vary_pair(struct climb *climb, int32_t a, int32_t b)
{
    enum { MOST_MOVED = 2 };
    for (int32_t blocks = 1; blocks <= MOST_MOVED; blocks++) {
        move_blocks(climb, a, b, blocks);
        move_blocks(climb, b, a, blocks);
    }
    if (climb->from[a].type == climb->from[b].type)
        return;
    swap_devices(climb, a, b, false);
    swap_devices(climb, a, b, true);
}

static void climb_up(struct climb *climb)
{
    struct hop_line_search *const search = climb->search;
    climb->improved = search->count > 0;
    while (climb->improved && search->left->tasks > 0) {
        climb->improved = false;
        memcpy(climb->from, search->runs, (size_t)search->count * sizeof *climb->from);
        for (int32_t a = 0; a < search->count; a++)
            for (int32_t b = a + 1; b < search->count; b++)
                vary_pair(climb, a, b);
    }
}

hop_status hop_line_climb(struct hop_line_search *search, const struct hop_run *runs, int32_t count,
                          struct hop_error *err)
{
    const size_t most = (size_t)search->pipeline->devices;
    struct hop_line_search local = *search;
    struct climb climb = {.search = &local};
    struct hop_run *lines;
    HOP_TRY(hop_calloc(&lines, 3 * most, sizeof *lines, err));
    climb.from = lines;
    climb.trial = lines + most;
    local.runs = lines + 2 * most;
    local.count = 0;
    local.seconds = INFINITY;
    hop_line_offer(&local, runs, count);
    climb_up(&climb);
    if (local.seconds < search->seconds * (1 - HOP_PLAN_TIE)) {
        search->seconds = local.seconds;
        search->count = local.count;
        memcpy(search->runs, local.runs, (size_t)local.count * sizeof *local.runs);
    }
    free(lines);
    return HOP_OK;
}
