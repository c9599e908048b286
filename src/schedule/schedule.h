/* A schedule: for each device an ordered list of tasks, the same for simulator and runtime; and the
 * transfers that follow from it. */
#ifndef HOP_SCHEDULE_SCHEDULE_H
#define HOP_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "schedule/plan.h"

enum hop_task_kind {
    HOP_FORWARD,
    HOP_BACKWARD,
    HOP_PROBE,
    HOP_EXIT_PROBE,
    HOP_DELTA,  /* takes the gradient of its part's output, without running backward: the
                   derivatives <delta, J z>, or feedback (see schedule/estimator.h) */
    HOP_REDUCE, /* one all-reduce of adapter gradients, see schedule/reduction.h */
    HOP_STEP,
    HOP_TASK_KINDS
};
extern const char *const hop_task_kind_names[]; /* "FORWARD", ..., NULL */

struct hop_task {
    enum hop_task_kind kind;
    int32_t part;
    int32_t micro_batch;        /* -1 for REDUCE and STEP */
    int32_t probe_lo, probe_hi; /* probes [lo, hi) of a PROBE or EXIT_PROBE, else 0, 0; those of
                                   EXIT_PROBEs count from 0 as well */
    int32_t reduction;          /* index in hop_reductions_derive()'s order for a REDUCE, else 0 */
};

/* Where a task stands. */
struct hop_task_ref {
    int32_t device, task; /* index in the device's list */
};

/* "PROBE of part 1, micro-batch 2, probes [0, 3)" or "REDUCE 4 of part 1" into text. */
enum { HOP_TASK_TEXT = 96 };
void hop_task_describe(const struct hop_task *task, char *text, size_t size);

struct hop_task_list {
    struct hop_task *tasks;
    int32_t count;
};

/* What one pass over a mini-batch of `micro_batches` micro-batches does. training == false: only
 * FORWARD tasks (evaluation). */
struct hop_schedule {
    int32_t micro_batches, probes, exit_probes;
    bool training;
    struct hop_task_list *lists; /* (devices) */
    int32_t devices;
};

void hop_schedule_free(struct hop_schedule *schedule);
/* Flat form for sending between ranks of one build. Decoding checks every length and range. */
hop_status hop_schedule_encode(const struct hop_schedule *schedule, int32_t **words, size_t *count,
                               struct hop_error *err);
hop_status hop_schedule_decode(const int32_t *words, size_t count, struct hop_schedule *out,
                               struct hop_error *err);

/* Greedy list scheduling: plays the plan with the times of the cost table, transfers included (see
 * sim/simulate.h for what a link is); a free device takes the ready task of highest priority:
 * BACKWARD, DELTA, FORWARD, PROBE, EXIT_PROBE (earlier micro-batch first), with at most
 * `part->in_flight` micro-batches kept (see hop_plan_keeps(); 0: no limit) and the tangents of at
 * most `part->pending` (0: no limit), then one STEP a part. The probes of a micro-batch are PROBE
 * tasks of plan->probe_batch probes (the last may be smaller), and so are the plan->exit_probes
 * exit probes. Deterministic. Where no part runs probes (see hop_plan_runs_probes()) there are
 * none, whatever `probes` says (out->probes is 0 then). For lines only (hop_plan_is_line()); others
 * are HOP_UNSUPPORTED. */
hop_status hop_schedule_greedy(const struct hop_plan *plan, const struct hop_cost_table *cost,
                               int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                               struct hop_error *err);
/* FORWARD tasks only, for every plan: micro-batch after micro-batch of the pipelines in turn. */
hop_status hop_schedule_evaluation(const struct hop_plan *plan, int32_t micro_batches,
                                   struct hop_schedule *out, struct hop_error *err);

enum hop_payload {
    HOP_ACTIVATION, /* hidden states of a FORWARD */
    HOP_GRADIENT,   /* gradient of hidden states, from a BACKWARD or DELTA to the part before */
    HOP_PROBE_ACTIVATION, /* hidden states, or their tangents, of a PROBE or EXIT_PROBE */
    HOP_DERIVATIVE,       /* directional derivatives g, from the task that computes them (see
                             hop_plan_derivative_task()) to a zeroth-order STEP */
    HOP_BASE_LOSS, /* of a micro-batch, from the head's FORWARD to a zeroth-order STEP: with exit
                      probes against the full model only */
    HOP_PAYLOADS
};
extern const char *const hop_payload_names[]; /* NULL-terminated */

