#include "runtime/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"
#include "report/progress.h"
#include "runtime/console.h"
#include "runtime/launch_command.h"
#include "runtime/watch.h"

enum { LINE_LIMIT = 8192, TAIL_LINES = 12 };

/* A rank that gave up waiting for another. */
struct silence {
    bool reported;
    int peer;
    char text[1024];
};

/* A run being followed. */
struct follow {
    const struct hop_launch *launch;
    pid_t child;
    int errors, results;       /* reading ends of mpiexec's stderr and stdout, -1: closed */
    struct hop_string printed; /* on stdout so far */
    char line[LINE_LIMIT];
    size_t length;
    struct hop_progress progress;
    long *pids;               /* (ranks), 0: not yet heard of */
    struct silence *silences; /* (ranks) */
    int first_silence;        /* rank that reported first, -1: none */
    bool failed;              /* a rank said why */
    int exit_code;            /* that it gave */
    char reason[1024];
    int dead_rank;              /* mpiexec named it, or -1 */
    long dead_pid;              /* mpiexec named it, or 0 */
    char tail[TAIL_LINES][256]; /* last lines that were not ours */
    int tail_count;
    int interrupts;         /* seen and acted upon */
    bool cut_off;           /* by the user, in the middle of a step */
    struct hop_watch watch; /* of the local ranks */
};

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupts++;
}

/* Starting */

static void run_child(const struct hop_arguments *arguments, int results, int errors)
{
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0); /* Ctrl-C reaches the launcher only, which ends the run in order */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(nothing, STDIN_FILENO);
    dup2(results, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    /* Idle threads of one rank must not burn the core another rank computes on. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    execvp(arguments->items[0], arguments->items);
    fprintf(stderr,
            HOP_CONSOLE_MARK "error 1 %s: %s; install an MPI library or set HYBRIDOP_MPIEXEC\n",
            arguments->items[0], strerror(errno));
    _exit(127);
}

static hop_status open_pipe(int *reading, int *writing, struct hop_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return hop_fail(err, HOP_IO, "pipe: %s", strerror(errno));
    *reading = ends[0];
    *writing = ends[1];
    return HOP_OK;
}

static hop_status start(struct follow *follow, struct hop_error *err)
{
    struct hop_arguments arguments = {0};
    int errors = -1, results = -1;
    HOP_TRY(open_pipe(&follow->errors, &errors, err));
    HOP_TRY(open_pipe(&follow->results, &results, err));
    HOP_TRY(hop_launch_command(follow->launch, &arguments, err));
    fflush(NULL);
    follow->child = fork();
    if (follow->child == 0)
        run_child(&arguments, results, errors);
    close(errors);
    close(results);
    hop_arguments_free(&arguments);
    return follow->child < 0 ? hop_fail(err, HOP_IO, "fork: %s", strerror(errno)) : HOP_OK;
}

/* Lines */

static bool after(const char *line, const char *prefix, const char **rest)
{
    const size_t n = strlen(prefix);
    if (strncmp(line, prefix, n) != 0)
        return false;
    *rest = line + n;
    return true;
}

static bool is_local(const struct follow *follow, int rank)
{
    const int32_t device = follow->launch->ranks->device_of[rank];
    return device < 0 || hop_device_is_local(&follow->launch->job->cluster.devices[device]);
}

static void take_hello(struct follow *follow, const char *text)
{
    int rank;
    long pid;
    if (sscanf(text, "%d %*s %ld", &rank, &pid) == 2 && rank >= 0 &&
        rank < follow->launch->ranks->count) {
        follow->pids[rank] = pid;
        if (is_local(follow, rank))
            hop_watch_add(&follow->watch, pid, rank);
    }
}

/* The first error is the cause; later ones are ranks that noticed it. */
static void take_error(struct follow *follow, const char *text)
{
    char *rest;
    const long code = strtol(text, &rest, 10);
    if (follow->failed)
        return;
    follow->failed = true;
    follow->exit_code = (int)code;
    snprintf(follow->reason, sizeof follow->reason, "%s", *rest == ' ' ? rest + 1 : rest);
}

static void take_silence(struct follow *follow, const char *text)
{
    int rank, peer, length = 0;
    if (sscanf(text, "%d %d %n", &rank, &peer, &length) != 2 || length == 0 || rank < 0 ||
        rank >= follow->launch->ranks->count || peer < 0 || peer >= follow->launch->ranks->count)
        return;
    struct silence *const silence = &follow->silences[rank];
    silence->reported = true;
    silence->peer = peer;
    snprintf(silence->text, sizeof silence->text, "%s", text + length);
    if (follow->first_silence < 0)
        follow->first_silence = rank;
}

static void take_own_line(struct follow *follow, const char *text)
{
    const char *rest;
    struct hop_progress_line progress;
    if (after(text, "hello ", &rest))
        take_hello(follow, rest);
    else if (after(text, "error ", &rest))
        take_error(follow, rest);
    else if (after(text, "silent ", &rest))
        take_silence(follow, rest);
    else if (after(text, "note ", &rest)) {
        hop_progress_break(&follow->progress);
        hop_note("%s", rest);
    } else if (after(text, "progress ", &rest) && hop_console_parse_progress(rest, &progress))
        hop_progress_show(&follow->progress, &progress);
}

/* What Open MPI ("process rank 2 with PID ...") and MPICH ("PID 123 RUNNING AT ...") say of a dead
 * rank. */
static void take_foreign_line(struct follow *follow, const char *line)
{
    const char *found = strstr(line, "process rank ");
    if (found)
        sscanf(found, "process rank %d", &follow->dead_rank);
    found = strstr(line, "PID ");
    if (found && strstr(line, "RUNNING AT"))
        sscanf(found, "PID %ld", &follow->dead_pid);
    char *const kept = follow->tail[follow->tail_count++ % TAIL_LINES];
    const size_t n = strnlen(line, sizeof follow->tail[0] - 1);
    memcpy(kept, line, n);
    kept[n] = '\0';
}

static void take_line(struct follow *follow)
{
    /* Several ranks share the pipe: a mark may stand behind an unfinished foreign line. */
    const char *const own = strstr(follow->line, HOP_CONSOLE_MARK);
    if (own)
        take_own_line(follow, own + strlen(HOP_CONSOLE_MARK));
    else if (follow->line[0])
        take_foreign_line(follow, follow->line);
}

static void take_bytes(struct follow *follow, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            follow->line[follow->length] = '\0';
            take_line(follow);
            follow->length = 0;
        } else if (follow->length + 1 < LINE_LIMIT)
            follow->line[follow->length++] = bytes[i];
    }
}

