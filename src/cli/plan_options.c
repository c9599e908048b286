#include "cli/plan_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/string.h"

enum {
    KEY_COST = 256,
    KEY_SET,
    KEY_STRATEGY,
    KEY_MICRO_BATCHES,
    KEY_PROBES,
    KEY_ESTIMATOR,
    KEY_DIRECTIONS,
    KEY_EXIT_PROBES,
    KEY_EXIT_BASE,
    KEY_PROBE_BATCH,
    KEY_OBJECTIVE,
    KEY_BP_ONLY,
    KEY_DEVICES,
    KEY_JSON
};

enum { COST_MICRO_BATCHES = 4, COST_PROBES = 1, MOST_MICRO_BATCHES = 1 << 15, MOST_PROBES = 4096 };

static const struct argp_option known[] = {
    {"cost", KEY_COST, "FILE", 0, "A cost table instead of a job: measured times and sizes (JSON)",
     0},
    {"set", KEY_SET, "KEY=VALUE", 0, "Set a key of the job, e.g. train.micro_batch=2", 0},
    {"strategy", KEY_STRATEGY, "NAME", 0,
     "Planner and schedule (default: the job's plan.file or strategy; hybridop with --cost); "
     "`simulate` and `compare` take several, separated by commas, or all (`compare`: the default)",
     0},
    {"micro-batches", KEY_MICRO_BATCHES, "M", 0,
     "Micro-batches of a mini-batch (default: the job's; 4 with --cost); chimera may halve their "
     "rows "
     "and have twice as many",
     0},
    {"probes", KEY_PROBES, "Q", 0,
     "Probes per micro-batch, or auto: as many as the step hides, at least 1 (default: the job's "
     "zo.probes; 1 with --cost)",
     0},
    {"estimator", KEY_ESTIMATOR, "NAME", 0,
     "How BP-free devices learn about their gradient: difference, central, boundary, feedback, or "
     "none: they do not (default: the job's zo.estimator; difference with --cost)",
     0},
    {"directions", KEY_DIRECTIONS, "WHICH", 0,
     "shared by the samples of a micro-batch, or per-sample (default: the job's zo.directions; "
     "shared with --cost)",
     0},
    {"exit-probes", KEY_EXIT_PROBES, "N", 0,
     "Further probes that end at an output layer on the last BP-free device, or auto: as many as "
     "do not lengthen the step (default: the job's zo.early_exit; 0 with --cost)",
     0},
    {"exit-base", KEY_EXIT_BASE, "WHICH", 0,
     "The loss that exit probes are compared with: own, that of the exit, or full-model (default: "
     "the job's zo.exit_base; own with --cost)",
     0},
    {"probe-batch", KEY_PROBE_BATCH, "B", 0,
     "Probes a device runs at once (default: the job's zo.probe_batch; 1 with --cost)", 0},
    {"objective", KEY_OBJECTIVE, "WHAT", 0,
     "What the planner minimises: simulated, the step by event simulation, or formula, the "
     "strategy's published closed form (default: the job's plan.objective, else simulated)",
     0},
    {"bp-only", KEY_BP_ONLY, NULL, 0, "Leave BP-free devices out (default: off)", 0},
    {"devices", KEY_DEVICES, "WHICH", 0,
     "all: each holds a block; auto: those that would slow the step are left out; default: as "
     "auto, but more devices than blocks are an error (default: the job's plan.devices, else "
     "default)",
     0},
    {"json", KEY_JSON, NULL, 0, "Print JSON (default: a table)", 0},
    {0}};

/* Numbers */

static bool parse_int(const char *text, int32_t low, int32_t high, int32_t *out)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (!*text || *end || value < low || value > high)
        return false;
    *out = (int32_t)value;
    return true;
}

static void need_int(const struct argp_state *state, const char *option, const char *text,
                     int32_t low, int32_t high)
{
    int32_t value;
    if (!parse_int(text, low, high, &value))
        argp_error(state, "--%s %s: expected a whole number from %d to %d", option, text, low,
                   high);
}

