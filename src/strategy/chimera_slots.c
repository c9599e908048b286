#include "strategy/chimera_slots.h"

bool hop_chimera_fits(int32_t devices, int32_t pipelines)
{
    if (devices < 2 || devices % 2 || pipelines < 2 || pipelines % 2)
        return false;
    return (devices / 2) % (pipelines / 2) == 0;
}

int32_t hop_chimera_device(int32_t devices, int32_t pipelines, int32_t pipeline, int32_t stage)
{
    const int32_t half = pipelines / 2;
    const bool up = pipeline >= half;
    const int32_t shift = pipeline % half * (devices / half);
    return ((up ? devices - 1 - stage : stage) + shift) % devices;
}

int32_t hop_chimera_forward_slot(int32_t stage, int32_t micro_batch)
{
    return stage + 2 * micro_batch;
}

int32_t hop_chimera_backward_slot(int32_t devices, int32_t stage, int32_t micro_batch)
{
    return 2 * devices - 1 - stage + 2 * micro_batch;
}

static struct hop_chimera_place place_single(int32_t devices, int32_t stage, int32_t micro_batch,
                                             int64_t start)
{
    return (struct hop_chimera_place){start + hop_chimera_forward_slot(stage, micro_batch),
                                      start +
                                          hop_chimera_backward_slot(devices, stage, micro_batch)};
}

/* Of two that run forward together, the second runs backward D slots later. */
static struct hop_chimera_place place_double(int32_t devices, int32_t stage, int32_t micro_batch,
                                             int64_t start)
{
    struct hop_chimera_place place = place_single(devices, stage, micro_batch / 2, start);
    place.backward += micro_batch % 2 * devices;
    return place;
}

struct hop_chimera_place hop_chimera_place(int32_t devices, int32_t pipelines, bool doubled,
                                           int32_t stage, int32_t micro_batch, int32_t n)
{
    const int32_t each = devices / pipelines, unit = doubled ? 2 * each : each;
    const int32_t number = micro_batch / unit, first = number * unit;
    const int64_t start = (int64_t)number * (doubled ? 3 : 2) * devices;
    return doubled && n - first > each ? place_double(devices, stage, micro_batch - first, start)
                                       : place_single(devices, stage, micro_batch - first, start);
}
