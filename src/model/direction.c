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
                                       .sample = direction->sample,
                                       .parameter = hop_parameter_id(parameter)};
    if (direction->distribution == HOP_RADEMACHER)
        hop_random_sign(&key, begin, n, out);
    else
        hop_random_normal(&key, begin, n, out);
}

static int32_t directions_of_probe(const struct hop_direction_set *set)
{
    return set->samples > 0 ? set->samples : 1;
}

static void add_direction(const struct hop_direction *direction, float coefficient,
                          const struct hop_parameter *parameter, size_t begin, size_t n,
                          float *gradient)
{
    float z[CHUNK];
    hop_direction_values(direction, parameter, begin, n, z);
    for (size_t i = 0; i < n; i++)
        gradient[i] += coefficient * z[i];
}

static void add_chunk(const struct hop_direction_set *set, const float *coefficients,
                      const struct hop_parameter *parameter, size_t begin, size_t n,
                      float *gradient)
{
    const int32_t samples = directions_of_probe(set);
    for (int32_t q = 0; q < set->count; q++) {
        for (int32_t s = 0; s < samples; s++) {
            const struct hop_direction direction = {.seed = set->seed,
                                                    .step = set->step,
                                                    .micro_batch = set->micro_batch,
                                                    .direction = (uint16_t)(set->first + q),
                                                    .sample = (uint16_t)s,
                                                    .distribution = set->distribution};
            add_direction(&direction, coefficients[(size_t)q * (size_t)samples + (size_t)s],
                          parameter, begin, n, gradient);
        }
    }
}

void hop_parameters_add_estimate(struct hop_parameters *parameters,
                                 const struct hop_direction_set *set, const float *coefficients)
{
    const size_t directions = (size_t)set->count * (size_t)directions_of_probe(set);
#pragma omp parallel for schedule(dynamic) if (parameters->total * directions > 16 * CHUNK)
    for (size_t p = 0; p < parameters->count; p++) {
        const struct hop_parameter *const item = &parameters->items[p];
        for (size_t begin = 0; begin < item->count; begin += CHUNK) {
            const size_t n = item->count - begin < CHUNK ? item->count - begin : CHUNK;
            add_chunk(set, coefficients, item, begin, n,
                      parameters->gradients + item->offset + begin);
        }
    }
}

void hop_parameters_add_directions(struct hop_parameters *parameters, uint64_t seed, uint32_t step,
                                   uint16_t micro_batch, const uint16_t *directions,
                                   const float *coefficients, int32_t count)
{
    for (int32_t q = 0; q < count; q++) {
        const struct hop_direction_set set = {.seed = seed,
                                              .step = step,
                                              .micro_batch = micro_batch,
                                              .first = directions[q],
                                              .count = 1};
        hop_parameters_add_estimate(parameters, &set, &coefficients[q]);
    }
}
