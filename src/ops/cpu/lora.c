#include "ops/cpu/lora.h"

#include <stdbool.h>

#include "ops/cpu/simd.h"

/* --- down: dot products along n, 3 rows x 8 ranks of accumulators --- */

enum {
    DOWN_ROWS = 3,
    DOWN_RANKS = 8,
    DOWN_COLUMNS = 512 /* at a time: eight rows of p stay in the first-level cache */
};

#define LOW(a, b)                                                                                  \
    __builtin_shufflevector((a), (b), 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH(a, b)                                                                                 \
    __builtin_shufflevector((a), (b), 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define QUARTERS_0(a, b)                                                                           \
    __builtin_shufflevector((a), (b), 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define QUARTERS_1(a, b)                                                                           \
    __builtin_shufflevector((a), (b), 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#define PAIRS_0(a, b)                                                                              \
    __builtin_shufflevector((a), (b), 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29)
#define PAIRS_1(a, b)                                                                              \
    __builtin_shufflevector((a), (b), 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31)

/* out[i] = sum of the lanes of v[i]: halves are added pairwise until one vector holds two lanes a
 * sum. */
HOP_INLINE void sum_lanes(const hop_v16 v[DOWN_RANKS], float out[DOWN_RANKS])
{
    hop_v16 half[4], quarter[2];
    for (int i = 0; i < 4; i++)
        half[i] = LOW(v[2 * i], v[2 * i + 1]) + HIGH(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; i++)
        quarter[i] =
            QUARTERS_0(half[2 * i], half[2 * i + 1]) + QUARTERS_1(half[2 * i], half[2 * i + 1]);
    const hop_v16 pairs = PAIRS_0(quarter[0], quarter[1]) + PAIRS_1(quarter[0], quarter[1]);
    float lane[HOP_LANES];
    hop_v_store_f32(lane, pairs);
    for (int i = 0; i < DOWN_RANKS; i++)
        out[i] = lane[2 * i] + lane[2 * i + 1];
}

/* Columns [j, end) of `rows` rows of x against `ranks` rows of p; the counts are constants at every
 * call. */
HOP_INLINE void down_tile(enum hop_dtype dtype, const int rows, const int ranks, bool add,
                          int64_t j, int64_t end, const void *x, int64_t ldx, const float *p,
                          int64_t ldp, float *u, int64_t ldu)
{
    hop_v16 sum[DOWN_ROWS][DOWN_RANKS] = {0};
    for (; j + HOP_LANES <= end; j += HOP_LANES) {
        hop_v16 xv[DOWN_ROWS];
        for (int i = 0; i < rows; i++)
            xv[i] = hop_v_load(x, dtype, i * ldx + j);
        for (int r = 0; r < ranks; r++) {
            hop_v16 pv = hop_v_load_f32(p + r * ldp + j);
            HOP_V_KEEP(pv);
            for (int i = 0; i < rows; i++)
                sum[i][r] += xv[i] * pv;
        }
    }
    for (int i = 0; j < end && i < rows; i++) {
        const hop_v16 xv = hop_v_load_part(x, dtype, i * ldx + j, end - j);
        for (int r = 0; r < ranks; r++)
            sum[i][r] += xv * hop_v_load_part(p + r * ldp, HOP_F32, j, end - j);
    }
    for (int i = 0; i < rows; i++) {
        float out[DOWN_RANKS];
        sum_lanes(sum[i], out);
        for (int r = 0; r < ranks; r++)
            u[i * ldu + r] = add ? u[i * ldu + r] + out[r] : out[r];
    }
}

HOP_INLINE void down_rows(enum hop_dtype dtype, const int rows, int64_t rank, bool add, int64_t j,
                          int64_t end, const void *x, int64_t ldx, const float *p, int64_t ldp,
                          float *u, int64_t ldu)
{
    int64_t r = 0;
    for (; r + 8 <= rank; r += 8)
        down_tile(dtype, rows, 8, add, j, end, x, ldx, p + r * ldp, ldp, u + r, ldu);
    for (; r + 4 <= rank; r += 4)
        down_tile(dtype, rows, 4, add, j, end, x, ldx, p + r * ldp, ldp, u + r, ldu);
    for (; r < rank; r++)
        down_tile(dtype, rows, 1, add, j, end, x, ldx, p + r * ldp, ldp, u + r, ldu);
}

HOP_INLINE void down(enum hop_dtype dtype, int64_t m, int64_t n, int64_t rank, const void *x,
                     int64_t ldx, const float *p, int64_t ldp, float *u, int64_t ldu)
{
    for (int64_t j = 0; j < n; j += DOWN_COLUMNS) {
        const int64_t end = n - j < DOWN_COLUMNS ? n : j + DOWN_COLUMNS;
        const char *at = x;
        const size_t step = (size_t)ldx * hop_dtype_size(dtype);
        int64_t i = 0;
        for (; i + DOWN_ROWS <= m; i += DOWN_ROWS, at += DOWN_ROWS * step)
            down_rows(dtype, DOWN_ROWS, rank, j > 0, j, end, at, ldx, p, ldp, u + i * ldu, ldu);
        for (; i < m; i++, at += step)
            down_rows(dtype, 1, rank, j > 0, j, end, at, ldx, p, ldp, u + i * ldu, ldu);
    }
}

void hop_lora_down(enum hop_dtype dtype, int64_t m, int64_t n, int64_t rank, const void *x,
                   int64_t ldx, const float *p, int64_t ldp, float *u, int64_t ldu)
{
    if (dtype == HOP_F32)
        down(HOP_F32, m, n, rank, x, ldx, p, ldp, u, ldu);
    else
        down(HOP_BF16, m, n, rank, x, ldx, p, ldp, u, ldu);
}

/* --- up: 8 rows x 2 vectors of y, ranks innermost --- */

enum {
    UP_ROWS = 8,
    UP_COLUMNS = 256 /* at a time: the rows of p stay in the first-level cache */
};

HOP_INLINE void up_tile(const struct hop_lora_up call, enum hop_dtype dtype, const int rows,
                        const int vectors, int64_t i, int64_t j)
{
    hop_v16 sum[UP_ROWS][2];
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < vectors; b++)
            sum[a][b] = call.c ? hop_v_load_f32(call.c + (i + a) * call.ldc + j + b * HOP_LANES)
                               : (hop_v16){0};
    for (int b = 0; call.bias && b < vectors; b++) {
        const hop_v16 bias = hop_v_load_f32(call.bias + j + b * HOP_LANES);
        for (int a = 0; a < rows; a++)
            sum[a][b] += bias;
    }
    const float *const u = call.u + i * call.ldu;
    for (int64_t r = 0; r < call.rank; r++) {
        hop_v16 p[2];
        for (int b = 0; b < vectors; b++)
            p[b] = hop_v_load_f32(call.row[r] + j + b * HOP_LANES);
        for (int a = 0; a < rows; a++)
            for (int b = 0; b < vectors; b++)
                sum[a][b] += u[a * call.ldu + r] * p[b];
    }
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < vectors; b++) {
            const int64_t at = (i + a) * call.ldy + j + b * HOP_LANES;
            if (call.residual)
                sum[a][b] += hop_v_load(call.residual, dtype, at);
            hop_v_store(call.y, dtype, at, sum[a][b]);
        }
}

/* The last few columns of a row. */
static void up_edge(const struct hop_lora_up *call, int64_t i, int64_t j)
{
    const int64_t count = call->n - j, at = i * call->ldy + j;
    hop_v16 sum = {0};
    if (call->c)
        sum = hop_v_load_part(call->c + i * call->ldc, HOP_F32, j, count);
    if (call->bias)
        sum += hop_v_load_part(call->bias, HOP_F32, j, count);
    for (int64_t r = 0; r < call->rank; r++)
        sum += call->u[i * call->ldu + r] * hop_v_load_part(call->row[r], HOP_F32, j, count);
    if (call->residual)
        sum += hop_v_load_part(call->residual, call->dtype, at, count);
    hop_v_store_part(call->y, call->dtype, at, sum, count);
}

HOP_INLINE void up_rows(const struct hop_lora_up call, enum hop_dtype dtype, const int rows,
                        int64_t i, int64_t j, int64_t end)
{
    for (; j + 2 * HOP_LANES <= end; j += 2 * HOP_LANES)
        up_tile(call, dtype, rows, 2, i, j);
    for (; j + HOP_LANES <= end; j += HOP_LANES)
        up_tile(call, dtype, rows, 1, i, j);
    for (int a = 0; j < end && a < rows; a++)
        up_edge(&call, i + a, j);
}

/* The description is passed by value: stores to y could otherwise change it, as far as the compiler
 * knows. */
HOP_INLINE void up(const struct hop_lora_up call, enum hop_dtype dtype)
{
    for (int64_t j = 0; j < call.n; j += UP_COLUMNS) {
        const int64_t end = call.n - j < UP_COLUMNS ? call.n : j + UP_COLUMNS;
        int64_t i = 0;
        for (; i + UP_ROWS <= call.m; i += UP_ROWS)
            up_rows(call, dtype, UP_ROWS, i, j, end);
        for (; i < call.m; i++)
            up_rows(call, dtype, 1, i, j, end);
    }
}

void hop_lora_up(const struct hop_lora_up *call)
{
    if (call->dtype == HOP_F32)
        up(*call, HOP_F32);
    else
        up(*call, HOP_BF16);
}

/* --- outer: 8 ranks x 2 vectors of g, rows innermost --- */

enum {
    OUTER_ROWS = 64
}; /* rows before the next columns: keeps their pages in the first-level TLB */

HOP_INLINE void outer_tile(enum hop_dtype dtype, const int ranks, const int vectors, int64_t m,
                           const float *u, int64_t ldu, const void *x, int64_t ldx, int64_t j,
                           float *g, int64_t ldg)
{
    hop_v16 sum[8][2];
    for (int r = 0; r < ranks; r++)
        for (int b = 0; b < vectors; b++)
            sum[r][b] = hop_v_load_f32(g + r * ldg + j + b * HOP_LANES);
    for (int64_t i = 0; i < m; i++) {
        hop_v16 xv[2];
        for (int b = 0; b < vectors; b++)
            xv[b] = hop_v_load(x, dtype, i * ldx + j + b * HOP_LANES);
        for (int r = 0; r < ranks; r++)
            for (int b = 0; b < vectors; b++)
                sum[r][b] += u[i * ldu + r] * xv[b];
    }
    for (int r = 0; r < ranks; r++)
        for (int b = 0; b < vectors; b++)
            hop_v_store_f32(g + r * ldg + j + b * HOP_LANES, sum[r][b]);
}

static void outer_edge(enum hop_dtype dtype, int64_t m, int64_t n, int64_t ranks, const float *u,
                       int64_t ldu, const void *x, int64_t ldx, int64_t j, float *g, int64_t ldg)
{
    for (int64_t r = 0; r < ranks; r++) {
        hop_v16 sum = hop_v_load_part(g + r * ldg, HOP_F32, j, n - j);
        for (int64_t i = 0; i < m; i++)
            sum += u[i * ldu + r] * hop_v_load_part(x, dtype, i * ldx + j, n - j);
        hop_v_store_part(g + r * ldg, HOP_F32, j, sum, n - j);
    }
}

HOP_INLINE void outer_ranks(enum hop_dtype dtype, const int ranks, int64_t m, int64_t n,
                            const float *u, int64_t ldu, const void *x, int64_t ldx, float *g,
                            int64_t ldg)
{
    int64_t j = 0;
    for (; j + 2 * HOP_LANES <= n; j += 2 * HOP_LANES)
        outer_tile(dtype, ranks, 2, m, u, ldu, x, ldx, j, g, ldg);
    for (; j + HOP_LANES <= n; j += HOP_LANES)
        outer_tile(dtype, ranks, 1, m, u, ldu, x, ldx, j, g, ldg);
    if (j < n)
        outer_edge(dtype, m, n, ranks, u, ldu, x, ldx, j, g, ldg);
}

HOP_INLINE void outer(enum hop_dtype dtype, int64_t m, int64_t n, int64_t rank, const float *u,
                      int64_t ldu, const void *x, int64_t ldx, float *g, int64_t ldg)
{
    int64_t r = 0;
    for (; r + 8 <= rank; r += 8)
        outer_ranks(dtype, 8, m, n, u + r, ldu, x, ldx, g + r * ldg, ldg);
    for (; r + 4 <= rank; r += 4)
        outer_ranks(dtype, 4, m, n, u + r, ldu, x, ldx, g + r * ldg, ldg);
    for (; r < rank; r++)
        outer_ranks(dtype, 1, m, n, u + r, ldu, x, ldx, g + r * ldg, ldg);
}

void hop_lora_outer(enum hop_dtype dtype, int64_t m, int64_t n, int64_t rank, const float *u,
                    int64_t ldu, const void *x, int64_t ldx, float *g, int64_t ldg)
{
    const size_t size = hop_dtype_size(dtype);
    for (int64_t i = 0; i < m; i += OUTER_ROWS) {
        const int64_t rows = m - i < OUTER_ROWS ? m - i : OUTER_ROWS;
        const void *const at = (const char *)x + (size_t)(i * ldx) * size;
        if (dtype == HOP_F32)
            outer(HOP_F32, rows, n, rank, u + i * ldu, ldu, at, ldx, g, ldg);
        else
            outer(HOP_BF16, rows, n, rank, u + i * ldu, ldu, at, ldx, g, ldg);
    }
}