/* Interrupts */

/* A request that no run has seen must not stop the next one. */
static void forget_request(const struct hop_launch *launch)
{
    struct hop_error ignored = {0};
    char *path = NULL;
    if (hop_path_join(launch->directory, HOP_STOP_FILE, &path, &ignored) == HOP_OK)
        unlink(path);
    free(path);
}

static void ask_to_stop(struct follow *follow)
{
    struct hop_error err = {0};
    char *path = NULL;
    hop_progress_break(&follow->progress);
    if (hop_path_join(follow->launch->directory, HOP_STOP_FILE, &path, &err) == HOP_OK &&
        hop_file_write(path, "", 0, &err) == HOP_OK)
        hop_note("stopping after the current step; interrupt again to end at once");
    else
        hop_log_error(&err);
    free(path);
}

static void act_on_interrupts(struct follow *follow)
{
    while (follow->interrupts < interrupts) {
        follow->interrupts++;
        if (follow->interrupts == 1 && follow->launch->mode == HOP_RUN_TRAIN)
            ask_to_stop(follow);
        else {
            follow->cut_off = true;
            kill(-follow->child, SIGTERM);
        }
    }
}

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* Bytes read, 0 when there are none now; the end is closed when there will be none. */
static size_t take_ready(int *end, char *bytes, size_t size)
{
    const ssize_t n = read(*end, bytes, size);
    if (n == 0 || (n < 0 && errno != EINTR))
        close_end(end);
    return n > 0 ? (size_t)n : 0;
}

static hop_status follow_output(struct follow *follow, struct hop_error *err)
{
    char bytes[4096];
    while (follow->errors >= 0 || follow->results >= 0) {
        struct pollfd ready[] = {{.fd = follow->errors, .events = POLLIN},
                                 {.fd = follow->results, .events = POLLIN}};
        const int n = poll(ready, 2, 200);
        act_on_interrupts(follow);
        if (n > 0 && ready[0].revents)
            take_bytes(follow, bytes, take_ready(&follow->errors, bytes, sizeof bytes));
        if (n > 0 && ready[1].revents) {
            const size_t got = take_ready(&follow->results, bytes, sizeof bytes);
            HOP_TRY(hop_string_append(&follow->printed, bytes, got, err));
        }
    }
    return HOP_OK;
}

/* Ending */

/* Open MPI names the rank. MPICH gives the process id of any of those that are dead by then, so
 * that of local ones the order in which they ended tells more. */
static int find_dead_rank(const struct follow *follow)
{
    if (follow->dead_rank >= 0)
        return follow->dead_rank;
    const int first = hop_watch_first(&follow->watch);
    for (int r = 0; first < 0 && follow->dead_pid && r < follow->launch->ranks->count; r++)
        if (follow->pids[r] == follow->dead_pid)
            return r;
    return first;
}

