#include "runtime/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset.h"
#include "io/file.h"
#include "io/yaml.h"
#include "model/direction.h"
#include "model/lora.h"
#include "runtime/job_estimator.h"
#include "strategy/strategy.h"
#include "text/chat.h"

static const char *const dtypes[] = {"auto", "f32", "bf16", NULL};
static const char *const results[] = {"auto", "last", "best", NULL};
static const char *const core_blocks[] = {"zeroth-order", "all", NULL};

enum { DEFAULT_PROBES = 3, MOST_PROBES = 4096 };

#define AT(member) offsetof(struct hop_job, member)

/* The smallest learning rate, epsilon, ... that is not zero. */
#define TINY 1e-300

static const struct hop_field data_fields[] = {
    {.key = "task",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(data.task),
     .choices = hop_task_names,
     .help = "reader of the data files"},
    {.key = "train", .type = HOP_FIELD_STRING, .offset = AT(data.train), .help = "training rows"},
    {.key = "eval",
     .type = HOP_FIELD_STRING,
     .offset = AT(data.eval),
     .help = "held-out rows; absent: no evaluation"},
    {.key = "labels",
     .type = HOP_FIELD_STRINGS,
     .offset = AT(data.labels),
     .help = "candidate completions of a jsonl label task; evaluation then ranks them"},
    {.key = "chat_template",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(data.chat_template),
     .choices = hop_chat_names,
     .help = "how rows of messages become tokens; auto: as the model's own template"},
    {.key = "max_length",
     .type = HOP_FIELD_INT,
     .offset = AT(data.max_length),
     .fallback = 384,
     .minimum = 2,
     .maximum = 1 << 20,
     .help = "tokens a row is cut to"},
    {.key = "shuffle",
     .type = HOP_FIELD_BOOL,
     .offset = AT(data.shuffle),
     .fallback = 1,
     .help = "a new order every epoch; false keeps file order"},
    {.key = "limit",
     .type = HOP_FIELD_INT,
     .offset = AT(data.limit),
     .minimum = 0,
     .maximum = 1e12,
     .help = "training rows to read at most; 0: all"},
    {.key = "eval_limit",
     .type = HOP_FIELD_INT,
     .offset = AT(data.eval_limit),
     .minimum = 0,
     .maximum = 1e12,
     .help = "evaluation rows to read at most; 0: all"},
    {.key = "eval_max_tokens",
     .type = HOP_FIELD_INT,
     .offset = AT(data.eval_max_tokens),
     .fallback = 50,
     .minimum = 0,
     .maximum = 1 << 16,
     .help = "tokens of an answer that evaluation of squad decodes at most; 0: the loss only"},
    {0}};

static const struct hop_field lora_fields[] = {
    {.key = "rank",
     .type = HOP_FIELD_INT,
     .offset = AT(lora.rank),
     .fallback = 8,
     .minimum = 1,
     .maximum = 1024,
     .help = "rank r of the adapters"},
    {.key = "alpha",
     .type = HOP_FIELD_REAL,
     .offset = AT(lora.alpha),
     .fallback = 16,
     .minimum = TINY,
     .maximum = 1e6,
     .help = "scaling is alpha / rank"},
    {.key = "rslora",
     .type = HOP_FIELD_BOOL,
     .offset = AT(lora.rslora),
     .help = "scaling is alpha / sqrt(rank)"},
    {.key = "dropout",
     .type = HOP_FIELD_REAL,
     .offset = AT(lora.dropout),
     .help = "only 0 in this version"},
    {.key = "targets",
     .type = HOP_FIELD_STRINGS,
     .offset = AT(lora.targets),
     .fallback_text = "q_proj,v_proj",
     .help = "projections that carry adapters"},
    {.key = "core",
     .type = HOP_FIELD_INT,
     .offset = AT(lora.core),
     .minimum = 0,
     .maximum = HOP_MAX_RANK,
     .help = "train cores of this size between fixed factors, in place of both factors; 0: none"},
    {.key = "core_blocks",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(lora.core_blocks),
     .choices = core_blocks,
     .help = "which blocks train cores"},
    {.key = "init",
     .type = HOP_FIELD_STRING,
     .offset = AT(lora.init),
     .help = "PEFT adapter folder to start from"},
    {0}};

