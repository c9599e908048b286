/* The size table of a stage: the one place that knows how much memory it takes. */
#include "base/memory.h"
#include "model/stage_internal.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Reserves `bytes` at *end and returns where they start. */
static size_t reserve(size_t *end, size_t bytes)
{
    const size_t begin = *end;
    *end += hop_align(bytes);
    return begin;
}

static size_t copies(const struct hop_stage_config *config)
{
    return larger((size_t)config->probes, 1);
}

size_t hop__stage_groups(const struct hop_stage_config *config)
{
    const size_t samples = config->per_sample ? (size_t)config->limits.sequences : 1;
    return config->gradient == HOP_GRADIENT_ZEROTH_ORDER ? (size_t)config->probes * samples : 0;
}

/* A and B of every adapter. */
static size_t adapter_total(const struct hop_stage_config *config)
{
    return (size_t)hop_lora_plain_parameters(&config->model, &config->lora, config->lo, config->hi);
}

/* Values and gradients of what is trained; with cores also those of the factors they stand for and
 * the fixed second ones. */
static size_t parameter_numbers(const struct hop_stage_config *config)
{
    const struct hop_lora_config *const lora = &config->lora;
    size_t fixed = 0;
    if (!hop_lora_has_cores(lora, config->lo, config->hi))
        return 2 * adapter_total(config);
    for (int32_t block = config->lo; block < config->hi; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            if (hop_lora_has_core(lora, block))
                fixed += (size_t)(hop_lora_rank(lora, block, target) *
                                  hop_target_out(&config->model, target));
    const int64_t trained = hop_lora_parameters(&config->model, lora, config->lo, config->hi);
    return 2 * (adapter_total(config) + (size_t)trained) + fixed;
}

/* Labels may repeat a row, but no more rows than tokens carry one. */
static size_t head_rows(const struct hop_stage_config *config)
{
    return smaller((size_t)config->limits.tokens, (size_t)config->limits.labels);
}

static void lay_out_kept(const struct hop_stage_config *config, struct hop__stage_layout *out)
{
    struct hop__kept_layout *const kept = &out->kept;
    const size_t tokens = (size_t)config->limits.tokens, element = out->element;
    size_t end = 0;
    kept->h = reserve(&end, tokens * out->hidden * element);
    kept->rstd1 = reserve(&end, tokens * sizeof(float));
    kept->q = reserve(&end, tokens * out->heads_out * element);
    kept->k = reserve(&end, tokens * out->kv_out * element);
    kept->v = reserve(&end, tokens * out->kv_out * element);
    kept->attention = reserve(&end, tokens * out->heads_out * element);
    kept->lse = reserve(&end, tokens * (size_t)config->model.heads * sizeof(float));
    kept->mid = reserve(&end, tokens * out->hidden * element);
    kept->rstd2 = reserve(&end, tokens * sizeof(float));
    kept->gate = reserve(&end, tokens * out->intermediate * element);
    kept->up = reserve(&end, tokens * out->intermediate * element);
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        const size_t rank = (size_t)hop_lora_largest_rank(&config->lora, target);
        kept->u[target] = reserve(&end, tokens * rank * sizeof(float));
    }
    kept->bytes = end;
    out->kept_bytes = out->blocks * kept->bytes;
    out->kept_head = out->kept_bytes;
    if (hop__stage_keeps_loss(config))
        out->kept_bytes += hop_align(head_rows(config) * out->hidden * element);
}

static void lay_out_scratch(const struct hop_stage_config *config, struct hop__stage_layout *out)
{
    struct hop__scratch_layout *const scratch = &out->scratch;
    const size_t rows = out->rows, element = out->element;
    const size_t table = out->positions * (size_t)(config->model.head_dim / 2) * sizeof(float);
    const size_t qkv = out->heads_out + 2 * out->kv_out;
    const size_t work = larger(larger(2 * out->intermediate, qkv), out->hidden);
    const size_t backward_rows = config->slots > 0 ? (size_t)config->limits.tokens : 0;
    const size_t tangent_rows = config->tangents ? (size_t)config->limits.tokens : 0;
    const size_t again = larger(out->hidden, out->intermediate);
    const size_t perturbed = hop__stage_groups(config) * adapter_total(config);
    const size_t logits = config->head ? out->decoded * (size_t)config->model.vocabulary : 0;
    const size_t cached = out->cached * (size_t)config->cache * out->kv_out;
    size_t end = 0;
    scratch->stream = reserve(&end, rows * out->hidden * element);
    scratch->normed = reserve(&end, rows * out->wide * element);
    scratch->dnormed = reserve(&end, backward_rows * out->wide * element);
    scratch->again = reserve(&end, tangent_rows * again * element);
    scratch->rstd =
        reserve(&end, hop__stage_keeps_loss(config) ? backward_rows * sizeof(float) : 0);
    scratch->work = reserve(&end, rows * work * element);
    scratch->cosine = reserve(&end, table);
    scratch->sine = reserve(&end, table);
    const bool dynamic = config->model.rope_scaling == HOP_ROPE_DYNAMIC;
    const size_t rotation = dynamic ? (size_t)config->limits.tokens : 0;
    const size_t long_table = rotation * (size_t)(config->model.head_dim / 2) * sizeof(float);
    scratch->long_cosine = reserve(&end, long_table);
    scratch->long_sine = reserve(&end, long_table);
    scratch->perturbed = reserve(&end, perturbed * sizeof(float));
    scratch->logits = reserve(&end, logits * element);
    scratch->cache = reserve(&end, 2 * out->blocks * cached * element);
    scratch->bytes = end;
}