static void need_probes(const struct argp_state *state, const char *option, const char *text)
{
    int32_t value;
    if (strcmp(text, "auto") != 0 && !parse_int(text, 0, MOST_PROBES, &value))
        argp_error(state, "--%s %s: expected a whole number from 0 to %d, or auto", option, text,
                   MOST_PROBES);
}

/* The index of the text in a NULL-terminated list, or -1. */
static int find_choice(const char *text, const char *const *choices)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(text, choices[i]) == 0)
            return i;
    return -1;
}

static void need_choice(const struct argp_state *state, const char *option, const char *text,
                        const char *const *choices)
{
    size_t count = 0;
    if (find_choice(text, choices) >= 0)
        return;
    while (choices[count])
        count++;
    const char *const nearest = hop_nearest_name(text, choices, count);
    argp_error(state, "--%s: there is no '%s'; did you mean '%s'?", option, text,
               nearest ? nearest : choices[0]);
}

/* Options */

static void finish(const struct argp_state *state, const struct hop_plan_options *options)
{
    if (!options->job.job && !options->cost)
        argp_error(state, "a job file or --cost FILE is missing");
    if (options->job.job && options->cost)
        argp_error(state, "either a job file or --cost FILE; both, '%s' and '%s', are too much",
                   options->job.job, options->cost);
    if (options->cost && options->job.count)
        argp_error(state, "--set changes a job; --cost has none");
}

static error_t parse_setting(int key, char *value, const struct argp_state *state,
                             struct hop_plan_options *options)
{
    switch (key) {
    case KEY_MICRO_BATCHES:
        need_int(state, "micro-batches", value, 1, MOST_MICRO_BATCHES);
        options->micro_batches = value;
        return 0;
    case KEY_PROBES:
        need_probes(state, "probes", value);
        options->probes = value;
        return 0;
    case KEY_EXIT_PROBES:
        need_probes(state, "exit-probes", value);
        options->exit_probes = value;
        return 0;
    case KEY_ESTIMATOR:
        need_choice(state, "estimator", value, hop_estimator_choices);
        options->estimator = value;
        return 0;
    case KEY_DIRECTIONS:
        need_choice(state, "directions", value, hop_directions_names);
        options->directions = value;
        return 0;
    case KEY_EXIT_BASE:
        need_choice(state, "exit-base", value, hop_exit_base_names);
        options->exit_base = value;
        return 0;
    case KEY_PROBE_BATCH:
        need_int(state, "probe-batch", value, 1, MOST_PROBES);
        options->probe_batch = value;
        return 0;
    case KEY_OBJECTIVE:
        need_choice(state, "objective", value, hop_objective_names);
        options->objective = value;
        return 0;
    case KEY_DEVICES:
        need_choice(state, "devices", value, hop_device_use_names);
        options->devices = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void set(const struct argp_state *state, struct hop_plan_options *options, const char *text)
{
    if (hop_job_options_add(&options->job, text, &options->job.err) != HOP_OK)
        argp_failure(state, 1, 0, "%s", options->job.err.message);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct hop_plan_options *const options = state->input;
    switch (key) {
    case KEY_COST:
        options->cost = value;
        return 0;
    case KEY_SET:
        set(state, options, value);
        return 0;
    case KEY_STRATEGY:
        options->strategy = value;
        return 0;
    case KEY_BP_ONLY:
        options->bp_only = true;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->job.job)
            argp_error(state, "one job file at a time; '%s' is too much", value);
        options->job.job = value;
        return 0;
    case ARGP_KEY_END:
        finish(state, options);
        return 0;
    default:
        return parse_setting(key, value, state, options);
    }
}

const struct argp hop_plan_argp = {.options = known, .parser = parse};

/* The problem */

/* The request's fields that have a key of the job are set there, so that the cost table follows. */
static hop_status settle_job(struct hop_plan_options *options, struct hop_error *err)
{
    const struct {
        const char *key, *value;
    } settings[] = {{"plan.micro_batches", options->micro_batches},
                    {"zo.probes", options->probes},
                    {"zo.probe_batch", options->probe_batch},
                    {"zo.estimator", options->estimator},
                    {"zo.directions", options->directions},
                    {"zo.early_exit", options->exit_probes},
                    {"zo.exit_base", options->exit_base},
                    {"plan.objective", options->objective},
                    {"plan.devices", options->devices}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].value)
            HOP_TRY(hop_job_options_set(&options->job, settings[i].key, settings[i].value, err));
    return HOP_OK;
}

