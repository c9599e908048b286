/* Plans, random numbers and a player of schedules for the tests of planning. */
#ifndef HOP_TESTS_SUPPORT_SCHEDULE_H
#define HOP_TESTS_SUPPORT_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "schedule/plan.h"
#include "schedule/schedule.h"

/* A small generator of its own, so that what is tested does not choose its tests. */
uint64_t support_random(uint64_t *state);
/* Uniform in [lo, hi]. */
int32_t support_between(uint64_t *state, int32_t lo, int32_t hi);

/* Part p is stage p with one block; devices and gradients are given as arrays. Backprop parts keep
 * as many micro-batches as hop_in_flight_most() allows. */
struct hop_plan support_plan(int32_t parts, const int32_t *devices,
                             const enum hop_gradient *gradients);
/* 1 to 6 devices (some with several stages, some idle), 1 to 12 blocks, M 1 to 8, Q 0 to 4, probes
 * in batches of every size, micro-batches kept from 1 to the most. */
struct hop_plan support_random_plan(uint64_t *state);

/* Gives such a plan a random estimator, directions and exit base, up to 3 exit probes where they
 * can be, and limits of what zeroth-order parts keep. Some parts become untrained or zeroth-order.
 */
void support_random_estimator(struct hop_plan *plan, uint64_t *state);

/* 1 to 8 blocks in 1 to 3 pipelines of backprop stages, some behind untrained ones, with up to 3
 * replicas of up to 3 shards and uneven shares of samples, tensors and micro-batches; a device a
 * part, or with `shared` several parts on some devices. */
struct hop_plan support_random_layout(uint64_t *state, bool shared);

/* A table for the plan's devices: every block takes 1 forward, 1 backward and 1 a further probe,
 * nothing else takes time or memory, and links are free. Devices are called "d0", "d1", ... */
struct hop_cost_table support_cost(const struct hop_plan *plan);
/* Random times that are multiples of 1/4, so that ties happen and sums are exact, then times
 * `scale`. */
struct hop_cost_table support_random_cost(const struct hop_plan *plan, uint64_t *state,
                                          double scale);
/* Adds what other estimators cost: adapters by feedback, an output layer, several samples. */
void support_random_estimator_cost(struct hop_cost_table *cost, uint64_t *state, double scale);
/* Adds links: transfer times are multiples of scale / 4, some links are free, some tables
 * half-duplex, some with shared network cards. */
void support_random_links(struct hop_cost_table *cost, uint64_t *state, double scale);

/* "F0 B0 P0 S" for device d; with `parts`, "0.F0 1.B0". */
void support_list_text(const struct hop_schedule *schedule, int32_t device, bool parts, char *text,
                       size_t size);
/* Deep copy with room for one more task in each list. */
struct hop_schedule support_copy(const struct hop_schedule *schedule);

/* Runs the lists with blocking tasks, `window` input and output buffers a device and payload kind,
 * tasks of a gang and of a reduction together, and whatever can happen next happening in random
 * order. False when it gets stuck. */
bool support_play(const struct hop_plan *plan, const struct hop_schedule *schedule, int32_t window,
                  uint64_t *state);

#endif
