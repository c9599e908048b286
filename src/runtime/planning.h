/* From a job to a plan: reads the model's configuration, asks the strategy (or plan.file), checks.
 */
#ifndef HOP_RUNTIME_PLANNING_H
#define HOP_RUNTIME_PLANNING_H

#include <stdio.h>

#include "base/error.h"
#include "cluster/cost.h"
#include "model/config.h"
#include "model/lora.h"
#include "runtime/job.h"
#include "schedule/plan.h"

/* Also settles what depends on files: lora.init brings its own rank, alpha and targets. */
hop_status hop_job_plan(struct hop_job *job, struct hop_plan *out, struct hop_error *err);

/* What the job's modules carry: as lora.init says for this model where that is set, else as the
 * job's own keys do. */
hop_status hop_job_adapters(const struct hop_job *job, const struct hop_model_config *model,
                            struct hop_lora_config *out, struct hop_error *err);
/* The dtype the job computes in; `auto` is that of the model's files. */
hop_status hop_job_dtype(const struct hop_job *job, const struct hop_model_config *model,
                         enum hop_dtype *out, struct hop_error *err);
/* What the job's model, data and micro-batches cost on the job's cluster. */
hop_status hop_job_cost(const struct hop_job *job, const struct hop_model_config *model,
                        struct hop_cost_table *out, struct hop_error *err);

/* Names of the cluster's devices in order (points into the job). Caller frees the array. */
hop_status hop_job_device_names(const struct hop_job *job, const char ***out,
                                struct hop_error *err);

hop_status hop_plan_save(const struct hop_plan *plan, const struct hop_job *job, const char *path,
                         struct hop_error *err);
hop_status hop_plan_load(const char *path, const struct hop_job *job, struct hop_plan *out,
                         struct hop_error *err);

/* A row a device: name, role, blocks, parameters of the adapters. */
hop_status hop_plan_print(const struct hop_plan *plan, const struct hop_job *job, FILE *to,
                          struct hop_error *err);

#endif
