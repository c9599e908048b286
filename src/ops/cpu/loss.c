/* Log-probabilities of labels, their gradient and their tangents, one tile of the vocabulary at a
 * time.
 *
 * The gradient sum_o softmax_o W_o has the shape of attention with the head as keys and values, so
 * it is computed the same way: logits of a tile, exponentials under the running maximum, their
 * product with the same (still cached) rows of the head added to an f32 sum that is rescaled when
 * the maximum grows. A row's logits never exist beyond one tile and are computed once. The label's
 * own term -W_id is subtracted at the end in f32, where bf16 softmax minus one would have lost its
 * small entries. A tangent is dlogit_id - sum_o softmax_o dlogit_o: its rows join the primal ones
 * in the product with the head, and its sum is kept like the gradient's, one number wide.
 *
 * Rows are shared out among threads; where they are too few, `parts` threads take the same rows and
 * a share of the vocabulary each, and their maxima and sums are merged afterwards. */
#include <math.h>
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

enum {
    LOSS_ROWS =
        512, /* at a time: each pass over the head serves as many rows as the cache allows */
    TILE_WORDS = 512, /* of a tile of logits: with 512 rows one megabyte */
    UNIT = 16,
    ROW_SHARE = 64 /* rows below which threads share out the vocabulary instead */
};

struct call {
    enum hop_dtype dtype;
    const void *x;
    const struct hop_weight *head;
    int32_t labels;
    const int32_t *row, *id;
    float scale;
    float *logprob;
    void *dx;             /* gradient; NULL: none */
    int32_t count;        /* of tangents */
    const void *tangent;  /* (count * rows, dim); NULL: none */
    float *dlogprob;      /* (count, labels) */
    int64_t rows, width;  /* of x and a tangent; of a row of sum: dim, count or 0 */
    int64_t distinct;     /* rows with a label */
    const int32_t *first; /* (distinct + 1): first label of each distinct row */
    int32_t row_threads, parts;
    size_t tile, sum, packed_x, largest, total; /* offsets into a thread's scratch */
};

/* The label rows of a chunk, gathered. */
struct chunk {
    int64_t first, rows;    /* among the distinct rows */
    const void *x;          /* (rows, dim), then those of each tangent */
    float *tile;            /* (rows, TILE_WORDS), then those of each tangent */
    float *sum;             /* (rows, width) */
    float *largest, *total; /* (rows) */
};

static size_t size_of(const struct call *call)
{
    return hop_dtype_size(call->dtype);
}

static int32_t row_at(const struct call *call, int64_t distinct)
{
    return call->row[call->first[distinct]];
}

static void copy_rows(const struct call *call, const struct chunk *chunk, const void *from,
                      char *to)
{
    const size_t bytes = (size_t)call->head->in * size_of(call);
    for (int64_t i = 0; i < chunk->rows; i++)
        memcpy(to + (size_t)i * bytes,
               (const char *)from + (size_t)row_at(call, chunk->first + i) * bytes, bytes);
}

/* Rows with labels, contiguous: x itself where they already are and stand alone. */
static const void *gather(const struct call *call, const struct chunk *chunk, char *to)
{
    const size_t bytes = (size_t)call->head->in * size_of(call);
    const int32_t begin = row_at(call, chunk->first);
    if (!call->count && row_at(call, chunk->first + chunk->rows - 1) - begin == chunk->rows - 1)
        return (const char *)call->x + (size_t)begin * bytes;
    copy_rows(call, chunk, call->x, to);
    for (int64_t c = 0; c < call->count; c++)
        copy_rows(call, chunk, (const char *)call->tangent + (size_t)(c * call->rows) * bytes,
                  to + (size_t)((c + 1) * chunk->rows) * bytes);
    return to;
}

/* Labels of the tile: their logits (or tangents' logits) go to the result until the row's sum is
 * known. */
static void pick_labels(const struct call *call, const struct chunk *chunk, const float *tile,
                        int64_t word, int64_t n, float *to)
{
    for (int64_t i = 0; i < chunk->rows; i++)
        for (int32_t l = call->first[chunk->first + i]; l < call->first[chunk->first + i + 1]; l++)
            if (call->id[l] >= word && call->id[l] < word + n)
                to[l] = tile[i * n + call->id[l] - word];
}

