/* Tensors a folder holds and the model does not use: older files keep rotary_emb.inv_freq, tied
 * ones a copy of the embedding as head. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/weights_internal.h"

enum { NAMED = 3 }; /* tensors a note names */

/* used[i]: tensor i of the files is one of the configuration's. */
static hop_status mark_used(const struct hop_weights *weights,
                            const struct hop_model_config *config, bool *used,
                            struct hop_error *err)
{
    struct hop_tensor_want *wants;
    size_t count;
    HOP_TRY(hop_weights_list(config, 0, config->blocks, true, true, &wants, &count, err));
    for (size_t i = 0; i < count; i++) {
        const struct hop_tensor *const tensor = hop__weights_mapped(weights, wants[i].name);
        if (tensor)
            used[tensor - hop_safetensors_at(weights->files, 0)] = true;
    }
    free(wants);
    return HOP_OK;
}

hop_status hop_weights_unused(const struct hop_weights *weights,
                              const struct hop_model_config *config, const struct hop_tensor ***out,
                              size_t *count, struct hop_error *err)
{
    const size_t total = weights->files ? hop_safetensors_count(weights->files) : 0;
    const struct hop_tensor **list = NULL;
    bool *used = NULL;
    size_t n = 0;
    hop_status status;
    HOP_TRY_DONE(hop_calloc(&list, total + 1, sizeof *list, err));
    HOP_TRY_DONE(hop_calloc(&used, total + 1, sizeof *used, err));
    if (total)
        HOP_TRY_DONE(mark_used(weights, config, used, err));
    for (size_t i = 0; i < total; i++)
        if (!used[i])
            list[n++] = hop_safetensors_at(weights->files, i);
    *out = list;
    *count = n;
    list = NULL;
done:
    free(list);
    free(used);
    return status;
}

static bool any_bias(const struct hop_tensor *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *const end = strrchr(list[i]->name, '.');
        if (end && strcmp(end, ".bias") == 0)
            return true;
    }
    return false;
}

static hop_status names(const struct hop_tensor *const *list, size_t count, struct hop_string *out,
                        struct hop_error *err)
{
    for (size_t i = 0; i < count && i < NAMED; i++)
        HOP_TRY(hop_string_printf(out, err, "%s%.100s", i ? ", " : "", list[i]->name));
    return count > NAMED ? hop_string_printf(out, err, ", ...") : HOP_OK;
}

hop_status hop_weights_unused_note(const struct hop_weights *weights,
                                   const struct hop_model_config *config, struct hop_string *out,
                                   struct hop_error *err)
{
    const struct hop_tensor **list = NULL;
    size_t count = 0;
    hop_status status;
    HOP_TRY_DONE(hop_weights_unused(weights, config, &list, &count, err));
    if (!count)
        goto done;
    HOP_TRY_DONE(hop_string_printf(out, err, "%zu tensor%s not part of this model and unused: ",
                                   count, count == 1 ? " is" : "s are"));
    HOP_TRY_DONE(names(list, count, out, err));
    if (any_bias(list, count))
        HOP_TRY_DONE(hop_string_printf(
            out, err, "; biases need \"attention_bias\" or \"mlp_bias\" in config.json"));
done:
    free(list);
    return status;
}
