/* Starting, watching and ending programs. */
#include "support.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const char *program(void)
{
    const char *const path = getenv("HYBRIDOP");
    if (!path)
        fail_msg("HYBRIDOP is not set; it names the program under test");
    return path;
}

static const char *join(const char *const *arguments)
{
    const char *line = "hybridop";
    for (; *arguments; arguments++)
        line = text("%s '%s'", line, *arguments);
    return line;
}

static void become(const char *path, const char *const *arguments, const char *out, const char *err)
{
    enum { LIMIT = 128 };
    const char *all[LIMIT] = {path};
    for (int i = 0; arguments[i] && i + 2 < LIMIT; i++)
        all[i + 1] = arguments[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(all[0], (char *const *)(uintptr_t)all);
    fprintf(stderr, "%s: %s\n", all[0], strerror(errno));
    _exit(127);
}

struct process start_program(const char *const *arguments)
{
    static int number;
    const char *const path = program();
    struct process process = {.running = true, .started = hop_clock_now()};
    process.command = join(arguments);
    process.out_path = scratch("out-%d", number);
    process.err_path = scratch("err-%d", number++);
    /* Processes whose parent died come to this one, so that none escapes unseen. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    process.pid = fork();
    if (process.pid == 0)
        become(path, arguments, process.out_path, process.err_path);
    if (process.pid < 0)
        fail_msg("fork: %s", strerror(errno));
    return process;
}

static void take_end(struct process *process, int status)
{
    process->running = false;
    process->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    process->seconds = hop_clock_now() - process->started;
    process->out = read_text(process->out_path);
    process->err = read_text(process->err_path);
}

bool wait_program(struct process *process, double seconds)
{
    const double end = hop_clock_now() + seconds;
    int status;
    while (process->running) {
        const pid_t found = waitpid(process->pid, &status, WNOHANG);
        if (found == process->pid)
            take_end(process, status);
        else if (found < 0)
            fail_msg("waitpid: %s", strerror(errno));
        else if (hop_clock_now() > end)
            return false;
        else
            hop_clock_sleep(5e-3);
    }
    return true;
}

struct process run_program(double seconds, const char *const *arguments)
{
    struct process process = start_program(arguments);
    if (wait_program(&process, seconds))
        return process;
    kill_tree(&process);
    fail_msg("still running after %.0f s: %s\n%s", seconds, process.command, process.err);
    return process;
}

/* /proc */

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    int parent = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *const file = fopen(path, "r");
    if (!file)
        return -1;
    /* The name in parentheses may hold anything: what counts stands behind the last one. */
    if (fgets(line, sizeof line, file) && strrchr(line, ')'))
        sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
    fclose(file);
    return parent;
}

static bool is_below(pid_t pid, pid_t root)
{
    for (int depth = 0; pid > 1 && depth < 32; depth++, pid = parent_of(pid))
        if (pid == root)
            return true;
    return false;
}

/* Processes below root, itself included. */
static int list_tree(pid_t root, pid_t *out, int limit)
{
    DIR *const proc = opendir("/proc");
    int n = 0;
    for (const struct dirent *entry; proc && (entry = readdir(proc)) && n < limit;) {
        const pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (pid && is_below(pid, root))
            out[n++] = pid;
    }
    if (proc)
        closedir(proc);
    return n;
}

/* The rank in the environment that mpiexec gave the process, or -1. */
static int rank_of(pid_t pid)
{
    static const char *const keys[] = {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="};
    static char block[1 << 16];
    char path[64];
    int rank = -1;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *const file = fopen(path, "r");
    if (!file)
        return -1;
    const size_t n = fread(block, 1, sizeof block - 1, file);
    fclose(file);
    block[n] = '\0';
    for (const char *at = block; at < block + n; at += strlen(at) + 1)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strncmp(at, keys[k], strlen(keys[k])) == 0)
                rank = atoi(at + strlen(keys[k]));
    return rank;
}

pid_t find_rank(const struct process *process, int rank)
{
    enum { LIMIT = 256 };
    pid_t pids[LIMIT];
    for (int attempt = 0; attempt < 400; attempt++) {
        const int n = list_tree(process->pid, pids, LIMIT);
        for (int i = 0; i < n; i++)
            if (rank_of(pids[i]) == rank)
                return pids[i];
        hop_clock_sleep(10e-3);
    }
    return 0;
}

void kill_tree(struct process *process)
{
    enum { LIMIT = 256 };
    pid_t pids[LIMIT];
    const int n = list_tree(process->pid, pids, LIMIT);
    for (int i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
    wait_program(process, 10);
}

double cpu_seconds(pid_t pid)
{
    char path[64], line[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *const file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    if (!fgets(line, sizeof line, file) || !strrchr(line, ')') ||
        sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
               &user, &system) != 2)
        fail_msg("%s: not understood", path);
    fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

void assert_all_gone(double seconds)
{
    enum { LIMIT = 256 };
    pid_t pids[LIMIT];
    const double end = hop_clock_now() + seconds;
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        const int n = list_tree(getpid(), pids, LIMIT);
        if (n <= 1)
            return;
        if (hop_clock_now() > end)
            fail_msg("%d processes are left after %.1f s, one of them %d", n - 1, seconds,
                     pids[0] == getpid() ? pids[1] : pids[0]);
        hop_clock_sleep(20e-3);
    }
}

/* Checks */

void assert_success(const struct process *process)
{
    if (process->status == 0)
        return;
    /* fail_msg keeps the first 1024 characters; the reason is at the end. */
    fputs(process->err, stderr);
    fail_msg("exit status %d, expected 0: %s", process->status, process->command);
}

static int count_lines_with(const char *whole, const char *prefix)
{
    int n = 0;
    for (const char *line = whole; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        n += strncmp(line, prefix, strlen(prefix)) == 0;
    }
    return n;
}

void check_refused(const struct process *process, int status, const char *const *parts)
{
    static const char prefix[] = "hybridop: error: ";
    if (process->status != status)
        fail_msg("exit status %d, expected %d: %s\n%s", process->status, status, process->command,
                 process->err);
    if (count_lines_with(process->err, prefix) != 1)
        fail_msg("%d lines with \"%s\", expected 1: %s\n%s", count_lines_with(process->err, prefix),
                 prefix, process->command, process->err);
    const char *const line = strstr(process->err, prefix);
    const char *const error = text("%.*s", (int)strcspn(line, "\n"), line);
    for (; *parts; parts++)
        assert_holds(process->command, error, *parts);
}
