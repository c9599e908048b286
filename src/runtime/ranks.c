#include "runtime/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static bool has_part(const struct hop_plan *plan, int32_t device)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].device == device)
            return true;
    return false;
}

static int32_t first_local(const struct hop_cluster *cluster, const struct hop_plan *plan)
{
    for (size_t d = 0; d < cluster->count; d++)
        if (hop_device_is_local(&cluster->devices[d]) && has_part(plan, (int32_t)d))
            return (int32_t)d;
    return -1;
}

hop_status hop_ranks_assign(const struct hop_cluster *cluster, const struct hop_plan *plan,
                            struct hop_ranks *out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_ranks ranks = {.count = 1};
    HOP_TRY_DONE(hop_calloc(&ranks.rank_of, cluster->count, sizeof(int32_t), err));
    HOP_TRY_DONE(hop_calloc(&ranks.device_of, cluster->count + 1, sizeof(int32_t), err));
    ranks.device_of[0] = first_local(cluster, plan);
    for (int32_t d = 0; d < (int32_t)cluster->count; d++) {
        ranks.rank_of[d] = -1;
        if (d == ranks.device_of[0])
            ranks.rank_of[d] = 0;
        else if (has_part(plan, d)) {
            ranks.rank_of[d] = ranks.count;
            ranks.device_of[ranks.count++] = d;
        }
    }
    *out = ranks;
    return HOP_OK;
done:
    hop_ranks_free(&ranks);
    return status;
}

void hop_ranks_free(struct hop_ranks *ranks)
{
    if (!ranks)
        return;
    free(ranks->rank_of);
    free(ranks->device_of);
    *ranks = (struct hop_ranks){0};
}

bool hop_ranks_same_machine(const struct hop_cluster *cluster, int32_t a, int32_t b)
{
    const struct hop_device *const first = &cluster->devices[a], *const second =
                                                                     &cluster->devices[b];
    if (hop_device_is_local(first) || hop_device_is_local(second))
        return hop_device_is_local(first) && hop_device_is_local(second);
    return strcmp(first->host, second->host) == 0;
}

int32_t hop_ranks_sharing(const struct hop_cluster *cluster, const struct hop_ranks *ranks,
                          int32_t device)
{
    int32_t sharing = 0;
    for (int32_t d = 0; d < (int32_t)cluster->count; d++)
        sharing += ranks->rank_of[d] >= 0 && hop_ranks_same_machine(cluster, d, device);
    return sharing;
}
