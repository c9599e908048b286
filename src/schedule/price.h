/* What the tasks and transfers of a plan cost, by the cost table. The only place that turns a plan
 * into seconds and bytes: schedules, simulator and emulated devices all ask here. */
#ifndef HOP_SCHEDULE_PRICE_H
#define HOP_SCHEDULE_PRICE_H

#include "cluster/cost.h"
#include "schedule/reduction.h"
#include "schedule/schedule.h"

/* Does the table have every device and block of the plan, and backward times where a part runs
 * backward? HOP_INPUT or HOP_INFEASIBLE naming what is missing. */
hop_status hop_price_check(const struct hop_cost_table *cost, const struct hop_plan *plan,
                           struct hop_error *err);

/* Seconds that a task computes on its part's device: sums over its blocks, times its share of
 * samples and tensors. Probes are paid by the pass (hop_plan_passes()); on the last zeroth-order
 * part an exit probe also by the pass of its output layer, and a FORWARD where
 * hop_plan_has_exit_base(). A REDUCE computes nothing, and neither does a DELTA but for feedback.
 */
double hop_price_task(const struct hop_cost_table *cost, const struct hop_plan *plan,
                      const struct hop_task *task);
/* Seconds from the start to the end of a task: of a gang's FORWARD and BACKWARD those of its
 * slowest shard and the collectives in its blocks, elsewhere as hop_price_task(). Not for REDUCE.
 */
double hop_price_span(const struct hop_cost_table *cost, const struct hop_plan *plan,
                      const struct hop_task *task);

/* A ring all-reduce of `bytes` among `count` devices: 2 (n - 1) rounds of a message of bytes / n on
 * the slowest link between any two of them; with half_duplex two devices take turns. */
double hop_price_all_reduce(const struct hop_cost_table *cost, const int32_t *devices,
                            int32_t count, double bytes);
/* Ring all-gather of a tensor of `bytes`: n - 1 such rounds. */
double hop_price_all_gather(const struct hop_cost_table *cost, const int32_t *devices,
                            int32_t count, double bytes);
/* A REDUCE: seconds, and bytes that each of its parts sends. Of a sharded block's gradient_bytes
 * half is taken to be that of factors which every shard holds whole. */
double hop_price_reduction(const struct hop_cost_table *cost,
                           const struct hop_reduction *reduction);
double hop_price_reduction_bytes(const struct hop_cost_table *cost,
                                 const struct hop_reduction *reduction);
/* The collectives in the blocks of a FORWARD or BACKWARD of a gang, 2 of a boundary tensor each:
 * seconds, and bytes that its part sends; 0 elsewhere. */
double hop_price_exchange(const struct hop_cost_table *cost, const struct hop_plan *plan,
                          const struct hop_task *task);
double hop_price_exchange_bytes(const struct hop_cost_table *cost, const struct hop_plan *plan,
                                const struct hop_task *task);

/* Bytes of a message: its samples of a boundary tensor (one a pass of a probe), or 4 bytes a
 * directional derivative or base loss: one of the micro-batch, or one a sample with
 * HOP_PER_SAMPLE. */
double hop_price_bytes(const struct hop_cost_table *cost, const struct hop_plan *plan,
                       const struct hop_transfer *transfer);
/* Seconds of the message on an idle link; 0 inside a device. */
double hop_price_transfer(const struct hop_cost_table *cost, const struct hop_plan *plan,
                          const struct hop_transfer *transfer);
/* Bytes of a part that keeps the activations of `in_flight` micro-batches and the tangents of
 * `pending`: its tensor share of the state, its share of samples and tensors of the activations, a
 * boundary tensor a pending probe; and the output layer behind the last zeroth-order part, where it
 * runs exit probes. */
double hop_price_memory(const struct hop_cost_table *cost, const struct hop_plan *plan,
                        int32_t part, int32_t in_flight, int32_t pending);
/* The same of a part that neither keeps tangents nor runs exit probes, whether it is in a plan or
 * not. */
double hop_price_part_memory(const struct hop_cost_table *cost, const struct hop_part *part,
                             int32_t in_flight);

/* In-flight limit of the backprop part that is the i-th of G backprop stages (i from 0): 1F1B keeps
 * G - i, the paper's memory formula; up to 2(G - i) - 1 hide the transfers. */
int32_t hop_in_flight_least(int32_t backprop_stages, int32_t i, int32_t micro_batches);
int32_t hop_in_flight_most(int32_t backprop_stages, int32_t i, int32_t micro_batches);

/* Fills forward_seconds, in_flight, pending, memory_bytes and memory_limit of every part. in_flight
 * is the most that hop_in_flight_most() (on zeroth-order parts that keep activations: the number of
 * micro-batches) and the device's memory allow beside its other parts; pending the most that then
 * still fits.
 * HOP_INFEASIBLE names the first part that does not even fit with `fewest` kept (1, or
 * hop_in_flight_least() where `fewest` is 0), and by how much. */
hop_status hop_plan_price(struct hop_plan *plan, const struct hop_cost_table *cost, int32_t fewest,
                          struct hop_error *err);

#endif
