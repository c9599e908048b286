/* Projections with LoRA adapters, forward, and how projections are cut. */
#include "ops/cpu/project.h"

#include <string.h>

#include "ops/cpu/lora.h"
#include "ops/cpu/simd.h"

enum { ROW_SHARE = 64 }; /* rows below which a thread does not pay for repacking a weight */

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Chunks of equal size, their number a multiple of the threads wherever rows allow. */
struct hop_cut hop_cut_rows(enum hop_dtype dtype, int64_t rows, int64_t in, int32_t threads)
{
    struct hop_cut cut = {.dtype = dtype, .rows = rows, .in = in, .parts = 1};
    while (rows < ROW_SHARE * (threads / cut.parts) && threads % (2 * cut.parts) == 0)
        cut.parts *= 2;
    cut.row_threads = threads / cut.parts;
    const int64_t wanted =
        divide_up(divide_up(rows, HOP_CPU_ROWS), cut.row_threads) * cut.row_threads;
    cut.step = divide_up(divide_up(rows, wanted ? wanted : 1), HOP_CUT_UNIT) * HOP_CUT_UNIT;
    cut.chunks = divide_up(rows, cut.step ? cut.step : 1);
    return cut;
}

struct hop_chunk hop_cut_chunk(const struct hop_cut *cut, int64_t index)
{
    const int64_t row = index * cut->step, left = cut->rows - row;
    return (struct hop_chunk){.row = row, .rows = left < cut->step ? left : cut->step};
}

struct hop_columns hop_cut_columns(const struct hop_cut *cut, int64_t width, int part)
{
    struct hop_columns columns = {.range = hop_cpu_share(width, cut->parts, part, HOP_CUT_UNIT)};
    const int64_t n = columns.range.end - columns.range.begin;
    const int64_t count = divide_up(n, HOP_TILE_COLUMNS);
    columns.width = count ? divide_up(divide_up(n, count), HOP_CUT_UNIT) * HOP_CUT_UNIT : 0;
    return columns;
}

/* c (m, n) = x W^T for a handful of rows: every row of W is read once, against all of x. */
static void few_rows(const struct hop_cut *cut, int64_t m, int64_t n, const void *x,
                     const void *weight, float *wide, float *c, int64_t ldc)
{
    float column[HOP_FEW_ROWS];
    for (int64_t i = 0; i < m * cut->in; i += HOP_LANES)
        hop_v_store_upto(wide, HOP_F32, i, hop_v_load_upto(x, cut->dtype, i, m * cut->in),
                         m * cut->in);
    for (int64_t o = 0; o < n; o++) {
        hop_lora_down(cut->dtype, 1, cut->in, m, hop_cut_row(cut, weight, o, cut->in), cut->in,
                      wide, cut->in, column, HOP_FEW_ROWS);
        for (int64_t i = 0; i < m; i++)
            c[i * ldc + o] = column[i];
    }
}

hop_status hop_cut_product(const struct hop_cut *cut, struct hop_cpu_thread *thread, int64_t m,
                           int64_t n, const void *x, const void *weight, float *wide, float *c,
                           int64_t ldc)
{
    if (m <= HOP_FEW_ROWS) {
        few_rows(cut, m, n, x, weight, wide, c, ldc);
        return HOP_OK;
    }
    const struct hop_gemm_call call = {.dtype = cut->dtype,
                                       .transposed = true,
                                       .m = m,
                                       .n = n,
                                       .k = cut->in,
                                       .a = x,
                                       .b = weight,
                                       .c = c,
                                       .lda = cut->in,
                                       .ldb = cut->in,
                                       .ldc = ldc};
    return hop_gemm_run(thread->gemm, &call, &thread->err);
}

void hop_pack_outputs(const float *b, int64_t groups, int64_t rank, int64_t out,
                      struct hop_cpu_range range, float *to)
{
    for (int64_t g = 0; g < groups; g++)
        for (int64_t o = range.begin; o < range.end; o++)
            for (int64_t r = 0; r < rank; r++)
                to[(g * rank + r) * out + o] = b[(g * out + o) * rank + r];
}

