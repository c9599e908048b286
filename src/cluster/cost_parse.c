/* Reads cost tables from JSON. The limits keep a hostile file from taking more memory than it has
 * bytes for, and sums of its numbers from overflowing. */
#include "cluster/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/json.h"
#include "io/schema.h"

enum { PLACE = 512, BLOCKS_MAX = 65536, DEVICES_MAX = 1024, CELLS_MAX = 1 << 22 };
#define SMALLEST 1e-9 /* of what is divided by */
#define LARGEST  1e30

struct table_keys {
    int64_t blocks;
    int64_t tensor_units;
    double micro_batch_samples, tied_bytes, bandwidth, latency;
    int duplex, nic;
    json_t *devices, *boundary_bytes, *gradient_bytes, *machines, *pairs;
};

static const char *const duplex_names[] = {"full", "half", NULL};
static const char *const nic_names[] = {"separate", "shared", NULL};

static const struct hop_field network_fields[] = {
    {.key = "bandwidth",
     .type = HOP_FIELD_RATE,
     .offset = offsetof(struct table_keys, bandwidth),
     .fallback = INFINITY,
     .minimum = SMALLEST,
     .maximum = LARGEST},
    {.key = "latency",
     .type = HOP_FIELD_SECONDS,
     .offset = offsetof(struct table_keys, latency),
     .maximum = LARGEST},
    {.key = "duplex",
     .type = HOP_FIELD_CHOICE,
     .offset = offsetof(struct table_keys, duplex),
     .choices = duplex_names},
    {.key = "nic",
     .type = HOP_FIELD_CHOICE,
     .offset = offsetof(struct table_keys, nic),
     .choices = nic_names},
    {.key = "pairs", .type = HOP_FIELD_ANY, .offset = offsetof(struct table_keys, pairs)},
    {.key = NULL},
};

static const struct hop_field table_fields[] = {
    {.key = "micro_batch_samples",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct table_keys, micro_batch_samples),
     .fallback = 1,
     .minimum = 1,
     .maximum = 1e9},
    {.key = "blocks",
     .type = HOP_FIELD_INT,
     .offset = offsetof(struct table_keys, blocks),
     .fallback = 1,
     .minimum = 1,
     .maximum = BLOCKS_MAX},
    {.key = "boundary_bytes",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct table_keys, boundary_bytes)},
    {.key = "gradient_bytes",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct table_keys, gradient_bytes)},
    {.key = "tied_bytes",
     .type = HOP_FIELD_BYTES,
     .offset = offsetof(struct table_keys, tied_bytes),
     .maximum = LARGEST},
    {.key = "tensor_units",
     .type = HOP_FIELD_INT,
     .offset = offsetof(struct table_keys, tensor_units),
     .minimum = 0,
     .maximum = BLOCKS_MAX},
    {.key = "devices", .type = HOP_FIELD_ANY, .offset = offsetof(struct table_keys, devices)},
    {.key = "machines", .type = HOP_FIELD_ANY, .offset = offsetof(struct table_keys, machines)},
    {.key = "network", .type = HOP_FIELD_SECTION, .fields = network_fields},
    {.key = NULL},
};

struct device_keys {
    char *name;
    bool bp;
    double fixed_bytes, exit_forward, exit_bytes, memory, idle_watts, busy_watts;
    json_t *forward, *backward, *probe, *step, *feedback, *state_bytes, *activation_bytes;
};

static const struct hop_field power_fields[] = {
    {.key = "idle",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct device_keys, idle_watts),
     .fallback = NAN,
     .maximum = LARGEST},
    {.key = "busy",
     .type = HOP_FIELD_REAL,
     .offset = offsetof(struct device_keys, busy_watts),
     .fallback = NAN,
     .maximum = LARGEST},
    {.key = NULL},
};

