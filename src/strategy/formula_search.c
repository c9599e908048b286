/* For a given largest stage time t, T_head is a sum: one program over the BP-free devices gives the
 * least sum for every split at once, one over the BP-capable devices, from the last one on, closes
 * it. The larger t, the smaller the sum S(t); only times of runs matter as t. Between two values of
 * t that are solved, S is at least that of the larger one, which rules most of them out. */
#include "strategy/formula_search.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "strategy/order.h"

static const double slack = 1 + 1e-12; /* sums of the same blocks differ by rounding */

/* Least sums over (state, cut), and the step that made each. */
struct table {
    double *sum;
    int32_t *from_state, *from_cut, *type;
};

/* How the BP-capable devices begin, and behind which cut. */
struct closing {
    double sum;
    int32_t state, cut, type, lo;
};

/* How the BP-free devices end in front of a cut. */
struct opening {
    double sum;
    int32_t state, lo, type; /* before the last device, which holds [lo, cut) */
    int32_t end;             /* the state behind it */
};

struct search {
    const struct hop_pipeline *pipeline;
    struct hop_order front, back;
    struct table fronts, backs;
    struct opening *openings; /* (blocks + 1) */
    bool may_lack_front;
    double *limits; /* times of runs, ascending */
    int32_t limit_count;
    struct closing best;
    double best_seconds, best_limit;
};

static hop_status create_table(int32_t states, int32_t blocks, struct table *table,
                               struct hop_error *err)
{
    const size_t n = (size_t)states * ((size_t)blocks + 1);
    HOP_TRY(hop_calloc(&table->sum, n, sizeof *table->sum, err));
    HOP_TRY(hop_calloc(&table->from_state, n, sizeof *table->from_state, err));
    HOP_TRY(hop_calloc(&table->from_cut, n, sizeof *table->from_cut, err));
    return hop_calloc(&table->type, n, sizeof *table->type, err);
}

static void free_table(struct table *table)
{
    free(table->sum);
    free(table->from_state);
    free(table->from_cut);
    free(table->type);
}

static void clear_table(struct table *table, int32_t states, int32_t blocks, int32_t start)
{
    for (int32_t i = 0; i < states * (blocks + 1); i++)
        table->sum[i] = INFINITY;
    table->sum[start] = 0;
}

static void relax(struct table *table, int32_t at, double sum, int32_t state, int32_t cut,
                  int32_t type)
{
    if (!(sum < table->sum[at]))
        return;
    table->sum[at] = sum;
    table->from_state[at] = state;
    table->from_cut[at] = cut;
    table->type[at] = type;
}

/* The first of equals: by the devices that stand, then as they were found. */
static void offer_opening(struct search *search, int32_t cut, struct opening opening)
{
    struct opening *const best = &search->openings[cut];
    const bool better =
        opening.sum < best->sum || (opening.sum == best->sum && opening.end < best->end);
    if (search->front.complete[opening.end] && better)
        *best = opening;
}

/* Adds a BP-free device of the type behind blocks [0, lo). */
static void extend_front(struct search *search, int32_t state, int32_t lo, int32_t type)
{
    const struct hop_pipeline *const pipeline = search->pipeline;
    const int32_t to = search->front.next[state * search->front.types + type];
    const int32_t row = pipeline->blocks + 1;
    const double before = search->fronts.sum[state * row + lo];
    if (to < 0 || isinf(before))
        return;
    for (int32_t hi = lo + 1;
         hi < row && hop_pipeline_fits(pipeline, type, lo, hi, pipeline->front_kept); hi++) {
        const double sum = before + hop_sum(pipeline->types[type].forward, lo, hi);
        relax(&search->fronts, to * row + hi, sum, state, lo, type);
        if (hop_pipeline_fits_last(pipeline, type, lo, hi))
            offer_opening(search, hi, (struct opening){sum, state, lo, type, to});
    }
}

static void solve_front(struct search *search)
{
    const int32_t row = search->pipeline->blocks + 1;
    clear_table(&search->fronts, search->front.states, row - 1, 0);
    for (int32_t cut = 0; cut < row; cut++)
        search->openings[cut].sum = INFINITY;
    for (int32_t s = 0; s < search->front.states; s++)
        for (int32_t lo = 0; lo < row; lo++)
            for (int32_t t = 0; t < search->front.types; t++)
                extend_front(search, s, lo, t);
}

