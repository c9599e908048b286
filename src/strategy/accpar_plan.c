#include "strategy/accpar_plan.h"

#include "schedule/price.h"
#include "strategy/parts.h"
#include "strategy/replicas.h"

hop_status hop_accpar_plan(const struct hop_accpar_team *team, const char *strategy,
                           const struct hop_accpar_gang *gangs, int32_t count, struct hop_plan *out,
                           struct hop_error *err)
{
    const struct hop_cost_table *const cost = team->request->cost;
    struct hop_plan plan;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_begin_exact(team->request, strategy, team->count, &plan, err));
    for (int32_t i = 0; i < count; i++)
        HOP_TRY_DONE(hop_accpar_add_gang(team, &gangs[i], &plan, err));
    HOP_TRY_DONE(hop_plan_price(&plan, cost, 1, err));
    HOP_TRY_DONE(hop_replica_time(&plan, cost, err));
    plan.formula_seconds = hop_accpar_formula(&plan, cost);
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}
