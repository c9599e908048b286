#include "strategy/strategy.h"

const struct hop_cost_table *hop_request_cost(const struct hop_plan_request *request,
                                              const struct hop_plan *plan)
{
    const struct hop_cost_table *const halves = request->halves;
    const bool finer = halves && plan->micro_batches == 2 * request->micro_batches &&
                       plan->micro_batch_samples == (int32_t)halves->micro_batch_samples;
    return finer ? halves : request->cost;
}
