#include "runtime/transport.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

static hop_status mpi_status(int code, const char *what, struct hop_error *err)
{
    if (code == MPI_SUCCESS)
        return HOP_OK;
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    MPI_Error_string(code, text, &n);
    return hop_fail(err, HOP_PEER, "%s failed: %.*s", what, n, text);
}

hop_status hop_transport_open(struct hop_transport *out, struct hop_error *err)
{
    struct hop_transport transport = {.timeout = 600, .longest_poll = 2e-3, .silent = -1};
    int provided;
    HOP_TRY(mpi_status(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
                       "MPI_Init_thread", err));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &transport.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &transport.size);
    for (int i = 0; i < HOP_CHANNELS; i++) {
        HOP_TRY(
            mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, &transport.channels[i]), "MPI_Comm_dup", err));
        MPI_Comm_set_errhandler(transport.channels[i], MPI_ERRORS_RETURN);
    }
    if (transport.size > 1 && provided >= MPI_THREAD_SERIALIZED)
        HOP_TRY(hop_background_create(transport.channels[HOP_CHANNEL_CONTROL],
                                      &transport.background, err));
    *out = transport;
    return HOP_OK;
}

void hop_transport_close(struct hop_transport *transport)
{
    hop_background_free(transport->background);
    hop_outbox_free(transport->outbox);
    free(transport->remote);
    for (int i = 0; i < HOP_CHANNELS; i++)
        MPI_Comm_free(&transport->channels[i]);
    MPI_Finalize();
}

void hop_transport_abort(int exit_code)
{
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    exit(exit_code);
}

const char *hop_transport_library(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(version, &n);
    snprintf(text, size, "%.*s", (int)strcspn(version, ",\n"), version);
    return text;
}

bool hop_transport_is_open_mpi(void)
{
    char text[128];
    return strstr(hop_transport_library(text, sizeof text), "Open MPI") != NULL;
}

int hop_transport_tag_limit(const struct hop_transport *transport)
{
    int *limit = NULL, found = 0;
    MPI_Comm_get_attr(transport->channels[0], MPI_TAG_UB, &limit, &found);
    return found ? *limit : 32767;
}

const char *hop_transport_name(const struct hop_transport *transport, int rank, char *text,
                               size_t size)
{
    if (transport->names && transport->names[rank])
        snprintf(text, size, "device %s", transport->names[rank]);
    else
        snprintf(text, size, "rank %d", rank);
    return text;
}

static hop_status check_size(size_t n, struct hop_error *err)
{
    if (n <= INT_MAX)
        return HOP_OK;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "a message of %zu bytes is too long; use smaller micro-batches", n);
}

hop_status hop_transport_take_turns(struct hop_transport *transport, const bool *remote,
                                    struct hop_error *err)
{
    const size_t ranks = (size_t)transport->size;
    HOP_TRY(hop_calloc(&transport->remote, ranks, sizeof *transport->remote, err));
    memcpy(transport->remote, remote, ranks * sizeof *remote);
    HOP_TRY(hop_outbox_create(transport->size, transport->channels[HOP_CHANNEL_GRANTS],
                              &transport->outbox, err));
    hop_background_set_outbox(transport->background, transport->outbox);
    return HOP_OK;
}

hop_status hop_send_start(struct hop_transport *transport, enum hop_channel channel, int to,
                          int tag, const void *bytes, size_t n, struct hop_request *request,
                          struct hop_error *err)
{
    HOP_TRY(check_size(n, err));
    hop_background_lock(transport->background);
    const int code = MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, transport->channels[channel],
                               &request->request);
    hop_background_unlock(transport->background);
    HOP_TRY(mpi_status(code, "MPI_Isend", err));
    request->peer = to;
    request->active = true;
    request->queued = false;
    return HOP_OK;
}

