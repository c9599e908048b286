/* Tangents of causal grouped-query attention. A task is one block of columns, as in forward: no sum
 * crosses blocks. Probabilities come from lse, once a tile for all tangents.
 *
 * With S = scale K Q^T, P = exp(S - lse), dS = scale (K dQ^T + dK Q^T), m = colsum(P * dS):
 * dO^T = V^T (P * dS) + dV^T P - m O^T, one pass over the keys.
 *
 * Adding a constant to a column of dS changes nothing, so the mean over the first tile is taken
 * off: what the keys have in common would otherwise appear in both V^T (P * dS) and m O^T, and
 * their difference would carry the rounding of O. */
#include <math.h>

#include "ops/cpu/attention.h"
#include "ops/cpu/tile.h"

struct call {
    enum hop_dtype dtype;
    const struct hop_attention *shape;
    int32_t count;
    const void *q, *k, *v, *out;
    const float *lse;
    const void *dq, *dk, *dv;
    void *dout;
    /* offsets into a thread's scratch */
    size_t query, lse_t, score, dscore, wide_k, wide_v, wide_dk, wide_dv, state;
    size_t state_bytes; /* a tangent */
};

/* What a tangent carries from tile to tile; then (d, HOP_COLUMNS) each of dq transposed and the sum
 * so far. */
struct state {
    hop_v16 shift[HOP_VECTORS], mean[HOP_VECTORS];
};

struct task {
    const struct call *call;
    struct hop_heads heads;
    struct hop_block block;
    char *scratch;
};

static float *floats(const struct task *task, size_t at)
{
    return (float *)(void *)(task->scratch + at);
}

static struct state *state_of(const struct task *task, int64_t tangent)
{
    return (struct state *)(void *)(task->scratch + task->call->state +
                                    (size_t)tangent * task->call->state_bytes);
}

static float *dquery_of(const struct task *task, int64_t tangent)
{
    return (float *)(void *)(state_of(task, tangent) + 1);
}

static float *mixed_of(const struct task *task, int64_t tangent)
{
    return dquery_of(task, tangent) + task->heads.padded * HOP_COLUMNS;
}

/* Tangent `index` of an array that has `each` elements a tangent. */
static const void *tangent_at(const struct task *task, const void *from, int64_t index,
                              int64_t each)
{
    return (const char *)from + (size_t)(index * each) * hop_dtype_size(task->call->dtype);
}

static int64_t query_elements(const struct hop_attention *shape)
{
    return shape->q_offset[shape->sequences] * shape->q_stride;
}

static int64_t key_elements(const struct hop_attention *shape)
{
    return shape->kv_offset[shape->sequences] * shape->kv_stride;
}

/* c (n keys, columns) = [c +] rows (n, d) times columns (d, HOP_COLUMNS) */
static struct hop_tile keys_by_columns(const struct task *task, int64_t n, struct hop_rows rows,
                                       const float *columns, float *c)
{
    return (struct hop_tile){.m = n,
                             .n = task->block.vectors * HOP_LANES,
                             .k = task->heads.d,
                             .a = rows.data,
                             .row = rows.stride,
                             .step = 1,
                             .b = columns,
                             .ldb = HOP_COLUMNS,
                             .c = c,
                             .ldc = HOP_COLUMNS};
}

/* sum (d, columns) += rows^T (d, n keys) times c (n keys, columns) */
static void mix(const struct task *task, int64_t n, struct hop_rows rows, const float *c,
                float *sum)
{
    hop_tile_multiply_add(&(struct hop_tile){.m = task->heads.d,
                                             .n = task->block.vectors * HOP_LANES,
                                             .k = n,
                                             .a = rows.data,
                                             .row = 1,
                                             .step = rows.stride,
                                             .b = c,
                                             .ldb = HOP_COLUMNS,
                                             .c = sum,
                                             .ldc = HOP_COLUMNS});
}

static void probabilities(const struct task *task, int64_t n, float *score)
{
    const float *const lse = floats(task, task->call->lse_t);
    for (int64_t j = 0; j < n; j++)
        for (int64_t v = 0; v < task->block.vectors; v++) {
            float *const s = score + j * HOP_COLUMNS + v * HOP_LANES;
            hop_v_store_f32(s, hop_v_exp(hop_v_load_f32(s) - hop_v_load_f32(lse + v * HOP_LANES)));
        }
}

