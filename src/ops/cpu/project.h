/* What projections forward, backward and tangent share: how rows and columns are cut, and the
 * product with a frozen weight.
 *
 * Rows are cut into chunks of at most HOP_CPU_ROWS; a thread takes a chunk through everything that
 * touches it. Where rows are too few to feed all threads, `parts` threads share a chunk and each
 * takes its columns of every product. Results of a product go to an f32 tile first, so that
 * bias, adapters and residual are added before the only rounding. */
#ifndef HOP_OPS_CPU_PROJECT_H
#define HOP_OPS_CPU_PROJECT_H

#include "ops/cpu/cpu.h"

enum {
    HOP_TILE_COLUMNS = 1024, /* of an f32 tile: with 256 rows one megabyte */
    HOP_FEW_ROWS = 4,        /* up to here a product is bound by reading the weight */
    HOP_CUT_UNIT = 16        /* row and column counts are multiples of it where possible */
};

/* How a call is cut, the same in every thread. */
struct hop_cut {
    enum hop_dtype dtype;
    int64_t rows, step, chunks; /* chunks of step rows */
    int64_t in;                 /* width of x */
    int32_t row_threads, parts;
};
struct hop_cut hop_cut_rows(enum hop_dtype dtype, int64_t rows, int64_t in, int32_t threads);

struct hop_chunk {
    int64_t row, rows;
};
struct hop_chunk hop_cut_chunk(const struct hop_cut *cut, int64_t index);

/* Chunks of thread t, which takes part t % parts of each. */
static inline struct hop_cpu_range hop_cut_share(const struct hop_cut *cut, int32_t t)
{
    return hop_cpu_share(cut->chunks, cut->row_threads, t / cut->parts, 1);
}

static inline const void *hop_cut_row(const struct hop_cut *cut, const void *matrix, int64_t row,
                                      int64_t width)
{
    return (const char *)matrix + (size_t)(row * width) * hop_dtype_size(cut->dtype);
}

/* A thread's columns of a matrix `width` wide, cut into tiles of equal width. */
struct hop_columns {
    struct hop_cpu_range range;
    int64_t width;
};
struct hop_columns hop_cut_columns(const struct hop_cut *cut, int64_t width, int part);

/* c (m, n) f32 = x (m, in) W^T for n rows of a weight; wide has room for HOP_FEW_ROWS rows. */
hop_status hop_cut_product(const struct hop_cut *cut, struct hop_cpu_thread *thread, int64_t m,
                           int64_t n, const void *x, const void *weight, float *wide, float *c,
                           int64_t ldc);

/* to (groups, rank, out) = b (groups, out, rank), each transposed, for the outputs in range. */
void hop_pack_outputs(const float *b, int64_t groups, int64_t rank, int64_t out,
                      struct hop_cpu_range range, float *to);

/* The group a row belongs to, and the first row of the next one. offset NULL: equal runs. */
struct hop_group {
    int64_t index, end;
};
struct hop_group hop_group_of(int32_t groups, const int32_t *offset, int64_t rows, int64_t row);

#endif
