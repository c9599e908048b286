#include "schedule/bound.h"

#include <math.h>

double hop_bound_head(const struct hop_pipeline_times *times)
{
    double total = 0, slowest = 0;
    for (int32_t i = 0; i < times->stages; i++) {
        const bool trained = i >= times->bp_free;
        const double seconds = times->forward[i] + (trained ? times->backward[i] : 0);
        total += seconds;
        if (trained)
            slowest = fmax(slowest, seconds);
    }
    total += (times->micro_batches - 1) * slowest;
    if (times->probe && times->bp_free < times->stages)
        total += times->micro_batches * times->probe[times->bp_free];
    return total;
}

/* From the end of a forward on stage i to the end of the same micro-batch's on the head. */
static double forward_after(const struct hop_pipeline_times *times, int32_t i)
{
    double seconds = 0;
    for (int32_t j = i + 1; j < times->stages; j++)
        seconds += times->send[j - 1] + times->forward[j];
    return seconds;
}

/* From the end of the last probe on stage i to the last zeroth-order STEP. */
static double probe_after(const struct hop_pipeline_times *times, int32_t i)
{
    double seconds = 0;
    for (int32_t j = i + 1; j < times->stages; j++)
        seconds += times->send_last_probe[j - 1] + times->last_probe[j];
    return seconds + times->derivative_step;
}

/* From the end of the last backward on stage i to the STEP of the first backprop stage. */
static double backward_after(const struct hop_pipeline_times *times, int32_t i)
{
    double seconds = 0;
    for (int32_t j = i - 1; j >= times->bp_free; j--)
        seconds += times->send_gradient[j] + times->backward[j];
    return seconds + times->step[times->bp_free];
}

/* From the end of a forward on stage i to the STEP that waits for its backward. */
static double way_after(const struct hop_pipeline_times *times, int32_t i)
{
    const int32_t head = times->stages - 1;
    const double forward = forward_after(times, i);
    if (times->bp_free == times->stages)
        return forward + times->step[head];
    return forward + times->backward[head] + backward_after(times, head);
}

/* What must follow the last task of a stage. A BP-free stage runs every forward before its first
 * probe. */
static double after_stage(const struct hop_pipeline_times *times, int32_t i)
{
    if (i < times->bp_free)
        return times->probe ? probe_after(times, i) : way_after(times, i);
    const double backward = backward_after(times, i);
    return times->probe ? fmin(backward, probe_after(times, i)) : backward;
}

static double stage_bound(const struct hop_pipeline_times *times, int32_t i, double before)
{
    const double work = times->forward[i] + (i < times->bp_free ? 0 : times->backward[i]) +
                        (times->probe ? times->probe[i] : 0);
    return before + times->micro_batches * work + fmax(after_stage(times, i), times->step[i]);
}

/* What must follow the last message from stage i to the next: a probe's behind BP-free stages,
 * elsewhere a probe's or a forward's. */
static double after_link(const struct hop_pipeline_times *times, int32_t i)
{
    const double forward = times->forward[i + 1] + way_after(times, i + 1);
    if (!times->probe)
        return forward;
    const double probe = times->last_probe[i + 1] + probe_after(times, i + 1);
    return i < times->bp_free ? probe : fmin(forward, probe);
}

static double link_bound(const struct hop_pipeline_times *times, int32_t i, double before)
{
    const double each = times->send[i] + (times->probe ? times->send_probe[i] : 0);
    return before + times->forward[i] + times->micro_batches * each + after_link(times, i);
}

/* `before`: when the first micro-batch reaches the head. */
static double gradient_bound(const struct hop_pipeline_times *times, int32_t i, double before)
{
    double first = before + times->forward[times->stages - 1];
    for (int32_t j = times->stages - 1; j > i; j--)
        first += times->backward[j] + (j > i + 1 ? times->send_gradient[j - 1] : 0);
    return first + times->micro_batches * times->send_gradient[i] + times->backward[i] +
           backward_after(times, i);
}

double hop_bound_lower(const struct hop_pipeline_times *times)
{
    const int32_t head = times->stages - 1;
    double bound = 0, before = 0;
    for (int32_t i = 0; i <= head; i++) {
        const double queued = times->micro_batches * times->forward[i];
        bound = fmax(bound, before + queued + way_after(times, i));
        bound = fmax(bound, stage_bound(times, i, before));
        if (i == head)
            break;
        bound = fmax(bound, link_bound(times, i, before));
        before += times->forward[i] + times->send[i];
    }
    for (int32_t i = times->bp_free; i < head; i++)
        bound = fmax(bound, gradient_bound(times, i, before));
    return bound;
}
