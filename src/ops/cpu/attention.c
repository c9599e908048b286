/* Causal grouped-query attention, forward: online softmax over tiles of keys (Dao et al. 2022). */
#include "ops/cpu/attention.h"

#include <math.h>

#include "ops/cpu/tile.h"

struct hop_heads hop_heads_at(const struct hop_attention *shape, enum hop_dtype dtype,
                              int32_t sequence, int32_t kv_head)
{
    struct hop_heads heads = {.shape = shape,
                              .dtype = dtype,
                              .sequence = sequence,
                              .kv_head = kv_head,
                              .d = shape->head_dim};
    const int32_t group = hop_attention_group(shape);
    const int32_t begin = kv_head * group - shape->first, end = begin + group;
    heads.first = begin > 0 ? begin : 0;
    heads.group = (end < shape->heads ? end : shape->heads) - heads.first;
    heads.queries = shape->q_offset[sequence + 1] - shape->q_offset[sequence];
    heads.keys = shape->kv_offset[sequence + 1] - shape->kv_offset[sequence];
    heads.columns = heads.queries * heads.group;
    heads.padded = (heads.d + HOP_LANES - 1) / HOP_LANES * HOP_LANES;
    return heads;
}

int64_t hop_heads_key(const struct hop_heads *heads, int64_t key)
{
    return (heads->shape->kv_offset[heads->sequence] + key) * heads->shape->kv_stride +
           heads->kv_head * heads->d;
}

void hop_block_find(const struct hop_heads *heads, int64_t first, struct hop_block *block)
{
    const struct hop_attention *const shape = heads->shape;
    const int64_t left = heads->columns - first;
    int64_t query = first / heads->group, head = first % heads->group;
    block->count = left < HOP_COLUMNS ? left : HOP_COLUMNS;
    block->vectors = (block->count + HOP_LANES - 1) / HOP_LANES;
    for (int64_t c = 0; c < HOP_COLUMNS; c++) {
        const int64_t row = shape->q_offset[heads->sequence] + query;
        const int64_t own = heads->first + head;
        block->query[c] = row * shape->q_stride + own * heads->d;
        block->lse[c] = row * shape->heads + own;
        block->out[c] = block->lse[c] * heads->d;
        block->most = heads->keys - heads->queries + query + 1;
        block->least = c ? block->least : block->most;
        block->visible[c / HOP_LANES][c % HOP_LANES] = (int32_t)block->most;
        if (c + 1 < block->count && ++head == heads->group) {
            head = 0;
            query++;
        }
    }
}

void hop_block_transpose(const struct hop_heads *heads, const struct hop_block *block,
                         const void *from, const int64_t at[HOP_COLUMNS], float scale, float *to)
{
    for (int64_t c = 0; c < block->vectors * HOP_LANES; c += HOP_LANES)
        for (int64_t e = 0; e < heads->d; e += HOP_LANES) {
            const int64_t n = heads->d - e < HOP_LANES ? heads->d - e : HOP_LANES;
            hop_v16 r[HOP_LANES] = {0};
            for (int64_t i = 0; i < HOP_LANES && c + i < block->count; i++) {
                const int64_t row = at[c + i] + e;
                r[i] = (n < HOP_LANES ? hop_v_load_part(from, heads->dtype, row, n)
                                      : hop_v_load(from, heads->dtype, row)) *
                       scale;
            }
            hop_v_transpose(r);
            for (int64_t i = 0; i < n; i++)
                hop_v_store_f32(to + (e + i) * HOP_COLUMNS + c, r[i]);
        }
}

void hop_block_restore(const struct hop_heads *heads, const struct hop_block *block,
                       const float *from, const hop_v16 factor[HOP_VECTORS],
                       const int64_t at[HOP_COLUMNS], void *to)
{
    for (int64_t c = 0; c < block->vectors * HOP_LANES; c += HOP_LANES)
        for (int64_t e = 0; e < heads->d; e += HOP_LANES) {
            const int64_t n = heads->d - e < HOP_LANES ? heads->d - e : HOP_LANES;
            hop_v16 r[HOP_LANES] = {0};
            for (int64_t i = 0; i < n; i++)
                r[i] = hop_v_load_f32(from + (e + i) * HOP_COLUMNS + c) * factor[c / HOP_LANES];
            hop_v_transpose(r);
            for (int64_t i = 0; i < HOP_LANES && c + i < block->count; i++) {
                const int64_t row = at[c + i] + e;
                if (n < HOP_LANES)
                    hop_v_store_part(to, heads->dtype, row, r[i], n);
                else
                    hop_v_store(to, heads->dtype, row, r[i]);
            }
        }
}

