/* Projections with LoRA adapters, forward and backward.
 *
 * Rows are cut into chunks of at most HOP_CPU_ROWS; a thread takes a chunk through everything that
 * touches it. Where rows are too few to feed all threads, `parts` threads share a chunk and each
 * takes its columns of every product. Results of a product go to an f32 tile first, so that
 * bias, adapters and residual are added before the only rounding. */
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/lora.h"
#include "ops/cpu/simd.h"

enum {
    TILE_COLUMNS = 1024, /* of an f32 tile: with 256 rows one megabyte */
    FEW_ROWS = 4,        /* up to here a product is bound by reading the weight */
    ROW_SHARE = 64,      /* rows below which a thread does not pay for repacking a weight */
    ADAPTER_ROWS = 64,   /* rows whose gradients the adapters read twice in a row */
    UNIT = 16            /* row counts are multiples of it where possible */
};

/* How a call is cut, the same in every thread. */
struct plan {
    enum hop_dtype dtype;
    int64_t rows, groups, group_rows, step, chunks; /* chunks of step rows in a group */
    int32_t row_threads, parts;
    int64_t in, rank; /* rank: sum over projections with an adapter */
    const struct hop_projection *projections;
    int n;
    size_t tile, u, pointers, wide; /* offsets into a thread's scratch */
    size_t each;
    size_t shared, partial_bytes; /* shared: packed B^T, then partial gradients a row thread */
    size_t packed_bytes;
};

static int64_t rank_of(const struct hop_projection *p)
{
    return p->lora ? p->lora->rank : 0;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* Chunks of equal size, their number a multiple of the threads wherever rows allow. */
static void cut_rows(struct plan *plan, int32_t threads)
{
    plan->parts = 1;
    while (plan->rows < ROW_SHARE * (threads / plan->parts) && threads % (2 * plan->parts) == 0)
        plan->parts *= 2;
    plan->row_threads = threads / plan->parts;
    plan->group_rows = plan->groups ? plan->rows / plan->groups : plan->rows;
    const int64_t unit = plan->row_threads / common_divisor(plan->row_threads, plan->groups);
    const int64_t wanted = divide_up(divide_up(plan->group_rows, HOP_CPU_ROWS), unit) * unit;
    plan->step = divide_up(divide_up(plan->group_rows, wanted ? wanted : 1), UNIT) * UNIT;
    plan->chunks = divide_up(plan->group_rows, plan->step ? plan->step : 1);
}

static struct plan plan_call(const struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                             const struct hop_projection *projections, int n)
{
    struct plan plan = {.dtype = dtype,
                        .rows = rows,
                        .groups = 1,
                        .in = projections[0].weight->in,
                        .projections = projections,
                        .n = n};
    for (int i = 0; i < n; i++) {
        const struct hop_projection *const p = &projections[i];
        if (!p->lora)
            continue;
        plan.groups = p->lora->groups;
        plan.rank += p->lora->rank;
        plan.packed_bytes +=
            (size_t)(p->lora->groups * p->lora->rank * p->weight->out) * sizeof(float);
        plan.partial_bytes += (size_t)(p->lora->rank * (plan.in + p->weight->out)) * sizeof(float);
    }
    cut_rows(&plan, backend->threads);
    plan.tile = hop_cpu_place(&plan.each, (size_t)(HOP_CPU_ROWS * TILE_COLUMNS) * sizeof(float));
    plan.u = hop_cpu_place(&plan.each, (size_t)(HOP_CPU_ROWS * plan.rank) * sizeof(float));
    plan.pointers = hop_cpu_place(&plan.each, (size_t)plan.rank * sizeof(float *));
    plan.wide = hop_cpu_place(&plan.each, (size_t)(FEW_ROWS * plan.in) * sizeof(float));
    return plan;
}

/* --- packing: B^T (groups, rank, out) of every projection, one after another --- */

static void pack_columns(const struct hop_lora *lora, int64_t out, struct hop_cpu_range range,
                         float *to)
{
    for (int64_t g = 0; g < lora->groups; g++)
        for (int64_t o = range.begin; o < range.end; o++)
            for (int64_t r = 0; r < lora->rank; r++)
                to[(g * lora->rank + r) * out + o] = lora->b[(g * out + o) * lora->rank + r];
}

static void pack(const struct plan *plan, float *packed, int thread, int threads)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        if (!p->lora)
            continue;
        const int64_t out = p->weight->out;
        pack_columns(p->lora, out, hop_cpu_share(out, threads, thread, UNIT), packed);
        packed += p->lora->groups * p->lora->rank * out;
    }
}

