#include "schedule/bound.h"

#include <math.h>

static bool runs(const struct hop_probing_times *probing, int32_t i)
{
    return probing->lo <= i && i < probing->hi;
}

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
    if (times->bp_free < times->stages && runs(&times->probes, times->bp_free))
        total += times->micro_batches * times->probes.seconds[times->bp_free];
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
static double probe_after(const struct hop_probing_times *probing, int32_t i)
{
    double seconds = 0;
    for (int32_t j = i + 1; j < probing->hi; j++)
        seconds += probing->send_last[j - 1] + probing->last[j];
    return seconds + probing->derivative_step;
}

/* From the end of the last BACKWARD or DELTA on stage i to the STEP that the last of them is for.
 */
static double backward_after(const struct hop_pipeline_times *times, int32_t i)
{
    double seconds = 0;
    for (int32_t j = i - 1; j >= times->gradient_from; j--)
        seconds += times->send_gradient[j] + times->backward[j];
    return seconds + times->gradient_step;
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

/* The least that must follow a last PROBE or EXIT_PROBE on stage i; INFINITY: it has none. */
static double any_probe_after(const struct hop_pipeline_times *times, int32_t i)
{
    double least = INFINITY;
    if (runs(&times->probes, i))
        least = fmin(least, probe_after(&times->probes, i));
    if (runs(&times->exits, i))
        least = fmin(least, probe_after(&times->exits, i));
    return least;
}

/* What must follow the last task of a stage. A BP-free stage with probes ends with one: either it
 * runs every forward before its first, or (boundary) those of a micro-batch need its forward. Then
 * a DELTA may follow, which takes no time. Without probes a DELTA is behind its forward. */
static double after_stage(const struct hop_pipeline_times *times, int32_t i)
{
    const double probe = any_probe_after(times, i);
    if (i < times->bp_free && !isinf(probe))
        return probe;
    return i < times->gradient_from ? way_after(times, i) : fmin(backward_after(times, i), probe);
}

static double work_of(const struct hop_pipeline_times *times, int32_t i)
{
    return times->forward[i] + (i < times->gradient_from ? 0 : times->backward[i]) +
           (runs(&times->probes, i) ? times->probes.seconds[i] : 0) +
           (runs(&times->exits, i) ? times->exits.seconds[i] : 0);
}

static double stage_bound(const struct hop_pipeline_times *times, int32_t i, double before)
{
    return before + times->micro_batches * work_of(times, i) +
           fmax(after_stage(times, i), times->step[i]);
}

/* Does stage i send probes to the next? */
static bool sends(const struct hop_probing_times *probing, int32_t i)
{
    return runs(probing, i) && runs(probing, i + 1);
}

/* What must follow the last message from stage i to the next: a probe's behind BP-free stages that
 * send some, elsewhere a probe's or a forward's. */
static double after_link(const struct hop_pipeline_times *times, int32_t i)
{
    const double forward = times->forward[i + 1] + way_after(times, i + 1);
    double probe = INFINITY;
    if (sends(&times->probes, i))
        probe = times->probes.last[i + 1] + probe_after(&times->probes, i + 1);
    if (sends(&times->exits, i))
        probe = fmin(probe, times->exits.last[i + 1] + probe_after(&times->exits, i + 1));
    return i < times->bp_free && !isinf(probe) ? probe : fmin(forward, probe);
}

static double link_bound(const struct hop_pipeline_times *times, int32_t i, double before)
{
    const double each = times->send[i] + (sends(&times->probes, i) ? times->probes.send[i] : 0) +
                        (sends(&times->exits, i) ? times->exits.send[i] : 0);
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
    for (int32_t i = times->gradient_from; i < head; i++)
        bound = fmax(bound, gradient_bound(times, i, before));
    return bound;
}
