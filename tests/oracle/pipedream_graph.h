/* A model as PipeDream's profiler writes it, and the states of its optimizer.
 *
 * A file has a line `ID -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS,
 * activation_size=BYTES, parameter_size=BYTES` for each layer (or activation_size=[BYTES; ...])
 * and, after a tab, a line `ID -- ID` for each edge. */
#ifndef HOP_TESTS_PIPEDREAM_GRAPH_H
#define HOP_TESTS_PIPEDREAM_GRAPH_H

#include "strategy/pipedream_optimizer.h"

/* Storage of a hop_pipedream_model. */
struct pipedream_states {
    struct hop_pipedream_model model;
    double *seconds, *gradient, *output;
    bool *before;
};

/* Reads a file. As the authors do: inputs are left out, and so are items of tuples that nobody
 * reads; states are the antichains that are reached from the first source, in topological order.
 * Where the authors' order hangs on the addresses of objects, that of the file is taken. */
hop_status pipedream_states_load(const char *path, struct pipedream_states *out,
                                 struct hop_error *err);
void pipedream_states_free(struct pipedream_states *states);

#endif
