#include "strategy/dapple_profile.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"

enum { LAYERS_MOST = 4096 };

struct reader {
    const char *path;
    const char *at;
};

static bool read_word(struct reader *reader, double *value)
{
    char *end;
    *value = strtod(reader->at, &end);
    const bool whole = end != reader->at && (*end == '\0' || isspace((unsigned char)*end));
    if (whole)
        reader->at = end;
    return whole && isfinite(*value);
}

static hop_status read_count(struct reader *reader, const char *what, int32_t place, int32_t low,
                             int32_t high, int32_t *out, struct hop_error *err)
{
    double value;
    if (!read_word(reader, &value) || value != floor(value) || value < low || value > high)
        return hop_fail(err, HOP_INPUT, "%s: %s %d: a whole number of %d to %d was expected",
                        reader->path, what, place, low, high);
    *out = (int32_t)value;
    return HOP_OK;
}

static hop_status read_numbers(struct reader *reader, const char *what, size_t count, double **out,
                               struct hop_error *err)
{
    HOP_TRY(hop_calloc(out, count, sizeof **out, err));
    for (size_t i = 0; i < count; i++)
        if (!read_word(reader, &(*out)[i]))
            return hop_fail(err, HOP_INPUT, "%s: %s[%zu]: one of %zu numbers was expected",
                            reader->path, what, i, count);
    return HOP_OK;
}

static hop_status read_predecessors(struct reader *reader, struct hop_dapple_profile *profile,
                                    struct hop_error *err)
{
    const int32_t layers = profile->layers;
    size_t capacity = 0;
    HOP_TRY(hop_calloc(&profile->first, (size_t)layers + 1, sizeof *profile->first, err));
    for (int32_t j = 0; j < layers; j++) {
        int32_t count = 0, *const next = &profile->first[j + 1];
        *next = profile->first[j];
        HOP_TRY(read_count(reader, "number of predecessors of layer", j, 0, layers, &count, err));
        HOP_TRY(hop_grow(&profile->predecessors, &capacity, (size_t)*next + (size_t)count + 1,
                         sizeof *profile->predecessors, err));
        for (int32_t i = 0; i < count; i++)
            HOP_TRY(read_count(reader, "predecessor of layer", j, 0, layers - 1,
                               &profile->predecessors[(*next)++], err));
    }
    return HOP_OK;
}

static hop_status read_profile(struct reader *reader, struct hop_dapple_profile *profile,
                               struct hop_error *err)
{
    HOP_TRY(read_count(reader, "line", 1, 1, LAYERS_MOST, &profile->layers, err));
    const size_t layers = (size_t)profile->layers, cells = (layers + 1) * layers;
    HOP_TRY(read_numbers(reader, "compute", cells, &profile->compute, err));
    HOP_TRY(read_numbers(reader, "activation", cells, &profile->activation, err));
    HOP_TRY(read_numbers(reader, "parameters", cells, &profile->parameters, err));
    HOP_TRY(read_numbers(reader, "output", layers, &profile->output, err));
    HOP_TRY(read_predecessors(reader, profile, err));
    while (isspace((unsigned char)*reader->at))
        reader->at++;
    if (*reader->at)
        return hop_fail(err, HOP_INPUT, "%s: more follows the predecessors of layer %d",
                        reader->path, profile->layers - 1);
    return HOP_OK;
}

/* Where branches of a model meet, not every run of layers is a part of it, but those from the first
 * layer on are. */
static hop_status check_profile(const char *path, const struct hop_dapple_profile *profile,
                                struct hop_error *err)
{
    for (int32_t last = 0; last < profile->layers; last++)
        if (hop_dapple_at(profile, profile->compute, 0, last) < 0 ||
            hop_dapple_at(profile, profile->parameters, 0, last) < 0)
            return hop_fail(err, HOP_INPUT,
                            "%s: seconds and parameters of layers 0 to %d: numbers from 0 were "
                            "expected",
                            path, last);
    if (hop_dapple_seconds(profile) <= 0)
        return hop_fail(err, HOP_INPUT, "%s: all layers together take no time", path);
    return HOP_OK;
}

hop_status hop_dapple_profile_load(const char *path, struct hop_dapple_profile *out,
                                   struct hop_error *err)
{
    struct hop_map map;
    struct hop_dapple_profile profile = {0};
    struct hop_string text = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_map_open(path, &map, err));
    HOP_TRY_DONE(hop_string_append(&text, (const char *)map.data, map.size, err));
    struct reader reader = {path, hop_string_text(&text)};
    HOP_TRY_DONE(read_profile(&reader, &profile, err));
    HOP_TRY_DONE(check_profile(path, &profile, err));
    *out = profile;
    memset(&profile, 0, sizeof profile);
done:
    hop_dapple_profile_free(&profile);
    hop_string_free(&text);
    hop_map_close(&map);
    return status;
}

void hop_dapple_profile_free(struct hop_dapple_profile *profile)
{
    if (!profile)
        return;
    free(profile->compute);
    free(profile->activation);
    free(profile->parameters);
    free(profile->output);
    free(profile->first);
    free(profile->predecessors);
    memset(profile, 0, sizeof *profile);
}

void hop_dapple_profile_scale(struct hop_dapple_profile *profile, int32_t from, int32_t to)
{
    const double factor = (double)to / from;
    const size_t layers = (size_t)profile->layers;
    for (size_t i = 0; i < (layers + 1) * layers; i++) {
        profile->compute[i] *= factor;
        profile->activation[i] *= factor;
    }
    for (size_t i = 0; i < layers; i++)
        profile->output[i] *= factor;
}
