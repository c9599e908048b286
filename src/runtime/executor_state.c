/* Adapters and moments of a device's parts, out of the executor and into it. */
#include <string.h>

#include "runtime/block_state.h"
#include "runtime/executor_internal.h"

size_t hop_executor_state_count(const struct hop_executor *executor)
{
    size_t count = 0;
    for (int32_t p = 0; p < executor->part_count; p++)
        count += 3 * hop_stage_parameters(executor->parts[p].stage)->total;
    return count;
}

static struct hop_block_state block_of(const struct hop_executor *executor,
                                       const struct hop_executor_part *part, int32_t block)
{
    const struct hop_lora_config *const lora = &executor->config.lora;
    const int32_t lo = executor->plan->parts[part->index].lo;
    const size_t at = (size_t)hop_lora_parameters(&part->model, lora, lo, block);
    return (struct hop_block_state){
        .values = hop_stage_parameters(part->stage)->values + at,
        .exp_avg = part->adamw.exp_avg + at,
        .exp_avg_sq = part->adamw.exp_avg_sq + at,
        .count = (size_t)hop_lora_parameters(&part->model, lora, block, block + 1)};
}

static size_t get_block(const struct hop_executor *executor, const struct hop_executor_part *part,
                        int32_t block, float *state)
{
    const struct hop_block_state own = block_of(executor, part, block);
    if (hop_block_is_sent_by(executor->plan, block, part->index))
        return hop_block_put(&own, state);
    const uint64_t checksum = hop_block_checksum(&own);
    const size_t floats = hop_block_floats(executor->plan, block, part->index, own.count);
    memcpy(state, &checksum, floats * sizeof *state);
    return floats;
}

size_t hop_executor_state_get(const struct hop_executor *executor, float *state)
{
    size_t n = 0;
    for (int32_t p = 0; p < executor->part_count; p++) {
        const struct hop_executor_part *const part = &executor->parts[p];
        const struct hop_part *const planned = &executor->plan->parts[part->index];
        for (int32_t block = planned->lo; block < planned->hi; block++)
            n += get_block(executor, part, block, state + n);
    }
    return n;
}

hop_status hop_executor_state_set(struct hop_executor *executor, const float *state,
                                  struct hop_error *err)
{
    for (int32_t p = 0; p < executor->part_count; p++) {
        struct hop_executor_part *const part = &executor->parts[p];
        struct hop_parameters *const parameters = hop_stage_parameters(part->stage);
        const size_t n = parameters->total, bytes = n * sizeof(float);
        memcpy(parameters->values, state, bytes);
        memcpy(part->adamw.exp_avg, state + n, bytes);
        memcpy(part->adamw.exp_avg_sq, state + 2 * n, bytes);
        state += 3 * n;
        HOP_TRY(hop_stage_adapters_changed(part->stage, err));
    }
    return HOP_OK;
}
