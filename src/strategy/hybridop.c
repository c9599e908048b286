/* HybridOP: BP-free devices in front train their blocks by zeroth-order probes, BP-capable devices
 * behind run backward. */
#include "strategy/closed_forms.h"
#include "strategy/pipeline_plan.h"
#include "strategy/systems.h"

static hop_status plan_hybridop(const struct hop_plan_request *request, struct hop_plan *out,
                                struct hop_error *err)
{
    return hop_pipeline_plan(request, hop_strategy_hybridop.name, HOP_GRADIENT_ZEROTH_ORDER, out,
                             err);
}

const struct hop_strategy hop_strategy_hybridop = {
    .name = "hybridop",
    .summary = "BP-free devices in front estimate gradients, BP-capable ones behind run backward",
    .uses_fixed_blocks = true,
    .plan = plan_hybridop,
    .schedule = hop_schedule_greedy,
    .formula = hop_head_seconds,
};
