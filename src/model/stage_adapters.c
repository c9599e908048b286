/* The adapters that a call meets: plain, perturbed for its probes, or the directions alone; and
 * where their gradients go. */
#include <string.h>

#include "model/stage_internal.h"

/* Below this a team of threads costs more than it saves. */
enum { SERIAL_ELEMENTS = 1 << 15 };

int32_t hop__stage_rank(const struct hop_stage *stage, size_t block, enum hop_target target)
{
    return hop_lora_rank(&stage->config.lora, stage->config.lo + (int32_t)block, target);
}

bool hop__stage_trains(const struct hop_stage *stage, size_t block, enum hop_target target)
{
    return stage->config.gradient == HOP_GRADIENT_BACKPROP &&
           hop__stage_rank(stage, block, target) > 0;
}

bool hop__stage_trains_first(const struct hop_stage *stage, size_t block, enum hop_target target)
{
    return hop__stage_trains(stage, block, target) &&
           !hop_lora_has_core(&stage->config.lora, stage->config.lo + (int32_t)block);
}

/* The factors of a projection in filled memory: `groups` of each side by side. */
static const float *filled(const struct hop_stage *stage, const struct hop__run *run, size_t offset)
{
    const float *const all = hop__scratch(stage, stage->layout.scratch.perturbed);
    return all + (size_t)run->groups * offset;
}

const struct hop_lora *hop__stage_lora(const struct hop_stage *stage, const struct hop__run *run,
                                       size_t block, enum hop_target target, struct hop_lora *out)
{
    const int32_t rank = hop__stage_rank(stage, block, target);
    const int32_t number = stage->config.lo + (int32_t)block;
    if (rank == 0)
        return NULL;
    const size_t a = stage->blocks[block].a[target], b = stage->blocks[block].b[target];
    *out = (struct hop_lora){.rank = rank,
                             .groups = run->perturbed ? run->groups : 1,
                             .scale = (float)hop_lora_scale(&stage->config.lora, number, target),
                             .a = run->perturbed ? filled(stage, run, a) : stage->values + a,
                             .b = run->perturbed ? filled(stage, run, b) : stage->values + b,
                             .offset = run->perturbed ? run->group_offset : NULL};
    return out;
}

void hop__stage_directions(const struct hop_stage *stage, const struct hop__run *run, size_t block,
                           enum hop_target target, struct hop_projection_tangent *out)
{
    if (hop__stage_rank(stage, block, target) == 0)
        return;
    out->groups = run->groups;
    out->offset = run->group_offset;
    out->da = filled(stage, run, stage->blocks[block].a[target]);
    out->db = filled(stage, run, stage->blocks[block].b[target]);
}

/* One filling of all factors of all groups. */
struct filling {
    const struct hop_stage *stage;
    const struct hop_batch *batch;
    const struct hop_probe_set *set;
    enum hop__filling kind;
    size_t samples; /* with directions of their own in every probe */
};

/* to = values + epsilon z, or z, for one parameter of one group. */
static void fill_parameter(const struct filling *filling, const struct hop_parameter *item,
                           size_t group, float *to)
{
    const struct hop_probe_set *const set = filling->set;
    const struct hop_probe *const probe = &set->probes[group / filling->samples];
    const float *const values = filling->stage->parameters.values + item->offset;
    const struct hop_direction direction = {.seed = set->seed,
                                            .step = set->step,
                                            .micro_batch = (uint16_t)filling->batch->micro_batch,
                                            .direction = probe->direction,
                                            .sample = (uint16_t)(group % filling->samples),
                                            .distribution = set->distribution};
    hop_direction_values(&direction, item, 0, item->count, to);
    if (filling->kind == HOP__DIRECTIONS)
        return;
    for (size_t i = 0; i < item->count; i++)
        to[i] = values[i] + probe->epsilon * to[i];
}

static float *place_of(const struct hop_parameter *factor, size_t groups, size_t group, float *to)
{
    return to + groups * factor->offset + group * factor->count;
}

/* The plain factors that parameter p of one group stands for. A core is drawn where its first
 * factor will be, which is no smaller. */
static void fill_factors(const struct filling *filling, size_t p, size_t groups, size_t group,
                         float *to)
{
    const struct hop_stage *const stage = filling->stage;
    const struct hop_parameter *const item = &stage->parameters.items[p];
    const bool has_cores = hop__stage_has_cores(stage);
    const struct hop_parameter *const factor =
        has_cores ? &stage->plain.items[stage->cores.place[p]] : item;
    float *const first = place_of(factor, groups, group, to);
    fill_parameter(filling, item, group, first);
    if (item->factor != HOP_LORA_CORE)
        return;
    struct hop__factors factors = {first, place_of(factor + 1, groups, group, to)};
    hop__cores_fill(stage, p, first, filling->kind == HOP__DIRECTIONS, &factors);
}

/* Laid out as hop_lora wants them: the groups of a factor side by side. */
static void fill_all(const struct filling *filling, size_t groups, float *to)
{
    const size_t count = filling->stage->parameters.count, total = filling->stage->adapters->total;
#pragma omp parallel for collapse(2) schedule(dynamic) if (total > SERIAL_ELEMENTS)
    for (size_t p = 0; p < count; p++)
        for (size_t g = 0; g < groups; g++)
            fill_factors(filling, p, groups, g, to);
}

hop_status hop__stage_fill(struct hop_stage *stage, const struct hop_batch *batch,
                           const struct hop_probe_set *set, enum hop__filling kind,
                           struct hop__run *run, struct hop_error *err)
{
    const bool per_sample = stage->config.per_sample;
    const struct filling filling = {.stage = stage,
                                    .batch = batch,
                                    .set = set,
                                    .kind = kind,
                                    .samples = per_sample ? (size_t)batch->sequences : 1};
    const size_t groups = (size_t)set->count * filling.samples;
    void *const memory = hop__scratch(stage, stage->layout.scratch.perturbed);
    float *const to = stage->ops->host_memory ? memory : stage->mirror;
    fill_all(&filling, groups, to);
    run->perturbed = kind == HOP__PERTURBED;
    run->groups = (int32_t)groups;
    run->group_offset = per_sample ? run->q_offset : NULL;
    if (stage->ops->host_memory)
        return HOP_OK;
    return stage->ops->write(stage->backend, memory, to,
                             groups * stage->adapters->total * sizeof(float), err);
}

static void add_gradients(struct hop_stage *stage, const float *from)
{
    if (hop__stage_has_cores(stage)) {
        hop__cores_add_gradients(stage, from);
        return;
    }
    for (size_t i = 0; i < stage->parameters.total; i++)
        stage->parameters.gradients[i] += from[i];
}

hop_status hop__stage_fetch_gradients(struct hop_stage *stage, struct hop_error *err)
{
    const size_t bytes = stage->adapters->total * sizeof(float);
    const bool host = stage->ops->host_memory;
    if (bytes == 0 || (host && !hop__stage_has_cores(stage)))
        return HOP_OK;
    if (!host)
        HOP_TRY(stage->ops->read(stage->backend, stage->mirror, stage->gradients, bytes, err));
    add_gradients(stage, host ? stage->gradients : stage->mirror);
    return hop__stage_zero(stage, stage->gradients, bytes, err);
}
