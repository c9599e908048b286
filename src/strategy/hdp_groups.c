#include "strategy/hdp_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static bool same_times(const double *a, const double *b, int32_t blocks)
{
    return memcmp(a, b, (size_t)blocks * sizeof *a) == 0;
}

static bool same_type(const struct hop_cost_table *cost, int32_t d, int32_t e)
{
    const struct hop_cost_device *const a = &cost->devices[d], *const b = &cost->devices[e];
    return a->bp == b->bp && same_times(a->forward, b->forward, cost->blocks) &&
           same_times(a->backward, b->backward, cost->blocks);
}

static bool same_kind(const struct hop_cost_table *cost, int32_t d, int32_t e)
{
    return cost->devices[d].bp == cost->devices[e].bp;
}

static bool same_node(const struct hop_cost_table *cost, int32_t d, int32_t e)
{
    return cost->machine[d] == cost->machine[e];
}

typedef bool same_group(const struct hop_cost_table *cost, int32_t d, int32_t e);

static void deal_alike(const struct hop_cost_table *cost, const struct hop_crew *crew,
                       same_group *same, struct hop_hdp_groups *groups)
{
    groups->count = 0;
    for (int32_t i = 0; i < crew->count; i++) {
        int32_t j = 0;
        while (j < i && !same(cost, crew->devices[i], crew->devices[j]))
            j++;
        groups->of[i] = j < i ? groups->of[j] : groups->count++;
    }
}

/* Models a second, forward and backward. */
static double rate(const struct hop_cost_table *cost, int32_t device)
{
    return 1 / (hop_cost_forward(cost, device, 0, cost->blocks) +
                hop_cost_backward(cost, device, 0, cost->blocks));
}

static int32_t slowest_group(const double *rates, int32_t count)
{
    int32_t slowest = 0;
    for (int32_t g = 1; g < count; g++)
        if (rates[g] < rates[slowest])
            slowest = g;
    return slowest;
}

static void join_group(const struct hop_cost_table *cost, const struct hop_crew *crew, int32_t i,
                       int32_t group, double *rates, struct hop_hdp_groups *groups)
{
    groups->of[i] = group;
    rates[group] += rate(cost, crew->devices[i]);
}

/* The number of devices of the same type before a device, and of the rarest type. */
static int32_t place_in_type(const struct hop_hdp_groups *types, int32_t i)
{
    int32_t place = 0;
    for (int32_t j = 0; j < i; j++)
        place += types->of[j] == types->of[i];
    return place;
}

static int32_t rarest(const struct hop_hdp_groups *types, int32_t devices)
{
    int32_t least = devices;
    for (int32_t t = 0; t < types->count; t++) {
        int32_t count = 0;
        for (int32_t i = 0; i < devices; i++)
            count += types->of[i] == t;
        least = count < least ? count : least;
    }
    return least;
}

static hop_status deal_equal(const struct hop_cost_table *cost, const struct hop_crew *crew,
                             struct hop_hdp_groups *groups, struct hop_error *err)
{
    struct hop_hdp_groups types = {0};
    double *rates = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&types.of, (size_t)crew->count, sizeof *types.of, err));
    HOP_TRY_DONE(hop_calloc(&rates, (size_t)crew->count, sizeof *rates, err));
    deal_alike(cost, crew, same_type, &types);
    groups->count = rarest(&types, crew->count);
    for (int32_t i = 0; i < crew->count; i++)
        if (place_in_type(&types, i) < groups->count)
            join_group(cost, crew, i, place_in_type(&types, i), rates, groups);
    for (int32_t i = 0; i < crew->count; i++)
        if (place_in_type(&types, i) >= groups->count)
            join_group(cost, crew, i, slowest_group(rates, groups->count), rates, groups);
done:
    free(rates);
    hop_hdp_groups_free(&types);
    return status;
}

/* The fastest device that is in no group. */
static int32_t fastest_left(const struct hop_cost_table *cost, const struct hop_crew *crew,
                            const struct hop_hdp_groups *groups)
{
    int32_t fastest = -1;
    for (int32_t i = 0; i < crew->count; i++)
        if (groups->of[i] < 0 &&
            (fastest < 0 || rate(cost, crew->devices[i]) > rate(cost, crew->devices[fastest])))
            fastest = i;
    return fastest;
}

static hop_status deal_balanced(const struct hop_cost_table *cost, const struct hop_crew *crew,
                                int32_t k, struct hop_hdp_groups *groups, struct hop_error *err)
{
    double *rates;
    HOP_TRY(hop_calloc(&rates, (size_t)k, sizeof *rates, err));
    groups->count = k;
    for (int32_t i = 0; i < crew->count; i++)
        groups->of[i] = -1;
    for (int32_t n = 0; n < crew->count; n++)
        join_group(cost, crew, fastest_left(cost, crew, groups), slowest_group(rates, k), rates,
                   groups);
    free(rates);
    return HOP_OK;
}

hop_status hop_hdp_deal(const struct hop_cost_table *cost, const struct hop_crew *crew,
                        enum hop_hdp_policy policy, int32_t k, struct hop_hdp_groups *out,
                        struct hop_error *err)
{
    static same_group *const alike[] = {
        [HOP_HDP_KINDS] = same_kind, [HOP_HDP_TYPES] = same_type, [HOP_HDP_NODES] = same_node};
    struct hop_hdp_groups groups = {0};
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&groups.of, (size_t)crew->count, sizeof *groups.of, err));
    if (policy == HOP_HDP_EQUAL)
        status = deal_equal(cost, crew, &groups, err);
    else if (policy == HOP_HDP_BALANCED)
        status = deal_balanced(cost, crew, k, &groups, err);
    else
        deal_alike(cost, crew, alike[policy], &groups);
    if (status != HOP_OK)
        hop_hdp_groups_free(&groups);
    else
        *out = groups;
    return status;
}

void hop_hdp_groups_free(struct hop_hdp_groups *groups)
{
    if (!groups)
        return;
    free(groups->of);
    *groups = (struct hop_hdp_groups){0};
}
