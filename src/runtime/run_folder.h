/* The folder of a run before its ranks start. */
#ifndef HOP_RUNTIME_RUN_FOLDER_H
#define HOP_RUNTIME_RUN_FOLDER_H

#include "base/error.h"
#include "runtime/job.h"
#include "schedule/plan.h"

/* Creates directory, writes config.yaml and plan.json. Checkpoints of an earlier run there are
 * renamed to checkpoint-N.old-K unless the job resumes. */
hop_status hop_run_folder_create(const char *directory, const struct hop_job *job,
                                 const struct hop_plan *plan, struct hop_error *err);

#endif
