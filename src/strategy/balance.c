#include "strategy/balance.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

static const double slack = 1 + 1e-12; /* sums of equal costs differ by rounding */

/* Tables over (runs + 1, n + 1): of the items from one on, cut into so many runs. */
struct table {
    const double *costs;
    int32_t n, runs;
    double *most;    /* the most expensive run, least possible */
    double *squares; /* sum of squares, least possible with no run above the best `most` */
    int32_t *length; /* of the first of those runs */
};

static void solve_most(struct table *table, int32_t runs, int32_t from)
{
    const int32_t row = table->n + 1;
    double *const best = &table->most[runs * row + from];
    double cost = 0;
    *best = INFINITY;
    for (int32_t to = from + 1; to <= table->n; to++) {
        cost += table->costs[to - 1];
        *best = fmin(*best, fmax(cost, table->most[(runs - 1) * row + to]));
    }
}

/* Later lengths win ties: the first runs get the longest. */
static void solve_squares(struct table *table, int32_t runs, int32_t from, double limit)
{
    const int32_t row = table->n + 1;
    double *const best = &table->squares[runs * row + from];
    double cost = 0;
    *best = INFINITY;
    for (int32_t to = from + 1; to <= table->n; to++) {
        cost += table->costs[to - 1];
        const double sum = cost * cost + table->squares[(runs - 1) * row + to];
        if (cost > limit * slack || isinf(sum) || sum > *best * slack)
            continue;
        *best = sum;
        table->length[runs * row + from] = to - from;
    }
}

static void solve(struct table *table)
{
    const int32_t row = table->n + 1;
    for (int32_t i = 0; i < row; i++)
        table->most[i] = table->squares[i] = i == table->n ? 0 : INFINITY;
    for (int32_t runs = 1; runs <= table->runs; runs++)
        for (int32_t from = 0; from < row; from++)
            solve_most(table, runs, from);
    const double limit = table->most[table->runs * row];
    for (int32_t runs = 1; runs <= table->runs; runs++)
        for (int32_t from = 0; from < row; from++)
            solve_squares(table, runs, from, limit);
}

hop_status hop_balance(const double *costs, int32_t n, int32_t runs, int32_t *lengths,
                       struct hop_error *err)
{
    struct table table = {.costs = costs, .n = n, .runs = runs};
    const size_t cells = ((size_t)runs + 1) * ((size_t)n + 1);
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&table.most, cells, sizeof *table.most, err));
    HOP_TRY_DONE(hop_calloc(&table.squares, cells, sizeof *table.squares, err));
    HOP_TRY_DONE(hop_calloc(&table.length, cells, sizeof *table.length, err));
    solve(&table);
    int32_t from = 0;
    for (int32_t i = 0; i < runs; i++) {
        lengths[i] = table.length[(runs - i) * (n + 1) + from];
        from += lengths[i];
    }
done:
    free(table.most);
    free(table.squares);
    free(table.length);
    return status;
}