/* --- one chunk --- */

struct chunk {
    int64_t row, rows, group;
};

static struct chunk chunk_at(const struct plan *plan, int64_t index)
{
    const int64_t group = index / plan->chunks, inside = index % plan->chunks * plan->step;
    const int64_t left = plan->group_rows - inside;
    return (struct chunk){.row = group * plan->group_rows + inside,
                          .rows = left < plan->step ? left : plan->step,
                          .group = group};
}

static const void *row_of(const struct plan *plan, const void *matrix, int64_t row, int64_t width)
{
    return (const char *)matrix + (size_t)(row * width) * hop_dtype_size(plan->dtype);
}

/* A thread's columns of a matrix `width` wide, cut into tiles of equal width. */
struct tiles {
    struct hop_cpu_range columns;
    int64_t width;
};

static struct tiles tiles_of(const struct plan *plan, int64_t width, int part)
{
    struct tiles tiles = {.columns = hop_cpu_share(width, plan->parts, part, UNIT)};
    const int64_t n = tiles.columns.end - tiles.columns.begin;
    const int64_t count = divide_up(n, TILE_COLUMNS);
    tiles.width = count ? divide_up(divide_up(n, count), UNIT) * UNIT : 0;
    return tiles;
}

/* tile (rows, columns) = x W^T for a handful of rows: every row of W is read once, against all of
 * x. */
static void few_rows(const struct plan *plan, int64_t m, int64_t n, const void *x,
                     const void *weight, float *wide, float *c, int64_t ldc)
{
    float column[FEW_ROWS];
    for (int64_t i = 0; i < m * plan->in; i += HOP_LANES)
        hop_v_store_upto(wide, HOP_F32, i, hop_v_load_upto(x, plan->dtype, i, m * plan->in),
                         m * plan->in);
    for (int64_t o = 0; o < n; o++) {
        hop_lora_down(plan->dtype, 1, plan->in, m, row_of(plan, weight, o, plan->in), plan->in,
                      wide, plan->in, column, FEW_ROWS);
        for (int64_t i = 0; i < m; i++)
            c[i * ldc + o] = column[i];
    }
}

static hop_status product_forward(const struct plan *plan, struct hop_cpu_thread *thread, int64_t m,
                                  int64_t n, const void *x, const void *weight, float *c,
                                  int64_t ldc)
{
    if (m <= FEW_ROWS) {
        few_rows(plan, m, n, x, weight, (float *)(void *)(thread->scratch + plan->wide), c, ldc);
        return HOP_OK;
    }
    const struct hop_gemm_call call = {.dtype = plan->dtype,
                                       .transposed = true,
                                       .m = m,
                                       .n = n,
                                       .k = plan->in,
                                       .a = x,
                                       .b = weight,
                                       .c = c,
                                       .lda = plan->in,
                                       .ldb = plan->in,
                                       .ldc = ldc};
    return hop_gemm_run(thread->gemm, &call, &thread->err);
}

static void scale_rows(float *u, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        u[i] *= scale;
}

/* u (rows, rank) of the chunk, kept unscaled in p->u, scaled in `u`. */
static void adapter_down(const struct plan *plan, const struct hop_projection *p,
                         struct chunk chunk, const void *x, bool keep, float *u)
{
    const int64_t rank = p->lora->rank;
    hop_lora_down(plan->dtype, chunk.rows, plan->in, rank, x, plan->in,
                  p->lora->a + chunk.group * rank * plan->in, plan->in, u, rank);
    if (keep && p->u)
        memcpy(p->u + chunk.row * rank, u, (size_t)(chunk.rows * rank) * sizeof *u);
    scale_rows(u, chunk.rows * rank, p->lora->scale);
}

