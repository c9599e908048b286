#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "cluster/profile.h"
#include "io/schema.h"
#include "io/yaml.h"

enum { PLACE = 512 };

struct cluster_keys {
    double bandwidth, latency;
    bool share_files;
    json_t *devices;
};

static const struct hop_field network_fields[] = {
    {.key = "bandwidth",
     .type = HOP_FIELD_RATE,
     .offset = offsetof(struct cluster_keys, bandwidth),
     .help = "of a link between two devices, e.g. 1Gbps"},
    {.key = "latency",
     .type = HOP_FIELD_SECONDS,
     .offset = offsetof(struct cluster_keys, latency),
     .help = "of a message, e.g. 0.3ms"},
    {.key = NULL},
};

static const struct hop_field cluster_fields[] = {
    {.key = "network", .type = HOP_FIELD_SECTION, .fields = network_fields},
    {.key = "share_files",
     .type = HOP_FIELD_BOOL,
     .offset = offsetof(struct cluster_keys, share_files),
     .fallback = 1,
     .help = "devices that can open the very same model files map them"},
    {.key = "devices",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct cluster_keys, devices),
     .help = "list of devices, in pipeline order inside each class"},
    {.key = NULL},
};

struct device_keys {
    char *name, *host, *profile, *backend;
    bool bp;
    double rate, memory;
    int64_t threads;
    json_t *emulate, *time_scale;
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
     .help = "a file of profiles/ with defaults for bp, rate and memory"},
    {.key = "backend",
     .type = HOP_FIELD_STRING,
     .offset = offsetof(struct device_keys, backend),
     .fallback_text = "cpu"},
    {.key = "bp",
     .type = HOP_FIELD_BOOL,
     .offset = offsetof(struct device_keys, bp),
     .fallback = 1,
     .help = "whether the device runs backward"},
    {.key = "rate",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct device_keys, rate),
     .fallback = 1,
     .minimum = 1e-6,
     .maximum = 1e9,
     .help = "forward speed; only ratios matter"},
    {.key = "memory",
     .type = HOP_FIELD_BYTES,
     .offset = offsetof(struct device_keys, memory),
     .help = "that a stage may use, e.g. 7GiB; 0: not limited"},
    {.key = "threads",
     .type = HOP_FIELD_INT,
     .offset = offsetof(struct device_keys, threads),
     .minimum = 0,
     .maximum = 4096,
     .help = "0: the device's share of its machine's cores"},
    {.key = "emulate", .type = HOP_FIELD_ANY, .offset = offsetof(struct device_keys, emulate)},
    {.key = "time_scale",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct device_keys, time_scale)},
    {.key = NULL},
};

static void free_device(struct hop_device *device)
{
    free(device->name);
    free(device->host);
    free(device->profile);
    free(device->backend);
}

void hop_cluster_free(struct hop_cluster *cluster)
{
    if (!cluster)
        return;
    for (size_t d = 0; d < cluster->count; d++)
        free_device(&cluster->devices[d]);
    free(cluster->devices);
    *cluster = (struct hop_cluster){0};
}

int32_t hop_cluster_find(const struct hop_cluster *cluster, const char *name)
{
    for (size_t d = 0; d < cluster->count; d++)
        if (strcmp(cluster->devices[d].name, name) == 0)
            return (int32_t)d;
    return -1;
}

/* Does the device itself say all that a profile could? Then the profile is only a label. */
static bool is_complete(const json_t *device)
{
    return json_object_get(device, "bp") && json_object_get(device, "rate") &&
           json_object_get(device, "memory");
}

/* Puts the profile's values under those of the device, and its canonical path in place of its name.
 */
static hop_status apply_profile(json_t *device, const char *where, const char *place,
                                struct hop_error *err)
{
    const char *const name = json_string_value(json_object_get(device, "profile"));
    char *path = NULL;
    json_t *values = NULL;
    if (!name)
        return HOP_OK;
    HOP_TRY(hop_profile_find(name, where, &path, err));
    if (!path)
        return is_complete(device) ? HOP_OK : hop_profile_missing(name, place, err);
    hop_status status = hop_profile_load(path, &values, err);
    if (status == HOP_OK && (json_object_update_missing(device, values) != 0 ||
                             json_object_set_new(device, "profile", json_string(path)) != 0))
        status = hop_fail(err, HOP_MEMORY, "%s: out of memory", place);
    json_decref(values);
    free(path);
    return status;
}

static hop_status check_device(const struct device_keys *keys, const char *place,
                               struct hop_error *err)
{
    if (!keys->name || !*keys->name)
        return hop_fail(err, HOP_INPUT, "%s: name is missing; every device needs its own", place);
    if ((keys->emulate && !json_is_false(keys->emulate)) || keys->time_scale)
        return hop_fail(
            err, HOP_UNSUPPORTED,
            "%s: %s: emulated devices are not there yet; leave emulate and time_scale out", place,
            keys->time_scale ? "time_scale" : "emulate");
    return HOP_OK;
}

