#include "base/random.h"

#include <math.h>

#include <Random123/philox.h>

/* The 64-bit seed is the Philox key; the counter holds the rest. A direction of one tensor may have
 * at most 2^32 groups of four numbers, far above any adapter. */
static philox4x32_ctr_t draw(const struct hop_random_key *key, size_t group)
{
    const philox4x32_key_t k = {{(uint32_t)key->seed,
                                 (uint32_t)(key->seed >> 32) ^ (uint32_t)key->domain * 0x9e3779b9u}};
    const philox4x32_ctr_t counter = {{(uint32_t)group, key->parameter, key->step,
                                       (uint32_t)key->micro_batch << 16 | key->probe}};
    return philox4x32(counter, k);
}

/* (0, 1]: the logarithm in Box-Muller needs a positive argument. */
static float open_unit(uint32_t bits)
{
    return ((float)(bits >> 8) + 1.0f) * 0x1p-24f;
}

static void four_normals(philox4x32_ctr_t bits, float out[4])
{
    for (int pair = 0; pair < 2; pair++) {
        const float radius = sqrtf(-2.0f * logf(open_unit(bits.v[2 * pair])));
        const float angle = 6.28318530717958648f * (float)(bits.v[2 * pair + 1] >> 8) * 0x1p-24f;
        out[2 * pair] = radius * cosf(angle);
        out[2 * pair + 1] = radius * sinf(angle);
    }
}

static void four_uniforms(philox4x32_ctr_t bits, float out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = (float)(bits.v[i] >> 8) * 0x1p-24f;
}

static void fill(const struct hop_random_key *key, size_t begin, size_t n, float *out,
                 void (*four)(philox4x32_ctr_t, float[4]))
{
    float values[4];
    for (size_t i = 0; i < n;) {
        const size_t index = begin + i;
        four(draw(key, index / 4), values);
        for (size_t j = index % 4; j < 4 && i < n; j++)
            out[i++] = values[j];
    }
}

void hop_random_normal(const struct hop_random_key *key, size_t begin, size_t n, float *out)
{
    fill(key, begin, n, out, four_normals);
}

void hop_random_uniform(const struct hop_random_key *key, size_t begin, size_t n, float *out)
{
    fill(key, begin, n, out, four_uniforms);
}

void hop_random_shuffle(const struct hop_random_key *key, uint32_t *order, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        const philox4x32_ctr_t bits = draw(key, i);
        const uint64_t wide = (uint64_t)bits.v[0] << 32 | bits.v[1];
        const size_t j = (size_t)(wide % i);
        const uint32_t swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
}