static size_t reserve_words(size_t *end, size_t words)
{
    return reserve(end, words * sizeof(int32_t)) / sizeof(int32_t);
}

static void lay_out_index(const struct hop_stage_config *config, struct hop__stage_layout *out)
{
    struct hop__index_layout *const index = &out->index;
    const size_t offsets = copies(config) * (size_t)config->limits.sequences + 1;
    const size_t labels = copies(config) * (size_t)config->limits.labels;
    size_t end = 0;
    index->ids = reserve_words(&end, out->rows);
    index->position = reserve_words(&end, out->rows);
    index->q_offset = reserve_words(&end, larger(offsets, 2));
    index->kv_offset = reserve_words(&end, larger(offsets, 2));
    index->row = reserve_words(&end, larger(labels, larger(out->decoded, 1)));
    index->ascending = reserve_words(&end, out->cached > 0 ? (size_t)config->limits.tokens : 0);
    index->label_row = reserve_words(&end, labels);
    index->label_id = reserve_words(&end, labels);
    index->words = end / sizeof(int32_t);
}

bool hop__stage_has_output(const struct hop_stage_config *config)
{
    return config->head || config->exit;
}

bool hop__stage_keeps_loss(const struct hop_stage_config *config)
{
    return config->head && config->gradient != HOP_GRADIENT_ZEROTH_ORDER;
}

bool hop__stage_biased(const struct hop_stage_config *config, enum hop_target target)
{
    const bool sums = target == HOP_O_PROJ || target == HOP_DOWN_PROJ;
    return hop_target_biased(&config->model, target) &&
           (!sums || hop_shard_is_first(&config->shard));
}

static size_t vector_bytes(const struct hop_stage_config *config,
                           const struct hop__stage_layout *layout)
{
    const size_t gain = hop_align(layout->hidden * sizeof(float));
    size_t block = HOP_BLOCK_NORMS * gain;
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        if (hop__stage_biased(config, target))
            block += hop_align((size_t)hop_target_out(&config->model, target) * sizeof(float));
    return layout->blocks * block + hop__stage_has_output(config) * gain;
}

struct hop_stage_config hop__stage_local(const struct hop_stage_config *config)
{
    struct hop_stage_config local = *config;
    local.model = hop_shard_model(&config->model, &config->shard);
    return local;
}

void hop__stage_layout(const struct hop_stage_config *config, struct hop__stage_layout *out)
{
    const struct hop_model_config *const model = &config->model;
    *out = (struct hop__stage_layout){
        .element = hop_dtype_size(config->dtype),
        .hidden = (size_t)model->hidden,
        .heads_out = (size_t)hop_target_out(model, HOP_Q_PROJ),
        .kv_out = (size_t)hop_target_out(model, HOP_K_PROJ),
        .intermediate = (size_t)model->intermediate,
        .blocks = (size_t)(config->hi - config->lo),
        .rows = copies(config) * (size_t)config->limits.tokens,
        .positions = larger((size_t)config->limits.tokens, (size_t)config->cache),
    };
    out->wide = larger(out->hidden, out->heads_out);
    out->cached = config->cache > 0 ? larger((size_t)config->cache_sequences, 1) : 0;
    out->decoded = smaller(out->cached, (size_t)config->limits.sequences);
    out->vectors_bytes = vector_bytes(config, out);
    lay_out_kept(config, out);
    lay_out_scratch(config, out);
    lay_out_index(config, out);
}

static size_t matrix_bytes(const struct hop_stage_config *config,
                           const struct hop__stage_layout *layout)
{
    const struct hop_model_config *const model = &config->model;
    const bool output = hop__stage_has_output(config);
    const size_t tables =
        (size_t)config->embed + (size_t)(output && !(config->embed && model->tied));
    size_t elements = tables * (size_t)hop_model_embed_parameters(model);
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        elements +=
            layout->blocks * (size_t)(hop_target_in(model, target) * hop_target_out(model, target));
    return elements * layout->element;
}

struct hop_stage_bytes hop_stage_bytes(const struct hop_stage_config *config)
{
    const struct hop_stage_config local = hop__stage_local(config);
    struct hop__stage_layout layout;
    hop__stage_layout(&local, &layout);
    return (struct hop_stage_bytes){
        .weights = matrix_bytes(&local, &layout) + layout.vectors_bytes,
        .parameters = parameter_numbers(&local) * sizeof(float),
        .kept = layout.kept_bytes,
        .scratch = layout.scratch.bytes + layout.index.words * sizeof(int32_t),
    };
}
