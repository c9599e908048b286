/* The folder of a run before its first step. */
#ifndef HOP_RUNTIME_RUN_FOLDER_H
#define HOP_RUNTIME_RUN_FOLDER_H

#include "base/error.h"
#include "runtime/job.h"
#include "schedule/plan.h"

/* Creates directory, writes config.yaml and plan.json. */
hop_status hop_run_folder_create(const char *directory, const struct hop_job *job,
                                 const struct hop_plan *plan, struct hop_error *err);
/* Renames checkpoints of an earlier run to checkpoint-N.old-K. To be called when everything else is
 * ready: a start that fails must not take from an earlier run what it resumes from. */
hop_status hop_run_folder_set_aside(const char *directory, struct hop_error *err);

#endif
