/* The greedy scheduler's task lists. */
#include <math.h>

#include "base/memory.h"
#include "schedule/greedy_internal.h"
#include "schedule/price.h"

static hop_status create_lists(const struct hop_greedy *greedy, struct hop_schedule *schedule,
                               struct hop_error *err)
{
    const size_t devices = (size_t)schedule->devices;
    HOP_TRY(hop_calloc(&schedule->lists, devices, sizeof *schedule->lists, err));
    for (int32_t d = 0; d < schedule->devices; d++) {
        size_t tasks = 0;
        for (int32_t p = greedy->devices[d].first; p >= 0; p = greedy->parts[p].next_here)
            for (int32_t k = 0; k < HOP_TASK_KINDS; k++)
                tasks += (size_t)greedy->parts[p].wanted[k];
        struct hop_task_list *const list = &schedule->lists[d];
        HOP_TRY(hop_calloc(&list->tasks, tasks, sizeof *list->tasks, err));
    }
    return HOP_OK;
}

/* Zeroth-order parts of a boundary plan keep activations and tangents if it has probes. */
static hop_status check_boundary(const struct hop_plan *plan, int32_t probes, struct hop_error *err)
{
    if (plan->estimator != HOP_BOUNDARY || !hop_plan_has_zeroth_order(plan) ||
        (probes > 0) == (plan->probes > 0))
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "schedule: %d probes for a plan with %d; with estimator boundary either both "
                    "have probes or none",
                    probes, plan->probes);
}

hop_status hop_schedule_greedy(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                               struct hop_error *err)
{
    HOP_TRY(hop_plan_check(plan, err));
    HOP_TRY(hop_greedy_check(plan, err));
    HOP_TRY(hop_price_check(cost, plan, err));
    struct hop_greedy *greedy;
    HOP_TRY(check_boundary(plan, probes, err));
    HOP_TRY(hop_greedy_create(cost, plan->part_count, micro_batches, probes, plan->exit_probes,
                              plan->probe_batch, &greedy, err));
    hop_status status = HOP_OK;
    hop_greedy_begin(greedy, plan);
    struct hop_schedule schedule = {.micro_batches = micro_batches,
                                    .probes = greedy->way[HOP_GREEDY_PROBES].probes,
                                    .exit_probes = greedy->way[HOP_GREEDY_EXITS].probes,
                                    .training = true,
                                    .devices = plan->devices};
    HOP_TRY_DONE(create_lists(greedy, &schedule, err));
    greedy->lists = &schedule;
    hop_greedy_play(greedy, INFINITY);
    *out = schedule;
    schedule = (struct hop_schedule){0};
done:
    hop_schedule_free(&schedule);
    hop_greedy_free(greedy);
    return status;
}
