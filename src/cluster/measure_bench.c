/* Stages that are timed, and the buffers and micro-batches they are given. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "cluster/measure_internal.h"
#include "io/file.h"

enum { SEED = 1 };

int32_t hop__most_rows(const struct hop_measure_request *request)
{
    int32_t most = 1;
    for (int32_t r = 0; r < request->row_count; r++)
        most = request->rows[r] > most ? request->rows[r] : most;
    return most;
}

int32_t hop__most_probes(const struct hop_measure_request *request)
{
    int32_t most = 1;
    for (int32_t p = 0; p < request->probe_count; p++)
        most = request->probes[p] > most ? request->probes[p] : most;
    return most;
}

struct hop_batch_limits hop__limits(const struct hop_measure_request *request, int32_t rows)
{
    return (struct hop_batch_limits){
        .sequences = rows, .tokens = rows * request->tokens, .labels = rows * request->labels};
}

/* Random tokens; the last `labels` positions of a sample carry one. */
static hop_status make_batch(const struct hop_measure_request *request, int32_t rows,
                             struct hop_batch *out, struct hop_error *err)
{
    const struct hop_batch_limits limits = hop__limits(request, rows);
    const uint32_t vocabulary = (uint32_t)request->model.vocabulary;
    uint32_t state = SEED;
    HOP_TRY(hop_batch_create(&limits, out, err));
    for (int32_t i = 0; i < limits.tokens; i++) {
        state = state * 1664525u + 1013904223u;
        out->ids[i] = (int32_t)((state >> 8) % vocabulary);
        out->position[i] = i % request->tokens;
        if (out->position[i] < request->tokens - request->labels)
            continue;
        out->label_row[out->labels] = i;
        out->label_id[out->labels++] = (int32_t)((state >> 4) % vocabulary);
    }
    for (int32_t s = 0; s <= rows; s++)
        out->offset[s] = s * request->tokens;
    out->sequences = rows;
    out->tokens = limits.tokens;
    out->label_total = out->labels;
    return HOP_OK;
}

static hop_status make_buffers(struct hop__bench *bench, struct hop_error *err)
{
    const struct hop_measure_request *const request = bench->request;
    const size_t element = hop_dtype_size(request->dtype);
    const size_t probes = (size_t)hop__most_probes(request);
    const struct hop_batch_limits limits = hop__limits(request, hop__most_rows(request));
    const size_t n = (size_t)limits.tokens * (size_t)request->model.hidden;
    const struct hop_random_key key = {.seed = SEED, .domain = HOP_RANDOM_INIT, .step = 2};
    float *values = NULL;
    HOP_TRY(hop_calloc_aligned(&bench->input, probes * n, element, err));
    HOP_TRY(hop_calloc_aligned(&bench->output, probes * n, element, err));
    HOP_TRY(hop_calloc_aligned(&bench->gradient, n, element, err));
    HOP_TRY(hop_calloc(&bench->logprob, probes * (size_t)limits.labels, sizeof(float), err));
    HOP_TRY(hop_calloc(&values, n, sizeof *values, err));
    hop_random_normal(&key, 0, n, values);
    for (size_t p = 0; p < probes; p++)
        hop_convert((char *)bench->input + p * n * element, request->dtype, values, HOP_F32, n);
    free(values);
    return HOP_OK;
}

hop_status hop__bench_open(const struct hop_measure_request *request, struct hop__bench *out,
                           struct hop_error *err)
{
    struct hop__bench bench = {.request = request, .bp = hop_ops_bp_capable(request->ops)};
    hop_status status;
    HOP_TRY_DONE(request->ops->open(request->threads, &bench.backend, err));
    for (int32_t r = 0; r < request->row_count; r++)
        HOP_TRY_DONE(make_batch(request, request->rows[r], &bench.batches[r], err));
    HOP_TRY_DONE(make_buffers(&bench, err));
    *out = bench;
    bench = (struct hop__bench){0};
done:
    hop__bench_close(&bench);
    return status;
}

void hop__bench_close(struct hop__bench *bench)
{
    for (int32_t r = 0; r < HOP_MEASURE_ROWS; r++)
        hop_batch_free(&bench->batches[r]);
    free(bench->input);
    free(bench->output);
    free(bench->gradient);
    free(bench->logprob);
    if (bench->backend)
        bench->request->ops->close(bench->backend);
    *bench = (struct hop__bench){0};
}

struct hop_stage_config hop__subject_config(const struct hop_measure_request *request,
                                            int32_t blocks, bool embed, bool head)
{
    const bool bp = hop_ops_bp_capable(request->ops);
    return (struct hop_stage_config){.model = request->model,
                                     .lora = request->lora,
                                     .dtype = request->dtype,
                                     .hi = blocks,
                                     .embed = embed,
                                     .head = head,
                                     .gradient =
                                         bp ? HOP_GRADIENT_BACKPROP : HOP_GRADIENT_ZEROTH_ORDER,
                                     .limits = hop__limits(request, hop__most_rows(request)),
                                     .slots = bp,
                                     .probes = hop__most_probes(request)};
}

