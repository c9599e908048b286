#include "strategy/predict.h"

#include "schedule/price.h"

/* Memory is needed for as many micro-batches as the schedule really keeps, which can be fewer than
 * it might; with that as the limit it comes out the same. */
static void store(struct hop_plan *plan, const struct hop_cost_table *cost,
                  const struct hop_strategy *strategy, const struct hop_schedule *schedule,
                  double seconds)
{
    plan->simulated_seconds = seconds;
    if (strategy->formula)
        plan->formula_seconds = strategy->formula(plan, cost);
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        part->in_flight = hop_schedule_slots(schedule, p);
        part->pending = hop_schedule_pending(schedule, p);
        part->memory_bytes = hop_price_memory(cost, plan, p, part->in_flight, part->pending);
        part->memory_limit = cost->devices[part->device].memory;
    }
}

/* Both come from files that need not belong together. */
static hop_status check_match(const struct hop_plan *plan, const struct hop_cost_table *cost,
                              struct hop_error *err)
{
    if (plan->blocks == cost->blocks && plan->devices == cost->device_count)
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "plan: it is for %d blocks and %d devices, the costs are of %d blocks and %d "
                    "devices",
                    plan->blocks, plan->devices, cost->blocks, cost->device_count);
}

hop_status hop_plan_predict(struct hop_plan *plan, const struct hop_cost_table *cost,
                            const struct hop_simulation_options *options,
                            struct hop_simulation *out, struct hop_error *err)
{
    const struct hop_strategy *strategy;
    struct hop_schedule schedule;
    HOP_TRY(check_match(plan, cost, err));
    HOP_TRY(hop_strategy_find(plan->strategy, &strategy, err));
    HOP_TRY(strategy->schedule(plan, cost, plan->micro_batches, plan->probes, &schedule, err));
    const hop_status status = hop_simulate(plan, &schedule, cost, options, out, err);
    if (status == HOP_OK)
        store(plan, cost, strategy, &schedule, out->makespan);
    hop_schedule_free(&schedule);
    return status;
}
