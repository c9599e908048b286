#include "model/core.h"

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