static const struct hop_field device_fields[] = {
    {.key = "name", .type = HOP_FIELD_STRING, .offset = offsetof(struct device_keys, name)},
    {.key = "bp", .type = HOP_FIELD_BOOL, .offset = offsetof(struct device_keys, bp)},
    {.key = "forward", .type = HOP_FIELD_ANY, .offset = offsetof(struct device_keys, forward)},
    {.key = "backward", .type = HOP_FIELD_ANY, .offset = offsetof(struct device_keys, backward)},
    {.key = "probe", .type = HOP_FIELD_ANY, .offset = offsetof(struct device_keys, probe)},
    {.key = "step", .type = HOP_FIELD_ANY, .offset = offsetof(struct device_keys, step)},
    {.key = "feedback", .type = HOP_FIELD_ANY, .offset = offsetof(struct device_keys, feedback)},
    {.key = "exit_forward",
     .type = HOP_FIELD_SECONDS,
     .offset = offsetof(struct device_keys, exit_forward),
     .maximum = LARGEST},
    {.key = "exit_bytes",
     .type = HOP_FIELD_BYTES,
     .offset = offsetof(struct device_keys, exit_bytes),
     .maximum = LARGEST},
    {.key = "state_bytes",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct device_keys, state_bytes)},
    {.key = "activation_bytes",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct device_keys, activation_bytes)},
    {.key = "fixed_bytes",
     .type = HOP_FIELD_BYTES,
     .offset = offsetof(struct device_keys, fixed_bytes),
     .maximum = LARGEST},
    {.key = "memory",
     .type = HOP_FIELD_BYTES,
     .offset = offsetof(struct device_keys, memory),
     .fallback = INFINITY,
     .minimum = SMALLEST,
     .maximum = LARGEST},
    {.key = "power", .type = HOP_FIELD_SECTION, .fields = power_fields},
    {.key = NULL},
};

/* An exception to the network; NAN: as the network says. */
struct pair_keys {
    char *from, *to;
    double bandwidth, latency;
};

static const struct hop_field pair_fields[] = {
    {.key = "from", .type = HOP_FIELD_STRING, .offset = offsetof(struct pair_keys, from)},
    {.key = "to", .type = HOP_FIELD_STRING, .offset = offsetof(struct pair_keys, to)},
    {.key = "bandwidth",
     .type = HOP_FIELD_RATE,
     .offset = offsetof(struct pair_keys, bandwidth),
     .fallback = NAN,
     .minimum = SMALLEST,
     .maximum = LARGEST},
    {.key = "latency",
     .type = HOP_FIELD_SECONDS,
     .offset = offsetof(struct pair_keys, latency),
     .fallback = NAN,
     .maximum = LARGEST},
    {.key = NULL},
};

struct required {
    const char *key, *meaning;
};

static hop_status require(const json_t *object, const struct required *keys, const char *where,
                          struct hop_error *err)
{
    for (; keys->key; keys++) {
        const json_t *const value = json_object_get(object, keys->key);
        if (!value || json_is_null(value))
            return hop_fail(err, HOP_INPUT, "%s: %s is missing; it is %s", where, keys->key,
                            keys->meaning);
    }
    return HOP_OK;
}

static hop_status refuse(const json_t *found, const char *where, const char *key,
                         const char *expected, struct hop_error *err)
{
    char *const text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    hop_fail(err, HOP_INPUT, "%s: %s must be %s, found %.80s", where, key, expected,
             text ? text : "?");
    free(text);
    return HOP_INPUT;
}

static hop_status get_number(const json_t *value, const char *where, const char *key, double *out,
                             struct hop_error *err)
{
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= 0 && number <= LARGEST))
        return refuse(value, where, key, "a number between 0 and 1e+30", err);
    *out = number;
    return HOP_OK;
}

/* Fills out (blocks); leaves it as it is where the list is absent. */
static hop_status get_blocks(const json_t *list, const char *where, const char *key, int32_t blocks,
                             double *out, struct hop_error *err)
{
    if (!list)
        return HOP_OK;
    if (!json_is_array(list))
        return refuse(list, where, key, "a list of numbers, one a block", err);
    const size_t count = json_array_size(list);
    if (count != (size_t)blocks)
        return hop_fail(err, HOP_INPUT, "%s: %s has %zu numbers; blocks is %d", where, key, count,
                        blocks);
    for (size_t i = 0; i < count; i++) {
        char element[64];
        snprintf(element, sizeof element, "%s[%zu]", key, i);
        HOP_TRY(get_number(json_array_get(list, i), where, element, &out[i], err));
    }
    return HOP_OK;
}

/* One number for all boundaries, or blocks - 1 numbers. */
static hop_status get_boundaries(const json_t *value, const char *where,
                                 struct hop_cost_table *cost, struct hop_error *err)
{
    static const char key[] = "boundary_bytes";
    const int32_t count = cost->blocks - 1;
    if (json_is_array(value) && json_array_size(value) != (size_t)count)
        return hop_fail(err, HOP_INPUT,
                        "%s: %s has %zu numbers; blocks is %d, so %d are needed, one between each "
                        "block and the next",
                        where, key, json_array_size(value), cost->blocks, count);
    if (!value || json_is_array(value))
        return get_blocks(value, where, key, count, cost->boundary_bytes, err);
    double all;
    HOP_TRY(get_number(value, where, key, &all, err));
    for (int32_t i = 0; i < count; i++)
        cost->boundary_bytes[i] = all;
    return HOP_OK;
}

