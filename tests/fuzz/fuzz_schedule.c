/* A schedule as ranks send it. What is decoded encodes again, and can be checked against a plan and
 * turned into transfers, or is refused. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "schedule/schedule.h"

enum { PARTS = 3 };

/* Three stages: two by zeroth-order probes, the last by backward. */
static struct hop_plan three_stages(struct hop_part parts[PARTS])
{
    for (int32_t p = 0; p < PARTS; p++)
        parts[p] = (struct hop_part){.device = p,
                                     .stage = p,
                                     .lo = p,
                                     .hi = p + 1,
                                     .sample_hi = 1,
                                     .tensor_hi = 1,
                                     .micro_hi = 1,
                                     .gradient = p + 1 < PARTS ? HOP_GRADIENT_ZEROTH_ORDER
                                                               : HOP_GRADIENT_BACKPROP,
                                     .in_flight = p + 1 < PARTS ? 0 : 1};
    return (struct hop_plan){.blocks = PARTS,
                             .devices = PARTS,
                             .micro_batches = 2,
                             .probes = 2,
                             .parts = parts,
                             .part_count = PARTS};
}

static void check_round_trip(const struct hop_schedule *schedule)
{
    struct hop_schedule back = {0};
    struct hop_error err = {0};
    int32_t *first, *second;
    size_t n, m;
    hop_fuzz_ok(hop_schedule_encode(schedule, &first, &n, &err), &err);
    hop_fuzz_ok(hop_schedule_decode(first, n, &back, &err), &err);
    hop_fuzz_ok(hop_schedule_encode(&back, &second, &m, &err), &err);
    HOP_FUZZ_EXPECT(n == m && !memcmp(first, second, n * sizeof *first));
    free(first);
    free(second);
    hop_schedule_free(&back);
}

static void use_by(const struct hop_schedule *schedule, enum hop_estimator estimator,
                   int32_t exit_probes)
{
    struct hop_part parts[PARTS];
    struct hop_plan plan = three_stages(parts);
    struct hop_transfers transfers = {0};
    struct hop_error err = {0};
    plan.estimator = estimator;
    plan.exit_probes = exit_probes;
    plan.exit_base = HOP_EXIT_FULL_MODEL;
    plan.probes = estimator == HOP_FEEDBACK ? 0 : plan.probes;
    if (hop_fuzz_read(hop_transfers_derive(&plan, schedule, &transfers, &err), &err))
        hop_transfers_free(&transfers);
    hop_fuzz_read(hop_schedule_check(&plan, schedule, 2, &err), &err);
}

static void use(const struct hop_schedule *schedule)
{
    for (int32_t estimator = 0; estimator < HOP_ESTIMATORS; estimator++)
        use_by(schedule, (enum hop_estimator)estimator, 0);
    use_by(schedule, HOP_DIFFERENCE, 1);
    use_by(schedule, HOP_CENTRAL, 1);
    for (int32_t p = 0; p < PARTS; p++) {
        hop_schedule_slots(schedule, p);
        hop_schedule_pending(schedule, p);
        hop_schedule_probe_batch(schedule, p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    size_t n;
    int32_t *const words = hop_fuzz_words(data, size, &n);
    if (hop_fuzz_read(hop_schedule_decode(words, n, &schedule, &err), &err)) {
        check_round_trip(&schedule);
        use(&schedule);
    }
    hop_schedule_free(&schedule);
    free(words);
    return 0;
}
