#include "base/dtype.h"

#include <math.h>

size_t hop_dtype_size(enum hop_dtype dtype)
{
    static const size_t sizes[] = {4, 2, 2, 0};
    return sizes[dtype];
}

const char *hop_dtype_name(enum hop_dtype dtype)
{
    static const char *const names[] = {"f32", "bf16", "f16", "other"};
    return names[dtype];
}

float hop_f16_to_f32(uint16_t value)
{
    const int sign = value >> 15, exponent = value >> 10 & 31, fraction = value & 1023;
    float magnitude;
    if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    else
        magnitude = ldexpf((float)(fraction | 1024), exponent - 25);
    return sign ? -magnitude : magnitude;
}

uint16_t hop_f16_from_f32(float value)
{
    enum { FRACTION = 10, LARGEST = 31 << FRACTION };
    int exponent;
    const unsigned sign = signbit(value) ? 0x8000u : 0;
    const float magnitude = fabsf(value);
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00u);
    if (!(magnitude < 65536))
        return (uint16_t)(sign | LARGEST);
    if (!(magnitude > 0))
        return (uint16_t)sign;
    /* In units of the last place, which subnormal numbers share with the smallest normal ones. */
    frexpf(magnitude, &exponent);
    if (exponent < -13)
        exponent = -13;
    const unsigned units = (unsigned)rintf(ldexpf(magnitude, FRACTION + 1 - exponent));
    const unsigned bits = ((unsigned)(exponent + 13) << FRACTION) + units;
    return (uint16_t)(sign | bits);
}

static float load(const void *from, enum hop_dtype dtype, size_t i)
{
    switch (dtype) {
    case HOP_F32:
        return ((const float *)from)[i];
    case HOP_BF16:
        return hop_bf16_to_f32(((const uint16_t *)from)[i]);
    default:
        return hop_f16_to_f32(((const uint16_t *)from)[i]);
    }
}

void hop_convert(void *to, enum hop_dtype to_dtype, const void *from, enum hop_dtype from_dtype,
                 size_t n)
{
    if (to_dtype == from_dtype) {
        memcpy(to, from, n * hop_dtype_size(to_dtype));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float value = load(from, from_dtype, i);
        if (to_dtype == HOP_F32)
            ((float *)to)[i] = value;
        else
            ((uint16_t *)to)[i] =
                to_dtype == HOP_F16 ? hop_f16_from_f32(value) : hop_bf16_from_f32(value);
    }
}
