#include "base/random.h"

#include <math.h>
#include <string.h>

#include <Random123/philox.h>

/* Numbers are made LANES groups of four at a time, starting at a multiple of LANES groups, by loops
 * of fixed length without branches: the compiler turns them into vector code, and every element
 * gets the same operations wherever it lies and whatever is asked for around it. */
enum { LANES = 16, BATCH = 4 * LANES };

/* The 64-bit seed is the Philox key; the counter holds the rest. A direction of one tensor may have
 * at most 2^32 groups of four numbers, far above any adapter. The counter has no room for samples:
 * they go into the upper half of the key's second word, where no two of them meet, nor one with
 * another domain, whose multiples differ in the lower half. */
static philox4x32_ctr_t draw(const struct hop_random_key *key, size_t group)
{
    const philox4x32_key_t k = {{(uint32_t)key->seed, (uint32_t)(key->seed >> 32) ^
                                                          (uint32_t)key->domain * 0x9e3779b9u ^
                                                          (uint32_t)key->sample << 16}};
    const philox4x32_ctr_t counter = {{(uint32_t)group, key->parameter, key->step,
                                       (uint32_t)key->micro_batch << 16 | key->probe}};
    return philox4x32(counter, k);
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* log(x) for normal x > 0 (polynomial of Cephes' logf, relative error below 1e-7 away from 1). */
static float log_positive(float x)
{
    const uint32_t bits = bits_of_float(x) - 0x3f3504f3u; /* sqrt(1/2) becomes exponent 0 */
    const float exponent = (float)((int32_t)bits >> 23);
    const float m = float_of_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z - 2.12194440e-4f * exponent - 0.5f * z;
    return m + p + 0.693359375f * exponent;
}

/* (0, 1]: the logarithm in Box-Muller needs a positive argument. */
static float open_unit(uint32_t bits)
{
    return ((float)(int32_t)(bits >> 8) + 1.0f) * 0x1p-24f;
}

static float unit(uint32_t bits)
{
    return (float)(int32_t)(bits >> 8) * 0x1p-24f;
}

/* Cosine and sine of 2 pi turn, turn in [0, 1): the nearest quarter turn is taken off, which is
 * exact. */
static void sine_cosine(float turn, float *sine, float *cosine)
{
    const int32_t quarter = (int32_t)(4.0f * turn + 0.5f);
    const float a = (4.0f * turn - (float)quarter) * 1.57079632679489662f;
    const float z = a * a;
    const float s =
        a + a * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
    const float c =
        1.0f - 0.5f * z +
        z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
    const float first = quarter & 1 ? s : c, second = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -first : first;
    *sine = quarter & 2 ? -second : second;
}

/* Box-Muller: two uniform numbers make two normal ones. */
static void two_normals(const uint32_t *radius_bits, const uint32_t *angle_bits, float *first,
                        float *second)
{
    for (int i = 0; i < LANES; i++) {
        const float radius = sqrtf(-2.0f * log_positive(open_unit(radius_bits[i])));
        float sine, cosine;
        sine_cosine(unit(angle_bits[i]), &sine, &cosine);
        first[i] = radius * cosine;
        second[i] = radius * sine;
    }
}

static void batch_normals(uint32_t bits[4][LANES], float out[4][LANES])
{
    two_normals(bits[0], bits[1], out[0], out[1]);
    two_normals(bits[2], bits[3], out[2], out[3]);
}

static void batch_uniforms(uint32_t bits[4][LANES], float out[4][LANES])
{
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < LANES; i++)
            out[j][i] = unit(bits[j][i]);
}

typedef void batch_function(uint32_t bits[4][LANES], float out[4][LANES]);

/* Elements [batch * BATCH, (batch + 1) * BATCH) of the stream. */
static void make_batch(const struct hop_random_key *key, size_t batch, batch_function *four,
                       float out[BATCH])
{
    uint32_t bits[4][LANES];
    float values[4][LANES];
    for (size_t i = 0; i < LANES; i++) {
        const philox4x32_ctr_t drawn = draw(key, batch * LANES + i);
        for (size_t j = 0; j < 4; j++)
            bits[j][i] = drawn.v[j];
    }
    four(bits, values);
    for (size_t i = 0; i < LANES; i++)
        for (size_t j = 0; j < 4; j++)
            out[4 * i + j] = values[j][i];
}

static void fill(const struct hop_random_key *key, size_t begin, size_t n, float *out,
                 batch_function *four)
{
    float values[BATCH];
    for (size_t i = 0; i < n;) {
        const size_t at = (begin + i) % BATCH;
        const size_t count = n - i < BATCH - at ? n - i : BATCH - at;
        make_batch(key, (begin + i) / BATCH, four, values);
        memcpy(out + i, values + at, count * sizeof *out);
        i += count;
    }
}

void hop_random_normal(const struct hop_random_key *key, size_t begin, size_t n, float *out)
{
    fill(key, begin, n, out, batch_normals);
}

void hop_random_uniform(const struct hop_random_key *key, size_t begin, size_t n, float *out)
{
    fill(key, begin, n, out, batch_uniforms);
}

/* Signs take one bit each, so a group makes SIGNS of them. */
enum { WORD = 32, SIGNS = 4 * WORD };

static void make_signs(const struct hop_random_key *key, size_t group, float out[SIGNS])
{
    const philox4x32_ctr_t drawn = draw(key, group);
    for (size_t j = 0; j < 4; j++)
        for (uint32_t i = 0; i < WORD; i++)
            out[WORD * j + i] = float_of_bits(0x3f800000u | (drawn.v[j] << i & 0x80000000u));
}

void hop_random_sign(const struct hop_random_key *key, size_t begin, size_t n, float *out)
{
    float values[SIGNS];
    for (size_t i = 0; i < n;) {
        const size_t at = (begin + i) % SIGNS;
        const size_t count = n - i < SIGNS - at ? n - i : SIGNS - at;
        make_signs(key, (begin + i) / SIGNS, values);
        memcpy(out + i, values + at, count * sizeof *out);
        i += count;
    }
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
