#include "strategy/pivot.h"

#include <math.h>

static double both(const struct hop_pipeline_step *step)
{
    return step->forward + step->backward;
}

int32_t hop_pivot_step(const struct hop_pipeline_step *steps, int32_t count, int32_t micro_batches)
{
    int32_t pivot = count - 1;
    double between = 0;
    for (int32_t s = count - 2; s >= 0; s--) {
        if ((micro_batches - 1) * both(&steps[s]) >
            (micro_batches - 1) * both(&steps[pivot]) + between) {
            pivot = s;
            between = 0;
        } else {
            between += both(&steps[s]);
        }
    }
    return pivot;
}

double hop_pivot_seconds(const struct hop_pipeline_step *steps, int32_t count,
                         int32_t micro_batches)
{
    const int32_t pivot = hop_pivot_step(steps, count, micro_batches);
    double warm_up = 0, end = -INFINITY, backward = 0;
    for (int32_t s = pivot; s >= 0; s--) {
        warm_up += steps[s].forward;
        backward += steps[s].backward;
        end = fmax(end, steps[s].reduce + backward);
    }
    backward = steps[pivot].backward;
    for (int32_t s = pivot + 1; s < count; s++) {
        backward += steps[s].backward;
        end = fmax(end, steps[s].reduce - backward);
    }
    return warm_up + (micro_batches - 1) * both(&steps[pivot]) + end;
}
