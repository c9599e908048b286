/* HetPipe's ways to deal devices into groups, each of which runs a pipeline of the whole model
 * (a virtual worker). Private to src/strategy. */
#ifndef HOP_STRATEGY_HDP_GROUPS_H
#define HOP_STRATEGY_HDP_GROUPS_H

#include <stdint.h>

#include "strategy/crew.h"

enum hop_hdp_policy {
    HOP_HDP_KINDS, /* BP-capable devices and BP-free ones */
    HOP_HDP_TYPES, /* a group for the devices with equal figures */
    HOP_HDP_NODES, /* NP: a group a machine */
    HOP_HDP_EQUAL, /* ED: the devices of each type in turn, as many groups as the rarest has; what
                      is over joins the slowest group */
    HOP_HDP_BALANCED, /* HD with k groups: the fastest device joins the slowest group */
    HOP_HDP_POLICIES
};

struct hop_hdp_groups {
    int32_t *of; /* (crew) group of each device, by its place in the crew */
    int32_t count;
};

/* k: groups that HOP_HDP_BALANCED shall make, of 1 to crew->count; the other policies ignore it.
 * Every group has a device; there may be one group only. */
hop_status hop_hdp_deal(const struct hop_cost_table *cost, const struct hop_crew *crew,
                        enum hop_hdp_policy policy, int32_t k, struct hop_hdp_groups *out,
                        struct hop_error *err);
void hop_hdp_groups_free(struct hop_hdp_groups *groups);

#endif
