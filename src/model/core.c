#include "model/core.h"

#include <string.h>

hop_status hop_core_of(const struct hop_weights *weights, const struct hop_model_config *model,
                       int32_t block, enum hop_target target, int32_t rank, float *a, float *b,
                       struct hop_error *err)
{
    char name[HOP_TENSOR_NAME];
    hop_weight_name(block, target, name);
    const struct hop_tensor *const tensor = hop_weights_find(weights, name);
    if (!tensor)
        return hop_fail(err, HOP_INTERNAL, "tensor %s was not delivered for its core", name);
    if (hop_core_factors(tensor->data, tensor->dtype, hop_target_out(model, target),
                         hop_target_in(model, target), rank, a, b, err) != HOP_OK)
        return hop_wrap(err, "tensor %s", name);
    return HOP_OK;
}

void hop_core_product(const float *b, const float *r, int64_t out, int64_t rank, float *to)
{
    for (int64_t o = 0; o < out; o++) {
        float *const row = to + o * rank;
        memset(row, 0, (size_t)rank * sizeof *row);
        for (int64_t k = 0; k < rank; k++)
            for (int64_t j = 0; j < rank; j++)
                row[j] += b[o * rank + k] * r[k * rank + j];
    }
}

hop_status hop_core_fixed(const struct hop_weights *weights, const struct hop_model_config *model,
                          const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                          struct hop_parameters *out, struct hop_error *err)
{
    struct hop_parameters fixed = {0};
    hop_status status;
    HOP_TRY_DONE(hop_parameters_create_plain(model, lora, lo, hi, &fixed, err));
    for (size_t p = 0; p < fixed.count; p += 2) {
        const struct hop_parameter *const a = &fixed.items[p], *const b = a + 1;
        if (hop_lora_has_core(lora, a->block))
            HOP_TRY_DONE(hop_core_of(weights, model, a->block, a->target, (int32_t)a->rows,
                                     fixed.values + a->offset, fixed.values + b->offset, err));
    }
    *out = fixed;
    return HOP_OK;
done:
    hop_parameters_free(&fixed);
    return status;
}

/* A and B of the module whose first factor is `first`; returns how many parameters were read. */
static size_t expand_module(const struct hop_parameters *parameters, size_t p,
                            const struct hop_parameters *fixed, const struct hop_parameter *first,
                            float *values)
{
    const struct hop_parameter *const item = &parameters->items[p];
    const float *const trained = parameters->values + item->offset;
    if (item->factor == HOP_LORA_CORE) {
        memcpy(values + first->offset, fixed->values + first->offset,
               first->count * sizeof *values);
        hop_core_product(fixed->values + first[1].offset, trained, first[1].rows, item->rows,
                         values + first[1].offset);
        return 1;
    }
    memcpy(values + first->offset, trained, (first->count + first[1].count) * sizeof *values);
    return 2;
}

hop_status hop_core_expand(const struct hop_model_config *model, const struct hop_lora_config *lora,
                           const struct hop_parameters *fixed,
                           const struct hop_parameters *parameters, int32_t lo, int32_t hi,
                           struct hop_lora_config *lora_out, struct hop_parameters *out,
                           struct hop_error *err)
{
    struct hop_lora_config plain;
    struct hop_parameters expanded;
    HOP_TRY(hop_lora_plain(lora, model->blocks, &plain, err));
    HOP_TRY(hop_parameters_create_plain(model, lora, lo, hi, &expanded, err));
    size_t p = 0;
    for (size_t i = 0; i < expanded.count; i += 2)
        p += expand_module(parameters, p, fixed, &expanded.items[i], expanded.values);
    *lora_out = plain;
    *out = expanded;
    return HOP_OK;
}
