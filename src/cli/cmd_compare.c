/* hybridop compare: all strategies on the same devices, the fastest first, and which to run. */
#include <argp.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/plan_options.h"
#include "report/recommend.h"

struct options {
    struct hop_plan_options plan;
    const char *trace;
};

enum { KEY_TRACE = 512 };

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->plan;
        return 0;
    case KEY_TRACE:
        options->trace = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Output */

static json_t *answer_json(const struct hop_comparison *comparison,
                           const struct hop_forecast *chosen, const char *reason,
                           const struct hop_cost_table *cost)
{
    return json_pack("{s:o, s:s, s:o}", "recommended",
                     chosen ? hop_forecast_simulation_json(chosen, cost) : json_null(), "reason",
                     reason, "entries", hop_comparison_json(comparison, cost));
}

static hop_status print_table(const struct hop_comparison *comparison,
                              const struct hop_forecast *chosen, const char *reason,
                              struct hop_error *err)
{
    HOP_TRY(hop_forecast_compare(comparison->forecasts, comparison->count, stdout, err));
    if (chosen)
        printf("\nrecommended: %s\n", reason);
    return HOP_OK;
}

static hop_status print_answer(const struct options *options,
                               const struct hop_comparison *comparison,
                               const struct hop_forecast *chosen, const char *reason,
                               const struct hop_cost_table *cost, struct hop_error *err)
{
    if (options->plan.json)
        return hop_print_json(answer_json(comparison, chosen, reason, cost), err);
    return print_table(comparison, chosen, reason, err);
}

/* Nothing fits: the reason is the refusal of the first. */
static hop_status say_refusal(const struct hop_comparison *comparison, struct hop_string *reason,
                              struct hop_error *err)
{
    struct hop_error refusal;
    if (hop_comparison_require(comparison, &refusal) == HOP_OK)
        return HOP_OK;
    return hop_string_printf(reason, err, "%s", refusal.message);
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    const char *const names = options->plan.strategy ? options->plan.strategy : "all";
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    struct hop_problem problem = {0};
    struct hop_comparison comparison = {0};
    struct hop_string reason = {0};
    const struct hop_forecast *chosen;
    HOP_TRY_DONE(hop_plan_options_problem(&options->plan, &job, &problem, err));
    HOP_TRY_DONE(hop_comparison_plan(names, &problem, &comparison, err));
    hop_forecasts_sort(comparison.forecasts, comparison.count);
    HOP_TRY_DONE(hop_recommend(comparison.forecasts, comparison.count, &problem.cost, &chosen,
                               &reason, err));
    HOP_TRY_DONE(say_refusal(&comparison, &reason, err));
    HOP_TRY_DONE(
        print_answer(options, &comparison, chosen, hop_string_text(&reason), &problem.cost, err));
    if (options->trace && chosen)
        HOP_TRY_DONE(hop_comparison_trace(options->trace, chosen, &problem, err));
    HOP_TRY_DONE(hop_comparison_require(&comparison, err));
done:
    hop_string_free(&reason);
    hop_comparison_free(&comparison);
    hop_problem_free(&problem);
    hop_job_free(&job);
    return status;
}

int hop_cmd_compare(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"trace", KEY_TRACE, "FILE", 0,
         "Write Chrome trace events of the recommended one (default: not written)", 0},
        {0}};
    static const struct argp_child children[] = {{&hop_plan_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "[JOB]",
        .doc = "Which strategy suits these devices? Plays a step of all of them (--strategy: of "
               "some), with and without the BP-free devices, and recommends the fastest that "
               "trains every adapter.\v"
               "Exit status 1 when nothing fits. `simulate --plan` plays a plan of your own.",
        .children = children};
    struct options options = {0};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_plan_options_free(&options.plan);
    return status;
}
