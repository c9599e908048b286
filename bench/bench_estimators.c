/* How good the gradient estimates of docs/estimators.md are: the bundled model with blocks [0, 3)
 * as on devices without backward, next to the exact gradient of the same blocks.
 *
 * One JSON line a case. "cosine": mean estimates of Q probes against the exact gradient.
 * "feedback": adapters that feedback trains. "derivative": error of one directional derivative,
 * root mean square over probes, relative to that of the exact ones. "exit": estimates from the loss
 * of an output layer behind the estimated blocks, against the exact gradient of that loss. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <omp.h>

#include "base/memory.h"
#include "trial.h"

/* Each a multiple of the one before: an estimate of many probes is a mean of smaller ones. */
static const int32_t sizes[] = {1, 3, 12, 48, 192};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const char *const tables[] = {"cosine", "feedback", "derivative", "exit", NULL};

struct options {
    struct trial_options trial;
    bool targets[HOP_TARGETS];
    const char *table;
    enum hop_dtype dtype;
    double epsilon;
    int32_t probes, core;
    int threads;
};

/* ---- means of estimates, compared with a gradient ---- */

struct tally {
    int32_t draws;
    double cosine, error, other; /* sums; `other` is the cosine to a second gradient */
};

struct averaging {
    struct trial *trial;
    const struct trial_choice *choice;
    const float *g;
    const struct trial_exact *exact, *other; /* the latter may be NULL */
    float *sums[SIZES];                      /* of estimates */
    struct tally tally[SIZES];
};

static void averaging_close(struct averaging *averaging)
{
    for (size_t i = 0; i < SIZES; i++)
        free(averaging->sums[i]);
}

static hop_status averaging_open(struct averaging *averaging, struct hop_error *err)
{
    for (size_t i = 0; i < SIZES; i++)
        HOP_TRY(hop_calloc(&averaging->sums[i], averaging->trial->front.total, sizeof(float), err));
    return HOP_OK;
}

static void count_estimate(struct averaging *a, size_t level)
{
    const size_t n = a->trial->front.total;
    const float *const sum = a->sums[level];
    const double probes = sizes[level];
    const double square = trial_dot(sum, sum, n) / (probes * probes);
    const double product = trial_dot(sum, a->exact->gradient, n) / probes;
    struct tally *const tally = &a->tally[level];
    tally->draws++;
    tally->cosine += product / sqrt(square * a->exact->square);
    tally->error += (square - 2 * product + a->exact->square) / a->exact->square;
    if (a->other)
        tally->other +=
            trial_dot(sum, a->other->gradient, n) / probes / sqrt(square * a->other->square);
}

/* Sums the estimates of probes first .. first + sizes[level] - 1. */
static void sum_estimates(struct averaging *a, size_t level, int32_t first)
{
    const size_t n = a->trial->front.total;
    float *const sum = a->sums[level];
    if (level == 0) {
        trial_estimate(a->trial, a->choice, first, a->g);
        memcpy(sum, a->trial->front.gradients, n * sizeof(float));
    } else {
        memset(sum, 0, n * sizeof(float));
        for (int32_t q = 0; q < sizes[level]; q += sizes[level - 1]) {
            sum_estimates(a, level - 1, first + q);
            for (size_t i = 0; i < n; i++)
                sum[i] += a->sums[level - 1][i];
        }
    }
    count_estimate(a, level);
}

static size_t largest_size(int32_t probes)
{
    size_t level = 0;
    while (level + 1 < SIZES && sizes[level + 1] <= probes)
        level++;
    return level;
}

static hop_status average(struct averaging *a, int32_t probes, struct hop_error *err)
{
    const size_t top = largest_size(probes);
    HOP_TRY(averaging_open(a, err));
    for (int32_t q = 0; q + sizes[top] <= probes; q += sizes[top])
        sum_estimates(a, top, q);
    return HOP_OK;
}

/* ---- cosine ---- */

static bool has_cores(const struct trial *trial)
{
    return trial->lora.core > 0;
}

static const char *adapters_name(const struct trial *trial)
{
    return has_cores(trial) ? "core" : "lora";
}

