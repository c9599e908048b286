/* Which heads, columns and slices a shard has. */
#include "model/shard.h"

enum { COLUMN_QUANTUM = 64, FEWEST_QUANTA = 64 };

bool hop_shard_is_whole(const struct hop_shard *shard)
{
    return !(shard->lo > 0) && (!(shard->hi > 0) || !(shard->hi < 1));
}

bool hop_shard_is_first(const struct hop_shard *shard)
{
    return !(shard->lo > 0);
}

bool hop_shard_gets_group(const struct hop_model_config *model, double lo, double hi)
{
    const struct hop_range range = hop_share_range(lo, hi, model->kv_heads);
    return range.lo < range.hi;
}

static int32_t group_of(const struct hop_model_config *model)
{
    return model->heads / model->kv_heads;
}

struct hop_range hop_shard_heads(const struct hop_model_config *model,
                                 const struct hop_shard *shard)
{
    const int32_t quantum = shard->cuts_groups ? 1 : group_of(model);
    if (hop_shard_is_whole(shard))
        return (struct hop_range){0, model->heads};
    const struct hop_range range = hop_share_range(shard->lo, shard->hi, model->heads / quantum);
    return (struct hop_range){range.lo * quantum, range.hi * quantum};
}

struct hop_range hop_shard_kv_heads(const struct hop_model_config *model,
                                    const struct hop_shard *shard)
{
    const struct hop_range heads = hop_shard_heads(model, shard);
    const int32_t group = group_of(model);
    return (struct hop_range){heads.lo / group, (heads.hi + group - 1) / group};
}

static int32_t column_quantum(const struct hop_model_config *model)
{
    int32_t quantum = COLUMN_QUANTUM;
    while (quantum > 1 && model->intermediate / quantum < FEWEST_QUANTA)
        quantum /= 2;
    return quantum;
}

static int32_t at_most(int32_t n, int32_t most)
{
    return n < most ? n : most;
}

/* The last quantum may be a smaller rest. */
struct hop_range hop_shard_columns(const struct hop_model_config *model,
                                   const struct hop_shard *shard)
{
    const int32_t all = model->intermediate, quantum = column_quantum(model);
    if (hop_shard_is_whole(shard))
        return (struct hop_range){0, all};
    const struct hop_range range =
        hop_share_range(shard->lo, shard->hi, (all + quantum - 1) / quantum);
    return (struct hop_range){at_most(range.lo * quantum, all), at_most(range.hi * quantum, all)};
}

hop_status hop_shard_check(const struct hop_model_config *model, const struct hop_shard *shard,
                           struct hop_error *err)
{
    const struct hop_range heads = hop_shard_heads(model, shard);
    const struct hop_range columns = hop_shard_columns(model, shard);
    if (heads.lo < heads.hi && columns.lo < columns.hi)
        return HOP_OK;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "tensor share [%g, %g) gets %d of %d query heads and %d of %d feed-forward "
                    "columns; a shard needs some of both: give it a larger share or fewer shards",
                    shard->lo, shard->hi, heads.hi - heads.lo, model->heads,
                    columns.hi - columns.lo, model->intermediate);
}

struct hop_model_config hop_shard_model(const struct hop_model_config *model,
                                        const struct hop_shard *shard)
{
    const struct hop_range heads = hop_shard_heads(model, shard);
    const struct hop_range kv_heads = hop_shard_kv_heads(model, shard);
    const struct hop_range columns = hop_shard_columns(model, shard);
    struct hop_model_config own = *model;
    own.heads = heads.hi - heads.lo;
    own.kv_heads = kv_heads.hi - kv_heads.lo;
    own.intermediate = columns.hi - columns.lo;
    return own;
}

static bool splits_inputs(enum hop_target target)
{
    return target == HOP_O_PROJ || target == HOP_DOWN_PROJ;
}

/* Of the features between the two halves of attention or of the feed-forward part. */
static struct hop_range split_features(const struct hop_model_config *model,
                                       const struct hop_shard *shard, enum hop_target target)
{
    struct hop_range range;
    if (target >= HOP_GATE_PROJ)
        return hop_shard_columns(model, shard);
    if (target == HOP_K_PROJ || target == HOP_V_PROJ)
        range = hop_shard_kv_heads(model, shard);
    else
        range = hop_shard_heads(model, shard);
    return (struct hop_range){range.lo * model->head_dim, range.hi * model->head_dim};
}

struct hop_submatrix hop_shard_weight(const struct hop_model_config *model,
                                      const struct hop_shard *shard, enum hop_target target)
{
    const struct hop_range split = split_features(model, shard, target);
    const int64_t in = hop_target_in(model, target), out = hop_target_out(model, target);
    if (splits_inputs(target))
        return (struct hop_submatrix){
            .rows = out, .column = split.lo, .columns = split.hi - split.lo};
    return (struct hop_submatrix){.row = split.lo, .rows = split.hi - split.lo, .columns = in};
}

struct hop_submatrix hop_shard_factor(const struct hop_model_config *model,
                                      const struct hop_shard *shard, enum hop_target target,
                                      enum hop_factor factor, int32_t rank)
{
    struct hop_submatrix slice = hop_shard_weight(model, shard, target);
    if (factor == HOP_LORA_CORE)
        return (struct hop_submatrix){.rows = rank, .columns = rank};
    if (factor == HOP_LORA_A) {
        slice.row = 0;
        slice.rows = rank;
        return slice;
    }
    slice.column = 0;
    slice.columns = rank;
    return slice;
}

bool hop_shard_shares(const struct hop_shard *shard, enum hop_target target, enum hop_factor factor)
{
    const bool split = factor != HOP_LORA_CORE && splits_inputs(target) == (factor == HOP_LORA_A);
    const bool of_keys = target == HOP_K_PROJ || target == HOP_V_PROJ;
    return !split || (of_keys && shard->cuts_groups);
}

/* Of a key/value head that several shards hold, the first one speaks. */
static struct hop_range own_key_rows(const struct hop_model_config *model,
                                     const struct hop_shard *shard)
{
    const struct hop_range heads = hop_shard_heads(model, shard);
    const struct hop_range kv_heads = hop_shard_kv_heads(model, shard);
    const int32_t skipped = heads.lo % group_of(model) > 0 ? 1 : 0;
    return (struct hop_range){skipped * model->head_dim,
                              (kv_heads.hi - kv_heads.lo) * model->head_dim};
}

struct hop_range hop_shard_own_rows(const struct hop_model_config *model,
                                    const struct hop_shard *shard, enum hop_target target,
                                    enum hop_factor factor, int32_t rank)
{
    const struct hop_submatrix slice = hop_shard_factor(model, shard, target, factor, rank);
    const bool of_keys = target == HOP_K_PROJ || target == HOP_V_PROJ;
    if (of_keys && factor == HOP_LORA_B)
        return own_key_rows(model, shard);
    if (hop_shard_shares(shard, target, factor) && !hop_shard_is_first(shard))
        return (struct hop_range){0, 0};
    return (struct hop_range){0, (int32_t)slice.rows};
}