hop_status hop_receive_start(struct hop_transport *transport, enum hop_channel channel, int from,
                             int tag, void *bytes, size_t n, struct hop_request *request,
                             struct hop_error *err)
{
    HOP_TRY(check_size(n, err));
    hop_background_lock(transport->background);
    const int code = MPI_Irecv(bytes, (int)n, MPI_BYTE, from, tag, transport->channels[channel],
                               &request->request);
    hop_background_unlock(transport->background);
    HOP_TRY(mpi_status(code, "MPI_Irecv", err));
    request->peer = from;
    request->active = true;
    request->queued = false;
    return HOP_OK;
}

/* A short message is gone at once and may be needed by all. */
static bool takes_turns(const struct hop_transport *transport, int peer, size_t n)
{
    enum { SHORT = 16 << 10 };
    return transport->outbox && transport->remote[peer] && n > SHORT;
}

hop_status hop_send_in_turn(struct hop_transport *transport, enum hop_channel channel, int to,
                            int tag, const void *bytes, size_t n, struct hop_request *request,
                            struct hop_error *err)
{
    if (!takes_turns(transport, to, n))
        return hop_send_start(transport, channel, to, tag, bytes, n, request, err);
    HOP_TRY(check_size(n, err));
    request->peer = to;
    request->channel = transport->channels[channel];
    request->tag = tag;
    request->bytes = bytes;
    request->n = (int)n;
    hop_background_lock(transport->background);
    hop_outbox_put(transport->outbox, request);
    hop_background_unlock(transport->background);
    return HOP_OK;
}

hop_status hop_receive_in_turn(struct hop_transport *transport, enum hop_channel channel, int from,
                               int tag, void *bytes, size_t n, struct hop_request *request,
                               struct hop_error *err)
{
    HOP_TRY(hop_receive_start(transport, channel, from, tag, bytes, n, request, err));
    if (!takes_turns(transport, from, n))
        return HOP_OK;
    hop_background_lock(transport->background);
    const int code = hop_outbox_grant(transport->outbox, from, tag);
    hop_background_unlock(transport->background);
    return mpi_status(code, "MPI_Isend", err);
}

/* MPI's status; queued sends are the outbox's to test. With the lock held. */
static int test_request(struct hop_transport *transport, struct hop_request *request)
{
    int flag = 1, code = MPI_SUCCESS;
    hop_outbox_advance(transport->outbox);
    if (request->queued)
        return request->active ? MPI_SUCCESS : request->code;
    if (request->active)
        code = MPI_Test(&request->request, &flag, MPI_STATUS_IGNORE);
    if (flag)
        request->active = false;
    return code;
}

hop_status hop_request_test(struct hop_transport *transport, struct hop_request *request,
                            bool *done, struct hop_error *err)
{
    hop_background_lock(transport->background);
    const int code = test_request(transport, request);
    *done = !request->active;
    hop_background_unlock(transport->background);
    return mpi_status(code, "MPI_Test", err);
}

/* A wait starts with a few immediate polls, so that a message that is about to come costs no sleep;
 * then it sleeps a tenth of the time it has waited, so that a message is never much delayed, and at
 * most the transport's longest poll. */
struct pause {
    double last, waited; /* time of the last poll, seconds of waiting so far */
    int polls;
};

static void pause_poll(const struct hop_transport *transport, struct pause *pause)
{
    enum { EAGER_POLLS = 20 };
    static const double shortest = 20e-6;
    const double part = pause->waited / 10, longest = transport->longest_poll;
    if (++pause->polls > EAGER_POLLS)
        hop_clock_sleep(part < shortest ? shortest : part > longest ? longest : part);
}

/* A gap between two polls means that this process was stopped itself: it counts only in part, so
 * that on waking it does not blame a peer. */