/* The squared error that theory gives, over |gradient|^2: each sample that has its own direction
 * adds the noise of its own gradient. */
static double predicted_error(const struct trial *trial, const struct trial_exact *exact,
                              const struct trial_choice *choice, double probes)
{
    const double share = choice->per_sample ? exact->sample_share : 1;
    return ((double)trial->front.total + 1) * share / probes;
}

static void print_cosine(const struct averaging *a, size_t level)
{
    const struct trial_choice *const choice = a->choice;
    const struct tally *const tally = &a->tally[level];
    const double error = predicted_error(a->trial, a->exact, choice, sizes[level]);
    printf("{\"bench\":\"estimators\",\"table\":\"cosine\",\"adapters\":\"%s\",\"parameters\":%zu,"
           "\"dtype\":\"%s\",\"estimator\":\"%s\",\"directions\":\"%s\",\"distribution\":\"%s\",",
           adapters_name(a->trial), a->trial->front.total, hop_dtype_name(choice->dtype),
           hop_estimator_names[choice->estimator], choice->per_sample ? "per-sample" : "shared",
           hop_distribution_names[choice->distribution]);
    printf("\"epsilon\":%g,\"probes\":%d,\"draws\":%d,\"cosine\":%.5f,\"predicted\":%.5f,"
           "\"relative_error\":%.5g,\"predicted_error\":%.5g}\n",
           choice->epsilon, sizes[level], tally->draws, tally->cosine / tally->draws,
           1 / sqrt(1 + error), tally->error / tally->draws, error);
    fflush(stdout);
}

static hop_status cosine_case(struct trial *trial, const struct trial_exact *exact,
                              const struct trial_choice *choice, int32_t probes,
                              struct hop_error *err)
{
    const size_t each = choice->per_sample ? (size_t)trial->batch.sequences : 1;
    float *g = NULL;
    struct averaging a = {.trial = trial, .choice = choice, .exact = exact};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&g, (size_t)probes * each, sizeof(float), err));
    HOP_TRY_DONE(trial_derivatives(trial, choice, probes, g, err));
    a.g = g;
    HOP_TRY_DONE(average(&a, probes, err));
    for (size_t level = 0; level <= largest_size(probes); level++)
        print_cosine(&a, level);
done:
    averaging_close(&a);
    free(g);
    return status;
}

/* What differences and signs change does not depend on the kind of adapters. */
static hop_status cosine_table(const struct options *options, struct trial *trial,
                               const struct trial_exact *exact, struct hop_error *err)
{
    const struct trial_choice choices[] = {
        {.estimator = HOP_BOUNDARY},
        {.estimator = HOP_BOUNDARY, .per_sample = true},
        {.estimator = HOP_BOUNDARY, .distribution = HOP_RADEMACHER},
        {.estimator = HOP_DIFFERENCE, .epsilon = options->epsilon},
        {.estimator = HOP_CENTRAL, .epsilon = options->epsilon}};
    const size_t count = has_cores(trial) ? 2 : sizeof choices / sizeof choices[0];
    for (size_t i = 0; i < count; i++) {
        struct trial_choice choice = choices[i];
        choice.dtype = options->dtype;
        HOP_TRY(cosine_case(trial, exact, &choice, options->probes, err));
    }
    return HOP_OK;
}

/* ---- feedback ---- */

struct comparison {
    double product, square, exact; /* over the adapters it trains, or one projection's */
};

static void compare(const struct trial *trial, const struct trial_exact *exact,
                    const struct hop_parameter *item, struct comparison *sum)
{
    const float *const estimate = trial->front.gradients + item->offset;
    const float *const gradient = exact->gradient + item->offset;
    sum->product += trial_dot(estimate, gradient, item->count);
    sum->square += trial_dot(estimate, estimate, item->count);
    sum->exact += trial_dot(gradient, gradient, item->count);
}

