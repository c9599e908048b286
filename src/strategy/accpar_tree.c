#include "strategy/accpar_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void hop_accpar_tree_free(struct hop_accpar_tree *tree)
{
    if (!tree)
        return;
    free(tree->splits);
    free(tree->parts);
    free(tree->types);
    free(tree->shares);
    *tree = (struct hop_accpar_tree){0};
}

struct growth {
    const struct hop_accpar_device *devices;
    const struct hop_accpar_group *groups;
    const struct hop_accpar_rules *rules;
    struct hop_accpar_tree *tree;
};

static struct hop_accpar_layer *part_of(const struct hop_accpar_tree *tree, int32_t accelerator)
{
    return &tree->parts[(size_t)accelerator * (size_t)tree->layers];
}

static struct hop_accpar_group sum(const struct hop_accpar_group *groups, int32_t lo, int32_t hi)
{
    struct hop_accpar_group all = {0};
    for (int32_t i = lo; i < hi; i++) {
        all.speed += groups[i].speed;
        all.bandwidth += groups[i].bandwidth;
    }
    return all;
}

/* Until a half is split, its part of the layers stands where its first accelerator's will. */
static void hand_down(const struct hop_accpar_tree *tree, const struct hop_accpar_split *split)
{
    for (int32_t l = 0; l < tree->layers; l++) {
        struct hop_accpar_layer *const first = &part_of(tree, split->lo)[l];
        part_of(tree, split->middle)[l] =
            hop_accpar_cut(first, split->types[l], 1 - split->shares[l]);
        *first = hop_accpar_cut(first, split->types[l], split->shares[l]);
    }
}

static hop_status grow(const struct growth *growth, int32_t lo, int32_t hi, int32_t depth,
                       struct hop_error *err)
{
    struct hop_accpar_tree *const tree = growth->tree;
    if (hi - lo < 2)
        return HOP_OK;
    const int32_t middle = hop_accpar_middle(growth->devices, lo, hi);
    const struct hop_accpar_group halves[2] = {sum(growth->groups, lo, middle),
                                               sum(growth->groups, middle, hi)};
    struct hop_accpar_split *const split = &tree->splits[tree->count];
    const size_t offset = (size_t)tree->count++ * (size_t)tree->layers;
    *split = (struct hop_accpar_split){.depth = depth,
                                       .lo = lo,
                                       .middle = middle,
                                       .hi = hi,
                                       .types = &tree->types[offset],
                                       .shares = &tree->shares[offset]};
    HOP_TRY(hop_accpar_level(part_of(tree, lo), tree->layers, halves, growth->rules, split->types,
                             split->shares, &split->seconds, err));
    hand_down(tree, split);
    HOP_TRY(grow(growth, lo, middle, depth + 1, err));
    return grow(growth, middle, hi, depth + 1, err);
}

hop_status hop_accpar_tree_create(const struct hop_accpar_layer *layers, int32_t layer_count,
                                  const struct hop_accpar_device *devices,
                                  const struct hop_accpar_group *groups, int32_t n,
                                  const struct hop_accpar_rules *rules, struct hop_accpar_tree *out,
                                  struct hop_error *err)
{
    struct hop_accpar_tree tree = {.layers = layer_count};
    const struct growth growth = {devices, groups, rules, &tree};
    hop_status status = HOP_OK;
    if (n < 1 || layer_count < 1)
        return hop_fail(err, HOP_INPUT,
                        "accpar: %d accelerators and %d layers; at least 1 of each is needed", n,
                        layer_count);
    const size_t cells = (size_t)n * (size_t)layer_count;
    HOP_TRY_DONE(hop_calloc(&tree.splits, (size_t)n, sizeof *tree.splits, err));
    HOP_TRY_DONE(hop_calloc(&tree.parts, cells, sizeof *tree.parts, err));
    HOP_TRY_DONE(hop_calloc(&tree.types, cells, sizeof *tree.types, err));
    HOP_TRY_DONE(hop_calloc(&tree.shares, cells, sizeof *tree.shares, err));
    memcpy(tree.parts, layers, (size_t)layer_count * sizeof *layers);
    HOP_TRY_DONE(grow(&growth, 0, n, 0, err));
    *out = tree;
    return HOP_OK;
done:
    hop_accpar_tree_free(&tree);
    return status;
}
