/* Which messages share a buffer when every device has a few of them a payload kind and direction;
 * see hop_schedule_check() for the rules. */
#ifndef HOP_SCHEDULE_BUFFERS_H
#define HOP_SCHEDULE_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "schedule/schedule.h"

/* Indices of transfers: `after` needs the buffer that `before` has. Sending, the task that makes
 * `after` waits until `before` was taken; receiving, `after` waits until the task that consumes
 * `before` is done. A transfer is `before` in one pair at most (sending), or `after` (receiving).
 */
struct hop_buffer_pair {
    int32_t before, after;
};

/* Derivatives, base losses and messages inside a device use no buffers. */
bool hop_transfer_is_buffered(const struct hop_transfer *transfer);

/* All such pairs of one direction, with `window` buffers of each kind. Caller frees *pairs. */
hop_status hop_buffer_pairs(const struct hop_transfers *transfers, bool sending, int32_t window,
                            struct hop_buffer_pair **pairs, int32_t *count, struct hop_error *err);

#endif
