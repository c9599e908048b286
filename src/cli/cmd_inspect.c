/* hybridop inspect: what the folder of a model or an adapter holds. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/inspect.h"

struct options {
    const char *directory;
    bool json;
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case 'j':
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->directory)
            argp_error(state, "only one folder can be named");
        options->directory = value;
        return 0;
    case ARGP_KEY_END:
        if (!options->directory)
            argp_error(state, "name the folder of a model or an adapter");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static hop_status look(const char *directory, json_t **found, struct hop_error *err)
{
    bool model, adapter;
    HOP_TRY(hop_inspect_has(directory, "config.json", &model, err));
    HOP_TRY(hop_inspect_has(directory, "adapter_config.json", &adapter, err));
    if (model)
        return hop_inspect_model(directory, found, err);
    if (adapter)
        return hop_inspect_adapter(directory, found, err);
    return hop_fail(err, HOP_INPUT,
                    "%s: holds neither config.json nor adapter_config.json; name the folder of a "
                    "model or an adapter",
                    directory);
}

/* Weights that are there but cannot be used are an error, after all else was shown. */
static hop_status verdict(const json_t *found, struct hop_error *err)
{
    const json_t *const weights = json_object_get(found, "weights");
    const char *const problem = json_string_value(json_object_get(weights, "problem"));
    return problem ? hop_fail(err, HOP_INPUT, "%s", problem) : HOP_OK;
}

static hop_status run(void *input, struct hop_error *err)
{
    const struct options *const options = input;
    json_t *found = NULL;
    HOP_TRY(look(options->directory, &found, err));
    if (options->json) {
        json_dumpf(found, stdout, JSON_INDENT(2));
        printf("\n");
    } else {
        hop_inspect_print(found);
    }
    const hop_status status = verdict(found, err);
    json_decref(found);
    return status;
}

int hop_cmd_inspect(int argc, char **argv)
{
    static const struct argp_option known[] = {{"json", 'j', NULL, 0, "Print JSON", 0}, {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "DIR",
        .doc = "What the folder of a model or an adapter holds: configuration, parameters, files, "
               "memory, tokenizer."};
    struct options options = {0};
    return hop_command(&argp, argc, argv, &options, run);
}
