/* Gradients of the copies of blocks are added up in a ring, as hop_price_all_reduce() assumes.
 *
 * Of n parts each has a piece of its own. In n - 1 rounds the pieces go round and every part adds
 * its numbers to what comes by: then every piece is complete in one part. In n - 1 more rounds the
 * complete ones go round. Every number is added up once and in a fixed order, so all parts have the
 * same bits, in every run. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/executor_internal.h"

static int32_t place_in(const struct hop_executor *executor, const struct hop_reduction *reduction)
{
    for (int32_t i = 0; i < reduction->count; i++)
        if (reduction->devices[i] == executor->config.device)
            return i;
    return -1;
}

static size_t parameters_between(const struct hop_executor *executor, int32_t lo, int32_t hi)
{
    return (size_t)hop_lora_parameters(&executor->config.model, &executor->config.lora, lo, hi);
}

static bool all_timed(const struct hop_executor *executor, const struct hop_reduction *reduction)
{
    bool timed = executor->config.emulation != NULL;
    for (int32_t i = 0; i < reduction->count && timed; i++)
        timed = hop_emulation_is_timed(executor->config.emulation, reduction->devices[i]);
    return timed;
}

static void join(const struct hop_executor *executor, const struct hop_reduction *reduction,
                 struct hop_executor_reduction *out)
{
    const int32_t place = place_in(executor, reduction), n = reduction->count;
    if (place < 0)
        return;
    const struct hop_part *const part = &executor->plan->parts[reduction->parts[place]];
    *out = (struct hop_executor_reduction){
        .place = place,
        .count = n,
        .previous = reduction->devices[(place + n - 1) % n],
        .next = reduction->devices[(place + 1) % n],
        .timed = all_timed(executor, reduction),
        .offset = parameters_between(executor, part->lo, reduction->lo),
        .total = parameters_between(executor, reduction->lo, reduction->hi)};
}

/* Where piece k of n begins; the n-th is the end. */
static size_t piece_begin(const struct hop_executor_reduction *r, int32_t k)
{
    return r->total * (size_t)k / (size_t)r->count;
}

hop_status hop_executor_reductions_create(struct hop_executor *executor, struct hop_error *err)
{
    size_t largest = 0;
    HOP_TRY(hop_reductions_derive(executor->plan, &executor->reductions, err));
    const int32_t count = executor->reductions.count;
    HOP_TRY(hop_calloc(&executor->reduction, (size_t)count, sizeof *executor->reduction, err));
    for (int32_t i = 0; i < count; i++) {
        struct hop_executor_reduction *const r = &executor->reduction[i];
        join(executor, &executor->reductions.items[i], r);
        for (int32_t k = 0; k < r->count; k++) {
            const size_t piece = piece_begin(r, k + 1) - piece_begin(r, k);
            largest = piece > largest ? piece : largest;
        }
    }
    executor->held += largest * sizeof(float);
    return hop_calloc(&executor->chunk, largest, sizeof *executor->chunk, err);
}

void hop_executor_reductions_free(struct hop_executor *executor)
{
    hop_reductions_free(&executor->reductions);
    free(executor->reduction);
    free(executor->chunk);
}

/* One reduction being run. */
struct ring {
    struct hop_executor_pass *pass;
    const struct hop_executor_reduction *r;
    float *values;
    int32_t tag;
};

/* Piece `from` leaves for the next part while piece `to` comes from the one before into `into`. */
static hop_status turn(const struct ring *ring, int32_t from, int32_t to, float *into,
                       struct hop_error *err)
{
    const struct hop_executor_reduction *const r = ring->r;
    struct hop_transport *const transport = ring->pass->executor->transport;
    struct hop_request send = {0}, receive = {0};
    const size_t begin = piece_begin(r, from), end = piece_begin(r, from + 1);
    const size_t floats = piece_begin(r, to + 1) - piece_begin(r, to);
    HOP_TRY(hop_receive_in_turn(transport, HOP_CHANNEL_DATA, hop_pass_rank(ring->pass, r->previous),
                                ring->tag, into, floats * sizeof(float), &receive, err));
    HOP_TRY(hop_send_in_turn(transport, HOP_CHANNEL_DATA, hop_pass_rank(ring->pass, r->next),
                             ring->tag, ring->values + begin, (end - begin) * sizeof(float), &send,
                             err));
    HOP_TRY(hop_request_wait(transport, &receive, "gradients to add up", err));
    return hop_request_wait(transport, &send, "gradients to be taken", err);
}

