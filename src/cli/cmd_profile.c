/* hybridop profile: measures this machine for a model. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/profile_report.h"
#include "cluster/measure.h"
#include "io/file.h"
#include "io/json.h"
#include "model/weights.h"
#include "runtime/job.h"

enum {
    KEY_PROFILE = 256,
    KEY_NAME,
    KEY_ROWS,
    KEY_PROBES,
    KEY_DTYPE,
    KEY_FORWARD_ONLY,
    KEY_SECONDS
};
enum { DEFAULT_TOKENS = 384, DEFAULT_LABELS = 16, NAME_SIZE = 256 };

struct options {
    const char *job, *model, *output, *profile, *name, *backend;
    struct hop_measure_request request; /* what the command line says of it; 0: nothing */
    int dtype;                          /* enum hop_job_dtype */
    bool forward_only, json;
};

/* Arguments */

/* One line and the exit status of bad input. */
#define REFUSE(state, ...) argp_failure((state), HOP_EXIT_USAGE, 0, __VA_ARGS__)

static int32_t parse_int(struct argp_state *state, const char *option, const char *text,
                         int32_t high)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (!*text || *end || value < 1 || value > high)
        REFUSE(state, "%s %s: expected a number from 1 to %d", option, text, (int)high);
    return (int32_t)value;
}

/* "1,2,4": distinct numbers. */
static int32_t parse_list(struct argp_state *state, const char *option, char *text, int32_t high,
                          int32_t *out, int32_t most)
{
    int32_t n = 0;
    char *rest = text, *item;
    while ((item = strsep(&rest, ","))) {
        const int32_t value = parse_int(state, option, item, high);
        for (int32_t i = 0; i < n; i++)
            if (out[i] == value)
                REFUSE(state, "%s: %d is there twice", option, (int)value);
        if (n == most)
            REFUSE(state, "%s: at most %d numbers", option, (int)most);
        out[n++] = value;
    }
    return n;
}