hop_status hop__subject_open(const struct hop__bench *bench, const struct hop_weights *weights,
                             const struct hop_stage_config *config, struct hop__subject *out,
                             struct hop_error *err)
{
    struct hop__subject subject = {
        .blocks = config->hi - config->lo, .embed = config->embed, .head = config->head};
    hop_status status;
    HOP_TRY_DONE(hop_stage_create(bench->request->ops, bench->backend, weights, config,
                                  &subject.stage, err));
    struct hop_parameters *const parameters = hop_stage_parameters(subject.stage);
    hop_parameters_initialise(parameters, SEED);
    HOP_TRY_DONE(hop_adamw_create(parameters->total, &subject.adamw, err));
    HOP_TRY_DONE(hop_stage_adapters_changed(subject.stage, err));
    *out = subject;
    subject = (struct hop__subject){0};
done:
    hop__subject_close(&subject);
    return status;
}

void hop__subject_close(struct hop__subject *subject)
{
    hop_stage_free(subject->stage);
    hop_adamw_free(&subject->adamw);
    *subject = (struct hop__subject){0};
}

hop_status hop__run_pass(const struct hop__bench *bench, const struct hop__subject *subject,
                         const struct hop_batch *batch, double *forward, double *backward,
                         struct hop_error *err)
{
    const void *const input = subject->embed ? NULL : bench->input;
    const void *const doutput = subject->head ? NULL : bench->input;
    const double begin = hop_clock_now();
    HOP_TRY(hop_stage_forward(subject->stage, batch, bench->bp ? 0 : -1, input,
                              subject->head ? NULL : bench->output, bench->logprob, err));
    const double middle = hop_clock_now();
    if (bench->bp)
        HOP_TRY(hop_stage_backward(subject->stage, batch, 0, doutput,
                                   subject->embed ? NULL : bench->gradient, err));
    *forward = middle - begin;
    *backward = hop_clock_now() - middle;
    return HOP_OK;
}

hop_status hop__run_probe(const struct hop__bench *bench, const struct hop__subject *subject,
                          const struct hop_batch *batch, int32_t probes, double *seconds,
                          struct hop_error *err)
{
    struct hop_probe list[HOP_MEASURE_PROBE_BATCH];
    const struct hop_probe_set set = {.seed = SEED, .count = probes, .probes = list};
    for (int32_t p = 0; p < probes; p++)
        list[p] = (struct hop_probe){.direction = (uint16_t)p, .epsilon = 1e-2f};
    const double begin = hop_clock_now();
    HOP_TRY(hop_stage_probe(subject->stage, batch, &set, subject->embed ? NULL : bench->input,
                            subject->head ? NULL : bench->output, bench->logprob, err));
    *seconds = hop_clock_now() - begin;
    return HOP_OK;
}

/* What the runtime does at the end of a mini-batch. At rate 0 the adapters stay as they are. */
hop_status hop__run_step(struct hop__subject *subject, double *seconds, struct hop_error *err)
{
    const struct hop_adamw_options options = hop_adamw_default();
    struct hop_parameters *const parameters = hop_stage_parameters(subject->stage);
    const double begin = hop_clock_now();
    HOP_TRY(hop_adamw_step(&subject->adamw, &options, 0, parameters->values, parameters->gradients,
                           err));
    hop_parameters_zero_gradients(parameters);
    HOP_TRY(hop_stage_adapters_changed(subject->stage, err));
    *seconds = hop_clock_now() - begin;
    return HOP_OK;
}

/* Weights */

static bool folder_has(const char *directory, const char *name)
{
    struct hop_error err;
    char *path;
    if (hop_path_join(directory, name, &path, &err) != HOP_OK)
        return false;
    const bool there = hop_file_exists(path);
    free(path);
    return there;
}

bool hop_measure_has_weights(const char *directory)
{
    return folder_has(directory, "model.safetensors") ||
           folder_has(directory, "model.safetensors.index.json");
}

hop_status hop__weights_blocks(const struct hop_measure_request *request, int32_t blocks,
                               struct hop_weights **out, struct hop_error *err)
{
    if (request->directory)
        return hop_weights_open(request->directory, &request->model, out, err);
    struct hop_model_config model = request->model;
    model.blocks = blocks;
    model.vocabulary = 1;
    return hop_weights_random(&model, SEED, request->dtype, out, err);
}

hop_status hop__weights_tables(const struct hop_measure_request *request, struct hop_weights **out,
                               struct hop_error *err)
{
    if (request->directory)
        return hop_weights_open(request->directory, &request->model, out, err);
    struct hop_model_config model = request->model;
    model.blocks = 0;
    return hop_weights_random(&model, SEED, request->dtype, out, err);
}

hop_status hop__weights_empty(const struct hop_measure_request *request, int32_t blocks,
                              struct hop_weights **out, struct hop_error *err)
{
    struct hop_weights *weights = NULL;
    struct hop_tensor_want *wants = NULL;
    size_t count;
    hop_status status;
    HOP_TRY_DONE(hop_weights_create(&weights, err));
    HOP_TRY_DONE(hop_weights_list(&request->model, 0, blocks, false, false, &wants, &count, err));
    for (size_t i = 0; i < count; i++) {
        void *data;
        HOP_TRY_DONE(hop_weights_add(weights, &wants[i], request->dtype, &data, err));
    }
    *out = weights;
    weights = NULL;
done:
    free(wants);
    hop_weights_free(weights);
    return status;
}
