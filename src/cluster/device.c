#include "cluster/device.h"

#include <math.h>
#include <stdlib.h>

#include "cluster/figures.h"
#include "cluster/profile.h"
#include "io/schema.h"

struct device_keys {
    struct hop_figures figures;
    char *name, *host, *profile, *mode, *backend;
    int64_t threads;
    bool emulate;
    double time_scale;
};

static const struct hop_field device_fields[] = {
    {.key = "name", .type = HOP_FIELD_STRING, .offset = offsetof(struct device_keys, name)},
    {.key = "host",
     .type = HOP_FIELD_STRING,
     .offset = offsetof(struct device_keys, host),
     .help = "address of the machine; without it, this one"},
    {.key = "profile",
     .type = HOP_FIELD_STRING,
     .offset = offsetof(struct device_keys, profile),
     .help = "a file of profiles/ with the figures of a kind of board"},
    {.key = "mode",
     .type = HOP_FIELD_STRING,
     .offset = offsetof(struct device_keys, mode),
     .help = "power mode of the profile, e.g. 15W"},
    {.key = "backend",
     .type = HOP_FIELD_STRING,
     .offset = offsetof(struct device_keys, backend),
     .fallback_text = "cpu"},
    HOP_FIGURE_FIELDS,
    {.key = "threads",
     .type = HOP_FIELD_INT,
     .offset = offsetof(struct device_keys, threads),
     .minimum = 0,
     .maximum = 4096,
     .help = "0: the device's share of its machine's cores"},
    {.key = "emulate",
     .type = HOP_FIELD_BOOL,
     .offset = offsetof(struct device_keys, emulate),
     .help = "take the time that the cost table says, not less"},
    {.key = "time_scale",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct device_keys, time_scale),
     .fallback = 1,
     .minimum = 1e-9,
     .maximum = 1e9,
     .help = "of an emulated device's time; the same for all"},
    {.key = NULL},
};

void hop_device_free(struct hop_device *device)
{
    free(device->name);
    free(device->host);
    free(device->profile);
    free(device->mode);
    free(device->backend);
    *device = (struct hop_device){0};
}

/* Puts the profile's figures under those of the device, and its canonical path in place of its
 * name. */
static hop_status merge_profile(json_t *device, const char *path, const char *mode,
                                const char *place, struct hop_error *err)
{
    json_t *figures;
    if (hop_profile_load(path, mode, &figures, err) != HOP_OK)
        return hop_wrap(err, "%s", place);
    const bool merged = hop_figures_override(figures, device) &&
                        json_object_update(device, figures) == 0 &&
                        json_object_set_new(device, "profile", json_string(path)) == 0;
    json_decref(figures);
    return merged ? HOP_OK : hop_fail(err, HOP_MEMORY, "%s: out of memory", place);
}

/* To a device that gives every figure itself the profile is only a label. Values of a wrong type
 * are left to the table of keys. */
static hop_status apply_profile(json_t *device, const char *where, const char *place,
                                struct hop_error *err)
{
    const char *const name = json_string_value(json_object_get(device, "profile"));
    const char *const mode = json_string_value(json_object_get(device, "mode"));
    char *path = NULL;
    if (!name || hop_figures_complete(device) || (!mode && hop_key_given(device, "mode")))
        return HOP_OK;
    HOP_TRY(hop_profile_find(name, where, &path, err));
    const hop_status status = path ? merge_profile(device, path, mode, place, err)
                                   : hop_profile_missing(name, place, err);
    free(path);
    return status;
}

/* `object` says which keys were given. */
static hop_status check_device(const json_t *object, const struct device_keys *keys,
                               const char *place, struct hop_error *err)
{
    if (!keys->name || !*keys->name)
        return hop_fail(err, HOP_INPUT, "%s: name is missing; every device needs its own", place);
    if (keys->mode && !keys->profile)
        return hop_fail(err, HOP_INPUT,
                        "%s: mode '%s' is one of no profile; name the profile, or leave mode out",
                        place, keys->mode);
    if (!keys->emulate && hop_key_given(object, "time_scale"))
        return hop_fail(
            err, HOP_INPUT,
            "%s: time_scale is for emulated devices; add emulate: true, or leave it out", place);
    return HOP_OK;
}

