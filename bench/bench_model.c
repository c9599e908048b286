/* Tokens/s of a whole model in one stage: forward with the loss at every position, and forward +
 * backward + AdamW with LoRA of rank 8 on all seven projections. Random weights.
 *
 * FLOP convention: 2 P T for a forward, 4 P T for a training step (frozen weights need no
 * gradient), P = weights of all matrix products including the head, T = tokens; attention adds 4 T
 * S D a block and forward, three times that a step, S = sequence length, D = hidden size. LoRA's
 * own work is not counted.
 *
 * Every case runs in a process of its own, so that its peak memory is its own. One JSON line a
 * case. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <omp.h>

#include "base/clock.h"
#include "base/memory.h"
#include "gemm_rate.h"
#include "model/stage.h"
#include "train/adamw.h"

struct shape {
    const char *name;
    int32_t hidden, blocks, heads, kv_heads, intermediate, vocabulary, sequences, length;
};
static const struct shape shapes[] = {
    {"tiny", 288, 6, 6, 6, 768, 32000, 8, 256},
    {"small", 576, 30, 9, 3, 1536, 49152, 4, 256},
    {"L1b4", 2048, 4, 32, 8, 8192, 32000, 2, 384},
};
static const enum hop_dtype dtypes[] = {HOP_F32, HOP_BF16};
static const char *const modes[] = {"forward", "train"};

struct options {
    const char *shape, *dtype, *mode, *backend;
    int threads, iterations;
    double seconds;
};

static struct hop_model_config shape_config(const struct shape *shape)
{
    return (struct hop_model_config){.hidden = shape->hidden,
                                     .intermediate = shape->intermediate,
                                     .blocks = shape->blocks,
                                     .heads = shape->heads,
                                     .kv_heads = shape->kv_heads,
                                     .head_dim = shape->hidden / shape->heads,
                                     .vocabulary = shape->vocabulary,
                                     .max_positions = shape->length,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 10000,
                                     .rope_factor = 1,
                                     .tied = true};
}

static double case_gflop(const struct shape *shape, bool train)
{
    const struct hop_model_config config = shape_config(shape);
    const double tokens = (double)shape->sequences * shape->length;
    double parameters = (double)hop_model_embed_parameters(&config);
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        parameters += (double)config.blocks * (double)hop_target_in(&config, target) *
                      (double)hop_target_out(&config, target);
    const double attention = 4 * tokens * shape->length * shape->hidden * shape->blocks;
    const double passes = train ? 2 : 1, attention_passes = train ? 3 : 1;
    return (passes * 2 * parameters * tokens + attention_passes * attention) / 1e9;
}

/* Random tokens, every position labelled. */
static hop_status make_batch(const struct shape *shape, struct hop_batch *batch,
                             struct hop_error *err)
{
    const int32_t tokens = shape->sequences * shape->length;
    const struct hop_batch_limits limits = {
        .sequences = shape->sequences, .tokens = tokens, .labels = tokens};
    HOP_TRY(hop_batch_create(&limits, batch, err));
    uint32_t state = 1;
    for (int32_t i = 0; i < tokens; i++) {
        state = state * 1664525u + 1013904223u;
        batch->ids[i] = (int32_t)((state >> 8) % (uint32_t)shape->vocabulary);
        batch->position[i] = i % shape->length;
        batch->label_row[i] = i;
        batch->label_id[i] = (batch->ids[i] * 31 + 7) % shape->vocabulary;
    }
    for (int32_t s = 0; s <= shape->sequences; s++)
        batch->offset[s] = s * shape->length;
    batch->sequences = shape->sequences;
    batch->tokens = batch->labels = tokens;
    batch->label_total = tokens;
    return HOP_OK;
}

struct bench {
    const struct hop_ops *ops;
    struct hop_backend *backend;
    struct hop_weights *weights;
    struct hop_stage *stage;
    struct hop_batch batch;
    struct hop_adamw adamw;
    float *logprob;
    bool train;
};

static void close_bench(struct bench *b)
{
    hop_stage_free(b->stage);
    hop_weights_free(b->weights);
    hop_batch_free(&b->batch);
    hop_adamw_free(&b->adamw);
    free(b->logprob);
    if (b->backend)
        b->ops->close(b->backend);
}

