/* What the coordinator reads and decides before the first message. */
#include "runtime/coordinator_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "runtime/console.h"
#include "runtime/planning.h"
#include "schedule/estimator.h"
#include "schedule/plan_shard.h"

hop_status hop_coordinator_path(const struct hop_coordinator *c, const char *name, char **out,
                                struct hop_error *err)
{
    return hop_path_join(c->directory, name, out, err);
}

static hop_status load_job(struct hop_coordinator *c, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *config = NULL, *plan = NULL;
    HOP_TRY_DONE(hop_coordinator_path(c, "config.yaml", &config, err));
    HOP_TRY_DONE(hop_coordinator_path(c, "plan.json", &plan, err));
    HOP_TRY_DONE(hop_job_load(config, NULL, 0, &c->job, err));
    HOP_TRY_DONE(hop_plan_load(plan, &c->job, &c->plan, err));
    HOP_TRY_DONE(hop_ranks_assign(&c->job.cluster, &c->plan, &c->ranks, err));
    if (c->ranks.count != c->transport->size)
        status = hop_fail(err, HOP_INPUT, "%s: the plan needs %d processes, %d were started", plan,
                          c->ranks.count, c->transport->size);
done:
    free(config);
    free(plan);
    return status;
}

static hop_status note_unused(const struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_string note = {0};
    const hop_status status = hop_weights_unused_note(c->session.weights, &c->model, &note, err);
    if (status == HOP_OK && note.length)
        hop_console_note("%s: %s", c->job.model, note.data);
    hop_string_free(&note);
    return status;
}

static hop_status load_model(struct hop_coordinator *c, struct hop_error *err)
{
    HOP_TRY(hop_model_config_load(c->job.model, &c->model, err));
    HOP_TRY(hop_plan_check_shards(&c->plan, &c->model, err));
    HOP_TRY(hop_job_adapters(&c->job, &c->model, &c->lora, err));
    if (c->mode == HOP_RUN_TRAIN)
        HOP_TRY(hop_job_place_cores(&c->job, &c->plan, &c->model, &c->lora, err));
    HOP_TRY(hop_weights_open(c->job.model, &c->model, &c->session.weights, err));
    HOP_TRY(note_unused(c, err));
    c->dtype = hop_job_dtype(&c->job, c->session.weights);
    return hop_job_cost(&c->job, &c->model, c->session.weights, &c->cost, err);
}

/* Rotary positions have no end, but the model saw none beyond its own: allowed, and told. */
static void note_long_rows(const struct hop_coordinator *c, const char *path,
                           const struct hop_dataset *d)
{
    if (d->longest > c->model.max_positions)
        hop_console_note("%s: the longest row has %d tokens, more than the model's "
                         "max_position_embeddings %d; none is cut for that, data.max_length %d "
                         "would cut them",
                         path, d->longest, c->model.max_positions, c->model.max_positions);
}

static hop_status load_rows(struct hop_coordinator *c, const char *path, int64_t limit,
                            struct hop_dataset **out, struct hop_error *err)
{
    HOP_TRY(hop_row_source_read(&c->source, &c->job, &c->model, path, limit, out, err));
    const struct hop_dataset *const d = *out;
    hop_console_note("%s: %zu rows, %lld tokens, %lld label tokens%s", path, d->count,
                     (long long)d->tokens, (long long)d->label_tokens,
                     d->label_count ? ", label task" : "");
    if (d->truncated)
        hop_console_note("%s: %zu rows cut to data.max_length %lld", path, d->truncated,
                         (long long)c->job.data.max_length);
    note_long_rows(c, path, d);
    if (d->unlabeled)
        hop_console_note(
            "%s: %zu rows left out: no label token remains after masking and cutting to "
            "data.max_length %lld",
            path, d->unlabeled, (long long)c->job.data.max_length);
    return HOP_OK;
}

static hop_status load_data(struct hop_coordinator *c, struct hop_error *err)
{
    HOP_TRY(hop_row_source_open(&c->job, &c->source, err));
    if (c->mode == HOP_RUN_TRAIN) {
        HOP_TRY(load_rows(c, c->job.data.train, c->job.data.limit, &c->train, err));
        HOP_TRY(hop_loader_create(
            c->train, (size_t)c->job.train.batch_size, (size_t)hop_job_micro_batch_rows(&c->job),
            (uint64_t)c->job.train.seed, c->job.data.shuffle, &c->loader, err));
    }
    if (c->job.data.eval)
        HOP_TRY(load_rows(c, c->job.data.eval, c->job.data.eval_limit, &c->eval, err));
    else if (c->mode == HOP_RUN_EVALUATE)
        return hop_fail(err, HOP_INPUT, "data.eval: missing; name the file to evaluate on");
    return HOP_OK;
}

static void count_steps(struct hop_coordinator *c)
{
    c->steps = c->loader.steps_per_epoch * c->job.train.epochs;
    if (c->job.train.max_steps > 0)
        c->steps = c->job.train.max_steps;
}

