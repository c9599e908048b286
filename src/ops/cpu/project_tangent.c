/* Tangents of projections with LoRA adapters. The rows of all tangents are one product with the
 * weight; the adapters add two thin products a run of rows that has one direction and one copy of
 * the primal rows: (dx A^T + x dA^T) B^T and u dB^T, both while the tile is in the cache. */
#include <string.h>

#include "ops/cpu/lora.h"
#include "ops/cpu/project.h"

struct plan {
    struct hop_cut cut;
    int64_t primal_rows;
    const void *x, *dx, *residual;
    const struct hop_projection_tangent *projections;
    int n;
    size_t tile, u, spare, pointers, wide; /* offsets into a thread's scratch */
    size_t each, packed_bytes;
};

static int64_t rank_of(const struct hop_projection_tangent *p)
{
    return p->lora ? p->lora->rank : 0;
}

static bool moves_a(const struct hop_projection_tangent *p)
{
    return p->lora && p->groups && p->da;
}

static bool moves_b(const struct hop_projection_tangent *p)
{
    return p->lora && p->groups && p->db;
}

/* B^T, then dB^T of every group. */
static int64_t packed_size(const struct hop_projection_tangent *p)
{
    return (1 + (moves_b(p) ? p->groups : 0)) * rank_of(p) * p->weight->out;
}

static float *floats(const struct hop_cpu_thread *thread, size_t at)
{
    return (float *)(void *)(thread->scratch + at);
}

static void place_scratch(struct plan *plan)
{
    const size_t rows = HOP_CPU_ROWS, in = (size_t)plan->cut.in;
    size_t rank = 0;
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection_tangent *const p = &plan->projections[i];
        rank = (size_t)rank_of(p) > rank ? (size_t)rank_of(p) : rank;
        plan->packed_bytes += (size_t)packed_size(p) * sizeof(float);
    }
    plan->tile = hop_cpu_place(&plan->each, rows * HOP_TILE_COLUMNS * sizeof(float));
    plan->u = hop_cpu_place(&plan->each, rows * 2 * rank * sizeof(float));
    plan->spare = hop_cpu_place(&plan->each, rows * rank * sizeof(float));
    plan->pointers = hop_cpu_place(&plan->each, 2 * rank * sizeof(float *));
    plan->wide = hop_cpu_place(&plan->each, HOP_FEW_ROWS * in * sizeof(float));
}

static void pack(const struct plan *plan, float *packed, int thread, int threads)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection_tangent *const p = &plan->projections[i];
        const int64_t out = p->weight->out, rank = rank_of(p);
        const struct hop_cpu_range mine = hop_cpu_share(out, threads, thread, HOP_CUT_UNIT);
        if (p->lora)
            hop_pack_outputs(p->lora->b, 1, rank, out, mine, packed);
        if (moves_b(p))
            hop_pack_outputs(p->db, p->groups, rank, out, mine, packed + rank * out);
        packed += packed_size(p);
    }
}

/* Rows of one direction and one copy of the primal rows. */
struct piece {
    int64_t row, rows, primal, group;
};

static struct piece piece_at(const struct plan *plan, const struct hop_projection_tangent *p,
                             struct hop_chunk chunk, int64_t row)
{
    struct piece piece = {.row = row, .primal = row % plan->primal_rows};
    int64_t end = row - piece.primal + plan->primal_rows;
    if (p->groups) {
        const struct hop_group own = hop_group_of(p->groups, p->offset, plan->cut.rows, row);
        piece.group = own.index;
        end = own.end < end ? own.end : end;
    }
    end = chunk.row + chunk.rows < end ? chunk.row + chunk.rows : end;
    piece.rows = end - row;
    return piece;
}

/* Columns of u: what meets B, then what meets dB. */
static int64_t width_of(const struct hop_projection_tangent *p)
{
    return rank_of(p) * (moves_b(p) ? 2 : 1);
}

/* to (rows, width) [0, rank) = dx A^T + x dA^T */
static void down_inputs(const struct plan *plan, const struct hop_projection_tangent *p,
                        struct piece piece, float *spare, float *to)
{
    const struct hop_cut *const cut = &plan->cut;
    const int64_t in = cut->in, rank = rank_of(p), width = width_of(p);
    if (plan->dx)
        hop_lora_down(cut->dtype, piece.rows, in, rank, hop_cut_row(cut, plan->dx, piece.row, in),
                      in, p->lora->a, in, to, width);
    else
        for (int64_t i = 0; i < piece.rows; i++)
            memset(to + i * width, 0, (size_t)rank * sizeof *to);
    if (!moves_a(p))
        return;
    hop_lora_down(cut->dtype, piece.rows, in, rank, hop_cut_row(cut, plan->x, piece.primal, in), in,
                  p->da + piece.group * rank * in, in, spare, rank);
    for (int64_t i = 0; i < piece.rows; i++)
        for (int64_t r = 0; r < rank; r++)
            to[i * width + r] += spare[i * rank + r];
}