/* `probe` is as `forward` where the file does not have it. */
static hop_status get_probe(const json_t *list, const char *where, int32_t blocks,
                            struct hop_cost_device *device, struct hop_error *err)
{
    memcpy(device->probe, device->forward, (size_t)blocks * sizeof(double));
    return get_blocks(list, where, "probe", blocks, device->probe, err);
}

static hop_status get_backward(const json_t *list, const char *where, int32_t blocks,
                               struct hop_cost_device *device, struct hop_error *err)
{
    if (!list && device->bp)
        return hop_fail(err, HOP_INPUT,
                        "%s: backward is missing; a device with bp: true needs the seconds of each "
                        "block, one that cannot run backward is bp: false",
                        where);
    if (!list)
        return HOP_OK;
    HOP_TRY(hop_calloc(&device->backward, (size_t)blocks, sizeof(double), err));
    return get_blocks(list, where, "backward", blocks, device->backward, err);
}

static hop_status take_device(struct device_keys *keys, const char *where, int32_t blocks,
                              struct hop_cost_device *device, struct hop_error *err)
{
    device->name = keys->name;
    keys->name = NULL;
    device->bp = keys->bp;
    device->fixed_bytes = keys->fixed_bytes;
    device->exit_forward = keys->exit_forward;
    device->exit_bytes = keys->exit_bytes;
    device->memory = keys->memory;
    device->idle_watts = keys->idle_watts;
    device->busy_watts = keys->busy_watts;
    HOP_TRY(get_blocks(keys->forward, where, "forward", blocks, device->forward, err));
    HOP_TRY(get_backward(keys->backward, where, blocks, device, err));
    HOP_TRY(get_probe(keys->probe, where, blocks, device, err));
    HOP_TRY(get_blocks(keys->step, where, "step", blocks, device->step, err));
    HOP_TRY(get_blocks(keys->feedback, where, "feedback", blocks, device->feedback, err));
    HOP_TRY(get_blocks(keys->state_bytes, where, "state_bytes", blocks, device->state_bytes, err));
    return get_blocks(keys->activation_bytes, where, "activation_bytes", blocks,
                      device->activation_bytes, err);
}

static hop_status parse_device(const json_t *object, const char *where, int32_t blocks,
                               struct hop_cost_device *device, struct hop_error *err)
{
    static const struct required needed[] = {
        {"name", "what the device is called"},
        {"bp", "true for a device that runs backward, else false"},
        {"forward", "the seconds of one forward of each block, one number a block"},
        {NULL, NULL},
    };
    struct device_keys keys;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a device is a map with name, bp and forward", where);
    HOP_TRY(hop_schema_bind(device_fields, object, where, &keys, err));
    hop_status status = HOP_OK;
    HOP_TRY_DONE(require(object, needed, where, err));
    if (!*keys.name)
        status = hop_fail(err, HOP_INPUT, "%s: name is empty; every device needs its own", where);
    else
        status = take_device(&keys, where, blocks, device, err);
done:
    hop_schema_release(device_fields, &keys);
    return status;
}

static hop_status check_twin(const struct hop_cost_table *cost, int32_t device, const char *where,
                             struct hop_error *err)
{
    const char *const name = cost->devices[device].name;
    for (int32_t d = 0; d < device; d++)
        if (strcmp(cost->devices[d].name, name) == 0)
            return hop_fail(err, HOP_INPUT,
                            "%s: name is also that of devices[%d]; names must differ", where, d);
    return HOP_OK;
}

static hop_status parse_devices(const json_t *list, const char *where, struct hop_cost_table *cost,
                                struct hop_error *err)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        char place[PLACE];
        const json_t *const object = json_array_get(list, (size_t)d);
        const char *const name = json_string_value(json_object_get(object, "name"));
        const bool named = name && *name;
        snprintf(place, sizeof place, "%s: devices[%d]%s%.64s%s", where, d, named ? " (" : "",
                 named ? name : "", named ? ")" : "");
        HOP_TRY(parse_device(object, place, cost->blocks, &cost->devices[d], err));
        HOP_TRY(check_twin(cost, d, place, err));
    }
    return HOP_OK;
}