static const struct hop_field train_fields[] = {
    {.key = "batch_size",
     .type = HOP_FIELD_INT,
     .offset = AT(train.batch_size),
     .fallback = 16,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "rows of a mini-batch (one optimizer step)"},
    {.key = "micro_batch",
     .type = HOP_FIELD_INT,
     .offset = AT(train.micro_batch),
     .fallback = 4,
     .minimum = 1,
     .maximum = 1 << 16,
     .help = "rows of a micro-batch"},
    {.key = "epochs",
     .type = HOP_FIELD_INT,
     .offset = AT(train.epochs),
     .fallback = 1,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "passes over the training rows"},
    {.key = "max_steps",
     .type = HOP_FIELD_INT,
     .offset = AT(train.max_steps),
     .minimum = 0,
     .maximum = 1e9,
     .help = "stop after this many steps; 0: after the epochs"},
    {.key = "learning_rate",
     .type = HOP_FIELD_REAL,
     .offset = AT(train.learning_rate),
     .fallback = 5e-5,
     .minimum = TINY,
     .maximum = 1e3,
     .help = "peak rate"},
    {.key = "scheduler",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(train.scheduler),
     .fallback = 1,
     .choices = hop_scheduler_names,
     .help = "shape of the rate after warm-up"},
    {.key = "warmup_steps",
     .type = HOP_FIELD_INT,
     .offset = AT(train.warmup_steps),
     .minimum = 0,
     .maximum = 1e9,
     .help = "steps of linear warm-up"},
    {.key = "weight_decay",
     .type = HOP_FIELD_REAL,
     .offset = AT(train.weight_decay),
     .minimum = 0,
     .maximum = 1e3,
     .help = "decoupled weight decay"},
    {.key = "max_grad_norm",
     .type = HOP_FIELD_REAL,
     .offset = AT(train.max_grad_norm),
     .fallback = 1,
     .minimum = 0,
     .maximum = 1e9,
     .help = "clip norm, for the exact and the zeroth-order half separately; 0: no clipping"},
    {.key = "eval_every",
     .type = HOP_FIELD_INT,
     .offset = AT(train.eval_every),
     .minimum = 0,
     .maximum = 1e9,
     .help = "steps between evaluations; 0: before and after only"},
    {.key = "save_every",
     .type = HOP_FIELD_INT,
     .offset = AT(train.save_every),
     .minimum = 0,
     .maximum = 1e9,
     .help = "steps between checkpoints; 0: at the end only"},
    {.key = "early_stopping",
     .type = HOP_FIELD_INT,
     .offset = AT(train.early_stopping),
     .minimum = 0,
     .maximum = 1e9,
     .help = "evaluations without improvement before the run stops; 0: never"},
    {.key = "result",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(train.result),
     .choices = results,
     .help = "adapter that the run leaves; auto: the best with early_stopping, else the last"},
    {.key = "seed",
     .type = HOP_FIELD_INT,
     .offset = AT(train.seed),
     .fallback = 42,
     .minimum = 0,
     .maximum = 9007199254740992.0,
     .help = "of row order, adapters and directions"},
    {.key = "dtype",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(train.dtype),
     .choices = dtypes,
     .help = "type of computation and of tensors between devices; auto: as the weights"},
    {.key = "trace_steps",
     .type = HOP_FIELD_INT,
     .offset = AT(train.trace_steps),
     .fallback = 20,
     .minimum = 0,
     .maximum = 1e6,
     .help = "first steps recorded in trace.json"},
    {.key = "log_grad_norms",
     .type = HOP_FIELD_BOOL,
     .offset = AT(train.log_grad_norms),
     .help = "write the gradient norm of every adapter tensor to metrics.jsonl"},
    {.key = "peer_timeout",
     .type = HOP_FIELD_SECONDS,
     .offset = AT(train.peer_timeout),
     .fallback = 600,
     .minimum = 0.1,
     .maximum = 1e6,
     .help = "silence of a device after which the run is given up"},
    {0}};

