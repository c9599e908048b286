/* From a job to a plan: reads the model's configuration, asks the strategy (or plan.file), checks.
 */
#ifndef HOP_RUNTIME_PLANNING_H
#define HOP_RUNTIME_PLANNING_H

#include <stdio.h>

#include "base/error.h"
#include "runtime/job.h"
#include "schedule/plan.h"

/* Also settles what depends on files: lora.init brings its own rank, alpha and targets. */
hop_status hop_job_plan(struct hop_job *job, struct hop_plan *out, struct hop_error *err);

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
