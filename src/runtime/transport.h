/* Messages between ranks over MPI (MPI-3.1 calls only). Only transport.c, outbox.c and background.c
 * talk to MPI.
 *
 * Sends and receives are started and later waited for; waiting polls with a short sleep, because a
 * blocking MPI receive burns a whole core that another rank of the same machine could use. Every
 * wait ends with HOP_PEER naming the device when nothing came for `timeout` seconds. */
#ifndef HOP_RUNTIME_TRANSPORT_H
#define HOP_RUNTIME_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include "base/error.h"
#include "runtime/background.h"
#include "runtime/outbox.h"

/* Several channels, so that a tag of one never matches another. */
enum hop_channel {
    HOP_CHANNEL_CONTROL,
    HOP_CHANNEL_DATA,
    HOP_CHANNEL_GRANTS,
    HOP_CHANNEL_TIMES, /* arrival times of messages between emulated devices */
    HOP_CHANNELS
};

struct hop_transport {
    MPI_Comm channels[HOP_CHANNELS];
    int rank, size;
    double timeout;      /* seconds */
    double longest_poll; /* seconds a wait sleeps at most before it looks again */
    int silent;          /* the rank a wait was given up on, -1: none yet */
    const char *const
        *names; /* (size) of the devices behind the ranks, for messages; may be NULL */
    struct hop_background *background; /* NULL with one rank */
    struct hop_outbox *outbox;         /* NULL: every message leaves at once */
    bool *remote;                      /* (size) ranks of other machines, with an outbox */
};

hop_status hop_transport_open(struct hop_transport *out, struct hop_error *err);
void hop_transport_close(struct hop_transport *transport);
/* Ends every rank of the run with this exit status. Does not return. */
_Noreturn void hop_transport_abort(int exit_code);
/* Which MPI library this program was built with; may be asked before opening. */
bool hop_transport_is_open_mpi(void);
const char *hop_transport_library(char *text, size_t size);
/* The largest tag that may be used. */
int hop_transport_tag_limit(const struct hop_transport *transport);
/* "device gpu1" or "rank 3". */
const char *hop_transport_name(const struct hop_transport *transport, int rank, char *text,
                               size_t size);

/* From now on large messages to these ranks (size), which do the same, leave one after the other
 * (see outbox.h). */
hop_status hop_transport_take_turns(struct hop_transport *transport, const bool *remote,
                                    struct hop_error *err);

/* The buffer must stay untouched until the request is complete. */
hop_status hop_send_start(struct hop_transport *transport, enum hop_channel channel, int to,
                          int tag, const void *bytes, size_t n, struct hop_request *request,
                          struct hop_error *err);
/* A longer message than n is HOP_PEER. */
hop_status hop_receive_start(struct hop_transport *transport, enum hop_channel channel, int from,
                             int tag, void *bytes, size_t n, struct hop_request *request,
                             struct hop_error *err);
/* The same, but the message waits for its turn: both sides must use these, with the same n. The
 * request of a send must stay in place until it is complete. */
hop_status hop_send_in_turn(struct hop_transport *transport, enum hop_channel channel, int to,
                            int tag, const void *bytes, size_t n, struct hop_request *request,
                            struct hop_error *err);
hop_status hop_receive_in_turn(struct hop_transport *transport, enum hop_channel channel, int from,
                               int tag, void *bytes, size_t n, struct hop_request *request,
                               struct hop_error *err);
/* *done = the request is complete (or was never started). */
hop_status hop_request_test(struct hop_transport *transport, struct hop_request *request,
                            bool *done, struct hop_error *err);
/* `what` completes the message "waited 600 s for `what` from device gpu1". */
hop_status hop_request_wait(struct hop_transport *transport, struct hop_request *request,
                            const char *what, struct hop_error *err);

/* Start and wait. */
hop_status hop_send(struct hop_transport *transport, enum hop_channel channel, int to, int tag,
                    const void *bytes, size_t n, struct hop_error *err);
/* Exactly n bytes, else HOP_PEER. */
hop_status hop_receive(struct hop_transport *transport, enum hop_channel channel, int from, int tag,
                       void *bytes, size_t n, const char *what, struct hop_error *err);
/* A message of unknown length up to `limit` bytes: *bytes is malloc'ed. */
hop_status hop_receive_unknown(struct hop_transport *transport, enum hop_channel channel, int from,
                               int tag, size_t limit, const char *what, void **bytes, size_t *n,
                               struct hop_error *err);

#endif