/* Schedules */

static hop_status add_schedule(struct hop_coordinator *c, const struct hop_strategy *strategy,
                               int32_t micro_batches, int32_t probes, int32_t *index,
                               struct hop_error *err)
{
    struct hop_schedule_set *const set = &c->schedules;
    HOP_TRY(strategy->schedule(&c->plan, &c->cost, micro_batches, probes, &set->items[set->count],
                               err));
    *index = set->count++;
    return hop_schedule_check(&c->plan, &set->items[*index], INT32_MAX, err);
}

static hop_status add_evaluation(struct hop_coordinator *c, int32_t micro_batches, int32_t *index,
                                 struct hop_error *err)
{
    struct hop_schedule_set *const set = &c->schedules;
    HOP_TRY(hop_schedule_evaluation(&c->plan, micro_batches, &set->items[set->count], err));
    *index = set->count++;
    return HOP_OK;
}

/* Are derivatives differences, of which rounding may be the larger part? */
static bool takes_differences(const struct hop_plan *plan)
{
    return hop_plan_has_zeroth_order(plan) && hop_estimator_has_exit(plan->estimator) &&
           plan->probes > 0;
}

/* The rounding probe of the first step rides behind the Q others. */
static hop_status add_pair(struct hop_coordinator *c, const struct hop_strategy *strategy,
                           int32_t micro_batches, int32_t *plain, int32_t *first,
                           struct hop_error *err)
{
    HOP_TRY(add_schedule(c, strategy, micro_batches, c->plan.probes, plain, err));
    *first = *plain;
    if (takes_differences(&c->plan))
        HOP_TRY(add_schedule(c, strategy, micro_batches, c->plan.probes + 1, first, err));
    return HOP_OK;
}

static hop_status make_schedules(struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_strategy *strategy;
    struct hop_schedule_set *const set = &c->schedules;
    const int32_t full = hop_job_micro_batches(&c->job);
    HOP_TRY(hop_strategy_find(c->plan.strategy, &strategy, err));
    if (c->mode == HOP_RUN_TRAIN) {
        const size_t rows = c->train->count % (size_t)c->job.train.batch_size;
        const size_t per = c->loader.micro_batch_size;
        const int32_t last = (int32_t)((rows + per - 1) / per);
        HOP_TRY(add_pair(c, strategy, full, &set->full, &set->full_first, err));
        set->last = set->full;
        set->last_first = set->full_first;
        if (last > 0 && last != full)
            HOP_TRY(add_pair(c, strategy, last, &set->last, &set->last_first, err));
    }
    if (!c->eval)
        return HOP_OK;
    HOP_TRY(add_evaluation(c, full, &set->evaluate_many, err));
    HOP_TRY(add_evaluation(c, 1, &set->evaluate_one, err));
    if (hop_job_answer_tokens(&c->job) == 0)
        return HOP_OK;
    return add_evaluation(c, hop_job_answer_batches(&c->job), &set->decode, err);
}

static bool has_shards(const struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (hop_plan_shards(plan, p) > 1)
            return true;
    return false;
}

/* A shard has no cache of keys and values. */
static hop_status check_answers(const struct hop_coordinator *c, struct hop_error *err)
{
    if (!c->eval || hop_job_answer_tokens(&c->job) == 0 || !has_shards(&c->plan))
        return HOP_OK;
    return hop_fail(
        err, HOP_UNSUPPORTED,
        "data.eval_max_tokens: answers are not decoded by plans with tensor shards, such "
        "as this one of %s; set it to 0 to evaluate the loss only",
        c->plan.strategy);
}

hop_status hop_coordinator_prepare(struct hop_coordinator *c, struct hop_error *err)
{
    HOP_TRY(load_job(c, err));
    HOP_TRY(load_model(c, err));
    HOP_TRY(load_data(c, err));
    HOP_TRY(check_answers(c, err));
    count_steps(c);
    return make_schedules(c, err);
}

/* The setup object */

static int32_t longest_prompt(const struct hop_dataset *dataset)
{
    int32_t longest = 0;
    for (size_t e = 0; e < dataset->count; e++)
        if (dataset->examples[e].prompt_length > longest)
            longest = dataset->examples[e].prompt_length;
    return longest;
}

/* Positions that the caches of an evaluation have for a sequence, and for how many. */
static void size_cache(const struct hop_coordinator *c, int32_t *positions, int32_t *sequences)
{
    const int32_t tokens = hop_job_answer_tokens(&c->job);
    *positions = *sequences = 0;
    if (!c->eval || tokens == 0)
        return;
    *positions = longest_prompt(c->eval) + tokens;
    *sequences = hop_job_answer_batches(&c->job) * (int32_t)hop_job_micro_batch_rows(&c->job);
}

/* Devices of one machine have equal numbers: that of the first. */
static int32_t machine_of(const struct hop_cluster *cluster, int32_t device)
{
    int32_t first = 0;
    while (!hop_ranks_same_machine(cluster, first, device))
        first++;
    return first;
}

