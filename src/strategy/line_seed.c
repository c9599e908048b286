/* A first line: stage after stage the one whose bound is least. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "strategy/line_search.h"

/* Replaces *next where going on with the type gives a lower bound. */
static void choose(const struct hop_line_search *search, const struct hop_line_start *line,
                   int32_t type, struct hop_line_start *next, double *least)
{
    const struct hop_pipeline *const pipeline = search->pipeline;
    const int32_t to = search->order->next[line->state * search->order->types + type];
    if (to < 0)
        return;
    for (int32_t hi = line->cut + 1; hi <= pipeline->blocks - search->order->missing[to]; hi++) {
        if (!hop_pipeline_fits(pipeline, type, line->cut, hi, pipeline->types[type].bp))
            continue;
        const struct hop_line_start longer = hop_line_extend(search->bound, line, type, hi);
        const double seconds = hop_line_seconds(search->bound, &longer);
        if (!(seconds < *least))
            continue;
        *least = seconds;
        *next = longer;
    }
}

hop_status hop_line_seed(struct hop_line_search *search, struct hop_error *err)
{
    struct hop_run *runs;
    int32_t count = 0;
    struct hop_line_start line = hop_line_empty();
    HOP_TRY(hop_calloc(&runs, (size_t)search->pipeline->devices, sizeof *runs, err));
    while (line.cut < search->pipeline->blocks) {
        struct hop_line_start next = line;
        double least = INFINITY;
        for (int32_t type = 0; type < search->order->types; type++)
            choose(search, &line, type, &next, &least);
        if (next.cut == line.cut)
            break;
        runs[count++] = (struct hop_run){next.last, line.cut, next.cut};
        line = next;
    }
    if (line.cut == search->pipeline->blocks)
        hop_line_offer(search, runs, count);
    free(runs);
    return HOP_OK;
}
