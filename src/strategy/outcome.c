#include "strategy/outcome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "strategy/formula_search.h"
#include "strategy/parts.h"

/* For all searches of an outcome: some 50 ms. Small problems are proved long before. */
static const struct hop_line_effort effort = {.tasks = 1 << 19, .starts = 1 << 16};

/* What searches of one pipeline share: also the effort that is left, in equal shares. */
struct workshop {
    const struct hop_pipeline *pipeline;
    struct hop_greedy *greedy;
    struct hop_plan scratch;
    struct hop_run *runs;
    struct hop_line_effort left;
    int32_t searches; /* still to come */
};

hop_status hop_outcome_create(const struct hop_pipeline *pipeline, struct hop_outcome *out,
                              struct hop_error *err)
{
    struct hop_outcome outcome = {.seconds = INFINITY, .bound = INFINITY, .all_seconds = NAN};
    HOP_TRY(hop_calloc(&outcome.runs, (size_t)pipeline->devices, sizeof *outcome.runs, err));
    *out = outcome;
    return HOP_OK;
}

void hop_outcome_free(struct hop_outcome *outcome)
{
    if (!outcome)
        return;
    free(outcome->runs);
    *outcome = (struct hop_outcome){0};
}

bool hop_pipeline_takes_all(const struct hop_pipeline *pipeline)
{
    const struct hop_plan_request *const request = pipeline->request;
    return request->devices == HOP_DEVICES_ALL ||
           (request->devices == HOP_DEVICES_DEFAULT && request->objective == HOP_OBJECTIVE_FORMULA);
}

static void close_workshop(struct workshop *shop)
{
    hop_greedy_free(shop->greedy);
    hop_plan_free(&shop->scratch);
    free(shop->runs);
}

static hop_status open_workshop(const struct hop_pipeline *pipeline, int32_t searches,
                                struct workshop *shop, struct hop_error *err)
{
    *shop = (struct workshop){.pipeline = pipeline, .left = effort, .searches = searches};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_greedy_create(pipeline->cost, pipeline->devices, pipeline->micro_batches,
                                   pipeline->probes, pipeline->exit_probes,
                                   pipeline->request->probe_batch, &shop->greedy, err));
    HOP_TRY_DONE(hop_plan_begin(pipeline->request, "", pipeline->devices, &shop->scratch, err));
    HOP_TRY_DONE(hop_calloc(&shop->runs, (size_t)pipeline->devices, sizeof *shop->runs, err));
    return HOP_OK;
done:
    close_workshop(shop);
    return status;
}

static hop_status search_line(struct hop_line_search *search, bool first_only,
                              struct hop_error *err)
{
    const struct hop_line_start empty = hop_line_empty();
    const double beat = search->seconds;
    if (hop_line_seconds(search->bound, &empty) >= beat * (1 - HOP_PLAN_TIE)) {
        search->proved = beat;
        return HOP_OK;
    }
    HOP_TRY(hop_line_seed(search, err));
    if (first_only && search->count)
        return HOP_OK;
    return hop_line_prove(search, first_only, err);
}

/* Lines with or without BP-free devices that beat `beat`; search->count is 0 where none was found.
 */
static hop_status search_kind(struct workshop *shop, bool all, bool front, bool first_only,
                              double beat, struct hop_line_search *search, struct hop_error *err)
{
    struct hop_order order = {0};
    struct hop_line_bound bound = {0};
    struct hop_line_effort left = {.tasks = shop->left.tasks / shop->searches,
                                   .starts = shop->left.starts / shop->searches};
    const struct hop_line_effort share = left;
    hop_status status = HOP_OK;
    *search = (struct hop_line_search){.pipeline = shop->pipeline,
                                       .greedy = shop->greedy,
                                       .scratch = &shop->scratch,
                                       .left = &left,
                                       .runs = shop->runs,
                                       .seconds = beat};
    HOP_TRY_DONE(hop_order_line(shop->pipeline, all, front, &order, err));
    HOP_TRY_DONE(hop_line_bound_create(shop->pipeline, &order, front, &bound, err));
    search->order = &order;
    search->bound = &bound;
    HOP_TRY_DONE(search_line(search, first_only, err));
    if (!order.exhaustive)
        search->proved = NAN;
    shop->left.tasks -= share.tasks - left.tasks;
    shop->left.starts -= share.starts - left.starts;
    shop->left.simulations += left.simulations;
    shop->searches--;
done:
    hop_line_bound_free(&bound);
    hop_order_free(&order);
    return status;
}

