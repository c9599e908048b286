/* hybridop worker: one rank of a run, started by the launcher through mpiexec. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "runtime/console.h"
#include "runtime/coordinator.h"
#include "runtime/session.h"
#include "runtime/watch.h"

struct options {
    const char *run, *watch;
    enum hop_run_mode mode;
    bool json;
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case 'r':
        options->run = value;
        return 0;
    case 'w':
        options->watch = value;
        return 0;
    case 't':
        options->mode = HOP_RUN_TRAIN;
        return 0;
    case 'e':
        options->mode = HOP_RUN_EVALUATE;
        return 0;
    case 'j':
        options->json = true;
        return 0;
    case ARGP_KEY_END:
        if (!options->run)
            argp_error(state, "--run is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* libgomp reads its environment when it is loaded, so a rank started without the policy (on another
 * host) sets it and starts over. */
static void insist_on_passive_waiting(char **argv)
{
    if (getenv("OMP_WAIT_POLICY"))
        return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    argv[0] = (char *)(uintptr_t) "worker";
    execv("/proc/self/exe", argv - 1); /* argv[-1] is the program's name */
}

static hop_status run(const struct options *options, struct hop_transport *transport,
                      const char **device, struct hop_error *err)
{
    if (transport->rank == 0)
        return hop_coordinator_run(transport, options->run, options->mode, options->json, err);
    struct hop_session session = {0};
    const hop_status status = hop_worker_run(transport, device, &session, err);
    if (status == HOP_OK)
        hop_session_free(&session);
    return status;
}

/* Says why this rank gives up, and waits a moment before it ends the run. MPICH's mpiexec drops
 * words that it has not yet passed on when a rank aborts. And ranks that wait for one another give
 * up at nearly the same time: when each has told whom it waited for, the launcher finds the rank at
 * the end of the chain. */
static void report(const struct hop_transport *transport, const char *device,
                   const struct hop_error *err)
{
    static const double forwarding = 0.2, shortest = 0.5, longest = 10;
    const double grace = transport->timeout / 4;
    if (transport->silent < 0) {
        hop_console_error(device, err);
        hop_clock_sleep(forwarding);
        return;
    }
    hop_console_silent(transport->rank, transport->silent, err);
    hop_clock_sleep(grace < shortest ? shortest : grace > longest ? longest : grace);
}

int hop_cmd_worker(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"run", 'r', "DIR", 0, "run folder (used by rank 0)", 0},
        {"watch", 'w', "NAME", 0, "socket by which a local launcher sees this rank end", 0},
        {"train", 't', NULL, 0, "train", 0},
        {"evaluate", 'e', NULL, 0, "evaluate only", 0},
        {"json", 'j', NULL, 0, "print JSON", 0},
        {0}};
    static const struct argp argp = {
        .options = known, .parser = parse, .doc = "One rank of a run; `hybridop train` starts it."};
    struct options options = {.mode = HOP_RUN_TRAIN};
    struct hop_error err = {0};
    struct hop_transport transport = {.silent = -1};
    const char *device = NULL;
    insist_on_passive_waiting(argv);
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
        return HOP_EXIT_USAGE;
    hop_status status = hop_transport_open(&transport, &err);
    if (status == HOP_OK) {
        if (options.watch)
            hop_watch_join(options.watch, transport.rank);
        hop_console_hello(transport.rank);
        hop_log_set_quiet(transport.rank != 0);
        status = run(&options, &transport, &device, &err);
    }
    if (status != HOP_OK) {
        report(&transport, device, &err);
        hop_transport_abort(hop_status_exit_code(status));
    }
    hop_transport_close(&transport);
    return 0;
}
