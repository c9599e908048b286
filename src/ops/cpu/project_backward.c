/* Projections with LoRA adapters, backward: the gradient of the input, and the adapters' own. */
#include <string.h>

#include "ops/cpu/lora.h"
#include "ops/cpu/project.h"

enum { ADAPTER_ROWS = 64 }; /* rows whose gradients the adapters read twice in a row */

struct plan {
    struct hop_cut cut;
    int64_t rank; /* sum over projections with an adapter */
    const struct hop_projection *projections;
    int n;
    size_t tile, t, pointers; /* offsets into a thread's scratch */
    size_t each;
    size_t packed_bytes, partial_bytes; /* shared: B^T, then partial gradients a row thread */
};

static int64_t rank_of(const struct hop_projection *p)
{
    return p->lora ? p->lora->rank : 0;
}

static struct plan plan_call(const struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                             const struct hop_projection *projections, int n)
{
    const int64_t in = projections[0].weight->in;
    struct plan plan = {
        .cut = hop_cut_rows(dtype, rows, in, backend->threads), .projections = projections, .n = n};
    for (int i = 0; i < n; i++) {
        const int64_t rank = rank_of(&projections[i]), out = projections[i].weight->out;
        plan.rank += rank;
        plan.packed_bytes += (size_t)(rank * out) * sizeof(float);
        plan.partial_bytes += (size_t)(rank * (in + out)) * sizeof(float);
    }
    plan.tile =
        hop_cpu_place(&plan.each, (size_t)(HOP_CPU_ROWS * HOP_TILE_COLUMNS) * sizeof(float));
    plan.t = hop_cpu_place(&plan.each, (size_t)(HOP_CPU_ROWS * plan.rank) * sizeof(float));
    plan.pointers = hop_cpu_place(&plan.each, (size_t)plan.rank * sizeof(float *));
    return plan;
}

/* B^T (rank, out) of every projection, one after another. */
static void pack(const struct plan *plan, float *packed, int thread, int threads)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t out = p->weight->out;
        if (p->lora)
            hop_pack_outputs(p->lora->b, 1, p->lora->rank, out,
                             hop_cpu_share(out, threads, thread, HOP_CUT_UNIT), packed);
        packed += rank_of(p) * out;
    }
}

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
        clear_columns(partial, rank, plan->cut.in,
                      hop_cpu_share(plan->cut.in, plan->cut.parts, part, HOP_CUT_UNIT));
        partial += rank * plan->cut.in;
        clear_columns(partial, rank, out, hop_cpu_share(out, plan->cut.parts, part, HOP_CUT_UNIT));
        partial += rank * out;
    }
}

/* t = scale dy B, and the adapter gradients of a few rows that fit the cache from one use to the
 * next. */
static void backward_adapter(const struct plan *plan, int part, struct hop_chunk chunk,
                             const void *x, const struct hop_projection *p, const float *packed,
                             float *t, float *partial)
{
    const int64_t rank = p->lora->rank, out = p->weight->out, in = plan->cut.in;
    const char *const dy = hop_cut_row(&plan->cut, p->dy, chunk.row, out);
    const char *const xr = hop_cut_row(&plan->cut, x, chunk.row, in);
    const size_t size = hop_dtype_size(plan->cut.dtype);
    const struct hop_cpu_range a = hop_cpu_share(in, plan->cut.parts, part, HOP_CUT_UNIT);
    const struct hop_cpu_range b = hop_cpu_share(out, plan->cut.parts, part, HOP_CUT_UNIT);
    hop_lora_down(plan->cut.dtype, chunk.rows, out, rank, dy, out, packed, out, t, plan->rank);
    for (int64_t i = 0; i < chunk.rows; i++)
        for (int64_t r = 0; r < rank; r++)
            t[i * plan->rank + r] *= p->lora->scale;
    if (p->da)
        hop_lora_outer(plan->cut.dtype, chunk.rows, a.end - a.begin, rank, t, plan->rank,
                       xr + (size_t)a.begin * size, in, partial + a.begin, in);
    if (p->db)
        hop_lora_outer(plan->cut.dtype, chunk.rows, b.end - b.begin, rank, p->u + chunk.row * rank,
                       rank, dy + (size_t)b.begin * size, out, partial + rank * in + b.begin, out);
}

static hop_status product_backward(const struct plan *plan, struct hop_cpu_thread *thread,
                                   struct hop_chunk chunk, int64_t j, int64_t n, float *c,
                                   int64_t ldc)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t out = p->weight->out;
        const struct hop_gemm_call call = {.dtype = plan->cut.dtype,
                                           .add = i > 0,
                                           .m = chunk.rows,
                                           .n = n,
                                           .k = out,
                                           .a = hop_cut_row(&plan->cut, p->dy, chunk.row, out),
                                           .b = (const char *)p->weight->data +
                                                (size_t)j * hop_dtype_size(plan->cut.dtype),
                                           .c = c,
                                           .lda = out,
                                           .ldb = plan->cut.in,
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
            *pointer++ = p->lora->a + r * plan->cut.in + column;
    }
}