/* Mean of dS under P over the first tile; zero where all of P is. */
static void find_shift(const struct task *task, int64_t n, const float *score, const float *dscore,
                       struct state *state)
{
    for (int64_t v = 0; v < task->block.vectors; v++) {
        hop_v16 total = {0}, sum = {0};
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = j * HOP_COLUMNS + v * HOP_LANES;
            const hop_v16 p = hop_v_load_f32(score + at);
            total += p;
            sum += p * hop_v_load_f32(dscore + at);
        }
        const hop_i16 some = (hop_i16)(total > 0.0f);
        state->shift[v] =
            hop_v_select(some, sum / hop_v_select(some, total, hop_v_set(1.0f)), (hop_v16){0});
    }
}

/* dscore becomes P * (dS - shift), whose column sums are added to the mean. */
static void weigh(const struct task *task, int64_t n, const float *score, float *dscore,
                  struct state *state)
{
    for (int64_t v = 0; v < task->block.vectors; v++) {
        hop_v16 sum = {0};
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = j * HOP_COLUMNS + v * HOP_LANES;
            const hop_v16 moved =
                hop_v_load_f32(score + at) * (hop_v_load_f32(dscore + at) - state->shift[v]);
            hop_v_store_f32(dscore + at, moved);
            sum += moved;
        }
        state->mean[v] += sum;
    }
}

/* Keys and values of the primal call and the tile's probabilities. */
struct tile {
    int64_t key, n;
    struct hop_rows k, v;
    float *score;
};

static void tangent_tile(const struct task *task, const struct tile *tile, int64_t index)
{
    const struct call *const call = task->call;
    const struct hop_heads *const heads = &task->heads;
    const int64_t each = key_elements(call->shape), end = tile->key + tile->n;
    struct state *const state = state_of(task, index);
    float *const dscore = floats(task, call->dscore);
    const struct hop_rows dk = hop_heads_rows(heads, tangent_at(task, call->dk, index, each),
                                              tile->key, end, floats(task, call->wide_dk));
    const struct hop_rows dv = hop_heads_rows(heads, tangent_at(task, call->dv, index, each),
                                              tile->key, end, floats(task, call->wide_dv));
    const struct hop_tile by_query =
        keys_by_columns(task, tile->n, tile->k, dquery_of(task, index), dscore);
    const struct hop_tile by_key =
        keys_by_columns(task, tile->n, dk, floats(task, call->query), dscore);
    hop_tile_multiply(&by_query);
    hop_tile_multiply_add(&by_key);
    if (tile->key == 0)
        find_shift(task, tile->n, tile->score, dscore, state);
    weigh(task, tile->n, tile->score, dscore, state);
    mix(task, tile->n, tile->v, dscore, mixed_of(task, index));
    mix(task, tile->n, dv, tile->score, mixed_of(task, index));
}

static void block_tile(const struct task *task, int64_t key)
{
    const struct call *const call = task->call;
    const int64_t left = task->block.most - key, n = left < HOP_KEYS ? left : HOP_KEYS;
    const struct tile tile = {
        .key = key,
        .n = n,
        .k = hop_heads_rows(&task->heads, call->k, key, key + n, floats(task, call->wide_k)),
        .v = hop_heads_rows(&task->heads, call->v, key, key + n, floats(task, call->wide_v)),
        .score = floats(task, call->score)};
    const struct hop_tile scores =
        keys_by_columns(task, n, tile.k, floats(task, call->query), tile.score);
    hop_tile_multiply(&scores);
    if (key + n > task->block.least)
        hop_block_mask(&task->block, key, n, tile.score);
    probabilities(task, n, tile.score);
    for (int64_t c = 0; c < call->count; c++)
        tangent_tile(task, &tile, c);
}

