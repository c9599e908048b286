/* Everything on one device; with zo.blocks it computes what HybridOP computes on many. */
#include "strategy/parts.h"
#include "strategy/systems.h"

static hop_status check_zeroth_order(const struct hop_plan_request *request, struct hop_error *err)
{
    const int32_t lo = request->zo_lo, hi = request->zo_hi;
    if (lo == hi)
        return HOP_OK;
    if (lo > hi || hi > request->cost->blocks)
        return hop_fail(err, HOP_INPUT, "zo.blocks: [%d, %d] is no range of the model's %d blocks",
                        lo, hi, request->cost->blocks);
    if (lo != 0)
        return hop_fail(
            err, HOP_INPUT,
            "zo.blocks: [%d, %d] does not begin at block 0; zeroth-order blocks come first", lo,
            hi);
    if (hi == request->cost->blocks)
        return hop_fail(err, HOP_INPUT,
                        "zo.blocks: [%d, %d] leaves none of the %d blocks to backprop", lo, hi,
                        request->cost->blocks);
    if (request->probes == 0)
        return hop_fail(
            err, HOP_INPUT,
            "zo.probes: 0 leaves the blocks of zo.blocks untrained; set it to 1 or more");
    return HOP_OK;
}

static hop_status find_device(const struct hop_cost_table *cost, int32_t *device,
                              struct hop_error *err)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        if (!cost->devices[d].bp || !cost->devices[d].backward)
            continue;
        *device = d;
        return HOP_OK;
    }
    return hop_fail(err, HOP_INFEASIBLE,
                    "plan: no device is BP-capable; single needs one that can run backward");
}

static hop_status add_stages(const struct hop_plan_request *request, int32_t device,
                             struct hop_plan *plan, struct hop_error *err)
{
    const int32_t zeroth = request->zo_hi - request->zo_lo;
    if (zeroth)
        hop_plan_add_stage(plan, device, 0, zeroth, HOP_GRADIENT_ZEROTH_ORDER);
    hop_plan_add_stage(plan, device, zeroth, request->cost->blocks, HOP_GRADIENT_BACKPROP);
    if (!zeroth)
        plan->probes = 0;
    else if (plan->probes == HOP_PROBES_AUTO)
        plan->probes = 1; /* on one device none is free */
    HOP_TRY(hop_plan_price(plan, request->cost, 1, err));
    return hop_plan_time(plan, request->cost, err);
}

static hop_status plan_single(const struct hop_plan_request *request, struct hop_plan *out,
                              struct hop_error *err)
{
    int32_t device = 0;
    struct hop_plan plan;
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(check_zeroth_order(request, err));
    HOP_TRY(find_device(request->cost, &device, err));
    HOP_TRY(hop_plan_begin(request, hop_strategy_single.name, 2, &plan, err));
    const hop_status status = add_stages(request, device, &plan, err);
    if (status != HOP_OK)
        hop_plan_free(&plan);
    else
        *out = plan;
    return status;
}

const struct hop_strategy hop_strategy_single = {
    .name = "single",
    .summary = "everything on the first BP-capable device",
    .uses_zo_blocks = true,
    .plan = plan_single,
    .schedule = hop_schedule_greedy,
};
