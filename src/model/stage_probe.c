/* Forward of several probes of one micro-batch at once. */
#include <string.h>

#include "model/stage_internal.h"

/* Below this a team of threads costs more than it saves. */
enum { SERIAL_ELEMENTS = 1 << 15 };

/* to = values + epsilon * z for one factor of one probe. */
static void perturb(const struct hop_stage *stage, const struct hop_batch *batch,
                    const struct hop_probe_set *set, const struct hop_parameter *item,
                    const struct hop_probe *probe, float *to)
{
    const float *const values = stage->parameters.values + item->offset;
    const float epsilon = probe->epsilon;
    const struct hop_direction direction = {.seed = set->seed,
                                            .step = set->step,
                                            .micro_batch = (uint16_t)batch->micro_batch,
                                            .direction = probe->direction};
    hop_direction_values(&direction, item, 0, item->count, to);
    for (size_t i = 0; i < item->count; i++)
        to[i] = values[i] + epsilon * to[i];
}

/* All factors of all probes, laid out as hop_lora wants them: the probes of a factor side by side.
 */
static hop_status perturb_all(struct hop_stage *stage, const struct hop_batch *batch,
                              const struct hop_probe_set *set, struct hop_error *err)
{
    const struct hop_parameters *const parameters = &stage->parameters;
    void *const perturbed = hop__scratch(stage, stage->layout.scratch.perturbed);
    float *const to = stage->ops->host_memory ? perturbed : stage->mirror;
    const size_t probes = (size_t)set->count;
#pragma omp parallel for collapse(2) schedule(dynamic) if (parameters->total > SERIAL_ELEMENTS)
    for (size_t p = 0; p < parameters->count; p++) {
        for (size_t q = 0; q < probes; q++) {
            const struct hop_parameter *const item = &parameters->items[p];
            perturb(stage, batch, set, item, &set->probes[q],
                    to + probes * item->offset + q * item->count);
        }
    }
    if (stage->ops->host_memory)
        return HOP_OK;
    return stage->ops->write(stage->backend, perturbed, to,
                             probes * parameters->total * sizeof(float), err);
}

hop_status hop_stage_probe(struct hop_stage *stage, const struct hop_batch *batch,
                           const struct hop_probe_set *set, const void *input, void *output,
                           float *logprob, struct hop_error *err)
{
    struct hop__run run;
    if (set->count > stage->config.probes)
        return hop_fail(err, HOP_INTERNAL, "%d probes in a call of at most %d", set->count,
                        stage->config.probes);
    HOP_TRY(hop__stage_run(stage, batch, set->count, &run, err));
    if (stage->config.gradient == HOP_GRADIENT_ZEROTH_ORDER) {
        HOP_TRY(perturb_all(stage, batch, set, err));
        run.perturbed = true;
        run.groups = set->count;
    }
    return hop__stage_forward(stage, batch, &run, -1, input, output, logprob, err);
}
