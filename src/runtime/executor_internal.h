/* The executor's inside, shared by its files. */
#ifndef HOP_RUNTIME_EXECUTOR_INTERNAL_H
#define HOP_RUNTIME_EXECUTOR_INTERNAL_H

#include "runtime/executor.h"
#include "train/adamw.h"

/* One part of the plan that lives here. */
struct hop_executor_part {
    int32_t index; /* in the plan */
    struct hop_stage *stage;
    struct hop_adamw adamw;
    int32_t *slot_of; /* (micro-batches): stage slot holding the kept activations, -1: none */
    bool *slot_busy;  /* (slots) */
    int32_t slots;
};

/* Buffers of one payload kind. */
struct hop_ring {
    size_t bytes; /* of one buffer */
    int32_t receives, sends, locals;
    unsigned char *memory; /* receives, then sends, then locals */
    struct hop_request *receive, *send;
};

struct hop_executor {
    struct hop_executor_config config;
    const struct hop_plan *plan;
    struct hop_transport *transport;
    struct hop_ops ops;
    struct hop_backend *backend;
    struct hop_executor_part *parts;
    int32_t part_count;
    size_t held;      /* bytes of stages, moments and rings */
    int32_t *part_of; /* (plan parts): index in parts, or -1 */
    struct hop_route *routes;
    int32_t route_count;
    struct hop_ring rings[HOP_PAYLOADS];
    int32_t micro_batches, probes; /* largest over the routes */
    struct hop_probe *probe_list;  /* (probes) */
    struct hop_request *derivative_requests;
    unsigned char *derivative_wires; /* a message a derivative transfer of a route */
    size_t derivative_stride;        /* bytes of one */
    float *derivatives;              /* (micro_batches, probes): received or computed here */
    double *loss, *probe_loss, *square;
    uint16_t *directions; /* (plan probes) 0, 1, ... */
    float *coefficients;  /* (plan probes) */
    float *scores;
    float *logits;   /* (limits.sequences, vocabulary) with a cache and the head */
    int32_t *picked; /* (micro_batches, limits.sequences) with a cache and the head */
    struct hop_timeline timeline;
};

/* executor_buffers.c */
hop_status hop_executor_buffers_create(struct hop_executor *executor, struct hop_error *err);
void hop_executor_buffers_free(struct hop_executor *executor);
void *hop_ring_receive(const struct hop_ring *ring, int32_t slot);
void *hop_ring_send(const struct hop_ring *ring, int32_t slot);
void *hop_ring_local(const struct hop_ring *ring, int32_t slot);

#endif
