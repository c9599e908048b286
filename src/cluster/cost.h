/* The cost table: what every block costs on every device, in seconds and bytes, and what the links
 * between the devices carry. Planner, schedule, simulator and emulated devices read nothing else,
 * so anyone can bring their own measurements as a JSON file (the format is in docs/cost.md).
 *
 * All block figures are for one micro-batch of `micro_batch_samples` samples; a share s of the
 * samples or of the tensors costs s times that. */
#ifndef HOP_CLUSTER_COST_H
#define HOP_CLUSTER_COST_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

struct hop_cost_device {
    char *name;
    bool bp;             /* BP-capable */
    double *forward;     /* (blocks) seconds */
    double *backward;    /* (blocks) seconds; NULL: the device cannot run backward at all. On a
                            BP-free device the slow rate that first-order systems pay */
    double *probe;       /* (blocks) seconds that each probe after the first adds to a PROBE that
                            runs several at once; as `forward` where nobody measured it */
    double *step;        /* (blocks) seconds of the optimizer; zeros where nobody measured it */
    double *feedback;    /* (blocks) seconds of the adapter gradients of a DELTA by feedback; zeros
                            where nobody measured it */
    double exit_forward; /* seconds of an output layer (final norm, head at the label positions)
                            behind the last BP-free stage, one pass of one micro-batch; 0 where
                            nobody measured it */
    double exit_bytes;   /* that it takes: its weights and scratch */
    double *state_bytes; /* (blocks) weights, adapters, gradients and optimizer state */
    double *activation_bytes;      /* (blocks) kept for backward, one micro-batch in flight */
    double fixed_bytes;            /* whatever the device holds: scratch and message buffers */
    double memory;                 /* bytes; INFINITY: not limited */
    double idle_watts, busy_watts; /* NAN: not known */
};

struct hop_cost_table {
    double micro_batch_samples;
    int32_t blocks, device_count;
    struct hop_cost_device *devices;
    double *boundary_bytes; /* (blocks - 1) tensor between block i and block i + 1 */
    double *gradient_bytes; /* (blocks) adapter gradients, for the all-reduce of replicas */
    int32_t tensor_units; /* parts that the tensors of a block can be cut into: attention heads; 0:
                             not known, any share is possible */
    double tied_bytes;    /* weights that the first and the last block share: counted once in a part
                             that holds both */
    double *bandwidth;    /* (devices, devices) bytes/s from row to column; INFINITY: free */
    double *latency;      /* (devices, devices) seconds a message */
    bool half_duplex;     /* both directions of a link take turns */
    bool shared_nic;      /* all messages a device sends take turns, and all that it receives */
    int32_t *machine; /* (devices) devices of one machine have equal numbers; their transfers are
                         free unless a pair says otherwise */
};

/* Zeroed arrays of those sizes, names NULL, backward NULL, memory INFINITY, watts NAN, links free,
 * one machine a device. */
hop_status hop_cost_create(int32_t blocks, int32_t devices, struct hop_cost_table *out,
                           struct hop_error *err);
void hop_cost_free(struct hop_cost_table *cost);

/* Checks everything: numbers finite and not negative, arrays of the right length, device names
 * unique and known where they are named. HOP_INPUT names the file, the place ("devices[2].forward")
 * and what was expected; unknown keys suggest the nearest known one. */
hop_status hop_cost_parse(const json_t *object, const char *where, struct hop_cost_table *out,
                          struct hop_error *err);
hop_status hop_cost_load(const char *path, struct hop_cost_table *out, struct hop_error *err);
/* An object that hop_cost_parse() reads back to the same doubles. NULL: out of memory. */
json_t *hop_cost_json(const struct hop_cost_table *cost);

/* The table for micro-batches of half the samples: what is shared costs half, weights and fixed
 * bytes stay. HOP_INPUT where the samples have no whole half. */
hop_status hop_cost_halve(const struct hop_cost_table *cost, struct hop_cost_table *out,
                          struct hop_error *err);

/* Index of the device of that name, or -1. */
int32_t hop_cost_find(const struct hop_cost_table *cost, const char *name);
/* Names of the devices in order (point into the table). Caller frees the array. */
hop_status hop_cost_names(const struct hop_cost_table *cost, const char ***out,
                          struct hop_error *err);

/* Sums over blocks [lo, hi). Backward of a device without one is INFINITY where lo < hi. */
double hop_cost_forward(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi);
double hop_cost_backward(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi);
/* One PROBE of `probes` probes. */
double hop_cost_probe(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi,
                      int32_t probes);
double hop_cost_step(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi);
double hop_cost_feedback(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi);
/* Bytes of a device that holds blocks [lo, hi) and keeps `in_flight` micro-batches for backward (0:
 * none, as on BP-free devices):
 *     fixed + sum(state) + in_flight * sum(activation)        (spec: lambda_1..lambda_4)
 * less the tied weights where [lo, hi) is the whole model. */
double hop_cost_memory(const struct hop_cost_table *cost, int32_t device, int32_t lo, int32_t hi,
                       int32_t in_flight);
/* Seconds of one message from one device to another. */
double hop_cost_link(const struct hop_cost_table *cost, int32_t from, int32_t to, double bytes);

#endif
