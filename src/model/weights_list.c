/* Which frozen tensors a run of blocks needs, by Hugging Face name. */
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

const char *const hop_target_paths[HOP_TARGETS] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

void hop_weight_name(int32_t block, enum hop_target target, char name[HOP_TENSOR_NAME])
{
    snprintf(name, HOP_TENSOR_NAME, "model.layers.%d.%s.weight", block, hop_target_paths[target]);
}

void hop_bias_name(int32_t block, enum hop_target target, char name[HOP_TENSOR_NAME])
{
    snprintf(name, HOP_TENSOR_NAME, "model.layers.%d.%s.bias", block, hop_target_paths[target]);
}

void hop_norm_name(int32_t block, enum hop_norm norm, char name[HOP_TENSOR_NAME])
{
    snprintf(name, HOP_TENSOR_NAME, "model.layers.%d.%s.weight", block,
             norm == HOP_INPUT_NORM ? "input_layernorm" : "post_attention_layernorm");
}

const char *hop_head_name(const struct hop_model_config *config)
{
    return config->tied ? HOP_EMBED_NAME : HOP_HEAD_NAME;
}

static struct hop_tensor_want vector_want(int64_t n)
{
    return (struct hop_tensor_want){.rank = 1, .shape = {n}};
}

static struct hop_tensor_want matrix_want(int64_t out, int64_t in)
{
    return (struct hop_tensor_want){.rank = 2, .shape = {out, in}};
}

static struct hop_tensor_want table_want(const struct hop_model_config *config, const char *name)
{
    struct hop_tensor_want want = matrix_want(config->vocabulary, config->hidden);
    snprintf(want.name, sizeof want.name, "%s", name);
    return want;
}

static size_t list_block(const struct hop_model_config *config, int32_t block,
                         struct hop_tensor_want *out)
{
    size_t n = 0;
    for (enum hop_norm norm = 0; norm < HOP_BLOCK_NORMS; norm++) {
        out[n] = vector_want(config->hidden);
        hop_norm_name(block, norm, out[n++].name);
    }
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        out[n] = matrix_want(hop_target_out(config, target), hop_target_in(config, target));
        hop_weight_name(block, target, out[n++].name);
        if (!hop_target_biased(config, target))
            continue;
        out[n] = vector_want(hop_target_out(config, target));
        hop_bias_name(block, target, out[n++].name);
    }
    return n;
}

hop_status hop_weights_list(const struct hop_model_config *config, int32_t lo, int32_t hi,
                            bool embed, bool head, struct hop_tensor_want **out, size_t *count,
                            struct hop_error *err)
{
    const size_t blocks = hi > lo ? (size_t)(hi - lo) : 0;
    struct hop_tensor_want *list;
    size_t n = 0;
    HOP_TRY(hop_calloc(&list, blocks * (2 * HOP_TARGETS + HOP_BLOCK_NORMS) + 3, sizeof *list, err));
    if (embed)
        list[n++] = table_want(config, HOP_EMBED_NAME);
    for (int32_t block = lo; block < hi; block++)
        n += list_block(config, block, list + n);
    if (head) {
        list[n] = vector_want(config->hidden);
        snprintf(list[n++].name, HOP_TENSOR_NAME, "%s", HOP_FINAL_NORM_NAME);
        if (!(embed && config->tied))
            list[n++] = table_want(config, hop_head_name(config));
    }
    *out = list;
    *count = n;
    return HOP_OK;
}