static void add_adapters(struct hop_lora_up *up, const struct hop_projection *p, struct chunk chunk,
                         const float *packed, int64_t column, const float **pointer)
{
    const int64_t out = p->weight->out;
    for (int64_t r = 0; r < up->rank; r++)
        pointer[r] = packed + (chunk.group * up->rank + r) * out + column;
    up->row = pointer;
}

/* y = x W^T + ... for one projection of one chunk. */
static hop_status forward_projection(const struct plan *plan, struct hop_cpu_thread *thread,
                                     int part, struct chunk chunk, const void *x,
                                     const struct hop_projection *p, const void *residual,
                                     const float *packed)
{
    float *const u = (float *)(void *)(thread->scratch + plan->u);
    float *const tile = (float *)(void *)(thread->scratch + plan->tile);
    const float **const pointer = (const float **)(void *)(thread->scratch + plan->pointers);
    const int64_t out = p->weight->out;
    const bool direct = plan->dtype == HOP_F32 && !p->lora && !p->bias && !residual;
    const struct tiles tiles = tiles_of(plan, out, part);
    if (p->lora)
        adapter_down(plan, p, chunk, x, part == 0, u);
    if (direct)
        return product_forward(plan, thread, chunk.rows, tiles.columns.end - tiles.columns.begin, x,
                               row_of(plan, p->weight->data, tiles.columns.begin, plan->in),
                               (float *)p->y + chunk.row * out + tiles.columns.begin, out);
    for (int64_t j = tiles.columns.begin; j < tiles.columns.end; j += tiles.width) {
        const int64_t n = tiles.columns.end - j < tiles.width ? tiles.columns.end - j : tiles.width;
        HOP_TRY(product_forward(plan, thread, chunk.rows, n, x,
                                row_of(plan, p->weight->data, j, plan->in), tile, n));
        const size_t at = (size_t)(chunk.row * out + j) * hop_dtype_size(plan->dtype);
        struct hop_lora_up up = {.dtype = plan->dtype,
                                 .m = chunk.rows,
                                 .n = n,
                                 .rank = rank_of(p),
                                 .u = u,
                                 .ldu = rank_of(p),
                                 .c = tile,
                                 .ldc = n,
                                 .bias = p->bias ? p->bias + j : NULL,
                                 .residual = residual ? (const char *)residual + at : NULL,
                                 .y = (char *)p->y + at,
                                 .ldy = out};
        if (p->lora)
            add_adapters(&up, p, chunk, packed, j, pointer);
        hop_lora_up(&up);
    }
    return HOP_OK;
}

static hop_status forward_chunk(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                struct chunk chunk, const void *x, const void *residual,
                                const float *packed)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        HOP_TRY(forward_projection(plan, thread, part, chunk, row_of(plan, x, chunk.row, plan->in),
                                   p, residual, packed));
        if (p->lora)
            packed += p->lora->groups * p->lora->rank * p->weight->out;
    }
    return HOP_OK;
}

static void forward_share(const struct plan *plan, struct hop_cpu_thread *thread, int32_t t,
                          const void *x, const void *residual, const float *packed)
{
    const struct hop_cpu_range mine =
        hop_cpu_share(plan->groups * plan->chunks, plan->row_threads, t / plan->parts, 1);
    for (int64_t c = mine.begin; c < mine.end && thread->status == HOP_OK; c++)
        thread->status =
            forward_chunk(plan, thread, t % plan->parts, chunk_at(plan, c), x, residual, packed);
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

/* --- backward --- */

/* Partial gradients of one row thread: for each projection dA (rank, in), then dB^T (rank, out). */
static float *partial_of(const struct plan *plan, float *partials, int row_thread)
{
    return partials + (size_t)row_thread * (plan->partial_bytes / sizeof(float));
}

/* The columns of a (rank, width) sum that belong to `part`. */
static void clear_columns(float *sum, int64_t rank, int64_t width, struct hop_cpu_range range)
{
    for (int64_t r = 0; r < rank; r++)
        memset(sum + r * width + range.begin, 0, (size_t)(range.end - range.begin) * sizeof *sum);
}

static void clear_partial(const struct plan *plan, float *partial, int part)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t rank = rank_of(p), out = p->weight->out;
        clear_columns(partial, rank, plan->in, hop_cpu_share(plan->in, plan->parts, part, UNIT));
        partial += rank * plan->in;
        clear_columns(partial, rank, out, hop_cpu_share(out, plan->parts, part, UNIT));
        partial += rank * out;
    }
}

