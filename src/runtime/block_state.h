/* Adapter and moments of one block, as they are collected for checkpoints: from the first part that
 * holds the block, or from all shards of its gang, each with its slices. Other parts with a copy
 * send a checksum, because copies must never differ. */
#ifndef HOP_RUNTIME_BLOCK_STATE_H
#define HOP_RUNTIME_BLOCK_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "schedule/plan.h"

/* Arrays of `count` floats each. */
struct hop_block_state {
    float *values, *exp_avg, *exp_avg_sq;
    size_t count;
};

/* Is `part` the one that sends the block, or one of its gang? */
bool hop_block_is_sent_by(const struct hop_plan *plan, int32_t block, int32_t part);
/* Floats of what `part` sends of a block, of which it has that many parameters; never more than 3 a
 * parameter.
 */
size_t hop_block_floats(const struct hop_plan *plan, int32_t block, int32_t part, size_t count);
/* Equal states have equal checksums; others almost never. */
uint64_t hop_block_checksum(const struct hop_block_state *state);

/* Values, then first and second moments. Return the floats. */
size_t hop_block_put(const struct hop_block_state *state, float *to);
size_t hop_block_take(const struct hop_block_state *state, const float *from);

#endif
