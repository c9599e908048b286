#include "strategy/parts.h"

#include <math.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "schedule/greedy.h"

static hop_status check_exit_probes(const struct hop_plan_request *request, struct hop_error *err)
{
    const int32_t probes = request->exit_probes;
    if (probes < 0 && probes != HOP_PROBES_AUTO)
        return hop_fail(err, HOP_INPUT, "plan: %d exit probes; 0 or more are possible", probes);
    if (probes > 0 && !request->untrained && !hop_estimator_has_exit(request->estimator))
        return hop_fail(err, HOP_INPUT,
                        "plan: %d exit probes, but the estimator %s knows no early exit; use auto "
                        "or 0, or the estimator difference or central",
                        probes, hop_estimator_names[request->estimator]);
    if (probes > INT32_MAX / request->micro_batches)
        return hop_fail(err, HOP_INPUT,
                        "plan: %d exit probes of each of %d micro-batches are too many", probes,
                        request->micro_batches);
    return HOP_OK;
}

hop_status hop_plan_request_check(const struct hop_plan_request *request, struct hop_error *err)
{
    if (request->cost->blocks < 1)
        return hop_fail(err, HOP_INPUT, "plan: the model has %d blocks; at least 1 is needed",
                        request->cost->blocks);
    if (request->cost->device_count < 1)
        return hop_fail(err, HOP_INPUT, "plan: the cluster has no device");
    if (request->micro_batches < 1)
        return hop_fail(err, HOP_INPUT, "plan: %d micro-batches; at least 1 is needed",
                        request->micro_batches);
    if (request->probes < 0 && request->probes != HOP_PROBES_AUTO)
        return hop_fail(err, HOP_INPUT, "plan: %d probes; 0 or more are possible", request->probes);
    HOP_TRY(check_exit_probes(request, err));
    if (request->probe_batch < 0)
        return hop_fail(err, HOP_INPUT, "plan: %d probes at once; 1 or more, or 0 for all",
                        request->probe_batch);
    if (request->probes > 0 && request->probes > INT32_MAX / request->micro_batches)
        return hop_fail(err, HOP_INPUT, "plan: %d probes of each of %d micro-batches are too many",
                        request->probes, request->micro_batches);
    return HOP_OK;
}

hop_status hop_plan_begin(const struct hop_plan_request *request, const char *strategy,
                          int32_t parts, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan = hop_request_plan(request, strategy);
    HOP_TRY(hop_calloc(&plan.parts, (size_t)parts, sizeof *plan.parts, err));
    *out = plan;
    return HOP_OK;
}

hop_status hop_plan_begin_exact(const struct hop_plan_request *request, const char *strategy,
                                int32_t parts, struct hop_plan *out, struct hop_error *err)
{
    HOP_TRY(hop_plan_begin(request, strategy, parts, out, err));
    out->probes = out->exit_probes = 0;
    out->estimator = HOP_DIFFERENCE;
    out->directions = HOP_SHARED;
    out->exit_base = HOP_EXIT_OWN;
    out->feedback_blocks = 0;
    return HOP_OK;
}

void hop_plan_add_stage(struct hop_plan *plan, int32_t device, int32_t lo, int32_t hi,
                        enum hop_gradient gradient)
{
    plan->parts[plan->part_count] = (struct hop_part){.device = device,
                                                      .stage = plan->part_count,
                                                      .lo = lo,
                                                      .hi = hi,
                                                      .sample_hi = 1,
                                                      .tensor_hi = 1,
                                                      .micro_hi = 1,
                                                      .gradient = gradient};
    plan->part_count++;
}

hop_status hop_plan_time(struct hop_plan *plan, const struct hop_cost_table *cost,
                         struct hop_error *err)
{
    struct hop_greedy *greedy;
    HOP_TRY(hop_greedy_create(cost, plan->part_count, plan->micro_batches, plan->probes,
                              plan->exit_probes, plan->probe_batch, &greedy, err));
    plan->simulated_seconds = hop_greedy_makespan(greedy, plan, INFINITY);
    hop_greedy_free(greedy);
    return HOP_OK;
}

bool hop_request_needs_probes(const struct hop_plan_request *request)
{
    return !request->untrained && request->estimator != HOP_FEEDBACK;
}

hop_status hop_plan_untrained(const char *device, struct hop_error *err)
{
    return hop_fail(err, HOP_INPUT,
                    "zo.probes: 0 leaves the adapters of the BP-free device %s untrained; set it "
                    "to 1 or more, or strategy: frozen",
                    device);
}

double hop_plan_value(const struct hop_plan_request *request, const struct hop_plan *plan)
{
    return request->objective == HOP_OBJECTIVE_FORMULA ? plan->formula_seconds
                                                       : plan->simulated_seconds;
}

bool hop_plan_keep(const struct hop_plan_request *request, struct hop_plan *plan,
                   struct hop_plan *best)
{
    const bool better =
        !best->parts || hop_plan_value(request, plan) < hop_plan_value(request, best);
    hop_plan_free(better ? best : plan);
    if (better)
        *best = *plan;
    return better;
}
