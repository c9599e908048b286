/* AccPar as a tensor-parallel system: types II and III. Every device holds a share of every tensor
 * in proportion to its rate, and all work on one micro-batch at a time. */
#include "strategy/accpar_plan.h"
#include "strategy/parts.h"
#include "strategy/replicas.h"
#include "strategy/systems.h"

static hop_status plan_accpar(const struct hop_plan_request *request, struct hop_plan *out,
                              struct hop_error *err)
{
    struct hop_accpar_team team;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(hop_accpar_team_create(request, hop_strategy_accpar.name, &team, err));
    const struct hop_accpar_gang all = {0, team.count, 0, team.rows};
    const hop_status status = hop_accpar_plan(&team, hop_strategy_accpar.name, &all, 1, out, err);
    hop_accpar_team_free(&team);
    return status;
}

const struct hop_strategy hop_strategy_accpar = {
    .name = "accpar",
    .summary = "every device a share of every tensor, in lock-step",
    .plan = plan_accpar,
    .schedule = hop_replica_schedule,
    .formula = hop_accpar_formula,
};
