/* How many message buffers the ranks get. */
#include "base/dtype.h"
#include "runtime/coordinator_internal.h"
#include "schedule/estimator.h"
#include "sim/simulate.h"

/* With fewer buffers a device could hardly work ahead. */
enum { MINIMUM = 4 };

/* The most passes of probes one message carries in any schedule. */
static int32_t largest_message(const struct hop_coordinator *c)
{
    int32_t largest = 1;
    for (int32_t s = 0; s < c->schedules.count; s++)
        for (int32_t p = 0; p < c->plan.part_count; p++) {
            const int32_t batch = hop_schedule_probe_batch(&c->schedules.items[s], p);
            largest = batch > largest ? batch : largest;
        }
    return largest * hop_plan_passes(&c->plan);
}

/* What fits into the memory that buffers of one payload kind and direction may take. */
static int32_t most_buffers(const struct hop_coordinator *c, const struct hop_batch_limits *limits)
{
    static const double limit = 256.0 * 1024 * 1024;
    const double bytes = (double)limits->tokens * c->model.hidden *
                         (double)hop_dtype_size(c->dtype) * largest_message(c);
    const double most = limit / bytes;
    return most < MINIMUM ? MINIMUM : most < INT32_MAX ? (int32_t)most : INT32_MAX;
}

/* Enough that messages hardly ever wait for buffers: plans are made as if they never did. */
hop_status hop_coordinator_window(const struct hop_coordinator *c,
                                  const struct hop_batch_limits *limits, int32_t *out,
                                  struct hop_error *err)
{
    static const double tolerance = 1e-3;
    const int32_t most = most_buffers(c, limits);
    int32_t largest = MINIMUM;
    for (int32_t s = 0; s < c->schedules.count; s++) {
        const struct hop_schedule *const schedule = &c->schedules.items[s];
        int32_t window;
        if (!schedule->training)
            continue;
        HOP_TRY(
            hop_simulation_window(&c->plan, schedule, &c->cost, MINIMUM, tolerance, &window, err));
        largest = window > largest ? window : largest;
    }
    *out = largest < most ? largest : most;
    return HOP_OK;
}