/* Moves the strings: what stays in keys may be released. */
static struct hop_device take_device(struct device_keys *keys)
{
    const struct hop_device device = {.name = keys->name,
                                      .host = keys->host,
                                      .profile = keys->profile,
                                      .backend = keys->backend,
                                      .bp = keys->bp,
                                      .rate = keys->rate,
                                      .memory = keys->memory,
                                      .threads = (int32_t)keys->threads};
    keys->name = keys->host = keys->profile = keys->backend = NULL;
    return device;
}

static hop_status parse_device(const json_t *object, const char *where, const char *place,
                               struct hop_device *out, struct hop_error *err)
{
    struct device_keys keys;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a device is a map such as {name: gpu0}", place);
    json_t *const merged = json_copy((json_t *)object);
    if (!merged)
        return hop_fail(err, HOP_MEMORY, "%s: out of memory", place);
    hop_status status = apply_profile(merged, where, place, err);
    if (status == HOP_OK)
        status = hop_schema_bind(device_fields, merged, place, &keys, err);
    json_decref(merged);
    if (status != HOP_OK)
        return status;
    status = check_device(&keys, place, err);
    if (status == HOP_OK)
        *out = take_device(&keys);
    hop_schema_release(device_fields, &keys);
    return status;
}

static hop_status parse_devices(const json_t *list, const char *where, struct hop_cluster *cluster,
                                struct hop_error *err)
{
    const size_t count = json_array_size(list);
    if (count == 0)
        return hop_fail(err, HOP_INPUT, "%s: devices: a list of at least one device is needed",
                        where);
    HOP_TRY(hop_calloc(&cluster->devices, count, sizeof *cluster->devices, err));
    for (size_t d = 0; d < count; d++) {
        char place[PLACE];
        struct hop_device *const device = &cluster->devices[d];
        snprintf(place, sizeof place, "%s: devices[%zu]", where, d);
        HOP_TRY(parse_device(json_array_get(list, d), where, place, device, err));
        const int32_t twin = hop_cluster_find(cluster, device->name);
        cluster->count = d + 1;
        if (twin >= 0)
            return hop_fail(err, HOP_INPUT,
                            "%s: name '%s' is also devices[%d]'s; names must differ", place,
                            device->name, twin);
    }
    return HOP_OK;
}

hop_status hop_cluster_parse(const json_t *object, const char *where, struct hop_cluster *out,
                             struct hop_error *err)
{
    struct cluster_keys keys;
    HOP_TRY(hop_schema_bind(cluster_fields, object, where, &keys, err));
    struct hop_cluster cluster = {
        .bandwidth = keys.bandwidth, .latency = keys.latency, .share_files = keys.share_files};
    const hop_status status = parse_devices(keys.devices, where, &cluster, err);
    hop_schema_release(cluster_fields, &keys);
    if (status == HOP_OK)
        *out = cluster;
    else
        hop_cluster_free(&cluster);
    return status;
}

hop_status hop_cluster_load(const char *path, struct hop_cluster *out, struct hop_error *err)
{
    json_t *object;
    HOP_TRY(hop_yaml_load(path, &object, err));
    const hop_status status = hop_cluster_parse(object, path, out, err);
    json_decref(object);
    return status;
}

hop_status hop_cluster_local(struct hop_cluster *out, struct hop_error *err)
{
    json_t *const object = json_pack("{s:[{s:s}]}", "devices", "name", "local");
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory for the cluster");
    const hop_status status = hop_cluster_parse(object, "local cluster", out, err);
    json_decref(object);
    return status;
}

static json_t *device_json(const struct hop_device *device)
{
    return json_pack("{s:s, s:s*, s:s*, s:s, s:b, s:f, s:f, s:i}", "name", device->name, "host",
                     device->host, "profile", device->profile, "backend", device->backend, "bp",
                     device->bp, "rate", device->rate, "memory", device->memory, "threads",
                     device->threads);
}

json_t *hop_cluster_json(const struct hop_cluster *cluster)
{
    json_t *const devices = json_array();
    for (size_t d = 0; devices && d < cluster->count; d++) {
        if (json_array_append_new(devices, device_json(&cluster->devices[d])) == 0)
            continue;
        json_decref(devices);
        return NULL;
    }
    return json_pack("{s:{s:f, s:f}, s:b, s:o}", "network", "bandwidth", cluster->bandwidth,
                     "latency", cluster->latency, "share_files", cluster->share_files, "devices",
                     devices);
}
