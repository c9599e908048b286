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

double hop_zo_central(double plus, double minus, double epsilon)
{
    return (plus - minus) / (2 * epsilon);
}

/* Independent sums, so that the compiler may keep them in one vector. */
enum { LANES = 8 };

static double sum_lanes(const double *lanes)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

static double inner_f32(const float *a, const float *b, size_t n)
{
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += (double)a[i + l] * (double)b[i + l];
    for (size_t l = 0; i < n; i++, l++)
        lanes[l] += (double)a[i] * (double)b[i];
    return sum_lanes(lanes);
}

static double product_bf16(uint16_t a, uint16_t b)
{
    return (double)hop_bf16_to_f32(a) * (double)hop_bf16_to_f32(b);
}

static double inner_bf16(const uint16_t *a, const uint16_t *b, size_t n)
{
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += product_bf16(a[i + l], b[i + l]);
    for (size_t l = 0; i < n; i++, l++)
        lanes[l] += product_bf16(a[i], b[i]);
    return sum_lanes(lanes);
}

double hop_zo_inner(const void *a, const void *b, size_t n, enum hop_dtype dtype)
{
    return dtype == HOP_BF16 ? inner_bf16(a, b, n) : inner_f32(a, b, n);
}

struct hop_zo_spread hop_zo_spread(const double *g, size_t count)
{
    struct hop_zo_spread spread = {0};
    for (size_t q = 0; q < count; q++)
        spread.mean += g[q] / (double)count;
    double squares = 0, whole = 0;
    for (size_t q = 0; q < count; q++) {
        squares += (g[q] - spread.mean) * (g[q] - spread.mean);
        whole += g[q] * g[q];
    }
    if (count > 0)
        spread.rms = sqrt(whole / (double)count);
    if (count > 1)
        spread.std = sqrt(squares / (double)(count - 1));
    if (count > 1)
        spread.error = spread.std / sqrt((double)count);
    return spread;
}

double hop_zo_tau(int passes)
{
    return passes == 2 ? 1.0 / 4 : 1.0 / 64;
}

double hop_zo_floor(const double *first, const double *repeated, size_t count, int passes)
{
    double squares = 0;
    for (size_t b = 0; b < count; b++)
        squares += (repeated[b] - first[b]) * (repeated[b] - first[b]);
    if (count == 0)
        return 0;
    return (1 + hop_zo_tau(passes)) * sqrt(squares / (double)count) / (passes == 2 ? 2 : sqrt(2));
}