static void print_feedback(const struct options *options, const struct trial *trial,
                           const char *scope, const struct comparison *sum)
{
    printf("{\"bench\":\"estimators\",\"table\":\"feedback\",\"adapters\":\"%s\","
           "\"dtype\":\"%s\",\"steps\":%d,\"scope\":\"%s\",\"cosine\":%.5f,\"norm_ratio\":%.4f}\n",
           adapters_name(trial), hop_dtype_name(options->dtype), options->trial.steps, scope,
           sum->product / sqrt(sum->square * sum->exact), sqrt(sum->square / sum->exact));
    fflush(stdout);
}

static bool feedback_trains(const struct hop_parameter *item)
{
    return item->target == HOP_O_PROJ || item->target == HOP_DOWN_PROJ;
}

/* A and B of a projection stand together. */
static void print_projections(const struct options *options, const struct trial *trial,
                              const struct trial_exact *exact)
{
    const struct hop_parameters *const front = &trial->front;
    for (size_t i = 0; i < front->count;) {
        struct comparison sum = {0};
        char scope[64];
        const struct hop_parameter *const first = &front->items[i];
        snprintf(scope, sizeof scope, "block %d %s", first->block, hop_target_names[first->target]);
        for (; i < front->count && front->items[i].block == first->block &&
               front->items[i].target == first->target;
             i++)
            compare(trial, exact, &front->items[i], &sum);
        if (feedback_trains(first))
            print_feedback(options, trial, scope, &sum);
    }
}

static hop_status feedback_table(const struct options *options, struct trial *trial,
                                 const struct trial_exact *exact, struct hop_error *err)
{
    struct comparison its = {0}, all = {0};
    HOP_TRY(trial_feedback(trial, options->dtype, err));
    print_projections(options, trial, exact);
    for (size_t i = 0; i < trial->front.count; i++) {
        compare(trial, exact, &trial->front.items[i], &all);
        if (feedback_trains(&trial->front.items[i]))
            compare(trial, exact, &trial->front.items[i], &its);
    }
    if (its.square == 0)
        return HOP_OK;
    print_feedback(options, trial, "its adapters", &its);
    print_feedback(options, trial, "all adapters", &all);
    return HOP_OK;
}

/* ---- derivative ---- */

enum { DERIVATIVES_MAX = 48 };

/* Every probe counts by itself here, so that fewer of them do. */
static int32_t derivatives(const struct options *options)
{
    const int32_t count = options->probes / 4 > 0 ? options->probes / 4 : 1;
    return count < DERIVATIVES_MAX ? count : DERIVATIVES_MAX;
}

static hop_status derivative_case(const struct trial *trial, const struct trial_choice *choice,
                                  int32_t count, const float *exact, struct hop_error *err)
{
    float g[DERIVATIVES_MAX];
    double error = 0, square = 0;
    HOP_TRY(trial_derivatives(trial, choice, count, g, err));
    for (int32_t q = 0; q < count; q++) {
        error += ((double)g[q] - (double)exact[q]) * ((double)g[q] - (double)exact[q]);
        square += (double)exact[q] * (double)exact[q];
    }
    printf("{\"bench\":\"estimators\",\"table\":\"derivative\",\"adapters\":\"%s\","
           "\"dtype\":\"%s\",\"estimator\":\"%s\",\"epsilon\":%g,\"probes\":%d,\"rms\":%.4g,"
           "\"relative_error\":%.3g}\n",
           adapters_name(trial), hop_dtype_name(choice->dtype),
           hop_estimator_names[choice->estimator], choice->epsilon, count, sqrt(square / count),
           sqrt(error / square));
    fflush(stdout);
    return HOP_OK;
}

static hop_status derivative_table(const struct options *options, const struct trial *trial,
                                   const struct trial_exact *exact, struct hop_error *err)
{
    static const double steps[] = {3e-2, 1e-2, 3e-3, 1e-3};
    const struct trial_choice gaussian = {.estimator = HOP_BOUNDARY};
    const int32_t count = derivatives(options);
    float expected[DERIVATIVES_MAX];
    HOP_TRY(trial_exact_derivatives(trial, exact, &gaussian, count, expected, err));
    for (enum hop_dtype dtype = HOP_F32; dtype <= HOP_BF16; dtype++) {
        for (enum hop_estimator e = HOP_DIFFERENCE; e <= HOP_CENTRAL; e++)
            for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
                const struct trial_choice choice = {
                    .estimator = e, .dtype = dtype, .epsilon = steps[i]};
                HOP_TRY(derivative_case(trial, &choice, count, expected, err));
            }
        const struct trial_choice boundary = {.estimator = HOP_BOUNDARY, .dtype = dtype};
        HOP_TRY(derivative_case(trial, &boundary, count, expected, err));
    }
    return HOP_OK;
}

