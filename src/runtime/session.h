/* What every rank of a run knows: the plan, its device, its executor. Built from the one setup
 * object the coordinator makes, by the same code on every rank (the coordinator included). */
#ifndef HOP_RUNTIME_SESSION_H
#define HOP_RUNTIME_SESSION_H

#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "runtime/executor.h"
#include "runtime/transport.h"

/* Two builds talk only when these agree. */
enum { HOP_PROTOCOL = 5 };

/* Tags of the control channel. */
enum hop_tag {
    HOP_TAG_HELLO,    /* rank -> 0: int32 protocol */
    HOP_TAG_SETUP,    /* 0 -> rank: JSON text */
    HOP_TAG_SCHEDULE, /* 0 -> rank: words of one schedule */
    HOP_TAG_MAPPED,   /* rank -> 0: int32, 1 = maps the model files itself */
    HOP_TAG_TENSOR,   /* 0 -> rank: a tensor's header, then its bytes in chunks */
    HOP_TAG_READY,    /* rank -> 0: nothing */
    HOP_TAG_CLOCK,    /* 0 -> rank: nothing; rank -> 0: double, the rank's clock */
    HOP_TAG_COMMAND,  /* 0 -> rank: words */
    HOP_TAG_REPORT,   /* rank -> 0: doubles of one pass */
    HOP_TAG_UPDATE,   /* 0 -> rank: struct hop_update */
    HOP_TAG_SCORES,   /* rank -> 0: floats */
    HOP_TAG_PICKED,   /* rank -> 0: int32 tokens of a pass that decodes */
    HOP_TAG_STATE,    /* both ways: floats */
    HOP_TAG_TIMELINE  /* rank -> 0: events */
};

/* How often the coordinator asks for a rank's clock. */
enum { HOP_CLOCK_READINGS = 5 };

enum hop_command {
    HOP_COMMAND_TRAIN,
    HOP_COMMAND_EVALUATE,
    HOP_COMMAND_DECODE,
    HOP_COMMAND_GET_STATE,
    HOP_COMMAND_END
};

struct hop_session {
    struct hop_transport *transport;
    json_t *setup;
    struct hop_executor_config config;
    struct hop_plan plan;
    const char **device_names; /* (plan.devices), point into setup */
    const char **rank_names;   /* (ranks) */
    int32_t *rank_of;          /* (plan.devices) */
    int32_t *device_of;        /* (ranks), -1: coordinator only */
    int32_t device;            /* of this rank */
    struct hop_weights *weights;
    struct hop_emulation *emulation;      /* NULL: this device is not emulated */
    struct hop_executor *executor;        /* NULL without a device */
    struct hop_batch_limits *part_limits; /* (plan parts) */
    struct hop_batch *batches;            /* (batch_count) */
    int32_t batch_count;
    int32_t *past, *place; /* (batch_count, limits.sequences): see struct hop_places */
};

/* The setup object:
 * {"protocol", "model": config, "lora": {rank, alpha, targets: [name]}, "dtype", "limits": [s, t,
 * l], "part_limits": [[s, t, l]], "seed", "epsilon", "distribution", "weight_decay", "timeout",
 * "trace_steps", "micro_batches", "devices":
 * [{"name", "rank", "backend", "bp", "threads", "peers", "machine", "emulate"}], "window", "cache",
 * "cache_sequences", "plan":
 * {...}, "emulation": {"time_scale", "cost": {...}} where a device is emulated, "files":
 * {"directory", "share", "fingerprints": ["hex", ...]}} Takes a reference to setup. Weights and
 * executor come later. */
hop_status hop_session_create(json_t *setup, struct hop_transport *transport,
                              struct hop_session *out, struct hop_error *err);
/* Takes over the schedules (emptied on success); session->weights must be there. */
hop_status hop_session_start(struct hop_session *session, struct hop_schedule *schedules,
                             int32_t count, struct hop_error *err);
void hop_session_free(struct hop_session *session);

/* Name of this rank's device, NULL for a coordinator without one. */
const char *hop_session_device_name(const struct hop_session *session);

/* weights_transfer.c: every rank gets the frozen tensors of its parts. */
hop_status hop_session_map_weights(struct hop_session *session, bool *mapped,
                                   struct hop_error *err);
hop_status hop_session_receive_weights(struct hop_session *session, struct hop_error *err);
hop_status hop_session_send_weights(struct hop_session *session, int rank, struct hop_error *err);

/* The life of a rank that is not the coordinator. */
hop_status hop_worker_run(struct hop_transport *transport, const char **device_name,
                          struct hop_session *session, struct hop_error *err);

#endif
