#include "oracle.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

hop_status oracle_integer(const char *text, const char *name, int32_t low, int32_t high,
                          int32_t *out, struct hop_error *err)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return hop_fail(err, HOP_INPUT, "%s: '%s' is no whole number of %d to %d", name, text, low,
                        high);
    *out = (int32_t)value;
    return HOP_OK;
}

hop_status oracle_real(const char *text, const char *name, double *out, struct hop_error *err)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0)
        return hop_fail(err, HOP_INPUT, "%s: '%s' is no number above 0", name, text);
    *out = value;
    return HOP_OK;
}

hop_status oracle_usage(const char *usage, struct hop_error *err)
{
    return hop_fail(err, HOP_INPUT, "usage: planner-oracle %s", usage);
}