/* The sum of the whole line, if the device that now begins at `lo` is the first BP-capable one. */
static void close_line(const struct search *search, const struct closing *end, double probes,
                       struct closing *best)
{
    double sum =
        end->sum + search->openings[end->lo].sum + search->pipeline->micro_batches * probes;
    if (end->lo == 0)
        sum = search->may_lack_front ? end->sum : INFINITY;
    if (!(sum < best->sum))
        return;
    *best = *end;
    best->sum = sum;
}

/* Puts a BP-capable device of the type before blocks [hi, blocks). */
static void extend_back(struct search *search, int32_t state, int32_t hi, int32_t type,
                        double limit, struct closing *best)
{
    const struct hop_pipeline *const pipeline = search->pipeline;
    const struct hop_device_type *const t = &pipeline->types[type];
    const int32_t row = pipeline->blocks + 1;
    const int32_t to = search->back.next[state * search->back.types + type - pipeline->front_types];
    const double behind = search->backs.sum[state * row + hi];
    if (to < 0 || isinf(behind))
        return;
    const int32_t kept = hop_in_flight_least(search->back.size[to], 0, pipeline->micro_batches);
    for (int32_t lo = hi - 1; lo >= 0; lo--) {
        const double seconds = hop_sum(t->forward, lo, hi) + hop_sum(t->backward, lo, hi);
        if (seconds > limit * slack)
            break;
        if (!hop_pipeline_fits(pipeline, type, lo, hi, kept))
            continue;
        relax(&search->backs, to * row + lo, behind + seconds, state, hi, type);
        const struct closing end = {behind + seconds, state, hi, type, lo};
        if (search->back.complete[to])
            close_line(search, &end, hop_sum(t->probe, lo, hi), best);
    }
}

