/* Which MPI rank plays which device. Rank 0 is the coordinator and must run on this machine: the
 * first local device with a part takes it; where no such device is local, rank 0 only coordinates.
 */
#ifndef HOP_RUNTIME_RANKS_H
#define HOP_RUNTIME_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cluster/cluster.h"
#include "schedule/plan.h"

struct hop_ranks {
    int32_t count;
    int32_t *rank_of;   /* (devices), -1: idle */
    int32_t *device_of; /* (count), -1: coordinator only */
};

hop_status hop_ranks_assign(const struct hop_cluster *cluster, const struct hop_plan *plan,
                            struct hop_ranks *out, struct hop_error *err);
void hop_ranks_free(struct hop_ranks *ranks);
/* Do two devices of the cluster run on one machine? */
bool hop_ranks_same_machine(const struct hop_cluster *cluster, int32_t a, int32_t b);
/* Ranks on the same machine as this device's, itself included. */
int32_t hop_ranks_sharing(const struct hop_cluster *cluster, const struct hop_ranks *ranks,
                          int32_t device);

#endif
