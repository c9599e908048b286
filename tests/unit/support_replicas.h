/* Clusters and checks for the planners of replicated stages. */
#ifndef HOP_TESTS_SUPPORT_REPLICAS_H
#define HOP_TESTS_SUPPORT_REPLICAS_H

#include "strategy/strategy.h"

/* 1 to 6 blocks, 1 to 4 samples a micro-batch, links that cost time, machines of several devices,
 * BP-free devices with slow backward figures. tight: memory that rules plans out. */
struct hop_cost_table support_replica_cluster(int32_t devices, bool tight, uint64_t *state);

/* Stages of replicas with whole rows, each device in one of them at most, within its memory, by the
 * prediction and by the simulation; a schedule that the checker accepts; times that are those of
 * strategy->formula() and of the simulation. */
void support_check_replicas(const struct hop_plan *plan, const struct hop_plan_request *request,
                            const struct hop_strategy *strategy);

/* The strategy's plan, or NULL where it refuses as HOP_INFEASIBLE; free with hop_plan_free() and
 * free(). */
struct hop_plan *support_replica_plan(const struct hop_strategy *strategy,
                                      const struct hop_plan_request *request);

#endif