struct hop_transfer {
    enum hop_payload payload;
    int32_t from_device, to_device; /* may be equal: two parts on one device */
    int32_t from_part, to_part;
    int32_t from_task, to_task; /* indices into the devices' lists */
    int32_t micro_batch, probe_lo, probe_hi;
    bool exit; /* of an EXIT_PROBE: probe_lo and probe_hi count exit probes */
    /* Share of the micro-batch's samples: rows hop_share_range(sample_lo, sample_hi, rows) of it,
     * a contiguous range of the rows of either part. */
    double sample_lo, sample_hi;
};

struct hop_transfers {
    /* By consumer (device, position in its list), then by samples and probes, the same on every
     * rank: the index is the MPI tag, and the transfers into one device ascend in the order their
     * consumers run. */
    struct hop_transfer *items;
    int32_t count;
};

/* The only place that says which task needs what from which: FORWARD needs the FORWARDs of the
 * previous stage for the same micro-batch, PROBE and EXIT_PROBE the previous stage's covering the
 * same probes, if it has any, BACKWARD and DELTA the BACKWARDs or DELTAs of the next stage; the
 * STEP of a zeroth-order part every derivative: of probes from hop_plan_derivative_task(), of exit
 * probes from the EXIT_PROBEs of the last zeroth-order part; and every base loss from the FORWARDs
 * of the head, where hop_plan_sends_base_loss(). From another stage come the samples that both
 * parts handle; where those are in a gang, which has them whole on every shard, they come once:
 * from the shard on the receiver's device if there is one, else shard k of the receiving gang takes
 * them from shard k mod n of the n that have them (shards by tensor share). A task whose partner is
 * missing is HOP_INPUT naming it. */
hop_status hop_transfers_derive(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                struct hop_transfers *out, struct hop_error *err);
void hop_transfers_free(struct hop_transfers *transfers);

/* Accepts a schedule only if
 * - every task that the plan asks for is there exactly once and on its part's device (FORWARD of
 * every part and every micro-batch that its pipeline handles; BACKWARD of every backprop part after
 * its FORWARD; PROBEs covering [0, probes) exactly, after the FORWARD of the same micro-batch on
 * the part with the head, and with boundary on every part; EXIT_PROBEs covering [0, exit_probes)
 * exactly, after the FORWARD of the same micro-batch on the last zeroth-order part; DELTA where the
 * plan has one (hop_plan_gradient_task()), after its FORWARD and the PROBEs of the same
 * micro-batch; a REDUCE of every part in every reduction, after all BACKWARDs of that part; one
 * STEP a trainable part, after everything else of that part), and
 * - playing it with `window` input buffers and `window` output buffers a device and payload kind
 * cannot deadlock, whatever the timing. An input buffer holds all that one task receives, an output
 * buffer all that one task sends. Receives are posted in the order of the tasks that consume them,
 * those of the k-th when the (k - window)-th is done; the k-th task that sends a kind runs when all
 * messages of the (k - window)-th were taken (it may fill its output buffers from the start). Tasks
 * of a gang, and those of a reduction, start when all of them can. The dependencies, list orders,
 * meetings and these buffer edges must have no cycle. HOP_INPUT names the first broken rule or the
 * tasks of a cycle. Derivatives, base losses and transfers inside one device are not windowed. */
hop_status hop_schedule_check(const struct hop_plan *plan, const struct hop_schedule *schedule,
                              int32_t window, struct hop_error *err);
/* The smallest window >= minimum the checker accepts (HOP_INPUT when none does). */
hop_status hop_schedule_window(const struct hop_plan *plan, const struct hop_schedule *schedule,
                               int32_t minimum, int32_t *window, struct hop_error *err);

/* Micro-batches whose kept activations are alive at once on a part, at most. What frees them
 * (hop_plan_frees()) is seen from the schedule: BACKWARD; in schedules with DELTAs the last PROBE
 * of a micro-batch, and DELTA where the part has no PROBEs. */
int32_t hop_schedule_slots(const struct hop_schedule *schedule, int32_t part);
/* Micro-batches whose tangents wait for their DELTA at once on a part, at most. */
int32_t hop_schedule_pending(const struct hop_schedule *schedule, int32_t part);
/* The first, the last task in the list of its kind, part and micro-batch? */
bool hop_task_list_is_first(const struct hop_task_list *list, int32_t index);
bool hop_task_list_is_last(const struct hop_task_list *list, int32_t index);
/* The most probes one PROBE or EXIT_PROBE task of a part runs. A probe may be several passes
 * (hop_plan_passes()). */
int32_t hop_schedule_probe_batch(const struct hop_schedule *schedule, int32_t part);

#endif
