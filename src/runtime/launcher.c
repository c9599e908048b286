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
#include "runtime/diagnosis.h"
#include "runtime/launch_command.h"

enum { LINE_LIMIT = 8192 };

/* A run being followed. */
struct follow {
    const struct hop_launch *launch;
    pid_t child;
    int errors, results;       /* reading ends of mpiexec's stderr and stdout, -1: closed */
    struct hop_string printed; /* on stdout so far */
    char line[LINE_LIMIT];
    size_t length;
    struct hop_progress progress;
    struct hop_diagnosis *diagnosis;
    int interrupts; /* seen and acted upon */
    bool cut_off;   /* by the user, in the middle of a step */
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
    /* Open MPI puts a large message into the connection whole, and what the other side needs in
     * order to send its own would stand behind it: with two of them both directions move at once.
     */
    setenv("OMPI_MCA_btl_tcp_links", "2", 0);
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
    HOP_TRY(hop_launch_command(follow->launch, hop_diagnosis_watch_name(follow->diagnosis),
                               &arguments, err));
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

static void take_own_line(struct follow *follow, const char *text)
{
    const char *rest;
    struct hop_progress_line progress;
    if (after(text, "hello ", &rest))
        hop_diagnosis_hello(follow->diagnosis, rest);
    else if (after(text, "error ", &rest))
        hop_diagnosis_error(follow->diagnosis, rest);
    else if (after(text, "silent ", &rest))
        hop_diagnosis_silent(follow->diagnosis, rest);
    else if (after(text, "note ", &rest)) {
        hop_progress_break(&follow->progress);
        hop_note("%s", rest);
    } else if (after(text, "progress ", &rest) && hop_console_parse_progress(rest, &progress))
        hop_progress_show(&follow->progress, &progress);
}

static void take_line(struct follow *follow)
{
    /* Several ranks share the pipe: a mark may stand behind an unfinished foreign line. */
    const char *const own = strstr(follow->line, HOP_CONSOLE_MARK);
    if (own)
        take_own_line(follow, own + strlen(HOP_CONSOLE_MARK));
    else if (follow->line[0])
        hop_diagnosis_foreign(follow->diagnosis, follow->line);
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

/* MPICH's mpiexec speaks of a dead rank on stdout. */
static void search_printed(struct follow *follow)
{
    char *rest = follow->printed.data;
    for (char *line; (line = strtok_r(rest, "\n", &rest)) != NULL;)
        hop_diagnosis_foreign(follow->diagnosis, line);
}

static hop_status conclude(struct follow *follow, struct hop_error *err)
{
    int status = 0;
    while (waitpid(follow->child, &status, 0) < 0 && errno == EINTR)
        continue;
    hop_progress_break(&follow->progress);
    const bool reported = hop_diagnosis_reported(follow->diagnosis);
    /* MPICH's mpiexec ends with status 0 when it is told to end. */
    if (!reported && follow->cut_off)
        return hop_fail(err, HOP_PEER,
                        "ended by an interrupt; continue from the last checkpoint with --resume");
    if (!reported && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        fwrite(hop_string_text(&follow->printed), 1, follow->printed.length, stdout);
        return HOP_OK;
    }
    search_printed(follow);
    return hop_diagnosis_conclude(follow->diagnosis, status, err);
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
    follow->errors = follow->results = -1;
    watch_terminal(&follow->progress);
    interrupts = 0;
    forget_request(launch);
    sigaction(SIGINT, &action, &old_interrupt);
    sigaction(SIGTERM, &action, &old_terminate);
    HOP_TRY_DONE(hop_diagnosis_create(launch, &follow->diagnosis, err));
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
    hop_diagnosis_free(follow->diagnosis);
    free(follow);
    return status;
}
