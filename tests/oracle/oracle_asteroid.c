#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cluster/cost.h"
#include "io/json.h"
#include "strategy/asteroid_search.h"

/* A layer takes a device of speed 1 so long, forward, for a sample. */
static const double sample_seconds = 0.01;
static const double megabyte = 1e6;
/* Weights, gradients and two moments. */
enum { COPIES = 4, MOST = 64 };

struct instance {
    const char *where;
    const json_t *input;
    struct hop_cost_table cost;
    int32_t devices[MOST];
    int32_t micro_batches, rows;
};

static hop_status get_count(const struct instance *instance, const char *key, int32_t most,
                            int32_t *out, struct hop_error *err)
{
    int64_t value;
    HOP_TRY(hop_json_get_int(instance->input, key, instance->where, 0, &value, err));
    if (value < 1 || value > most)
        return hop_fail(err, HOP_INPUT, "%s: %s: a whole number of 1 to %d was expected",
                        instance->where, key, most);
    *out = (int32_t)value;
    return HOP_OK;
}

static hop_status get_amount(const struct instance *instance, const char *key, double *out,
                             struct hop_error *err)
{
    HOP_TRY(hop_json_get_real(instance->input, key, instance->where, -1, out, err));
    if (!isfinite(*out) || *out <= 0)
        return hop_fail(err, HOP_INPUT, "%s: %s: a number above 0 was expected", instance->where,
                        key);
    return HOP_OK;
}

static hop_status get_element(const struct instance *instance, const char *key, int32_t i,
                              double *out, struct hop_error *err)
{
    const json_t *const array = json_object_get(instance->input, key);
    const json_t *const value = json_array_get(array, (size_t)i);
    *out = json_number_value(value);
    if (!json_is_number(value) || json_array_size(array) != (size_t)instance->cost.device_count ||
        *out <= 0)
        return hop_fail(err, HOP_INPUT, "%s: %s[%d]: one of %d numbers above 0 was expected",
                        instance->where, key, i, instance->cost.device_count);
    return HOP_OK;
}

static hop_status fill_device(struct instance *instance, int32_t d, double activation,
                              double weight, struct hop_error *err)
{
    struct hop_cost_table *const cost = &instance->cost;
    struct hop_cost_device *const device = &cost->devices[d];
    double speed, ratio, memory;
    HOP_TRY(get_element(instance, "speed", d, &speed, err));
    HOP_TRY(get_element(instance, "backward_ratio", d, &ratio, err));
    HOP_TRY(get_element(instance, "memory_mb", d, &memory, err));
    HOP_TRY(hop_calloc(&device->backward, (size_t)cost->blocks, sizeof *device->backward, err));
    device->bp = true;
    device->memory = memory * megabyte;
    for (int32_t b = 0; b < cost->blocks; b++) {
        device->forward[b] = sample_seconds / speed * instance->rows;
        device->backward[b] = ratio * device->forward[b];
        device->state_bytes[b] = COPIES * weight * megabyte;
        device->activation_bytes[b] = activation * megabyte * instance->rows;
    }
    return HOP_OK;
}

static hop_status fill_cost(struct instance *instance, struct hop_error *err)
{
    struct hop_cost_table *const cost = &instance->cost;
    double activation, weight, boundary, bandwidth;
    HOP_TRY(get_amount(instance, "activation_mb", &activation, err));
    HOP_TRY(get_amount(instance, "weight_mb", &weight, err));
    HOP_TRY(get_amount(instance, "boundary_mb", &boundary, err));
    HOP_TRY(get_amount(instance, "bandwidth_mb_per_s", &bandwidth, err));
    cost->micro_batch_samples = instance->rows;
    for (int32_t d = 0; d < cost->device_count; d++)
        HOP_TRY(fill_device(instance, d, activation, weight, err));
    for (int32_t b = 0; b < cost->blocks; b++)
        cost->gradient_bytes[b] = weight * megabyte;
    for (int32_t b = 0; b + 1 < cost->blocks; b++)
        cost->boundary_bytes[b] = boundary * megabyte * instance->rows;
    for (int32_t i = 0; i < cost->device_count * cost->device_count; i++)
        cost->bandwidth[i] = bandwidth * megabyte;
    return HOP_OK;
}

/* By falling memory; equal ones stay in their order. */
static void sort_devices(struct instance *instance)
{
    const struct hop_cost_device *const devices = instance->cost.devices;
    for (int32_t i = 0; i < instance->cost.device_count; i++) {
        int32_t at = i;
        for (; at > 0 && devices[instance->devices[at - 1]].memory < devices[i].memory; at--)
            instance->devices[at] = instance->devices[at - 1];
        instance->devices[at] = i;
    }
}

static hop_status read_instance(struct instance *instance, struct hop_error *err)
{
    int32_t layers = 0, devices = 0;
    HOP_TRY(get_count(instance, "layers", 1024, &layers, err));
    HOP_TRY(get_count(instance, "devices", MOST, &devices, err));
    HOP_TRY(get_count(instance, "micro_batches", 1 << 20, &instance->micro_batches, err));
    HOP_TRY(get_count(instance, "micro_batch_samples", 1 << 20, &instance->rows, err));
    HOP_TRY(hop_cost_create(layers, devices, &instance->cost, err));
    HOP_TRY(fill_cost(instance, err));
    sort_devices(instance);
    return HOP_OK;
}

