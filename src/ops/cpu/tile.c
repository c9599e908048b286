#include "ops/cpu/tile.h"

#include <stdbool.h>

#include "ops/cpu/simd.h"

HOP_INLINE void block(const struct hop_tile *t, const int rows, const int vectors, const bool add,
                      int64_t i, int64_t j)
{
    hop_v16 sum[6][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] =
                add ? hop_v_load_f32(t->c + (i + r) * t->ldc + j + v * HOP_LANES) : (hop_v16){0};
    const float *a = t->a + i * t->row, *b = t->b + j;
    for (int64_t l = 0; l < t->k; l++, a += t->step, b += t->ldb) {
        hop_v16 bv[4];
        for (int v = 0; v < vectors; v++)
            bv[v] = hop_v_load_f32(b + v * HOP_LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                sum[r][v] += a[r * t->row] * bv[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            hop_v_store_f32(t->c + (i + r) * t->ldc + j + v * HOP_LANES, sum[r][v]);
}

HOP_INLINE void columns(const struct hop_tile *t, const int vectors, const bool add, int64_t j)
{
    int64_t i = 0;
    for (; i + 6 <= t->m; i += 6)
        block(t, 6, vectors, add, i, j);
    for (; i + 4 <= t->m; i += 4)
        block(t, 4, vectors, add, i, j);
    for (; i + 2 <= t->m; i += 2)
        block(t, 2, vectors, add, i, j);
    for (; i < t->m; i++)
        block(t, 1, vectors, add, i, j);
}

HOP_INLINE void run(const struct hop_tile *t, const bool add)
{
    int64_t j = 0;
    for (; j + 4 * HOP_LANES <= t->n; j += 4 * HOP_LANES)
        columns(t, 4, add, j);
    for (; j + 3 * HOP_LANES <= t->n; j += 3 * HOP_LANES)
        columns(t, 3, add, j);
    for (; j + 2 * HOP_LANES <= t->n; j += 2 * HOP_LANES)
        columns(t, 2, add, j);
    for (; j + HOP_LANES <= t->n; j += HOP_LANES)
        columns(t, 1, add, j);
}

void hop_tile_multiply(const struct hop_tile *tile)
{
    run(tile, false);
}

void hop_tile_multiply_add(const struct hop_tile *tile)
{
    run(tile, true);
}
