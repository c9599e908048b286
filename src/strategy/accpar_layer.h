/* AccPar's cost of a layer that two groups of accelerators share, group i with the share alpha and
 * group j with 1 - alpha. A layer F' = F W, with E = E' W^T and dW = F^T E' on the way back, is cut
 * along one of its three dimensions:
 *
 *     type I    the samples (B)     partial sums of dW must be exchanged
 *     type II   the inputs (Di)     partial sums of F'
 *     type III  the outputs (Do)    partial sums of E
 *
 * and the tensors between two layers, F and E, are exchanged as far as one group needs what the
 * other has. Amounts are numbers (elements), work is floating-point operations.
 */
#ifndef HOP_STRATEGY_ACCPAR_LAYER_H
#define HOP_STRATEGY_ACCPAR_LAYER_H

#include <stdint.h>

enum hop_accpar_type { HOP_ACCPAR_I, HOP_ACCPAR_II, HOP_ACCPAR_III, HOP_ACCPAR_TYPES };

/* A fully connected layer is a convolution whose maps and kernel are single points. */
struct hop_accpar_layer {
    double batch, in, out;          /* B, Di, Do; what the cuts above left of them */
    double kernel, in_map, out_map; /* points of the kernel and of the maps of F and F' */
    int32_t shortcut; /* F also has the output of the layer that many before it; 0: it has not */
};

/* A group of accelerators. */
struct hop_accpar_group {
    double speed;     /* operations a second; INFINITY: work takes no time */
    double bandwidth; /* elements a second to and from the other group; INFINITY: free */
};

/* F (or E) of the layer, its output, its weights. */
double hop_accpar_input(const struct hop_accpar_layer *layer);
double hop_accpar_output(const struct hop_accpar_layer *layer);
double hop_accpar_weights(const struct hop_accpar_layer *layer);

/* Forward, error and gradient: A(F') (2 Di - 1) + A(E) (2 Do - 1) + A(W) (2 B - 1), where the
 * points of the kernel and the output map count as dimensions. */
double hop_accpar_work(const struct hop_accpar_layer *layer);

/* Partial sums that a group receives. */
double hop_accpar_intra(const struct hop_accpar_layer *layer, enum hop_accpar_type type);
/* What the group with the share `alpha` receives of F and E between this layer and the one before
 * it. */
double hop_accpar_inter(const struct hop_accpar_layer *layer, enum hop_accpar_type before,
                        enum hop_accpar_type type, double alpha);
/* The same where a shortcut ends: between the layer where it begins and this one. */
double hop_accpar_across(const struct hop_accpar_layer *layer, enum hop_accpar_type from,
                         enum hop_accpar_type type, double alpha);

/* What a group with the share `alpha` keeps of the layer. */
struct hop_accpar_layer hop_accpar_cut(const struct hop_accpar_layer *layer,
                                       enum hop_accpar_type type, double alpha);

#endif
