/* Causal grouped-query attention, backward. A task is one sequence and key/value head: it owns its
 * gradients of keys and values, so their sums have one order whatever the threads do.
 *
 * With S = scale K Q^T, P = exp(S - lse), D = rowsum(dO * O):
 * dV = P dO, dS = P * (V dO^T - D), dK = scale dS Q, dQ^T = scale K^T dS. */
#include <math.h>

#include "ops/cpu/attention.h"
#include "ops/cpu/tile.h"

struct call {
    enum hop_dtype dtype;
    const struct hop_attention *shape;
    const void *q, *k, *v, *out;
    const float *lse;
    const void *dout;
    void *dq, *dk, *dv;
    /* offsets into a thread's scratch */
    size_t query, dout_t, rows_q, rows_dout, score, dscore, dquery, wide_k, wide_v, sum_k, sum_v;
};

/* What a task carries from block to block. */
struct task {
    const struct call *call;
    struct hop_heads heads;
    struct hop_rows k, v;
    float *query, *dout_t;     /* (d, HOP_COLUMNS) */
    float *rows_q, *rows_dout; /* (HOP_COLUMNS, padded) */
    float *score, *dscore;     /* (HOP_KEYS, HOP_COLUMNS) */
    float *dquery;             /* (d, HOP_COLUMNS) */
    float *sum_k, *sum_v;      /* (keys, padded) */
};

/* to (count, padded) = scale * the block's rows. */
static void copy_rows(const struct hop_heads *heads, const struct hop_block *block,
                      const void *from, const int64_t at[HOP_COLUMNS], float scale, float *to)
{
    for (int64_t c = 0; c < block->count; c++)
        for (int64_t e = 0; e < heads->d; e += HOP_LANES)
            hop_v_store_f32(to + c * heads->padded + e,
                            hop_v_load_upto(from, heads->dtype, at[c] + e, at[c] + heads->d) *
                                scale);
}

/* lse and D of the block's columns; unused columns get an lse that makes their P zero. */
static void column_terms(const struct task *task, const struct hop_block *block,
                         hop_v16 lse[HOP_VECTORS], hop_v16 mean[HOP_VECTORS])
{
    const struct hop_heads *const heads = &task->heads;
    for (int v = 0; v < HOP_VECTORS; v++) {
        lse[v] = hop_v_set(INFINITY);
        mean[v] = (hop_v16){0};
    }
    for (int64_t c = 0; c < block->count; c++) {
        const int64_t at = block->out[c];
        hop_v16 dot = {0};
        for (int64_t e = 0; e < heads->d; e += HOP_LANES)
            dot += hop_v_load_f32(task->rows_dout + c * heads->padded + e) *
                   hop_v_load_upto(task->call->out, heads->dtype, at + e, at + heads->d);
        mean[c / HOP_LANES][c % HOP_LANES] = hop_v_sum(dot);
        lse[c / HOP_LANES][c % HOP_LANES] = task->call->lse[block->lse[c]];
    }
}

/* score becomes P, dscore (dP so far) becomes dS. */
static void score_gradient(const struct task *task, const struct hop_block *block, int64_t n,
                           const hop_v16 lse[HOP_VECTORS], const hop_v16 mean[HOP_VECTORS])
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t v = 0; v < block->vectors; v++) {
            float *const s = task->score + j * HOP_COLUMNS + v * HOP_LANES;
            float *const ds = task->dscore + j * HOP_COLUMNS + v * HOP_LANES;
            const hop_v16 p = hop_v_exp(hop_v_load_f32(s) - lse[v]);
            hop_v_store_f32(s, p);
            hop_v_store_f32(ds, p * (hop_v_load_f32(ds) - mean[v]));
        }
}

