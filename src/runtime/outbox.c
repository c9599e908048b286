#include "runtime/outbox.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

struct queue {
    struct hop_request *first, *last;
};

struct lane {
    struct queue waiting, flying; /* in the order they came */
    double began;                 /* the last start */
    bool alone;                   /* it was the only one under way since */
    double pace;                  /* seconds a byte, lately; 0: nothing measured yet */
};

struct hop_outbox {
    struct lane *lanes; /* (ranks) */
    int ranks;
    int held; /* requests in all lanes */
};

hop_status hop_outbox_create(int ranks, struct hop_outbox **out, struct hop_error *err)
{
    struct hop_outbox *outbox;
    HOP_TRY(hop_calloc(&outbox, 1, sizeof *outbox, err));
    const hop_status status = hop_calloc(&outbox->lanes, (size_t)ranks, sizeof *outbox->lanes, err);
    if (status != HOP_OK) {
        hop_outbox_free(outbox);
        return status;
    }
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

static void append(struct queue *queue, struct hop_request *request)
{
    request->next = NULL;
    if (queue->last)
        queue->last->next = request;
    else
        queue->first = request;
    queue->last = request;
}

static struct hop_request *take_first(struct queue *queue)
{
    struct hop_request *const request = queue->first;
    queue->first = request->next;
    if (!queue->first)
        queue->last = NULL;
    return request;
}

/* A quarter of the latest measurement at a time: a message may have stood still for a while. */
static void measure(struct lane *lane, const struct hop_request *request)
{
    const double pace = (hop_clock_now() - lane->began) / request->n;
    lane->pace = lane->pace > 0 ? lane->pace + (pace - lane->pace) / 4 : pace;
}

static bool has_left(struct lane *lane, struct hop_request *request)
{
    int flag = 1;
    if (request->code == MPI_SUCCESS)
        request->code = MPI_Test(&request->request, &flag, MPI_STATUS_IGNORE);
    if (request->code == MPI_SUCCESS && !flag)
        return false;
    if (lane->alone)
        measure(lane, request);
    return true;
}

/* Forgets those that have left. */
static void clear_flying(struct hop_outbox *outbox, struct lane *lane)
{
    struct queue still = {0};
    while (lane->flying.first) {
        struct hop_request *const request = take_first(&lane->flying);
        if (has_left(lane, request)) {
            request->active = false;
            outbox->held--;
        } else
            append(&still, request);
    }
    lane->flying = still;
}

/* Is the last one started still expected to be under way? */
static bool is_taken(const struct lane *lane)
{
    static const double patience = 1, slack = 20e-3;
    if (!lane->flying.first)
        return false;
    const double expected =
        lane->pace > 0 ? 2 * lane->pace * lane->flying.last->n + slack : patience;
    return hop_clock_now() - lane->began < expected;
}

static void start_next(struct lane *lane)
{
    struct hop_request *const request = take_first(&lane->waiting);
    lane->alone = !lane->flying.first;
    lane->began = hop_clock_now();
    request->code = MPI_Isend(request->bytes, request->n, MPI_BYTE, request->peer, request->tag,
                              request->channel, &request->request);
    append(&lane->flying, request);
}

static void advance_lane(struct hop_outbox *outbox, struct lane *lane)
{
    clear_flying(outbox, lane);
    if (lane->waiting.first && !is_taken(lane))
        start_next(lane);
}

void hop_outbox_put(struct hop_outbox *outbox, struct hop_request *request)
{
    request->active = request->queued = true;
    request->code = MPI_SUCCESS;
    append(&outbox->lanes[request->peer].waiting, request);
    outbox->held++;
    advance_lane(outbox, &outbox->lanes[request->peer]);
}

void hop_outbox_advance(struct hop_outbox *outbox)
{
    if (!outbox || outbox->held == 0)
        return;
    for (int rank = 0; rank < outbox->ranks; rank++)
        advance_lane(outbox, &outbox->lanes[rank]);
}
