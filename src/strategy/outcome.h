/* The best runs for one number of probes. Private to src/strategy. */
#ifndef HOP_STRATEGY_OUTCOME_H
#define HOP_STRATEGY_OUTCOME_H

#include "strategy/line_search.h"

struct hop_outcome {
    struct hop_run *runs; /* (devices of the pipeline) */
    int32_t count;        /* 0: nothing fits */
    double seconds;       /* of the objective */
    double bound;         /* no runs are better; NAN: not every order could be looked at */
    double all_seconds;   /* the best with every device, where the runs leave some out; else NAN */
    struct hop_line_effort spent;
};

hop_status hop_outcome_create(const struct hop_pipeline *pipeline, struct hop_outcome *out,
                              struct hop_error *err);
void hop_outcome_free(struct hop_outcome *outcome);

/* Does the request force every device to take part? */
bool hop_pipeline_takes_all(const struct hop_pipeline *pipeline);

/* By the request's objective and device use. Every device takes part unless leaving some out is
 * better by more than a tie. */
hop_status hop_outcome_find(const struct hop_pipeline *pipeline, struct hop_outcome *outcome,
                            struct hop_error *err);

/* Is there a line with BP-free devices that takes no longer than `seconds` (up to a tie)? */
hop_status hop_outcome_reaches(const struct hop_pipeline *pipeline, double seconds, bool *out,
                               struct hop_error *err);

#endif