/* c (n keys, columns) = rows (n, d) times columns (d, HOP_COLUMNS) */
static void keys_by_columns(const struct task *task, const struct hop_block *block, int64_t n,
                            const float *rows, int64_t stride, const float *columns, float *c)
{
    hop_tile_multiply(&(struct hop_tile){.m = n,
                                         .n = block->vectors * HOP_LANES,
                                         .k = task->heads.d,
                                         .a = rows,
                                         .row = stride,
                                         .step = 1,
                                         .b = columns,
                                         .ldb = HOP_COLUMNS,
                                         .c = c,
                                         .ldc = HOP_COLUMNS});
}

/* sum (n keys, padded) += c (n, columns) times rows (columns, padded) */
static void add_columns(const struct task *task, const struct hop_block *block, int64_t n,
                        const float *c, const float *rows, float *sum)
{
    hop_tile_multiply_add(&(struct hop_tile){.m = n,
                                             .n = task->heads.padded,
                                             .k = block->count,
                                             .a = c,
                                             .row = HOP_COLUMNS,
                                             .step = 1,
                                             .b = rows,
                                             .ldb = task->heads.padded,
                                             .c = sum,
                                             .ldc = task->heads.padded});
}

static void backward_tile(const struct task *task, const struct hop_block *block, int64_t key,
                          const hop_v16 lse[HOP_VECTORS], const hop_v16 mean[HOP_VECTORS])
{
    const struct hop_heads *const heads = &task->heads;
    const int64_t n = block->most - key < HOP_KEYS ? block->most - key : HOP_KEYS;
    const float *const k = task->k.data + key * task->k.stride;
    const float *const v = task->v.data + key * task->v.stride;
    keys_by_columns(task, block, n, k, task->k.stride, task->query, task->score);
    keys_by_columns(task, block, n, v, task->v.stride, task->dout_t, task->dscore);
    if (key + n > block->least)
        hop_block_mask(block, key, n, task->score);
    score_gradient(task, block, n, lse, mean);
    add_columns(task, block, n, task->score, task->rows_dout, task->sum_v + key * heads->padded);
    add_columns(task, block, n, task->dscore, task->rows_q, task->sum_k + key * heads->padded);
    hop_tile_multiply_add(&(struct hop_tile){.m = heads->d,
                                             .n = block->vectors * HOP_LANES,
                                             .k = n,
                                             .a = k,
                                             .row = 1,
                                             .step = task->k.stride,
                                             .b = task->dscore,
                                             .ldb = HOP_COLUMNS,
                                             .c = task->dquery,
                                             .ldc = HOP_COLUMNS});
}

static void backward_block(const struct task *task, int64_t first)
{
    const struct call *const call = task->call;
    const struct hop_heads *const heads = &task->heads;
    struct hop_block block;
    hop_block_find(heads, first, &block);
    const float scale = heads->shape->scale;
    hop_v16 lse[HOP_VECTORS], mean[HOP_VECTORS], factor[HOP_VECTORS];
    hop_block_transpose(heads, &block, call->q, block.query, scale, task->query);
    hop_block_transpose(heads, &block, call->dout, block.out, 1.0f, task->dout_t);
    copy_rows(heads, &block, call->q, block.query, scale, task->rows_q);
    copy_rows(heads, &block, call->dout, block.out, 1.0f, task->rows_dout);
    column_terms(task, &block, lse, mean);
    memset(task->dquery, 0, (size_t)(heads->d * HOP_COLUMNS) * sizeof *task->dquery);
    for (int64_t key = 0; key < block.most; key += HOP_KEYS)
        backward_tile(task, &block, key, lse, mean);
    for (int v = 0; v < HOP_VECTORS; v++)
        factor[v] = hop_v_set(scale);
    hop_block_restore(heads, &block, task->dquery, factor, block.query, call->dq);
}

static void store_rows(const struct hop_heads *heads, const float *sum, void *to)
{
    for (int64_t j = 0; j < heads->keys; j++) {
        const int64_t at = hop_heads_key(heads, j);
        for (int64_t e = 0; e < heads->d; e += HOP_LANES)
            hop_v_store_upto(to, heads->dtype, at + e, hop_v_load_f32(sum + j * heads->padded + e),
                             at + heads->d);
    }
}

