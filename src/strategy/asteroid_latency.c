#include "strategy/asteroid_latency.h"

#include <math.h>

static double both(const struct hop_pipeline_step *step)
{
    return step->forward + step->backward;
}

int32_t hop_dominant_step(const struct hop_pipeline_step *steps, int32_t count,
                          int32_t micro_batches)
{
    int32_t dominant = 0;
    double before = 0, most = -INFINITY;
    for (int32_t c = 0; c < count; c++) {
        const double seconds = micro_batches * both(&steps[c]) + before;
        if (seconds > most) {
            most = seconds;
            dominant = c;
        }
        before += both(&steps[c]);
    }
    return dominant;
}

double hop_asteroid_latency(const struct hop_pipeline_step *steps, int32_t count,
                            int32_t micro_batches)
{
    const int32_t dominant = hop_dominant_step(steps, count, micro_batches);
    double forward = 0, latency = 0;
    double rest = micro_batches * both(&steps[dominant]);
    for (int32_t i = 0; i < dominant; i++)
        rest += both(&steps[i]);
    for (int32_t s = 0; s < count; s++) {
        latency = fmax(latency, forward + rest + steps[s].reduce);
        forward += steps[s].forward;
        rest -= both(&steps[s]);
    }
    return latency;
}
