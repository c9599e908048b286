/* hybridop eval: loss and task metric of a model or adapter on held-out rows, through the pipeline.
 */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/job_options.h"
#include "io/file.h"
#include "runtime/launcher.h"
#include "runtime/planning.h"
#include "runtime/run_folder.h"

struct options {
    struct hop_job_options job;
    const char *adapter, *predictions;
    bool json;
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->job;
        return 0;
    case 'a':
        options->adapter = value;
        return 0;
    case 'p':
        options->predictions = value;
        return 0;
    case 'j':
        options->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The ranks read their job from a folder; evaluating needs one only for a moment. */
static hop_status make_scratch(char *path, struct hop_error *err)
{
    if (mkdtemp(path))
        return HOP_OK;
    return hop_fail(err, HOP_IO, "%s: %s", path, strerror(errno));
}

static void remove_scratch(const char *path)
{
    static const char *const names[] = {"config.yaml", "plan.json", HOP_PREDICTIONS_FILE};
    struct hop_error ignored;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *file = NULL;
        if (hop_path_join(path, names[i], &file, &ignored) == HOP_OK)
            unlink(file);
        free(file);
    }
    rmdir(path);
}

/* Copies the answers out of the scratch folder. */
static hop_status keep_predictions(const char *scratch, const char *to, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *from = NULL;
    struct hop_map map = {0};
    HOP_TRY_DONE(hop_path_join(scratch, HOP_PREDICTIONS_FILE, &from, err));
    if (!hop_file_exists(from))
        HOP_TRY_DONE(hop_fail(err, HOP_INPUT,
                              "--predictions %s: no answers were decoded; that takes data.task "
                              "squad and data.eval_max_tokens above 0",
                              to));
    HOP_TRY_DONE(hop_map_open(from, &map, err));
    HOP_TRY_DONE(hop_file_write(to, map.data, map.size, err));
done:
    hop_map_close(&map);
    free(from);
    return status;
}

static hop_status launch(const struct options *options, const struct hop_job *job,
                         const struct hop_plan *plan, struct hop_error *err)
{
    char scratch[] = "/tmp/hybridop-eval-XXXXXX";
    struct hop_ranks ranks = {0};
    hop_status status = HOP_OK;
    HOP_TRY(make_scratch(scratch, err));
    HOP_TRY_DONE(hop_run_folder_create(scratch, job, plan, err));
    HOP_TRY_DONE(hop_ranks_assign(&job->cluster, plan, &ranks, err));
    const struct hop_launch run = {.job = job,
                                   .ranks = &ranks,
                                   .directory = scratch,
                                   .mode = HOP_RUN_EVALUATE,
                                   .json = options->json};
    HOP_TRY_DONE(hop_launch_run(&run, err));
    if (options->predictions)
        HOP_TRY_DONE(keep_predictions(scratch, options->predictions, err));
done:
    hop_ranks_free(&ranks);
    remove_scratch(scratch);
    return status;
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    hop_status status = HOP_OK;
    struct hop_job job = {0};
    struct hop_plan plan = {0};
    if (options->adapter) {
        HOP_TRY_DONE(hop_job_options_set(&options->job, "lora.init", options->adapter, err));
        HOP_TRY_DONE(hop_job_options_set(&options->job, "lora.core", "0", err));
    }
    HOP_TRY_DONE(hop_job_options_load(&options->job, &job, err));
    HOP_TRY_DONE(hop_job_plan(&job, &plan, err));
    HOP_TRY_DONE(launch(options, &job, &plan, err));
done:
    hop_plan_free(&plan);
    hop_job_free(&job);
    return status;
}

int hop_cmd_eval(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"adapter", 'a', "DIR", 0, "PEFT adapter folder; without it the bare model is measured", 0},
        {"predictions", 'p', "FILE", 0, "Write the decoded answers: {question id: text}", 0},
        {"json", 'j', NULL, 0, "Print one JSON object", 0},
        {0}};
    static const struct argp_child children[] = {{&hop_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {.options = known,
                                     .parser = parse,
                                     .args_doc = "JOB",
                                     .doc = "Loss and task metric on the job's data.eval rows.",
                                     .children = children};
    struct options options = {0};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_job_options_free(&options.job);
    return status;
}
