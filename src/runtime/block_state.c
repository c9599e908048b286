#include "runtime/block_state.h"

#include <string.h>

/* Of a block without adapters there is nothing to compare. */
enum { CHECKSUM_FLOATS = sizeof(uint64_t) / sizeof(float) };

bool hop_block_is_sent_by(const struct hop_plan *plan, int32_t block, int32_t part)
{
    int32_t first = 0;
    while (first < part && !(plan->parts[first].lo <= block && block < plan->parts[first].hi))
        first++;
    return hop_plan_shard(plan, first, -1) == hop_plan_shard(plan, part, -1);
}

size_t hop_block_floats(const struct hop_plan *plan, int32_t block, int32_t part, size_t count)
{
    if (hop_block_is_sent_by(plan, block, part))
        return 3 * count;
    return count > 0 ? CHECKSUM_FLOATS : 0;
}

/* FNV-1a over words of 32 bits. */
static uint64_t add_floats(uint64_t hash, const float *floats, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &floats[i], sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    return hash;
}

uint64_t hop_block_checksum(const struct hop_block_state *state)
{
    uint64_t hash = 0xcbf29ce484222325u;
    hash = add_floats(hash, state->values, state->count);
    hash = add_floats(hash, state->exp_avg, state->count);
    return add_floats(hash, state->exp_avg_sq, state->count);
}

size_t hop_block_put(const struct hop_block_state *state, float *to)
{
    const size_t n = state->count, bytes = n * sizeof *to;
    memcpy(to, state->values, bytes);
    memcpy(to + n, state->exp_avg, bytes);
    memcpy(to + 2 * n, state->exp_avg_sq, bytes);
    return 3 * n;
}

size_t hop_block_take(const struct hop_block_state *state, const float *from)
{
    const size_t n = state->count, bytes = n * sizeof *from;
    memcpy(state->values, from, bytes);
    memcpy(state->exp_avg, from + n, bytes);
    memcpy(state->exp_avg_sq, from + 2 * n, bytes);
    return 3 * n;
}
