/* Keeps messages moving while a rank computes.
 *
 * MPI libraries move a large message only while both sides are inside an MPI call: without help, a
 * tensor sent before a long task would reach its receiver after that task. A thread that looks into
 * MPI every fraction of a millisecond during a task costs about a hundredth of a core and keeps the
 * pipeline full. MPI calls are serialized by one lock. */
#ifndef HOP_RUNTIME_BACKGROUND_H
#define HOP_RUNTIME_BACKGROUND_H

#include <stdbool.h>

#include <mpi.h>

#include "base/error.h"
#include "runtime/outbox.h"

struct hop_background;

/* `channel` is what the thread probes. */
hop_status hop_background_create(MPI_Comm channel, struct hop_background **out,
                                 struct hop_error *err);
void hop_background_free(struct hop_background *background);
/* The thread works only between true and false. NULL is fine. */
void hop_background_set_active(struct hop_background *background, bool active);
/* Whose messages the thread starts when it is their turn. NULL is fine for either. */
void hop_background_set_outbox(struct hop_background *background, struct hop_outbox *outbox);
/* Around every MPI call of the rank. NULL is fine. */
void hop_background_lock(struct hop_background *background);
void hop_background_unlock(struct hop_background *background);

#endif
