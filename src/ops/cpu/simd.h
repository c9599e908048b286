/* Vectors of 16 floats in GCC's vector extension: one register with AVX-512, two with AVX2, four
 * with NEON, so the kernels are written once. bf16 is widened on load and rounded to nearest even
 * on store. */
#ifndef HOP_OPS_CPU_SIMD_H
#define HOP_OPS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Without AVX-512 GCC warns that passing such vectors to functions depends on compiler options;
 * every function that does is inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define HOP_LANES 16

/* Kernels are inlined into callers that pass constants, so that loops over them unroll. */
#define HOP_INLINE static inline __attribute__((always_inline))

typedef float hop_v16 __attribute__((vector_size(64)));
typedef int32_t hop_i16 __attribute__((vector_size(64)));
typedef uint32_t hop_u16 __attribute__((vector_size(64)));
typedef uint16_t hop_h16 __attribute__((vector_size(32)));

HOP_INLINE hop_v16 hop_v_set(float value)
{
    return (hop_v16){0} + value;
}

HOP_INLINE hop_v16 hop_v_load_f32(const float *from)
{
    hop_v16 out;
    memcpy(&out, from, sizeof out);
    return out;
}

HOP_INLINE void hop_v_store_f32(float *to, hop_v16 value)
{
    memcpy(to, &value, sizeof value);
}

HOP_INLINE hop_v16 hop_v_widen(hop_h16 half)
{
    return (hop_v16)(__builtin_convertvector(half, hop_u16) << 16);
}

HOP_INLINE hop_h16 hop_v_narrow(hop_v16 value)
{
#if defined(__AVX512BF16__) && defined(__AVX512F__)
    return (hop_h16)_mm512_cvtneps_pbh((__m512)value);
#else
    const hop_u16 bits = (hop_u16)value;
    const hop_u16 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const hop_u16 nan = (hop_u16)((bits & 0x7fffffffu) > 0x7f800000u);
    return __builtin_convertvector((nan & ((bits >> 16) | 0x40u)) | (~nan & rounded), hop_h16);
#endif
}

/* Keeps a loaded vector in a register. Left alone, GCC reads it from memory again for every use,
 * and loads become what limits the loop. */
#if defined(__AVX512F__)
#define HOP_V_KEEP(v) __asm__("" : "+v"(v))
#else
#define HOP_V_KEEP(v) (void)(v)
#endif

/* Element i onwards of an array of dtype f32 or bf16. */
HOP_INLINE hop_v16 hop_v_load(const void *from, enum hop_dtype dtype, int64_t i)
{
    if (dtype == HOP_F32)
        return hop_v_load_f32((const float *)from + i);
    hop_h16 half;
    memcpy(&half, (const uint16_t *)from + i, sizeof half);
    return hop_v_widen(half);
}

HOP_INLINE void hop_v_store(void *to, enum hop_dtype dtype, int64_t i, hop_v16 value)
{
    if (dtype == HOP_F32) {
        hop_v_store_f32((float *)to + i, value);
        return;
    }
    const hop_h16 half = hop_v_narrow(value);
    memcpy((uint16_t *)to + i, &half, sizeof half);
}

/* The first `count` < 16 lanes only; the others are zero. */
HOP_INLINE hop_v16 hop_v_load_part(const void *from, enum hop_dtype dtype, int64_t i, int64_t count)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const uint32_t mask = (1u << count) - 1u;
    if (dtype == HOP_F32)
        return (hop_v16)_mm512_maskz_loadu_ps((__mmask16)mask, (const float *)from + i);
    return hop_v_widen(
        (hop_h16)_mm256_maskz_loadu_epi16((__mmask16)mask, (const uint16_t *)from + i));
#else
    char lanes[64] = {0};
    const size_t size = dtype == HOP_F32 ? 4 : 2;
    memcpy(lanes, (const char *)from + (size_t)i * size, (size_t)count * size);
    return hop_v_load(lanes, dtype, 0);
#endif
}

HOP_INLINE void hop_v_store_part(void *to, enum hop_dtype dtype, int64_t i, hop_v16 value,
                                 int64_t count)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const uint32_t mask = (1u << count) - 1u;
    if (dtype == HOP_F32)
        _mm512_mask_storeu_ps((float *)to + i, (__mmask16)mask, (__m512)value);
    else
        _mm256_mask_storeu_epi16((uint16_t *)to + i, (__mmask16)mask, (__m256i)hop_v_narrow(value));
#else
    char lanes[64];
    const size_t size = dtype == HOP_F32 ? 4 : 2;
    hop_v_store(lanes, dtype, 0, value);
    memcpy((char *)to + (size_t)i * size, lanes, (size_t)count * size);