struct hop_rows hop_heads_rows(const struct hop_heads *heads, const void *from, int64_t begin,
                               int64_t end, float *wide)
{
    const int64_t first = hop_heads_key(heads, begin), stride = heads->shape->kv_stride;
    if (heads->dtype == HOP_F32)
        return (struct hop_rows){.data = (const float *)from + first, .stride = stride};
    for (int64_t j = 0; j < end - begin; j++)
        for (int64_t e = 0; e < heads->d; e += HOP_LANES) {
            const uint16_t *const row = (const uint16_t *)from + first + j * stride;
            hop_v_store_f32(wide + j * heads->padded + e,
                            hop_v_load_upto(row, HOP_BF16, e, heads->d));
        }
    return (struct hop_rows){.data = wide, .stride = heads->padded};
}

void hop_block_mask(const struct hop_block *block, int64_t key, int64_t n, float *score)
{
    const hop_v16 hidden = hop_v_set(-INFINITY);
    for (int64_t j = block->least > key ? block->least - key : 0; j < n; j++)
        for (int64_t v = 0; v < block->vectors; v++) {
            float *const at = score + j * HOP_COLUMNS + v * HOP_LANES;
            const hop_i16 seen = block->visible[v] > (int32_t)(key + j);
            hop_v_store_f32(at, hop_v_select(seen, hop_v_load_f32(at), hidden));
        }
}

/* Of a key/value head that a whole group reads; others have fewer. */
static int64_t blocks_of(const struct hop_attention *shape, int32_t sequence)
{
    const int64_t queries = shape->q_offset[sequence + 1] - shape->q_offset[sequence];
    const int64_t columns = queries * hop_attention_group(shape);
    return (columns + HOP_COLUMNS - 1) / HOP_COLUMNS;
}

hop_status hop_heads_run(struct hop_backend *backend, int64_t tasks, size_t each,
                         hop_heads_work *task, const void *call, struct hop_error *err)
{
    HOP_TRY(hop_cpu_reserve(backend, each, 0, err));
    const int threads = tasks < backend->threads ? (int)tasks : backend->threads;
#pragma omp parallel num_threads(threads > 0 ? threads : 1)
    {
        char *const scratch = hop_cpu_scratch(backend);
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < tasks; t++)
            task(call, t, scratch);
    }
    return HOP_OK;
}

int64_t hop_heads_tasks(const struct hop_attention *shape)
{
    int64_t tasks = 0;
    for (int32_t s = 0; s < shape->sequences; s++)
        tasks += blocks_of(shape, s) * shape->kv_heads;
    return tasks;
}

/* Task i in the order sequence, key/value head, block. */
struct hop_heads hop_heads_task(const struct hop_attention *shape, enum hop_dtype dtype,
                                int64_t task, int64_t *first)
{
    int32_t sequence = 0;
    int64_t blocks = blocks_of(shape, 0);
    while (task >= blocks * shape->kv_heads) {
        task -= blocks * shape->kv_heads;
        blocks = blocks_of(shape, ++sequence);
    }
    /* Later blocks see more keys: they go first, so that the short ones fill the gaps at the end.
     */
    *first = (blocks - 1 - task % blocks) * HOP_COLUMNS;
    return hop_heads_at(shape, dtype, sequence, (int32_t)(task / blocks));
}

/* --- forward --- */

struct call {
    enum hop_dtype dtype;
    const struct hop_attention *shape;
    const void *q, *k, *v;
    void *out;
    float *lse;
    size_t query, score, mixed, wide_k, wide_v; /* offsets into a thread's scratch */
};

/* Running maximum and sum of exponentials of a block's columns. */
struct softmax {
    hop_v16 largest[HOP_VECTORS], total[HOP_VECTORS];
};

static void rescale(float *mixed, int64_t d, hop_v16 factor)
{
    for (int64_t e = 0; e < d; e++)
        hop_v_store_f32(mixed + e * HOP_COLUMNS, hop_v_load_f32(mixed + e * HOP_COLUMNS) * factor);
}

/* Scores become exponentials under the new maximum; the sum so far and, where there is one and the
 * maximum grew, `mixed` are rescaled to it. */
static void online_softmax(struct softmax *state, const struct hop_block *block, int64_t n,
                           int64_t d, float *score, float *mixed)
{
    for (int64_t v = 0; v < block->vectors; v++) {
        float *const column = score + v * HOP_LANES;
        hop_v16 largest = state->largest[v], total = {0};
        for (int64_t j = 0; j < n; j++)
            largest = hop_v_max(largest, hop_v_load_f32(column + j * HOP_COLUMNS));
        for (int64_t j = 0; j < n; j++) {
            const hop_v16 e = hop_v_exp(hop_v_load_f32(column + j * HOP_COLUMNS) - largest);
            hop_v_store_f32(column + j * HOP_COLUMNS, e);
            total += e;
        }
        const hop_v16 factor = hop_v_exp(state->largest[v] - largest);
        state->total[v] = state->total[v] * factor + total;
        if (mixed && hop_v_largest(largest - state->largest[v]) > 0.0f)
            rescale(mixed + v * HOP_LANES, d, factor);
        state->largest[v] = largest;
    }
}