/* t = scale dy B, and the adapter gradients of a few rows that fit the cache from one use to the
 * next. */
static void backward_adapter(const struct plan *plan, int part, struct chunk chunk, const void *x,
                             const struct hop_projection *p, const float *packed, float *t,
                             float *partial)
{
    const int64_t rank = p->lora->rank, out = p->weight->out, in = plan->in;
    const char *const dy = row_of(plan, p->dy, chunk.row, out);
    const char *const xr = row_of(plan, x, chunk.row, in);
    const size_t size = hop_dtype_size(plan->dtype);
    const struct hop_cpu_range a = hop_cpu_share(in, plan->parts, part, UNIT);
    const struct hop_cpu_range b = hop_cpu_share(out, plan->parts, part, UNIT);
    hop_lora_down(plan->dtype, chunk.rows, out, rank, dy, out, packed, out, t, plan->rank);
    for (int64_t i = 0; i < chunk.rows; i++)
        scale_rows(t + i * plan->rank, rank, p->lora->scale);
    if (p->da)
        hop_lora_outer(plan->dtype, chunk.rows, a.end - a.begin, rank, t, plan->rank,
                       xr + (size_t)a.begin * size, in, partial + a.begin, in);
    if (p->db)
        hop_lora_outer(plan->dtype, chunk.rows, b.end - b.begin, rank, p->u + chunk.row * rank,
                       rank, dy + (size_t)b.begin * size, out, partial + rank * in + b.begin, out);
}

static hop_status product_backward(const struct plan *plan, struct hop_cpu_thread *thread,
                                   struct chunk chunk, int64_t j, int64_t n, float *c, int64_t ldc)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t out = p->weight->out;
        const struct hop_gemm_call call = {.dtype = plan->dtype,
                                           .add = i > 0,
                                           .m = chunk.rows,
                                           .n = n,
                                           .k = out,
                                           .a = row_of(plan, p->dy, chunk.row, out),
                                           .b = (const char *)p->weight->data +
                                                (size_t)j * hop_dtype_size(plan->dtype),
                                           .c = c,
                                           .lda = out,
                                           .ldb = plan->in,
                                           .ldc = ldc};
        HOP_TRY(hop_gemm_run(thread->gemm, &call, &thread->err));
    }
    return HOP_OK;
}

static void input_adapters(struct hop_lora_up *up, const struct plan *plan, int64_t column,
                           const float **pointer)
{
    up->row = pointer;
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        for (int64_t r = 0; r < rank_of(p); r++)
            *pointer++ = p->lora->a + r * plan->in + column;
    }
}

static hop_status backward_input(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                 struct chunk chunk, const float *t, void *dx)
{
    float *const tile = (float *)(void *)(thread->scratch + plan->tile);
    const float **const pointer = (const float **)(void *)(thread->scratch + plan->pointers);
    const struct tiles tiles = tiles_of(plan, plan->in, part);
    if (plan->dtype == HOP_F32 && !plan->rank)
        return product_backward(plan, thread, chunk, tiles.columns.begin,
                                tiles.columns.end - tiles.columns.begin,
                                (float *)dx + chunk.row * plan->in + tiles.columns.begin, plan->in);
    for (int64_t j = tiles.columns.begin; j < tiles.columns.end; j += tiles.width) {
        const int64_t n = tiles.columns.end - j < tiles.width ? tiles.columns.end - j : tiles.width;
        HOP_TRY(product_backward(plan, thread, chunk, j, n, tile, n));
        struct hop_lora_up up = {.dtype = plan->dtype,
                                 .m = chunk.rows,
                                 .n = n,
                                 .rank = plan->rank,
                                 .u = t,
                                 .ldu = plan->rank,
                                 .c = tile,
                                 .ldc = n,
                                 .y = (char *)dx + (size_t)(chunk.row * plan->in + j) *
                                                       hop_dtype_size(plan->dtype),
                                 .ldy = plan->in};
        input_adapters(&up, plan, j, pointer);
        hop_lora_up(&up);
    }
    return HOP_OK;
}

