/* Large messages to other machines leave one after the other.
 *
 * MPI libraries let all messages under way share the link, so that the one needed next crawls
 * beside those needed later. In a lane - the way to one rank - a message is started when the one
 * before has left, first come, first served, as the simulator assumes. A message whose receiver has
 * no buffer for it yet would stand still and must not hold up others: the receiver says of each
 * message when it has one, and among those messages the lane keeps the order. So it never decides
 * whether a run goes on.
 *
 * Every function but create and free is called with the lock of the transport's background held. */
#ifndef HOP_RUNTIME_OUTBOX_H
#define HOP_RUNTIME_OUTBOX_H

#include <stdbool.h>

#include <mpi.h>

#include "base/error.h"

struct hop_request {
    MPI_Request request;
    int peer;
    bool active; /* started (or in an outbox) and not yet seen complete */
    bool queued; /* an outbox has it; only that tests it while active */
    /* Of a queued send. */
    int code; /* MPI's: a failure outside the main thread is reported when the request is tested */
    MPI_Comm channel;
    const void *bytes;
    int n, tag;
    struct hop_request *next;
};

struct hop_outbox;

/* Receivers speak of their buffers on the channel `grants`. */
hop_status hop_outbox_create(int ranks, MPI_Comm grants, struct hop_outbox **out,
                             struct hop_error *err);
void hop_outbox_free(struct hop_outbox *outbox);
/* Takes a send with channel, bytes, n, tag and peer filled in; starts it if its lane is free. The
 * request must stay in place until it is complete. */
void hop_outbox_put(struct hop_outbox *outbox, struct hop_request *request);
/* At the receiver: the message with that tag has a buffer. MPI's code. */
int hop_outbox_grant(struct hop_outbox *outbox, int sender, int tag);
/* Starts what can start. To be called often. NULL is fine. */
void hop_outbox_advance(struct hop_outbox *outbox);

#endif
