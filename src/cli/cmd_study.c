/* hybridop study: one job with many settings and seeds, a table and charts of what came out. */
#include <argp.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/plan_options.h"
#include "cli/study_page.h"
#include "io/file.h"
#include "io/yaml.h"
#include "runtime/job.h"
#include "runtime/launch_command.h"

enum { MOST_AXES = 16 };
enum {
    KEY_SET = 256,
    KEY_VARIANTS,
    KEY_AXIS,
    KEY_SEEDS,
    KEY_TUNE_SET,
    KEY_METRIC,
    KEY_TUNE_METRIC,
    KEY_CLOCK,
    KEY_TARGET,
    KEY_PARALLEL,
    KEY_BETWEEN,
    KEY_JSON
};

struct options {
    struct hop_study study;
    const char *variants, *seeds, *between;
    const char *axes[MOST_AXES];
    int axis_count;
    enum hop_study_clock clock;
    double target;
    bool json;
    struct hop_error err;
};

static double parse_real(const struct argp_state *state, const char *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        argp_error(state, "%s %s: expected a number", option, text);
    return value;
}

static void parse_clock(const struct argp_state *state, const char *text, struct options *options)
{
    for (int i = 0; hop_study_clock_names[i]; i++)
        if (strcmp(text, hop_study_clock_names[i]) == 0) {
            options->clock = (enum hop_study_clock)i;
            return;
        }
    argp_error(state, "--clock %s: expected simulated or measured", text);
}

static void add_axis(const struct argp_state *state, const char *text, struct options *options)
{
    if (options->axis_count == MOST_AXES)
        argp_error(state, "--axis %s: more than %d axes", text, MOST_AXES);
    options->axes[options->axis_count++] = text;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    struct hop_study *const study = &options->study;
    hop_status status = HOP_OK;
    switch (key) {
    case 'o':
        study->directory = value;
        break;
    case KEY_SET:
        status = hop_string_list_add(&study->settings, value, &options->err);
        break;
    case KEY_TUNE_SET:
        status = hop_string_list_add(&study->tuning_settings, value, &options->err);
        break;
    case KEY_VARIANTS:
        options->variants = value;
        break;
    case KEY_AXIS:
        add_axis(state, value, options);
        break;
    case KEY_SEEDS:
        options->seeds = value;
        break;
    case KEY_METRIC:
        study->metric = value;
        break;
    case KEY_TUNE_METRIC:
        study->tuning_metric = value;
        break;
    case KEY_CLOCK:
        parse_clock(state, value, options);
        break;
    case KEY_TARGET:
        options->target = parse_real(state, "--target", value);
        break;
    case KEY_PARALLEL:
        study->parallel = (int32_t)parse_real(state, "--parallel", value);
        if (study->parallel < 1 || study->parallel > 1024)
            argp_error(state, "--parallel %s: expected a whole number from 1 to 1024", value);
        break;
    case KEY_BETWEEN:
        options->between = value;
        break;
    case KEY_JSON:
        options->json = true;
        break;
    case ARGP_KEY_ARG:
        if (study->job)
            argp_error(state, "one job file at a time; '%s' is too much", value);
        study->job = value;
        break;
    case ARGP_KEY_END:
        if (!study->job)
            argp_error(state, "the job file is missing");
        if (!study->directory)
            argp_error(state, "-o DIR is missing: where the runs shall go");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (status != HOP_OK)
        argp_failure(state, 1, 0, "%s", options->err.message);
    return 0;
}

/* What to run */

static hop_status read_seeds(const char *text, struct hop_study *study, struct hop_error *err)
{
    size_t capacity = 0;
    for (;;) {
        char *end;
        const long long seed = strtoll(text, &end, 10);
        if (end == text || seed < 0 || (*end && *end != ','))
            return hop_fail(err, HOP_INPUT, "--seeds: '%s': expected whole numbers like 1,2,3",
                            text);
        HOP_TRY(
            hop_grow(&study->seeds, &capacity, study->seed_count + 1, sizeof *study->seeds, err));
        study->seeds[study->seed_count++] = seed;
        if (!*end)
            return HOP_OK;
        text = end + 1;
    }
}

static hop_status read_variants(const char *path, struct hop_study *study, struct hop_error *err)
{
    json_t *object;
    HOP_TRY(hop_yaml_load(path, &object, err));
    const hop_status status = hop_study_variants_parse(object, path, study, err);
    json_decref(object);
    return status;
}

static hop_status cross(const struct options *options, struct hop_study *study,
                        struct hop_error *err)
{
    HOP_TRY(hop_study_default_variant(study, err));
    for (int i = 0; i < options->axis_count; i++) {
        struct hop_study_axis axis = {0};
        hop_status status = hop_study_axis_parse(options->axes[i], &axis, err);
        if (status == HOP_OK)
            status = hop_study_cross(study, &axis, err);
        hop_study_axis_free(&axis);
        HOP_TRY(status);
    }
    return HOP_OK;
}

/* Every variant must be a job before the first one runs. */
static hop_status check_variant(const struct hop_study *study,
                                const struct hop_study_variant *variant, int64_t *samples,
                                struct hop_error *err)
{
    struct hop_string_list all = {0};
    struct hop_job job = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_string_list_add_all(&all, &study->settings, err));
    HOP_TRY_DONE(hop_string_list_add_all(&all, &variant->settings, err));
    status = hop_job_load(study->job, (const char *const *)all.items, all.count, &job, err);
    if (status != HOP_OK)
        hop_wrap(err, "variant '%s'", variant->name);
    *samples = job.train.batch_size;
done:
    hop_job_free(&job);
    hop_string_list_free(&all);
    return status;
}

