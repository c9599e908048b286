#include "strategy/accpar_shares.h"

#include <math.h>

static double quota(double lambda, double rate, int32_t least, int32_t cap)
{
    return fmin(fmax(lambda * rate, least), cap);
}

struct deal {
    const double *rates;
    const int32_t *caps;
    int32_t n, total, least;
};

static double quotas(const struct deal *deal, double lambda)
{
    double sum = 0;
    for (int32_t i = 0; i < deal->n; i++)
        sum += quota(lambda, deal->rates[i], deal->least, deal->caps[i]);
    return sum;
}

/* The largest lambda, up to rounding, whose quotas do not exceed the total. */
static double solve(const struct deal *deal)
{
    enum { HALVINGS = 100 };
    double low = 0, high = 0;
    for (int32_t i = 0; i < deal->n; i++)
        high = fmax(high, deal->caps[i] / deal->rates[i]);
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if (quotas(deal, middle) <= deal->total)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool possible(const struct deal *deal)
{
    int64_t most = 0;
    for (int32_t i = 0; i < deal->n; i++) {
        if (deal->caps[i] < deal->least)
            return false;
        most += deal->caps[i];
    }
    return most >= deal->total && (int64_t)deal->n * deal->least <= deal->total;
}

/* Who is furthest below its quota and has room. */
static int32_t neediest(const struct deal *deal, double lambda, const int32_t *units)
{
    int32_t best = -1;
    double largest = 0;
    for (int32_t i = 0; i < deal->n; i++) {
        const double want = quota(lambda, deal->rates[i], deal->least, deal->caps[i]) - units[i];
        if (units[i] >= deal->caps[i] || (best >= 0 && want <= largest))
            continue;
        best = i;
        largest = want;
    }
    return best;
}

bool hop_accpar_deal(const double *rates, const int32_t *caps, int32_t n, int32_t total,
                     int32_t least, int32_t *units)
{
    const struct deal deal = {rates, caps, n, total, least};
    if (!possible(&deal))
        return false;
    const double lambda = solve(&deal);
    int32_t left = total;
    for (int32_t i = 0; i < n; i++) {
        units[i] = (int32_t)floor(quota(lambda, rates[i], least, caps[i]));
        left -= units[i];
    }
    for (; left > 0; left--)
        units[neediest(&deal, lambda, units)]++;
    return true;
}
