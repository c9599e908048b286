/* HybridOP's pipeline without its probes: the adapters of BP-free devices stay as they are. The
 * yardstick that zeroth-order training must beat. */
#include "strategy/closed_forms.h"
#include "strategy/pipeline_plan.h"
#include "strategy/systems.h"

static hop_status plan_frozen(const struct hop_plan_request *request, struct hop_plan *out,
                              struct hop_error *err)
{
    return hop_pipeline_plan(request, hop_strategy_frozen.name, HOP_GRADIENT_NONE, out, err);
}

const struct hop_strategy hop_strategy_frozen = {
    .name = "frozen",
    .summary = "BP-free devices in front only run forward, BP-capable ones behind train",
    .uses_fixed_blocks = true,
    .plan = plan_frozen,
    .schedule = hop_schedule_greedy,
    .formula = hop_head_seconds,
};