static json_t *cuts_json(const struct hop_asteroid_stage *stages, int32_t count)
{
    json_t *const cuts = json_array();
    for (int32_t s = 1; s < count; s++)
        json_array_append_new(cuts, json_integer(stages[s].lo));
    return cuts;
}

static json_t *groups_json(const struct instance *instance, const struct hop_asteroid_stage *stages,
                           int32_t count)
{
    json_t *const groups = json_array();
    for (int32_t s = 0; s < count; s++) {
        json_t *const group = json_array();
        for (int32_t i = 0; i < stages[s].count; i++)
            json_array_append_new(group, json_integer(instance->devices[stages[s].first + i]));
        json_array_append_new(groups, group);
    }
    return groups;
}

static json_t *samples_json(const struct instance *instance,
                            const struct hop_asteroid_stage *stages, int32_t count)
{
    json_t *const samples = json_object();
    for (int32_t s = 0; s < count; s++)
        for (int32_t i = 0; i < stages[s].count; i++) {
            char device[16];
            snprintf(device, sizeof device, "%d", instance->devices[stages[s].first + i]);
            json_object_set_new(samples, device, json_integer(stages[s].samples[i]));
        }
    return samples;
}

/* Number of stages of least latency; 0: nothing fits. */
static int32_t best_count(const struct hop_asteroid_search *search)
{
    int32_t best = 0;
    double least = INFINITY;
    for (int32_t p = 1; p <= hop_asteroid_most_stages(search); p++)
        if (hop_asteroid_seconds(search, p) < least) {
            least = hop_asteroid_seconds(search, p);
            best = p;
        }
    return best;
}

static hop_status plan_json(const struct instance *instance, const char *name, json_t **out,
                            struct hop_error *err)
{
    const struct hop_asteroid_problem problem = {.cost = &instance->cost,
                                                 .devices = instance->devices,
                                                 .count = instance->cost.device_count,
                                                 .micro_batches = instance->micro_batches,
                                                 .rows = instance->rows,
                                                 .idle = HOP_ASTEROID_IDLE_COUNTED};
    struct hop_asteroid_search *search;
    struct hop_asteroid_stage stages[MOST];
    HOP_TRY(hop_asteroid_search(&problem, &search, err));
    const int32_t count = best_count(search);
    hop_asteroid_stages(search, count, stages);
    *out = count == 0
               ? json_pack("{s:s, s:n}", "name", name, "latency_ms")
               : json_pack("{s:s, s:o, s:o, s:o, s:f}", "name", name, "cuts",
                           cuts_json(stages, count), "groups", groups_json(instance, stages, count),
                           "samples", samples_json(instance, stages, count), "latency_ms",
                           1e3 * hop_asteroid_seconds(search, count));
    hop_asteroid_search_free(search);
    if (!*out)
        return hop_fail(err, HOP_MEMORY, "asteroid: out of memory");
    return HOP_OK;
}

static hop_status plan_case(const json_t *item, const char *where, json_t *plans,
                            struct hop_error *err)
{
    struct instance instance = {.where = where, .input = json_object_get(item, "input")};
    const char *name;
    json_t *plan;
    HOP_TRY(hop_json_get_string(item, "name", where, "", &name, err));
    if (!json_is_object(instance.input))
        return hop_fail(err, HOP_INPUT, "%s: input: an object was expected", where);
    hop_status status = read_instance(&instance, err);
    if (status == HOP_OK)
        status = plan_json(&instance, name, &plan, err);
    hop_cost_free(&instance.cost);
    if (status == HOP_OK)
        json_array_append_new(plans, plan);
    return status;
}

/* An array, one plan a line. */
static void print_plans(const json_t *plans)
{
    const json_t *plan;
    size_t i;
    printf("[");
    json_array_foreach(plans, i, plan)
    {
        printf(i ? ",\n " : "\n ");
        json_dumpf(plan, stdout, 0);
    }
    printf("\n]\n");
}

hop_status oracle_asteroid(int argc, char **argv, struct hop_error *err)
{
    json_t *cases;
    const json_t *item;
    size_t i;
    if (argc != 1)
        return oracle_usage("asteroid CASES.json", err);
    HOP_TRY(hop_json_load(argv[0], &cases, err));
    json_t *const plans = json_array();
    hop_status status = HOP_OK;
    if (!json_is_array(cases))
        status = hop_fail(err, HOP_INPUT, "%s: an array of cases was expected", argv[0]);
    json_array_foreach(cases, i, item)
    {
        char where[512];
        snprintf(where, sizeof where, "%s: case %zu", argv[0], i);
        if (status == HOP_OK)
            status = plan_case(item, where, plans, err);
    }
    if (status == HOP_OK)
        print_plans(plans);
    json_decref(plans);
    json_decref(cases);
    return status;
}