#endif
}

/* All 16 lanes, or what is left of n elements. */
HOP_INLINE hop_v16 hop_v_load_upto(const void *from, enum hop_dtype dtype, int64_t i, int64_t n)
{
    return n - i >= HOP_LANES ? hop_v_load(from, dtype, i) : hop_v_load_part(from, dtype, i, n - i);
}

HOP_INLINE void hop_v_store_upto(void *to, enum hop_dtype dtype, int64_t i, hop_v16 value,
                                 int64_t n)
{
    if (n - i >= HOP_LANES)
        hop_v_store(to, dtype, i, value);
    else
        hop_v_store_part(to, dtype, i, value, n - i);
}

/* Lanes of a where mask is all ones, of b where it is zero. */
HOP_INLINE hop_v16 hop_v_select(hop_i16 mask, hop_v16 a, hop_v16 b)
{
    return (hop_v16)((mask & (hop_i16)a) | (~mask & (hop_i16)b));
}

HOP_INLINE hop_v16 hop_v_max(hop_v16 a, hop_v16 b)
{
#if defined(__AVX512F__)
    return (hop_v16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return hop_v_select((hop_i16)(a > b), a, b);
#endif
}

HOP_INLINE hop_v16 hop_v_min(hop_v16 a, hop_v16 b)
{
#if defined(__AVX512F__)
    return (hop_v16)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return hop_v_select((hop_i16)(a < b), a, b);
#endif
}

HOP_INLINE float hop_v_sum(hop_v16 v)
{
    float lane[HOP_LANES];
    hop_v_store_f32(lane, v);
    for (int half = HOP_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

HOP_INLINE float hop_v_largest(hop_v16 v)
{
    float lane[HOP_LANES];
    hop_v_store_f32(lane, v);
    for (int half = HOP_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

/* e^x to about one unit in the last place: Cody-Waite reduction to |r| <= ln2/2, the polynomial of
 * Cephes' expf, and 2^n added to the exponent. Below -87.3 it gives 0, above 88 it gives e^88:
 * callers subtract a maximum first or live with a finite bound. */
HOP_INLINE hop_v16 hop_v_exp(hop_v16 x)
{
    const float lowest = -87.3f, highest = 88.0f,
                magic = 12582912.0f; /* 1.5 * 2^23 rounds to integer */
    const hop_v16 in = hop_v_min(hop_v_max(x, hop_v_set(lowest)), hop_v_set(highest));
    const hop_v16 shifted = in * 1.44269504088896341f + magic;
    const hop_v16 n = shifted - magic;
    const hop_v16 r = (in - n * 0.693359375f) + n * 2.12194440e-4f;
    hop_v16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const hop_i16 exponent = ((hop_i16)shifted - (hop_i16)hop_v_set(magic)) << 23;
    return hop_v_select((hop_i16)(x < lowest), (hop_v16){0}, (hop_v16)((hop_i16)p + exponent));
}

/* One step of a transposition: exchanges the off-diagonal halves of 2s x 2s blocks. */
#define HOP_V_SWAP(r, i, j, low, high)                                                             \
    do {                                                                                           \
        const hop_v16 hop_a = (r)[i], hop_b = (r)[j];                                              \
        (r)[i] = __builtin_shufflevector(hop_a, hop_b, low);                                       \
        (r)[j] = __builtin_shufflevector(hop_a, hop_b, high);                                      \
    } while (0)
#define HOP_V_LOW_8  0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HOP_V_HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define HOP_V_LOW_4  0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HOP_V_HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define HOP_V_LOW_2  0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HOP_V_HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define HOP_V_LOW_1  0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HOP_V_HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31

HOP_INLINE void hop_v_transpose(hop_v16 r[HOP_LANES])
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        HOP_V_SWAP(r, i, i + 8, HOP_V_LOW_8, HOP_V_HIGH_8);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        HOP_V_SWAP(r, i / 4 * 8 + i % 4, i / 4 * 8 + i % 4 + 4, HOP_V_LOW_4, HOP_V_HIGH_4);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        HOP_V_SWAP(r, i / 2 * 4 + i % 2, i / 2 * 4 + i % 2 + 2, HOP_V_LOW_2, HOP_V_HIGH_2);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        HOP_V_SWAP(r, 2 * i, 2 * i + 1, HOP_V_LOW_1, HOP_V_HIGH_1);
}

/* 1 / (1 + e^-x) */
HOP_INLINE hop_v16 hop_v_sigmoid(hop_v16 x)
{
    return 1.0f / (1.0f + hop_v_exp(-x));
}

#endif