/* ---- exit ---- */

struct exits {
    const struct trial_exact *full, *exit;
    double offset; /* of the exit's loss from the full model's */
};

static void print_exit(const struct averaging *a, const struct exits *exits, const char *base,
                       double offset, size_t level)
{
    const struct tally *const tally = &a->tally[level];
    const double epsilon = a->choice->epsilon, d = (double)a->trial->front.total;
    const double shift = offset * offset / (epsilon * epsilon * exits->exit->square);
    printf("{\"bench\":\"estimators\",\"table\":\"exit\",\"adapters\":\"%s\",\"dtype\":\"%s\","
           "\"base\":\"%s\",\"epsilon\":%g,\"probes\":%d,\"draws\":%d,",
           adapters_name(a->trial), hop_dtype_name(a->choice->dtype), base, epsilon, sizes[level],
           tally->draws);
    printf("\"relative_error\":%.5g,\"predicted_error\":%.5g,\"cosine_exit\":%.5f,"
           "\"cosine_full\":%.5f}\n",
           tally->error / tally->draws, ((d + 1) + d * shift) / sizes[level],
           tally->cosine / tally->draws, tally->other / tally->draws);
    fflush(stdout);
}

/* offset: what the base differs from the exit's own loss by. */
static hop_status exit_case(const struct options *options, struct trial *trial,
                            const struct trial_choice *choice, const struct exits *exits,
                            double offset, const float *own, struct hop_error *err)
{
    const char *const base = offset == 0 ? "own" : "full-model";
    struct averaging a = {
        .trial = trial, .choice = choice, .exact = exits->exit, .other = exits->full};
    float *g = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&g, (size_t)options->probes, sizeof(float), err));
    for (int32_t q = 0; q < options->probes; q++)
        g[q] = (float)((double)own[q] + offset / choice->epsilon);
    a.g = g;
    HOP_TRY_DONE(average(&a, options->probes, err));
    for (size_t level = 0; level <= largest_size(options->probes); level++)
        print_exit(&a, exits, base, offset, level);
done:
    averaging_close(&a);
    free(g);
    return status;
}

static hop_status exit_cases(const struct options *options, struct trial *trial,
                             const struct exits *exits, struct hop_error *err)
{
    static const double steps[] = {1e-2, 1e-3};
    float *own = NULL;
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&own, (size_t)options->probes, sizeof(float), err));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const struct trial_choice choice = {.estimator = HOP_DIFFERENCE,
                                            .dtype = options->dtype,
                                            .exit = true,
                                            .epsilon = steps[i]};
        HOP_TRY_DONE(trial_derivatives(trial, &choice, options->probes, own, err));
        HOP_TRY_DONE(exit_case(options, trial, &choice, exits, 0, own, err));
        HOP_TRY_DONE(exit_case(options, trial, &choice, exits, exits->offset, own, err));
    }
done:
    free(own);
    return status;
}

static hop_status exit_table(const struct options *options, struct trial *trial,
                             const struct trial_exact *full, struct hop_error *err)
{
    struct trial_exact exit = {0};
    double loss;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(trial_exact_exit(trial, &exit, err));
    HOP_TRY_DONE(trial_exit_loss(trial, options->dtype, &loss, err));
    const struct exits exits = {full, &exit, loss - full->loss};
    printf("{\"bench\":\"estimators\",\"table\":\"exit-bias\",\"adapters\":\"%s\","
           "\"loss_full\":%.5f,\"loss_exit\":%.5f,\"offset\":%.5f,\"norm_full\":%.5g,"
           "\"norm_exit\":%.5g,\"cosine\":%.5f}\n",
           adapters_name(trial), full->loss, loss, exits.offset, sqrt(full->square),
           sqrt(exit.square),
           trial_dot(full->gradient, exit.gradient, trial->front.total) /
               sqrt(full->square * exit.square));
    if (!has_cores(trial))
        HOP_TRY_DONE(exit_cases(options, trial, &exits, err));
done:
    trial_exact_free(&exit);
    return status;
}

