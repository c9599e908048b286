/* Small dense products of attention tiles, all f32 and in the first- or second-level cache:
 * c (m, n) = [c +] a (m, k) b (k, n), with n a multiple of 16 and any strides for a, so that a
 * matrix can be read transposed for nothing. Six rows by four vectors of c stay in registers. */
#ifndef HOP_OPS_CPU_TILE_H
#define HOP_OPS_CPU_TILE_H

#include <stdint.h>

struct hop_tile {
    int64_t m, n, k;
    const float *a;
    int64_t row, step; /* of a: elements between rows, and between consecutive k */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
};

void hop_tile_multiply(const struct hop_tile *tile);
void hop_tile_multiply_add(const struct hop_tile *tile);

#endif
