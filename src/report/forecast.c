#include "report/forecast.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "report/given_plan.h"
#include "report/quantity.h"
#include "schedule/estimator.h"
#include "strategy/predict.h"

/* T_tail = sum_G (f + b) + sum_N f + ((1 + Q) M - 1) max_N f, with measured backward times; Q is
 * twice the number of probes where each has two passes. */
static double tail_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    double total = 0, slowest = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        total += part->forward_seconds;
        if (part->gradient == HOP_GRADIENT_BACKPROP)
            total += hop_cost_backward(cost, part->device, part->lo, part->hi);
        else if (part->forward_seconds > slowest)
            slowest = part->forward_seconds;
    }
    const double passes = 1.0 + hop_plan_passes(plan) * plan->probes;
    return total + (passes * plan->micro_batches - 1) * slowest;
}

static hop_status play(struct hop_forecast *forecast, const struct hop_cost_table *cost,
                       struct hop_error *err)
{
    struct hop_plan *const plan = &forecast->plan;
    HOP_TRY(hop_plan_predict(plan, cost, NULL, &forecast->simulation, err));
    const double samples = cost->micro_batch_samples * plan->micro_batches;
    forecast->feasible = true;
    forecast->samples_per_second = samples / forecast->simulation.makespan;
    forecast->joules_per_sample = forecast->simulation.joules / samples;
    forecast->tail_seconds = isfinite(plan->formula_seconds) && hop_plan_has_zeroth_order(plan)
                                 ? tail_seconds(plan, cost)
                                 : NAN;
    return HOP_OK;
}

/* Of a plan that cannot be, the question remains. */
static void refuse(struct hop_forecast *forecast, const struct hop_error *err)
{
    struct hop_plan *const plan = &forecast->plan;
    hop_plan_free(plan);
    plan->formula_seconds = plan->simulated_seconds = NAN;
    plan->bound_seconds = plan->all_devices_seconds = NAN;
    forecast->refusal = *err;
    forecast->samples_per_second = forecast->joules_per_sample = forecast->tail_seconds = NAN;
}

static hop_status ask(const struct hop_strategy *strategy, const struct hop_plan_request *request,
                      struct hop_forecast *forecast, struct hop_error *err)
{
    struct hop_plan plan;
    const double start = hop_clock_now();
    const hop_status status = strategy->plan(request, &plan, err);
    forecast->planner_seconds = hop_clock_now() - start;
    if (status == HOP_OK)
        forecast->plan = plan;
    return status;
}

hop_status hop_forecast_plan(const struct hop_strategy *strategy,
                             const struct hop_plan_request *request, struct hop_forecast *out,
                             struct hop_error *err)
{
    struct hop_forecast forecast = {.plan = hop_request_plan(request, strategy->name),
                                    .bp_only = request->bp_only,
                                    .fixed = request->fixed_blocks && strategy->uses_fixed_blocks};
    hop_status status = ask(strategy, request, &forecast, err);
    if (status == HOP_OK)
        status = play(&forecast, hop_request_cost(request, &forecast.plan), err);
    if (status != HOP_OK)
        refuse(&forecast, err);
    if (status != HOP_OK && status != HOP_INFEASIBLE)
        return status;
    *out = forecast;
    return HOP_OK;
}

static bool without_bp_free(const struct hop_forecast *forecast, const struct hop_cost_table *cost)
{
    int32_t used = 0, idle = 0;
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp)
            *(hop_forecast_uses(forecast, d) ? &used : &idle) += 1;
    return idle > 0 && used == 0;
}

hop_status hop_forecast_given(struct hop_plan *plan, const struct hop_cost_table *cost,
                              struct hop_forecast *out, struct hop_error *err)
{
    struct hop_forecast forecast = {.plan = *plan, .given = true};
    hop_status status = hop_given_plan_price(&forecast.plan, cost, err);
    if (status == HOP_OK)
        status = play(&forecast, cost, err);
    if (status != HOP_OK && status != HOP_INFEASIBLE)
        return status;
    *plan = (struct hop_plan){0};
    forecast.bp_only = without_bp_free(&forecast, cost);
    if (status == HOP_INFEASIBLE)
        refuse(&forecast, err);
    *out = forecast;
    return HOP_OK;
}

void hop_forecast_free(struct hop_forecast *forecast)
{
    if (!forecast)
        return;
    hop_plan_free(&forecast->plan);
    hop_simulation_free(&forecast->simulation);
    *forecast = (struct hop_forecast){0};
}

hop_status hop_forecast_require(const struct hop_forecast *forecast, struct hop_error *err)
{
    if (forecast->feasible)
        return HOP_OK;
    *err = forecast->refusal;
    return err->status;
}

bool hop_forecast_uses(const struct hop_forecast *forecast, int32_t device)
{
    for (int32_t p = 0; p < forecast->plan.part_count; p++)
        if (forecast->plan.parts[p].device == device)
            return true;
    return false;
}

static int32_t count_left_out(const struct hop_forecast *forecast)
{
    int32_t count = 0;
    for (int32_t d = 0; d < forecast->plan.devices; d++)
        count += !hop_forecast_uses(forecast, d);
    return count;
}

void hop_forecast_left_out(const struct hop_forecast *forecast, const struct hop_cost_table *cost,
                           int32_t device, char *text, size_t size)
{
    const struct hop_plan *const plan = &forecast->plan;
    if (forecast->given)
        snprintf(text, size, "the given plan has no block for it");
    else if (forecast->fixed)
        snprintf(text, size, "plan.blocks gives it no block");
    else if (forecast->bp_only && !cost->devices[device].bp)
        snprintf(text, size, "only BP-capable devices were asked for");
    else if (isfinite(plan->all_devices_seconds))
        snprintf(text, size, "with %s a step takes %s instead of %s",
                 count_left_out(forecast) == 1 ? "it" : "all devices",
                 hop_quantity_seconds(plan->all_devices_seconds).text,
                 hop_quantity_seconds(plan->simulated_seconds).text);
    else
        snprintf(text, size, "strategy %s has no block for it", plan->strategy);
}
