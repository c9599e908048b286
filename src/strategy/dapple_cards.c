#include "strategy/dapple_cards.h"

#include <stdlib.h>

#include "base/memory.h"

static int32_t begin_of(const struct hop_card_machines *machines, int32_t machine)
{
    return machine > 0 ? machines->ends[machine - 1] : 0;
}

int32_t hop_cards_total(const struct hop_card_machines *machines)
{
    return machines->ends[machines->count - 1];
}

hop_cards hop_cards_first(int32_t count)
{
    return count > 0 ? ~(hop_cards)0 << (64 - count) : 0;
}

static hop_cards cards_of(const struct hop_card_machines *machines, int32_t machine)
{
    return hop_cards_first(machines->ends[machine]) & ~hop_cards_first(begin_of(machines, machine));
}

bool hop_cards_cross(const struct hop_card_machines *machines, hop_cards cards)
{
    for (int32_t i = 0; i < machines->count; i++)
        if (!(cards & ~cards_of(machines, i)))
            return false;
    return true;
}

int32_t hop_cards_away(const struct hop_card_machines *machines, hop_cards cards, hop_cards others)
{
    for (int32_t i = 0; i < machines->count; i++)
        if (!(others & ~cards_of(machines, i)))
            return hop_cards_count(cards & ~cards_of(machines, i));
    return 0;
}

/* The lowest `most` devices of the set, or fewer. */
static hop_cards lowest(hop_cards cards, int32_t most)
{
    hop_cards taken = 0;
    for (int32_t d = 0; d < HOP_CARDS_MOST && most > 0; d++)
        if (cards & hop_card(d)) {
            taken |= hop_card(d);
            most--;
        }
    return taken;
}

static hop_cards fill(const struct hop_card_machines *machines, hop_cards occupied, int32_t need,
                      bool fresh)
{
    hop_cards taken = 0;
    for (int32_t i = 0; i < machines->count; i++) {
        const hop_cards cards = cards_of(machines, i);
        if (fresh == !(cards & occupied))
            taken |= lowest(cards & ~occupied, need - hop_cards_count(taken));
    }
    return taken;
}

static hop_cards scatter(const struct hop_card_machines *machines, hop_cards occupied, int32_t need)
{
    hop_cards taken = 0, before;
    do {
        before = taken;
        for (int32_t i = 0; i < machines->count && hop_cards_count(taken) < need; i++)
            taken |= lowest(cards_of(machines, i) & ~(occupied | taken), 1);
    } while (taken != before && hop_cards_count(taken) < need);
    return taken;
}

hop_cards hop_cards_place(const struct hop_card_machines *machines, hop_cards occupied,
                          int32_t need, enum hop_card_policy policy)
{
    const hop_cards taken = policy == HOP_CARDS_SCATTER
                                ? scatter(machines, occupied, need)
                                : fill(machines, occupied, need, policy == HOP_CARDS_FRESH);
    return hop_cards_count(taken) == need ? taken : 0;
}

int32_t hop_cards_next(const struct hop_card_machines *machines, hop_cards occupied, int32_t need,
                       hop_cards out[HOP_CARD_POLICIES])
{
    int32_t count = 0;
    for (int policy = 0; policy < HOP_CARD_POLICIES; policy++) {
        const hop_cards cards = hop_cards_place(machines, occupied, need, policy);
        bool known = cards == 0;
        for (int32_t i = 0; i < count; i++)
            known = known || out[i] == cards;
        if (!known)
            out[count++] = cards;
    }
    return count;
}

static hop_status add_new(struct hop_cards_list *list, size_t first, hop_cards cards,
                          struct hop_error *err)
{
    for (size_t i = first; i < list->count; i++)
        if (list->items[i] == cards)
            return HOP_OK;
    HOP_TRY(hop_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items, err));
    list->items[list->count++] = cards;
    return HOP_OK;
}

/* Sets to be extended, a list a round: what a set leads to does not depend on how it came to be,
 * and of equal ones the first is met first. */
hop_status hop_cards_rounds(const struct hop_card_machines *machines, hop_cards occupied,
                            int32_t need, int32_t replicas, struct hop_cards_list *out,
                            struct hop_error *err)
{
    struct hop_cards_list now = {0}, next = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(add_new(&now, 0, 0, err));
    for (int32_t r = 0; r < replicas; r++) {
        next.count = 0;
        for (size_t i = 0; i < now.count; i++) {
            hop_cards found[HOP_CARD_POLICIES];
            const hop_cards held = now.items[i];
            const int32_t count = hop_cards_next(machines, occupied | held, need, found);
            for (int32_t f = 0; f < count; f++)
                HOP_TRY_DONE(add_new(&next, 0, held | found[f], err));
        }
        const struct hop_cards_list swap = now;
        now = next;
        next = swap;
    }
    for (size_t i = 0, first = out->count; i < now.count; i++)
        HOP_TRY_DONE(add_new(out, first, now.items[i], err));
done:
    free(now.items);
    free(next.items);
    return status;
}
