/* What `hybridop data check` says about a data set. */
#ifndef HOP_CLI_DATA_REPORT_H
#define HOP_CLI_DATA_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "data/survey.h"
#include "model/config.h"
#include "runtime/job.h"
#include "runtime/rows.h"

struct hop_data_report {
    const char *use;  /* "train" or "eval" */
    const char *path; /* of the file */
    const struct hop_job *job;
    const struct hop_model_config *model;
    const struct hop_row_source *source;
    struct hop_survey_tokens tokens;
    struct hop_dataset *dataset;
    struct hop_survey survey;
};

hop_status hop_data_report_print(const struct hop_data_report *report, FILE *to,
                                 struct hop_error *err);
/* NULL: out of memory. */
json_t *hop_data_report_json(const struct hop_data_report *report);
/* Appends a text for each thing that is allowed but seldom meant. */
hop_status hop_data_report_warn(const struct hop_data_report *report, json_t *warnings,
                                struct hop_error *err);

#endif
