/* What the runs of a variant have in common: means over seeds, with their spread. */
#ifndef HOP_RUNTIME_STUDY_SUMMARY_H
#define HOP_RUNTIME_STUDY_SUMMARY_H

#include "runtime/study.h"

/* A number a seed. */
struct hop_study_value {
    double mean, deviation, low, high; /* NAN: not known; deviation of the sample, 0 for one seed */
};

/* A line over steps or evaluations. */
struct hop_study_line {
    size_t count;
    double *step, *seconds;    /* (count) by the chosen clock */
    double *mean, *low, *high; /* (count) */
};

struct hop_study_outcome {
    const struct hop_study_variant *variant; /* borrowed */
    double step_seconds;                     /* by the chosen clock */
    struct hop_study_value train_loss, eval_loss, metric, utilization;
    struct hop_study_value target_seconds; /* until the evaluation loss is at the target; INFINITY
                                              where a seed never reaches it */
    struct hop_study_line loss;            /* of training, each point the mean of the last steps */
    struct hop_study_line eval_losses, metrics;
};

enum hop_study_clock {
    HOP_STUDY_SIMULATED, /* steps times the planned seconds of a step on the job's cluster */
    HOP_STUDY_MEASURED   /* seconds of training as they passed here */
};
extern const char *const hop_study_clock_names[]; /* "simulated", "measured", NULL */

/* target: evaluation loss, NAN: none. HOP_INPUT where the plan of a run has no simulated time and
 * that is the clock. */
hop_status hop_study_summarise(const struct hop_study *study,
                               const struct hop_study_variant *variant, enum hop_study_clock clock,
                               double target, struct hop_study_outcome *out, struct hop_error *err);
void hop_study_outcome_free(struct hop_study_outcome *outcome);

#endif
