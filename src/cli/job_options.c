#include "cli/job_options.h"

#include <stdlib.h>

#include "base/memory.h"

enum { KEY_SET = 256, KEY_STRATEGY };

static const struct argp_option known[] = {
    {"set", KEY_SET, "KEY=VALUE", 0, "Set a key of the job, e.g. train.max_steps=100", 0},
    {"strategy", KEY_STRATEGY, "NAME", 0, "Planner and schedule, instead of the job's", 0},
    {0}};

hop_status hop_job_options_add(struct hop_job_options *options, const char *text,
                               struct hop_error *err)
{
    HOP_TRY(hop_grow(&options->overrides, &options->capacity, options->count + 1,
                     sizeof *options->overrides, err));
    HOP_TRY(hop_string_copy(&options->overrides[options->count], text, err));
    options->count++;
    return HOP_OK;
}

hop_status hop_job_options_set(struct hop_job_options *options, const char *key, const char *value,
                               struct hop_error *err)
{
    struct hop_string text = {0};
    hop_status status = hop_string_printf(&text, err, "%s=%s", key, value);
    if (status == HOP_OK)
        status = hop_job_options_add(options, hop_string_text(&text), err);
    hop_string_free(&text);
    return status;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct hop_job_options *const options = state->input;
    hop_status status = HOP_OK;
    switch (key) {
    case KEY_SET:
        status = hop_job_options_add(options, value, &options->err);
        break;
    case KEY_STRATEGY:
        status = hop_job_options_set(options, "strategy", value, &options->err);
        break;
    case ARGP_KEY_ARG:
        if (options->job)
            argp_error(state, "one job file at a time; '%s' is too much", value);
        options->job = value;
        break;
    case ARGP_KEY_END:
        if (!options->job)
            argp_error(state, "the job file is missing");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (status != HOP_OK)
        argp_failure(state, 1, 0, "%s", options->err.message);
    return 0;
}

const struct argp hop_job_argp = {.options = known, .parser = parse};

hop_status hop_job_options_load(struct hop_job_options *options, struct hop_job *job,
                                struct hop_error *err)
{
    return hop_job_load(options->job, (const char *const *)options->overrides, options->count, job,
                        err);
}

void hop_job_options_free(struct hop_job_options *options)
{
    for (size_t i = 0; i < options->count; i++)
        free(options->overrides[i]);
    free(options->overrides);
}
