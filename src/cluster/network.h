/* The section `network` of a cluster file. Private to src/cluster. */
#ifndef HOP_CLUSTER_NETWORK_H
#define HOP_CLUSTER_NETWORK_H

#include <jansson.h>

#include "base/error.h"
#include "cluster/cluster.h"
#include "io/schema.h"

/* First member of a struct that has the section. */
struct hop_network_keys {
    double bandwidth, latency;
    int duplex, nic;
    json_t *pairs;
};

extern const struct hop_field hop_network_fields[];

/* Fills the network's members of `cluster`, whose devices are known. On failure hop_cluster_free()
 * releases what is there. */
hop_status hop_network_apply(const struct hop_network_keys *keys, const char *where,
                             struct hop_cluster *cluster, struct hop_error *err);
/* NULL: out of memory. */
json_t *hop_network_json(const struct hop_cluster *cluster);

#endif
