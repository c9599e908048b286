/* What `plan`, `simulate` and `compare` share: where devices and costs come from (JOB or --cost
 * FILE) and what the planner is asked. */
#ifndef HOP_CLI_PLAN_OPTIONS_H
#define HOP_CLI_PLAN_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/job_options.h"
#include "runtime/planning.h"

struct hop_plan_options {
    struct hop_job_options job; /* job.job NULL: --cost */
    const char *cost;           /* cost table; NULL: JOB */
    const char *strategy;       /* as written; NULL: not given */
    const char *micro_batches, *probes, *probe_batch, *objective, *devices; /* NULL: not given */
    const char *estimator, *exit_probes, *exit_base, *directions;
    bool bp_only, json;
};

/* An argp child; give it a struct hop_plan_options as input. */
extern const struct argp hop_plan_argp;

/* What the options ask. *job is the job, empty with --cost; it must live as long as *out. */
hop_status hop_plan_options_problem(struct hop_plan_options *options, struct hop_job *job,
                                    struct hop_problem *out, struct hop_error *err);
void hop_plan_options_free(struct hop_plan_options *options);

/* Prints the value, whose reference it takes, to stdout. */
hop_status hop_print_json(json_t *value, struct hop_error *err);

#endif
