#include "report/given_plan.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "schedule/price.h"

/* Micro-batches that the parts of the file keep; 0: it does not say. */
struct stated {
    int32_t in_flight, pending;
};

/* Puts the kept micro-batches of the file in place of those that pricing found. */
static hop_status keep_stated(struct hop_plan *plan, const struct hop_cost_table *cost,
                              const struct stated *stated, struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        if (stated[p].in_flight > 0 && hop_plan_keeps(plan, p))
            part->in_flight = stated[p].in_flight;
        if (stated[p].pending > 0 && hop_plan_keeps_tangents(plan, p))
            part->pending = stated[p].pending;
        part->memory_bytes = hop_price_memory(cost, plan, p, part->in_flight, part->pending);
        if (part->memory_bytes > part->memory_limit)
            return hop_fail(err, HOP_INFEASIBLE,
                            "parts[%d].in_flight: %s needs %.4g bytes to keep %d micro-batches and "
                            "has %.4g; keep fewer, or leave in_flight out",
                            p, cost->devices[part->device].name, part->memory_bytes,
                            part->in_flight, part->memory_limit);
    }
    return HOP_OK;
}

hop_status hop_given_plan_price(struct hop_plan *plan, const struct hop_cost_table *cost,
                                struct hop_error *err)
{
    struct stated *stated;
    HOP_TRY(hop_calloc(&stated, (size_t)plan->part_count, sizeof *stated, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        stated[p] = (struct stated){plan->parts[p].in_flight, plan->parts[p].pending};
    plan->micro_batch_samples = (int32_t)cost->micro_batch_samples;
    hop_status status = hop_plan_price(plan, cost, 1, err);
    if (status == HOP_OK)
        status = keep_stated(plan, cost, stated, err);
    free(stated);
    return status;
}