static float *floats(char *scratch, size_t at)
{
    return (float *)(void *)(scratch + at);
}

static void backward_task(const void *of, int64_t index, char *scratch)
{
    const struct call *const call = of;
    const int32_t kv_heads = call->shape->kv_heads;
    struct task task = {.call = call,
                        .heads = hop_heads_at(call->shape, call->dtype, (int32_t)(index / kv_heads),
                                              (int32_t)(index % kv_heads)),
                        .query = floats(scratch, call->query),
                        .dout_t = floats(scratch, call->dout_t),
                        .rows_q = floats(scratch, call->rows_q),
                        .rows_dout = floats(scratch, call->rows_dout),
                        .score = floats(scratch, call->score),
                        .dscore = floats(scratch, call->dscore),
                        .dquery = floats(scratch, call->dquery),
                        .sum_k = floats(scratch, call->sum_k),
                        .sum_v = floats(scratch, call->sum_v)};
    const struct hop_heads *const heads = &task.heads;
    const size_t bytes = (size_t)(heads->keys * heads->padded) * sizeof(float);
    task.k = hop_heads_rows(heads, call->k, 0, heads->keys, floats(scratch, call->wide_k));
    task.v = hop_heads_rows(heads, call->v, 0, heads->keys, floats(scratch, call->wide_v));
    memset(task.sum_k, 0, bytes);
    memset(task.sum_v, 0, bytes);
    for (int64_t first = 0; first < heads->columns; first += HOP_COLUMNS)
        backward_block(&task, first);
    store_rows(heads, task.sum_k, call->dk);
    store_rows(heads, task.sum_v, call->dv);
}

static size_t place_scratch(struct call *call)
{
    const struct hop_attention *const shape = call->shape;
    const size_t padded = ((size_t)shape->head_dim + HOP_LANES - 1) / HOP_LANES * HOP_LANES;
    const size_t block = padded * HOP_COLUMNS * sizeof(float);
    size_t keys = 0, each = 0;
    for (int32_t s = 0; s < shape->sequences; s++) {
        const size_t own = (size_t)(shape->kv_offset[s + 1] - shape->kv_offset[s]);
        keys = own > keys ? own : keys;
    }
    const size_t run = keys * padded * sizeof(float);
    call->query = hop_cpu_place(&each, block);
    call->dout_t = hop_cpu_place(&each, block);
    call->rows_q = hop_cpu_place(&each, block);
    call->rows_dout = hop_cpu_place(&each, block);
    call->dquery = hop_cpu_place(&each, block);
    call->score = hop_cpu_place(&each, sizeof(float[HOP_KEYS][HOP_COLUMNS]));
    call->dscore = hop_cpu_place(&each, sizeof(float[HOP_KEYS][HOP_COLUMNS]));
    call->sum_k = hop_cpu_place(&each, run);
    call->sum_v = hop_cpu_place(&each, run);
    call->wide_k = hop_cpu_place(&each, call->dtype == HOP_F32 ? 0 : run);
    call->wide_v = hop_cpu_place(&each, call->dtype == HOP_F32 ? 0 : run);
    return each;
}

hop_status hop_cpu_attention_backward(struct hop_backend *backend, enum hop_dtype dtype,
                                      const struct hop_attention *shape, const void *q,
                                      const void *k, const void *v, const void *out,
                                      const float *lse, const void *dout, void *dq, void *dk,
                                      void *dv, struct hop_error *err)
{
    struct call call = {.dtype = dtype,
                        .shape = shape,
                        .q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .lse = lse,
                        .dout = dout,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv};
    const size_t each = place_scratch(&call);
    return hop_heads_run(backend, (int64_t)shape->sequences * shape->kv_heads, each, backward_task,
                         &call, err);
}