struct hop_group hop_group_of(int32_t groups, const int32_t *offset, int64_t rows, int64_t row)
{
    if (!offset) {
        const int64_t each = rows / groups, index = row / each;
        return (struct hop_group){.index = index, .end = (index + 1) * each};
    }
    int32_t low = 0, high = groups - 1; /* the last group that begins at or before the row */
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (offset[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return (struct hop_group){.index = low, .end = offset[low + 1]};
}

/* --- forward --- */

struct plan {
    struct hop_cut cut;
    const struct hop_projection *projections;
    int n;
    size_t tile, u, pointers, wide; /* offsets into a thread's scratch */
    size_t each, packed_bytes;
};

static int64_t rank_of(const struct hop_projection *p)
{
    return p->lora ? p->lora->rank : 0;
}

static int64_t packed_size(const struct hop_projection *p)
{
    return p->lora ? p->lora->groups * p->lora->rank * p->weight->out : 0;
}

static struct plan plan_call(const struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                             const struct hop_projection *projections, int n)
{
    const int64_t in = projections[0].weight->in;
    struct plan plan = {
        .cut = hop_cut_rows(dtype, rows, in, backend->threads), .projections = projections, .n = n};
    int64_t rank = 0;
    for (int i = 0; i < n; i++) {
        rank = rank_of(&projections[i]) > rank ? rank_of(&projections[i]) : rank;
        plan.packed_bytes += (size_t)packed_size(&projections[i]) * sizeof(float);
    }
    plan.tile =
        hop_cpu_place(&plan.each, (size_t)(HOP_CPU_ROWS * HOP_TILE_COLUMNS) * sizeof(float));
    plan.u = hop_cpu_place(&plan.each, (size_t)(HOP_CPU_ROWS * rank) * sizeof(float));
    plan.pointers = hop_cpu_place(&plan.each, (size_t)rank * sizeof(float *));
    plan.wide = hop_cpu_place(&plan.each, (size_t)(HOP_FEW_ROWS * in) * sizeof(float));
    return plan;
}

/* B^T (groups, rank, out) of every projection, one after another. */
static void pack(const struct plan *plan, float *packed, int thread, int threads)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t out = p->weight->out;
        if (p->lora)
            hop_pack_outputs(p->lora->b, p->lora->groups, p->lora->rank, out,
                             hop_cpu_share(out, threads, thread, HOP_CUT_UNIT), packed);
        packed += packed_size(p);
    }
}

/* The part of a chunk that begins at `row` and ends with the chunk or the row's group. */
static struct hop_chunk piece_at(const struct plan *plan, const struct hop_projection *p,
                                 struct hop_chunk chunk, int64_t row, int64_t *group)
{
    int64_t end = chunk.row + chunk.rows;
    *group = 0;
    if (p->lora) {
        const struct hop_group own =
            hop_group_of(p->lora->groups, p->lora->offset, plan->cut.rows, row);
        *group = own.index;
        end = own.end < end ? own.end : end;
    }
    return (struct hop_chunk){.row = row, .rows = end - row};
}

static void scale_rows(float *u, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        u[i] *= scale;
}

/* u (rows, rank) of the chunk, kept unscaled in p->u, scaled in `u`. */
static void adapter_down(const struct plan *plan, const struct hop_projection *p,
                         struct hop_chunk chunk, const void *x, bool keep, float *u)
{
    const int64_t rank = p->lora->rank, in = plan->cut.in;
    for (int64_t row = chunk.row; row < chunk.row + chunk.rows;) {
        int64_t group;
        const struct hop_chunk piece = piece_at(plan, p, chunk, row, &group);
        hop_lora_down(plan->cut.dtype, piece.rows, in, rank, hop_cut_row(&plan->cut, x, row, in),
                      in, p->lora->a + group * rank * in, in, u + (row - chunk.row) * rank, rank);
        row += piece.rows;
    }
    if (keep && p->u)
        memcpy(p->u + chunk.row * rank, u, (size_t)(chunk.rows * rank) * sizeof *u);
    scale_rows(u, chunk.rows * rank, p->lora->scale);
}