/* S(limit): the least sum with no BP-capable stage slower than `limit`. */
static double solve_back(struct search *search, double limit)
{
    const int32_t row = search->pipeline->blocks + 1;
    struct closing best = {.sum = INFINITY};
    clear_table(&search->backs, search->back.states, row - 1, row - 1);
    for (int32_t s = 0; s < search->back.states; s++)
        for (int32_t hi = row - 1; hi > 0; hi--)
            for (int32_t t = search->pipeline->front_types; t < search->pipeline->type_count; t++)
                extend_back(search, s, hi, t, limit, &best);
    const double seconds = best.sum + (search->pipeline->micro_batches - 1) * limit;
    if (seconds < search->best_seconds) {
        search->best = best;
        search->best_seconds = seconds;
        search->best_limit = limit;
    }
    return best.sum;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static hop_status list_limits(struct search *search, struct hop_error *err)
{
    const struct hop_pipeline *const pipeline = search->pipeline;
    const int32_t blocks = pipeline->blocks, first = pipeline->front_types;
    const size_t runs = (size_t)blocks * ((size_t)blocks + 1) / 2;
    const size_t most = runs * (size_t)(pipeline->type_count - first);
    HOP_TRY(hop_calloc(&search->limits, most, sizeof *search->limits, err));
    size_t n = 0;
    for (int32_t t = first; t < pipeline->type_count; t++)
        for (int32_t lo = 0; lo < blocks; lo++)
            for (int32_t hi = lo + 1; hi <= blocks; hi++)
                search->limits[n++] = hop_sum(pipeline->types[t].forward, lo, hi) +
                                      hop_sum(pipeline->types[t].backward, lo, hi);
    qsort(search->limits, n, sizeof *search->limits, compare);
    for (size_t i = 0; i < n; i++) {
        const bool again = search->limit_count &&
                           search->limits[i] <= search->limits[search->limit_count - 1] * slack;
        if (!again)
            search->limit_count++;
        search->limits[search->limit_count - 1] = search->limits[i];
    }
    return HOP_OK;
}

/* Tries the limits between numbers lo and hi, both exclusive. With `hi_sum` as the limit `hi` has,
 * nothing in between is better than its smallest member with that sum. */
static void explore(struct search *search, int32_t lo, int32_t hi, double hi_sum)
{
    if (hi - lo < 2 || isinf(hi_sum))
        return;
    const int32_t turns = search->pipeline->micro_batches - 1;
    if (hi_sum + turns * search->limits[lo + 1] >= search->best_seconds)
        return;
    const int32_t middle = lo + (hi - lo) / 2;
    const double sum = solve_back(search, search->limits[middle]);
    explore(search, lo, middle, sum);
    explore(search, middle, hi, hi_sum);
}

/* Devices in front of the last BP-free one. */
static int32_t count_before(const struct search *search, const struct opening *last)
{
    const int32_t row = search->pipeline->blocks + 1;
    int32_t count = 0, state = last->state, cut = last->lo;
    for (; state > 0; count++) {
        const int32_t at = state * row + cut;
        state = search->fronts.from_state[at];
        cut = search->fronts.from_cut[at];
    }
    return count;
}

static int32_t front_runs(const struct search *search, struct hop_run *runs)
{
    const int32_t row = search->pipeline->blocks + 1;
    const struct opening *const last = &search->openings[search->best.lo];
    if (!search->best.lo)
        return 0;
    const int32_t count = count_before(search, last) + 1;
    int32_t state = last->state, cut = last->lo;
    runs[count - 1] = (struct hop_run){last->type, cut, search->best.lo};
    for (int32_t i = count - 2; i >= 0; i--) {
        const int32_t at = state * row + cut;
        runs[i] = (struct hop_run){search->fronts.type[at], search->fronts.from_cut[at], cut};
        state = search->fronts.from_state[at];
        cut = runs[i].lo;
    }
    return count;
}

static int32_t collect(struct search *search, struct hop_run *runs)
{
    const int32_t row = search->pipeline->blocks + 1;
    solve_back(search, search->best_limit);
    int32_t count = front_runs(search, runs);
    runs[count++] = (struct hop_run){search->best.type, search->best.lo, search->best.cut};
    int32_t state = search->best.state, cut = search->best.cut;
    while (state > 0) {
        const int32_t at = state * row + cut;
        runs[count++] = (struct hop_run){search->backs.type[at], cut, search->backs.from_cut[at]};
        state = search->backs.from_state[at];
        cut = runs[count - 1].hi;
    }
    return count;
}

/* T_head of the runs: the limit they were found with may be above their slowest stage. */
static double head_seconds(const struct hop_pipeline *pipeline, const struct hop_run *runs,
                           int32_t count)
{
    double sum = 0, slowest = 0, probes = 0;
    for (int32_t i = count - 1; i >= 0; i--) {
        const struct hop_device_type *const type = &pipeline->types[runs[i].type];
        double seconds = hop_sum(type->forward, runs[i].lo, runs[i].hi);
        if (type->bp) {
            seconds += hop_sum(type->backward, runs[i].lo, runs[i].hi);
            slowest = fmax(slowest, seconds);
            probes = hop_sum(type->probe, runs[i].lo, runs[i].hi);
        }
        sum += seconds;
    }
    if (runs[0].type >= pipeline->front_types)
        probes = 0;
    return sum + (pipeline->micro_batches - 1) * slowest + pipeline->micro_batches * probes;
}

static hop_status create_search(struct search *search, bool all, struct hop_error *err)
{
    const struct hop_pipeline *const pipeline = search->pipeline;
    const int32_t fronts = pipeline->front_types, blocks = pipeline->blocks;
    HOP_TRY(hop_order_class(pipeline, 0, fronts, all, false, &search->front, err));
    HOP_TRY(hop_order_class(pipeline, fronts, pipeline->type_count - fronts, all, true,
                            &search->back, err));
    HOP_TRY(create_table(search->front.states, blocks, &search->fronts, err));
    HOP_TRY(create_table(search->back.states, blocks, &search->backs, err));
    HOP_TRY(hop_calloc(&search->openings, (size_t)blocks + 1, sizeof *search->openings, err));
    return list_limits(search, err);
}

hop_status hop_formula_search(const struct hop_pipeline *pipeline, bool all, struct hop_run *runs,
                              int32_t *count, double *seconds, struct hop_error *err)
{
    struct search search = {.pipeline = pipeline,
                            .may_lack_front = !all || !pipeline->front_devices,
                            .best_seconds = INFINITY};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(create_search(&search, all, err));
    solve_front(&search);
    const double sum = solve_back(&search, search.limits[search.limit_count - 1]);
    explore(&search, -1, search.limit_count - 1, sum);
    *seconds = INFINITY;
    *count = 0;
    if (!isinf(search.best_seconds)) {
        *count = collect(&search, runs);
        *seconds = head_seconds(pipeline, runs, *count);
    }
done:
    hop_order_free(&search.front);
    hop_order_free(&search.back);
    free_table(&search.fronts);
    free_table(&search.backs);
    free(search.openings);
    free(search.limits);
    return status;
}
