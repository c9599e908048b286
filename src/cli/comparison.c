#include "cli/comparison.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "report/trace.h"
#include "sim/simulate.h"

/* Strategies */

struct choice {
    const struct hop_strategy **strategies;
    size_t count;
};

/* Room for every strategy there is, and for every name in the text. */
static hop_status make_room(const char *text, struct choice *out, struct hop_error *err)
{
    size_t most = 1;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    for (size_t i = 0; hop_strategies[i]; i++)
        most += 1;
    return hop_calloc(&out->strategies, most, sizeof *out->strategies, err);
}

static void add_strategy(struct choice *out, const struct hop_strategy *strategy)
{
    for (size_t i = 0; i < out->count; i++)
        if (out->strategies[i] == strategy)
            return;
    out->strategies[out->count++] = strategy;
}

static hop_status add_name(struct choice *out, const char *text, size_t length,
                           struct hop_error *err)
{
    char name[HOP_STRATEGY_NAME];
    const struct hop_strategy *strategy;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (strcmp(name, "all") == 0) {
        for (size_t i = 0; hop_strategies[i]; i++)
            add_strategy(out, hop_strategies[i]);
        return HOP_OK;
    }
    HOP_TRY(hop_strategy_find(name, &strategy, err));
    add_strategy(out, strategy);
    return HOP_OK;
}

static hop_status choose(const char *text, struct choice *out, struct hop_error *err)
{
    HOP_TRY(make_room(text, out, err));
    for (;;) {
        const size_t length = strcspn(text, ",");
        HOP_TRY(add_name(out, text, length, err));
        if (!text[length])
            return HOP_OK;
        text += length + 1;
    }
}

/* Forecasts */

static bool has_bp_free(const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp)
            return true;
    return false;
}

static hop_status add_forecast(struct hop_comparison *out, const struct hop_strategy *strategy,
                               struct hop_plan_request request, bool bp_only, struct hop_error *err)
{
    request.bp_only = bp_only;
    HOP_TRY(hop_forecast_plan(strategy, &request, &out->forecasts[out->count], err));
    out->count++;
    return HOP_OK;
}

static hop_status plan_all(const struct choice *choice, const struct hop_problem *problem,
                           struct hop_comparison *out, struct hop_error *err)
{
    const struct hop_plan_request *const request = &problem->request;
    const bool both = !request->bp_only && has_bp_free(&problem->cost);
    HOP_TRY(hop_calloc(&out->forecasts, 2 * choice->count, sizeof *out->forecasts, err));
    for (size_t i = 0; i < choice->count; i++) {
        HOP_TRY(add_forecast(out, choice->strategies[i], *request, request->bp_only, err));
        if (both)
            HOP_TRY(add_forecast(out, choice->strategies[i], *request, true, err));
    }
    return HOP_OK;
}

hop_status hop_comparison_plan(const char *strategies, const struct hop_problem *problem,
                               struct hop_comparison *out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct choice choice = {0};
    struct hop_comparison comparison = {0};
    HOP_TRY_DONE(choose(strategies, &choice, err));
    HOP_TRY_DONE(plan_all(&choice, problem, &comparison, err));
    *out = comparison;
    comparison = (struct hop_comparison){0};
done:
    hop_comparison_free(&comparison);
    free(choice.strategies);
    return status;
}

void hop_comparison_free(struct hop_comparison *comparison)
{
    if (!comparison)
        return;
    for (size_t i = 0; i < comparison->count; i++)
        hop_forecast_free(&comparison->forecasts[i]);
    free(comparison->forecasts);
    *comparison = (struct hop_comparison){0};
}

const struct hop_forecast *hop_comparison_feasible(const struct hop_comparison *comparison)
{
    for (size_t i = 0; i < comparison->count; i++)
        if (comparison->forecasts[i].feasible)
            return &comparison->forecasts[i];
    return NULL;
}

hop_status hop_comparison_require(const struct hop_comparison *comparison, struct hop_error *err)
{
    if (hop_comparison_feasible(comparison))
        return HOP_OK;
    const hop_status status = hop_forecast_require(&comparison->forecasts[0], err);
    if (comparison->count > 1)
        hop_wrap(err, "none of %zu fits; the first", comparison->count);
    return status;
}

/* Output */

json_t *hop_comparison_json(const struct hop_comparison *comparison,
                            const struct hop_cost_table *cost)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < comparison->count; i++)
        if (json_array_append_new(
                list, hop_forecast_simulation_json(&comparison->forecasts[i], cost)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static hop_status save_trace(const char *path, const struct hop_plan *plan,
                             const struct hop_cost_table *cost, const char *const *names,
                             struct hop_error *err)
{
    static const struct hop_simulation_options record = {.record = true};
    const struct hop_strategy *strategy;
    struct hop_schedule schedule = {0};
    struct hop_simulation seen = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_strategy_find(plan->strategy, &strategy, err));
    HOP_TRY_DONE(strategy->schedule(plan, cost, plan->micro_batches, plan->probes, &schedule, err));
    HOP_TRY_DONE(hop_simulate(plan, &schedule, cost, &record, &seen, err));
    HOP_TRY_DONE(hop_trace_save_simulation(path, &seen, plan, &schedule, names, err));
done:
    hop_simulation_free(&seen);
    hop_schedule_free(&schedule);
    return status;
}

hop_status hop_comparison_trace(const char *path, const struct hop_forecast *forecast,
                                const struct hop_problem *problem, struct hop_error *err)
{
    const struct hop_cost_table *const cost = hop_request_cost(&problem->request, &forecast->plan);
    const char **names;
    HOP_TRY(hop_cost_names(cost, &names, err));
    const hop_status status = save_trace(path, &forecast->plan, cost, names, err);
    free(names);
    if (status == HOP_OK)
        hop_note("%s: a simulated step of %s on %s devices (open it at https://ui.perfetto.dev)",
                 path, forecast->plan.strategy, forecast->bp_only ? "bp-only" : "all");
    return status;
}
