#include "report/given_plan.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "schedule/price.h"

/* Puts the kept micro-batches of the file in place of those that pricing found. */
static hop_status keep_in_flight(struct hop_plan *plan, const struct hop_cost_table *cost,
                                 const int32_t *stated, struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        if (stated[p] < 1 || !hop_plan_keeps(plan, p))
            continue;
        part->in_flight = stated[p];
        part->memory_bytes = hop_price_memory(cost, plan, p, stated[p], part->pending);
        if (part->memory_bytes > part->memory_limit)
            return hop_fail(err, HOP_INFEASIBLE,
                            "parts[%d].in_flight: %s needs %.4g bytes to keep %d micro-batches and "
                            "has %.4g; keep fewer, or leave in_flight out",
                            p, cost->devices[part->device].name, part->memory_bytes, stated[p],
                            part->memory_limit);
    }
    return HOP_OK;
}

hop_status hop_given_plan_price(struct hop_plan *plan, const struct hop_cost_table *cost,
                                struct hop_error *err)
{
    int32_t *stated;
    HOP_TRY(hop_calloc(&stated, (size_t)plan->part_count, sizeof *stated, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        stated[p] = plan->parts[p].in_flight;
    plan->micro_batch_samples = (int32_t)cost->micro_batch_samples;
    hop_status status = hop_plan_price(plan, cost, 1, err);
    if (status == HOP_OK)
        status = keep_in_flight(plan, cost, stated, err);
    free(stated);
    return status;
}
