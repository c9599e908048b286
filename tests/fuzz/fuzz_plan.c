/* A plan file for four devices. One that passes its check comes back from its own JSON and can be
 * scheduled or is refused with a reason. */
#include "fuzz.h"
#include "io/json.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

enum { DEVICES = 4, SCHEDULED_BATCHES = 16 };
static const char *const names[DEVICES] = {"npu0", "npu1", "gpu0", "gpu1"};

static void check_round_trip(const struct hop_plan *plan)
{
    struct hop_plan back;
    struct hop_error err = {0};
    json_t *const object = hop_plan_json(plan, names);
    HOP_FUZZ_EXPECT(object);
    hop_fuzz_ok(hop_plan_parse(object, "back", names, DEVICES, &back, &err), &err);
    json_t *const again = hop_plan_json(&back, names);
    HOP_FUZZ_EXPECT(json_equal(object, again));
    json_decref(object);
    json_decref(again);
    hop_plan_free(&back);
}

static void check_parts(const struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const int32_t next = hop_plan_next(plan, p), previous = hop_plan_previous(plan, p);
        HOP_FUZZ_EXPECT(next >= -1 && next < plan->part_count);
        HOP_FUZZ_EXPECT(previous >= -1 && previous < plan->part_count);
        HOP_FUZZ_EXPECT(plan->parts[p].device >= 0 && plan->parts[p].device < DEVICES);
        HOP_FUZZ_EXPECT(plan->parts[p].lo <= plan->parts[p].hi);
    }
}

static void check_schedule(const struct hop_plan *plan)
{
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    if (plan->micro_batches > SCHEDULED_BATCHES)
        return;
    hop_fuzz_ok(hop_schedule_evaluation(plan, plan->micro_batches, &schedule, &err), &err);
    hop_fuzz_ok(hop_schedule_check(plan, &schedule, 4, &err), &err);
    hop_schedule_free(&schedule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_plan plan;
    struct hop_error err = {0};
    json_t *object;
    if (!hop_fuzz_read(hop_json_parse((const char *)data, size, "plan", &object, &err), &err))
        return 0;
    const hop_status status = hop_plan_parse(object, "plan", names, DEVICES, &plan, &err);
    json_decref(object);
    if (!hop_fuzz_read(status, &err))
        return 0;
    check_round_trip(&plan);
    if (hop_fuzz_read(hop_plan_check(&plan, &err), &err)) {
        check_parts(&plan);
        check_schedule(&plan);
    }
    hop_plan_free(&plan);
    return 0;
}
