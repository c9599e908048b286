#include <stdlib.h>

#include "io/json.h"
#include "report/forecast.h"

static json_t *left_out_json(const struct hop_forecast *forecast, const struct hop_cost_table *cost)
{
    json_t *const list = json_array();
    for (int32_t d = 0; forecast->feasible && d < cost->device_count; d++) {
        char reason[256];
        if (hop_forecast_uses(forecast, d))
            continue;
        hop_forecast_left_out(forecast, cost, d, reason, sizeof reason);
        if (json_array_append_new(list, json_pack("{s:s, s:s}", "device", cost->devices[d].name,
                                                  "reason", reason)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* An infeasible plan has no number of probes where the planner was to find one. */
static json_t *probes_json(int32_t probes)
{
    return probes == HOP_PROBES_AUTO ? json_null() : json_integer(probes);
}

static json_t *prediction_json(const struct hop_forecast *forecast,
                               const struct hop_cost_table *cost)
{
    const bool feasible = forecast->feasible;
    return json_pack(
        "{s:b, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "feasible", (int)feasible, "reason",
        feasible ? "" : forecast->refusal.message, "devices", forecast->bp_only ? "bp-only" : "all",
        "probes", probes_json(forecast->plan.probes), "exit_probes",
        probes_json(forecast->plan.exit_probes), "samples_per_second",
        hop_json_real(forecast->samples_per_second), "utilization",
        feasible ? hop_json_real(forecast->simulation.utilization) : json_null(), "planner_seconds",
        hop_json_real(forecast->planner_seconds), "tail_seconds",
        hop_json_real(forecast->tail_seconds), "left_out", left_out_json(forecast, cost));
}

/* Adds the fields of `more`, whose reference it takes; both are gone where one is NULL. */
static json_t *merge(json_t *object, json_t *more)
{
    if (object && more && json_object_update(object, more) == 0) {
        json_decref(more);
        return object;
    }
    json_decref(object);
    json_decref(more);
    return NULL;
}

json_t *hop_forecast_plan_json(const struct hop_forecast *forecast,
                               const struct hop_cost_table *cost)
{
    struct hop_error ignored;
    const char **names = NULL;
    if (hop_cost_names(cost, &names, &ignored) != HOP_OK)
        return NULL;
    json_t *const plan = hop_plan_json(&forecast->plan, names);
    free(names);
    return merge(plan, prediction_json(forecast, cost));
}

/* {device: number}, empty where nothing was simulated. */
static json_t *by_device(const double *values, const struct hop_cost_table *cost)
{
    json_t *const object = json_object();
    for (int32_t d = 0; values && d < cost->device_count; d++)
        if (json_object_set_new(object, cost->devices[d].name, hop_json_real(values[d])) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

json_t *hop_forecast_simulation_json(const struct hop_forecast *forecast,
                                     const struct hop_cost_table *cost)
{
    const struct hop_simulation *const seen = &forecast->simulation;
    return merge(hop_forecast_plan_json(forecast, cost),
                 json_pack("{s:o, s:o, s:o, s:o, s:o}", "iteration_seconds",
                           forecast->feasible ? hop_json_real(seen->makespan) : json_null(),
                           "busy_seconds", by_device(seen->busy, cost), "peak_memory",
                           by_device(seen->peak_memory, cost), "bytes_sent",
                           by_device(seen->bytes_sent, cost), "energy_joules_per_sample",
                           hop_json_real(forecast->joules_per_sample)));
}