/* y = tile + ... for columns [column, column + n) of a chunk, group after group. */
static void finish_tile(const struct plan *plan, struct hop_cpu_thread *thread,
                        struct hop_chunk chunk, const struct hop_projection *p, int64_t column,
                        int64_t n, const void *residual, const float *packed)
{
    const float **const pointer = (const float **)(void *)(thread->scratch + plan->pointers);
    const float *const u = (const float *)(void *)(thread->scratch + plan->u);
    const float *const tile = (const float *)(void *)(thread->scratch + plan->tile);
    const int64_t out = p->weight->out, rank = rank_of(p);
    for (int64_t row = chunk.row; row < chunk.row + chunk.rows;) {
        int64_t group;
        const struct hop_chunk piece = piece_at(plan, p, chunk, row, &group);
        const size_t at = (size_t)(row * out + column) * hop_dtype_size(plan->cut.dtype);
        for (int64_t r = 0; r < rank; r++)
            pointer[r] = packed + (group * rank + r) * out + column;
        hop_lora_up(&(struct hop_lora_up){.dtype = plan->cut.dtype,
                                          .m = piece.rows,
                                          .n = n,
                                          .rank = rank,
                                          .u = u + (row - chunk.row) * rank,
                                          .ldu = rank,
                                          .row = pointer,
                                          .c = tile + (row - chunk.row) * n,
                                          .ldc = n,
                                          .bias = p->bias ? p->bias + column : NULL,
                                          .residual = residual ? (const char *)residual + at : NULL,
                                          .y = (char *)p->y + at,
                                          .ldy = out});
        row += piece.rows;
    }
}

/* y = x W^T + ... for one projection of one chunk. */
static hop_status forward_projection(const struct plan *plan, struct hop_cpu_thread *thread,
                                     int part, struct hop_chunk chunk, const void *x,
                                     const struct hop_projection *p, const void *residual,
                                     const float *packed)
{
    const struct hop_cut *const cut = &plan->cut;
    float *const tile = (float *)(void *)(thread->scratch + plan->tile);
    float *const wide = (float *)(void *)(thread->scratch + plan->wide);
    const int64_t out = p->weight->out;
    const void *const own = hop_cut_row(cut, x, chunk.row, cut->in);
    const bool direct = cut->dtype == HOP_F32 && !p->lora && !p->bias && !residual;
    const struct hop_columns columns = hop_cut_columns(cut, out, part);
    const struct hop_cpu_range all = columns.range;
    if (p->lora)
        adapter_down(plan, p, chunk, x, part == 0, (float *)(void *)(thread->scratch + plan->u));
    if (direct)
        return hop_cut_product(cut, thread, chunk.rows, all.end - all.begin, own,
                               hop_cut_row(cut, p->weight->data, all.begin, cut->in), wide,
                               (float *)p->y + chunk.row * out + all.begin, out);
    for (int64_t j = all.begin; j < all.end; j += columns.width) {
        const int64_t n = all.end - j < columns.width ? all.end - j : columns.width;
        HOP_TRY(hop_cut_product(cut, thread, chunk.rows, n, own,
                                hop_cut_row(cut, p->weight->data, j, cut->in), wide, tile, n));
        finish_tile(plan, thread, chunk, p, j, n, residual, packed);
    }
    return HOP_OK;
}

static hop_status forward_chunk(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                struct hop_chunk chunk, const void *x, const void *residual,
                                const float *packed)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        HOP_TRY(forward_projection(plan, thread, part, chunk, x, p, residual, packed));
        packed += packed_size(p);
    }
    return HOP_OK;
}

static void forward_share(const struct plan *plan, struct hop_cpu_thread *thread, int32_t t,
                          const void *x, const void *residual, const float *packed)
{
    const struct hop_cpu_range mine = hop_cut_share(&plan->cut, t);
    for (int64_t c = mine.begin; c < mine.end && thread->status == HOP_OK; c++)
        thread->status = forward_chunk(plan, thread, t % plan->cut.parts,
                                       hop_cut_chunk(&plan->cut, c), x, residual, packed);
}

hop_status hop_cpu_project_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                   const void *x, const struct hop_projection *projections, int n,
                                   const void *residual, struct hop_error *err)
{
    const struct plan plan = plan_call(backend, dtype, rows, projections, n);
    HOP_TRY(hop_cpu_reserve(backend, plan.each, plan.packed_bytes, err));
    float *const packed = (float *)(void *)backend->shared;
#pragma omp parallel num_threads(backend->threads)
    {
        hop_cpu_enter();
#pragma omp for schedule(static, 1)
        for (int32_t t = 0; t < backend->threads; t++)
            pack(&plan, packed, t, backend->threads);
#pragma omp for schedule(static, 1)
        for (int32_t t = 0; t < backend->threads; t++)
            forward_share(&plan, &backend->thread[t], t, x, residual, packed);
    }
    return hop_cpu_leave(backend, err);
}