static const struct hop_field zo_fields[] = {
    {.key = "probes",
     .type = HOP_FIELD_ANY,
     .offset = AT(zo.probes_value),
     .help = "probes Q per micro-batch (default 3); auto: as many as the step hides, at least 1"},
    {.key = "probe_batch",
     .type = HOP_FIELD_INT,
     .offset = AT(zo.probe_batch),
     .fallback = 1,
     .minimum = 1,
     .maximum = MOST_PROBES,
     .help = "probes a device runs at once; more are faster and need more memory"},
    {.key = "epsilon",
     .type = HOP_FIELD_REAL,
     .offset = AT(zo.epsilon),
     .fallback = 1e-2,
     .minimum = TINY,
     .maximum = 10,
     .help = "size of the perturbation"},
    {.key = "learning_rate",
     .type = HOP_FIELD_REAL,
     .offset = AT(zo.learning_rate),
     .minimum = 0,
     .maximum = 1e3,
     .help = "peak rate of zeroth-order adapters; 0: a tenth of train.learning_rate, "
             "with estimator feedback the same"},
    {.key = "blocks",
     .type = HOP_FIELD_ANY,
     .offset = AT(zo.blocks),
     .help = "[lo, hi): blocks that strategy `single` treats as zeroth-order"},
    {.key = "early_exit",
     .type = HOP_FIELD_ANY,
     .offset = AT(zo.early_exit),
     .help = "probes per micro-batch that end at an output layer on the last BP-free device; auto: "
             "as many as its idle time takes; 0: off"},
    {.key = "exit_base",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(zo.exit_base),
     .choices = hop_exit_base_names,
     .help = "loss that exit probes are compared with; full-model is the printed formula"},
    {.key = "estimator",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(zo.estimator),
     .choices = hop_job_estimator_choices,
     .fallback = HOP_JOB_ESTIMATOR_AUTO,
     .help = "how BP-free devices learn about their gradient; none: they stay untrained; auto: "
             "feedback where it can, difference where the job asks for probes"},
    {.key = "feedback_blocks",
     .type = HOP_FIELD_INT,
     .offset = AT(zo.feedback_blocks),
     .fallback = HOP_FEEDBACK_BLOCKS,
     .minimum = 0,
     .maximum = INT32_MAX,
     .help = "blocks next to the first BP-capable device that estimator feedback trains; 0: all"},
    {.key = "directions",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(zo.directions),
     .choices = hop_directions_names,
     .help = "one direction for a micro-batch, or one for each of its samples"},
    {.key = "distribution",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(zo.distribution),
     .choices = hop_distribution_names,
     .help = "of the directions' elements"},
    {0}};

static const struct hop_field plan_fields[] = {
    {.key = "blocks",
     .type = HOP_FIELD_ANY,
     .offset = AT(plan.blocks),
     .help = "{device: count, ...}: fix how many blocks each device holds"},
    {.key = "file",
     .type = HOP_FIELD_STRING,
     .offset = AT(plan.file),
     .help = "a plan.json to follow exactly"},
    {.key = "devices",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(plan.devices),
     .choices = hop_device_use_names,
     .help = "all: every device holds a block; auto: those that would slow the run are left out; "
             "default: as auto, but more devices than blocks are an error, "
             "and a device of unknown rate is never left out"},
    {.key = "objective",
     .type = HOP_FIELD_CHOICE,
     .offset = AT(plan.objective),
     .choices = hop_objective_names,
     .help = "what planners minimise: the simulated step, or the strategy's published formula"},
    {.key = "tokens",
     .type = HOP_FIELD_INT,
     .offset = AT(plan.tokens),
     .minimum = 0,
     .maximum = 1 << 20,
     .help = "tokens of a row that times are priced at; 0: data.max_length"},
    {.key = "label_tokens",
     .type = HOP_FIELD_INT,
     .offset = AT(plan.label_tokens),
     .fallback = 16,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "label tokens of a row, where the head computes, that times are priced at"},
    {.key = "micro_batches",
     .type = HOP_FIELD_INT,
     .offset = AT(plan.micro_batches),
     .minimum = 0,
     .maximum = 1 << 15,
     .help = "micro-batches of a mini-batch; 0: batch_size / micro_batch rounded up"},
    {0}};