static hop_status find_variant(const struct hop_study *study, const char *name, size_t length,
                               size_t *out, struct hop_error *err)
{
    for (size_t v = 0; v < study->variant_count; v++) {
        const char *const known = study->variants[v].name;
        if (strlen(known) != length || strncmp(known, name, length) != 0)
            continue;
        *out = v;
        return HOP_OK;
    }
    return hop_fail(err, HOP_INPUT, "--between: there is no variant '%.*s'", (int)length, name);
}

static hop_status find_between(const struct options *options, struct hop_study_view *view,
                               struct hop_error *err)
{
    const char *const text = options->between;
    const char *const comma = text ? strchr(text, ',') : NULL;
    if (!text)
        return HOP_OK;
    if (!comma)
        return hop_fail(err, HOP_INPUT, "--between %s: expected two variants, LOW,HIGH", text);
    HOP_TRY(find_variant(view->study, text, (size_t)(comma - text), &view->low, err));
    return find_variant(view->study, comma + 1, strlen(comma + 1), &view->high, err);
}

static hop_status prepare(struct options *options, struct hop_study_view *view,
                          struct hop_error *err)
{
    struct hop_study *const study = &options->study;
    HOP_TRY(read_seeds(options->seeds, study, err));
    if (options->variants)
        HOP_TRY(read_variants(options->variants, study, err));
    HOP_TRY(cross(options, study, err));
    for (size_t v = 0; v < study->variant_count; v++)
        HOP_TRY(check_variant(study, &study->variants[v], &view->samples, err));
    HOP_TRY(find_between(options, view, err));
    return hop_directory_create(study->directory, err);
}

/* What came out */

static hop_status show(const struct options *options, const struct hop_study_view *view,
                       struct hop_error *err)
{
    HOP_TRY(hop_study_save(view, err));
    hop_note("tables and charts: %s/study.html", view->study->directory);
    return options->json ? hop_print_json(hop_study_json(view), err)
                         : hop_study_print(view, stdout, err);
}

static hop_status summarise(const struct options *options, struct hop_study_view *view,
                            struct hop_error *err)
{
    const struct hop_study *const study = view->study;
    struct hop_study_outcome *outcomes;
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&outcomes, study->variant_count, sizeof *outcomes, err));
    for (size_t v = 0; v < study->variant_count; v++)
        HOP_TRY_DONE(hop_study_summarise(study, &study->variants[v], options->clock,
                                         options->target, &outcomes[v], err));
    view->outcomes = outcomes;
    view->count = study->variant_count;
    status = show(options, view, err);
done:
    for (size_t v = 0; v < study->variant_count; v++)
        hop_study_outcome_free(&outcomes[v]);
    free(outcomes);
    return status;
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    struct hop_study_view view = {
        .study = &options->study, .clock = options->clock, .target = options->target};
    char program[PATH_MAX];
    HOP_TRY(hop_own_path(program, err));
    options->study.program = program;
    HOP_TRY(prepare(options, &view, err));
    HOP_TRY(hop_study_tune(&options->study, err));
    HOP_TRY(hop_study_run(&options->study, err));
    return summarise(options, &view, err);
}

int hop_cmd_study(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"output", 'o', "DIR", 0, "Where the runs, the table and the charts go", 0},
        {"variants", KEY_VARIANTS, "FILE", 0,
         "YAML: {NAME: {KEY: VALUE, ..., tune: {KEY: [VALUE, ...]}}}; of `tune` every combination "
         "is tried with the first seed and the best one kept",
         0},
        {"axis", KEY_AXIS, "KEY=V1,V2,...", 0, "Every variant once with each value; repeatable", 0},
        {"seeds", KEY_SEEDS, "N,N,...", 0, "Seeds of every variant (default: 1,2,3)", 0},
        {"set", KEY_SET, "KEY=VALUE", 0, "Set a key of the job in every run", 0},
        {"tune-set", KEY_TUNE_SET, "KEY=VALUE", 0,
         "Set a key in tuning runs only, e.g. data.eval=valid.jsonl", 0},
        {"metric", KEY_METRIC, "NAME", 0,
         "What the table looks at: accuracy (default), macro_f1, f1, ..., or loss", 0},
        {"tune-metric", KEY_TUNE_METRIC, "NAME", 0,
         "What tuning looks at, in the last evaluation (default: loss)", 0},
        {"clock", KEY_CLOCK, "NAME", 0,
         "Seconds of the charts: simulated, a step as planned for the job's cluster (default), or "
         "measured here",
         0},
        {"target", KEY_TARGET, "LOSS", 0, "Also tell when the evaluation loss is at LOSS", 0},
        {"between", KEY_BETWEEN, "LOW,HIGH", 0,
         "Also tell which share of the way from variant LOW to HIGH each one goes", 0},
        {"parallel", KEY_PARALLEL, "N", 0, "Runs at once (default: 1)", 0},
        {"json", KEY_JSON, NULL, 0, "Print JSON instead of a table", 0},
        {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "JOB",
        .doc = "Trains the job with many settings and seeds and compares them: one table, and "
               "charts of loss and metric against time and samples.\v"
               "Runs that are there already are not repeated: a study that was cut off goes on.",
    };
    struct options options = {
        .study = {.metric = "accuracy", .tuning_metric = "loss", .parallel = 1},
        .seeds = "1,2,3",
        .target = NAN};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_study_free(&options.study);
    return status;
}
