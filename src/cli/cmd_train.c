/* hybridop train: plans, starts one process a device, fine-tunes, writes the run folder. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/job_options.h"
#include "runtime/launcher.h"
#include "runtime/planning.h"
#include "runtime/run_folder.h"

struct options {
    struct hop_job_options job;
    bool dry_run, resume;
};

enum { KEY_RESUME = 512, KEY_DRY_RUN, KEY_KEYS };

/* Sections are one level deep. */
static void print_fields(const struct hop_field *fields, const char *section)
{
    for (; fields->key; fields++) {
        const int indent = 24 - (int)strlen(section);
        if (fields->type == HOP_FIELD_SECTION)
            print_fields(fields->fields, fields->key);
        else if (section[0])
            printf("  %s.%-*s %s\n", section, indent - 1, fields->key, fields->help);
        else
            printf("  %-*s %s\n", indent, fields->key, fields->help);
    }
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    (void)value;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->job;
        return 0;
    case KEY_RESUME:
        options->resume = true;
        return 0;
    case KEY_DRY_RUN:
        options->dry_run = true;
        return 0;
    case KEY_KEYS:
        printf("Keys of a job file:\n\n");
        print_fields(hop_job_fields, "");
        exit(0);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static hop_status launch(const struct hop_job *job, const struct hop_plan *plan,
                         struct hop_error *err)
{
    struct hop_ranks ranks;
    HOP_TRY(hop_run_folder_create(job->output, job, plan, err));
    HOP_TRY(hop_ranks_assign(&job->cluster, plan, &ranks, err));
    const struct hop_launch run = {
        .job = job, .ranks = &ranks, .directory = job->output, .mode = HOP_RUN_TRAIN};
    const hop_status status = hop_launch_run(&run, err);
    hop_ranks_free(&ranks);
    if (status == HOP_OK)
        hop_note("run folder %s, adapter in %s/adapter, timeline in %s/trace.json (open it at "
                 "https://ui.perfetto.dev)",
                 job->output, job->output, job->output);
    return status;
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    struct hop_problem problem = {0};
    struct hop_forecast forecast = {0};
    FILE *const to = options->dry_run ? stdout : stderr;
    if (options->resume)
        HOP_TRY_DONE(hop_job_options_set(&options->job, "resume", "true", err));
    HOP_TRY_DONE(hop_job_options_load(&options->job, &job, err));
    HOP_TRY_DONE(hop_problem_create(&job, &problem, err));
    HOP_TRY_DONE(hop_job_forecast(&job, &problem, &forecast, err));
    HOP_TRY_DONE(hop_forecast_require(&forecast, err));
    HOP_TRY_DONE(hop_forecast_print(&forecast, hop_request_cost(&problem.request, &forecast.plan),
                                    &problem.facts, to, err));
    hop_job_follow(&job, &problem, &forecast.plan);
    if (!options->dry_run)
        HOP_TRY_DONE(launch(&job, &forecast.plan, err));
done:
    hop_forecast_free(&forecast);
    hop_problem_free(&problem);
    hop_job_free(&job);
    return status;
}

int hop_cmd_train(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"resume", KEY_RESUME, NULL, 0, "Continue from the last checkpoint of the run folder", 0},
        {"dry-run", KEY_DRY_RUN, NULL, 0, "Print the plan and stop", 0},
        {"keys", KEY_KEYS, NULL, 0, "List all keys of a job file", 0},
        {0}};
    static const struct argp_child children[] = {{&hop_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "JOB",
        .doc = "Fine-tunes as the job file says, one process a device, started through mpiexec.\v"
               "Ctrl-C ends the run after the current step and saves a checkpoint.",
        .children = children};
    struct options options = {0};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_job_options_free(&options.job);
    return status;
}
