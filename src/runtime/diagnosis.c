#include "runtime/diagnosis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/memory.h"
#include "runtime/watch.h"

enum { TAIL_LINES = 12 };

/* A rank that gave up waiting for another. */
struct silence {
    bool reported;
    int peer;
    char text[1024];
};

struct hop_diagnosis {
    const struct hop_launch *launch;
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
    struct hop_watch watch; /* of the local ranks */
};

hop_status hop_diagnosis_create(const struct hop_launch *launch, struct hop_diagnosis **out,
                                struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_diagnosis *diagnosis;
    const size_t ranks = (size_t)launch->ranks->count;
    HOP_TRY(hop_calloc(&diagnosis, 1, sizeof *diagnosis, err));
    diagnosis->launch = launch;
    diagnosis->dead_rank = diagnosis->first_silence = -1;
    hop_watch_open(&diagnosis->watch);
    HOP_TRY_DONE(hop_calloc(&diagnosis->pids, ranks, sizeof(long), err));
    HOP_TRY_DONE(hop_calloc(&diagnosis->silences, ranks, sizeof *diagnosis->silences, err));
    *out = diagnosis;
    return HOP_OK;
done:
    hop_diagnosis_free(diagnosis);
    return status;
}

void hop_diagnosis_free(struct hop_diagnosis *diagnosis)
{
    if (!diagnosis)
        return;
    hop_watch_close(&diagnosis->watch);
    free(diagnosis->pids);
    free(diagnosis->silences);
    free(diagnosis);
}

const char *hop_diagnosis_watch_name(const struct hop_diagnosis *diagnosis)
{
    return diagnosis->watch.name;
}

/* Listening */

/* A local rank has joined the watch before it says hello. */
void hop_diagnosis_hello(struct hop_diagnosis *diagnosis, const char *text)
{
    int rank;
    long pid;
    if (sscanf(text, "%d %*s %ld", &rank, &pid) == 2 && rank >= 0 &&
        rank < diagnosis->launch->ranks->count)
        diagnosis->pids[rank] = pid;
    hop_watch_accept(&diagnosis->watch);
}

/* The first error is the cause; later ones are ranks that noticed it. */
void hop_diagnosis_error(struct hop_diagnosis *diagnosis, const char *text)
{
    char *rest;
    const long code = strtol(text, &rest, 10);
    if (diagnosis->failed)
        return;
    diagnosis->failed = true;
    diagnosis->exit_code = (int)code;
    snprintf(diagnosis->reason, sizeof diagnosis->reason, "%s", *rest == ' ' ? rest + 1 : rest);
}

void hop_diagnosis_silent(struct hop_diagnosis *diagnosis, const char *text)
{
    int rank, peer, length = 0;
    if (sscanf(text, "%d %d %n", &rank, &peer, &length) != 2 || length == 0 || rank < 0 ||
        rank >= diagnosis->launch->ranks->count || peer < 0 ||
        peer >= diagnosis->launch->ranks->count)
        return;
    struct silence *const silence = &diagnosis->silences[rank];
    silence->reported = true;
    silence->peer = peer;
    snprintf(silence->text, sizeof silence->text, "%s", text + length);
    if (diagnosis->first_silence < 0)
        diagnosis->first_silence = rank;
}

/* What Open MPI ("process rank 2 with PID ...") and MPICH ("PID 123 RUNNING AT ...") say of a dead
 * rank. */
void hop_diagnosis_foreign(struct hop_diagnosis *diagnosis, const char *line)
{
    const char *found = strstr(line, "process rank ");
    if (found)
        sscanf(found, "process rank %d", &diagnosis->dead_rank);
    found = strstr(line, "PID ");
    if (found && strstr(line, "RUNNING AT"))
        sscanf(found, "PID %ld", &diagnosis->dead_pid);
    char *const kept = diagnosis->tail[diagnosis->tail_count++ % TAIL_LINES];
    const size_t n = strnlen(line, sizeof diagnosis->tail[0] - 1);
    memcpy(kept, line, n);
    kept[n] = '\0';
}

/* Concluding */

/* Open MPI names the rank. MPICH gives the process id of any of those that are dead by then, so
 * that of local ones the order in which they ended tells more. */
static int find_dead_rank(const struct hop_diagnosis *diagnosis)
{
    if (diagnosis->dead_rank >= 0)
        return diagnosis->dead_rank;
    const int first = hop_watch_first(&diagnosis->watch);
    if (first >= diagnosis->launch->ranks->count)
        return -1;
    for (int r = 0; first < 0 && diagnosis->dead_pid && r < diagnosis->launch->ranks->count; r++)
        if (diagnosis->pids[r] == diagnosis->dead_pid)
            return r;
    return first;
}

static void print_tail(const struct hop_diagnosis *diagnosis)
{
    const int kept = diagnosis->tail_count < TAIL_LINES ? diagnosis->tail_count : TAIL_LINES;
    for (int i = diagnosis->tail_count - kept; i < diagnosis->tail_count; i++)
        fprintf(stderr, "  %s\n", diagnosis->tail[i % TAIL_LINES]);
}

static hop_status explain_death(const struct hop_diagnosis *diagnosis, int status,
                                struct hop_error *err)
{
    const int rank = find_dead_rank(diagnosis);
    const int32_t device = rank >= 0 && rank < diagnosis->launch->ranks->count
                               ? diagnosis->launch->ranks->device_of[rank]
                               : -1;
    if (device >= 0)
        return hop_fail(
            err, HOP_PEER,
            "device %s (rank %d) died; the run ended. Continue from the last checkpoint with "
            "--resume",
            diagnosis->launch->job->cluster.devices[device].name, rank);
    print_tail(diagnosis);
    return hop_fail(err, HOP_PEER, "mpiexec ended with status %d (its last words stand above)",
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static hop_status reported(const struct hop_diagnosis *diagnosis, struct hop_error *err)
{
    return hop_fail(err, diagnosis->exit_code == 2 ? HOP_INPUT : HOP_PEER, "%s", diagnosis->reason);
}

/* From the first that gave up along who waited for whom to the one that did not report: it is
 * stuck. */
static hop_status explain_silence(const struct hop_diagnosis *diagnosis, struct hop_error *err)
{
    const struct silence *silence = &diagnosis->silences[diagnosis->first_silence];
    for (int i = 0; i < diagnosis->launch->ranks->count; i++)
        if (diagnosis->silences[silence->peer].reported)
            silence = &diagnosis->silences[silence->peer];
    return hop_fail(err, HOP_PEER, "%s", silence->text);
}

bool hop_diagnosis_reported(const struct hop_diagnosis *diagnosis)
{
    return diagnosis->failed || diagnosis->first_silence >= 0;
}

hop_status hop_diagnosis_conclude(const struct hop_diagnosis *diagnosis, int wait_status,
                                  struct hop_error *err)
{
    if (diagnosis->failed)
        return reported(diagnosis, err);
    if (diagnosis->first_silence >= 0)
        return explain_silence(diagnosis, err);
    return explain_death(diagnosis, wait_status, err);
}
