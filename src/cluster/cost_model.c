#include "cluster/cost_model.h"

#include "base/memory.h"
#include "base/string.h"

double hop_block_operations(const struct hop_workload *workload)
{
    const double tokens = (double)workload->samples * workload->tokens;
    return 2 * tokens * (double)hop_model_block_parameters(&workload->model);
}

double hop_head_operations(const struct hop_workload *workload)
{
    const double rows = (double)workload->samples * workload->labels;
    return 2 * rows * (double)hop_model_embed_parameters(&workload->model);
}

hop_status hop_cost_from_model(const struct hop_workload *workload,
                               const struct hop_cluster *cluster, struct hop_cost_table *out,
                               struct hop_error *err)
{
    struct hop_cost_table cost;
    HOP_TRY(hop_cost_create(workload->model.blocks, (int32_t)cluster->count, &cost, err));
    hop_status status = HOP_OK;
    cost.micro_batch_samples = workload->samples;
    for (int32_t d = 0; d < cost.device_count; d++) {
        const struct hop_device *const device = &cluster->devices[d];
        struct hop_cost_device *const costs = &cost.devices[d];
        HOP_TRY_DONE(hop_string_copy(&costs->name, device->name, err));
        costs->bp = device->bp;
        HOP_TRY_DONE(hop_calloc(&costs->backward, (size_t)cost.blocks, sizeof(double), err));
        for (int32_t b = 0; b < cost.blocks; b++)
            costs->forward[b] = costs->backward[b] = costs->probe[b] =
                hop_block_operations(workload) / (device->rate * 1e12);
    }
    *out = cost;
    return HOP_OK;
done:
    hop_cost_free(&cost);
    return status;
}