static hop_status backward_input(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                 struct hop_chunk chunk, const float *t, void *dx)
{
    float *const tile = (float *)(void *)(thread->scratch + plan->tile);
    const float **const pointer = (const float **)(void *)(thread->scratch + plan->pointers);
    const struct hop_columns columns = hop_cut_columns(&plan->cut, plan->cut.in, part);
    const struct hop_cpu_range all = columns.range;
    if (plan->cut.dtype == HOP_F32 && !plan->rank)
        return product_backward(plan, thread, chunk, all.begin, all.end - all.begin,
                                (float *)dx + chunk.row * plan->cut.in + all.begin, plan->cut.in);
    for (int64_t j = all.begin; j < all.end; j += columns.width) {
        const int64_t n = all.end - j < columns.width ? all.end - j : columns.width;
        HOP_TRY(product_backward(plan, thread, chunk, j, n, tile, n));
        struct hop_lora_up up = {.dtype = plan->cut.dtype,
                                 .m = chunk.rows,
                                 .n = n,
                                 .rank = plan->rank,
                                 .u = t,
                                 .ldu = plan->rank,
                                 .c = tile,
                                 .ldc = n,
                                 .y = (char *)dx + (size_t)(chunk.row * plan->cut.in + j) *
                                                       hop_dtype_size(plan->cut.dtype),
                                 .ldy = plan->cut.in};
        input_adapters(&up, plan, j, pointer);
        hop_lora_up(&up);
    }
    return HOP_OK;
}

static hop_status backward_chunk(const struct plan *plan, struct hop_cpu_thread *thread, int part,
                                 struct hop_chunk chunk, const void *x, void *dx,
                                 const float *packed, float *partial)
{
    float *const all = (float *)(void *)(thread->scratch + plan->t), *t = all;
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        if (!p->lora)
            continue;
        for (int64_t row = 0; row < chunk.rows; row += ADAPTER_ROWS) {
            const int64_t left = chunk.rows - row;
            const struct hop_chunk few = {.row = chunk.row + row,
                                          .rows = left < ADAPTER_ROWS ? left : ADAPTER_ROWS};
            backward_adapter(plan, part, few, x, p, packed, t + row * plan->rank, partial);
        }
        t += p->lora->rank;
        packed += p->lora->rank * p->weight->out;
        partial += p->lora->rank * (plan->cut.in + p->weight->out);
    }
    return dx ? backward_input(plan, thread, part, chunk, all, dx) : HOP_OK;
}

static void backward_share(const struct plan *plan, struct hop_cpu_thread *thread, int32_t t,
                           const void *x, void *dx, const float *packed, float *partials)
{
    const int part = t % plan->cut.parts;
    float *const partial = partial_of(plan, partials, t / plan->cut.parts);
    const struct hop_cpu_range mine = hop_cut_share(&plan->cut, t);
    clear_partial(plan, partial, part);
    for (int64_t c = mine.begin; c < mine.end && thread->status == HOP_OK; c++)
        thread->status = backward_chunk(plan, thread, part, hop_cut_chunk(&plan->cut, c), x, dx,
                                        packed, partial);
}

/* sum[i] over row threads, always in the same order. */
static float gather_partials(const struct plan *plan, const float *first, int64_t i)
{
    float sum = 0.0f;
    for (int32_t t = 0; t < plan->cut.row_threads; t++)
        sum += first[(size_t)t * (plan->partial_bytes / sizeof(float)) + (size_t)i];
    return sum;
}

static void reduce(const struct plan *plan, const float *partials, int thread, int threads)
{
    for (int i = 0; i < plan->n; i++) {
        const struct hop_projection *const p = &plan->projections[i];
        const int64_t rank = rank_of(p), out = p->weight->out;
        const struct hop_cpu_range a =
            hop_cpu_share(rank * plan->cut.in, threads, thread, HOP_CUT_UNIT);
        for (int64_t e = a.begin; p->da && e < a.end; e++)
            p->da[e] += gather_partials(plan, partials, e);
        partials += rank * plan->cut.in;
        const struct hop_cpu_range b = hop_cpu_share(out, threads, thread, HOP_CUT_UNIT);
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
                            partials_at + (size_t)plan.cut.row_threads * plan.partial_bytes, err));
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

hop_status hop_cpu_adapter_gradient(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                    const void *x, const struct hop_projection *projection,
                                    struct hop_error *err)
{
    return hop_cpu_project_backward(backend, dtype, rows, x, projection, 1, NULL, err);
}
