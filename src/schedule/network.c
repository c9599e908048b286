#include "schedule/network.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

static size_t resources(const struct hop_network *network)
{
    const size_t n = (size_t)network->devices;
    return n * n + 2 * n;
}

hop_status hop_network_create(const struct hop_cost_table *cost, struct hop_network *out,
                              struct hop_error *err)
{
    struct hop_network network = {.devices = cost->device_count,
                                  .half_duplex = cost->half_duplex,
                                  .shared_nic = cost->shared_nic};
    HOP_TRY(hop_calloc(&network.free_at, resources(&network), sizeof *network.free_at, err));
    *out = network;
    return HOP_OK;
}

void hop_network_free(struct hop_network *network)
{
    if (!network)
        return;
    free(network->free_at);
    *network = (struct hop_network){0};
}

void hop_network_clear(struct hop_network *network)
{
    for (size_t i = 0; i < resources(network); i++)
        network->free_at[i] = 0;
}

static double *link_of(const struct hop_network *network, int32_t from, int32_t to)
{
    const bool swap = network->half_duplex && from > to;
    const size_t row = (size_t)(swap ? to : from), column = (size_t)(swap ? from : to);
    return &network->free_at[row * (size_t)network->devices + column];
}

double hop_network_send(struct hop_network *network, int32_t from, int32_t to, double ready,
                        double seconds)
{
    if (!(seconds > 0))
        return ready;
    const size_t n = (size_t)network->devices;
    double *const link = link_of(network, from, to);
    double *const out = &network->free_at[n * n + (size_t)from];
    double *const in = &network->free_at[n * n + n + (size_t)to];
    double start = ready > *link ? ready : *link;
    if (network->shared_nic)
        start = fmax(start, fmax(*out, *in));
    *link = start + seconds;
    if (network->shared_nic)
        *out = *in = *link;
    return start;
}
