/* What attention forward, backward and tangent share.
 *
 * The queries of all heads of a group read the same keys, so they are the columns of one problem:
 * column c of a sequence and key/value head is query c / group of head c % group of its own. Scores
 * are kept with keys down and columns across: maxima and sums over keys are then plain vector
 * operations, keys and values are read where they lie, and only the (once per block) queries are
 * transposed. */
#ifndef HOP_OPS_CPU_ATTENTION_H
#define HOP_OPS_CPU_ATTENTION_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

enum {
    HOP_COLUMNS = 64, /* of a block */
    HOP_VECTORS = HOP_COLUMNS / HOP_LANES,
    HOP_KEYS = 96 /* of a tile; a multiple of the six rows of a tile product */
};

/* One sequence and key/value head. */
struct hop_heads {
    const struct hop_attention *shape;
    enum hop_dtype dtype;
    int32_t sequence, kv_head;
    int32_t first, group; /* query heads [first, first + group) read it */
    int64_t queries, keys, columns;
    int64_t d, padded; /* head_dim, and rounded up to whole vectors */
};
struct hop_heads hop_heads_at(const struct hop_attention *shape, enum hop_dtype dtype,
                              int32_t sequence, int32_t kv_head);

/* Blocks of HOP_COLUMNS columns of all sequences and key/value heads, as tasks; some may be beyond
 * the columns their head has. */
int64_t hop_heads_tasks(const struct hop_attention *shape);
/* The heads of a task, *first the first column of its block. */
struct hop_heads hop_heads_task(const struct hop_attention *shape, enum hop_dtype dtype,
                                int64_t task, int64_t *first);

/* Calls task(call, t, scratch) for all t < tasks over the backend's threads, each thread with
 * `each` bytes of scratch of its own. */
typedef void hop_heads_work(const void *call, int64_t task, char *scratch);
hop_status hop_heads_run(struct hop_backend *backend, int64_t tasks, size_t each,
                         hop_heads_work *task, const void *call, struct hop_error *err);

/* Elements from the start of k (or v, dk, dv) to a key of this head. */
int64_t hop_heads_key(const struct hop_heads *heads, int64_t key);

/* A block of at most HOP_COLUMNS columns. Columns past the end count as the last one. */
struct hop_block {
    int64_t count, vectors;
    hop_i16 visible[HOP_VECTORS];
    int64_t least, most; /* keys seen by the first and the last column */
    /* elements from the start of q (or dq), out (or dout) and lse to a column's row */
    int64_t query[HOP_COLUMNS], out[HOP_COLUMNS], lse[HOP_COLUMNS];
};
void hop_block_find(const struct hop_heads *heads, int64_t first, struct hop_block *block);

/* to (d, HOP_COLUMNS) = scale * the block's rows `at` in from, transposed. Unused columns are zero.
 */
void hop_block_transpose(const struct hop_heads *heads, const struct hop_block *block,
                         const void *from, const int64_t at[HOP_COLUMNS], float scale, float *to);
/* The block's rows `at` in to, from (d, HOP_COLUMNS): row of column c times factor[c]. */
void hop_block_restore(const struct hop_heads *heads, const struct hop_block *block,
                       const float *from, const hop_v16 factor[HOP_VECTORS],
                       const int64_t at[HOP_COLUMNS], void *to);

/* Keys or values [begin, end) as f32: where they lie, or widened into `wide` (keys, padded). */
struct hop_rows {
    const float *data;
    int64_t stride;
};
struct hop_rows hop_heads_rows(const struct hop_heads *heads, const void *from, int64_t begin,
                               int64_t end, float *wide);

/* Scores of keys [key, key+n) that a column does not see become -infinity. */
void hop_block_mask(const struct hop_block *block, int64_t key, int64_t n, float *score);

#endif