/* ---- all ---- */

static bool wanted(const struct options *options, const char *table)
{
    return strcmp(options->table, "all") == 0 || strcmp(options->table, table) == 0;
}

static double rms(const struct hop_parameters *parameters, enum hop_factor factor)
{
    double square = 0, count = 0;
    for (size_t i = 0; i < parameters->count; i++) {
        const struct hop_parameter *const item = &parameters->items[i];
        const float *const values = parameters->values + item->offset;
        if (item->factor != factor)
            continue;
        square += trial_dot(values, values, item->count);
        count += (double)item->count;
    }
    return count > 0 ? sqrt(square / count) : 0;
}

static void print_setting(const struct options *options, const struct trial *trial,
                          const struct trial_exact *exact)
{
    printf("{\"bench\":\"estimators\",\"table\":\"setting\",\"adapters\":\"%s\",\"rank\":%d,"
           "\"core\":%d,\"parameters\":%zu,\"steps\":%d,\"rows\":%d,\"tokens\":%d,\"labels\":%d,",
           adapters_name(trial), trial->lora.rank, trial->lora.core, trial->front.total,
           options->trial.steps, trial->batch.sequences, trial->batch.tokens, trial->batch.labels);
    printf("\"rms_a\":%.4g,\"rms_b\":%.4g,\"rms_core\":%.4g,\"training_loss\":[%.4f,%.4f],"
           "\"loss\":%.4f,\"gradient_norm\":%.4g,\"sample_share\":%.4f}\n",
           rms(&trial->adapters, HOP_LORA_A), rms(&trial->adapters, HOP_LORA_B),
           rms(&trial->adapters, HOP_LORA_CORE), trial->loss_before, trial->loss_after, exact->loss,
           sqrt(exact->square), exact->sample_share);
}

static hop_status run_tables(const struct options *options, struct trial *trial,
                             struct hop_error *err)
{
    const bool cores = has_cores(trial);
    struct trial_exact exact = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(trial_exact(trial, &exact, err));
    print_setting(options, trial, &exact);
    if (wanted(options, "cosine"))
        HOP_TRY_DONE(cosine_table(options, trial, &exact, err));
    if (wanted(options, "feedback"))
        HOP_TRY_DONE(feedback_table(options, trial, &exact, err));
    if (wanted(options, "derivative") && !cores)
        HOP_TRY_DONE(derivative_table(options, trial, &exact, err));
    if (wanted(options, "exit"))
        HOP_TRY_DONE(exit_table(options, trial, &exact, err));
done:
    trial_exact_free(&exact);
    return status;
}

/* With plain adapters, then with cores, for which the bias of exits is measured only. */
static hop_status run(const struct options *options, struct hop_error *err)
{
    for (int cores = 0; cores < (options->core > 0 ? 2 : 1); cores++) {
        struct trial_options trial_options = options->trial;
        struct trial trial;
        trial_options.core = cores ? options->core : 0;
        HOP_TRY(trial_open(&trial_options, &trial, err));
        const hop_status status = run_tables(options, &trial, err);
        trial_close(&trial);
        HOP_TRY(status);
    }
    return HOP_OK;
}

/* "o_proj,down_proj" */
static error_t parse_targets(const char *list, bool *targets)
{
    memset(targets, 0, HOP_TARGETS * sizeof *targets);
    if (!*list)
        return EINVAL;
    while (*list) {
        const size_t length = strcspn(list, ",");
        enum hop_target target;
        if (!hop_target_find(list, length, &target))
            return EINVAL;
        targets[target] = true;
        list += length + (list[length] == ',');
    }
    return 0;
}

static error_t parse_count(const char *text, int32_t least, int32_t most, int32_t *out)
{
    const long value = strtol(text, NULL, 10);
    if (value < least || value > most)
        return EINVAL;
    *out = (int32_t)value;
    return 0;
}

