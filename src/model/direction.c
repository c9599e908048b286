#include "model/direction.h"

#include "base/random.h"

const char *const hop_distribution_names[] = {"gaussian", "rademacher", NULL};

/* A multiple of four, since the generator makes four numbers at a time. */
enum { CHUNK = 2048 };

void hop_direction_values(const struct hop_direction *direction,
                          const struct hop_parameter *parameter, size_t begin, size_t n, float *out)
{
    const struct hop_random_key key = {.seed = direction->seed,
                                       .domain = HOP_RANDOM_DIRECTION,
                                       .step = direction->step,
                                       .micro_batch = direction->micro_batch,
                                       .probe = direction->direction,
                                       .parameter = hop_parameter_id(parameter)};
    hop_random_normal(&key, begin, n, out);
}

struct sum {
    uint64_t seed;
    uint32_t step;
    uint16_t micro_batch;
    const uint16_t *directions;
    const float *coefficients;
    int32_t count;
};

static void add_chunk(const struct sum *sum, const struct hop_parameter *parameter, size_t begin,
                      size_t n, float *gradient)
{
    float z[CHUNK];
    for (int32_t q = 0; q < sum->count; q++) {
        const struct hop_direction direction = {.seed = sum->seed,
                                                .step = sum->step,
                                                .micro_batch = sum->micro_batch,
                                                .direction = sum->directions[q]};
        const float coefficient = sum->coefficients[q];
        hop_direction_values(&direction, parameter, begin, n, z);
        for (size_t i = 0; i < n; i++)
            gradient[i] += coefficient * z[i];
    }
}

void hop_parameters_add_directions(struct hop_parameters *parameters, uint64_t seed, uint32_t step,
                                   uint16_t micro_batch, const uint16_t *directions,
                                   const float *coefficients, int32_t count)
{
    const struct sum sum = {.seed = seed,
                            .step = step,
                            .micro_batch = micro_batch,
                            .directions = directions,
                            .coefficients = coefficients,
                            .count = count};
#pragma omp parallel for schedule(dynamic) if (parameters->total > 16 * CHUNK)
    for (size_t p = 0; p < parameters->count; p++) {
        const struct hop_parameter *const item = &parameters->items[p];
        for (size_t begin = 0; begin < item->count; begin += CHUNK) {
            const size_t n = item->count - begin < CHUNK ? item->count - begin : CHUNK;
            add_chunk(&sum, item, begin, n, parameters->gradients + item->offset + begin);
        }
    }
}