static json_t *devices_json(const struct hop_coordinator *c)
{
    json_t *const devices = json_array();
    for (int32_t d = 0; d < (int32_t)c->job.cluster.count; d++) {
        const struct hop_device *const device = &c->job.cluster.devices[d];
        json_array_append_new(
            devices,
            json_pack("{s:s, s:i, s:s, s:b, s:i, s:i, s:i, s:b}", "name", device->name, "rank",
                      (int)c->ranks.rank_of[d], "backend", device->backend, "bp", (int)device->bp,
                      "threads", (int)device->threads, "peers",
                      (int)hop_ranks_sharing(&c->job.cluster, &c->ranks, d), "machine",
                      (int)machine_of(&c->job.cluster, d), "emulate", (int)device->emulate));
    }
    return devices;
}

static json_t *files_json(const struct hop_coordinator *c)
{
    json_t *const fingerprints = json_array();
    const struct hop_safetensors *const set = hop_weights_files(c->session.weights);
    for (size_t i = 0; i < hop_safetensors_files(set); i++)
        json_array_append_new(fingerprints,
                              json_sprintf("%016" PRIx64, hop_safetensors_fingerprint(set, i)));
    char *const absolute = realpath(c->job.model, NULL);
    json_t *const files =
        json_pack("{s:s, s:b, s:o}", "directory", absolute ? absolute : c->job.model, "share",
                  (int)c->job.cluster.share_files, "fingerprints", fingerprints);
    free(absolute);
    return files;
}

static json_t *plan_json(const struct hop_coordinator *c)
{
    struct hop_error ignored;
    const char **names = NULL;
    if (hop_cluster_names(&c->job.cluster, &names, &ignored) != HOP_OK)
        return NULL;
    json_t *const plan = hop_plan_json(&c->plan, names);
    free(names);
    return plan;
}

static hop_status add_part_limits(const struct hop_coordinator *c, json_t *setup,
                                  struct hop_error *err)
{
    json_t *const list = json_array();
    hop_status status = HOP_OK;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        struct hop_batch_limits limits;
        HOP_TRY_DONE(hop_coordinator_part_limits(c, p, &limits, err));
        json_array_append_new(list, json_pack("[i,i,i]", (int)limits.sequences, (int)limits.tokens,
                                              (int)limits.labels));
    }
    if (json_object_set(setup, "part_limits", list) != 0)
        status = hop_fail(err, HOP_MEMORY, "out of memory while making the setup message");
done:
    json_decref(list);
    return status;
}

static hop_status add_emulation(const struct hop_coordinator *c, json_t *setup,
                                struct hop_error *err)
{
    const double time_scale = hop_coordinator_time_scale(c);
    if (!(time_scale > 0))
        return HOP_OK;
    json_t *const emulation =
        json_pack("{s:f, s:o}", "time_scale", time_scale, "cost", hop_cost_json(&c->cost));
    if (json_object_set_new(setup, "emulation", emulation) != 0)
        return hop_fail(err, HOP_MEMORY, "out of memory while making the setup message");
    return HOP_OK;
}

hop_status hop_coordinator_setup(struct hop_coordinator *c, json_t **out, struct hop_error *err)
{
    const struct hop_batch_limits limits = hop_coordinator_limits(c);
    int32_t window, cache, cache_sequences;
    size_cache(c, &cache, &cache_sequences);
    HOP_TRY(hop_coordinator_window(c, &limits, &window, err));
    json_t *const setup = json_pack(
        "{s:i, s:o, s:o, s:s, s:[i,i,i], s:I, s:f, s:s, s:f, s:f, s:I, s:i, s:i, s:i, s:i, s:i, "
        "s:o, "
        "s:o, "
        "s:o}", //
        "protocol", (int)HOP_PROTOCOL, "model", hop_model_config_json(&c->model), "lora",
        hop_lora_json(&c->lora), "dtype", hop_dtype_name(c->dtype), "limits", (int)limits.sequences,
        (int)limits.tokens, (int)limits.labels, "seed", (json_int_t)c->job.train.seed, "epsilon",
        c->job.zo.epsilon, "distribution", hop_distribution_names[c->job.zo.distribution],
        "weight_decay", c->job.train.weight_decay, "timeout", c->job.train.peer_timeout,
        "trace_steps", (json_int_t)c->job.train.trace_steps, "micro_batches",
        (int)hop_job_micro_batches(&c->job), "schedules", (int)c->schedules.count, "window",
        (int)window, "cache", (int)cache, "cache_sequences", (int)cache_sequences, "devices",
        devices_json(c), "plan", plan_json(c), "files", files_json(c));
    if (!setup)
        return hop_fail(err, HOP_MEMORY, "out of memory while making the setup message");
    hop_status status = add_part_limits(c, setup, err);
    if (status == HOP_OK)
        status = add_emulation(c, setup, err);
    if (status != HOP_OK) {
        json_decref(setup);
        return status;
    }
    *out = setup;
    return HOP_OK;
}