const struct hop_field hop_job_fields[] = {
    {.key = "model",
     .type = HOP_FIELD_STRING,
     .offset = AT(model),
     .help = "Hugging Face folder: config.json, *.safetensors, tokenizer.json"},
    {.key = "data", .type = HOP_FIELD_SECTION, .fields = data_fields, .help = "rows and task"},
    {.key = "lora", .type = HOP_FIELD_SECTION, .fields = lora_fields, .help = "adapters"},
    {.key = "train", .type = HOP_FIELD_SECTION, .fields = train_fields, .help = "optimization"},
    {.key = "zo", .type = HOP_FIELD_SECTION, .fields = zo_fields, .help = "zeroth-order half"},
    {.key = "strategy",
     .type = HOP_FIELD_STRING,
     .offset = AT(strategy),
     .fallback_text = "hybridop",
     .help = "planner and schedule"},
    {.key = "plan",
     .type = HOP_FIELD_SECTION,
     .fields = plan_fields,
     .help = "what to fix by hand"},
    {.key = "cluster",
     .type = HOP_FIELD_ANY,
     .offset = AT(cluster_value),
     .help = "cluster file, or its content; absent: every core of this machine as one device"},
    {.key = "output", .type = HOP_FIELD_STRING, .offset = AT(output), .help = "run folder"},
    {.key = "resume",
     .type = HOP_FIELD_BOOL,
     .offset = AT(resume),
     .help = "continue from the last checkpoint of the run folder"},
    {0}};

static hop_status apply_overrides(json_t *object, const char *const *overrides, size_t count,
                                  struct hop_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *const equals = strchr(overrides[i], '=');
        if (!equals || equals == overrides[i])
            return hop_fail(err, HOP_INPUT,
                            "--set %s: expected key=value, e.g. train.max_steps=100", overrides[i]);
        char key[256];
        const size_t n = (size_t)(equals - overrides[i]);
        if (n >= sizeof key)
            return hop_fail(err, HOP_INPUT, "--set %s: the key is too long", overrides[i]);
        memcpy(key, overrides[i], n);
        key[n] = '\0';
        HOP_TRY(hop_schema_set(object, key, equals + 1, err));
    }
    return HOP_OK;
}

static hop_status require(const char *value, const char *where, const char *key,
                          const char *example, struct hop_error *err)
{
    if (value && value[0])
        return HOP_OK;
    return hop_fail(err, HOP_INPUT, "%s: %s: missing; add for instance \"%s\"", where, key,
                    example);
}

/* zo.probes: Q or auto */
static hop_status read_probes(struct hop_job *job, const char *where, struct hop_error *err)
{
    if (!job->zo.probes_value)
        job->zo.probes_value = json_integer(DEFAULT_PROBES);
    const json_t *const value = job->zo.probes_value;
    if (!value)
        return hop_fail(err, HOP_MEMORY, "%s: out of memory", where);
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) {
        job->zo.probes = HOP_PROBES_AUTO;
        return HOP_OK;
    }
    char *const text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const json_int_t probes = json_integer_value(value);
    hop_status status = HOP_OK;
    if (!json_is_integer(value) || probes < 1 || probes > MOST_PROBES)
        status = hop_fail(err, HOP_INPUT,
                          "%s: zo.probes: expected a whole number from 1 to %d, or auto; found %s",
                          where, MOST_PROBES, text ? text : "something else");
    free(text);
    job->zo.probes = (int32_t)probes;
    return status;
}

/* zo.early_exit: Q' or auto */
static hop_status read_early_exit(struct hop_job *job, const char *where, struct hop_error *err)
{
    const json_t *const value = job->zo.early_exit;
    job->zo.exit_probes = 0;
    if (!value)
        return HOP_OK;
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) {
        job->zo.exit_probes = HOP_PROBES_AUTO;
        return HOP_OK;
    }
    const json_int_t probes = json_integer_value(value);
    if (!json_is_integer(value) || probes < 0 || probes > MOST_PROBES)
        return hop_fail(err, HOP_INPUT,
                        "%s: zo.early_exit: expected a whole number from 0 to %d, or auto", where,
                        MOST_PROBES);
    job->zo.exit_probes = (int32_t)probes;
    return HOP_OK;
}

