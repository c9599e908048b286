/* Adapters between whole factors and the slices that shards hold. */
#include <string.h>

#include "model/shard.h"

static size_t elements(const struct hop_submatrix *slice)
{
    return (size_t)(slice->rows * slice->columns);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Copies what two slices of one matrix have in common; each is stored row after row. */
static void copy(const struct hop_submatrix *from_slice, const float *from,
                 const struct hop_submatrix *to_slice, float *to)
{
    const struct hop_submatrix *const f = from_slice, *const t = to_slice;
    const int64_t first = larger(f->row, t->row);
    const int64_t end = smaller(f->row + f->rows, t->row + t->rows);
    const int64_t begin = larger(f->column, t->column);
    const int64_t n = smaller(f->column + f->columns, t->column + t->columns) - begin;
    for (int64_t r = first; n > 0 && r < end; r++)
        memcpy(to + (r - t->row) * t->columns + (begin - t->column),
               from + (r - f->row) * f->columns + (begin - f->column), (size_t)n * sizeof *to);
}

/* Every factor of an adapter has the rank on one of its sides. */
static int32_t rank_of(const struct hop_parameter *item)
{
    return (int32_t)(item->factor == HOP_LORA_A ? item->rows : item->columns);
}

static struct hop_submatrix slice_of(const struct hop_model_config *model,
                                     const struct hop_shard *shard,
                                     const struct hop_parameter *item)
{
    return hop_shard_factor(model, shard, item->target, item->factor, rank_of(item));
}

static struct hop_submatrix whole_of(const struct hop_model_config *model,
                                     const struct hop_parameter *item)
{
    const struct hop_shard whole = {0};
    return slice_of(model, &whole, item);
}

static bool lies_in(const struct hop_parameter *item, int32_t lo, int32_t hi)
{
    return lo <= item->block && item->block < hi;
}

size_t hop_shard_take(const struct hop_model_config *model, const struct hop_shard *shard,
                      const struct hop_parameters *whole, int32_t lo, int32_t hi,
                      const float *values, float *slices)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++) {
        const struct hop_parameter *const item = &whole->items[i];
        if (!lies_in(item, lo, hi))
            continue;
        const struct hop_submatrix all = whole_of(model, item), own = slice_of(model, shard, item);
        copy(&all, values + item->offset, &own, slices + at);
        at += elements(&own);
    }
    return at;
}

size_t hop_shard_put(const struct hop_model_config *model, const struct hop_shard *shard,
                     const struct hop_parameters *whole, int32_t lo, int32_t hi,
                     const float *slices, float *values)
{
    size_t at = 0;
    for (size_t i = 0; i < whole->count; i++) {
        const struct hop_parameter *const item = &whole->items[i];
        if (!lies_in(item, lo, hi))
            continue;
        const struct hop_submatrix all = whole_of(model, item), own = slice_of(model, shard, item);
        copy(&own, slices + at, &all, values + item->offset);
        at += elements(&own);
    }
    return at;
}

static bool is_summed(const struct hop_shard_sum *sum, const struct hop_parameter *item)
{
    return lies_in(item, sum->lo, sum->hi) &&
           hop_shard_shares(&sum->piece, item->target, item->factor) == sum->shared;
}

/* What `numbers` hold of a factor. */
static struct hop_submatrix summed_of(const struct hop_model_config *model,
                                      const struct hop_shard_sum *sum,
                                      const struct hop_parameter *item)
{
    return sum->shared ? whole_of(model, item) : slice_of(model, &sum->piece, item);
}

size_t hop_shard_sum_count(const struct hop_model_config *model, const struct hop_shard_sum *sum,
                           const struct hop_parameters *part)
{
    size_t count = 0;
    for (size_t i = 0; i < part->count; i++) {
        const struct hop_submatrix slice = summed_of(model, sum, &part->items[i]);
        if (is_summed(sum, &part->items[i]))
            count += elements(&slice);
    }
    return count;
}

void hop_shard_sum_take(const struct hop_model_config *model, const struct hop_shard *shard,
                        const struct hop_shard_sum *sum, const struct hop_parameters *part,
                        const float *slices, float *numbers)
{
    memset(numbers, 0, hop_shard_sum_count(model, sum, part) * sizeof *numbers);
    for (size_t i = 0; i < part->count; i++) {
        const struct hop_parameter *const item = &part->items[i];
        if (!is_summed(sum, item))
            continue;
        const struct hop_submatrix own = slice_of(model, shard, item);
        const struct hop_submatrix summed = summed_of(model, sum, item);
        copy(&own, slices + item->offset, &summed, numbers);
        numbers += elements(&summed);
    }
}

void hop_shard_sum_put(const struct hop_model_config *model, const struct hop_shard *shard,
                       const struct hop_shard_sum *sum, const struct hop_parameters *part,
                       const float *numbers, float *slices)
{
    for (size_t i = 0; i < part->count; i++) {
        const struct hop_parameter *const item = &part->items[i];
        if (!is_summed(sum, item))
            continue;
        const struct hop_submatrix own = slice_of(model, shard, item);
        const struct hop_submatrix summed = summed_of(model, sum, item);
        copy(&summed, numbers, &own, slices + item->offset);
        numbers += elements(&summed);
    }
}
