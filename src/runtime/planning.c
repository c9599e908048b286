#include "runtime/planning.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "cluster/cost_model.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/config.h"
#include "report/table.h"
#include "schedule/price.h"
#include "strategy/strategy.h"

hop_status hop_job_device_names(const struct hop_job *job, const char ***out, struct hop_error *err)
{
    const char **names;
    HOP_TRY(hop_calloc(&names, job->cluster.count, sizeof *names, err));
    for (size_t d = 0; d < job->cluster.count; d++)
        names[d] = job->cluster.devices[d].name;
    *out = names;
    return HOP_OK;
}

static hop_status append_target(struct hop_string_list *targets, const char *name,
                                struct hop_error *err)
{
    HOP_TRY(hop_string_copy(&targets->items[targets->count], name, err));
    targets->count++;
    return HOP_OK;
}

hop_status hop_job_adapters(const struct hop_job *job, const struct hop_model_config *model,
                            struct hop_lora_config *out, struct hop_error *err)
{
    return job->lora.init ? hop_adapter_config(job->lora.init, model, out, err)
                          : hop_job_lora(job, out, err);
}

static hop_status adopt_adapter(struct hop_job *job, const struct hop_model_config *model,
                                struct hop_error *err)
{
    struct hop_lora_config lora;
    if (!job->lora.init)
        return HOP_OK;
    HOP_TRY(hop_adapter_warn(job->lora.init, err));
    HOP_TRY(hop_adapter_config(job->lora.init, model, &lora, err));
    struct hop_string_list targets = {0};
    HOP_TRY(hop_calloc(&targets.items, HOP_TARGETS, sizeof *targets.items, err));
    for (size_t i = 0; i < job->lora.targets.count; i++)
        free(job->lora.targets.items[i]);
    free(job->lora.targets.items);
    job->lora.targets = targets;
    job->lora.rank = lora.rank;
    job->lora.alpha = lora.alpha;
    for (int t = 0; t < HOP_TARGETS; t++)
        if (lora.targets[t])
            HOP_TRY(append_target(&job->lora.targets, hop_target_names[t], err));
    return HOP_OK;
}

static void warn_of_ignored_keys(const struct hop_job *job, const struct hop_strategy *strategy)
{
    if (job->plan.blocks && !strategy->uses_fixed_blocks)
        hop_warn("plan.blocks has no meaning for strategy %s", strategy->name);
    if (job->zo.blocks && !strategy->uses_zo_blocks)
        hop_warn("zo.blocks has no meaning for strategy %s: there the devices decide",
                 strategy->name);
}

hop_status hop_job_dtype(const struct hop_job *job, const struct hop_model_config *model,
                         enum hop_dtype *out, struct hop_error *err)
{
    struct hop_weights *weights;
    if (job->train.dtype != HOP_JOB_DTYPE_AUTO) {
        *out = job->train.dtype == HOP_JOB_DTYPE_F32 ? HOP_F32 : HOP_BF16;
        return HOP_OK;
    }
    HOP_TRY(hop_weights_open(job->model, model, &weights, err));
    *out = hop_weights_native_dtype(weights);
    hop_weights_free(weights);
    return HOP_OK;
}

hop_status hop_job_cost(const struct hop_job *job, const struct hop_model_config *model,
                        struct hop_cost_table *out, struct hop_error *err)
{
    const int32_t rows = (int32_t)hop_job_micro_batch_rows(job);
    const int32_t tokens = (int32_t)job->data.max_length;
    struct hop_workload workload = {
        .model = *model,
        .samples = rows,
        .tokens = tokens,
        .labels = tokens < 16 ? tokens : 16,
        .limits = {.sequences = rows, .tokens = rows * tokens, .labels = rows * tokens},
        .probe_batch = 1,
        .window = 4};
    HOP_TRY(hop_job_adapters(job, model, &workload.lora, err));
    HOP_TRY(hop_job_dtype(job, model, &workload.dtype, err));
    return hop_cost_from_model(&workload, &job->cluster, out, err);
}

