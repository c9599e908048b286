#include "model/config.h"

const char *const hop_target_names[HOP_TARGETS + 1] = {
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", NULL};

int64_t hop_target_in(const struct hop_model_config *config, enum hop_target target)
{
    switch (target) {
    case HOP_O_PROJ:
        return (int64_t)config->heads * config->head_dim;
    case HOP_DOWN_PROJ:
        return config->intermediate;
    default:
        return config->hidden;
    }
}

int64_t hop_target_out(const struct hop_model_config *config, enum hop_target target)
{
    switch (target) {
    case HOP_Q_PROJ:
        return (int64_t)config->heads * config->head_dim;
    case HOP_K_PROJ:
    case HOP_V_PROJ:
        return (int64_t)config->kv_heads * config->head_dim;
    case HOP_GATE_PROJ:
    case HOP_UP_PROJ:
        return config->intermediate;
    default:
        return config->hidden;
    }
}

bool hop_target_biased(const struct hop_model_config *config, enum hop_target target)
{
    return target >= HOP_GATE_PROJ ? config->mlp_bias : config->attention_bias;
}

int64_t hop_model_block_parameters(const struct hop_model_config *config)
{
    int64_t total = 2 * (int64_t)config->hidden;
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        total += (hop_target_in(config, target) + hop_target_biased(config, target)) *
                 hop_target_out(config, target);
    return total;
}

int64_t hop_model_embed_parameters(const struct hop_model_config *config)
{
    return (int64_t)config->vocabulary * config->hidden;
}

int64_t hop_model_parameters(const struct hop_model_config *config)
{
    const int64_t tables = config->tied ? 1 : 2;
    return tables * hop_model_embed_parameters(config) +
           config->blocks * hop_model_block_parameters(config) + config->hidden;
}
