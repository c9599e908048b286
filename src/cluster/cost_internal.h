/* What the files of the cost model share. */
#ifndef HOP_CLUSTER_COST_INTERNAL_H
#define HOP_CLUSTER_COST_INTERNAL_H

#include "cluster/cost_model.h"

/* Of BP-free or BP-capable stages. */
struct hop_lora_config hop__cost_lora(const struct hop_workload *workload, bool bp);

/* Frozen weights of a stage of `blocks` blocks, with or without the tables at its ends. */
double hop__cost_weight_bytes(const struct hop_workload *workload, int32_t blocks, bool embed,
                              bool head);

/* Fills state_bytes, activation_bytes, fixed_bytes and exit_bytes of all devices (whose bp is
 * known), and tied_bytes. */
void hop__cost_fill_memory(const struct hop_workload *workload, struct hop_cost_table *cost);

#endif