static hop_status open_bench(const struct options *options, const struct shape *shape,
                             enum hop_dtype dtype, bool train, struct bench *b,
                             struct hop_error *err)
{
    *b = (struct bench){.ops = hop_backend_find(options->backend), .train = train};
    if (!b->ops)
        return hop_fail(err, HOP_INPUT, "there is no backend %s", options->backend);
    HOP_TRY(b->ops->open(options->threads, &b->backend, err));
    HOP_TRY(make_batch(shape, &b->batch, err));
    struct hop_stage_config config = {.model = shape_config(shape),
                                      .lora = {.rank = 8, .alpha = 16},
                                      .dtype = dtype,
                                      .hi = shape->blocks,
                                      .embed = true,
                                      .head = true,
                                      .gradient = train ? HOP_GRADIENT_BACKPROP : HOP_GRADIENT_NONE,
                                      .limits = {.sequences = shape->sequences,
                                                 .tokens = b->batch.tokens,
                                                 .labels = b->batch.labels},
                                      .slots = train};
    for (int target = 0; target < HOP_TARGETS; target++)
        config.lora.targets[target] = true;
    HOP_TRY(hop_weights_random(&config.model, 1, dtype, &b->weights, err));
    HOP_TRY(hop_stage_create(b->ops, b->backend, b->weights, &config, &b->stage, err));
    struct hop_parameters *const parameters = hop_stage_parameters(b->stage);
    hop_parameters_initialise(parameters, 1);
    HOP_TRY(hop_adamw_create(parameters->total, &b->adamw, err));
    return hop_calloc(&b->logprob, (size_t)b->batch.labels, sizeof(float), err);
}

static hop_status one_step(struct bench *b, struct hop_error *err)
{
    struct hop_parameters *const parameters = hop_stage_parameters(b->stage);
    const struct hop_adamw_options options = hop_adamw_default();
    if (!b->train)
        return hop_stage_forward(b->stage, &b->batch, -1, NULL, NULL, b->logprob, err);
    HOP_TRY(hop_stage_adapters_changed(b->stage, err));
    hop_parameters_zero_gradients(parameters);
    HOP_TRY(hop_stage_forward(b->stage, &b->batch, 0, NULL, NULL, b->logprob, err));
    HOP_TRY(hop_stage_backward(b->stage, &b->batch, 0, NULL, NULL, err));
    return hop_adamw_step(&b->adamw, &options, 1e-4, parameters->values, parameters->gradients,
                          err);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { MAX_ITERATIONS = 1000 };
/* The head works on chunks of rows; a product over all of them would be a buffer of gigabytes. */
enum { HEAD_ROWS = 256 };

struct result {
    double gemm_gflops; /* bare products of the same shapes, weighted as the model uses them */
    double seconds;     /* median of a step */
    double cpu_seconds; /* of all threads, mean of a step: tells a busy machine from slow code */
    int iterations;
    long peak_rss_mib;
};

static double cpu_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* One step warms up, the others are timed. */
static hop_status measure(const struct options *options, struct bench *b, struct result *out,
                          struct hop_error *err)
{
    static double times[MAX_ITERATIONS];
    int count = 0;
    double total = 0;
    HOP_TRY(one_step(b, err));
    const double cpu = cpu_now();
    while (options->iterations ? count < options->iterations
                               : count < 3 || total < options->seconds) {
        if (count == MAX_ITERATIONS)
            break;
        const double begin = hop_clock_now();
        HOP_TRY(one_step(b, err));
        times[count] = hop_clock_now() - begin;
        total += times[count++];
    }
    *out = (struct result){.cpu_seconds = (cpu_now() - cpu) / count, .iterations = count};
    qsort(times, (size_t)count, sizeof times[0], compare_doubles);
    out->seconds = times[count / 2];
    return HOP_OK;
}

/* Every product of the model has its own shape; their times add up. */
static double model_gemm_rate(const struct options *options, const struct shape *shape,
                              enum hop_dtype dtype)
{
    const struct hop_model_config config = shape_config(shape);
    const int64_t tokens = (int64_t)shape->sequences * shape->length;
    double work = 0, time = 0;
    for (int target = 0; target <= HOP_TARGETS; target++) {
        const bool head = target == HOP_TARGETS;
        const int64_t out =
            head ? shape->vocabulary : hop_target_out(&config, (enum hop_target)target);
        const int64_t in = head ? shape->hidden : hop_target_in(&config, (enum hop_target)target);
        const int64_t rows = head && tokens > HEAD_ROWS ? HEAD_ROWS : tokens;
        const double products = (double)out * (double)in * (head ? 1 : shape->blocks);
        work += products;
        time += products / gemm_rate(options->threads, dtype, true, rows, out, in, 0.15);
    }
    return work / time;
}

static void print_case(const struct options *options, const struct shape *shape,
                       enum hop_dtype dtype, bool train, const struct result *result)
{
    const double tokens = (double)shape->sequences * shape->length;
    printf("{\"bench\":\"model\",\"shape\":\"%s\",\"dtype\":\"%s\",\"mode\":\"%s\","
           "\"backend\":\"%s\",\"tokens_per_second\":%.1f,\"gflops\":%.1f,"
           "\"gemm_gflops\":%.1f,\"seconds\":%.4f,\"cpu_seconds\":%.4f,\"iterations\":%d,\"peak_"
           "rss_mib\":%ld,\"threads\":%d}\n",
           shape->name, hop_dtype_name(dtype), modes[train], options->backend,
           tokens / result->seconds, case_gflop(shape, train) / result->seconds,
           result->gemm_gflops, result->seconds, result->cpu_seconds, result->iterations,
           result->peak_rss_mib, options->threads);
    fflush(stdout);
}

static hop_status run_case(const struct options *options, const struct shape *shape,
                           enum hop_dtype dtype, bool train, struct hop_error *err)
{
    struct bench b;
    struct result result;
    omp_set_num_threads(options->threads);
    hop_status status = open_bench(options, shape, dtype, train, &b, err);
    if (status == HOP_OK)
        status = measure(options, &b, &result, err);
    if (status == HOP_OK) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        result.peak_rss_mib = usage.ru_maxrss / 1024;
        result.gemm_gflops = model_gemm_rate(options, shape, dtype);
        print_case(options, shape, dtype, train, &result);
    }
    close_bench(&b);
    return status;
}

