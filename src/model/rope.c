#include "model/config.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925;

/* Llama 3 keeps high frequencies, divides low ones by the factor and blends those between. */
static double llama3_frequency(const struct hop_model_config *config, double frequency)
{
    const double wavelength = two_pi / frequency;
    const double original = config->rope_original;
    if (wavelength < original / config->rope_high)
        return frequency;
    if (wavelength > original / config->rope_low)
        return frequency / config->rope_factor;
    const double blend =
        (original / wavelength - config->rope_low) / (config->rope_high - config->rope_low);
    return (1 - blend) * frequency / config->rope_factor + blend * frequency;
}

double hop_model_rope_frequency(const struct hop_model_config *config, int32_t j)
{
    const double frequency = pow(config->rope_theta, -2.0 * j / config->head_dim);
    switch (config->rope_scaling) {
    case HOP_ROPE_LINEAR:
        return frequency / config->rope_factor;
    case HOP_ROPE_LLAMA3:
        return llama3_frequency(config, frequency);
    default:
        return frequency;
    }
}

void hop_model_rope(const struct hop_model_config *config, int32_t positions, float *cosine,
                    float *sine)
{
    const int32_t half = config->head_dim / 2;
    for (int32_t j = 0; j < half; j++) {
        const double frequency = hop_model_rope_frequency(config, j);
        for (int32_t p = 0; p < positions; p++) {
            const size_t at = (size_t)p * (size_t)half + (size_t)j;
            cosine[at] = (float)cos(p * frequency);
            sine[at] = (float)sin(p * frequency);
        }
    }
}