static int compare_numbers(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void parse_probes(struct argp_state *state, char *value, struct hop_measure_request *request)
{
    request->probe_count = parse_list(state, "--probes", value, HOP_MEASURE_PROBE_BATCH,
                                      request->probes, HOP_MEASURE_PROBES);
    qsort(request->probes, (size_t)request->probe_count, sizeof *request->probes, compare_numbers);
}

static int parse_dtype(struct argp_state *state, const char *value)
{
    static const char *const names[] = {"auto", "f32", "bf16"};
    for (int i = 0; i < 3; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    REFUSE(state, "--dtype %s: expected auto, f32 or bf16", value);
    return 0;
}

static double parse_seconds(struct argp_state *state, const char *value)
{
    char *end;
    const double seconds = strtod(value, &end);
    if (!*value || *end || !(seconds > 0) || seconds > 86400)
        REFUSE(state, "--seconds %s: expected a number above 0, at most 86400", value);
    return seconds;
}

static void check_arguments(struct argp_state *state, const struct options *options)
{
    if (!options->job && !options->model)
        REFUSE(state, "a job file or --model DIR is missing");
    if (options->job && options->model)
        REFUSE(state, "a job file and --model DIR: one of them says what to measure for");
    if (options->name && !*options->name)
        REFUSE(state, "--name is empty");
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    struct hop_measure_request *const request = &options->request;
    switch (key) {
    case 'm':
        options->model = value;
        return 0;
    case 'o':
        options->output = value;
        return 0;
    case 'b':
        options->backend = value;
        return 0;
    case 'j':
        options->json = true;
        return 0;
    case 's':
        request->tokens = parse_int(state, "--tokens", value, 1 << 20);
        return 0;
    case 'l':
        request->labels = parse_int(state, "--labels", value, 1 << 20);
        return 0;
    case 't':
        request->threads = parse_int(state, "--threads", value, 4096);
        return 0;
    case KEY_PROFILE:
        options->profile = value;
        return 0;
    case KEY_NAME:
        options->name = value;
        return 0;
    case KEY_ROWS:
        request->row_count =
            parse_list(state, "--rows", value, 1 << 16, request->rows, HOP_MEASURE_ROWS);
        return 0;
    case KEY_PROBES:
        parse_probes(state, value, request);
        return 0;
    case KEY_DTYPE:
        options->dtype = parse_dtype(state, value);
        return 0;
    case KEY_FORWARD_ONLY:
        options->forward_only = true;
        return 0;
    case KEY_SECONDS:
        request->seconds = parse_seconds(state, value);
        return 0;
    case ARGP_KEY_ARG:
        if (options->job)
            REFUSE(state, "one job file at a time; '%s' is too much", value);
        options->job = value;
        return 0;
    case ARGP_KEY_END:
        check_arguments(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What to measure */

/* 1, 2 and 4 samples, and the chosen number last. */
static void default_rows(struct hop_measure_request *request, int32_t chosen)
{
    if (request->row_count > 0)
        return;
    for (int32_t rows = 1; rows <= 4; rows *= 2)
        if (rows != chosen)
            request->rows[request->row_count++] = rows;
    request->rows[request->row_count++] = chosen;
}

static void default_probes(struct hop_measure_request *request)
{
    if (request->probe_count > 0)
        return;
    for (int32_t probes = 1; probes <= 4; probes *= 2)
        request->probes[request->probe_count++] = probes;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* As a job without further keys would have it. */
static hop_status take_model(struct options *options, struct hop_measure_request *request,
                             struct hop_error *err)
{
    HOP_TRY(hop_model_config_load(options->model, &request->model, err));
    request->lora = (struct hop_lora_config){.rank = 8, .alpha = 16};
    request->lora.targets[HOP_Q_PROJ] = request->lora.targets[HOP_V_PROJ] = true;
    if (request->tokens == 0)
        request->tokens = smaller(DEFAULT_TOKENS, request->model.max_positions);
    default_rows(request, 4);
    return HOP_OK;
}

static hop_status take_job(struct options *options, struct hop_job *job,
                           struct hop_measure_request *request, struct hop_error *err)
{
    HOP_TRY(hop_job_load(options->job, NULL, 0, job, err));
    HOP_TRY(hop_model_config_load(job->model, &request->model, err));
    HOP_TRY(hop_job_lora(job, &request->lora, err));
    options->model = job->model;
    if (options->dtype == HOP_JOB_DTYPE_AUTO)
        options->dtype = job->train.dtype;
    if (request->tokens == 0)
        request->tokens = (int32_t)job->data.max_length;
    default_rows(request, (int32_t)hop_job_micro_batch_rows(job));
    return HOP_OK;
}

static hop_status choose_dtype(const struct options *options, struct hop_measure_request *request,
                               struct hop_error *err)
{
    struct hop_weights *weights;
    const bool mapped = hop_measure_has_weights(options->model);
    request->directory = mapped ? options->model : NULL;
    request->dtype = options->dtype == HOP_JOB_DTYPE_F32 ? HOP_F32 : HOP_BF16;
    if (options->dtype != HOP_JOB_DTYPE_AUTO || !mapped)
        return HOP_OK;
    HOP_TRY(hop_weights_open(options->model, &request->model, &weights, err));
    request->dtype = hop_weights_native_dtype(weights);
    hop_weights_free(weights);
    return HOP_OK;
}

static hop_status check_size(const struct hop_measure_request *request, struct hop_error *err)
{
    for (int32_t r = 0; r < request->row_count; r++)
        for (int32_t p = 0; p < request->probe_count; p++) {
            const int64_t tokens = (int64_t)request->rows[r] * request->tokens;
            if (tokens * request->probes[p] > INT32_MAX / 2)
                return hop_fail(err, HOP_INPUT,
                                "%d samples of %d tokens with %d probes are too many for one call; "
                                "give smaller --rows, --tokens or --probes",
                                request->rows[r], request->tokens, request->probes[p]);
        }
    return HOP_OK;
}

/* `ops` and `job` must outlive the request. */
static hop_status make_request(struct options *options, struct hop_job *job, struct hop_ops *ops,
                               struct hop_measure_request *out, struct hop_error *err)
{
    struct hop_measure_request request = options->request;
    const struct hop_ops *const found = hop_backend_find(options->backend);
    if (!found)
        return hop_fail(err, HOP_INPUT,
                        "--backend %s: not part of this build; see `hybridop devices`",
                        options->backend);
    *ops = options->forward_only ? hop_ops_forward_only(found) : *found;
    request.ops = ops;
    if (options->job)
        HOP_TRY(take_job(options, job, &request, err));
    else
        HOP_TRY(take_model(options, &request, err));
    default_probes(&request);
    request.labels = smaller(request.labels ? request.labels : DEFAULT_LABELS, request.tokens);
    request.threads = request.threads ? request.threads : hop_machine_cores();
    HOP_TRY(choose_dtype(options, &request, err));
    HOP_TRY(check_size(&request, err));
    *out = request;
    return HOP_OK;
}

/* Results */

/* Before minutes are spent: can the file be written? */
static hop_status check_writable(const char *path, struct hop_error *err)
{
    struct hop_file_writer writer;
    if (!path)
        return HOP_OK;
    HOP_TRY(hop_file_begin(path, &writer, err));
    hop_file_discard(&writer);
    return HOP_OK;
}

static hop_status write_cost(const struct hop_measurement *m, const char *name, const char *path,
                             struct hop_error *err)
{
    struct hop_cost_table cost;
    HOP_TRY(hop_measured_cost(m, name, &cost, err));
    json_t *const object = hop_cost_json(&cost);
    hop_cost_free(&cost);
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory while writing %s", path);
    const hop_status status = hop_json_save(path, object, err);
    json_decref(object);
    return status;
}

static hop_status print_json(const struct hop_measurement *m, const char *model, const char *name,
                             struct hop_error *err)
{
    json_t *const object = hop_measured_json(m);
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory while printing");
    json_object_set_new(object, "model", json_string(model));
    json_object_set_new(object, "name", json_string(name));
    json_dumpf(object, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(object);
    return HOP_OK;
}

static hop_status deliver(const struct options *options, const struct hop_measurement *m,
                          const char *name, struct hop_error *err)
{
    if (options->output)
        HOP_TRY(write_cost(m, name, options->output, err));
    if (options->profile)
        HOP_TRY(hop_profile_write(options->profile, m, name, err));
    if (options->json)
        return print_json(m, options->model, name, err);
    return hop_profile_report(m, options->model, name, stdout, err);
}

/* This machine's name without its domain. */
static void default_name(char name[NAME_SIZE])
{
    if (gethostname(name, NAME_SIZE - 1) != 0 || !*name || *name == '.')
        snprintf(name, NAME_SIZE, "device");
    name[NAME_SIZE - 1] = '\0';
    name[strcspn(name, ".")] = '\0';
}

static hop_status measure(struct options *options, struct hop_job *job, struct hop_error *err)
{
    struct hop_measure_request request;
    struct hop_ops ops;
    struct hop_measurement *m;
    char name[NAME_SIZE] = "";
    HOP_TRY(make_request(options, job, &ops, &request, err));
    HOP_TRY(check_writable(options->output, err));
    HOP_TRY(check_writable(options->profile, err));
    default_name(name);
    if (isatty(STDERR_FILENO))
        hop_note("measuring for about %.0f s", request.seconds);
    HOP_TRY(hop_calloc(&m, 1, sizeof *m, err));
    hop_status status = hop_measure(&request, m, err);
    if (status == HOP_OK)
        status = deliver(options, m, options->name ? options->name : name, err);
    free(m);
    return status;
}

static hop_status run(void *options, struct hop_error *err)
{
    struct hop_job job = {0};
    const hop_status status = measure(options, &job, err);
    hop_job_free(&job);
    return status;
}

int hop_cmd_profile(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"model", 'm', "DIR", 0, "Hugging Face folder; config.json is enough", 0},
        {"output", 'o', "FILE", 0, "Write a cost table (JSON)", 0},
        {"profile", KEY_PROFILE, "FILE", 0, "Write a device profile (YAML)", 0},
        {"name", KEY_NAME, "NAME", 0, "Of the device (default: this machine's)", 0},
        {"rows", KEY_ROWS, "N,...", 0,
         "Samples of a micro-batch; cost table and memory are for the last (default 1, 2, 4 and "
         "the job's)",
         0},
        {"tokens", 's', "S", 0, "Of a sample (default: the job's max_length, or 384)", 0},
        {"labels", 'l', "N", 0, "Label tokens of a sample (default 16)", 0},
        {"probes", KEY_PROBES, "Q,...", 0, "Probes of one call (default 1,2,4)", 0},
        {"threads", 't', "N", 0, "Default: all cores", 0},
        {"backend", 'b', "NAME", 0, "Numeric backend (default cpu)", 0},
        {"dtype", KEY_DTYPE, "TYPE", 0, "f32, bf16 or auto: as the weights or the job (default)",
         0},
        {"forward-only", KEY_FORWARD_ONLY, NULL, 0, "Measure as a BP-free device", 0},
        {"seconds", KEY_SECONDS, "S", 0, "Time to measure for, about (default 20)", 0},
        {"json", 'j', NULL, 0, "Print JSON", 0},
        {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "[JOB]",
        .doc =
            "Measures this machine for the model of a job, or of --model DIR: time and memory of "
            "a block, the embedding and the head."};
    struct options options = {.backend = "cpu", .request = {.seconds = 20}};
    return hop_command(&argp, argc, argv, &options, run);
}