static hop_status ask_strategy(const struct hop_job *job, const struct hop_cost_table *cost,
                               struct hop_plan *out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    const struct hop_strategy *strategy;
    int32_t *fixed = NULL;
    HOP_TRY_DONE(hop_strategy_find(job->strategy, &strategy, err));
    warn_of_ignored_keys(job, strategy);
    if (job->plan.blocks) {
        HOP_TRY_DONE(hop_calloc(&fixed, job->cluster.count, sizeof *fixed, err));
        HOP_TRY_DONE(hop_fixed_blocks_parse(job->plan.blocks, "job", cost, fixed, err));
    }
    const struct hop_plan_request request = {.cost = cost,
                                             .micro_batches = hop_job_micro_batches(job),
                                             .probes = (int32_t)job->zo.probes,
                                             .fixed_blocks = fixed,
                                             .zo_lo = job->zo.lo,
                                             .zo_hi = job->zo.hi};
    HOP_TRY_DONE(strategy->plan(&request, out, err));
done:
    free(fixed);
    return status;
}

/* A plan from a file is followed as it stands; only what depends on this cluster is new. */
static hop_status read_plan(const struct hop_job *job, const struct hop_cost_table *cost,
                            struct hop_plan *out, struct hop_error *err)
{
    struct hop_plan plan;
    hop_status status = HOP_OK;
    HOP_TRY(hop_plan_load(job->plan.file, job, &plan, err));
    if (plan.blocks != cost->blocks) {
        status = hop_fail(err, HOP_INPUT, "%s: the plan is for %d blocks, the model has %d",
                          job->plan.file, plan.blocks, cost->blocks);
        goto done;
    }
    HOP_TRY_DONE(hop_plan_price(&plan, cost, 1, err));
    *out = plan;
    return HOP_OK;
done:
    hop_plan_free(&plan);
    return status;
}

hop_status hop_job_plan(struct hop_job *job, struct hop_plan *out, struct hop_error *err)
{
    struct hop_model_config model;
    struct hop_cost_table cost;
    HOP_TRY(hop_model_config_load(job->model, &model, err));
    HOP_TRY(adopt_adapter(job, &model, err));
    HOP_TRY(hop_job_cost(job, &model, &cost, err));
    const hop_status status =
        job->plan.file ? read_plan(job, &cost, out, err) : ask_strategy(job, &cost, out, err);
    hop_cost_free(&cost);
    return status;
}

hop_status hop_plan_save(const struct hop_plan *plan, const struct hop_job *job, const char *path,
                         struct hop_error *err)
{
    hop_status status = HOP_OK;
    const char **names = NULL;
    json_t *object = NULL;
    HOP_TRY_DONE(hop_job_device_names(job, &names, err));
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
    HOP_TRY_DONE(hop_job_device_names(job, &names, err));
    HOP_TRY_DONE(hop_json_load(path, &object, err));
    HOP_TRY_DONE(hop_plan_parse(object, path, names, (int32_t)job->cluster.count, out, err));
done:
    json_decref(object);
    free(names);
    return status;
}

static const char *role(enum hop_gradient gradient)
{
    switch (gradient) {
    case HOP_GRADIENT_BACKPROP:
        return "BP-capable";
    case HOP_GRADIENT_ZEROTH_ORDER:
        return "BP-free";
    default:
        return "forward only";
    }
}

static hop_status print_part(struct hop_table *table, const struct hop_part *part,
                             const struct hop_job *job, int64_t parameters, struct hop_error *err)
{
    HOP_TRY(hop_table_cell(table, err, "%s", job->cluster.devices[part->device].name));
    HOP_TRY(hop_table_cell(table, err, "%s", role(part->gradient)));
    HOP_TRY(hop_table_cell(table, err, "%d-%d", part->lo, part->hi - 1));
    HOP_TRY(hop_table_cell(table, err, "%lld", (long long)parameters));
    return hop_table_cell(table, err, "%s", hop_gradient_names[part->gradient]);
}

hop_status hop_plan_print(const struct hop_plan *plan, const struct hop_job *job, FILE *to,
                          struct hop_error *err)
{
    static const char *const headers[] = {"device",   "role", "blocks", ">adapter parameters",
                                          "gradient", NULL};
    hop_status status = HOP_OK;
    struct hop_table *table = NULL;
    struct hop_model_config model;
    struct hop_lora_config lora;
    HOP_TRY(hop_model_config_load(job->model, &model, err));
    HOP_TRY(hop_job_adapters(job, &model, &lora, err));
    HOP_TRY(hop_table_create(headers, &table, err));
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const int64_t parameters = hop_lora_parameters(&model, &lora, part->lo, part->hi);
        HOP_TRY_DONE(print_part(table, part, job, parameters, err));
    }
    hop_table_print(table, to);
done:
    hop_table_free(table);
    return status;
}