static void pick_all(const struct call *call, const struct chunk *chunk, int64_t word, int64_t n)
{
    if (call->logprob)
        pick_labels(call, chunk, chunk->tile, word, n, call->logprob);
    for (int64_t c = 0; c < call->count; c++)
        pick_labels(call, chunk, chunk->tile + (c + 1) * chunk->rows * n, word, n,
                    call->dlogprob + c * call->labels);
}

HOP_INLINE float row_largest(const float *logit, int64_t n)
{
    hop_v16 most = hop_v_set(-INFINITY);
    int64_t j = 0;
    for (; j + HOP_LANES <= n; j += HOP_LANES)
        most = hop_v_max(most, hop_v_load_f32(logit + j));
    float largest = hop_v_largest(most);
    for (; j < n; j++)
        largest = logit[j] > largest ? logit[j] : largest;
    return largest;
}

/* to[j] = exp(logit[j] - largest) in dtype; returns the sum. to may be logit. */
HOP_INLINE float row_exp(enum hop_dtype dtype, const float *logit, int64_t n, float largest,
                         bool keep, void *to)
{
    hop_v16 sum = {0};
    int64_t j = 0;
    for (; j + HOP_LANES <= n; j += HOP_LANES) {
        const hop_v16 e = hop_v_exp(hop_v_load_f32(logit + j) - largest);
        sum += e;
        if (keep)
            hop_v_store(to, dtype, j, e);
    }
    float total = hop_v_sum(sum);
    if (j < n) {
        const hop_v16 e = hop_v_exp(hop_v_load_part(logit, HOP_F32, j, n - j) - largest);
        for (int64_t i = 0; i < n - j; i++)
            total += e[i];
        if (keep)
            hop_v_store_part(to, dtype, j, e, n - j);
    }
    return total;
}

static void rescale(float *sum, int64_t dim, float factor)
{
    for (int64_t j = 0; j < dim; j += HOP_LANES)
        hop_v_store_upto(sum, HOP_F32, j, hop_v_load_upto(sum, HOP_F32, j, dim) * factor, dim);
}

/* Turns the tile's logits into exponentials and updates each row's maximum and total. bf16 rows are
 * half as long and land on rows already read; tangents do not feed a product and keep f32. */
static void exponentials(const struct call *call, const struct chunk *chunk, int64_t n, bool begun)
{
    const enum hop_dtype kept = call->count ? HOP_F32 : call->dtype;
    for (int64_t i = 0; i < chunk->rows; i++) {
        float *const logit = chunk->tile + i * n;
        void *const to = (char *)chunk->tile + (size_t)(i * n) * hop_dtype_size(kept);
        const float largest = fmaxf(chunk->largest[i], row_largest(logit, n));
        if (largest > chunk->largest[i] && begun) {
            const float factor = expf(chunk->largest[i] - largest);
            chunk->total[i] *= factor;
            if (call->width)
                rescale(chunk->sum + i * call->width, call->width, factor);
        }
        chunk->largest[i] = largest;
        chunk->total[i] += kept == HOP_F32
                               ? row_exp(HOP_F32, logit, n, largest, call->width > 0, to)
                               : row_exp(HOP_BF16, logit, n, largest, call->width > 0, to);
    }
}

static hop_status tile_logits(const struct call *call, struct hop_cpu_thread *thread,
                              const struct chunk *chunk, const void *head, int64_t n)
{
    const int64_t dim = call->head->in;
    const struct hop_gemm_call product = {.dtype = call->dtype,
                                          .transposed = true,
                                          .m = chunk->rows * (1 + call->count),
                                          .n = n,
                                          .k = dim,
                                          .a = chunk->x,
                                          .b = head,
                                          .c = chunk->tile,
                                          .lda = dim,
                                          .ldb = dim,
                                          .ldc = n};
    return hop_gemm_run(thread->gemm, &product, &thread->err);
}

