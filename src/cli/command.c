#include "base/log.h"
#include "cli/commands.h"

int hop_command(const struct argp *argp, int argc, char **argv, void *options,
                hop_status (*run)(void *options, struct hop_error *err))
{
    struct hop_error err = {0};
    argp_err_exit_status = HOP_EXIT_USAGE;
    if (argp_parse(argp, argc, argv, 0, NULL, options) != 0)
        return HOP_EXIT_USAGE;
    const hop_status status = run(options, &err);
    if (status != HOP_OK)
        hop_log_error(&err);
    return hop_status_exit_code(status);
}
