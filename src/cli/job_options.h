/* Options that every command with a job file shares: JOB, --set key=value, --strategy NAME. */
#ifndef HOP_CLI_JOB_OPTIONS_H
#define HOP_CLI_JOB_OPTIONS_H

#include <argp.h>
#include <stddef.h>

#include "base/error.h"
#include "base/string.h"
#include "runtime/job.h"

struct hop_job_options {
    const char *job;
    char **overrides; /* "key=value" */
    size_t count, capacity;
    struct hop_error err;
};

/* An argp child; give it a struct hop_job_options as input. */
extern const struct argp hop_job_argp;

/* Adds "key=value" as the user wrote it. */
hop_status hop_job_options_add(struct hop_job_options *options, const char *text,
                               struct hop_error *err);
/* The same from its two halves; value is taken as it stands. */
hop_status hop_job_options_set(struct hop_job_options *options, const char *key, const char *value,
                               struct hop_error *err);
hop_status hop_job_options_load(struct hop_job_options *options, struct hop_job *job,
                                struct hop_error *err);
void hop_job_options_free(struct hop_job_options *options);

#endif
