#include <math.h>

#include "model/config.h"

static const double two_pi = 6.283185307179586476925;

bool hop_model_rope_stretches(const struct hop_model_config *config, int32_t length)
{
    return config->rope_scaling == HOP_ROPE_DYNAMIC && length > config->rope_original;
}

static double base_of(const struct hop_model_config *config, int32_t length)
{
    if (!hop_model_rope_stretches(config, length))
        return config->rope_theta;
    const double dim = config->head_dim;
    const double grown =
        config->rope_factor * length / config->rope_original - (config->rope_factor - 1);
    return config->rope_theta * pow(grown, dim / (dim - 2));
}

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

/* The (fractional) frequency that turns `rotations` times over the original context. */
static double yarn_index(const struct hop_model_config *config, double rotations)
{
    return config->head_dim * log(config->rope_original / (rotations * two_pi)) /
           (2 * log(config->rope_theta));
}

/* YaRN does as Llama 3, but blends along the index of the frequency. */
static double yarn_frequency(const struct hop_model_config *config, double frequency, int32_t j)
{
    double low = yarn_index(config, config->rope_high), high = yarn_index(config, config->rope_low);
    if (config->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, config->head_dim - 1);
    const double width = fabs(high - low) > 0 ? high - low : 0.001;
    const double ramp = fmin(fmax((j - low) / width, 0), 1);
    return ramp * frequency / config->rope_factor + (1 - ramp) * frequency;
}

double hop_model_rope_frequency(const struct hop_model_config *config, int32_t length, int32_t j)
{
    const double frequency = pow(base_of(config, length), -2.0 * j / config->head_dim);
    switch (config->rope_scaling) {
    case HOP_ROPE_LINEAR:
        return frequency / config->rope_factor;
    case HOP_ROPE_YARN:
        return yarn_frequency(config, frequency, j);
    case HOP_ROPE_LLAMA3:
        return llama3_frequency(config, frequency);
    default:
        return frequency;
    }
}

void hop_model_rope(const struct hop_model_config *config, int32_t length, int32_t first, int32_t n,
                    float *cosine, float *sine)
{
    const int32_t half = config->head_dim / 2;
    const double size = config->rope_scaling == HOP_ROPE_YARN ? config->rope_attention : 1;
    for (int32_t j = 0; j < half; j++) {
        const double frequency = hop_model_rope_frequency(config, length, j);
        for (int32_t i = 0; i < n; i++) {
            const size_t at = (size_t)i * (size_t)half + (size_t)j;
            const double angle = ((double)first + i) * frequency;
            cosine[at] = (float)(size * cos(angle));
            sine[at] = (float)(size * sin(angle));
        }
    }
}