/* Unused columns get an lse that makes their P zero. */
static void begin_block(const struct task *task)
{
    const struct call *const call = task->call;
    const struct hop_block *const block = &task->block;
    const float scale = call->shape->scale;
    float *const lse = floats(task, call->lse_t);
    for (int64_t c = 0; c < HOP_COLUMNS; c++)
        lse[c] = c < block->count ? call->lse[block->lse[c]] : INFINITY;
    hop_block_transpose(&task->heads, block, call->q, block->query, scale,
                        floats(task, call->query));
    for (int64_t c = 0; c < call->count; c++) {
        memset(state_of(task, c), 0, call->state_bytes);
        hop_block_transpose(&task->heads, block,
                            tangent_at(task, call->dq, c, query_elements(call->shape)),
                            block->query, scale, dquery_of(task, c));
    }
}

/* mixed -= m O^T, and its rows where they belong. query is no longer needed. */
static void finish_tangent(const struct task *task, int64_t index, const float *out)
{
    const struct call *const call = task->call;
    const struct state *const state = state_of(task, index);
    float *const mixed = mixed_of(task, index);
    hop_v16 factor[HOP_VECTORS];
    for (int64_t v = 0; v < task->block.vectors; v++) {
        factor[v] = hop_v_set(1.0f);
        for (int64_t e = 0; e < task->heads.d; e++) {
            const int64_t at = e * HOP_COLUMNS + v * HOP_LANES;
            hop_v_store_f32(mixed + at,
                            hop_v_load_f32(mixed + at) - state->mean[v] * hop_v_load_f32(out + at));
        }
    }
    const int64_t each =
        (int64_t)call->shape->q_offset[call->shape->sequences] * call->shape->heads * task->heads.d;
    char *const to = (char *)call->dout + (size_t)(index * each) * hop_dtype_size(call->dtype);
    hop_block_restore(&task->heads, &task->block, mixed, factor, task->block.out, to);
}

static void tangent_block(const struct task *task)
{
    const struct call *const call = task->call;
    float *const out = floats(task, call->query);
    begin_block(task);
    for (int64_t key = 0; key < task->block.most; key += HOP_KEYS)
        block_tile(task, key);
    hop_block_transpose(&task->heads, &task->block, call->out, task->block.out, 1.0f, out);
    for (int64_t c = 0; c < call->count; c++)
        finish_tangent(task, c, out);
}

static void run_task(const void *of, int64_t index, char *scratch)
{
    const struct call *const call = of;
    struct task task = {.call = call, .scratch = scratch};
    int64_t first;
    task.heads = hop_heads_task(call->shape, call->dtype, index, &first);
    if (first >= task.heads.columns)
        return;
    hop_block_find(&task.heads, first, &task.block);
    tangent_block(&task);
}

static size_t place_scratch(struct call *call)
{
    const size_t padded = ((size_t)call->shape->head_dim + HOP_LANES - 1) / HOP_LANES * HOP_LANES;
    const size_t block = padded * HOP_COLUMNS * sizeof(float);
    const size_t wide = call->dtype == HOP_F32 ? 0 : padded * HOP_KEYS * sizeof(float);
    size_t each = 0;
    call->query = hop_cpu_place(&each, block);
    call->lse_t = hop_cpu_place(&each, sizeof(float[HOP_COLUMNS]));
    call->score = hop_cpu_place(&each, sizeof(float[HOP_KEYS][HOP_COLUMNS]));
    call->dscore = hop_cpu_place(&each, sizeof(float[HOP_KEYS][HOP_COLUMNS]));
    call->wide_k = hop_cpu_place(&each, wide);
    call->wide_v = hop_cpu_place(&each, wide);
    call->wide_dk = hop_cpu_place(&each, wide);
    call->wide_dv = hop_cpu_place(&each, wide);
    call->state_bytes = sizeof(struct state) + 2 * block;
    call->state = hop_cpu_place(&each, (size_t)call->count * call->state_bytes);
    return each;
}

hop_status hop_cpu_attention_tangent(struct hop_backend *backend, enum hop_dtype dtype,
                                     const struct hop_attention *shape, int32_t count,
                                     const void *q, const void *k, const void *v, const void *out,
                                     const float *lse, const void *dq, const void *dk,
                                     const void *dv, void *dout, struct hop_error *err)
{
    struct call call = {.dtype = dtype,
                        .shape = shape,
                        .count = count,
                        .q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .lse = lse,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .dout = dout};
    const size_t each = place_scratch(&call);
    return hop_heads_run(backend, hop_heads_tasks(shape), each, run_task, &call, err);
}
