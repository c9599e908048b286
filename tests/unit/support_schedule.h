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

/* Part p is stage p with one block and forward time 1; devices and gradients are given as arrays.
 */
struct hop_plan support_plan(int32_t parts, const int32_t *devices,
                             const enum hop_gradient *gradients);
/* 1 to 6 devices (some with several stages, some idle), 1 to 12 blocks, M 1 to 8, Q 0 to 4; times
 * are multiples of 1/4, so that ties happen and sums are exact. */
struct hop_plan support_random_plan(uint64_t *state);

/* "F0 B0 P0 S" for device d; with `parts`, "0.F0 1.B0". */
void support_list_text(const struct hop_schedule *schedule, int32_t device, bool parts, char *text,
                       size_t size);
/* Deep copy with room for one more task in each list. */
struct hop_schedule support_copy(const struct hop_schedule *schedule);

/* Runs the lists with blocking tasks, `window` receive and send buffers a device and payload kind,
 * and whatever can happen next happening in random order. False when it gets stuck. */
bool support_play(const struct hop_plan *plan, const struct hop_schedule *schedule, int32_t window,
                  uint64_t *state);

#endif
