/* One level of AccPar: two groups of accelerators share every layer of a list. Each layer gets the
 * type and the share that make the sum of the layers' costs least, by a dynamic program over layers
 * and types:
 *
 *     c(l, t) = min over the type r of layer l - 1 of c(l - 1, r) + step(l, t, r)
 *     step    = the larger of cost_i(alpha) and cost_j(1 - alpha)
 *     cost(x) = x work / speed + (intra + inter(x) + shortcut(x)) / bandwidth
 *
 * with the alpha that makes both groups end together. With shortcuts it is no longer exact: the
 * type at the start of a shortcut is that of the best way to layer l - 1. */
#ifndef HOP_STRATEGY_ACCPAR_LEVEL_H
#define HOP_STRATEGY_ACCPAR_LEVEL_H

#include <stdbool.h>

#include "base/error.h"
#include "strategy/accpar_layer.h"

struct hop_accpar_rules {
    int32_t types;     /* the first so many may be used; 2 is HyPar, HOP_ACCPAR_TYPES is AccPar */
    double share;      /* of the first group in every layer; NAN: it is solved for */
    bool shortcuts;    /* do they count? */
    bool free_after_i; /* not behind a layer of type I */
};

/* AccPar: all types, shares solved for. */
struct hop_accpar_rules hop_accpar_rules(void);
/* What the program that AccPar's authors released does: halves, and with hop_accpar_equal_groups()
 * nothing but communication counts. */
struct hop_accpar_rules hop_accpar_released_rules(int32_t types);
extern const struct hop_accpar_group hop_accpar_equal_groups[2];

/* A layer in its surroundings: types of the layers before, or -1 where there is none. */
struct hop_accpar_step {
    const struct hop_accpar_layer *layer;
    enum hop_accpar_type type;
    int32_t before, from; /* layer before; start of the shortcut that ends here */
};

/* Seconds of a group with the share `alpha`. */
double hop_accpar_step_seconds(const struct hop_accpar_step *step,
                               const struct hop_accpar_group *group, double alpha);
/* The share of groups[0], in [0, 1], with which both end together; where there is none, the end of
 * the range at which the later one ends earlier. Within 2^-50. */
double hop_accpar_solve_share(const struct hop_accpar_step *step,
                              const struct hop_accpar_group *groups);

/* Stores type and share (of groups[0]) of each of the n >= 1 layers, and the seconds of all. Among
 * equals the lowest type wins. HOP_INPUT: a number that cannot be, or a shortcut from before the
 * first layer. */
hop_status hop_accpar_level(const struct hop_accpar_layer *layers, int32_t n,
                            const struct hop_accpar_group *groups,
                            const struct hop_accpar_rules *rules, enum hop_accpar_type *types,
                            double *shares, double *seconds, struct hop_error *err);

#endif