/* zo.blocks: [lo, hi) */
static hop_status read_zo_blocks(struct hop_job *job, const char *where, struct hop_error *err)
{
    const json_t *const value = job->zo.blocks;
    if (!value)
        return HOP_OK;
    const json_t *const lo = json_array_get(value, 0), *const hi = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(lo) || !json_is_integer(hi) ||
        json_integer_value(lo) < 0 || json_integer_value(hi) < json_integer_value(lo) ||
        json_integer_value(hi) > 1 << 20)
        return hop_fail(err, HOP_INPUT, "%s: zo.blocks: expected two block numbers like [0, 3]",
                        where);
    job->zo.lo = (int32_t)json_integer_value(lo);
    job->zo.hi = (int32_t)json_integer_value(hi);
    return HOP_OK;
}

static hop_status read_cluster(struct hop_job *job, const char *where, struct hop_error *err)
{
    const json_t *const value = job->cluster_value;
    if (!value)
        return hop_cluster_local(&job->cluster, err);
    if (json_is_string(value))
        return hop_cluster_load(json_string_value(value), &job->cluster, err);
    return hop_cluster_parse(value, where, &job->cluster, err);
}

/* A best evaluation takes evaluations. */
static hop_status check_stopping(const struct hop_job *job, const char *where,
                                 struct hop_error *err)
{
    const bool evaluates = job->data.eval && job->data.eval[0];
    if (job->train.early_stopping > 0 && (!evaluates || job->train.eval_every == 0))
        return hop_fail(err, HOP_INPUT,
                        "%s: train.early_stopping: %lld needs data.eval and train.eval_every; add "
                        "them or leave it out",
                        where, (long long)job->train.early_stopping);
    if (job->train.result == HOP_RESULT_BEST && !evaluates)
        return hop_fail(err, HOP_INPUT,
                        "%s: train.result: best needs data.eval; add it or use last", where);
    return HOP_OK;
}

/* Does a job name a key that only means something with probes? */
static bool asks_for_probes(const json_t *job)
{
    static const char *const keys[] = {"probes",     "probe_batch",  "epsilon",  "directions",
                                       "early_exit", "distribution", "exit_base"};
    const json_t *const zo = json_object_get(job, "zo");
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (json_object_get(zo, keys[k]))
            return true;
    return false;
}

static hop_status check(struct hop_job *job, const json_t *object, const char *where,
                        struct hop_error *err)
{
    HOP_TRY(require(job->model, where, "model", "model: models/wordnet-3m", err));
    HOP_TRY(require(job->data.train, where, "data.train", "data: {train: train.jsonl}", err));
    HOP_TRY(require(job->output, where, "output", "output: runs/first", err));
    if (job->lora.dropout != 0)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: lora.dropout: only 0 is supported, found %g",
                        where, job->lora.dropout);
    if (job->lora.core > 0 && job->lora.init)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: lora.core: cores start from the model itself and cannot continue the "
                        "adapter of lora.init; set lora.core to 0, or merge the adapter into the "
                        "model first",
                        where);
    HOP_TRY(read_probes(job, where, err));
    HOP_TRY(read_early_exit(job, where, err));
    HOP_TRY(read_zo_blocks(job, where, err));
    HOP_TRY(check_stopping(job, where, err));
    if (job->plan.micro_batches > job->train.batch_size)
        return hop_fail(err, HOP_INPUT,
                        "%s: plan.micro_batches: %lld is more than train.batch_size %lld", where,
                        (long long)job->plan.micro_batches, (long long)job->train.batch_size);
    if (hop_job_micro_batches(job) > 1 << 15)
        return hop_fail(err, HOP_INPUT,
                        "%s: train.micro_batch: %lld rows in micro-batches of %lld make more than "
                        "32768 micro-batches",
                        where, (long long)job->train.batch_size, (long long)job->train.micro_batch);
    struct hop_lora_config lora;
    HOP_TRY(hop_job_lora(job, &lora, err));
    HOP_TRY(read_cluster(job, where, err));
    return hop_job_choose_estimator(job, where, asks_for_probes(object), err);
}

