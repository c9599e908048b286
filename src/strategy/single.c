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
    if (request->probes == 0 && hop_request_needs_probes(request))
        return hop_fail(
            err, HOP_INPUT,
            "zo.probes: 0 leaves the blocks of zo.blocks untrained; set it to 1 or more");
    return HOP_OK;
}

static hop_status add_stages(const struct hop_plan_request *request, int32_t device,
                             struct hop_plan *plan, struct hop_error *err)
{
    const int32_t zeroth = request->zo_hi - request->zo_lo;
    const enum hop_gradient gradient =
        request->untrained ? HOP_GRADIENT_NONE : HOP_GRADIENT_ZEROTH_ORDER;
    if (zeroth)
        hop_plan_add_stage(plan, device, 0, zeroth, gradient);
    hop_plan_add_stage(plan, device, zeroth, request->cost->blocks, HOP_GRADIENT_BACKPROP);
    if (!zeroth || request->untrained)
        plan->exit_probes = 0;
    if (!zeroth || !hop_request_needs_probes(request))
        plan->probes = 0;
    else if (plan->probes == HOP_PROBES_AUTO)
        plan->probes = 1; /* on one device none is free */
    HOP_TRY(hop_plan_price(plan, request->cost, 1, err));
    return hop_plan_time(plan, request->cost, err);
}

static hop_status plan_on(const struct hop_plan_request *request, int32_t device,
                          struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    HOP_TRY(hop_plan_begin(request, hop_strategy_single.name, 2, &plan, err));
    const hop_status status = add_stages(request, device, &plan, err);
    if (status != HOP_OK)
        hop_plan_free(&plan);
    else
        *out = plan;
    return status;
}

/* Keeps in *best the faster of the two, the earlier one of equals. Takes *plan. */
static void keep_faster(struct hop_plan *plan, struct hop_plan *best)
{
    if (best->parts && plan->simulated_seconds >= best->simulated_seconds) {
        hop_plan_free(plan);
        return;
    }
    hop_plan_free(best);
    *best = *plan;
}

/* The refusal is that of the first device where nothing fits. */
static hop_status try_device(const struct hop_plan_request *request, int32_t device,
                             struct hop_plan *best, struct hop_error *refusal,
                             struct hop_error *err)
{
    struct hop_plan plan;
    const hop_status status = plan_on(request, device, &plan, err);
    if (status == HOP_OK)
        keep_faster(&plan, best);
    else if (status != HOP_INFEASIBLE)
        return status;
    else if (refusal->status == HOP_OK)
        *refusal = *err;
    return HOP_OK;
}

static hop_status try_devices(const struct hop_plan_request *request, struct hop_plan *best,
                              struct hop_error *refusal, struct hop_error *err)
{
    const struct hop_cost_table *const cost = request->cost;
    for (int32_t d = 0; d < cost->device_count; d++)
        if (cost->devices[d].bp && cost->devices[d].backward)
            HOP_TRY(try_device(request, d, best, refusal, err));
    return HOP_OK;
}

static hop_status plan_single(const struct hop_plan_request *request, struct hop_plan *out,
                              struct hop_error *err)
{
    struct hop_plan best = {0};
    struct hop_error refusal = {.status = HOP_OK};
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(check_zeroth_order(request, err));
    const hop_status status = try_devices(request, &best, &refusal, err);
    if (status != HOP_OK) {
        hop_plan_free(&best);
        return status;
    }
    if (best.parts) {
        *out = best;
        return HOP_OK;
    }
    if (refusal.status == HOP_OK)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no device is BP-capable; single needs one that can run backward");
    *err = refusal;
    return err->status;
}

const struct hop_strategy hop_strategy_single = {
    .name = "single",
    .summary = "everything on the fastest BP-capable device that can hold it",
    .uses_zo_blocks = true,
    .plan = plan_single,
    .schedule = hop_schedule_greedy,
};
