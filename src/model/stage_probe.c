/* Forward of several probes of one micro-batch at once. */
#include "model/stage_internal.h"

hop_status hop_stage_probe(struct hop_stage *stage, const struct hop_batch *batch,
                           const struct hop_probe_set *set, const void *input, void *output,
                           float *logprob, struct hop_error *err)
{
    struct hop__run run;
    if (set->count > stage->config.probes)
        return hop_fail(err, HOP_INTERNAL, "%d probes in a call of at most %d", set->count,
                        stage->config.probes);
    HOP_TRY(hop__stage_run(stage, batch, set->count, &run, err));
    if (stage->config.gradient == HOP_GRADIENT_ZEROTH_ORDER)
        HOP_TRY(hop__stage_fill(stage, batch, set, HOP__PERTURBED, &run, err));
    return hop__stage_forward(stage, batch, &run, -1, input, output, logprob, err);
}