static hop_status check_timeout(struct hop_transport *transport, struct pause *pause,
                                const char *what, int peer, struct hop_error *err)
{
    const double now = hop_clock_now(), step = now - pause->last;
    pause->last = now;
    pause->waited += step < transport->timeout / 4 ? step : transport->timeout / 4;
    if (pause->waited <= transport->timeout)
        return HOP_OK;
    char name[128];
    transport->silent = peer;
    return hop_fail(err, HOP_PEER,
                    "%s is silent: waited %.0f s for %s; it is stuck or its link is down (raise "
                    "train.peer_timeout if it is only slow)",
                    hop_transport_name(transport, peer, name, sizeof name), pause->waited, what);
}

hop_status hop_request_wait(struct hop_transport *transport, struct hop_request *request,
                            const char *what, struct hop_error *err)
{
    struct pause pause = {.last = hop_clock_now()};
    bool done;
    for (;;) {
        HOP_TRY(hop_request_test(transport, request, &done, err));
        if (done)
            return HOP_OK;
        pause_poll(transport, &pause);
        HOP_TRY(check_timeout(transport, &pause, what, request->peer, err));
    }
}

hop_status hop_send(struct hop_transport *transport, enum hop_channel channel, int to, int tag,
                    const void *bytes, size_t n, struct hop_error *err)
{
    struct hop_request request = {0};
    HOP_TRY(hop_send_start(transport, channel, to, tag, bytes, n, &request, err));
    return hop_request_wait(transport, &request, "a message to be taken", err);
}

/* Waits for a matching message and gives its length. */
static hop_status wait_for_message(struct hop_transport *transport, enum hop_channel channel,
                                   int from, int tag, const char *what, MPI_Message *message,
                                   int *length, struct hop_error *err)
{
    struct pause pause = {.last = hop_clock_now()};
    int found = 0;
    MPI_Status status;
    for (;;) {
        hop_background_lock(transport->background);
        const int code =
            MPI_Improbe(from, tag, transport->channels[channel], &found, message, &status);
        hop_background_unlock(transport->background);
        HOP_TRY(mpi_status(code, "MPI_Improbe", err));
        if (found)
            break;
        pause_poll(transport, &pause);
        HOP_TRY(check_timeout(transport, &pause, what, from, err));
    }
    MPI_Get_count(&status, MPI_BYTE, length);
    return HOP_OK;
}

static hop_status take_message(struct hop_transport *transport, MPI_Message *message, void *bytes,
                               int length, struct hop_error *err)
{
    hop_background_lock(transport->background);
    const int code = MPI_Mrecv(bytes, length, MPI_BYTE, message, MPI_STATUS_IGNORE);
    hop_background_unlock(transport->background);
    return mpi_status(code, "MPI_Mrecv", err);
}

hop_status hop_receive(struct hop_transport *transport, enum hop_channel channel, int from, int tag,
                       void *bytes, size_t n, const char *what, struct hop_error *err)
{
    MPI_Message message;
    int length;
    HOP_TRY(wait_for_message(transport, channel, from, tag, what, &message, &length, err));
    if ((size_t)length != n)
        return hop_fail(err, HOP_PEER,
                        "%s: expected %zu bytes, got %d; do all devices run the same build?", what,
                        n, length);
    return take_message(transport, &message, bytes, length, err);
}

hop_status hop_receive_unknown(struct hop_transport *transport, enum hop_channel channel, int from,
                               int tag, size_t limit, const char *what, void **bytes, size_t *n,
                               struct hop_error *err)
{
    MPI_Message message;
    int length;
    void *block;
    HOP_TRY(wait_for_message(transport, channel, from, tag, what, &message, &length, err));
    if (length < 0 || (size_t)length > limit)
        return hop_fail(err, HOP_PEER, "%s: a message of %d bytes is longer than the %zu allowed",
                        what, length, limit);
    HOP_TRY(hop_calloc(&block, (size_t)length + 1, 1, err));
    const hop_status status = take_message(transport, &message, block, length, err);
    if (status != HOP_OK) {
        free(block);
        return status;
    }
    *bytes = block;
    *n = (size_t)length;
    return HOP_OK;
}
