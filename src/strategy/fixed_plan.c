#include "strategy/fixed_plan.h"

#include <math.h>

#include "schedule/greedy.h"
#include "schedule/price.h"
#include "strategy/closed_forms.h"
#include "strategy/line_search.h"
#include "strategy/parts.h"
#include "strategy/probes_auto.h"

hop_status hop_fixed_blocks_check(const struct hop_plan_request *request, struct hop_error *err)
{
    const struct hop_cost_table *const cost = request->cost;
    int64_t total = 0;
    if (!request->fixed_blocks)
        return HOP_OK;
    for (int32_t d = 0; d < cost->device_count; d++) {
        if (request->fixed_blocks[d] < 0)
            return hop_fail(err, HOP_INPUT, "plan.blocks: %s has %d blocks; 0 or more are possible",
                            cost->devices[d].name, request->fixed_blocks[d]);
        total += request->fixed_blocks[d];
    }
    if (total != cost->blocks)
        return hop_fail(err, HOP_INPUT,
                        "plan.blocks: the counts add up to %lld; the model has %d blocks",
                        (long long)total, cost->blocks);
    return HOP_OK;
}

static hop_status check_device(const struct hop_plan_request *request, int32_t d,
                               struct hop_error *err)
{
    const struct hop_cost_device *const device = &request->cost->devices[d];
    if (device->bp && !device->backward)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan.blocks: %s shall train %d blocks but its costs have no backward "
                        "times; measure them, or give it 0 blocks",
                        device->name, request->fixed_blocks[d]);
    if (!device->bp && request->bp_only)
        return hop_fail(err, HOP_INPUT,
                        "plan.blocks: %s is BP-free and has %d blocks, but BP-free devices shall "
                        "stay out; give it 0 blocks",
                        device->name, request->fixed_blocks[d]);
    return HOP_OK;
}

static hop_status add_class(const struct hop_plan_request *request, bool bp,
                            enum hop_gradient gradient, struct hop_plan *plan,
                            struct hop_error *err)
{
    for (int32_t d = 0; d < request->cost->device_count; d++) {
        const int32_t blocks = request->fixed_blocks[d];
        const int32_t lo = plan->part_count ? plan->parts[plan->part_count - 1].hi : 0;
        if (request->cost->devices[d].bp != bp || !blocks)
            continue;
        HOP_TRY(check_device(request, d, err));
        hop_plan_add_stage(plan, d, lo, lo + blocks, gradient);
    }
    return HOP_OK;
}

static hop_status add_stages(const struct hop_plan_request *request, const char *strategy,
                             enum hop_gradient front, struct hop_plan *plan, struct hop_error *err)
{
    HOP_TRY(add_class(request, false, front, plan, err));
    const int32_t bp_free = plan->part_count;
    HOP_TRY(add_class(request, true, HOP_GRADIENT_BACKPROP, plan, err));
    if (plan->part_count == bp_free)
        return hop_fail(err, HOP_INFEASIBLE,
                        "plan: no BP-capable device holds a block; %s needs one at the end of the "
                        "pipeline (set bp: true for a device whose backend can run backward)",
                        strategy);
    if (!bp_free || front == HOP_GRADIENT_NONE)
        plan->probes = plan->exit_probes = 0;
    else if (!hop_request_needs_probes(request))
        plan->probes = 0;
    else if (plan->probes == 0)
        return hop_plan_untrained(request->cost->devices[plan->parts[0].device].name, err);
    return hop_plan_price(plan, request->cost, 1, err);
}

struct question {
    const struct hop_plan *plan;
    const struct hop_cost_table *cost;
    double seconds; /* with hop_probes_fewest() */
};

static hop_status seconds_with(const struct question *question, int32_t probes, double *seconds,
                               struct hop_error *err)
{
    struct hop_plan plan = *question->plan;
    plan.probes = probes;
    HOP_TRY(hop_plan_time(&plan, question->cost, err));
    *seconds = plan.simulated_seconds;
    return HOP_OK;
}

static hop_status is_free(void *context, int32_t probes, bool *yes, struct hop_error *err)
{
    const struct question *const question = context;
    double seconds;
    HOP_TRY(seconds_with(question, probes, &seconds, err));
    *yes = seconds <= question->seconds * (1 + HOP_PLAN_TIE);
    return HOP_OK;
}

static hop_status choose_probes(const struct hop_cost_table *cost, struct hop_plan *plan,
                                struct hop_error *err)
{
    struct question question = {.plan = plan, .cost = cost};
    if (plan->probes != HOP_PROBES_AUTO)
        return HOP_OK;
    const int32_t fewest = hop_probes_fewest(plan->estimator);
    HOP_TRY(seconds_with(&question, fewest, &question.seconds, err));
    return hop_probes_largest(is_free, &question, &plan->probes, err);
}

hop_status hop_fixed_plan(const struct hop_plan_request *request, const char *strategy,
                          enum hop_gradient front, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    hop_status status = HOP_OK;
    HOP_TRY(hop_fixed_blocks_check(request, err));
    HOP_TRY(hop_plan_begin(request, strategy, request->cost->device_count, &plan, err));
    HOP_TRY_DONE(add_stages(request, strategy, front, &plan, err));
    HOP_TRY_DONE(choose_probes(request->cost, &plan, err));
    HOP_TRY_DONE(hop_plan_price(&plan, request->cost, 1, err));
    HOP_TRY_DONE(hop_plan_time(&plan, request->cost, err));
    HOP_TRY_DONE(hop_exit_probes_choose(request, &plan, err));
    plan.formula_seconds = hop_head_seconds(&plan, request->cost);
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}
