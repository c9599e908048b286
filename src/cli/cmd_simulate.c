/* hybridop simulate: strategies side by side on the same devices, with and without those that are
 * BP-free. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/plan_options.h"
#include "report/trace.h"
#include "sim/simulate.h"

struct options {
    struct hop_plan_options plan;
    const char *file, *trace;
};

enum { KEY_PLAN = 512, KEY_TRACE };

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->plan;
        return 0;
    case KEY_PLAN:
        options->file = value;
        return 0;
    case KEY_TRACE:
        options->trace = value;
        return 0;
    case ARGP_KEY_END:
        if (options->file && options->plan.strategy)
            argp_error(state, "--plan brings its strategy; leave --strategy out");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What is compared. */
struct comparison {
    const struct hop_strategy **strategies;
    size_t strategy_count;
    struct hop_forecast *forecasts;
    size_t count;
};

static void free_comparison(struct comparison *comparison)
{
    for (size_t i = 0; i < comparison->count; i++)
        hop_forecast_free(&comparison->forecasts[i]);
    free(comparison->forecasts);
    free(comparison->strategies);
}

/* Strategies */

/* Room for every strategy there is, or every name in the text. */
static hop_status make_room(const char *text, struct comparison *out, struct hop_error *err)
{
    size_t most = 1;
    for (const char *c = text; c && *c; c++)
        most += *c == ',';
    for (size_t i = 0; hop_strategies[i]; i++)
        most += 1;
    HOP_TRY(hop_calloc(&out->strategies, most, sizeof *out->strategies, err));
    /* Each with and without BP-free devices. */
    return hop_calloc(&out->forecasts, 2 * most, sizeof *out->forecasts, err);
}

static void add_strategy(struct comparison *out, const struct hop_strategy *strategy)
{
    for (size_t i = 0; i < out->strategy_count; i++)
        if (out->strategies[i] == strategy)
            return;
    out->strategies[out->strategy_count++] = strategy;
}

static hop_status add_name(struct comparison *out, const char *text, size_t length,
                           struct hop_error *err)
{
    char name[HOP_STRATEGY_NAME];
    const struct hop_strategy *strategy;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (strcmp(name, "all") == 0) {
        for (size_t i = 0; hop_strategies[i]; i++)
            add_strategy(out, hop_strategies[i]);
        return HOP_OK;
    }
    HOP_TRY(hop_strategy_find(name, &strategy, err));
    add_strategy(out, strategy);
    return HOP_OK;
}

/* "a,b" or "all"; each strategy once. */
static hop_status list_strategies(const char *text, struct comparison *out, struct hop_error *err)
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        HOP_TRY(add_name(out, text, length, err));
        if (!text[length])
            return HOP_OK;
        text += length + 1;
    }
}

/* Forecasts */

static bool has_bp_free(const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp)
            return true;
    return false;
}

static hop_status add_forecast(struct comparison *out, const struct hop_strategy *strategy,
                               struct hop_plan_request request, bool bp_only, struct hop_error *err)
{
    request.bp_only = bp_only;
    HOP_TRY(hop_forecast_plan(strategy, &request, &out->forecasts[out->count], err));
    out->count++;
    return HOP_OK;
}

static hop_status plan_all(const struct hop_problem *problem, struct comparison *out,
                           struct hop_error *err)
{
    const struct hop_plan_request *const request = &problem->request;
    const bool both = !request->bp_only && has_bp_free(&problem->cost);
    for (size_t i = 0; i < out->strategy_count; i++) {
        HOP_TRY(add_forecast(out, out->strategies[i], *request, request->bp_only, err));
        if (both)
            HOP_TRY(add_forecast(out, out->strategies[i], *request, true, err));
    }
    return HOP_OK;
}

static hop_status follow(const char *path, const struct hop_problem *problem,
                         struct comparison *out, struct hop_error *err)
{
    struct hop_plan plan;
    HOP_TRY(hop_plan_read(path, &problem->cost, &plan, err));
    const hop_status status = hop_forecast_given(&plan, &problem->cost, &out->forecasts[0], err);
    hop_plan_free(&plan);
    out->count = status == HOP_OK;
    return status;
}

