#include "strategy/pipeline_plan.h"

#include <math.h>

#include "schedule/price.h"
#include "strategy/closed_forms.h"
#include "strategy/fixed_plan.h"
#include "strategy/outcome.h"
#include "strategy/parts.h"
#include "strategy/pipeline_refusal.h"
#include "strategy/probes_auto.h"

struct planner {
    const struct hop_plan_request *request;
    const char *strategy;
    enum hop_gradient front;
    double seconds; /* the best with hop_probes_fewest() */
};

static bool is_formula(const struct planner *planner)
{
    return planner->request->objective == HOP_OBJECTIVE_FORMULA;
}

static hop_status write_plan(const struct planner *planner, const struct hop_pipeline *pipeline,
                             const struct hop_outcome *outcome, struct hop_plan *out,
                             struct hop_error *err)
{
    const struct hop_cost_table *const cost = pipeline->cost;
    struct hop_plan plan;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin(planner->request, planner->strategy, outcome->count, &plan, err));
    hop_pipeline_fill(pipeline, outcome->runs, outcome->count, &plan);
    HOP_TRY_DONE(hop_plan_price(&plan, cost, is_formula(planner) ? 0 : 1, err));
    HOP_TRY_DONE(hop_plan_time(&plan, cost, err));
    HOP_TRY_DONE(hop_exit_probes_choose(planner->request, &plan, err));
    plan.formula_seconds = hop_head_seconds(&plan, cost);
    if (!is_formula(planner)) {
        plan.bound_seconds = outcome->bound;
        plan.all_devices_seconds = outcome->all_seconds;
    }
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}

/* The best plan with so many probes. */
static hop_status plan_with(const struct planner *planner, int32_t probes, struct hop_plan *out,
                            struct hop_error *err)
{
    struct hop_pipeline pipeline = {0};
    struct hop_outcome outcome = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_pipeline_create(planner->request, probes, planner->front, &pipeline, err));
    HOP_TRY_DONE(hop_pipeline_check(&pipeline, planner->strategy, err));
    HOP_TRY_DONE(hop_outcome_create(&pipeline, &outcome, err));
    HOP_TRY_DONE(hop_outcome_find(&pipeline, &outcome, err));
    if (!outcome.count) {
        status = hop_pipeline_refuse(&pipeline, hop_pipeline_takes_all(&pipeline),
                                     is_formula(planner), err);
        goto done;
    }
    HOP_TRY_DONE(write_plan(planner, &pipeline, &outcome, out, err));
done:
    hop_outcome_free(&outcome);
    hop_pipeline_free(&pipeline);
    return status;
}

static hop_status is_free(void *context, int32_t probes, bool *yes, struct hop_error *err)
{
    const struct planner *const planner = context;
    struct hop_pipeline pipeline;
    HOP_TRY(hop_pipeline_create(planner->request, probes, planner->front, &pipeline, err));
    const hop_status status = hop_outcome_reaches(&pipeline, planner->seconds, yes, err);
    hop_pipeline_free(&pipeline);
    return status;
}

static hop_status plan_auto(struct planner *planner, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan fewest;
    int32_t probes = 0;
    HOP_TRY(plan_with(planner, hop_probes_fewest(planner->request->estimator), &fewest, err));
    if (!hop_plan_has_zeroth_order(&fewest)) {
        *out = fewest;
        return HOP_OK;
    }
    planner->seconds = is_formula(planner) ? fewest.formula_seconds : fewest.simulated_seconds;
    hop_plan_free(&fewest);
    HOP_TRY(hop_probes_largest(is_free, planner, &probes, err));
    return plan_with(planner, probes, out, err);
}

/* Adapters of BP-free devices need probes. */
static hop_status check_probes(const struct planner *planner, struct hop_error *err)
{
    const struct hop_plan_request *const request = planner->request;
    if (request->probes != 0 || request->bp_only || planner->front == HOP_GRADIENT_NONE ||
        !hop_request_needs_probes(request))
        return HOP_OK;
    for (int32_t d = 0; d < request->cost->device_count; d++)
        if (!request->cost->devices[d].bp)
            return hop_plan_untrained(request->cost->devices[d].name, err);
    return HOP_OK;
}

hop_status hop_pipeline_plan(const struct hop_plan_request *request, const char *strategy,
                             enum hop_gradient front, struct hop_plan *out, struct hop_error *err)
{
    struct planner planner = {
        .request = request,
        .strategy = strategy,
        .front = request->untrained ? HOP_GRADIENT_NONE : front,
    };
    HOP_TRY(hop_plan_request_check(request, err));
    if (request->fixed_blocks)
        return hop_fixed_plan(request, strategy, planner.front, out, err);
    HOP_TRY(check_probes(&planner, err));
    if (request->probes == HOP_PROBES_AUTO && planner.front == HOP_GRADIENT_ZEROTH_ORDER &&
        hop_request_needs_probes(request))
        return plan_auto(&planner, out, err);
    return plan_with(&planner, request->probes, out, err);
}