/* u (rows, width) of the chunk, scaled. */
static void adapter_down(const struct plan *plan, struct hop_cpu_thread *thread,
                         struct hop_chunk chunk, const struct hop_projection_tangent *p)
{
    float *const u = floats(thread, plan->u), *const spare = floats(thread, plan->spare);
    const int64_t rank = rank_of(p), width = width_of(p);
    for (int64_t row = chunk.row; row < chunk.row + chunk.rows;) {
        const struct piece piece = piece_at(plan, p, chunk, row);
        float *const to = u + (row - chunk.row) * width;
        down_inputs(plan, p, piece, spare, to);
        for (int64_t i = 0; moves_b(p) && i < piece.rows; i++)
            memcpy(to + i * width + rank, p->u + (piece.primal + i) * rank,
                   (size_t)rank * sizeof *to);
        row += piece.rows;
    }
    for (int64_t i = 0; i < chunk.rows * width; i++)
        u[i] *= p->lora->scale;
}

static void aim(const struct hop_projection_tangent *p, int64_t group, int64_t column,
                const float *packed, const float **pointer)
{
    const int64_t out = p->weight->out, rank = rank_of(p);
    for (int64_t r = 0; r < rank; r++)
        pointer[r] = packed + r * out + column;
    for (int64_t r = rank; r < width_of(p); r++)
        pointer[r] = packed + (group * rank + r) * out + column;
}

/* dy = c [+ residual] + u [B^T; dB^T] for columns [column, column + n) of a chunk; c may be NULL.
 */
static void finish_tile(const struct plan *plan, struct hop_cpu_thread *thread,
                        struct hop_chunk chunk, const struct hop_projection_tangent *p,
                        int64_t column, int64_t n, const float *c, const float *packed)
{
    const float **const pointer = (const float **)(void *)(thread->scratch + plan->pointers);
    const int64_t out = p->weight->out, width = width_of(p);
    for (int64_t row = chunk.row; row < chunk.row + chunk.rows;) {
        const struct piece piece = piece_at(plan, p, chunk, row);
        const size_t at = (size_t)(row * out + column) * hop_dtype_size(plan->cut.dtype);
        aim(p, piece.group, column, packed, pointer);
        hop_lora_up(&(struct hop_lora_up){
            .dtype = plan->cut.dtype,
            .m = piece.rows,
            .n = n,
            .rank = width,
            .u = floats(thread, plan->u) + (row - chunk.row) * width,
            .ldu = width,
            .row = pointer,
            .c = c ? c + (row - chunk.row) * n : NULL,
            .ldc = n,
            .residual = plan->residual ? (const char *)plan->residual + at : NULL,
            .y = (char *)p->dy + at,
            .ldy = out});
        row += piece.rows;
    }
}

static hop_status tangent_projection(const struct plan *plan, struct hop_cpu_thread *thread,
                                     int part, struct hop_chunk chunk,
                                     const struct hop_projection_tangent *p, const float *packed)
{
    const struct hop_cut *const cut = &plan->cut;
    float *const tile = floats(thread, plan->tile), *const wide = floats(thread, plan->wide);
    const struct hop_columns columns = hop_cut_columns(cut, p->weight->out, part);
    const struct hop_cpu_range all = columns.range;
    if (p->lora)
        adapter_down(plan, thread, chunk, p);
    for (int64_t j = all.begin; j < all.end; j += columns.width) {
        const int64_t n = all.end - j < columns.width ? all.end - j : columns.width;
        if (plan->dx)
            HOP_TRY(hop_cut_product(cut, thread, chunk.rows, n,
                                    hop_cut_row(cut, plan->dx, chunk.row, cut->in),
                                    hop_cut_row(cut, p->weight->data, j, cut->in), wide, tile, n));
        finish_tile(plan, thread, chunk, p, j, n, plan->dx ? tile : NULL, packed);
    }
    return HOP_OK;
}

static hop_status tangent_chunk(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                struct hop_chunk chunk, const float *packed)
{
    for (int i = 0; i < plan->n; i++) {
        HOP_TRY(tangent_projection(plan, thread, part, chunk, &plan->projections[i], packed));
        packed += packed_size(&plan->projections[i]);
    }
    return HOP_OK;
}

static void tangent_share(const struct plan *plan, struct hop_cpu_thread *thread, int32_t t,
                          const float *packed)
{
    const struct hop_cpu_range mine = hop_cut_share(&plan->cut, t);
    for (int64_t c = mine.begin; c < mine.end && thread->status == HOP_OK; c++)
        thread->status =
            tangent_chunk(plan, thread, t % plan->cut.parts, hop_cut_chunk(&plan->cut, c), packed);
}

hop_status hop_cpu_project_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                   int64_t rows, const void *x, const void *dx,
                                   const struct hop_projection_tangent *projections, int n,
                                   const void *residual, struct hop_error *err)
{
    const int64_t in = projections[0].weight->in;
    struct plan plan = {.cut = hop_cut_rows(dtype, count * rows, in, backend->threads),
                        .primal_rows = rows,
                        .x = x,
                        .dx = dx,
                        .residual = residual,
                        .projections = projections,
                        .n = n};
    place_scratch(&plan);
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
            tangent_share(&plan, &backend->thread[t], t, packed);
    }
    return hop_cpu_leave(backend, err);
}
