#include "schedule/plan.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/json.h"

static json_t *part_json(const struct hop_plan *plan, const struct hop_part *part,
                         const char *device)
{
    json_t *const object = json_pack(
        "{s:s, s:i, s:i, s:[i,i], s:s, s:[f,f], s:[f,f], s:[f,f], s:i, s:i, s:f, s:f, s:o}",
        "device", device, "pipeline", part->pipeline, "stage", part->stage, "blocks", part->lo,
        part->hi, "gradient", hop_gradient_names[part->gradient], "sample_share", part->sample_lo,
        part->sample_hi, "tensor", part->tensor_lo, part->tensor_hi, "micro_share", part->micro_lo,
        part->micro_hi, "in_flight", part->in_flight, "pending", part->pending, "forward_seconds",
        part->forward_seconds, "memory_bytes", part->memory_bytes, "memory_limit",
        hop_json_real(part->memory_limit));
    if (!object || plan->micro_batch_samples < 1)
        return object;
    const struct hop_range rows = hop_part_rows(part, plan->micro_batch_samples);
    if (json_object_set_new(object, "samples", json_pack("[i,i]", rows.lo, rows.hi)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *hop_plan_json(const struct hop_plan *plan, const char *const *device_names)
{
    json_t *const parts = json_array();
    for (int32_t p = 0; parts && p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (json_array_append_new(parts, part_json(plan, part, device_names[part->device])) != 0) {
            json_decref(parts);
            return NULL;
        }
    }
    return json_pack(
        "{s:s, s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:o, "
        "s:o, s:o}",
        "strategy", plan->strategy, "feasible", 1, "reason", "", "blocks", plan->blocks,
        "micro_batches", plan->micro_batches, "micro_batch_samples", plan->micro_batch_samples,
        "probes", plan->probes, "probe_batch", plan->probe_batch, "exit_probes", plan->exit_probes,
        "feedback_blocks", plan->feedback_blocks, "estimator", hop_estimator_names[plan->estimator],
        "directions", hop_directions_names[plan->directions], "exit_base",
        hop_exit_base_names[plan->exit_base], "collective", hop_collective_names[plan->collective],
        "formula_seconds", hop_json_real(plan->formula_seconds), "simulated_seconds",
        hop_json_real(plan->simulated_seconds), "bound_seconds", hop_json_real(plan->bound_seconds),
        "all_devices_seconds", hop_json_real(plan->all_devices_seconds), "parts", parts);
}

struct reader {
    const char *where; /* of the object being read */
    const char *const *device_names;
    int32_t devices;
    int32_t samples; /* of a micro-batch; 0: not known */
};

static hop_status get_int32(const json_t *object, const char *key, const char *where,
                            int32_t fallback, int32_t *out, struct hop_error *err)
{
    int64_t value;
    HOP_TRY(hop_json_get_int(object, key, where, fallback, &value, err));
    if (value < INT32_MIN || value > INT32_MAX)
        return hop_fail(err, HOP_INPUT, "%s: %s: %lld is out of range", where, key,
                        (long long)value);
    *out = (int32_t)value;
    return HOP_OK;
}

/* A list of two numbers; stays as it is where the key is absent. */
static hop_status get_range(const json_t *object, const char *key, const char *where, double *lo,
                            double *hi, struct hop_error *err)
{
    const json_t *const range = json_object_get(object, key);
    if (!range || json_is_null(range))
        return HOP_OK;
    const json_t *const first = json_array_get(range, 0), *const second = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_number(first) || !json_is_number(second))
        return hop_fail(err, HOP_INPUT, "%s: %s: a list of two numbers, [from, to), is needed",
                        where, key);
    *lo = json_number_value(first);
    *hi = json_number_value(second);
    return HOP_OK;
}

static bool is_int32(double value)
{
    return value == floor(value) && value >= INT32_MIN && value <= INT32_MAX;
}

static hop_status get_blocks(const json_t *object, const char *where, struct hop_part *part,
                             struct hop_error *err)
{
    double lo = NAN, hi = NAN;
    HOP_TRY(get_range(object, "blocks", where, &lo, &hi, err));
    if (!is_int32(lo) || !is_int32(hi))
        return hop_fail(err, HOP_INPUT, "%s: blocks: a range [from, to) of whole numbers is needed",
                        where);
    part->lo = (int32_t)lo;
    part->hi = (int32_t)hi;
    return HOP_OK;
}

static hop_status find_name(const char *name, const char *const *names, int32_t count,
                            const char *where, const char *key, int32_t *out, struct hop_error *err)
{
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        *out = i;
        return HOP_OK;
    }
    const char *const nearest = hop_nearest_name(name, names, (size_t)count);
    return hop_fail(err, HOP_INPUT, "%s: %s: there is no '%s'%s%s%s", where, key, name,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* null, like an absent key, is the fallback. */
static hop_status get_number(const json_t *object, const char *key, const char *where,
                             double fallback, double *out, struct hop_error *err)
{
    if (json_is_null(json_object_get(object, key))) {
        *out = fallback;
        return HOP_OK;
    }
    return hop_json_get_real(object, key, where, fallback, out, err);
}

static hop_status get_names(const json_t *object, const struct reader *reader,
                            struct hop_part *part, struct hop_error *err)
{
    const char *device, *gradient;
    int32_t index = HOP_GRADIENT_NONE;
    HOP_TRY(hop_json_get_string(object, "device", reader->where, "", &device, err));
    HOP_TRY(find_name(device, reader->device_names, reader->devices, reader->where, "device",
                      &part->device, err));
    HOP_TRY(hop_json_get_string(object, "gradient", reader->where,
                                hop_gradient_names[HOP_GRADIENT_BACKPROP], &gradient, err));
    HOP_TRY(find_name(gradient, hop_gradient_names, HOP_GRADIENT_ZEROTH_ORDER + 1, reader->where,
                      "gradient", &index, err));
    part->gradient = (enum hop_gradient)index;
    return HOP_OK;
}

/* `sample_share` is exact; `samples`, for people, counts rows of a micro-batch. */
static hop_status get_shares(const json_t *object, const struct reader *reader,
                             struct hop_part *part, struct hop_error *err)
{
    part->sample_hi = part->tensor_hi = part->micro_hi = 1;
    if (reader->samples > 0) {
        double lo = 0, hi = reader->samples;
        HOP_TRY(get_range(object, "samples", reader->where, &lo, &hi, err));
        part->sample_lo = lo / reader->samples;
        part->sample_hi = hi / reader->samples;
    }
    HOP_TRY(
        get_range(object, "sample_share", reader->where, &part->sample_lo, &part->sample_hi, err));
    HOP_TRY(get_range(object, "micro_share", reader->where, &part->micro_lo, &part->micro_hi, err));
    return get_range(object, "tensor", reader->where, &part->tensor_lo, &part->tensor_hi, err);
}

static hop_status parse_part(const json_t *object, const struct reader *reader, int32_t position,
                             struct hop_part *part, struct hop_error *err)
{
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a map is needed", reader->where);
    HOP_TRY(get_names(object, reader, part, err));
    HOP_TRY(get_int32(object, "pipeline", reader->where, 0, &part->pipeline, err));
    HOP_TRY(get_int32(object, "stage", reader->where, position, &part->stage, err));
    HOP_TRY(get_blocks(object, reader->where, part, err));
    HOP_TRY(get_shares(object, reader, part, err));
    HOP_TRY(get_int32(object, "in_flight", reader->where, 0, &part->in_flight, err));
    HOP_TRY(get_int32(object, "pending", reader->where, 0, &part->pending, err));
    HOP_TRY(hop_json_get_real(object, "forward_seconds", reader->where, 0, &part->forward_seconds,
                              err));
    HOP_TRY(hop_json_get_real(object, "memory_bytes", reader->where, 0, &part->memory_bytes, err));
    return get_number(object, "memory_limit", reader->where, INFINITY, &part->memory_limit, err);
}

static hop_status parse_parts(const json_t *parts, const char *where, struct reader reader,
                              struct hop_plan *plan, struct hop_error *err)
{
    const size_t count = json_array_size(parts);
    if (count < 1 || count > INT32_MAX)
        return hop_fail(err, HOP_INPUT, "%s: parts: a list of at least one part is needed", where);
    HOP_TRY(hop_calloc(&plan->parts, count, sizeof *plan->parts, err));
    plan->part_count = (int32_t)count;
    char place[512];
    reader.where = place;
    for (int32_t p = 0; p < plan->part_count; p++) {
        snprintf(place, sizeof place, "%s: parts[%d]", where, p);
        HOP_TRY(parse_part(json_array_get(parts, (size_t)p), &reader, p, &plan->parts[p], err));
    }
    return HOP_OK;
}

/* One of `names` (NULL-terminated); the first where the key is absent. */
static hop_status get_choice(const json_t *object, const char *key, const char *where,
                             const char *const *names, int32_t *out, struct hop_error *err)
{
    const char *name;
    int32_t count = 0;
    while (names[count])
        count++;
    HOP_TRY(hop_json_get_string(object, key, where, names[0], &name, err));
    return find_name(name, names, count, where, key, out, err);
}

static hop_status get_choices(const json_t *object, const char *where, struct hop_plan *plan,
                              struct hop_error *err)
{
    int32_t estimator, directions, exit_base, collective;
    HOP_TRY(get_choice(object, "estimator", where, hop_estimator_names, &estimator, err));
    HOP_TRY(get_choice(object, "directions", where, hop_directions_names, &directions, err));
    HOP_TRY(get_choice(object, "exit_base", where, hop_exit_base_names, &exit_base, err));
    HOP_TRY(get_choice(object, "collective", where, hop_collective_names, &collective, err));
    plan->estimator = (enum hop_estimator)estimator;
    plan->directions = (enum hop_directions)directions;
    plan->exit_base = (enum hop_exit_base)exit_base;
    plan->collective = (enum hop_collective)collective;
    return HOP_OK;
}

static hop_status parse_header(const json_t *object, const char *where, struct hop_plan *plan,
                               struct hop_error *err)
{
    bool feasible;
    const char *reason, *strategy;
    HOP_TRY(hop_json_get_bool(object, "feasible", where, true, &feasible, err));
    HOP_TRY(hop_json_get_string(object, "reason", where, "", &reason, err));
    if (!feasible)
        return hop_fail(err, HOP_INPUT, "%s: the plan is not feasible: %s", where, reason);
    HOP_TRY(hop_json_get_string(object, "strategy", where, "", &strategy, err));
    if (strlen(strategy) >= HOP_STRATEGY_NAME)
        return hop_fail(err, HOP_INPUT, "%s: strategy: '%s' is too long", where, strategy);
    strcpy(plan->strategy, strategy);
    HOP_TRY(get_int32(object, "micro_batches", where, 1, &plan->micro_batches, err));
    HOP_TRY(get_int32(object, "micro_batch_samples", where, 0, &plan->micro_batch_samples, err));
    HOP_TRY(get_int32(object, "probes", where, 0, &plan->probes, err));
    HOP_TRY(get_int32(object, "probe_batch", where, 0, &plan->probe_batch, err));
    HOP_TRY(get_int32(object, "exit_probes", where, 0, &plan->exit_probes, err));
    HOP_TRY(get_int32(object, "feedback_blocks", where, 0, &plan->feedback_blocks, err));
    HOP_TRY(get_choices(object, where, plan, err));
    HOP_TRY(get_number(object, "formula_seconds", where, NAN, &plan->formula_seconds, err));
    HOP_TRY(get_number(object, "simulated_seconds", where, NAN, &plan->simulated_seconds, err));
    HOP_TRY(get_number(object, "bound_seconds", where, NAN, &plan->bound_seconds, err));
    return get_number(object, "all_devices_seconds", where, NAN, &plan->all_devices_seconds, err);
}

/* Where the file does not say how many blocks the model has, the parts do. */
static hop_status parse_blocks(const json_t *object, const char *where, struct hop_plan *plan,
                               struct hop_error *err)
{
    int32_t last = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].hi > last)
            last = plan->parts[p].hi;
    return get_int32(object, "blocks", where, last, &plan->blocks, err);
}

hop_status hop_plan_parse(const json_t *object, const char *where, const char *const *device_names,
                          int32_t devices, struct hop_plan *out, struct hop_error *err)
{
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: a plan is a map with a list of `parts`", where);
    struct hop_plan plan = {.devices = devices};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(parse_header(object, where, &plan, err));
    const struct reader reader = {
        .device_names = device_names, .devices = devices, .samples = plan.micro_batch_samples};
    HOP_TRY_DONE(parse_parts(json_object_get(object, "parts"), where, reader, &plan, err));
    HOP_TRY_DONE(parse_blocks(object, where, &plan, err));
    status = hop_plan_check(&plan, err);
    if (status != HOP_OK) {
        hop_wrap(err, "%s", where);
        goto done;
    }
    *out = plan;
    plan.parts = NULL;
done:
    hop_plan_free(&plan);
    return status;
}