static hop_status tile_gradient(const struct call *call, struct hop_cpu_thread *thread,
                                const struct chunk *chunk, const void *head, int64_t n, bool begun)
{
    const int64_t dim = call->head->in;
    const struct hop_gemm_call product = {.dtype = call->dtype,
                                          .add = begun,
                                          .m = chunk->rows,
                                          .n = dim,
                                          .k = n,
                                          .a = chunk->tile,
                                          .b = head,
                                          .c = chunk->sum,
                                          .lda = n,
                                          .ldb = dim,
                                          .ldc = dim};
    return hop_gemm_run(thread->gemm, &product, &thread->err);
}

HOP_INLINE float row_dot(const float *a, const float *b, int64_t n)
{
    hop_v16 sum = {0};
    for (int64_t j = 0; j < n; j += HOP_LANES)
        sum += hop_v_load_upto(a, HOP_F32, j, n) * hop_v_load_upto(b, HOP_F32, j, n);
    return hop_v_sum(sum);
}

/* sum (rows, count) += exponentials of the row times the logits of each tangent */
static void tile_tangents(const struct call *call, const struct chunk *chunk, int64_t n)
{
    for (int64_t c = 0; c < call->count; c++) {
        const float *const moved = chunk->tile + (c + 1) * chunk->rows * n;
        for (int64_t i = 0; i < chunk->rows; i++)
            chunk->sum[i * call->count + c] += row_dot(chunk->tile + i * n, moved + i * n, n);
    }
}

static hop_status scan_vocabulary(const struct call *call, struct hop_cpu_thread *thread,
                                  const struct chunk *chunk, struct hop_cpu_range words)
{
    const int64_t dim = call->head->in;
    for (int64_t i = 0; i < chunk->rows; i++) {
        chunk->largest[i] = -INFINITY;
        chunk->total[i] = 0.0f;
    }
    if (call->count || (call->dx && words.begin == words.end))
        memset(chunk->sum, 0, (size_t)(chunk->rows * call->width) * sizeof *chunk->sum);
    for (int64_t word = words.begin; word < words.end; word += TILE_WORDS) {
        const int64_t n = words.end - word < TILE_WORDS ? words.end - word : TILE_WORDS;
        const bool begun = word > words.begin;
        const void *const head =
            (const char *)call->head->data + (size_t)(word * dim) * size_of(call);
        HOP_TRY(tile_logits(call, thread, chunk, head, n));
        pick_all(call, chunk, word, n);
        exponentials(call, chunk, n, begun);
        tile_tangents(call, chunk, n);
        if (call->dx)
            HOP_TRY(tile_gradient(call, thread, chunk, head, n, begun));
    }
    return HOP_OK;
}

/* dx = scale (labels of the row * sum / total - sum of the labels' rows of the head) */
HOP_INLINE void finish_row(const struct call *call, enum hop_dtype dtype, int64_t distinct,
                           const float *sum, float total)
{
    const int64_t dim = call->head->in;
    const int32_t begin = call->first[distinct], end = call->first[distinct + 1];
    const float share = call->scale * (float)(end - begin) / total;
    char *const to = (char *)call->dx + (size_t)(call->row[begin] * dim) * size_of(call);
    for (int64_t j = 0; j < dim; j += HOP_LANES) {
        hop_v16 g = hop_v_load_upto(sum, HOP_F32, j, dim) * share;
        for (int32_t l = begin; l < end; l++) {
            const char *const own =
                (const char *)call->head->data + (size_t)(call->id[l] * dim) * size_of(call);
            g -= call->scale * hop_v_load_upto(own, dtype, j, dim);
        }
        hop_v_store_upto(to, dtype, j, g, dim);
    }
}

/* dlogprob = dlogit_id - sum / total */
static void finish_tangents(const struct call *call, const struct chunk *chunk, int64_t i)
{
    const int32_t begin = call->first[chunk->first + i], end = call->first[chunk->first + i + 1];
    for (int64_t c = 0; c < call->count; c++)
        for (int32_t l = begin; l < end; l++)
            call->dlogprob[c * call->labels + l] -=
                chunk->sum[i * call->count + c] / chunk->total[i];
}

