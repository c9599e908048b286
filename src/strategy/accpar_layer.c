#include "strategy/accpar_layer.h"

#include <math.h>

double hop_accpar_input(const struct hop_accpar_layer *layer)
{
    return layer->batch * layer->in * layer->in_map;
}

double hop_accpar_output(const struct hop_accpar_layer *layer)
{
    return layer->batch * layer->out * layer->out_map;
}

double hop_accpar_weights(const struct hop_accpar_layer *layer)
{
    return layer->in * layer->out * layer->kernel;
}

/* Multiplications and additions of a sum of so many products; a part of a cut may be below one. */
static double operations(double products)
{
    return fmax(2 * products - 1, 0);
}

double hop_accpar_work(const struct hop_accpar_layer *layer)
{
    return hop_accpar_output(layer) * operations(layer->in * layer->kernel) +
           hop_accpar_input(layer) * operations(layer->out * layer->kernel) +
           hop_accpar_weights(layer) * operations(layer->batch * layer->out_map);
}

double hop_accpar_intra(const struct hop_accpar_layer *layer, enum hop_accpar_type type)
{
    switch (type) {
    case HOP_ACCPAR_I:
        return hop_accpar_weights(layer);
    case HOP_ACCPAR_II:
        return hop_accpar_output(layer);
    default:
        return hop_accpar_input(layer);
    }
}

/* How F and E must be exchanged, of which each group has a part: not at all, the other group's part
 * of one of them, or, where rows meet columns, the corner of both that the other group has. */
enum exchange { NONE, OTHER, CORNER };

static double amount(const struct hop_accpar_layer *layer, enum exchange exchange, double alpha)
{
    const double tensor = hop_accpar_input(layer);
    switch (exchange) {
    case OTHER:
        return (1 - alpha) * tensor;
    case CORNER:
        return alpha * (1 - alpha) * (tensor + tensor);
    default:
        return 0;
    }
}

double hop_accpar_inter(const struct hop_accpar_layer *layer, enum hop_accpar_type before,
                        enum hop_accpar_type type, double alpha)
{
    static const enum exchange table[HOP_ACCPAR_TYPES][HOP_ACCPAR_TYPES] = {
        {NONE, CORNER, OTHER}, {OTHER, OTHER, NONE}, {CORNER, NONE, OTHER}};
    return amount(layer, table[before][type], alpha);
}

double hop_accpar_across(const struct hop_accpar_layer *layer, enum hop_accpar_type from,
                         enum hop_accpar_type type, double alpha)
{
    static const enum exchange table[HOP_ACCPAR_TYPES][HOP_ACCPAR_TYPES] = {
        {NONE, OTHER, CORNER}, {CORNER, OTHER, NONE}, {OTHER, NONE, OTHER}};
    return amount(layer, table[from][type], alpha);
}

struct hop_accpar_layer hop_accpar_cut(const struct hop_accpar_layer *layer,
                                       enum hop_accpar_type type, double alpha)
{
    struct hop_accpar_layer part = *layer;
    switch (type) {
    case HOP_ACCPAR_I:
        part.batch *= alpha;
        break;
    case HOP_ACCPAR_II:
        part.in *= alpha;
        break;
    default:
        part.out *= alpha;
        break;
    }
    return part;
}
