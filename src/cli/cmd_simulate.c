/* hybridop simulate: strategies side by side on the same devices, with and without those that are
 * BP-free. */
#include <argp.h>
#include <stdio.h>

#include "base/memory.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/plan_options.h"

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

/* A plan that is there already is the only entry. */
static hop_status follow(const char *path, const struct hop_problem *problem,
                         struct hop_comparison *out, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&out->forecasts, 1, sizeof *out->forecasts, err));
    HOP_TRY(hop_forecast_file(path, problem, &out->forecasts[0], err));
    out->count = 1;
    return HOP_OK;
}

static hop_status compare(const struct options *options, const struct hop_job *job,
                          const struct hop_problem *problem, struct hop_comparison *out,
                          struct hop_error *err)
{
    const char *const names = options->plan.strategy;
    const char *const file = options->file ? options->file : names ? NULL : job->plan.file;
    if (file)
        return follow(file, problem, out, err);
    return hop_comparison_plan(names ? names : problem->strategy->name, problem, out, err);
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    struct hop_problem problem = {0};
    struct hop_comparison comparison = {0};
    HOP_TRY_DONE(hop_plan_options_problem(&options->plan, &job, &problem, err));
    HOP_TRY_DONE(compare(options, &job, &problem, &comparison, err));
    if (options->plan.json)
        HOP_TRY_DONE(hop_print_json(hop_comparison_json(&comparison, &problem.cost), err));
    else
        HOP_TRY_DONE(hop_forecast_compare(comparison.forecasts, comparison.count, stdout, err));
    if (options->trace && hop_comparison_feasible(&comparison))
        HOP_TRY_DONE(hop_comparison_trace(options->trace, hop_comparison_feasible(&comparison),
                                          &problem, err));
    HOP_TRY_DONE(hop_comparison_require(&comparison, err));
done:
    hop_comparison_free(&comparison);
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
