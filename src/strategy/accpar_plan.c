#include "strategy/accpar_plan.h"

#include "schedule/lists.h"
#include "schedule/price.h"
#include "sim/simulate.h"
#include "strategy/parts.h"

hop_status hop_accpar_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                               struct hop_error *err)
{
    (void)cost;
    (void)probes;
    return hop_schedule_one_f_one_b(plan, micro_batches, NULL, out, err);
}

static hop_status simulate(const struct hop_cost_table *cost, struct hop_plan *plan,
                           struct hop_error *err)
{
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    HOP_TRY(hop_accpar_schedule(plan, cost, plan->micro_batches, 0, &schedule, err));
    const hop_status status = hop_simulate(plan, &schedule, cost, NULL, &simulation, err);
    hop_schedule_free(&schedule);
    if (status != HOP_OK)
        return status;
    plan->simulated_seconds = simulation.makespan;
    hop_simulation_free(&simulation);
    return HOP_OK;
}

hop_status hop_accpar_plan(const struct hop_accpar_team *team, const char *strategy,
                           const struct hop_accpar_gang *gangs, int32_t count, struct hop_plan *out,
                           struct hop_error *err)
{
    const struct hop_cost_table *const cost = team->request->cost;
    struct hop_plan plan;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin(team->request, strategy, team->count, &plan, err));
    plan.probes = plan.exit_probes = 0;
    for (int32_t i = 0; i < count; i++)
        HOP_TRY_DONE(hop_accpar_add_gang(team, &gangs[i], &plan, err));
    HOP_TRY_DONE(hop_plan_price(&plan, cost, 1, err));
    HOP_TRY_DONE(simulate(cost, &plan, err));
    plan.formula_seconds = hop_accpar_formula(&plan, cost);
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}