static void finish(const struct call *call, const struct chunk *chunk)
{
    for (int64_t i = 0; i < chunk->rows; i++) {
        const int64_t distinct = chunk->first + i;
        const float lse = chunk->largest[i] + logf(chunk->total[i]);
        for (int32_t l = call->first[distinct]; call->logprob && l < call->first[distinct + 1]; l++)
            call->logprob[l] -= lse;
        finish_tangents(call, chunk, i);
        const float *const sum = chunk->sum + i * call->head->in;
        if (call->dx && call->dtype == HOP_F32)
            finish_row(call, HOP_F32, distinct, sum, chunk->total[i]);
        else if (call->dx)
            finish_row(call, HOP_BF16, distinct, sum, chunk->total[i]);
    }
}

/* Adds what another share of the vocabulary found for the same rows. */
static void merge(const struct call *call, const struct chunk *chunk, const struct chunk *other)
{
    const int64_t width = call->width;
    for (int64_t i = 0; i < chunk->rows; i++) {
        const float largest = fmaxf(chunk->largest[i], other->largest[i]);
        const float own = expf(chunk->largest[i] - largest);
        const float its = expf(other->largest[i] - largest);
        chunk->largest[i] = largest;
        chunk->total[i] = chunk->total[i] * own + other->total[i] * its;
        for (int64_t j = i * width; j < (i + 1) * width; j++)
            chunk->sum[j] = chunk->sum[j] * own + other->sum[j] * its;
    }
}

static struct chunk chunk_of(const struct call *call, const struct hop_cpu_thread *thread,
                             int64_t first, int64_t rows)
{
    struct chunk chunk = {.first = first,
                          .rows = rows,
                          .tile = (float *)(void *)(thread->scratch + call->tile),
                          .sum = (float *)(void *)(thread->scratch + call->sum),
                          .largest = (float *)(void *)(thread->scratch + call->largest),
                          .total = (float *)(void *)(thread->scratch + call->total)};
    chunk.x = gather(call, &chunk, thread->scratch + call->packed_x);
    return chunk;
}

/* Rows of x, so that with those of the tangents they are LOSS_ROWS; rows that threads share are one
 * chunk (see run()), below 2 * ROW_SHARE. */
static int64_t rows_at_once(const struct call *call)
{
    const int64_t rows = LOSS_ROWS / (1 + call->count) / UNIT * UNIT;
    return rows > 2 * ROW_SHARE ? rows : 2 * ROW_SHARE;
}

static struct hop_cpu_range rows_of(const struct call *call, int32_t thread)
{
    return hop_cpu_share(call->distinct, call->row_threads, thread / call->parts, UNIT);
}

/* With parts the rows are one chunk, whose state stays in the thread's scratch for merge_share().
 */
static void scan_share(const struct call *call, struct hop_cpu_thread *thread, int32_t t)
{
    const struct hop_cpu_range mine = rows_of(call, t);
    const struct hop_cpu_range words =
        hop_cpu_share(call->head->out, call->parts, t % call->parts, UNIT);
    const int64_t rows = mine.end - mine.begin;
    const int64_t most = rows_at_once(call), chunks = (rows + most - 1) / most;
    for (int64_t c = 0; c < chunks && thread->status == HOP_OK; c++) {
        const struct hop_cpu_range part = hop_cpu_share(rows, chunks, c, UNIT);
        const struct chunk chunk =
            chunk_of(call, thread, mine.begin + part.begin, part.end - part.begin);
        thread->status = scan_vocabulary(call, thread, &chunk, words);
        if (thread->status == HOP_OK && call->parts == 1)
            finish(call, &chunk);
    }
}

static void merge_share(const struct call *call, const struct hop_cpu_thread *thread, int32_t t)
{
    const struct hop_cpu_range mine = rows_of(call, t);
    if (t % call->parts || mine.begin == mine.end)
        return;
    const struct chunk chunk = chunk_of(call, thread, mine.begin, mine.end - mine.begin);
    for (int32_t part = 1; part < call->parts; part++) {
        const struct chunk other = chunk_of(call, thread + part, mine.begin, mine.end - mine.begin);
        merge(call, &chunk, &other);
    }
    finish(call, &chunk);
}

