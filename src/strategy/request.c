#include <math.h>
#include <stdio.h>

#include "strategy/strategy.h"

const char *const hop_device_use_names[] = {"default", "auto", "all", NULL};
const char *const hop_estimator_choices[] = {"difference", "central", "boundary",
                                             "feedback",   "none",    NULL};

void hop_request_choose(struct hop_plan_request *request, int choice)
{
    request->untrained = choice == HOP_ESTIMATORS;
    request->estimator = request->untrained ? HOP_DIFFERENCE : (enum hop_estimator)choice;
}

struct hop_plan hop_request_plan(const struct hop_plan_request *request, const char *strategy)
{
    struct hop_plan plan = {.blocks = request->cost->blocks,
                            .devices = request->cost->device_count,
                            .micro_batches = request->micro_batches,
                            .probes = request->probes,
                            .probe_batch = request->probe_batch,
                            .exit_probes = request->exit_probes > 0 ? request->exit_probes : 0,
                            .estimator = request->estimator,
                            .directions = request->directions,
                            .exit_base = request->exit_base,
                            .feedback_blocks = request->feedback_blocks,
                            .micro_batch_samples = (int32_t)request->cost->micro_batch_samples,
                            .formula_seconds = NAN,
                            .simulated_seconds = NAN,
                            .bound_seconds = NAN,
                            .all_devices_seconds = NAN};
    snprintf(plan.strategy, sizeof plan.strategy, "%s", strategy);
    return plan;
}

const struct hop_cost_table *hop_request_cost(const struct hop_plan_request *request,
                                              const struct hop_plan *plan)
{
    const struct hop_cost_table *const halves = request->halves;
    const bool finer = halves && plan->micro_batches == 2 * request->micro_batches &&
                       plan->micro_batch_samples == (int32_t)halves->micro_batch_samples;
    return finer ? halves : request->cost;
}
