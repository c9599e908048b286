#include "runtime/planning.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "cluster/cost_model.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/config.h"
#include "runtime/job_estimator.h"
#include "schedule/estimator.h"
#include "strategy/strategy.h"

hop_status hop_job_adapters(const struct hop_job *job, const struct hop_model_config *model,
                            struct hop_lora_config *out, struct hop_error *err)
{
    return job->lora.init ? hop_adapter_config(job->lora.init, model, out, err)
                          : hop_job_lora(job, out, err);
}

/* Blocks that some zeroth-order part has. */
static void zeroth_order_blocks(const struct hop_plan *plan, int32_t *lo, int32_t *hi)
{
    *lo = INT32_MAX;
    *hi = 0;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        if (part->gradient != HOP_GRADIENT_ZEROTH_ORDER || part->lo == part->hi)
            continue;
        *lo = part->lo < *lo ? part->lo : *lo;
        *hi = part->hi > *hi ? part->hi : *hi;
    }
    *lo = *lo < *hi ? *lo : *hi;
}

static hop_status check_core_parts(const struct hop_plan *plan, const struct hop_lora_config *lora,
                                   struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (hop_plan_shards(plan, p) > 1 &&
            hop_lora_has_cores(lora, plan->parts[p].lo, plan->parts[p].hi))
            return hop_fail(err, HOP_UNSUPPORTED,
                            "lora.core: blocks %d to %d lie on tensor shards in this plan of %s, "
                            "which train no cores; set lora.core to 0 or choose another strategy",
                            plan->parts[p].lo, plan->parts[p].hi, plan->strategy);
    return HOP_OK;
}

hop_status hop_job_place_cores(const struct hop_job *job, const struct hop_plan *plan,
                               const struct hop_model_config *model, struct hop_lora_config *lora,
                               struct hop_error *err)
{
    struct hop_lora_config plain;
    if (lora->core == 0)
        return HOP_OK;
    lora->core_lo = 0;
    lora->core_hi = model->blocks;
    if (job->lora.core_blocks == HOP_CORE_ZEROTH_ORDER)
        zeroth_order_blocks(plan, &lora->core_lo, &lora->core_hi);
    HOP_TRY(hop_lora_plain(lora, model->blocks, &plain, err));
    return check_core_parts(plan, lora, err);
}

static hop_status adopt_adapter(struct hop_job *job, const struct hop_model_config *model,
                                struct hop_error *err)
{
    struct hop_lora_config lora;
    if (!job->lora.init)
        return HOP_OK;
    HOP_TRY(hop_adapter_warn(job->lora.init, err));
    HOP_TRY(hop_adapter_config(job->lora.init, model, &lora, err));
    hop_string_list_free(&job->lora.targets);
    job->lora.rank = lora.rank;
    job->lora.alpha = lora.alpha;
    job->lora.rslora = lora.rslora;
    for (int t = 0; t < HOP_TARGETS; t++)
        if (lora.targets[t])
            HOP_TRY(hop_string_list_add(&job->lora.targets, hop_target_names[t], err));
    return HOP_OK;
}

/* Feedback trains what is added to the residual stream. */
static void warn_of_feedback(const struct hop_job *job)
{
    if (job->zo.estimator == HOP_FEEDBACK && !hop_job_feeds(job))
        hop_warn("zo.estimator: feedback trains the adapters of o_proj and down_proj only, and "
                 "lora.targets has neither: BP-free devices will learn nothing");
}

static void warn_of_ignored_keys(const struct hop_job *job, const struct hop_strategy *strategy)
{
    if (job->plan.blocks && !strategy->uses_fixed_blocks)
        hop_warn("plan.blocks has no meaning for strategy %s", strategy->name);
    if (job->zo.blocks && !strategy->uses_zo_blocks)
        hop_warn("zo.blocks has no meaning for strategy %s: there the devices decide",
                 strategy->name);
}