static hop_status compare(const struct options *options, const struct hop_job *job,
                          const struct hop_problem *problem, struct comparison *out,
                          struct hop_error *err)
{
    const char *const names = options->plan.strategy;
    const char *const file = options->file ? options->file : names ? NULL : job->plan.file;
    HOP_TRY(make_room(names, out, err));
    if (file)
        return follow(file, problem, out, err);
    if (names)
        HOP_TRY(list_strategies(names, out, err));
    else
        add_strategy(out, problem->strategy);
    return plan_all(problem, out, err);
}

static const struct hop_forecast *first_feasible(const struct comparison *comparison)
{
    for (size_t i = 0; i < comparison->count; i++)
        if (comparison->forecasts[i].feasible)
            return &comparison->forecasts[i];
    return NULL;
}

/* Output */

static hop_status print_json(const struct comparison *comparison, const struct hop_cost_table *cost,
                             struct hop_error *err)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < comparison->count; i++)
        if (json_array_append_new(
                list, hop_forecast_simulation_json(&comparison->forecasts[i], cost)) != 0) {
            json_decref(list);
            return hop_fail(err, HOP_MEMORY, "out of memory while writing JSON");
        }
    return hop_print_json(list, err);
}

/* Plays the plan again, recording. */
static hop_status save_trace(const char *path, const struct hop_plan *plan,
                             const struct hop_cost_table *cost, const char *const *names,
                             struct hop_error *err)
{
    static const struct hop_simulation_options record = {.record = true};
    const struct hop_strategy *strategy;
    struct hop_schedule schedule = {0};
    struct hop_simulation seen = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_strategy_find(plan->strategy, &strategy, err));
    HOP_TRY_DONE(strategy->schedule(plan, cost, plan->micro_batches, plan->probes, &schedule, err));
    HOP_TRY_DONE(hop_simulate(plan, &schedule, cost, &record, &seen, err));
    HOP_TRY_DONE(hop_trace_save_simulation(path, &seen, plan, &schedule, names, err));
done:
    hop_simulation_free(&seen);
    hop_schedule_free(&schedule);
    return status;
}

static hop_status write_trace(const char *path, const struct comparison *comparison,
                              const struct hop_cost_table *cost, struct hop_error *err)
{
    const struct hop_forecast *const chosen = first_feasible(comparison);
    const char **names;
    if (!chosen)
        return HOP_OK;
    HOP_TRY(hop_cost_names(cost, &names, err));
    const hop_status status = save_trace(path, &chosen->plan, cost, names, err);
    free(names);
    if (status == HOP_OK)
        hop_note("%s: a simulated step of %s on %s devices (open it at https://ui.perfetto.dev)",
                 path, chosen->plan.strategy, chosen->bp_only ? "bp-only" : "all");
    return status;
}

/* Nothing fits: the reason of the first. */
static hop_status conclude(const struct comparison *comparison, struct hop_error *err)
{
    if (first_feasible(comparison))
        return HOP_OK;
    const hop_status status = hop_forecast_require(&comparison->forecasts[0], err);
    if (comparison->count > 1)
        hop_wrap(err, "none of %zu fits; the first", comparison->count);
    return status;
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    struct hop_problem problem = {0};
    struct comparison comparison = {0};
    HOP_TRY_DONE(hop_plan_options_problem(&options->plan, &job, &problem, err));
    HOP_TRY_DONE(compare(options, &job, &problem, &comparison, err));
    if (options->plan.json)
        HOP_TRY_DONE(print_json(&comparison, &problem.cost, err));
    else
        HOP_TRY_DONE(hop_forecast_compare(comparison.forecasts, comparison.count, stdout, err));
    if (options->trace)
        HOP_TRY_DONE(write_trace(options->trace, &comparison, &problem.cost, err));
    HOP_TRY_DONE(conclude(&comparison, err));
done:
    free_comparison(&comparison);
    hop_problem_free(&problem);
    hop_job_free(&job);
    return status;
}

int hop_cmd_simulate(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"plan", KEY_PLAN, "FILE", 0,
         "Play this plan.json instead of planning (default: the job's plan.file, if any)", 0},
        {"trace", KEY_TRACE, "FILE", 0,
         "Write Chrome trace events of the first feasible one (default: not written)", 0},
        {0}};
    static const struct argp_child children[] = {{&hop_plan_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "[JOB]",
        .doc =
            "Plays a step of each strategy on the job's cluster, or the devices of a cost table, "
            "with and without the BP-free devices.\v"
            "Exit status 1 when nothing fits.",
        .children = children};
    struct options options = {0};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_plan_options_free(&options.plan);
    return status;
}
