#include "runtime/job_estimator.h"

#include <string.h>

#include "schedule/estimator.h"

const char *const hop_job_estimator_choices[] = {"difference", "central", "boundary", "feedback",
                                                 "none",       "auto",    NULL};

static bool has_target(const struct hop_job *job, enum hop_target target)
{
    for (size_t i = 0; i < job->lora.targets.count; i++)
        if (strcmp(job->lora.targets.items[i], hop_target_names[target]) == 0)
            return true;
    return false;
}

bool hop_job_feeds(const struct hop_job *job)
{
    return has_target(job, HOP_O_PROJ) || has_target(job, HOP_DOWN_PROJ);
}

static bool has_backward(const struct hop_cluster *cluster)
{
    for (size_t d = 0; d < cluster->count; d++)
        if (cluster->devices[d].bp)
            return true;
    return false;
}

/* The adapter of lora.init may have other targets than the job. */
static int chosen(const struct hop_job *job, bool asks_for_probes)
{
    const bool feeds = hop_job_feeds(job) && !job->lora.init && has_backward(&job->cluster);
    return feeds && !asks_for_probes ? HOP_FEEDBACK : HOP_DIFFERENCE;
}

hop_status hop_job_choose_estimator(struct hop_job *job, const char *where, bool asks_for_probes,
                                    struct hop_error *err)
{
    if (job->zo.estimator == HOP_JOB_ESTIMATOR_AUTO)
        job->zo.estimator = chosen(job, asks_for_probes);
    const bool has_exit = job->zo.estimator < HOP_ESTIMATORS &&
                          hop_estimator_has_exit((enum hop_estimator)job->zo.estimator);
    if (!has_exit && job->zo.exit_probes > 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: zo.early_exit: the estimator %s knows no early exit; use auto or 0",
                        where, hop_job_estimator_choices[job->zo.estimator]);
    if (!has_exit)
        job->zo.exit_probes = 0;
    return HOP_OK;
}
