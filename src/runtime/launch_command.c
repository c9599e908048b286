#include "runtime/launch_command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/string.h"
#include "runtime/transport.h"

static hop_status add(struct hop_arguments *arguments, const char *text, struct hop_error *err)
{
    HOP_TRY(hop_grow(&arguments->items, &arguments->capacity, arguments->count + 2,
                     sizeof *arguments->items, err));
    HOP_TRY(hop_string_copy(&arguments->items[arguments->count], text, err));
    arguments->items[++arguments->count] = NULL;
    return HOP_OK;
}

static hop_status add_all(struct hop_arguments *arguments, const char *const *texts,
                          struct hop_error *err)
{
    for (; *texts; texts++)
        HOP_TRY(add(arguments, *texts, err));
    return HOP_OK;
}

void hop_arguments_free(struct hop_arguments *arguments)
{
    for (size_t i = 0; i < arguments->count; i++)
        free(arguments->items[i]);
    free(arguments->items);
    *arguments = (struct hop_arguments){0};
}

/* More ranks than cores are fine (idle ranks sleep), and each rank brings threads of its own, so
 * Open MPI must neither refuse nor bind. */
static hop_status add_options(struct hop_arguments *arguments, struct hop_error *err)
{
    static const char *const open_mpi[] = {"--oversubscribe", "--bind-to", "none", NULL};
    if (!hop_transport_is_open_mpi())
        return HOP_OK;
    HOP_TRY(add_all(arguments, open_mpi, err));
    return geteuid() == 0 ? add(arguments, "--allow-run-as-root", err) : HOP_OK;
}

hop_status hop_own_path(char path[PATH_MAX], struct hop_error *err)
{
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n < 0)
        return hop_fail(err, HOP_IO, "/proc/self/exe: %s", strerror(errno));
    path[n] = '\0';
    return HOP_OK;
}

static hop_status add_program(struct hop_arguments *arguments, const struct hop_launch *launch,
                              const char *watch, struct hop_error *err)
{
    char self[PATH_MAX];
    HOP_TRY(hop_own_path(self, err));
    HOP_TRY(add(arguments, self, err));
    HOP_TRY(add(arguments, "worker", err));
    HOP_TRY(add(arguments, launch->mode == HOP_RUN_TRAIN ? "--train" : "--evaluate", err));
    if (launch->json)
        HOP_TRY(add(arguments, "--json", err));
    HOP_TRY(add(arguments, "--watch", err));
    HOP_TRY(add(arguments, watch, err));
    HOP_TRY(add(arguments, "--run", err));
    return add(arguments, launch->directory, err);
}

static hop_status add_count(struct hop_arguments *arguments, int32_t n, struct hop_error *err)
{
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    HOP_TRY(add(arguments, "-n", err));
    return add(arguments, text, err);
}

static const struct hop_device *device_of(const struct hop_launch *launch, int32_t rank)
{
    const int32_t device = launch->ranks->device_of[rank];
    return device < 0 ? NULL : &launch->job->cluster.devices[device];
}

static bool all_local(const struct hop_launch *launch)
{
    for (int32_t r = 0; r < launch->ranks->count; r++)
        if (device_of(launch, r) && !hop_device_is_local(device_of(launch, r)))
            return false;
    return true;
}

static hop_status add_rank(struct hop_arguments *arguments, const struct hop_launch *launch,
                           int32_t rank, const char *watch, struct hop_error *err)
{
    const struct hop_device *const device = device_of(launch, rank);
    const bool local = !device || hop_device_is_local(device);
    if (rank > 0)
        HOP_TRY(add(arguments, ":", err));
    HOP_TRY(add_count(arguments, 1, err));
    HOP_TRY(add(arguments, "-host", err));
    HOP_TRY(add(arguments, local ? "localhost" : device->host, err));
    return add_program(arguments, launch, watch, err);
}

hop_status hop_launch_command(const struct hop_launch *launch, const char *watch,
                              struct hop_arguments *out, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_arguments arguments = {0};
    const char *const chosen = getenv("HYBRIDOP_MPIEXEC");
    HOP_TRY_DONE(add(&arguments, chosen ? chosen : HOP_MPIEXEC, err));
    HOP_TRY_DONE(add_options(&arguments, err));
    if (all_local(launch)) {
        HOP_TRY_DONE(add_count(&arguments, launch->ranks->count, err));
        HOP_TRY_DONE(add_program(&arguments, launch, watch, err));
    } else {
        for (int32_t r = 0; r < launch->ranks->count; r++)
            HOP_TRY_DONE(add_rank(&arguments, launch, r, watch, err));
    }
    *out = arguments;
    return HOP_OK;
done:
    hop_arguments_free(&arguments);
    return status;
}
