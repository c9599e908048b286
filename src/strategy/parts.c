#include "strategy/parts.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"

hop_status hop_plan_request_check(const struct hop_plan_request *request, struct hop_error *err)
{
    if (request->cost->blocks < 1)
        return hop_fail(err, HOP_INPUT, "plan: the model has %d blocks; at least 1 is needed",
                        request->cost->blocks);
    if ((size_t)request->cost->device_count < 1)
        return hop_fail(err, HOP_INPUT, "plan: the cluster has no device");
    if (request->micro_batches < 1)
        return hop_fail(err, HOP_INPUT, "plan: %d micro-batches; at least 1 is needed",
                        request->micro_batches);
    if (request->probes < 0)
        return hop_fail(err, HOP_INPUT, "plan: %d probes; 0 or more are possible", request->probes);
    return HOP_OK;
}

hop_status hop_plan_begin(const struct hop_plan_request *request, const char *strategy,
                          int32_t parts, struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan = {.blocks = request->cost->blocks,
                            .devices = request->cost->device_count,
                            .micro_batches = request->micro_batches,
                            .probes = request->probes,
                            .probe_batch = request->probe_batch,
                            .exit_probes = request->exit_probes,
                            .micro_batch_samples = (int32_t)request->cost->micro_batch_samples,
                            .formula_seconds = NAN,
                            .simulated_seconds = NAN,
                            .bound_seconds = NAN,
                            .all_devices_seconds = NAN};
    snprintf(plan.strategy, sizeof plan.strategy, "%s", strategy);
    HOP_TRY(hop_calloc(&plan.parts, (size_t)parts, sizeof *plan.parts, err));
    *out = plan;
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
                                                      .gradient = gradient};
    plan->part_count++;
}

/* The entry furthest below (sign 1) or above (sign -1) its ideal share. Above, only entries that
 * can give one away count. */
static int32_t furthest(const double *ideal, const int32_t *counts, int32_t n, int32_t sign)
{
    int32_t best = -1;
    double worst = 0;
    for (int32_t i = 0; i < n; i++) {
        const double gap = sign * (ideal[i] - counts[i]);
        if ((sign < 0 && counts[i] < 2) || (best >= 0 && gap <= worst))
            continue;
        best = i;
        worst = gap;
    }
    return best;
}

void hop_split_blocks(int32_t blocks, const double *ideal, int32_t n, int32_t *counts)
{
    int32_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        counts[i] = ideal[i] < 1 ? 1 : (int32_t)ideal[i];
        total += counts[i];
    }
    for (; total < blocks; total++)
        counts[furthest(ideal, counts, n, 1)]++;
    for (; total > blocks; total--)
        counts[furthest(ideal, counts, n, -1)]--;
}