static int run_forked(const struct options *options, const struct shape *shape,
                      enum hop_dtype dtype, bool train)
{
    const pid_t child = fork();
    int state = 1;
    if (child == 0) {
        struct hop_error err = {0};
        const hop_status status = run_case(options, shape, dtype, train, &err);
        if (status != HOP_OK)
            fprintf(stderr, "bench_model: %s %s: %s\n", shape->name, modes[train], err.message);
        exit(hop_status_exit_code(status));
    }
    if (child < 0 || waitpid(child, &state, 0) < 0)
        return 1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}

static bool wanted(const char *choice, const char *name)
{
    return strcmp(choice, "all") == 0 || strcmp(choice, name) == 0;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case 's':
        options->shape = argument;
        return 0;
    case 'd':
        options->dtype = argument;
        return 0;
    case 'm':
        options->mode = argument;
        return 0;
    case 'b':
        options->backend = argument;
        return 0;
    case 't':
        options->threads = atoi(argument);
        return options->threads > 0 ? 0 : EINVAL;
    case 'n':
        options->iterations = atoi(argument);
        return options->iterations >= 0 && options->iterations <= MAX_ITERATIONS ? 0 : EINVAL;
    case 'e':
        options->seconds = atof(argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option arguments[] = {
        {"shape", 's', "NAME", 0, "tiny, small, L1b4 or all", 0},
        {"dtype", 'd', "TYPE", 0, "f32, bf16 or all", 0},
        {"mode", 'm', "MODE", 0, "forward, train or all", 0},
        {"backend", 'b', "NAME", 0, "cpu or reference", 0},
        {"threads", 't', "N", 0, "threads of the backend (all)", 0},
        {"iterations", 'n', "N", 0, "steps to time (0: as many as fit the seconds)", 0},
        {"seconds", 'e', "S", 0, "time a case, at least three steps (10)", 0},
        {0}};
    static const struct argp argp = {
        arguments, parse_option, NULL, "Tokens/s of forward and of LoRA training steps.",
        NULL,      NULL,         NULL};
    struct options options = {.shape = "all",
                              .dtype = "all",
                              .mode = "all",
                              .backend = "cpu",
                              .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                              .seconds = 10};
    int worst = 0;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t d = 0; d < 2; d++)
            for (size_t m = 0; m < 2; m++)
                if (wanted(options.shape, shapes[s].name) &&
                    wanted(options.dtype, hop_dtype_name(dtypes[d])) &&
                    wanted(options.mode, modes[m])) {
                    const int status = run_forked(&options, &shapes[s], dtypes[d], m == 1);
                    worst = status > worst ? status : worst;
                }
    return worst;
}