static hop_status find_device(const struct hop_cost_table *cost, const char *name,
                              const char *where, const char *key, int32_t *out,
                              struct hop_error *err)
{
    const char **names;
    *out = hop_cost_find(cost, name);
    if (*out >= 0)
        return HOP_OK;
    HOP_TRY(hop_cost_names(cost, &names, err));
    const char *const near = hop_nearest_name(name, names, (size_t)cost->device_count);
    hop_fail(err, HOP_INPUT, "%s: %s: no device is named '%.64s'; %s%s%s", where, key, name,
             near ? "did you mean '" : "`devices` has the names", near ? near : "",
             near ? "'?" : "");
    free(names);
    return HOP_INPUT;
}

static hop_status parse_machine(const json_t *list, const char *where, const char *place,
                                struct hop_cost_table *cost, struct hop_error *err)
{
    int32_t first = -1;
    if (!json_is_array(list))
        return refuse(list, where, place, "a list of device names", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *const name = json_string_value(json_array_get(list, i));
        int32_t device;
        if (!name)
            return refuse(list, where, place, "a list of device names", err);
        HOP_TRY(find_device(cost, name, where, place, &device, err));
        if (cost->machine[device] >= 0)
            return hop_fail(err, HOP_INPUT,
                            "%s: %s: '%s' is named a second time; a device is part of one machine",
                            where, place, name);
        first = first < 0 ? device : first;
        cost->machine[device] = first;
    }
    return HOP_OK;
}

/* A machine's number is that of the first device it names. */
static hop_status parse_machines(const json_t *lists, const char *where,
                                 struct hop_cost_table *cost, struct hop_error *err)
{
    if (lists && !json_is_array(lists))
        return refuse(lists, where, "machines", "a list of lists of device names", err);
    for (int32_t d = 0; d < cost->device_count; d++)
        cost->machine[d] = -1;
    for (size_t i = 0; i < json_array_size(lists); i++) {
        char place[64];
        snprintf(place, sizeof place, "machines[%zu]", i);
        HOP_TRY(parse_machine(json_array_get(lists, i), where, place, cost, err));
    }
    for (int32_t d = 0; d < cost->device_count; d++)
        if (cost->machine[d] < 0)
            cost->machine[d] = d;
    return HOP_OK;
}

static void set_network(const struct table_keys *keys, struct hop_cost_table *cost)
{
    const int32_t n = cost->device_count;
    cost->half_duplex = keys->duplex == 1;
    cost->shared_nic = keys->nic == 1;
    for (int32_t from = 0; from < n; from++)
        for (int32_t to = 0; to < n; to++) {
            const size_t link = (size_t)from * (size_t)n + (size_t)to;
            if (cost->machine[from] == cost->machine[to])
                continue;
            cost->bandwidth[link] = keys->bandwidth;
            cost->latency[link] = keys->latency;
        }
}

static hop_status take_pair(const struct pair_keys *keys, const char *where, bool *seen,
                            struct hop_cost_table *cost, struct hop_error *err)
{
    int32_t from, to;
    HOP_TRY(find_device(cost, keys->from, where, "from", &from, err));
    HOP_TRY(find_device(cost, keys->to, where, "to", &to, err));
    const size_t link = (size_t)from * (size_t)cost->device_count + (size_t)to;
    if (from == to)
        return hop_fail(err, HOP_INPUT, "%s: from and to are both '%s'; two devices are needed",
                        where, keys->from);
    if (seen[link])
        return hop_fail(err, HOP_INPUT, "%s: the pair from '%s' to '%s' is there twice; keep one",
                        where, keys->from, keys->to);
    seen[link] = true;
    if (!isnan(keys->bandwidth))
        cost->bandwidth[link] = keys->bandwidth;
    if (!isnan(keys->latency))
        cost->latency[link] = keys->latency;
    return HOP_OK;
}

static hop_status parse_pair(const json_t *object, const char *where, bool *seen,
                             struct hop_cost_table *cost, struct hop_error *err)
{
    static const struct required needed[] = {
        {"from", "the name of the device that sends"},
        {"to", "the name of the device that receives"},
        {NULL, NULL},
    };
    struct pair_keys keys;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a map with from, to, bandwidth and latency is needed",
                        where);
    HOP_TRY(hop_schema_bind(pair_fields, object, where, &keys, err));
    hop_status status = require(object, needed, where, err);
    if (status == HOP_OK)
        status = take_pair(&keys, where, seen, cost, err);
    hop_schema_release(pair_fields, &keys);
    return status;
}

