/* What `simulate` and `compare` share: strategies on the same devices, with and without those that
 * are BP-free. */
#ifndef HOP_CLI_COMPARISON_H
#define HOP_CLI_COMPARISON_H

#include <stddef.h>

#include <jansson.h>

#include "runtime/planning.h"

struct hop_comparison {
    struct hop_forecast *forecasts; /* (count) */
    size_t count;
};

/* Asks each strategy of a text like "a,b" or "all" once; where BP-free devices may take part, and
 * there are some, once more without them. That nothing fits is a result, not a failure. */
hop_status hop_comparison_plan(const char *strategies, const struct hop_problem *problem,
                               struct hop_comparison *out, struct hop_error *err);
void hop_comparison_free(struct hop_comparison *comparison);

/* The first that is feasible; NULL: none is. */
const struct hop_forecast *hop_comparison_feasible(const struct hop_comparison *comparison);
/* HOP_OK, or where none fits the refusal of the first. */
hop_status hop_comparison_require(const struct hop_comparison *comparison, struct hop_error *err);

/* The array of `hybridop simulate --json`. NULL: out of memory. */
json_t *hop_comparison_json(const struct hop_comparison *comparison,
                            const struct hop_cost_table *cost);
/* Plays a feasible forecast again and writes its Chrome trace events. */
hop_status hop_comparison_trace(const char *path, const struct hop_forecast *forecast,
                                const struct hop_problem *problem, struct hop_error *err);

#endif
