/* Element types of tensors, and conversions between them. */
#ifndef HOP_BASE_DTYPE_H
#define HOP_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum hop_dtype { HOP_F32, HOP_BF16, HOP_F16, HOP_DTYPE_OTHER };

/* 4 or 2; 0 for HOP_DTYPE_OTHER. */
size_t hop_dtype_size(enum hop_dtype dtype);
/* "f32", "bf16", "f16". */
const char *hop_dtype_name(enum hop_dtype dtype);

static inline float hop_bf16_to_f32(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t hop_bf16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float hop_f16_to_f32(uint16_t value);
/* Round to nearest even, infinite beyond the range of f16; NaN stays NaN. */
uint16_t hop_f16_from_f32(float value);

/* Converts n elements; from/to may be any of f32, bf16, f16. */
void hop_convert(void *to, enum hop_dtype to_dtype, const void *from, enum hop_dtype from_dtype,
                 size_t n);

#endif