static hop_status parse_pairs(const json_t *list, const char *where, struct hop_cost_table *cost,
                              struct hop_error *err)
{
    const size_t n = (size_t)cost->device_count;
    bool *seen;
    if (list && !json_is_array(list))
        return refuse(list, where, "network.pairs", "a list of maps", err);
    HOP_TRY(hop_calloc(&seen, n * n, sizeof *seen, err));
    hop_status status = HOP_OK;
    for (size_t i = 0; i < json_array_size(list) && status == HOP_OK; i++) {
        char place[PLACE];
        snprintf(place, sizeof place, "%s: network.pairs[%zu]", where, i);
        status = parse_pair(json_array_get(list, i), place, seen, cost, err);
    }
    free(seen);
    return status;
}

/* A device that held every block would hold less than nothing otherwise. */
static hop_status check_tied(const struct hop_cost_table *cost, const char *where,
                             struct hop_error *err)
{
    const int32_t last = cost->blocks - 1;
    for (int32_t d = 0; d < cost->device_count; d++) {
        const double *const state = cost->devices[d].state_bytes;
        const double held = state[0] + (last > 0 ? state[last] : 0);
        if (cost->tied_bytes > held)
            return hop_fail(err, HOP_INPUT,
                            "%s: tied_bytes is %.15g, but the first and the last block of '%s' "
                            "hold %.15g bytes together; tied_bytes is a part of their state_bytes",
                            where, cost->tied_bytes, cost->devices[d].name, held);
    }
    return HOP_OK;
}

static hop_status check_sizes(const struct table_keys *keys, const char *where,
                              struct hop_error *err)
{
    const size_t devices = json_array_size(keys->devices);
    if (devices == 0)
        return hop_fail(err, HOP_INPUT, "%s: devices: a list of at least one device is needed",
                        where);
    if (devices > DEVICES_MAX)
        return hop_fail(err, HOP_INPUT, "%s: devices: %zu of them; %d at most", where, devices,
                        DEVICES_MAX);
    if (devices * (size_t)keys->blocks > CELLS_MAX)
        return hop_fail(err, HOP_INPUT,
                        "%s: %zu devices of %lld blocks each; their product may be %d at most",
                        where, devices, (long long)keys->blocks, CELLS_MAX);
    return HOP_OK;
}

static hop_status parse_table(const struct table_keys *keys, const char *where,
                              struct hop_cost_table *cost, struct hop_error *err)
{
    cost->micro_batch_samples = keys->micro_batch_samples;
    cost->tied_bytes = keys->tied_bytes;
    cost->tensor_units = (int32_t)keys->tensor_units;
    HOP_TRY(parse_devices(keys->devices, where, cost, err));
    HOP_TRY(get_boundaries(keys->boundary_bytes, where, cost, err));
    HOP_TRY(get_blocks(keys->gradient_bytes, where, "gradient_bytes", cost->blocks,
                       cost->gradient_bytes, err));
    HOP_TRY(parse_machines(keys->machines, where, cost, err));
    set_network(keys, cost);
    HOP_TRY(parse_pairs(keys->pairs, where, cost, err));
    return check_tied(cost, where, err);
}

hop_status hop_cost_parse(const json_t *object, const char *where, struct hop_cost_table *out,
                          struct hop_error *err)
{
    static const struct required needed[] = {
        {"micro_batch_samples", "how many samples all seconds and bytes are for"},
        {"blocks", "how many layers the lists have numbers for"},
        {"devices", "the list of devices"},
        {NULL, NULL},
    };
    struct table_keys keys;
    struct hop_cost_table cost = {0};
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a cost table is a map with blocks and devices", where);
    HOP_TRY(hop_schema_bind(table_fields, object, where, &keys, err));
    hop_status status = HOP_OK;
    HOP_TRY_DONE(require(object, needed, where, err));
    HOP_TRY_DONE(check_sizes(&keys, where, err));
    HOP_TRY_DONE(
        hop_cost_create((int32_t)keys.blocks, (int32_t)json_array_size(keys.devices), &cost, err));
    HOP_TRY_DONE(parse_table(&keys, where, &cost, err));
    *out = cost;
    cost = (struct hop_cost_table){0};
done:
    hop_cost_free(&cost);
    hop_schema_release(table_fields, &keys);
    return status;
}

hop_status hop_cost_load(const char *path, struct hop_cost_table *out, struct hop_error *err)
{
    json_t *object;
    HOP_TRY(hop_json_load(path, &object, err));
    const hop_status status = hop_cost_parse(object, path, out, err);
    json_decref(object);
    return status;
}
