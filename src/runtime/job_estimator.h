/* How the BP-free devices of a job learn about their gradient. */
#ifndef HOP_RUNTIME_JOB_ESTIMATOR_H
#define HOP_RUNTIME_JOB_ESTIMATOR_H

#include "runtime/job.h"
#include "schedule/plan.h"

enum { HOP_JOB_ESTIMATOR_AUTO = HOP_ESTIMATORS + 1 };
/* "difference", ..., "none", "auto", NULL: hop_estimator_choices and one more */
extern const char *const hop_job_estimator_choices[];

/* Does an adapter of the job write into the stream of hidden states, as feedback needs? */
bool hop_job_feeds(const struct hop_job *job);

/* Turns `auto` into what docs/experiments.md found best: feedback where it has adapters to train
 * and a BP-capable device to give the gradient, and the job asks for no probes; else the published
 * difference. Probe counts and cluster must have been read. HOP_INPUT where the job wants exit
 * probes of an estimator without them; an automatic number becomes 0 there. */
hop_status hop_job_choose_estimator(struct hop_job *job, const char *where, bool asks_for_probes,
                                    struct hop_error *err);

#endif
