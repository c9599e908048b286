#include "train/zo.h"

#include <math.h>

double hop_loss(const float *logprob, size_t labels, int64_t label_total)
{
    double sum = 0;
    for (size_t j = 0; j < labels; j++)
        sum -= (double)logprob[j];
    return label_total > 0 ? sum / (double)label_total : 0;
}

void hop_zo_derivatives(double base, const double *probe, size_t count, double epsilon, double *g)
{
    for (size_t q = 0; q < count; q++)
        g[q] = (probe[q] - base) / epsilon;
}

struct hop_zo_spread hop_zo_spread(const double *g, size_t count)
{
    struct hop_zo_spread spread = {0};
    for (size_t q = 0; q < count; q++)
        spread.mean += g[q] / (double)count;
    double squares = 0;
    for (size_t q = 0; q < count; q++)
        squares += (g[q] - spread.mean) * (g[q] - spread.mean);
    if (count > 1)
        spread.std = sqrt(squares / (double)(count - 1));
    return spread;
}

double hop_zo_floor(const double *base, const double *first, const double *repeated, size_t count,
                    double epsilon, double tau)
{
    double squares = 0;
    for (size_t b = 0; b < count; b++) {
        const double residual = (repeated[b] - first[b]) - tau * (first[b] - base[b]);
        squares += residual * residual;
    }
    return count ? sqrt(squares / (double)count) / (sqrt(2) * epsilon) : 0;
}
