/* hybridop inspect: what the folder of a model or an adapter holds. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/inspect.h"
#include "io/file.h"
#include "io/json.h"

struct options {
    const char *directory;
    bool json;
};

hop_status hop_inspect_put(json_t *object, const char *key, json_t *value, struct hop_error *err)
{
    if (!value || json_object_set_new(object, key, value) != 0)
        return hop_fail(err, HOP_MEMORY, "out of memory for \"%s\" of what was found", key);
    return HOP_OK;
}

hop_status hop_inspect_append(json_t *object, const char *key, const char *text,
                              struct hop_error *err)
{
    if (json_array_append_new(json_object_get(object, key), json_string(text)) != 0)
        return hop_fail(err, HOP_MEMORY, "out of memory for \"%s\" of what was found", key);
    return HOP_OK;
}

hop_status hop_inspect_has(const char *directory, const char *name, bool *out,
                           struct hop_error *err)
{
    char *path;
    HOP_TRY(hop_path_join(directory, name, &path, err));
    *out = hop_file_exists(path);
    free(path);
    return HOP_OK;
}

hop_status hop_inspect_load(const char *directory, const char *name, json_t **out,
                            struct hop_error *err)
{
    char *path;
    hop_status status = HOP_OK;
    HOP_TRY(hop_path_join(directory, name, &path, err));
    *out = NULL;
    if (hop_file_exists(path))
        status = hop_json_load(path, out, err);
    free(path);
    return status;
}

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
