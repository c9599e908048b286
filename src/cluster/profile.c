#include "cluster/profile.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/string.h"
#include "cluster/figures.h"
#include "io/schema.h"
#include "io/yaml.h"

enum { PLACE = 512 };

struct profile {
    struct hop_figures figures;
    char *description, *mode;
    json_t *modes, *sources;
};

static const struct hop_field profile_fields[] = {
    {.key = "description",
     .type = HOP_FIELD_STRING,
     .offset = offsetof(struct profile, description)},
    HOP_FIGURE_FIELDS,
    {.key = "mode", .type = HOP_FIELD_STRING, .offset = offsetof(struct profile, mode)},
    {.key = "modes", .type = HOP_FIELD_ANY, .offset = offsetof(struct profile, modes)},
    {.key = "sources", .type = HOP_FIELD_ANY, .offset = offsetof(struct profile, sources)},
    {.key = NULL},
};

struct mode {
    struct hop_figures figures;
    json_t *sources;
};

static const struct hop_field mode_fields[] = {
    HOP_FIGURE_FIELDS,
    {.key = "sources", .type = HOP_FIELD_ANY, .offset = offsetof(struct mode, sources)},
    {.key = NULL},
};

/* "measured, ...", "derived: ..." or "assumed ...": one of the words and what follows from it. */
static bool says_where_from(const char *text)
{
    static const char *const words[] = {"measured", "derived", "assumed"};
    for (size_t i = 0; text && i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(text, words[i], n) == 0 && !isalnum((unsigned char)text[n]))
            return text[n + strspn(text + n, " ,.:;-\t\n")] != '\0';
    }
    return false;
}

static hop_status check_source(const char *figure, const json_t *text, const char *place,
                               struct hop_error *err)
{
    const char *const near = hop_figure_nearest(figure);
    if (hop_figure_find(figure) < 0)
        return hop_fail(err, HOP_INPUT, "%s: unknown figure sources.%.64s%s%s", place, figure,
                        near ? "; did you mean sources." : "; sources holds the keys of figures",
                        near ? near : "");
    if (!says_where_from(json_string_value(text)))
        return hop_fail(err, HOP_INPUT,
                        "%s: sources.%s must begin with measured, derived or assumed and say where "
                        "the figure is from",
                        place, figure);
    return HOP_OK;
}

/* Every figure of `object` has an entry in `sources`, and every entry says where from. */
static hop_status check_sources(const json_t *object, const json_t *sources, const char *place,
                                struct hop_error *err)
{
    const char *figure;
    json_t *text;
    if (sources && !json_is_object(sources))
        return hop_fail(err, HOP_INPUT,
                        "%s: sources must be a map such as {rate: \"measured, ...\"}", place);
    json_object_foreach((json_t *)sources, figure, text)
    {
        HOP_TRY(check_source(figure, text, place, err));
    }
    for (int i = 0; hop_figure_name(i); i++) {
        const char *const name = hop_figure_name(i);
        if (hop_key_given(object, name) && !json_object_get(sources, name))
            return hop_fail(err, HOP_INPUT,
                            "%s: %s has no entry in sources; say where it is from, e.g. sources: "
                            "{%s: \"measured, ...\"}",
                            place, name, name);
    }
    return HOP_OK;
}

static hop_status check_mode(const json_t *object, const char *place, struct hop_error *err)
{
    struct mode mode;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s must be a map of figures such as {rate: 2}", place);
    HOP_TRY(hop_schema_bind(mode_fields, object, place, &mode, err));
    const hop_status status = check_sources(object, mode.sources, place, err);
    hop_schema_release(mode_fields, &mode);
    return status;
}

static hop_status check_modes(const json_t *modes, const char *path, struct hop_error *err)
{
    const char *name;
    json_t *mode;
    if (modes && !json_is_object(modes))
        return hop_fail(err, HOP_INPUT, "%s: modes must be a map from names to figures", path);
    json_object_foreach((json_t *)modes, name, mode)
    {
        char place[PLACE];
        snprintf(place, sizeof place, "%s: modes.%.64s", path, name);
        HOP_TRY(check_mode(mode, place, err));
    }
    return HOP_OK;
}

static hop_status unknown_mode(const json_t *modes, const char *mode, const char *path,
                               struct hop_error *err)
{
    struct hop_string known = {0};
    hop_status status = HOP_OK;
    const char *name;
    json_t *value;
    if (json_object_size(modes) == 0)
        return hop_fail(err, HOP_INPUT, "%s: there is no mode '%.64s': it has no modes", path,
                        mode);
    json_object_foreach((json_t *)modes, name, value)
    {
        if (status == HOP_OK)
            status = hop_string_printf(&known, err, "%s%s", known.length ? ", " : "", name);
    }
    if (status == HOP_OK)
        status = hop_fail(err, HOP_INPUT, "%s: there is no mode '%.64s'; its modes: %s", path, mode,
                          hop_string_text(&known));
    hop_string_free(&known);
    return status;
}

static hop_status find_mode(const json_t *modes, const char *name, const char *path,
                            const json_t **out, struct hop_error *err)
{
    *out = name ? json_object_get(modes, name) : NULL;
    return name && !*out ? unknown_mode(modes, name, path, err) : HOP_OK;
}

static hop_status select_mode(const json_t *object, const struct profile *profile, const char *name,
                              const char *path, json_t **out, struct hop_error *err)
{
    const json_t *mode;
    HOP_TRY(find_mode(profile->modes, profile->mode, path, &mode, err));
    if (!name)
        name = profile->mode;
    HOP_TRY(find_mode(profile->modes, name, path, &mode, err));
    json_t *const figures = json_object();
    if (figures && hop_figures_override(figures, object) && hop_figures_override(figures, mode) &&
        (!name || json_object_set_new(figures, "mode", json_string(name)) == 0)) {
        *out = figures;
        return HOP_OK;
    }
    json_decref(figures);
    return hop_fail(err, HOP_MEMORY, "%s: out of memory", path);
}

hop_status hop_profile_load(const char *path, const char *mode, json_t **out, struct hop_error *err)
{
    json_t *object;
    struct profile profile;
    HOP_TRY(hop_yaml_load(path, &object, err));
    hop_status status = hop_schema_bind(profile_fields, object, path, &profile, err);
    if (status != HOP_OK) {
        json_decref(object);
        return status;
    }
    HOP_TRY_DONE(check_sources(object, profile.sources, path, err));
    HOP_TRY_DONE(check_modes(profile.modes, path, err));
    HOP_TRY_DONE(select_mode(object, &profile, mode, path, out, err));
done:
    hop_schema_release(profile_fields, &profile);
    json_decref(object);
    return status;
}
