/* A plan and what it is predicted to do: what `hybridop plan` and `hybridop simulate` print. */
#ifndef HOP_REPORT_FORECAST_H
#define HOP_REPORT_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "cluster/cost.h"
#include "sim/simulate.h"
#include "strategy/strategy.h"

struct hop_forecast {
    struct hop_plan plan; /* without parts where infeasible; probes may then be HOP_PROBES_AUTO */
    bool bp_only;         /* only BP-capable devices were allowed */
    bool given;           /* the plan was not asked for but brought along */
    bool fixed;           /* plan.blocks said how many blocks each device holds */
    bool feasible;
    struct hop_error refusal;         /* why not, where it is not feasible */
    struct hop_simulation simulation; /* zeroed where it is not feasible */
    double planner_seconds;           /* 0 where the plan was given */
    double samples_per_second;
    double joules_per_sample; /* NAN: a device has no figures */
    double tail_seconds; /* the published T_tail of these stages: BP-free devices behind the others,
                            a placement that cannot train; NAN where the plan has no T_head */
};

/* Asks the strategy and plays its plan. That nothing fits is a result (feasible false), not a
 * failure. */
hop_status hop_forecast_plan(const struct hop_strategy *strategy,
                             const struct hop_plan_request *request, struct hop_forecast *out,
                             struct hop_error *err);
/* Plays a plan that is there, for the same blocks and devices; prices and limits are those of the
 * table. Takes *plan on success. */
hop_status hop_forecast_given(struct hop_plan *plan, const struct hop_cost_table *cost,
                              struct hop_forecast *out, struct hop_error *err);
void hop_forecast_free(struct hop_forecast *forecast);

/* HOP_OK, or the refusal of a forecast that is not feasible. */
hop_status hop_forecast_require(const struct hop_forecast *forecast, struct hop_error *err);

/* Does any part of the plan run on the device? */
bool hop_forecast_uses(const struct hop_forecast *forecast, int32_t device);
/* Writes why the plan has no part for the device, as half a sentence. */
void hop_forecast_left_out(const struct hop_forecast *forecast, const struct hop_cost_table *cost,
                           int32_t device, char *text, size_t size);

/* The object of `hybridop plan --json`: hop_plan_json() and what is predicted. NULL: out of memory.
 */
json_t *hop_forecast_plan_json(const struct hop_forecast *forecast,
                               const struct hop_cost_table *cost);
/* An element of `hybridop simulate --json`: the same and what the simulation saw. */
json_t *hop_forecast_simulation_json(const struct hop_forecast *forecast,
                                     const struct hop_cost_table *cost);

#endif
