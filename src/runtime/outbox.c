#include "runtime/outbox.h"

#include <stdlib.h>

#include "base/memory.h"

struct lane {
    struct hop_request *waiting; /* in the order they came */
    struct hop_request *flying;  /* NULL: none */
};

struct hop_outbox {
    MPI_Comm grants;
    struct lane *lanes; /* (ranks) */
    int ranks;
    int held; /* requests in all lanes */
};

hop_status hop_outbox_create(int ranks, MPI_Comm grants, struct hop_outbox **out,
                             struct hop_error *err)
{
    struct hop_outbox *outbox;
    HOP_TRY(hop_calloc(&outbox, 1, sizeof *outbox, err));
    const hop_status status = hop_calloc(&outbox->lanes, (size_t)ranks, sizeof *outbox->lanes, err);
    if (status != HOP_OK) {
        hop_outbox_free(outbox);
        return status;
    }
    outbox->grants = grants;
    outbox->ranks = ranks;
    *out = outbox;
    return HOP_OK;
}

void hop_outbox_free(struct hop_outbox *outbox)
{
    if (!outbox)
        return;
    free(outbox->lanes);
    free(outbox);
}

static void end(struct hop_outbox *outbox, struct hop_request *request, int code)
{
    request->code = code;
    request->active = false;
    outbox->held--;
}

static void land(struct hop_outbox *outbox, struct lane *lane)
{
    int flag = 1;
    if (!lane->flying)
        return;
    const int code = MPI_Test(&lane->flying->request, &flag, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && !flag)
        return;
    end(outbox, lane->flying, code);
    lane->flying = NULL;
}

/* A grant is an empty message with the tag of what may come. */
static int take_grant(const struct hop_outbox *outbox, const struct hop_request *request,
                      int *granted)
{
    const int code =
        MPI_Iprobe(request->peer, request->tag, outbox->grants, granted, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || !*granted)
        return code;
    return MPI_Recv(NULL, 0, MPI_BYTE, request->peer, request->tag, outbox->grants,
                    MPI_STATUS_IGNORE);
}

static int start(struct lane *lane, struct hop_request *request)
{
    const int code = MPI_Isend(request->bytes, request->n, MPI_BYTE, request->peer, request->tag,
                               request->channel, &request->request);
    if (code == MPI_SUCCESS)
        lane->flying = request;
    return code;
}

/* The first one that may. */
static void start_next(struct hop_outbox *outbox, struct lane *lane)
{
    struct hop_request **at = &lane->waiting;
    while (*at && !lane->flying) {
        struct hop_request *const request = *at;
        int granted = 0;
        int code = take_grant(outbox, request, &granted);
        if (code == MPI_SUCCESS && !granted) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        if (code == MPI_SUCCESS)
            code = start(lane, request);
        if (code != MPI_SUCCESS)
            end(outbox, request, code);
    }
}

void hop_outbox_put(struct hop_outbox *outbox, struct hop_request *request)
{
    struct lane *const lane = &outbox->lanes[request->peer];
    struct hop_request **at = &lane->waiting;
    while (*at)
        at = &(*at)->next;
    *at = request;
    request->next = NULL;
    request->active = request->queued = true;
    request->code = MPI_SUCCESS;
    outbox->held++;
    land(outbox, lane);
    start_next(outbox, lane);
}

int hop_outbox_grant(struct hop_outbox *outbox, int sender, int tag)
{
    MPI_Request request;
    const int code = MPI_Isend(NULL, 0, MPI_BYTE, sender, tag, outbox->grants, &request);
    return code == MPI_SUCCESS ? MPI_Request_free(&request) : code;
}

void hop_outbox_advance(struct hop_outbox *outbox)
{
    for (int rank = 0; outbox && outbox->held > 0 && rank < outbox->ranks; rank++) {
        land(outbox, &outbox->lanes[rank]);
        start_next(outbox, &outbox->lanes[rank]);
    }
}