hop_status hop_job_load(const char *path, const char *const *overrides, size_t override_count,
                        struct hop_job *out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    json_t *object = NULL;
    HOP_TRY_DONE(hop_yaml_load(path, &object, err));
    if (!json_is_object(object)) {
        status = hop_fail(err, HOP_INPUT, "%s: expected keys like \"model: ...\"", path);
        goto done;
    }
    HOP_TRY_DONE(apply_overrides(object, overrides, override_count, err));
    HOP_TRY_DONE(hop_schema_bind(hop_job_fields, object, path, &job, err));
    HOP_TRY_DONE(check(&job, object, path, err));
    *out = job;
    job = (struct hop_job){0};
done:
    json_decref(object);
    hop_job_free(&job);
    return status;
}

void hop_job_free(struct hop_job *job)
{
    if (!job)
        return;
    hop_schema_release(hop_job_fields, job);
    hop_cluster_free(&job->cluster);
}

hop_status hop_job_save(const struct hop_job *job, const char *path, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_string text = {0};
    json_t *const object = hop_schema_dump(hop_job_fields, job);
    json_t *const cluster = hop_cluster_json(&job->cluster);
    if (!object || !cluster || json_object_set(object, "cluster", cluster) != 0) {
        status = hop_fail(err, HOP_MEMORY, "out of memory while writing %s", path);
        goto done;
    }
    HOP_TRY_DONE(hop_yaml_write(object, &text, err));
    HOP_TRY_DONE(hop_file_write(path, hop_string_text(&text), text.length, err));
done:
    json_decref(object);
    json_decref(cluster);
    hop_string_free(&text);
    return status;
}

static hop_status find_target(const char *name, enum hop_target *out, struct hop_error *err)
{
    if (hop_target_find(name, strlen(name), out))
        return HOP_OK;
    const char *const nearest = hop_nearest_name(name, hop_target_names, HOP_TARGETS);
    return hop_fail(err, HOP_INPUT, "lora.targets: unknown projection '%s'%s%s%s", name,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

hop_status hop_job_lora(const struct hop_job *job, struct hop_lora_config *out,
                        struct hop_error *err)
{
    struct hop_lora_config lora = {.rank = (int32_t)job->lora.rank,
                                   .alpha = job->lora.alpha,
                                   .rslora = job->lora.rslora,
                                   .core = (int32_t)job->lora.core};
    if (job->lora.targets.count == 0)
        return hop_fail(err, HOP_INPUT, "lora.targets: empty; name at least one projection");
    for (size_t i = 0; i < job->lora.targets.count; i++) {
        enum hop_target target = HOP_Q_PROJ;
        HOP_TRY(find_target(job->lora.targets.items[i], &target, err));
        lora.targets[target] = true;
    }
    *out = lora;
    return HOP_OK;
}

int64_t hop_job_micro_batch_rows(const struct hop_job *job)
{
    if (job->plan.micro_batches > 0)
        return (job->train.batch_size + job->plan.micro_batches - 1) / job->plan.micro_batches;
    return job->train.micro_batch < job->train.batch_size ? job->train.micro_batch
                                                          : job->train.batch_size;
}

int32_t hop_job_micro_batches(const struct hop_job *job)
{
    const int64_t rows = hop_job_micro_batch_rows(job);
    return (int32_t)((job->train.batch_size + rows - 1) / rows);
}

int32_t hop_job_answer_tokens(const struct hop_job *job)
{
    const bool free_answers = job->data.task == HOP_TASK_SQUAD;
    return free_answers && job->data.eval ? (int32_t)job->data.eval_max_tokens : 0;
}

int32_t hop_job_answer_batches(const struct hop_job *job)
{
    const int32_t batches = hop_job_micro_batches(job);
    return (size_t)batches < 2 * job->cluster.count ? batches : 2 * (int32_t)job->cluster.count;
}

bool hop_job_keeps_best(const struct hop_job *job)
{
    if (job->train.result == HOP_RESULT_AUTO)
        return job->train.early_stopping > 0;
    return job->train.result == HOP_RESULT_BEST;
}

int32_t hop_job_priced_tokens(const struct hop_job *job)
{
    const int64_t tokens = job->plan.tokens;
    return (int32_t)(tokens > 0 && tokens < job->data.max_length ? tokens : job->data.max_length);
}

int32_t hop_job_priced_labels(const struct hop_job *job)
{
    const int32_t tokens = hop_job_priced_tokens(job);
    return job->plan.label_tokens < tokens ? (int32_t)job->plan.label_tokens : tokens;
}
