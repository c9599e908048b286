#include "cluster/figures.h"

#include <string.h>

#include "base/string.h"

const struct hop_field hop_power_fields[] = {
    {.key = "idle",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct hop_figures, idle_watts),
     .fallback = NAN,
     .minimum = 0,
     .maximum = 1e6,
     .help = "watts of the board while it waits"},
    {.key = "busy",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct hop_figures, busy_watts),
     .fallback = NAN,
     .minimum = 0,
     .maximum = 1e6,
     .help = "watts of the board while it computes"},
    {.key = NULL},
};

static const struct hop_field fields[] = {HOP_FIGURE_FIELDS};

enum { FIGURES = sizeof fields / sizeof *fields };

int hop_figure_find(const char *key)
{
    for (int i = 0; i < FIGURES; i++)
        if (strcmp(fields[i].key, key) == 0)
            return i;
    return -1;
}

const char *hop_figure_name(int i)
{
    return i < FIGURES ? fields[i].key : NULL;
}

const char *hop_figure_nearest(const char *key)
{
    const char *names[FIGURES];
    for (int i = 0; i < FIGURES; i++)
        names[i] = fields[i].key;
    return hop_nearest_name(key, names, FIGURES);
}

bool hop_key_given(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return value && !json_is_null(value);
}

bool hop_figures_complete(const json_t *object)
{
    for (int i = 0; i < FIGURES; i++)
        if (!hop_key_given(object, fields[i].key))
            return false;
    return true;
}

/* A map over a map keeps the members that only the lower one has. */
static bool override_one(json_t *base, const char *key, json_t *value)
{
    json_t *const below = json_object_get(base, key);
    if (!json_is_object(below) || !json_is_object(value))
        return json_object_set_new(base, key, json_deep_copy(value)) == 0;
    const char *inner;
    json_t *number;
    json_object_foreach(value, inner, number)
    {
        if (!json_is_null(number) && json_object_set(below, inner, number) != 0)
            return false;
    }
    return true;
}

bool hop_figures_override(json_t *base, const json_t *over)
{
    for (int i = 0; i < FIGURES; i++) {
        const char *const key = fields[i].key;
        if (hop_key_given(over, key) && !override_one(base, key, json_object_get(over, key)))
            return false;
    }
    return true;
}
