#include "strategy/predict.h"

hop_status hop_plan_predict(struct hop_plan *plan, const struct hop_cost_table *cost,
                            const struct hop_simulation_options *options,
                            struct hop_simulation *out, struct hop_error *err)
{
    const struct hop_strategy *strategy;
    struct hop_schedule schedule;
    HOP_TRY(hop_strategy_find(plan->strategy, &strategy, err));
    HOP_TRY(strategy->schedule(plan, cost, plan->micro_batches, plan->probes, &schedule, err));
    const hop_status status = hop_simulate(plan, &schedule, cost, options, out, err);
    hop_schedule_free(&schedule);
    if (status != HOP_OK)
        return status;
    plan->simulated_seconds = out->makespan;
    if (strategy->formula)
        plan->formula_seconds = strategy->formula(plan, cost);
    return HOP_OK;
}
