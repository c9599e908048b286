/* Numbers of several devices are added up in a circle, as hop_price_all_reduce() assumes.
 *
 * Of n devices each has a piece of its own. In n - 1 rounds the pieces go round and every device
 * adds its numbers to what comes by: then every piece is complete on one device. In n - 1 more
 * rounds the complete ones go round. Every number is added up once and in a fixed order, so all
 * devices have the same bits, in every run. */
#include "base/clock.h"
#include "runtime/executor_internal.h"

static bool all_timed(const struct hop_executor *executor, const int32_t *devices, int32_t count)
{
    bool timed = executor->config.emulation != NULL;
    for (int32_t i = 0; i < count && timed; i++)
        timed = hop_emulation_is_timed(executor->config.emulation, devices[i]);
    return timed;
}

struct hop_circle hop_circle_join(const struct hop_executor *executor, const int32_t *devices,
                                  int32_t count)
{
    int32_t place = 0;
    while (place < count && devices[place] != executor->config.device)
        place++;
    if (place == count)
        return (struct hop_circle){0};
    return (struct hop_circle){.place = place,
                               .count = count,
                               .previous = devices[(place + count - 1) % count],
                               .next = devices[(place + 1) % count],
                               .timed = all_timed(executor, devices, count)};
}

/* Where piece k of n elements begins; the last one's end is that of piece `count`. */
static size_t piece_begin(const struct hop_circle *circle, size_t n, int32_t k)
{
    return n * (size_t)k / (size_t)circle->count;
}

size_t hop_circle_chunk(const struct hop_circle *circle, size_t n, enum hop_dtype dtype)
{
    const size_t count = (size_t)circle->count;
    return count ? (n + count - 1) / count * hop_dtype_size(dtype) : 0;
}

/* Numbers being added up. */
struct sum {
    const struct hop_executor_pass *pass;
    const struct hop_circle *circle;
    char *values;
    size_t n, element;
    enum hop_dtype dtype;
    int32_t tag;
};

static size_t piece_bytes(const struct sum *sum, int32_t k)
{
    return (piece_begin(sum->circle, sum->n, k + 1) - piece_begin(sum->circle, sum->n, k)) *
           sum->element;
}

static char *piece_at(const struct sum *sum, int32_t k)
{
    return sum->values + piece_begin(sum->circle, sum->n, k) * sum->element;
}

/* Piece `from` leaves for the next device while piece `to` comes from the one before. */
static hop_status turn(const struct sum *sum, int32_t from, int32_t to, void *into,
                       struct hop_error *err)
{
    struct hop_transport *const transport = sum->pass->executor->transport;
    struct hop_request send = {0}, receive = {0};
    HOP_TRY(hop_receive_in_turn(transport, HOP_CHANNEL_DATA,
                                hop_pass_rank(sum->pass, sum->circle->previous), sum->tag, into,
                                piece_bytes(sum, to), &receive, err));
    HOP_TRY(hop_send_in_turn(transport, HOP_CHANNEL_DATA,
                             hop_pass_rank(sum->pass, sum->circle->next), sum->tag,
                             piece_at(sum, from), piece_bytes(sum, from), &send, err));
    HOP_TRY(hop_request_wait(transport, &receive, "numbers to add up", err));
    return hop_request_wait(transport, &send, "numbers to be taken", err);
}

static void add(enum hop_dtype dtype, void *to, const void *more, size_t n)
{
    if (dtype == HOP_F32) {
        float *const sums = to;
        const float *const values = more;
        for (size_t i = 0; i < n; i++)
            sums[i] += values[i];
        return;
    }
    uint16_t *const sums = to;
    const uint16_t *const values = more;
    for (size_t i = 0; i < n; i++)
        sums[i] = hop_bf16_from_f32(hop_bf16_to_f32(sums[i]) + hop_bf16_to_f32(values[i]));
}

/* The k-th piece before this device's own. */
static int32_t piece_behind(const struct hop_circle *circle, int32_t k)
{
    return (circle->place + 2 * circle->count - k) % circle->count;
}

static hop_status collect(const struct sum *sum, struct hop_error *err)
{
    void *const chunk = sum->pass->executor->chunk;
    for (int32_t k = 0; k < sum->circle->count - 1; k++) {
        const int32_t to = piece_behind(sum->circle, k + 1);
        HOP_TRY(turn(sum, piece_behind(sum->circle, k), to, chunk, err));
        add(sum->dtype, piece_at(sum, to), chunk, piece_bytes(sum, to) / sum->element);
    }
    return HOP_OK;
}

static hop_status hand_round(const struct sum *sum, struct hop_error *err)
{
    for (int32_t k = 0; k < sum->circle->count - 1; k++) {
        const int32_t to = piece_behind(sum->circle, k);
        HOP_TRY(turn(sum, piece_behind(sum->circle, k - 1), to, piece_at(sum, to), err));
    }
    return HOP_OK;
}

hop_status hop_circle_add_up(const struct hop_executor_pass *pass, const struct hop_circle *circle,
                             void *values, size_t n, enum hop_dtype dtype, int32_t tag,
                             struct hop_error *err)
{
    const struct sum sum = {.pass = pass,
                            .circle = circle,
                            .values = values,
                            .n = n,
                            .element = hop_dtype_size(dtype),
                            .dtype = dtype,
                            .tag = tag};
    HOP_TRY(collect(&sum, err));
    return hand_round(&sum, err);
}

hop_status hop_circle_meet(const struct hop_executor_pass *pass, const struct hop_circle *circle,
                           int32_t tag, struct hop_error *err)
{
    struct hop_transport *const transport = pass->executor->transport;
    const int previous = hop_pass_rank(pass, circle->previous);
    const int next = hop_pass_rank(pass, circle->next);
    for (int32_t k = 0; k < circle->count - 1; k++) {
        struct hop_request send = {0}, receive = {0};
        const double own = hop_emulation_clock(pass->emulation);
        double other;
        HOP_TRY(hop_receive_start(transport, HOP_CHANNEL_TIMES, previous, tag, &other, sizeof other,
                                  &receive, err));
        HOP_TRY(
            hop_send_start(transport, HOP_CHANNEL_TIMES, next, tag, &own, sizeof own, &send, err));
        HOP_TRY(hop_request_wait(transport, &receive, "numbers to add up", err));
        HOP_TRY(hop_request_wait(transport, &send, "numbers to be taken", err));
        hop_emulation_arrived(pass->emulation, other);
    }
    return HOP_OK;
}