/* Moves the strings: what stays in keys may be released. */
static struct hop_device take_device(struct device_keys *keys)
{
    const struct hop_figures *const f = &keys->figures;
    const struct hop_device device = {.name = keys->name,
                                      .host = keys->host,
                                      .profile = keys->profile,
                                      .mode = keys->mode,
                                      .backend = keys->backend,
                                      .bp = f->bp,
                                      .rate = f->rate,
                                      .memory = f->memory,
                                      .memory_bandwidth = f->bandwidth,
                                      .overhead = f->overhead,
                                      .backward_ratio = f->backward_ratio,
                                      .probe_ratio = f->probe_ratio,
                                      .idle_watts = f->idle_watts,
                                      .busy_watts = f->busy_watts,
                                      .threads = (int32_t)keys->threads,
                                      .emulate = keys->emulate,
                                      .time_scale = keys->time_scale};
    keys->name = keys->host = keys->profile = keys->mode = keys->backend = NULL;
    return device;
}

/* Where nobody says how slow backward is on a board made for forward: the paper's 2.4 TOPS against
 * 20, with frozen weights. */
#define SLOW_BACKWARD 8.6

static hop_status bind_device(const json_t *object, const char *place, struct hop_device *out,
                              struct hop_error *err)
{
    struct device_keys keys;
    HOP_TRY(hop_schema_bind(device_fields, object, place, &keys, err));
    if (!keys.figures.bp && !hop_key_given(object, "backward_ratio"))
        keys.figures.backward_ratio = SLOW_BACKWARD;
    const hop_status status = check_device(object, &keys, place, err);
    if (status == HOP_OK) {
        *out = take_device(&keys);
        out->rate_known = hop_key_given(object, "rate");
    }
    hop_schema_release(device_fields, &keys);
    return status;
}

hop_status hop_device_parse(const json_t *object, const char *where, const char *place,
                            struct hop_device *out, struct hop_error *err)
{
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a device is a map such as {name: gpu0}", place);
    json_t *const merged = json_copy((json_t *)object);
    if (!merged)
        return hop_fail(err, HOP_MEMORY, "%s: out of memory", place);
    hop_status status = apply_profile(merged, where, place, err);
    if (status == HOP_OK)
        status = bind_device(merged, place, out, err);
    json_decref(merged);
    return status;
}

/* A guess is left out. */
static json_t *rate_json(const struct hop_device *device)
{
    return device->rate_known ? json_real(device->rate) : json_null();
}

/* Watts that nobody knows are left out. */
static json_t *power_json(const struct hop_device *device)
{
    json_t *const power = json_object();
    if (power &&
        (isnan(device->idle_watts) ||
         json_object_set_new(power, "idle", json_real(device->idle_watts)) == 0) &&
        (isnan(device->busy_watts) ||
         json_object_set_new(power, "busy", json_real(device->busy_watts)) == 0))
        return power;
    json_decref(power);
    return NULL;
}

json_t *hop_device_json(const struct hop_device *device)
{
    json_t *const object = json_pack(
        "{s:s, s:s*, s:s*, s:s*, s:s, s:b, s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:i, s:b}", "name",
        device->name, "host", device->host, "profile", device->profile, "mode", device->mode,
        "backend", device->backend, "bp", device->bp, "rate", rate_json(device), "memory",
        device->memory, "bandwidth", device->memory_bandwidth, "overhead", device->overhead,
        "backward_ratio", device->backward_ratio, "probe_ratio", device->probe_ratio, "power",
        power_json(device), "threads", device->threads, "emulate", device->emulate);
    if (!object || !device->emulate ||
        json_object_set_new(object, "time_scale", json_real(device->time_scale)) == 0)
        return object;
    json_decref(object);
    return NULL;
}
