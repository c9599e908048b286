/* Starts the ranks of a run through mpiexec, follows them, and says in one line why a run failed.
 */
#ifndef HOP_RUNTIME_LAUNCHER_H
#define HOP_RUNTIME_LAUNCHER_H

#include <stdbool.h>

#include "base/error.h"
#include "runtime/coordinator.h"
#include "runtime/job.h"
#include "runtime/ranks.h"

struct hop_launch {
    const struct hop_job *job;
    const struct hop_ranks *ranks;
    const char *directory; /* run folder with config.yaml and plan.json */
    enum hop_run_mode mode;
    bool json;
};

/* Returns when all ranks have ended. The first interrupt (Ctrl-C, SIGTERM) asks training to stop
 * after the current step and save; the second ends it at once. A rank that reported an error: its
 * status and message. A rank that died silently: HOP_PEER naming its device. */
hop_status hop_launch_run(const struct hop_launch *launch, struct hop_error *err);

#endif