/* first[i] = first label of the i-th distinct row; returns their number. */
static int64_t find_rows(const struct call *call, int32_t *first)
{
    int64_t distinct = 0;
    for (int32_t l = 0; l < call->labels; l++)
        if (l == 0 || call->row[l] != call->row[l - 1])
            first[distinct++] = l;
    first[distinct] = call->labels;
    return distinct;
}

static hop_status run(struct hop_backend *backend, struct call *call, struct hop_error *err)
{
    const size_t rows = (size_t)rows_at_once(call), all = rows * (size_t)(1 + call->count);
    size_t each = 0;
    call->width = call->dx ? call->head->in : call->count;
    call->tile = hop_cpu_place(&each, all * TILE_WORDS * sizeof(float));
    call->sum = hop_cpu_place(&each, rows * (size_t)call->width * sizeof(float));
    call->packed_x = hop_cpu_place(&each, all * (size_t)call->head->in * size_of(call));
    call->largest = hop_cpu_place(&each, rows * sizeof(float));
    call->total = hop_cpu_place(&each, rows * sizeof(float));
    HOP_TRY(hop_cpu_reserve(backend, each, ((size_t)call->labels + 1) * sizeof(int32_t), err));
    int32_t *const first = (int32_t *)(void *)backend->shared;
    call->first = first;
    call->distinct = find_rows(call, first);
    call->parts = 1;
    while (call->distinct < ROW_SHARE * (backend->threads / call->parts) &&
           backend->threads % (2 * call->parts) == 0)
        call->parts *= 2;
    call->row_threads = backend->threads / call->parts;
#pragma omp parallel num_threads(backend->threads)
    {
        hop_cpu_enter();
#pragma omp for schedule(static, 1)
        for (int32_t t = 0; t < backend->threads; t++)
            scan_share(call, &backend->thread[t], t);
        if (call->parts > 1) {
#pragma omp for schedule(static, 1)
            for (int32_t t = 0; t < backend->threads; t++)
                merge_share(call, &backend->thread[t], t);
        }
    }
    return hop_cpu_leave(backend, err);
}

hop_status hop_cpu_loss_forward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                const void *x, const struct hop_weight *head, int32_t labels,
                                const int32_t *row, const int32_t *id, float *logprob,
                                struct hop_error *err)
{
    (void)rows;
    struct call call = {.dtype = dtype,
                        .x = x,
                        .head = head,
                        .labels = labels,
                        .row = row,
                        .id = id,
                        .logprob = logprob};
    return run(backend, &call, err);
}

hop_status hop_cpu_loss_backward(struct hop_backend *backend, enum hop_dtype dtype, int64_t rows,
                                 const void *x, const struct hop_weight *head, int32_t labels,
                                 const int32_t *row, const int32_t *id, float scale, float *logprob,
                                 void *dx, struct hop_error *err)
{
    memset(dx, 0, (size_t)(rows * head->in) * hop_dtype_size(dtype));
    struct call call = {.dtype = dtype,
                        .x = x,
                        .head = head,
                        .labels = labels,
                        .row = row,
                        .id = id,
                        .scale = scale,
                        .logprob = logprob,
                        .dx = dx};
    return run(backend, &call, err);
}

hop_status hop_cpu_loss_tangent(struct hop_backend *backend, enum hop_dtype dtype, int32_t count,
                                int64_t rows, const void *x, const void *dx,
                                const struct hop_weight *head, int32_t labels, const int32_t *row,
                                const int32_t *id, float *dlogprob, struct hop_error *err)
{
    struct call call = {.dtype = dtype,
                        .x = x,
                        .head = head,
                        .labels = labels,
                        .row = row,
                        .id = id,
                        .count = count,
                        .tangent = dx,
                        .dlogprob = dlogprob,
                        .rows = rows};
    return run(backend, &call, err);
}
