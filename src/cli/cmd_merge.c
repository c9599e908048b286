/* hybridop merge: a model folder with an adapter merged into its weights. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "io/units.h"
#include "model/adapter.h"
#include "model/merge.h"

static bool parse_dtype(const char *text, enum hop_dtype *out)
{
    for (enum hop_dtype dtype = HOP_F32; dtype < HOP_DTYPE_OTHER; dtype++) {
        if (strcmp(text, hop_dtype_name(dtype)) == 0) {
            *out = dtype;
            return true;
        }
    }
    return false;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct hop_merge *const merge = state->input;
    double bytes;
    switch (key) {
    case 'm':
        merge->model = value;
        return 0;
    case 'a':
        merge->adapter = value;
        return 0;
    case 'o':
        merge->output = value;
        return 0;
    case 's':
        if (!hop_unit_parse(value, HOP_UNIT_BYTES, &bytes) || bytes < 1 || bytes > 1e18)
            argp_error(state, "--shard-size %s: expected %s", value,
                       hop_unit_example(HOP_UNIT_BYTES));
        merge->shard_bytes = (size_t)bytes;
        return 0;
    case 'd':
        merge->convert = true;
        if (!parse_dtype(value, &merge->dtype))
            argp_error(state, "--dtype %s: expected f32, bf16 or f16", value);
        return 0;
    case ARGP_KEY_END:
        if (!merge->model || !merge->adapter || !merge->output)
            argp_error(state, "%s is missing",
                       !merge->model     ? "--model"
                       : !merge->adapter ? "--adapter"
                                         : "--output");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static hop_status run(void *options, struct hop_error *err)
{
    const struct hop_merge *const merge = options;
    struct hop_merge_result result;
    HOP_TRY(hop_adapter_warn(merge->adapter, err));
    HOP_TRY(hop_merge(merge, &result, err));
    printf("%s: %zu of %zu tensors merged, %zu file%s\n", merge->output, result.merged,
           result.tensors, result.files, result.files == 1 ? "" : "s");
    return HOP_OK;
}

int hop_cmd_merge(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"model", 'm', "DIR", 0, "Hugging Face folder", 0},
        {"adapter", 'a', "DIR", 0, "PEFT adapter folder", 0},
        {"output", 'o', "DIR", 0, "New folder for the merged model", 0},
        {"shard-size", 's', "SIZE", 0, "Largest file of tensors (default 5GB)", 0},
        {"dtype", 'd', "NAME", 0, "f32, bf16 or f16 (default: as the model's tensors are)", 0},
        {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .doc = "Adds an adapter to a model's weights, for programs that know no adapters."};
    struct hop_merge merge = {.shard_bytes = 5000000000};
    return hop_command(&argp, argc, argv, &merge, run);
}