static void forward_tile(const struct call *call, const struct hop_heads *heads,
                         const struct hop_block *block, char *scratch, int64_t key,
                         struct softmax *state)
{
    float *const query = (float *)(void *)(scratch + call->query);
    float *const score = (float *)(void *)(scratch + call->score);
    float *const mixed = (float *)(void *)(scratch + call->mixed);
    const int64_t n = block->most - key < HOP_KEYS ? block->most - key : HOP_KEYS;
    const int64_t columns = block->vectors * HOP_LANES;
    const struct hop_rows k =
        hop_heads_rows(heads, call->k, key, key + n, (float *)(void *)(scratch + call->wide_k));
    const struct hop_rows v =
        hop_heads_rows(heads, call->v, key, key + n, (float *)(void *)(scratch + call->wide_v));
    hop_tile_multiply(&(struct hop_tile){.m = n,
                                         .n = columns,
                                         .k = heads->d,
                                         .a = k.data,
                                         .row = k.stride,
                                         .step = 1,
                                         .b = query,
                                         .ldb = HOP_COLUMNS,
                                         .c = score,
                                         .ldc = HOP_COLUMNS});
    if (key + n > block->least)
        hop_block_mask(block, key, n, score);
    online_softmax(state, block, n, heads->d, score, key ? mixed : NULL);
    const struct hop_tile mix = {.m = heads->d,
                                 .n = columns,
                                 .k = n,
                                 .a = v.data,
                                 .row = 1,
                                 .step = v.stride,
                                 .b = score,
                                 .ldb = HOP_COLUMNS,
                                 .c = mixed,
                                 .ldc = HOP_COLUMNS};
    if (key)
        hop_tile_multiply_add(&mix);
    else
        hop_tile_multiply(&mix);
}

static void store_lse(const struct hop_block *block, const struct softmax *state, float *lse)
{
    for (int64_t c = 0; c < block->count; c++)
        lse[block->lse[c]] = state->largest[c / HOP_LANES][c % HOP_LANES] +
                             logf(state->total[c / HOP_LANES][c % HOP_LANES]);
}

static void forward_block(const struct call *call, const struct hop_heads *heads, int64_t first,
                          char *scratch)
{
    struct hop_block block;
    hop_block_find(heads, first, &block);
    float *const mixed = (float *)(void *)(scratch + call->mixed);
    struct softmax state;
    for (int v = 0; v < HOP_VECTORS; v++) {
        state.largest[v] = hop_v_set(-INFINITY);
        state.total[v] = (hop_v16){0};
    }
    hop_block_transpose(heads, &block, call->q, block.query, heads->shape->scale,
                        (float *)(void *)(scratch + call->query));
    for (int64_t key = 0; key < block.most; key += HOP_KEYS)
        forward_tile(call, heads, &block, scratch, key, &state);
    hop_v16 factor[HOP_VECTORS];
    for (int64_t v = 0; v < block.vectors; v++)
        factor[v] = 1.0f / state.total[v];
    hop_block_restore(heads, &block, mixed, factor, block.out, call->out);
    if (call->lse)
        store_lse(&block, &state, call->lse);
}

static void forward_task(const void *of, int64_t task, char *scratch)
{
    const struct call *const call = of;
    int64_t first;
    const struct hop_heads heads = hop_heads_task(call->shape, call->dtype, task, &first);
    if (first < heads.columns)
        forward_block(call, &heads, first, scratch);
}

hop_status hop_cpu_attention_forward(struct hop_backend *backend, enum hop_dtype dtype,
                                     const struct hop_attention *shape, const void *q,
                                     const void *k, const void *v, void *out, float *lse,
                                     struct hop_error *err)
{
    struct call call = {
        .dtype = dtype, .shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse};
    const size_t padded = (size_t)shape->head_dim + HOP_LANES;
    size_t each = 0;
    call.query = hop_cpu_place(&each, padded * HOP_COLUMNS * sizeof(float));
    call.score = hop_cpu_place(&each, sizeof(float[HOP_KEYS][HOP_COLUMNS]));
    call.mixed = hop_cpu_place(&each, padded * HOP_COLUMNS * sizeof(float));
    call.wide_k = hop_cpu_place(&each, padded * HOP_KEYS * sizeof(float));
    call.wide_v = hop_cpu_place(&each, padded * HOP_KEYS * sizeof(float));
    return hop_heads_run(backend, hop_heads_tasks(shape), each, forward_task, &call, err);
}
