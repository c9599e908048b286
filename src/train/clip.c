#include "train/clip.h"

double hop_sum_of_squares(const float *values, size_t n)
{
    /* Eight sums that do not wait for one another. */
    double sums[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += (double)values[i + j] * (double)values[i + j];
    for (; i < n; i++)
        sums[0] += (double)values[i] * (double)values[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double hop_clip_coefficient(double norm, double max_norm)
{
    const double coefficient = max_norm / (norm + 1e-6);
    return max_norm > 0 && coefficient < 1 ? coefficient : 1;
}

void hop_scale(float *values, size_t n, double factor)
{
    const float f = (float)factor;
    if (factor >= 1 && factor <= 1)
        return;
    for (size_t i = 0; i < n; i++)
        values[i] *= f;
}
