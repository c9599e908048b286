/* What people get to see of a study: a table, a JSON object, charts. Private to src/cli. */
#ifndef HOP_CLI_STUDY_PAGE_H
#define HOP_CLI_STUDY_PAGE_H

#include <stdio.h>

#include "runtime/study_summary.h"

struct hop_study_view {
    const struct hop_study *study;
    const struct hop_study_outcome *outcomes; /* (count) */
    size_t count;
    enum hop_study_clock clock;
    double target;    /* NAN: none */
    size_t low, high; /* outcomes between whose metrics shares are counted; equal: none */
    int64_t samples;  /* of a step */
};

hop_status hop_study_print(const struct hop_study_view *view, FILE *to, struct hop_error *err);
/* NULL: out of memory. */
json_t *hop_study_json(const struct hop_study_view *view);
/* study.json, study.html and the charts as SVG files into the study's directory. */
hop_status hop_study_save(const struct hop_study_view *view, struct hop_error *err);

#endif