/* The k-th piece before this part's own. */
static int32_t piece_behind(const struct hop_executor_reduction *r, int32_t k)
{
    return (r->place + 2 * r->count - k) % r->count;
}

static hop_status add_up(const struct ring *ring, struct hop_error *err)
{
    float *const chunk = ring->pass->executor->chunk;
    for (int32_t k = 0; k < ring->r->count - 1; k++) {
        const int32_t to = piece_behind(ring->r, k + 1);
        HOP_TRY(turn(ring, piece_behind(ring->r, k), to, chunk, err));
        const size_t begin = piece_begin(ring->r, to), end = piece_begin(ring->r, to + 1);
        for (size_t i = begin; i < end; i++)
            ring->values[i] += chunk[i - begin];
    }
    return HOP_OK;
}

static hop_status hand_round(const struct ring *ring, struct hop_error *err)
{
    for (int32_t k = 0; k < ring->r->count - 1; k++) {
        const int32_t to = piece_behind(ring->r, k);
        HOP_TRY(turn(ring, piece_behind(ring->r, k - 1), to,
                     ring->values + piece_begin(ring->r, to), err));
    }
    return HOP_OK;
}

/* The latest clock of all parts goes round: none can start before. */
static hop_status meet_clocks(const struct ring *ring, struct hop_error *err)
{
    struct hop_transport *const transport = ring->pass->executor->transport;
    struct hop_emulation *const emulation = ring->pass->emulation;
    const int previous = hop_pass_rank(ring->pass, ring->r->previous);
    const int next = hop_pass_rank(ring->pass, ring->r->next);
    for (int32_t k = 0; k < ring->r->count - 1; k++) {
        struct hop_request send = {0}, receive = {0};
        const double own = hop_emulation_clock(emulation);
        double other;
        HOP_TRY(hop_receive_start(transport, HOP_CHANNEL_TIMES, previous, ring->tag, &other,
                                  sizeof other, &receive, err));
        HOP_TRY(hop_send_start(transport, HOP_CHANNEL_TIMES, next, ring->tag, &own, sizeof own,
                               &send, err));
        HOP_TRY(hop_request_wait(transport, &receive, "gradients to add up", err));
        HOP_TRY(hop_request_wait(transport, &send, "gradients to be taken", err));
        hop_emulation_arrived(emulation, other);
    }
    return HOP_OK;
}

static bool is_timed(const struct ring *ring)
{
    return ring->pass->emulation && ring->r->timed;
}

static hop_status run(const struct ring *ring, struct hop_error *err)
{
    if (is_timed(ring))
        HOP_TRY(meet_clocks(ring, err));
    HOP_TRY(add_up(ring, err));
    return hand_round(ring, err);
}

hop_status hop_pass_reduce(struct hop_executor_pass *pass, const struct hop_task *task,
                           double *start, double *end, struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_executor_reduction *const r = &executor->reduction[task->reduction];
    float *const gradients = hop_stage_parameters(hop_pass_part(pass, task)->stage)->gradients;
    const struct ring ring = {.pass = pass,
                              .r = r,
                              .values = gradients + r->offset,
                              .tag = hop_route_reduction_tag(pass->route, task->reduction)};
    *start = hop_clock_now();
    HOP_TRY(run(&ring, err));
    *end = hop_clock_now();
    if (is_timed(&ring))
        hop_emulation_reduced(pass->emulation, &executor->reductions.items[task->reduction], *start,
                              start, end);
    else if (pass->emulation)
        hop_emulation_arrived(pass->emulation, *end);
    return HOP_OK;
}
