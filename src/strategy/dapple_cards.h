/* DAPPLE's device placement: which devices a stage gets, given those that earlier stages occupy.
 * Devices are numbered machine by machine. Private to src/strategy. */
#ifndef HOP_STRATEGY_DAPPLE_CARDS_H
#define HOP_STRATEGY_DAPPLE_CARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A set of devices: device d is bit 63 - d, so that sets in numeric order are in the order of their
 * lists of flags, device 0 first. */
typedef uint64_t hop_cards;
enum { HOP_CARDS_MOST = 64 };

struct hop_card_machines {
    int32_t *ends, count; /* machine i has devices [ends[i - 1], ends[i]), and from 0 the first */
};

enum hop_card_policy {
    HOP_CARDS_FRESH,   /* fills machines that nobody uses, one after another */
    HOP_CARDS_APPEND,  /* fills machines that are in use */
    HOP_CARDS_SCATTER, /* one device a machine, round after round */
    HOP_CARD_POLICIES
};

static inline hop_cards hop_card(int32_t device)
{
    return (hop_cards)1 << (63 - device);
}
static inline int32_t hop_cards_count(hop_cards cards)
{
    int32_t count = 0;
    for (; cards; cards &= cards - 1)
        count++;
    return count;
}
int32_t hop_cards_total(const struct hop_card_machines *machines);
/* The first `count` devices. */
hop_cards hop_cards_first(int32_t count);
/* Are they on more than one machine? */
bool hop_cards_cross(const struct hop_card_machines *machines, hop_cards cards);
/* How many of `cards` are not on the machine of all of `others` (which do not cross). */
int32_t hop_cards_away(const struct hop_card_machines *machines, hop_cards cards, hop_cards others);

/* `need` devices beside `occupied`, or 0 where the policy finds fewer. */
hop_cards hop_cards_place(const struct hop_card_machines *machines, hop_cards occupied,
                          int32_t need, enum hop_card_policy policy);
/* What the policies find, without repetitions, in their order; returns the number. */
int32_t hop_cards_next(const struct hop_card_machines *machines, hop_cards occupied, int32_t need,
                       hop_cards out[HOP_CARD_POLICIES]);

/* A growing list of sets. Zeroed is empty. */
struct hop_cards_list {
    hop_cards *items;
    size_t count, capacity;
};
/* Adds every set that `replicas` rounds of `need` devices can make, each round by any policy;
 * without repetitions, in the order in which a depth-first walk meets them. */
hop_status hop_cards_rounds(const struct hop_card_machines *machines, hop_cards occupied,
                            int32_t need, int32_t replicas, struct hop_cards_list *out,
                            struct hop_error *err);

#endif
