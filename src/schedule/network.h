/* The links between devices as serial resources: one a direction, one for both directions with
 * half_duplex, and with shared_nic also the sender's and the receiver's network card. Messages must
 * be sent in the order in which they are ready; each then waits only for those before it. */
#ifndef HOP_SCHEDULE_NETWORK_H
#define HOP_SCHEDULE_NETWORK_H

#include <stdint.h>

#include "cluster/cost.h"

struct hop_network {
    int32_t devices;
    bool half_duplex, shared_nic;
    double
        *free_at; /* (devices * devices links, then devices outgoing and devices incoming cards) */
};

hop_status hop_network_create(const struct hop_cost_table *cost, struct hop_network *out,
                              struct hop_error *err);
void hop_network_free(struct hop_network *network);
/* Every link is free from 0. */
void hop_network_clear(struct hop_network *network);

/* Sends a message that is ready at `ready` and needs its link for `seconds`; returns when it leaves
 * (it arrives `seconds` later). One that needs no time, as inside a device, waits for nothing. */
double hop_network_send(struct hop_network *network, int32_t from, int32_t to, double ready,
                        double seconds);

#endif
