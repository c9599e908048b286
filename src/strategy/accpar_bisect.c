#include "strategy/accpar_bisect.h"

static bool stands_before(const struct hop_accpar_device *a, const struct hop_accpar_device *b)
{
    return a->bp != b->bp ? b->bp : a->type < b->type;
}

/* By insertion, which keeps the order of equals. */
void hop_accpar_sort(struct hop_accpar_device *devices, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        const struct hop_accpar_device device = devices[i];
        int32_t place = i;
        for (; place > 0 && stands_before(&device, &devices[place - 1]); place--)
            devices[place] = devices[place - 1];
        devices[place] = device;
    }
}

int32_t hop_accpar_middle(const struct hop_accpar_device *devices, int32_t lo, int32_t hi)
{
    const struct hop_accpar_device *const first = &devices[lo], *const last = &devices[hi - 1];
    int32_t middle = lo + 1;
    if (first->bp == last->bp && first->type == last->type)
        return lo + (hi - lo) / 2;
    while (devices[middle].bp == first->bp &&
           (first->bp != last->bp || devices[middle].type == first->type))
        middle++;
    return middle;
}
