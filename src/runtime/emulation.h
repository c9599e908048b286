/* The clock of an emulated device: when, by the cost table, its tasks end and its messages arrive.
 *
 * A task computes for real and then waits for the device's clock:
 *     end = max(end of the task before, arrival of its input) + time_scale * hop_price_task()
 * (of shards that run together, from the latest of their clocks on, hop_price_span()).
 * A message between two emulated devices of one machine has a link of its own in each direction,
 * and with shared_nic also the sender's network card, which take one message after the other:
 *     arrival = max(end of its task, link free again) + time_scale * (latency + bytes / bandwidth)
 * (half_duplex and the receiver's card are not emulated: the sender cannot know what else arrives
 * there). It travels at once, beside its arrival time (ranks of one machine read the same clock),
 * and the receiver counts from that. Devices that add up gradients tell each other their clocks and
 * start from the latest. So a late poll or a slow wake-up never adds up over the tasks:
 * as long as every task has computed by the time it has to end, the run keeps the times of the cost
 * table. Times of a micro-batch with fewer rows than the cost table's shrink in proportion. */
#ifndef HOP_RUNTIME_EMULATION_H
#define HOP_RUNTIME_EMULATION_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "cluster/cost.h"
#include "schedule/reduction.h"
#include "schedule/schedule.h"

/* Tasks that had not computed by the time they had to end: then the emulation is wrong. */
struct hop_lateness {
    int32_t tasks;
    double seconds; /* of the latest */
    double ratio;   /* the greatest computation / emulated duration of one of them */
};
void hop_lateness_add(struct hop_lateness *total, const struct hop_lateness *more);

struct hop_emulation;

/* object: {"time_scale", "cost": a cost table} in the setup message; the devices of the table are
 * those of the plan, in order. `plan` is borrowed. timed (devices): messages to and from that
 * device are emulated (it is emulated too and on the same machine). As hop_price_check() when the
 * table does not fit the plan. */
hop_status hop_emulation_create(const json_t *object, const struct hop_plan *plan, int32_t device,
                                const bool *timed, struct hop_emulation **out,
                                struct hop_error *err);
void hop_emulation_free(struct hop_emulation *emulation);

/* Does a message to or from that device tell its arrival time? */
bool hop_emulation_is_timed(const struct hop_emulation *emulation, int32_t other);

/* A pass starts at `now`; all links are free and nothing is late yet. */
void hop_emulation_begin(struct hop_emulation *emulation, double now);
/* The next task cannot start before `time`. */
void hop_emulation_arrived(struct hop_emulation *emulation, double time);
/* When the next task could start, by what is known so far. */
double hop_emulation_clock(const struct hop_emulation *emulation);
/* Waits until a task, whose real computation began at `began` and is over, may end; its start and
 * end by the device's clock. joint: it has started on all shards at this clock. rows: of its
 * micro-batch. */
void hop_emulation_finish(struct hop_emulation *emulation, const struct hop_task *task, bool joint,
                          int32_t rows, double began, double *start, double *end);
/* The same of a reduction that started on all its devices at this one's clock. */
void hop_emulation_reduced(struct hop_emulation *emulation, const struct hop_reduction *reduction,
                           double began, double *start, double *end);
/* When a message of the task that has just ended arrives; takes its link until then. */
double hop_emulation_send(struct hop_emulation *emulation, const struct hop_transfer *transfer,
                          int32_t rows);

/* Of this pass. */
const struct hop_lateness *hop_emulation_lateness(const struct hop_emulation *emulation);

#endif