static hop_status backward_chunk(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                 struct chunk chunk, const void *x, void *dx, const float *packed,
                                 float *partial)
{
    float *const all = (float *)(void *)(thread->scratch + plan->u), *t = all;
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        if (!p->lora)
            continue;
        for (int64_t row = 0; row < chunk.rows; row += ADAPTER_ROWS) {
            const int64_t left = chunk.rows - row;
            const struct chunk few = {.row = chunk.row + row,
                                      .rows = left < ADAPTER_ROWS ? left : ADAPTER_ROWS};
            backward_adapter(plan, part, few, x, p, packed, t + row * plan->rank, partial);
        }
        t += p->lora->rank;
        packed += p->lora->rank * p->weight->out;
        partial += p->lora->rank * (plan->in + p->weight->out);
    }
    return dx ? backward_input(plan, thread, part, chunk, all, dx) : HOP_OK;
}

static void backward_share(const struct plan *plan, struct hop_cpu_thread *thread, int32_t t,
                           const void *x, void *dx, const float *packed, float *partials)
{
    const int part = t % plan->parts;
    float *const partial = partial_of(plan, partials, t / plan->parts);
    const struct hop_cpu_range mine =
        hop_cpu_share(plan->chunks, plan->row_threads, t / plan->parts, 1);
    clear_partial(plan, partial, part);
    for (int64_t c = mine.begin; c < mine.end && thread->status == HOP_OK; c++)
        thread->status =
            backward_chunk(plan, thread, part, chunk_at(plan, c), x, dx, packed, partial);
}

/* sum[i] over row threads, always in the same order. */
static float gather_partials(const struct plan *plan, const float *first, int64_t i)
{
    float sum = 0.0f;
    for (int32_t t = 0; t < plan->row_threads; t++)
        sum += first[(size_t)t * (plan->partial_bytes / sizeof(float)) + (size_t)i];
    return sum;
}

static void reduce(const struct plan *plan, const float *partials, int thread, int threads)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t rank = rank_of(p), out = p->weight->out;
        const struct hop_cpu_range a = hop_cpu_share(rank * plan->in, threads, thread, UNIT);
        for (int64_t e = a.begin; p->da && e < a.end; e++)
            p->da[e] += gather_partials(plan, partials, e);
        partials += rank * plan->in;
        const struct hop_cpu_range b = hop_cpu_share(out, threads, thread, UNIT);
        for (int64_t o = b.begin; rank && p->db && o < b.end; o++)
            for (int64_t r = 0; r < rank; r++)
                p->db[o * rank + r] +=
                    p->lora->scale * gather_partials(plan, partials, r * out + o);
        partials += rank * out;
    }
}

hop_status hop_cpu_project_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                    const void *x, const struct hop_projection *projections, int n,
                                    void *dx, struct hop_error *err)
{
    const struct plan plan = plan_call(backend, dtype, rows, projections, n);
    const size_t partials_at = (plan.packed_bytes + 63) / 64 * 64;
    HOP_TRY(hop_cpu_reserve(backend, plan.each,
                            partials_at + (size_t)plan.row_threads * plan.partial_bytes, err));
    float *const packed = (float *)(void *)backend->shared;
    float *const partials = (float *)(void *)(backend->shared + partials_at);
#pragma omp parallel num_threads(backend->threads)
    {
        hop_cpu_enter();
#pragma omp for schedule(static, 1)
        for (int32_t t = 0; t < backend->threads; t++)
            pack(&plan, packed, t, backend->threads);
#pragma omp for schedule(static, 1)
        for (int32_t t = 0; t < backend->threads; t++)
            backward_share(&plan, &backend->thread[t], t, x, dx, packed, partials);
#pragma omp for schedule(static, 1)
        for (int32_t t = 0; t < backend->threads; t++)
            reduce(&plan, partials, t, backend->threads);
    }
    return hop_cpu_leave(backend, err);
}
