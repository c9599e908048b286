/* The line of least greedy makespan: best first by hop_line_seconds(), from a start that local
 * search made good. Private to src/strategy. */
#ifndef HOP_STRATEGY_LINE_SEARCH_H
#define HOP_STRATEGY_LINE_SEARCH_H

#include "schedule/greedy.h"
#include "strategy/line_bound.h"

/* What a search may spend, and what it did. Counted in tasks that were simulated and starts of
 * lines that were bounded, never in time, so that equal requests get equal plans. */
struct hop_line_effort {
    int64_t tasks, starts;
    int64_t simulations; /* lines simulated */
};

struct hop_line_search {
    const struct hop_pipeline *pipeline;
    const struct hop_order *order;
    const struct hop_line_bound *bound;
    struct hop_greedy *greedy; /* made for the probes of these lines */
    struct hop_plan *scratch;  /* begun by hop_plan_begin(), with room for a part a device */
    struct hop_line_effort *left;
    /* The best line so far; count 0: none yet, then `seconds` is only what must be beaten. */
    struct hop_run *runs;
    int32_t count;
    double seconds;
    double proved; /* no line is faster */
};

/* Relative: lines whose times differ by less are equally good. */
#define HOP_PLAN_TIE 1e-9

/* Seconds of a mini-batch on these runs; INFINITY where it is not below `limit`, or does not fit.
 * Spends effort. */
double hop_line_simulate(struct hop_line_search *search, const struct hop_run *runs, int32_t count,
                         double limit);
/* Keeps the runs if they are better by more than a tie. */
bool hop_line_offer(struct hop_line_search *search, const struct hop_run *runs, int32_t count);
/* hop_line_seconds() of whole lines; INFINITY for lines that the order or the memory rules out. */
double hop_line_judge(const struct hop_line_search *search, const struct hop_run *runs,
                      int32_t count);

/* Moves blocks and swaps devices of a line until neither makes it better, and keeps the result if
 * it beats the best line. */
hop_status hop_line_climb(struct hop_line_search *search, const struct hop_run *runs, int32_t count,
                          struct hop_error *err);
/* Climbs from several lines that follow the bounds. */
hop_status hop_line_seed(struct hop_line_search *search, struct hop_error *err);
/* Improves the best line and `proved` until they meet or the effort is spent. first_only: also
 * stops at the first line that beats the `seconds` it began with. */
hop_status hop_line_prove(struct hop_line_search *search, bool first_only, struct hop_error *err);

#endif
