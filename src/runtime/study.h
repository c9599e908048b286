/* A study: the same job many times, with other settings and seeds, and what came out of each.
 *
 *     DIR/tuning/VARIANT/KEY=VALUE,...   runs that choose rates, where a variant asks for it
 *     DIR/runs/VARIANT/seed-N            the runs that count
 *
 * Every run is a run folder of `hybridop train`, started as a process of its own. A run whose
 * summary.json is there is not repeated, so a study that was cut off goes on where it stopped. */
#ifndef HOP_RUNTIME_STUDY_H
#define HOP_RUNTIME_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "io/schema.h"

/* A key of the job and the values it shall take. */
struct hop_study_axis {
    char *key;
    struct hop_string_list values; /* as --set takes them */
};

struct hop_study_variant {
    char *name;                      /* also of its folder */
    struct hop_string_list settings; /* "key=value" */
    struct hop_study_axis *tune;     /* (tune_count) every combination is tried with one seed */
    size_t tune_count;
    struct hop_string_list chosen; /* "key=value" of the best combination */
};

struct hop_study {
    const char *program, *job, *directory;
    struct hop_string_list settings;        /* of every run */
    struct hop_string_list tuning_settings; /* of tuning runs besides, e.g. other evaluation data */
    struct hop_study_variant *variants;
    size_t variant_count;
    int64_t *seeds; /* (seed_count); the first one is that of tuning runs */
    size_t seed_count;
    int32_t parallel;          /* runs at once */
    const char *metric;        /* of evaluations: "loss" (smaller is better), "accuracy", ... */
    const char *tuning_metric; /* what tuning looks at */
};

void hop_study_free(struct hop_study *study);

/* Adds "key=value". */
hop_status hop_study_set(struct hop_string_list *list, const char *key, const char *value,
                         struct hop_error *err);
/* "key=v1,v2,v3" to an axis; HOP_INPUT where there is no key or no value. */
hop_status hop_study_axis_parse(const char *text, struct hop_study_axis *out,
                                struct hop_error *err);
void hop_study_axis_free(struct hop_study_axis *axis);

/* Variants of a file: {NAME: {KEY: VALUE, ..., tune: {KEY: [VALUE, ...]}}}. */
hop_status hop_study_variants_parse(const json_t *object, const char *where,
                                    struct hop_study *study, struct hop_error *err);
/* One more variant without settings, if there is none yet. */
hop_status hop_study_default_variant(struct hop_study *study, struct hop_error *err);
/* Every variant once for each value: "NAME key=value". */
hop_status hop_study_cross(struct hop_study *study, const struct hop_study_axis *axis,
                           struct hop_error *err);

/* Runs all tuning runs and sets `chosen` of every variant; a rate that makes a run fail is no
 * candidate. Notes go to stderr. */
hop_status hop_study_tune(struct hop_study *study, struct hop_error *err);
/* Runs all that count. HOP_PEER naming the run (its output is in log.txt) when one fails. */
hop_status hop_study_run(const struct hop_study *study, struct hop_error *err);
/* *out = malloc'ed folder of a run. */
hop_status hop_study_folder(const struct hop_study *study, const struct hop_study_variant *variant,
                            int64_t seed, char **out, struct hop_error *err);

/* What a run left behind. */
struct hop_study_curve {
    size_t steps;
    double *loss;        /* (steps) of training, step 1, 2, ... */
    double *seconds;     /* (steps) as measured, up to the end of the step */
    double step_seconds; /* as planned for the cluster; NAN: not known */
    size_t evaluations;  /* the first one before training, where there is one */
    double *eval_step;   /* (evaluations) */
    double *eval_loss;   /* (evaluations) */
    double *eval_metric; /* (evaluations) NAN where the task has not got it */
    double final_loss;   /* training loss, mean of the last tenth of the steps */
    double utilization;  /* as summary.json has it */
};

/* metric: as in struct hop_study. */
hop_status hop_study_curve_read(const char *directory, const char *metric,
                                struct hop_study_curve *out, struct hop_error *err);
void hop_study_curve_free(struct hop_study_curve *curve);

#endif