static hop_status from_job(struct hop_plan_options *options, struct hop_job *job,
                           struct hop_problem *out, struct hop_error *err)
{
    HOP_TRY(settle_job(options, err));
    HOP_TRY(hop_job_options_load(&options->job, job, err));
    return hop_problem_create(job, out, err);
}

static int32_t given_int(const char *text, int32_t fallback)
{
    int32_t value = fallback;
    if (text)
        parse_int(text, 0, INT32_MAX, &value);
    return value;
}

/* Half a micro-batch costs half, by the table's own rule. */
static hop_status fill_halves(struct hop_problem *problem, struct hop_error *err)
{
    if (fmod(problem->cost.micro_batch_samples, 2) != 0)
        return HOP_OK;
    HOP_TRY(hop_cost_halve(&problem->cost, &problem->halves, err));
    problem->request.halves = &problem->halves;
    return HOP_OK;
}

static int32_t given_probes(const char *text, int32_t fallback)
{
    return text && strcmp(text, "auto") == 0 ? HOP_PROBES_AUTO : given_int(text, fallback);
}

static int given_choice(const char *text, const char *const *choices)
{
    return text ? find_choice(text, choices) : 0;
}

static void fill_estimator(const struct hop_plan_options *options, struct hop_plan_request *request)
{
    hop_request_choose(request, given_choice(options->estimator, hop_estimator_choices));
    request->directions =
        (enum hop_directions)given_choice(options->directions, hop_directions_names);
    request->exit_probes = given_probes(options->exit_probes, 0);
    request->feedback_blocks = HOP_FEEDBACK_BLOCKS;
    request->exit_base = (enum hop_exit_base)given_choice(options->exit_base, hop_exit_base_names);
}

static hop_status from_cost(const struct hop_plan_options *options, struct hop_problem *out,
                            struct hop_error *err)
{
    HOP_TRY(hop_strategy_find("hybridop", &out->strategy, err));
    HOP_TRY(hop_cost_load(options->cost, &out->cost, err));
    out->request = (struct hop_plan_request){
        .cost = &out->cost,
        .micro_batches = given_int(options->micro_batches, COST_MICRO_BATCHES),
        .probes = given_probes(options->probes, COST_PROBES),
        .probe_batch = given_int(options->probe_batch, 1),
        .devices = (enum hop_device_use)given_choice(options->devices, hop_device_use_names),
        .objective = (enum hop_objective)given_choice(options->objective, hop_objective_names)};
    fill_estimator(options, &out->request);
    return fill_halves(out, err);
}

hop_status hop_plan_options_problem(struct hop_plan_options *options, struct hop_job *job,
                                    struct hop_problem *out, struct hop_error *err)
{
    *out = (struct hop_problem){0};
    HOP_TRY(options->cost ? from_cost(options, out, err) : from_job(options, job, out, err));
    out->request.bp_only = options->bp_only;
    return HOP_OK;
}

void hop_plan_options_free(struct hop_plan_options *options)
{
    hop_job_options_free(&options->job);
}

hop_status hop_print_json(json_t *value, struct hop_error *err)
{
    if (!value)
        return hop_fail(err, HOP_MEMORY, "out of memory while writing JSON");
    const int failed = json_dumpf(value, stdout, JSON_INDENT(2));
    json_decref(value);
    printf("\n");
    if (failed || fflush(stdout) != 0)
        return hop_fail(err, HOP_IO, "standard output: writing failed");
    return HOP_OK;
}
