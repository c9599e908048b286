#include "report/quantity.h"

#include <math.h>
#include <stdio.h>

/* The largest unit that leaves a number of at least 1; units are `step` apart. */
static struct hop_quantity scaled(double value, double step, const char *const *units, int count)
{
    struct hop_quantity out;
    int unit = 0;
    /* 999.5 would print as 1e+03. */
    while (unit + 1 < count && fabs(value) >= (step > 1000 ? step : 999.5)) {
        value /= step;
        unit++;
    }
    snprintf(out.text, sizeof out.text, fabs(value) >= 99.95 ? "%.0f%s%s" : "%.3g%s%s", value,
             units[unit][0] ? " " : "", units[unit]);
    return out;
}

static struct hop_quantity unknown(void)
{
    return (struct hop_quantity){"-"};
}

struct hop_quantity hop_quantity_seconds(double seconds)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    if (!isfinite(seconds))
        return unknown();
    if (seconds == 0)
        return (struct hop_quantity){"0 s"};
    return scaled(seconds * 1e9, 1e3, units, 4);
}

struct hop_quantity hop_quantity_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return isfinite(bytes) ? scaled(bytes, 1024, units, 6) : unknown();
}

struct hop_quantity hop_quantity_count(double count)
{
    static const char *const units[] = {"M", "G", "T"};
    struct hop_quantity out;
    if (count >= 1e6)
        return scaled(count / 1e6, 1e3, units, 3);
    snprintf(out.text, sizeof out.text, "%.0f", count);
    return out;
}

struct hop_quantity hop_quantity_number(double value)
{
    static const char *const units[] = {""};
    return isfinite(value) ? scaled(value, 1e3, units, 1) : unknown();
}
