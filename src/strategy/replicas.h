/* What the planners of replicated stages share: every replica of a stage holds its blocks and takes
 * some of the samples of each micro-batch. Private to src/strategy. */
#ifndef HOP_STRATEGY_REPLICAS_H
#define HOP_STRATEGY_REPLICAS_H

#include "strategy/parts.h"
#include "strategy/pivot.h"

/* HOP_INFEASIBLE: nothing fits, with the reason that is nearest at hand. all: every device must
 * take part. */
hop_status hop_replica_refuse(const struct hop_plan_request *request, const char *strategy,
                              const int32_t *devices, int32_t count, bool all,
                              struct hop_error *err);

/* Whole samples of a micro-batch, 1 at least: no replica has less than one. */
int32_t hop_replica_rows(const struct hop_cost_table *cost);

/* Appends a replica of the stage (stage, blocks, device, in_flight) with samples [row_lo, row_hi)
 * of `rows`. */
void hop_plan_add_replica(struct hop_plan *plan, const struct hop_part *replica, int32_t row_lo,
                          int32_t row_hi, int32_t rows);

/* Fills the other predictions of parts whose in_flight is the most they may keep: less where memory
 * asks for it, alike in a stage. HOP_INFEASIBLE names a part that cannot keep one. */
hop_status hop_replica_price(struct hop_plan *plan, const struct hop_cost_table *cost,
                             struct hop_error *err);

/* Their hop_strategy.schedule(): one forward, one backward after a warm-up of in_flight forwards.
 */
hop_status hop_replica_schedule(const struct hop_plan *plan, const struct hop_cost_table *cost,
                                int32_t micro_batches, int32_t probes, struct hop_schedule *out,
                                struct hop_error *err);

/* Stores simulated_seconds of a priced plan, scheduled like that. */
hop_status hop_replica_time(struct hop_plan *plan, const struct hop_cost_table *cost,
                            struct hop_error *err);

/* How long replicas exchange what crosses a cut, in one direction. */
enum hop_cut {
    HOP_CUT_PIECES, /* pieces of samples, each over its own link; those of a device in turn where
                       its network card is shared */
    HOP_CUT_WHOLE   /* the whole tensor over the slowest link */
};

/* A closed form of the steps of the plan (stages and transfers in turn) on its own devices; NAN
 * where the plan has several pipelines, shards or parts without backward. */
typedef double hop_steps_seconds(const struct hop_pipeline_step *steps, int32_t count,
                                 int32_t micro_batches);
double hop_replica_formula(const struct hop_plan *plan, const struct hop_cost_table *cost,
                           enum hop_cut cut, hop_steps_seconds *seconds);

#endif
