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
