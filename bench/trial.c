#include "trial.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <omp.h>

#include "base/memory.h"
#include "train/adamw.h"
#include "train/zo.h"

double trial_dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static struct hop_stage_config whole_config(const struct trial *trial)
{
    return (struct hop_stage_config){.model = trial->config,
                                     .lora = trial->lora,
                                     .dtype = HOP_F32,
                                     .hi = trial->config.blocks,
                                     .embed = true,
                                     .head = true,
                                     .gradient = HOP_GRADIENT_BACKPROP,
                                     .limits = trial->limits,
                                     .slots = 1,
                                     .probes = TRIAL_CHUNK};
}

static struct hop_stage_config part_config(const struct trial *trial, enum trial_part part)
{
    struct hop_stage_config config = whole_config(trial);
    const bool estimated =
        part == TRIAL_ESTIMATED || part == TRIAL_PER_SAMPLE || part == TRIAL_EXIT;
    if (part == TRIAL_WHOLE)
        return config;
    if (part == TRIAL_BACK) {
        config.lo = TRIAL_SPLIT;
        config.embed = false;
        return config;
    }
    config.hi = TRIAL_SPLIT;
    config.head = part == TRIAL_EXIT_MODEL;
    if (config.head)
        config.model.blocks = TRIAL_SPLIT;
    if (estimated)
        config.gradient = HOP_GRADIENT_ZEROTH_ORDER;
    config.exit = part == TRIAL_EXIT;
    config.tangents = estimated && !config.exit;
    config.per_sample = part == TRIAL_PER_SAMPLE;
    return config;
}

/* Parameters are ordered by block, so those of a stage are one run of the trained ones. */
static const float *trained(const struct trial *trial, int32_t lo)
{
    return trial->adapters.values + (lo > 0 ? trial->front.total : 0);
}

hop_status trial_stage(const struct trial *trial, enum trial_part part, enum hop_dtype dtype,
                       struct hop_stage **out, struct hop_error *err)
{
    struct hop_stage_config config = part_config(trial, part);
    const bool estimated = config.gradient == HOP_GRADIENT_ZEROTH_ORDER;
    config.dtype = dtype;
    HOP_TRY(hop_stage_create(estimated ? &trial->forward : &trial->ops, trial->backend,
                             trial->weights, &config, out, err));
    struct hop_parameters *const parameters = hop_stage_parameters(*out);
    memcpy(parameters->values, trained(trial, config.lo), parameters->total * sizeof(float));
    return hop_stage_adapters_changed(*out, err);
}

/* ---- training ---- */

enum { TRAIN_ROWS = 8 };

/* Rows of one step: those behind the measured ones, round and round. */
static void step_rows(const struct trial *trial, int32_t step, uint32_t *rows)
{
    const size_t first = (size_t)trial->batch.sequences, others = trial->dataset->count - first;
    for (size_t i = 0; i < TRAIN_ROWS; i++)
        rows[i] = (uint32_t)(first + ((size_t)step * TRAIN_ROWS + i) % others);
}

struct training {
    struct hop_stage *stage;
    struct hop_adamw adamw;
    struct hop_batch batch;
    float *logprob;
};

static void training_close(struct training *training)
{
    hop_stage_free(training->stage);
    hop_adamw_free(&training->adamw);
    hop_batch_free(&training->batch);
    free(training->logprob);
}

static hop_status train_step(struct trial *trial, struct training *training, int32_t step,
                             double rate, struct hop_error *err)
{
    const struct hop_adamw_options options = hop_adamw_default();
    struct hop_parameters *const parameters = hop_stage_parameters(training->stage);
    struct hop_batch *const batch = &training->batch;
    uint32_t rows[TRAIN_ROWS];
    step_rows(trial, step, rows);
    hop_batch_pack(trial->dataset, rows, TRAIN_ROWS, batch);
    hop_parameters_zero_gradients(parameters);
    HOP_TRY(hop_stage_forward(training->stage, batch, 0, NULL, NULL, training->logprob, err));
    HOP_TRY(hop_stage_backward(training->stage, batch, 0, NULL, NULL, err));
    trial->loss_after = hop_loss(training->logprob, (size_t)batch->labels, batch->label_total);
    if (step == 0)
        trial->loss_before = trial->loss_after;
    HOP_TRY(hop_adamw_step(&training->adamw, &options, rate, parameters->values,
                           parameters->gradients, err));
    return hop_stage_adapters_changed(training->stage, err);
}

