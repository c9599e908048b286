/* The mpiexec command line of a run. */
#ifndef HOP_RUNTIME_LAUNCH_COMMAND_H
#define HOP_RUNTIME_LAUNCH_COMMAND_H

#include <limits.h>

#include "runtime/launcher.h"

/* A NULL-terminated argument list that owns its strings. */
struct hop_arguments {
    char **items;
    size_t count, capacity;
};

/* Local runs: `mpiexec OPTIONS -n RANKS hybridop worker --run DIR`; with hosts one section a rank,
 * so that rank r starts on its device's host. Options are those of the MPI library this program was
 * built with. */
hop_status hop_launch_command(const struct hop_launch *launch, const char *watch,
                              struct hop_arguments *out, struct hop_error *err);
/* Where this program is. */
hop_status hop_own_path(char path[PATH_MAX], struct hop_error *err);
void hop_arguments_free(struct hop_arguments *arguments);

#endif