static void keep(const struct hop_line_search *search, struct hop_outcome *outcome)
{
    outcome->bound =
        search->proved < outcome->bound || isnan(search->proved) ? search->proved : outcome->bound;
    if (!search->count)
        return;
    outcome->seconds = search->seconds;
    outcome->count = search->count;
    memcpy(outcome->runs, search->runs, (size_t)search->count * sizeof *search->runs);
}

static hop_status find_simulated(const struct hop_pipeline *pipeline, struct hop_outcome *outcome,
                                 struct hop_error *err)
{
    struct workshop shop;
    struct hop_line_search search;
    const bool front = pipeline->front_devices > 0, all = hop_pipeline_takes_all(pipeline);
    hop_status status = HOP_OK;
    HOP_TRY(open_workshop(pipeline, all ? 1 : 2 + front, &shop, err));
    HOP_TRY_DONE(search_kind(&shop, true, front, false, INFINITY, &search, err));
    keep(&search, outcome);
    const double all_seconds = outcome->seconds;
    for (int kind = front; !all && kind >= 0; kind--) {
        HOP_TRY_DONE(search_kind(&shop, false, kind, false, outcome->seconds, &search, err));
        keep(&search, outcome);
    }
    if (outcome->count < pipeline->devices && !isinf(all_seconds))
        outcome->all_seconds = all_seconds;
    outcome->spent.tasks = effort.tasks - shop.left.tasks;
    outcome->spent.starts = effort.starts - shop.left.starts;
    outcome->spent.simulations = shop.left.simulations;
done:
    close_workshop(&shop);
    return status;
}

static hop_status find_formula(const struct hop_pipeline *pipeline, struct hop_outcome *outcome,
                               struct hop_error *err)
{
    struct hop_run *runs;
    int32_t count;
    double seconds;
    HOP_TRY(
        hop_formula_search(pipeline, true, outcome->runs, &outcome->count, &outcome->seconds, err));
    outcome->bound = outcome->seconds;
    if (hop_pipeline_takes_all(pipeline))
        return HOP_OK;
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&runs, (size_t)pipeline->devices, sizeof *runs, err));
    HOP_TRY_DONE(hop_formula_search(pipeline, false, runs, &count, &seconds, err));
    if (seconds < outcome->seconds * (1 - HOP_PLAN_TIE)) {
        outcome->count = count;
        outcome->seconds = outcome->bound = seconds;
        memcpy(outcome->runs, runs, (size_t)count * sizeof *runs);
    }
done:
    free(runs);
    return status;
}

hop_status hop_outcome_find(const struct hop_pipeline *pipeline, struct hop_outcome *outcome,
                            struct hop_error *err)
{
    if (pipeline->request->objective == HOP_OBJECTIVE_FORMULA)
        return find_formula(pipeline, outcome, err);
    return find_simulated(pipeline, outcome, err);
}

static bool has_front(const struct hop_pipeline *pipeline, const struct hop_run *runs,
                      int32_t count)
{
    return count && runs[0].type < pipeline->front_types;
}

static hop_status reaches_formula(const struct hop_pipeline *pipeline, double seconds, bool *out,
                                  struct hop_error *err)
{
    struct hop_outcome outcome;
    HOP_TRY(hop_outcome_create(pipeline, &outcome, err));
    const hop_status status = find_formula(pipeline, &outcome, err);
    *out = has_front(pipeline, outcome.runs, outcome.count) &&
           outcome.seconds <= seconds * (1 + HOP_PLAN_TIE);
    hop_outcome_free(&outcome);
    return status;
}

hop_status hop_outcome_reaches(const struct hop_pipeline *pipeline, double seconds, bool *out,
                               struct hop_error *err)
{
    if (pipeline->request->objective == HOP_OBJECTIVE_FORMULA)
        return reaches_formula(pipeline, seconds, out, err);
    struct workshop shop;
    struct hop_line_search search;
    const double beat = seconds * (1 + 2 * HOP_PLAN_TIE);
    HOP_TRY(open_workshop(pipeline, 1, &shop, err));
    const hop_status status =
        search_kind(&shop, hop_pipeline_takes_all(pipeline), true, true, beat, &search, err);
    *out = status == HOP_OK && search.count > 0;
    close_workshop(&shop);
    return status;
}