static hop_status train(struct trial *trial, int32_t steps, double rate, struct hop_error *err)
{
    struct training training = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(trial_stage(trial, TRIAL_WHOLE, HOP_F32, &training.stage, err));
    HOP_TRY_DONE(hop_adamw_create(trial->adapters.total, &training.adamw, err));
    HOP_TRY_DONE(hop_batch_create(&trial->limits, &training.batch, err));
    HOP_TRY_DONE(hop_calloc(&training.logprob, (size_t)trial->limits.labels, sizeof(float), err));
    for (int32_t step = 0; step < steps; step++)
        HOP_TRY_DONE(train_step(trial, &training, step, rate, err));
    memcpy(trial->adapters.values, hop_stage_parameters(training.stage)->values,
           trial->adapters.total * sizeof(float));
done:
    training_close(&training);
    return status;
}

/* ---- rows ---- */

static hop_status load_rows(const struct trial_options *options, struct trial *trial,
                            struct hop_error *err)
{
    const struct hop_dataset_options rows = {
        .max_length = 96, .vocabulary = trial->config.vocabulary, .eos = -1};
    struct hop_tokenizer *tokenizer = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_tokenizer_load(options->model, &tokenizer, err));
    HOP_TRY_DONE(hop_dataset_load(options->data, tokenizer, &rows, &trial->dataset, err));
    if (trial->dataset->count < (size_t)(options->rows + TRAIN_ROWS))
        status = hop_fail(err, HOP_INPUT, "%s: %zu rows; %d to measure on and %d others are needed",
                          options->data, trial->dataset->count, options->rows, TRAIN_ROWS);
done:
    hop_tokenizer_free(tokenizer);
    return status;
}

static hop_status pack_rows(struct trial *trial, int32_t count, struct hop_error *err)
{
    const int32_t most = count > TRAIN_ROWS ? count : TRAIN_ROWS;
    const int32_t tokens = most * trial->dataset->longest;
    uint32_t *rows = NULL;
    trial->limits =
        (struct hop_batch_limits){.sequences = most, .tokens = tokens, .labels = tokens};
    HOP_TRY(hop_batch_create(&trial->limits, &trial->batch, err));
    HOP_TRY(hop_calloc(&rows, (size_t)count, sizeof *rows, err));
    for (int32_t i = 0; i < count; i++)
        rows[i] = (uint32_t)i;
    hop_batch_pack(trial->dataset, rows, (size_t)count, &trial->batch);
    free(rows);
    return HOP_OK;
}

/* ---- all of it ---- */

static struct hop_lora_config adapters(const struct trial_options *options)
{
    struct hop_lora_config lora = {.rank = options->rank,
                                   .alpha = 2.0 * options->rank,
                                   .core = options->core,
                                   .core_hi = options->core > 0 ? TRIAL_SPLIT : 0};
    memcpy(lora.targets, options->targets, sizeof lora.targets);
    return lora;
}

static hop_status open_all(const struct trial_options *options, struct trial *trial,
                           struct hop_error *err)
{
    trial->ops = *hop_backend_find("cpu");
    trial->forward = hop_ops_forward_only(&trial->ops);
    trial->seed = options->seed;
    trial->lora = adapters(options);
    HOP_TRY(trial->ops.open(omp_get_max_threads(), &trial->backend, err));
    HOP_TRY(hop_model_config_load(options->model, &trial->config, err));
    if (trial->config.blocks <= TRIAL_SPLIT)
        return hop_fail(err, HOP_INPUT, "%s: %d blocks; more than %d are needed", options->model,
                        trial->config.blocks, TRIAL_SPLIT);
    HOP_TRY(hop_weights_open(options->model, &trial->config, &trial->weights, err));
    HOP_TRY(load_rows(options, trial, err));
    HOP_TRY(pack_rows(trial, options->rows, err));
    HOP_TRY(hop_parameters_create(&trial->config, &trial->lora, 0, trial->config.blocks,
                                  &trial->adapters, err));
    HOP_TRY(
        hop_parameters_create(&trial->config, &trial->lora, 0, TRIAL_SPLIT, &trial->front, err));
    hop_parameters_initialise(&trial->adapters, options->seed);
    return train(trial, options->steps, options->learning_rate, err);
}

hop_status trial_open(const struct trial_options *options, struct trial *out, struct hop_error *err)
{
    *out = (struct trial){0};
    const hop_status status = open_all(options, out, err);
    if (status != HOP_OK)
        trial_close(out);
    return status;
}

void trial_close(struct trial *trial)
{
    hop_parameters_free(&trial->front);
    hop_parameters_free(&trial->adapters);
    hop_batch_free(&trial->batch);
    hop_dataset_free(trial->dataset);
    hop_weights_free(trial->weights);
    if (trial->backend)
        trial->ops.close(trial->backend);
    *trial = (struct trial){0};
}
