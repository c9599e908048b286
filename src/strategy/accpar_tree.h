/* AccPar on an array of accelerators: split it in two, share the layers between the halves
 * (accpar_level.h), and do the same inside each half with what it got, down to single ones. */
#ifndef HOP_STRATEGY_ACCPAR_TREE_H
#define HOP_STRATEGY_ACCPAR_TREE_H

#include "strategy/accpar_bisect.h"
#include "strategy/accpar_level.h"

/* Accelerators [lo, middle) and [middle, hi). */
struct hop_accpar_split {
    int32_t depth, lo, middle, hi;
    enum hop_accpar_type *types; /* (layers) */
    double *shares;              /* (layers) of the first half */
    double seconds;
};

struct hop_accpar_tree {
    int32_t layers, count;
    struct hop_accpar_split *splits; /* (accelerators - 1) a half's splits follow its parent's */
    struct hop_accpar_layer *parts;  /* (accelerators, layers) what each has of every layer */
    enum hop_accpar_type *types;
    double *shares;
};

/* devices (n >= 1) in the order of hop_accpar_sort(), with a group of one in `groups` each. A
 * half's speed and bandwidth are the sums over its accelerators: each exchanges its own part. */
hop_status hop_accpar_tree_create(const struct hop_accpar_layer *layers, int32_t layer_count,
                                  const struct hop_accpar_device *devices,
                                  const struct hop_accpar_group *groups, int32_t n,
                                  const struct hop_accpar_rules *rules, struct hop_accpar_tree *out,
                                  struct hop_error *err);
void hop_accpar_tree_free(struct hop_accpar_tree *tree);

#endif