enum hop_dtype hop_job_dtype(const struct hop_job *job, const struct hop_weights *weights)
{
    if (job->train.dtype == HOP_JOB_DTYPE_AUTO)
        return hop_weights_native_dtype(weights);
    return job->train.dtype == HOP_JOB_DTYPE_F32 ? HOP_F32 : HOP_BF16;
}

/* Only `auto` asks the files, which may be open already. */
static hop_status find_dtype(const struct hop_job *job, const struct hop_model_config *model,
                             const struct hop_weights *weights, enum hop_dtype *out,
                             struct hop_error *err)
{
    struct hop_weights *opened = NULL;
    if (job->train.dtype == HOP_JOB_DTYPE_AUTO && !weights)
        HOP_TRY(hop_weights_open(job->model, model, &opened, err));
    *out = hop_job_dtype(job, opened ? opened : weights);
    hop_weights_free(opened);
    return HOP_OK;
}

static int32_t smaller(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* No task runs more probes at once than there are. */
static int32_t probe_batch(const struct hop_job *job)
{
    const int32_t probes = job->zo.probes, exit_probes = job->zo.exit_probes;
    if (probes == HOP_PROBES_AUTO || exit_probes == HOP_PROBES_AUTO)
        return (int32_t)job->zo.probe_batch;
    return smaller(job->zo.probe_batch, probes > exit_probes ? probes : exit_probes);
}

static enum hop_front_work front_work(const struct hop_job *job)
{
    switch (job->zo.estimator) {
    case HOP_BOUNDARY:
        return HOP_FRONT_TANGENTS;
    case HOP_FEEDBACK:
        return HOP_FRONT_FEEDBACK;
    case HOP_ESTIMATORS:
        return HOP_FRONT_NOTHING;
    default:
        return HOP_FRONT_PROBES;
    }
}

static void fill_front(const struct hop_job *job, struct hop_workload *workload)
{
    workload->front = front_work(job);
    workload->passes = hop_estimator_passes((enum hop_estimator)job->zo.estimator);
    workload->per_sample = job->zo.directions == HOP_PER_SAMPLE;
    if (workload->lora.core > 0 && job->lora.core_blocks == HOP_CORE_ALL)
        workload->lora.core_hi = workload->model.blocks;
}

hop_status hop_job_cost(const struct hop_job *job, const struct hop_model_config *model,
                        const struct hop_weights *weights, struct hop_cost_table *out,
                        struct hop_error *err)
{
    const int32_t rows = (int32_t)hop_job_micro_batch_rows(job);
    const int32_t tokens = (int32_t)job->data.max_length;
    struct hop_workload workload = {
        .model = *model,
        .samples = rows,
        .tokens = hop_job_priced_tokens(job),
        .labels = hop_job_priced_labels(job),
        .limits = {.sequences = rows, .tokens = rows * tokens, .labels = rows * tokens},
        .probe_batch = probe_batch(job),
        .window = 4};
    if (hop_job_answer_tokens(job) > 0) {
        workload.cache = tokens + hop_job_answer_tokens(job);
        workload.cache_sequences = hop_job_answer_batches(job) * rows;
    }
    HOP_TRY(hop_job_adapters(job, model, &workload.lora, err));
    fill_front(job, &workload);
    HOP_TRY(find_dtype(job, model, weights, &workload.dtype, err));
    return hop_cost_from_model(&workload, &job->cluster, out, err);
}

/* A device is left out on evidence, not on a guess of its speed. */
static enum hop_device_use device_use(const struct hop_job *job)
{
    for (size_t d = 0; d < job->cluster.count; d++)
        if (job->plan.devices == HOP_DEVICES_DEFAULT && !job->cluster.devices[d].rate_known)
            return HOP_DEVICES_ALL;
    return (enum hop_device_use)job->plan.devices;
}

static hop_status fill_request(const struct hop_job *job, struct hop_problem *problem,
                               struct hop_error *err)
{
    if (job->plan.blocks) {
        HOP_TRY(hop_calloc(&problem->fixed_blocks, job->cluster.count,
                           sizeof *problem->fixed_blocks, err));
        HOP_TRY(hop_fixed_blocks_parse(job->plan.blocks, "job", &problem->cost,
                                       problem->fixed_blocks, err));
    }
    problem->request =
        (struct hop_plan_request){.cost = &problem->cost,
                                  .micro_batches = hop_job_micro_batches(job),
                                  .probes = job->zo.probes,
                                  .probe_batch = probe_batch(job),
                                  .exit_probes = job->zo.exit_probes,
                                  .directions = (enum hop_directions)job->zo.directions,
                                  .exit_base = (enum hop_exit_base)job->zo.exit_base,
                                  .feedback_blocks = (int32_t)job->zo.feedback_blocks,
                                  .fixed_blocks = problem->fixed_blocks,
                                  .devices = device_use(job),
                                  .objective = (enum hop_objective)job->plan.objective,
                                  .zo_lo = job->zo.lo,
                                  .zo_hi = job->zo.hi};
    hop_request_choose(&problem->request, job->zo.estimator);
    return HOP_OK;
}

/* Rows and micro-batches of the halves that leave no rest. */
static bool find_halves(const struct hop_job *job, struct hop_job *halved)
{
    const int64_t rows = hop_job_micro_batch_rows(job);
    const int32_t wholes = hop_job_micro_batches(job);
    *halved = *job;
    halved->plan.micro_batches = 0;
    halved->train.micro_batch = rows / 2;
    return rows % 2 == 0 && wholes <= 1 << 14 && hop_job_micro_batches(halved) == 2 * wholes;
}

static hop_status fill_halves(const struct hop_job *job, const struct hop_model_config *model,
                              struct hop_problem *problem, struct hop_error *err)
{
    struct hop_job halved; /* owns nothing */
    if (!find_halves(job, &halved))
        return HOP_OK;
    HOP_TRY(hop_job_cost(&halved, model, NULL, &problem->halves, err));
    problem->request.halves = &problem->halves;
    return HOP_OK;
}

static hop_status fill_facts(const struct hop_job *job, const struct hop_model_config *model,
                             struct hop_forecast_facts *facts, struct hop_error *err)
{
    struct hop_lora_config lora;
    HOP_TRY(hop_job_adapters(job, model, &lora, err));
    *facts = (struct hop_forecast_facts){
        .block_parameters = hop_model_block_parameters(model),
        .embed_parameters = hop_model_embed_parameters(model),
        .tied = model->tied,
        .adapter_parameters = hop_lora_block_parameters(model, &lora),
        .tokens = hop_job_priced_tokens(job),
        .labels = hop_job_priced_labels(job),
        .time_scale = hop_cluster_time_scale(&job->cluster),
    };
    return HOP_OK;
}

hop_status hop_problem_create(struct hop_job *job, struct hop_problem *out, struct hop_error *err)
{
    struct hop_model_config model;
    hop_status status = HOP_OK;
    *out = (struct hop_problem){0};
    HOP_TRY_DONE(hop_strategy_find(job->strategy, &out->strategy, err));
    HOP_TRY_DONE(hop_model_config_load(job->model, &model, err));
    HOP_TRY_DONE(adopt_adapter(job, &model, err));
    HOP_TRY_DONE(hop_job_cost(job, &model, NULL, &out->cost, err));
    HOP_TRY_DONE(fill_request(job, out, err));
    HOP_TRY_DONE(fill_halves(job, &model, out, err));
    HOP_TRY_DONE(fill_facts(job, &model, &out->facts, err));
done:
    if (status != HOP_OK)
        hop_problem_free(out);
    return status;
}

void hop_problem_free(struct hop_problem *problem)
{
    if (!problem)
        return;
    hop_cost_free(&problem->cost);
    hop_cost_free(&problem->halves);
    free(problem->fixed_blocks);
    *problem = (struct hop_problem){0};
}

hop_status hop_plan_read(const char *path, const struct hop_cost_table *cost, struct hop_plan *out,
                         struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_plan plan = {0};
    const char **names = NULL;
    json_t *object = NULL;
    HOP_TRY_DONE(hop_cost_names(cost, &names, err));
    HOP_TRY_DONE(hop_json_load(path, &object, err));
    HOP_TRY_DONE(hop_plan_parse(object, path, names, cost->device_count, &plan, err));
    if (plan.blocks != cost->blocks) {
        status = hop_fail(err, HOP_INPUT, "%s: the plan is for %d blocks, the model has %d", path,
                          plan.blocks, cost->blocks);
        goto done;
    }
    *out = plan;
    plan = (struct hop_plan){0};
done:
    hop_plan_free(&plan);
    json_decref(object);
    free(names);
    return status;
}

hop_status hop_forecast_file(const char *path, const struct hop_problem *problem,
                             struct hop_forecast *out, struct hop_error *err)
{
    struct hop_plan plan;
    HOP_TRY(hop_plan_read(path, &problem->cost, &plan, err));
    const hop_status status =
        hop_forecast_given(&plan, hop_request_cost(&problem->request, &plan), out, err);
    hop_plan_free(&plan);
    return status;
}

hop_status hop_job_forecast(const struct hop_job *job, const struct hop_problem *problem,
                            struct hop_forecast *out, struct hop_error *err)
{
    if (job->plan.file)
        return hop_forecast_file(job->plan.file, problem, out, err);
    warn_of_ignored_keys(job, problem->strategy);
    warn_of_feedback(job);
    return hop_forecast_plan(problem->strategy, &problem->request, out, err);
}

void hop_job_follow(struct hop_job *job, const struct hop_problem *problem,
                    const struct hop_plan *plan)
{
    if (hop_request_cost(&problem->request, plan) == &problem->cost)
        return;
    job->train.micro_batch = plan->micro_batch_samples;
    job->plan.micro_batches = 0;
}

hop_status hop_job_plan(struct hop_job *job, struct hop_plan *out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_problem problem = {0};
    struct hop_forecast forecast = {0};
    HOP_TRY_DONE(hop_problem_create(job, &problem, err));
    HOP_TRY_DONE(hop_job_forecast(job, &problem, &forecast, err));
    HOP_TRY_DONE(hop_forecast_require(&forecast, err));
    hop_job_follow(job, &problem, &forecast.plan);
    *out = forecast.plan;
    forecast.plan = (struct hop_plan){0};
done:
    hop_forecast_free(&forecast);
    hop_problem_free(&problem);
    return status;
}

hop_status hop_plan_save(const struct hop_plan *plan, const struct hop_job *job, const char *path,
                         struct hop_error *err)
{
    hop_status status = HOP_OK;
    const char **names = NULL;
    json_t *object = NULL;
    HOP_TRY_DONE(hop_cluster_names(&job->cluster, &names, err));
    object = hop_plan_json(plan, names);
    if (!object) {
        status = hop_fail(err, HOP_MEMORY, "out of memory while writing %s", path);
        goto done;
    }
    HOP_TRY_DONE(hop_json_save(path, object, err));
done:
    json_decref(object);
    free(names);
    return status;
}

hop_status hop_plan_load(const char *path, const struct hop_job *job, struct hop_plan *out,
                         struct hop_error *err)
{
    hop_status status = HOP_OK;
    const char **names = NULL;
    json_t *object = NULL;
    HOP_TRY_DONE(hop_cluster_names(&job->cluster, &names, err));
    HOP_TRY_DONE(hop_json_load(path, &object, err));
    HOP_TRY_DONE(hop_plan_parse(object, path, names, (int32_t)job->cluster.count, out, err));
done:
    json_decref(object);
    free(names);
    return status;
}
