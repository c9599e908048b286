/* A measurement as device, cost table and JSON. */
#include <math.h>
#include <stdint.h>

#include "cluster/measure.h"
#include "io/json.h"

struct hop_device hop_measured_device(const struct hop_measurement *m, const char *name)
{
    return (struct hop_device){.name = (char *)(uintptr_t)name,
                               .backend = (char *)(uintptr_t)m->request.ops->name,
                               .bp = m->bp,
                               .rate = m->rate.rate,
                               .memory = isnan(m->available) ? 0 : m->available,
                               .memory_bandwidth = m->bandwidth,
                               .overhead = m->rate.overhead,
                               .backward_ratio = m->bp ? m->rate.backward_ratio : 0,
                               .probe_ratio = isnan(m->rate.probe_ratio) ? 1 : m->rate.probe_ratio,
                               .idle_watts = NAN,
                               .busy_watts = NAN,
                               .threads = m->request.threads,
                               .time_scale = 1};
}

static double or_else(double value, double other)
{
    return isnan(value) ? other : value;
}

/* The measured times in place of those of the model. */
static void take_times(const struct hop_measurement *m, struct hop_cost_device *device,
                       int32_t blocks)
{
    const struct hop_measured_point *const at = hop_measured_chosen(m);
    const int32_t last = blocks - 1;
    for (int32_t b = 0; b < blocks; b++) {
        device->forward[b] = at->block.forward.seconds;
        device->probe[b] = or_else(at->block.further_probe, at->block.forward.seconds);
        device->step[b] = m->step.seconds;
        if (m->bp)
            device->backward[b] = at->block.backward.seconds;
    }
    device->forward[0] += at->embed.forward.seconds;
    device->probe[0] += or_else(at->embed.further_probe, at->embed.forward.seconds);
    device->exit_forward = at->head.forward.seconds;
    device->forward[last] += at->head.forward.seconds;
    device->probe[last] += or_else(at->head.further_probe, at->head.forward.seconds);
    if (m->bp)
        device->backward[last] += at->head.backward.seconds;
}

hop_status hop_measured_cost(const struct hop_measurement *m, const char *name,
                             struct hop_cost_table *out, struct hop_error *err)
{
    const struct hop_workload workload = hop_measured_workload(m, hop_measured_chosen(m)->rows);
    struct hop_device device = hop_measured_device(m, name);
    const struct hop_cluster cluster = {.devices = &device, .count = 1};
    HOP_TRY(hop_cost_from_model(&workload, &cluster, out, err));
    struct hop_cost_device *const costs = &out->devices[0];
    take_times(m, costs, out->blocks);
    if (m->memory.backend > 0)
        costs->fixed_bytes += m->memory.backend;
    return HOP_OK;
}

/* JSON. A figure that was not measured is null. */

static json_t *timing_json(const struct hop_timing *t)
{
    if (t->repetitions == 0)
        return json_null();
    return json_pack("{s:f, s:f, s:i}", "seconds", t->seconds, "spread", t->spread, "repetitions",
                     (int)t->repetitions);
}

static json_t *probes_json(const struct hop_measurement *m, const struct hop_measured_part *part)
{
    json_t *const list = json_array();
    for (int32_t p = 0; p < m->request.probe_count; p++)
        if (part->probe[p].repetitions > 0)
            json_array_append_new(list, json_pack("{s:i, s:o}", "probes", (int)m->request.probes[p],
                                                  "call", timing_json(&part->probe[p])));
    return list;
}

static json_t *part_json(const struct hop_measurement *m, const struct hop_measured_part *part)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "forward", timing_json(&part->forward), "backward",
                     timing_json(&part->backward), "probes", probes_json(m, part), "further_probe",
                     hop_json_real(part->further_probe));
}

static json_t *point_json(const struct hop_measurement *m, const struct hop_measured_point *point)
{
    const struct hop_timing *const forward = &point->block.forward;
    const double error = forward->repetitions > 0 ? point->fit / forward->seconds - 1 : NAN;
    return json_pack("{s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "rows", (int)point->rows,
                     "tokens", (int)(point->rows * m->request.tokens), "operations",
                     point->operations, "block", part_json(m, &point->block), "embed",
                     part_json(m, &point->embed), "head", part_json(m, &point->head), "constant",
                     hop_json_real(point->constant), "fit", hop_json_real(point->fit),
                     "error_percent", hop_json_real(100 * error));
}

static json_t *rate_json(const struct hop_measured_rate *rate)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "rate", hop_json_real(rate->rate),
                     "overhead", hop_json_real(rate->overhead), "backward_ratio",
                     hop_json_real(rate->backward_ratio), "probe_ratio",
                     hop_json_real(rate->probe_ratio), "r2", hop_json_real(rate->r2), "points",
                     (int)rate->points);
}

static json_t *bytes_json(double held, double estimate)
{
    return json_pack("{s:o, s:o, s:o}", "held", hop_json_real(held), "estimate",
                     hop_json_real(estimate), "error_percent",
                     hop_json_real(held > 0 ? 100 * (estimate / held - 1) : NAN));
}

static json_t *stage_json(const struct hop_measured_stage *stage)
{
    json_t *const object = bytes_json(stage->held, stage->estimate);
    json_object_set_new(object, "blocks", json_integer(stage->blocks));
    json_object_set_new(object, "slots", json_integer(stage->slots));
    json_object_set_new(object, "rank", json_integer(stage->rank));
    return object;
}

static json_t *memory_json(const struct hop_measured_memory *memory)
{
    json_t *const stages = json_array(), *const terms = json_object();
    for (int32_t s = 0; s < memory->count; s++)
        json_array_append_new(stages, stage_json(&memory->stages[s]));
    for (int t = 0; t < HOP_MEMORY_TERMS; t++)
        json_object_set_new(terms, hop_memory_term_names[t],
                            bytes_json(memory->term[t].held, memory->term[t].estimate));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "lambda_1",
                     hop_json_real(memory->lambda_1), "lambda_23", hop_json_real(memory->lambda_23),
                     "lambda_4", hop_json_real(memory->lambda_4), "r2", hop_json_real(memory->r2),
                     "terms", terms, "stages", stages, "backend_bytes",
                     hop_json_real(memory->backend));
}

json_t *hop_measured_json(const struct hop_measurement *m)
{
    json_t *const points = json_array(), *const blocks = json_array();
    for (int32_t r = 0; r < m->request.row_count; r++)
        json_array_append_new(points, point_json(m, &m->points[r]));
    for (int32_t s = 0; s < m->stage_count; s++)
        json_array_append_new(blocks, json_integer(m->stage_blocks[s]));
    return json_pack("{s:s, s:b, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f}",
                     "backend", m->backend, "bp", (int)m->bp, "dtype",
                     hop_dtype_name(m->request.dtype), "weights", m->mapped ? "mapped" : "random",
                     "threads", (int)m->request.threads, "tokens", (int)m->request.tokens, "labels",
                     (int)m->request.labels, "stage_blocks", blocks, "points", points, "step",
                     timing_json(&m->step), "fit", rate_json(&m->rate), "memory",
                     memory_json(&m->memory), "available_bytes", hop_json_real(m->available),
                     "bandwidth", hop_json_real(m->bandwidth), "elapsed_seconds", m->elapsed);
}
