/* Random weights for benchmarks and tests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/weights.h"

enum { CHUNK = 4096 };

static bool is_bias(const char *name)
{
    const char *const end = strrchr(name, '.');
    return end && strcmp(end, ".bias") == 0;
}

/* Matrices N(0, 1/in), biases N(0, 1/out), gains 1. A chunk's values depend on its place only, not
 * on the threads. */
static void fill_random(const struct hop_random_key *key, const struct hop_tensor_want *want,
                        enum hop_dtype dtype, char *data)
{
    const bool matrix = want->rank == 2, gain = !matrix && !is_bias(want->name);
    const size_t total = (size_t)(matrix ? want->shape[0] * want->shape[1] : want->shape[0]);
    const float scale = gain ? 0 : 1 / sqrtf((float)want->shape[matrix ? 1 : 0]);
    const float shift = gain ? 1 : 0;
#pragma omp parallel for schedule(static) if (total > 16 * CHUNK)
    for (size_t begin = 0; begin < total; begin += CHUNK) {
        float values[CHUNK];
        const size_t n = total - begin < CHUNK ? total - begin : CHUNK;
        hop_random_normal(key, begin, n, values);
        for (size_t i = 0; i < n; i++)
            values[i] = values[i] * scale + shift;
        hop_convert(data + begin * hop_dtype_size(dtype), dtype, values, HOP_F32, n);
    }
}

hop_status hop_weights_random(const struct hop_model_config *config, uint64_t seed,
                              enum hop_dtype dtype, struct hop_weights **out, struct hop_error *err)
{
    struct hop_weights *weights = NULL;
    struct hop_tensor_want *wants = NULL;
    size_t count;
    hop_status status;
    HOP_TRY_DONE(hop_weights_create(&weights, err));
    HOP_TRY_DONE(hop_weights_list(config, 0, config->blocks, true, true, &wants, &count, err));
    for (size_t i = 0; i < count; i++) {
        /* Adapters use step 0 of this domain. */
        const struct hop_random_key key = {
            .seed = seed, .domain = HOP_RANDOM_INIT, .step = 1, .parameter = (uint32_t)i};
        void *data;
        HOP_TRY_DONE(hop_weights_add(weights, &wants[i], dtype, &data, err));
        fill_random(&key, &wants[i], dtype, data);
    }
    *out = weights;
    weights = NULL;
done:
    free(wants);
    hop_weights_free(weights);
    return status;
}