static error_t parse_table(struct options *options, const char *name)
{
    options->table = name;
    for (size_t i = 0; tables[i]; i++)
        if (strcmp(name, tables[i]) == 0)
            return 0;
    return strcmp(name, "all") == 0 ? 0 : EINVAL;
}

static error_t parse_dtype(struct options *options, const char *name)
{
    for (enum hop_dtype dtype = HOP_F32; dtype <= HOP_BF16; dtype++)
        if (strcmp(name, hop_dtype_name(dtype)) == 0) {
            options->dtype = dtype;
            return 0;
        }
    return EINVAL;
}

static error_t set_option(struct options *options, int key, char *argument)
{
    switch (key) {
    case 'T':
        return parse_table(options, argument);
    case 'd':
        return parse_dtype(options, argument);
    case 'p':
        return parse_count(argument, 1, UINT16_MAX, &options->probes);
    case 'e':
        options->epsilon = atof(argument);
        return options->epsilon > 0 ? 0 : EINVAL;
    case 'r':
        return parse_count(argument, 1, HOP_MAX_RANK, &options->trial.rank);
    case 'c':
        return parse_count(argument, 0, HOP_MAX_RANK, &options->core);
    case 'a':
        return parse_targets(argument, options->targets);
    case 's':
        return parse_count(argument, 0, 100000, &options->trial.steps);
    case 'n':
        return parse_count(argument, 1, 1000, &options->trial.rows);
    case 'D':
        options->trial.data = argument;
        return 0;
    case 't':
        return parse_count(argument, 1, 1024, &options->threads);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    const error_t status = set_option(state->input, key, argument);
    if (status == EINVAL)
        argp_error(state, "-%c takes no %s; --help lists what it takes", key, argument);
    return status;
}

int main(int argc, char **argv)
{
    static const struct argp_option arguments[] = {
        {"table", 'T', "NAME", 0, "cosine, feedback, derivative, exit or all", 0},
        {"dtype", 'd', "TYPE", 0, "of the estimates: f32 or bf16", 0},
        {"probes", 'p', "N", 0,
         "probes to draw estimates from; a quarter of them for single derivatives (48)", 0},
        {"epsilon", 'e', "E", 0, "of differences in the table of cosines (0.01)", 0},
        {"rank", 'r', "N", 0, "of LoRA (8)", 0},
        {"core", 'c', "N", 0, "of the cores measured behind it; 0: none (8)", 0},
        {"targets", 'a', "LIST", 0, "adapted projections (q_proj,v_proj,o_proj,down_proj)", 0},
        {"steps", 's', "N", 0, "of training before measuring (20)", 0},
        {"rows", 'n', "N", 0, "of the micro-batch: the first ones of the data (8)", 0},
        {"data", 'D', "FILE", 0, "rows to measure and train on (bench/definitions.jsonl)", 0},
        {"threads", 't', "N", 0, "threads (all)", 0},
        {0}};
    static const struct argp argp = {
        arguments, parse_option, NULL, "Gradient estimates beside the exact gradient.",
        NULL,      NULL,         NULL};
    struct options options = {
        .trial = {.model = HOP_SOURCE_DIR "/models/wordnet-3m",
                  .data = HOP_SOURCE_DIR "/bench/definitions.jsonl",
                  .rows = 8,
                  .steps = 20,
                  .rank = 8,
                  .learning_rate = 1e-3,
                  .seed = 1},
        .targets =
            {[HOP_Q_PROJ] = true, [HOP_V_PROJ] = true, [HOP_O_PROJ] = true, [HOP_DOWN_PROJ] = true},
        .table = "all",
        .epsilon = 1e-2,
        .probes = 48,
        .core = 8,
        .threads = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    struct hop_error err = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    options.trial.targets = options.targets;
    omp_set_num_threads(options.threads);
    const hop_status status = run(&options, &err);
    if (status != HOP_OK)
        fprintf(stderr, "bench_estimators: %s\n", err.message);
    return hop_status_exit_code(status);
}
