/* From a job to a plan: reads the model's configuration, asks the strategy (or plan.file),
 * predicts.
 */
#ifndef HOP_RUNTIME_PLANNING_H
#define HOP_RUNTIME_PLANNING_H

#include "base/error.h"
#include "cluster/cost.h"
#include "model/config.h"
#include "model/lora.h"
#include "model/weights.h"
#include "report/forecast.h"
#include "report/forecast_table.h"
#include "runtime/job.h"
#include "schedule/plan.h"
#include "strategy/strategy.h"

/* A question for planners, and what people want to know beside the answer. It must stay where it
 * is: the request points to the other members. Zeroed ones may be freed. */
struct hop_problem {
    struct hop_cost_table cost;
    struct hop_cost_table halves; /* of half the rows a micro-batch; zeroed: they have no halves */
    int32_t *fixed_blocks;        /* (devices), from plan.blocks; NULL: none */
    const struct hop_strategy *strategy;
    struct hop_plan_request request;
    struct hop_forecast_facts facts;
};

/* What the job asks for. Also settles what depends on files: lora.init brings its own rank, alpha
 * and targets. */
hop_status hop_problem_create(struct hop_job *job, struct hop_problem *out, struct hop_error *err);
void hop_problem_free(struct hop_problem *problem);

/* The job's plan, that of plan.file where there is one, and what it will do. HOP_INFEASIBLE with
 * the reason when nothing fits. */
hop_status hop_job_forecast(const struct hop_job *job, const struct hop_problem *problem,
                            struct hop_forecast *out, struct hop_error *err);
/* The same of a plan.json. */
hop_status hop_forecast_file(const char *path, const struct hop_problem *problem,
                             struct hop_forecast *out, struct hop_error *err);
/* A plan may halve the job's micro-batches: then the job that runs it has such, too. */
void hop_job_follow(struct hop_job *job, const struct hop_problem *problem,
                    const struct hop_plan *plan);
/* The plan alone; the job follows it. HOP_INFEASIBLE with the reason when nothing fits. */
hop_status hop_job_plan(struct hop_job *job, struct hop_plan *out, struct hop_error *err);

/* What the job's modules carry: as lora.init says for this model where that is set, else as the
 * job's own keys do. */
hop_status hop_job_adapters(const struct hop_job *job, const struct hop_model_config *model,
                            struct hop_lora_config *out, struct hop_error *err);
/* Which blocks of the plan train cores: lora->core_lo and core_hi. HOP_UNSUPPORTED where a tensor
 * shard would. */
hop_status hop_job_place_cores(const struct hop_job *job, const struct hop_plan *plan,
                               const struct hop_model_config *model, struct hop_lora_config *lora,
                               struct hop_error *err);
/* A plan for the devices and blocks of the table, from a file. */
hop_status hop_plan_read(const char *path, const struct hop_cost_table *cost, struct hop_plan *out,
                         struct hop_error *err);

/* The dtype the job computes in; `auto` is that of the model's files. */
enum hop_dtype hop_job_dtype(const struct hop_job *job, const struct hop_weights *weights);
/* What the job's model, data and micro-batches cost on the job's cluster. weights: the model's
 * files where they are open already; NULL: they are opened where the job's dtype asks for it. */
hop_status hop_job_cost(const struct hop_job *job, const struct hop_model_config *model,
                        const struct hop_weights *weights, struct hop_cost_table *out,
                        struct hop_error *err);

hop_status hop_plan_save(const struct hop_plan *plan, const struct hop_job *job, const char *path,
                         struct hop_error *err);
hop_status hop_plan_load(const char *path, const struct hop_job *job, struct hop_plan *out,
                         struct hop_error *err);

#endif
