#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cluster/device.h"
#include "cluster/network.h"
#include "io/schema.h"
#include "io/yaml.h"

enum { PLACE = 512 };

struct cluster_keys {
    struct hop_network_keys network;
    bool share_files;
    json_t *devices;
};

static const struct hop_field cluster_fields[] = {
    {.key = "network", .type = HOP_FIELD_SECTION, .fields = hop_network_fields},
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

void hop_cluster_free(struct hop_cluster *cluster)
{
    if (!cluster)
        return;
    for (size_t d = 0; d < cluster->count; d++)
        hop_device_free(&cluster->devices[d]);
    free(cluster->devices);
    free(cluster->links);
    *cluster = (struct hop_cluster){0};
}

hop_status hop_cluster_names(const struct hop_cluster *cluster, const char ***out,
                             struct hop_error *err)
{
    const char **names;
    HOP_TRY(hop_calloc(&names, cluster->count, sizeof *names, err));
    for (size_t d = 0; d < cluster->count; d++)
        names[d] = cluster->devices[d].name;
    *out = names;
    return HOP_OK;
}

double hop_cluster_time_scale(const struct hop_cluster *cluster)
{
    for (size_t d = 0; d < cluster->count; d++)
        if (cluster->devices[d].emulate)
            return cluster->devices[d].time_scale;
    return 0;
}

int32_t hop_cluster_find(const struct hop_cluster *cluster, const char *name)
{
    for (size_t d = 0; d < cluster->count; d++)
        if (strcmp(cluster->devices[d].name, name) == 0)
            return (int32_t)d;
    return -1;
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
        HOP_TRY(hop_device_parse(json_array_get(list, d), where, place, device, err));
        const int32_t twin = hop_cluster_find(cluster, device->name);
        cluster->count = d + 1;
        if (twin >= 0)
            return hop_fail(err, HOP_INPUT,
                            "%s: name '%s' is also devices[%d]'s; names must differ", place,
                            device->name, twin);
    }
    return HOP_OK;
}

/* Waits of different scales would not add up to any iteration. */
static hop_status check_time_scales(const struct hop_cluster *cluster, const char *where,
                                    struct hop_error *err)
{
    const struct hop_device *first = NULL;
    for (size_t d = 0; d < cluster->count; d++) {
        const struct hop_device *const device = &cluster->devices[d];
        if (!device->emulate)
            continue;
        if (!first)
            first = device;
        if (device->time_scale != first->time_scale)
            return hop_fail(err, HOP_INPUT,
                            "%s: devices[%zu]: time_scale of '%s' is %.15g, that of '%s' %.15g; "
                            "emulated devices must have the same one",
                            where, d, device->name, device->time_scale, first->name,
                            first->time_scale);
    }
    return HOP_OK;
}

hop_status hop_cluster_parse(const json_t *object, const char *where, struct hop_cluster *out,
                             struct hop_error *err)
{
    struct cluster_keys keys;
    HOP_TRY(hop_schema_bind(cluster_fields, object, where, &keys, err));
    hop_status status = HOP_OK;
    struct hop_cluster cluster = {.share_files = keys.share_files};
    HOP_TRY_DONE(parse_devices(keys.devices, where, &cluster, err));
    HOP_TRY_DONE(check_time_scales(&cluster, where, err));
    HOP_TRY_DONE(hop_network_apply(&keys.network, where, &cluster, err));
    *out = cluster;
    cluster = (struct hop_cluster){0};
done:
    hop_cluster_free(&cluster);
    hop_schema_release(cluster_fields, &keys);
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

static json_t *devices_json(const struct hop_cluster *cluster)
{
    json_t *const devices = json_array();
    for (size_t d = 0; devices && d < cluster->count; d++) {
        if (json_array_append_new(devices, hop_device_json(&cluster->devices[d])) == 0)
            continue;
        json_decref(devices);
        return NULL;
    }
    return devices;
}

json_t *hop_cluster_json(const struct hop_cluster *cluster)
{
    return json_pack("{s:o, s:b, s:o}", "network", hop_network_json(cluster), "share_files",
                     cluster->share_files, "devices", devices_json(cluster));
}
