/* hybridop plan: which device holds which blocks, and what a step then takes. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/plan_options.h"
#include "io/json.h"

struct options {
    struct hop_plan_options plan;
    const char *write_cost;
};

enum { KEY_WRITE_COST = 512 };

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->plan;
        return 0;
    case KEY_WRITE_COST:
        options->write_cost = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static hop_status write_cost(const struct hop_cost_table *cost, const char *path,
                             struct hop_error *err)
{
    json_t *const object = hop_cost_json(cost);
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory while writing %s", path);
    const hop_status status = hop_json_save(path, object, err);
    json_decref(object);
    return status;
}

static hop_status print(const struct options *options, const struct hop_problem *problem,
                        const struct hop_forecast *forecast, struct hop_error *err)
{
    const struct hop_cost_table *const cost = hop_request_cost(&problem->request, &forecast->plan);
    if (options->plan.json)
        HOP_TRY(hop_print_json(hop_forecast_plan_json(forecast, cost), err));
    else if (forecast->feasible)
        HOP_TRY(hop_forecast_print(forecast, cost, &problem->facts, stdout, err));
    return hop_forecast_require(forecast, err);
}

/* A strategy named on the command line asks for a new plan, whatever plan.file says. */
static hop_status choose_strategy(const char *name, struct hop_job *job,
                                  struct hop_problem *problem, struct hop_error *err)
{
    if (!name)
        return HOP_OK;
    free(job->plan.file);
    job->plan.file = NULL;
    return hop_strategy_find(name, &problem->strategy, err);
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    struct hop_problem problem = {0};
    struct hop_forecast forecast = {0};
    HOP_TRY_DONE(hop_plan_options_problem(&options->plan, &job, &problem, err));
    if (options->write_cost)
        HOP_TRY_DONE(write_cost(&problem.cost, options->write_cost, err));
    HOP_TRY_DONE(choose_strategy(options->plan.strategy, &job, &problem, err));
    HOP_TRY_DONE(hop_job_forecast(&job, &problem, &forecast, err));
    HOP_TRY_DONE(print(options, &problem, &forecast, err));
done:
    hop_forecast_free(&forecast);
    hop_problem_free(&problem);
    hop_job_free(&job);
    return status;
}

int hop_cmd_plan(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"write-cost", KEY_WRITE_COST, "FILE", 0,
         "Also write the cost table that was planned with (default: not written)", 0},
        {0}};
    static const struct argp_child children[] = {{&hop_plan_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "[JOB]",
        .doc = "Plans the job, or the devices of a cost table, and says what a step will take.\v"
               "Exit status 1 when nothing fits.",
        .children = children};
    struct options options = {0};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_plan_options_free(&options.plan);
    return status;
}