/* MPICH's mpiexec speaks of a dead rank on stdout. */
static void search_printed(struct follow *follow)
{
    char *rest = follow->printed.data;
    for (char *line; (line = strtok_r(rest, "\n", &rest)) != NULL;)
        take_foreign_line(follow, line);
}

static void print_tail(const struct follow *follow)
{
    const int kept = follow->tail_count < TAIL_LINES ? follow->tail_count : TAIL_LINES;
    for (int i = follow->tail_count - kept; i < follow->tail_count; i++)
        fprintf(stderr, "  %s\n", follow->tail[i % TAIL_LINES]);
}

static hop_status explain_death(struct follow *follow, int status, struct hop_error *err)
{
    if (follow->cut_off)
        return hop_fail(err, HOP_PEER,
                        "ended by an interrupt; continue from the last checkpoint with "
                        "--resume");
    search_printed(follow);
    const int rank = find_dead_rank(follow);
    const int32_t device = rank >= 0 && rank < follow->launch->ranks->count
                               ? follow->launch->ranks->device_of[rank]
                               : -1;
    if (device >= 0)
        return hop_fail(
            err, HOP_PEER,
            "device %s (rank %d) died; the run ended. Continue from the last checkpoint with "
            "--resume",
            follow->launch->job->cluster.devices[device].name, rank);
    print_tail(follow);
    return hop_fail(err, HOP_PEER, "mpiexec ended with status %d (its last words stand above)",
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static hop_status reported(const struct follow *follow, struct hop_error *err)
{
    return hop_fail(err, follow->exit_code == 2 ? HOP_INPUT : HOP_PEER, "%s", follow->reason);
}

/* From the first that gave up along who waited for whom to the one that did not report: it is
 * stuck. */
static hop_status explain_silence(const struct follow *follow, struct hop_error *err)
{
    const struct silence *silence = &follow->silences[follow->first_silence];
    for (int i = 0; i < follow->launch->ranks->count; i++)
        if (follow->silences[silence->peer].reported)
            silence = &follow->silences[silence->peer];
    return hop_fail(err, HOP_PEER, "%s", silence->text);
}

static hop_status conclude(struct follow *follow, struct hop_error *err)
{
    int status = 0;
    while (waitpid(follow->child, &status, 0) < 0 && errno == EINTR)
        continue;
    hop_progress_break(&follow->progress);
    if (follow->failed)
        return reported(follow, err);
    if (follow->first_silence >= 0)
        return explain_silence(follow, err);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        fwrite(hop_string_text(&follow->printed), 1, follow->printed.length, stdout);
        return HOP_OK;
    }
    return explain_death(follow, status, err);
}

static void watch_terminal(struct hop_progress *progress)
{
    struct winsize size;
    progress->terminal = isatty(STDERR_FILENO);
    progress->width = 80;
    if (progress->terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        progress->width = size.ws_col;
}

hop_status hop_launch_run(const struct hop_launch *launch, struct hop_error *err)
{
    hop_status status = HOP_OK;
    const struct sigaction action = {.sa_handler = on_interrupt};
    struct sigaction old_interrupt, old_terminate;
    struct follow *follow = NULL;
    HOP_TRY(hop_calloc(&follow, 1, sizeof *follow, err));
    follow->launch = launch;
    follow->dead_rank = -1;
    follow->first_silence = -1;
    hop_watch_open(&follow->watch);
    follow->errors = follow->results = -1;
    watch_terminal(&follow->progress);
    interrupts = 0;
    forget_request(launch);
    sigaction(SIGINT, &action, &old_interrupt);
    sigaction(SIGTERM, &action, &old_terminate);
    HOP_TRY_DONE(hop_calloc(&follow->pids, (size_t)launch->ranks->count, sizeof(long), err));
    HOP_TRY_DONE(
        hop_calloc(&follow->silences, (size_t)launch->ranks->count, sizeof *follow->silences, err));
    HOP_TRY_DONE(start(follow, err));
    HOP_TRY_DONE(follow_output(follow, err));
    HOP_TRY_DONE(conclude(follow, err));
done:
    forget_request(launch);
    sigaction(SIGINT, &old_interrupt, NULL);
    sigaction(SIGTERM, &old_terminate, NULL);
    close_end(&follow->errors);
    close_end(&follow->results);
    hop_string_free(&follow->printed);
    hop_watch_close(&follow->watch);
    free(follow->pids);
    free(follow->silences);
    free(follow);
    return status;
}
