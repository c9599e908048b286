#include "schedule/reduction.h"

#include <stdlib.h>

#include "base/memory.h"

struct builder {
    const struct hop_plan *plan;
    struct hop_reduction *items;
    size_t count, capacity;
    int32_t *members; /* parts of the items, one after the other */
    size_t member_count, member_capacity;
};

static bool trains(const struct hop_part *part, int32_t block)
{
    return part->gradient == HOP_GRADIENT_BACKPROP && part->lo <= block && block < part->hi;
}

static bool holds(const struct hop_part *part, const struct hop_reduction *reduction)
{
    return trains(part, reduction->lo) &&
           (reduction->factors != HOP_FACTORS_SPLIT ||
            (part->tensor_lo <= reduction->tensor_lo && reduction->tensor_hi <= part->tensor_hi));
}

/* Adds a reduction among all its holders; a single one has nobody to add up with. */
static hop_status add(struct builder *b, struct hop_reduction reduction, struct hop_error *err)
{
    const size_t begin = b->member_count;
    for (int32_t p = 0; p < b->plan->part_count; p++) {
        if (!holds(&b->plan->parts[p], &reduction))
            continue;
        HOP_TRY(hop_grow(&b->members, &b->member_capacity, b->member_count + 1, sizeof *b->members,
                         err));
        b->members[b->member_count++] = p;
    }
    reduction.count = (int32_t)(b->member_count - begin);
    if (reduction.count < 2) {
        b->member_count = begin;
        return HOP_OK;
    }
    HOP_TRY(hop_grow(&b->items, &b->capacity, b->count + 1, sizeof *b->items, err));
    b->items[b->count++] = reduction;
    return HOP_OK;
}

static bool is_sharded(const struct hop_plan *plan, int32_t block)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (trains(&plan->parts[p], block) &&
            (plan->parts[p].tensor_lo > 0 || plan->parts[p].tensor_hi < 1))
            return true;
    return false;
}

/* The first end of a tensor share behind `from`, at most 1. */
static double next_cut(const struct hop_plan *plan, int32_t block, double from)
{
    double cut = 1;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (!trains(part, block))
            continue;
        if (part->tensor_lo > from && part->tensor_lo < cut)
            cut = part->tensor_lo;
        if (part->tensor_hi > from && part->tensor_hi < cut)
            cut = part->tensor_hi;
    }
    return cut;
}

/* Blocks [lo, hi) have the same holders. */
static hop_status add_segment(struct builder *b, int32_t lo, int32_t hi, struct hop_error *err)
{
    struct hop_reduction reduction = {.lo = lo, .hi = hi, .tensor_hi = 1};
    if (!is_sharded(b->plan, lo))
        return add(b, reduction, err);
    reduction.factors = HOP_FACTORS_SHARED;
    HOP_TRY(add(b, reduction, err));
    reduction.factors = HOP_FACTORS_SPLIT;
    for (double from = 0; from < 1; from = reduction.tensor_hi) {
        reduction.tensor_lo = from;
        reduction.tensor_hi = next_cut(b->plan, lo, from);
        HOP_TRY(add(b, reduction, err));
    }
    return HOP_OK;
}

static bool is_cut(const struct hop_plan *plan, int32_t block)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].lo == block || plan->parts[p].hi == block)
            return true;
    return false;
}

static hop_status add_segments(struct builder *b, struct hop_error *err)
{
    int32_t lo = 0;
    for (int32_t block = 1; block <= b->plan->blocks; block++) {
        if (block < b->plan->blocks && !is_cut(b->plan, block))
            continue;
        HOP_TRY(add_segment(b, lo, block, err));
        lo = block;
    }
    return HOP_OK;
}

/* The members of the items, and behind them the devices of these. */
static hop_status store(const struct builder *b, struct hop_reductions *out, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&out->storage, 2 * b->member_count, sizeof *out->storage, err));
    for (size_t i = 0; i < b->member_count; i++) {
        out->storage[i] = b->members[i];
        out->storage[b->member_count + i] = b->plan->parts[b->members[i]].device;
    }
    const int32_t *members = out->storage;
    for (size_t r = 0; r < b->count; r++) {
        b->items[r].parts = members;
        b->items[r].devices = members + b->member_count;
        members += b->items[r].count;
    }
    out->items = b->items;
    out->count = (int32_t)b->count;
    return HOP_OK;
}

hop_status hop_reductions_derive(const struct hop_plan *plan, struct hop_reductions *out,
                                 struct hop_error *err)
{
    struct builder b = {.plan = plan};
    struct hop_reductions reductions = {0};
    hop_status status = HOP_OK;
    if (!hop_plan_is_line(plan))
        HOP_TRY_DONE(add_segments(&b, err));
    HOP_TRY_DONE(store(&b, &reductions, err));
    *out = reductions;
    b.items = NULL;
done:
    free(b.items);
    free(b.members);
    return status;
}

void hop_reductions_free(struct hop_reductions *reductions)
{
    if (!reductions)
        return;
    free(reductions->items);
    free(reductions->storage);
    *reductions = (struct hop_reductions){0};
}

bool hop_reduction_has(const struct hop_reduction *reduction, int32_t part)
{
    for (int32_t i = 0; i < reduction->count; i++)
        if (reduction->parts[i] == part)
            return true;
    return false;
}
