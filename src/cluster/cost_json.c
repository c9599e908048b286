/* Writes cost tables as JSON: jansson prints reals with 17 digits, which read back as the same
 * doubles. What JSON has no number for (INFINITY, NAN) stands for "not given" and is left out. */
#include "cluster/cost.h"

#include <math.h>
#include <stdlib.h>

/* The network as the file gives it: figures for all pairs of machines, then exceptions. */
struct network {
    double bandwidth, latency;
};

/* Takes over value; a NULL value is out of memory. */
static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static bool put_known(json_t *object, const char *key, double value)
{
    return !isfinite(value) || put(object, key, json_real(value));
}

static json_t *numbers(const double *values, int32_t n)
{
    json_t *const list = json_array();
    for (int32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_real(values[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static bool put_power(json_t *object, const struct hop_cost_device *device)
{
    if (!isfinite(device->idle_watts) && !isfinite(device->busy_watts))
        return true;
    json_t *const power = json_object();
    return put(object, "power", power) && put_known(power, "idle", device->idle_watts) &&
           put_known(power, "busy", device->busy_watts);
}

static bool put_blocks(json_t *object, const struct hop_cost_device *device, int32_t blocks)
{
    return put(object, "forward", numbers(device->forward, blocks)) &&
           (!device->backward || put(object, "backward", numbers(device->backward, blocks))) &&
           put(object, "probe", numbers(device->probe, blocks)) &&
           put(object, "step", numbers(device->step, blocks)) &&
           put(object, "feedback", numbers(device->feedback, blocks)) &&
           put(object, "state_bytes", numbers(device->state_bytes, blocks)) &&
           put(object, "activation_bytes", numbers(device->activation_bytes, blocks));
}

/* Where `done` is false, object is given up and NULL returned. */
static json_t *finish(json_t *object, bool done)
{
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *device_json(const struct hop_cost_device *device, int32_t blocks)
{
    json_t *const object = json_pack("{s:s, s:b}", "name", device->name, "bp", device->bp);
    return finish(object, object && put_blocks(object, device, blocks) &&
                              put_known(object, "memory", device->memory) &&
                              put(object, "fixed_bytes", json_real(device->fixed_bytes)) &&
                              put(object, "exit_forward", json_real(device->exit_forward)) &&
                              put(object, "exit_bytes", json_real(device->exit_bytes)) &&
                              put_power(object, device));
}

static json_t *devices_json(const struct hop_cost_table *cost)
{
    json_t *const list = json_array();
    bool done = list != NULL;
    for (int32_t d = 0; done && d < cost->device_count; d++)
        done = json_array_append_new(list, device_json(&cost->devices[d], cost->blocks)) == 0;
    return finish(list, done);
}

static size_t link_of(const struct hop_cost_table *cost, int32_t from, int32_t to)
{
    return (size_t)from * (size_t)cost->device_count + (size_t)to;
}

/* What most links have: the figures of the first pair of machines. A pair cannot say that it is
 * free, so one free pair leaves the bandwidth of all others to the pairs. */
static struct network common_network(const struct hop_cost_table *cost)
{
    struct network common = {INFINITY, 0};
    bool first = true;
    for (int32_t from = 0; from < cost->device_count; from++)
        for (int32_t to = 0; to < cost->device_count; to++) {
            const size_t link = link_of(cost, from, to);
            if (cost->machine[from] == cost->machine[to])
                continue;
            if (first)
                common = (struct network){cost->bandwidth[link], cost->latency[link]};
            if (isinf(cost->bandwidth[link]))
                common.bandwidth = INFINITY;
            first = false;
        }
    return common;
}

static json_t *pair_json(const struct hop_cost_table *cost, int32_t from, int32_t to)
{
    const size_t link = link_of(cost, from, to);
    json_t *const pair = json_pack("{s:s, s:s, s:f}", "from", cost->devices[from].name, "to",
                                   cost->devices[to].name, "latency", cost->latency[link]);
    return finish(pair, pair && put_known(pair, "bandwidth", cost->bandwidth[link]));
}

static json_t *pairs_json(const struct hop_cost_table *cost, const struct network *common)
{
    json_t *const list = json_array();
    bool done = list != NULL;
    for (int32_t from = 0; from < cost->device_count; from++)
        for (int32_t to = 0; done && to < cost->device_count; to++) {
            const size_t link = link_of(cost, from, to);
            const bool inside = cost->machine[from] == cost->machine[to];
            const struct network usual = inside ? (struct network){INFINITY, 0} : *common;
            if (from != to &&
                (cost->bandwidth[link] != usual.bandwidth || cost->latency[link] != usual.latency))
                done = json_array_append_new(list, pair_json(cost, from, to)) == 0;
        }
    return finish(list, done);
}

static json_t *network_json(const struct hop_cost_table *cost)
{
    const struct network common = common_network(cost);
    json_t *const network = json_object();
    bool done = put_known(network, "bandwidth", common.bandwidth) &&
                put(network, "latency", json_real(common.latency));
    if (cost->half_duplex)
        done = done && put(network, "duplex", json_string("half"));
    if (cost->shared_nic)
        done = done && put(network, "nic", json_string("shared"));
    json_t *const pairs = pairs_json(cost, &common);
    if (json_array_size(pairs) > 0)
        done = done && put(network, "pairs", json_incref(pairs));
    done = done && pairs;
    json_decref(pairs);
    return finish(network, done);
}

/* The devices of the machine of `first`; empty where an earlier device is part of it. */
static json_t *machine_json(const struct hop_cost_table *cost, int32_t first)
{
    json_t *const names = json_array();
    bool done = names != NULL;
    for (int32_t d = 0; d < first; d++)
        if (cost->machine[d] == cost->machine[first])
            return names;
    for (int32_t d = first; done && d < cost->device_count; d++)
        if (cost->machine[d] == cost->machine[first])
            done = json_array_append_new(names, json_string(cost->devices[d].name)) == 0;
    return finish(names, done);
}

static json_t *machines_json(const struct hop_cost_table *cost)
{
    json_t *const list = json_array();
    bool done = list != NULL;
    for (int32_t d = 0; done && d < cost->device_count; d++) {
        json_t *const names = machine_json(cost, d);
        done = names && (json_array_size(names) == 0 || json_array_append(list, names) == 0);
        json_decref(names);
    }
    return finish(list, done);
}

json_t *hop_cost_json(const struct hop_cost_table *cost)
{
    json_t *const object =
        json_pack("{s:f, s:i, s:i}", "micro_batch_samples", cost->micro_batch_samples, "blocks",
                  cost->blocks, "tensor_units", cost->tensor_units);
    return finish(
        object,
        object && put(object, "boundary_bytes", numbers(cost->boundary_bytes, cost->blocks - 1)) &&
            put(object, "gradient_bytes", numbers(cost->gradient_bytes, cost->blocks)) &&
            put(object, "tied_bytes", json_real(cost->tied_bytes)) &&
            put(object, "devices", devices_json(cost)) &&
            put(object, "machines", machines_json(cost)) &&
            put(object, "network", network_json(cost)));
}
