#include "strategy/chimera_schedule.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/lists.h"
#include "strategy/chimera_slots.h"
#include "strategy/crew.h"
#include "strategy/predict.h"
#include "strategy/systems.h"

static hop_status check_shape(const struct hop_plan *plan, struct hop_error *err)
{
    const int32_t pipelines = hop_plan_pipelines(plan), stages = hop_plan_stages(plan, 0);
    HOP_TRY(hop_crew_check_plan(plan, hop_strategy_chimera.name, err));
    if (!hop_chimera_fits(stages, pipelines))
        return hop_fail(err, HOP_INPUT,
                        "schedule: %d pipelines of %d stages; chimera needs an even number of "
                        "stages and of pipelines, and half the pipelines must divide half the "
                        "stages",
                        pipelines, stages);
    for (int32_t i = 0; i < pipelines; i++)
        if (hop_plan_stages(plan, i) != stages)
            return hop_fail(err, HOP_INPUT,
                            "schedule: pipeline %d has %d stages and pipeline 0 has %d; chimera's "
                            "have equally many",
                            i, hop_plan_stages(plan, i), stages);
    return HOP_OK;
}

static int32_t place_part(const struct hop_plan *plan, int32_t p, int32_t micro_batches,
                          bool doubled, struct hop_slot *slots)
{
    const struct hop_part *const part = &plan->parts[p];
    const struct hop_range range = hop_part_micro_batches(part, micro_batches);
    int32_t count = 0;
    for (int32_t m = range.lo; m < range.hi; m++) {
        const struct hop_chimera_place place =
            hop_chimera_place(hop_plan_stages(plan, 0), hop_plan_pipelines(plan), doubled,
                              part->stage, m - range.lo, range.hi - range.lo);
        slots[count++] =
            (struct hop_slot){{.kind = HOP_FORWARD, .part = p, .micro_batch = m}, place.forward};
        slots[count++] =
            (struct hop_slot){{.kind = HOP_BACKWARD, .part = p, .micro_batch = m}, place.backward};
    }
    return count;
}

static hop_status schedule_slots(const struct hop_plan *plan, int32_t micro_batches, bool doubled,
                                 struct hop_schedule *out, struct hop_error *err)
{
    struct hop_slot *slots;
    int32_t count = 0;
    HOP_TRY(hop_calloc(&slots, 2 * (size_t)hop_plan_stages(plan, 0) * (size_t)micro_batches,
                       sizeof *slots, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        count += place_part(plan, p, micro_batches, doubled, slots + count);
    const hop_status status = hop_schedule_from_slots(plan, micro_batches, slots, count, out, err);
    free(slots);
    return status;
}

/* Parts that say what they keep (in_flight) may not keep more. */
static bool is_kept(const struct hop_plan *plan, const struct hop_schedule *schedule)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const int32_t most = plan->parts[p].in_flight;
        if (most && hop_schedule_slots(schedule, p) > most)
            return false;
    }
    return true;
}

static bool all_fit(const struct hop_plan *plan, const struct hop_schedule *schedule,
                    const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < plan->devices; d++)
        if (hop_crew_memory(plan, cost, schedule, d) > cost->devices[d].memory)
            return false;
    return is_kept(plan, schedule);
}

/* An order that does not fit is taken where the other does not fit either. */
static hop_status is_better(const struct hop_plan *plan, const struct hop_cost_table *cost,
                            const struct hop_schedule *single, const struct hop_schedule *doubled,
                            bool *out, struct hop_error *err)
{
    double seconds, doubled_seconds;
    *out = all_fit(plan, doubled, cost);
    if (!*out || !all_fit(plan, single, cost))
        return HOP_OK;
    HOP_TRY(hop_schedule_seconds(plan, single, cost, &seconds, err));
    HOP_TRY(hop_schedule_seconds(plan, doubled, cost, &doubled_seconds, err));
    *out = doubled_seconds < seconds;
    return HOP_OK;
}

/* Replaces *schedule by the order with doubled forwards where that fits and is faster. */
static hop_status try_doubled(const struct hop_plan *plan, const struct hop_cost_table *cost,
                              struct hop_schedule *schedule, bool *taken, struct hop_error *err)
{
    struct hop_schedule other;
    HOP_TRY(schedule_slots(plan, schedule->micro_batches, true, &other, err));
    const hop_status status = is_better(plan, cost, schedule, &other, taken, err);
    if (status == HOP_OK && *taken) {
        const struct hop_schedule slower = *schedule;
        *schedule = other;
        other = slower;
    }
    hop_schedule_free(&other);
    return status;
}

static hop_status choose(const struct hop_plan *plan, const struct hop_cost_table *cost,
                         int32_t micro_batches, struct hop_schedule *out, bool *doubled,
                         struct hop_error *err)
{
    struct hop_schedule schedule;
    *doubled = false;
    if (micro_batches < 1)
        return hop_fail(err, HOP_INPUT, "schedule: %d micro-batches; at least 1 is needed",
                        micro_batches);
    HOP_TRY(check_shape(plan, err));
    HOP_TRY(schedule_slots(plan, micro_batches, false, &schedule, err));
    const hop_status status = micro_batches > hop_plan_stages(plan, 0)
                                  ? try_doubled(plan, cost, &schedule, doubled, err)
                                  : HOP_OK;
    if (status != HOP_OK)
        hop_schedule_free(&schedule);
    else
        *out = schedule;
    return status;
}

hop_status hop_chimera_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                struct hop_error *err)
{
    bool doubled;
    (void)probes;
    return choose(plan, cost, micro_batches, out, &doubled, err);
}

hop_status hop_chimera_is_doubled(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                  bool *out, struct hop_error *err)
{
    struct hop_schedule schedule;
    HOP_TRY(choose(plan, cost, plan->micro_batches, &schedule, out, err));
    hop_schedule_free(&schedule);
    return HOP_OK;
}
