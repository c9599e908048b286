/* Rank 0: reads model and data, hands out work, keeps the run folder. */
#ifndef HOP_RUNTIME_COORDINATOR_H
#define HOP_RUNTIME_COORDINATOR_H

#include <stdbool.h>

#include "base/error.h"
#include "runtime/transport.h"

enum hop_run_mode { HOP_RUN_TRAIN, HOP_RUN_EVALUATE };

/* `directory` holds config.yaml and plan.json as the launcher wrote them. HOP_RUN_EVALUATE prints
 * one JSON object on stdout when `json`, else a table. A file named "stop" in the directory ends
 * training after the current step. */
hop_status hop_coordinator_run(struct hop_transport *transport, const char *directory,
                               enum hop_run_mode mode, bool json, struct hop_error *err);

/* The answers of the last evaluation of a task with free ones: {"id": "answer", ...}. */
#define HOP_PREDICTIONS_FILE "predictions.json"

/* Created by the launcher on Ctrl-C, removed by it before and after a run. */
#define HOP_STOP_FILE "stop"

#endif
