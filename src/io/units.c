#include "io/units.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *text;
    double factor;
};

static const struct unit byte_units[] = {
    {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9}, {"TB", 1e12},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};

static const struct unit rate_units[] = {
    {"bps", 1.0 / 8},    {"kbps", 1e3 / 8},  {"Kbps", 1e3 / 8},   {"Mbps", 1e6 / 8},
    {"Gbps", 1e9 / 8},   {"bit/s", 1.0 / 8}, {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8},
    {"Gbit/s", 1e9 / 8}, {"B/s", 1},         {"kB/s", 1e3},       {"KB/s", 1e3},
    {"MB/s", 1e6},       {"GB/s", 1e9},      {"KiB/s", 0x1p10},   {"MiB/s", 0x1p20},
    {"GiB/s", 0x1p30},   {NULL, 0}};

static const struct unit second_units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3},
                                           {"s", 1},     {"min", 60},  {"h", 3600},  {NULL, 0}};

static const struct {
    const struct unit *units;
    const char *example;
} kinds[] = {
    [HOP_UNIT_BYTES] = {byte_units, "a number of bytes or a size such as 7GiB or 512MB"},
    [HOP_UNIT_RATE] = {rate_units,
                       "a number of bytes a second or a rate such as 1Gbps, 100Mbps or 125MB/s"},
    [HOP_UNIT_SECONDS] = {second_units, "a number of seconds or a time such as 50us, 0.3ms or 2s"},
};

bool hop_unit_parse(const char *text, enum hop_unit_kind kind, double *out)
{
    char *rest;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    const double number = strtod(text, &rest);
    while (*rest == ' ')
        rest++;
    for (const struct unit *unit = kinds[kind].units; rest != text && unit->text; unit++) {
        const double value = number * unit->factor;
        if (strcmp(rest, unit->text) == 0 && isfinite(value)) {
            *out = value;
            return true;
        }
    }
    return false;
}

const char *hop_unit_example(enum hop_unit_kind kind)
{
    return kinds[kind].example;
}
