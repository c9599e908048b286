#include "runtime/emulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "io/json.h"
#include "schedule/network.h"
#include "schedule/price.h"

/* Waking up takes a fraction of this: what ends later had not computed in time. */
static const double tolerance = 1e-3;

struct hop_emulation {
    struct hop_cost_table cost;
    const struct hop_plan *plan;
    double time_scale;
    int32_t device;
    bool *timed;  /* (devices) */
    double clock; /* end of the last task, or when the next one may start */
    struct hop_network network;
    struct hop_lateness lateness;
};

void hop_lateness_add(struct hop_lateness *total, const struct hop_lateness *more)
{
    total->tasks += more->tasks;
    total->seconds = fmax(total->seconds, more->seconds);
    total->ratio = fmax(total->ratio, more->ratio);
}

static hop_status read_scale(const json_t *object, double *out, struct hop_error *err)
{
    static const char where[] = "setup message: emulation";
    HOP_TRY(hop_json_get_real(object, "time_scale", where, 1, out, err));
    if (*out > 0 && isfinite(*out))
        return HOP_OK;
    return hop_fail(err, HOP_PEER, "%s: time_scale: %g is not positive", where, *out);
}

hop_status hop_emulation_create(const json_t *object, const struct hop_plan *plan, int32_t device,
                                const bool *timed, struct hop_emulation **out,
                                struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_emulation *emulation;
    const size_t devices = (size_t)plan->devices;
    HOP_TRY(hop_calloc(&emulation, 1, sizeof *emulation, err));
    emulation->plan = plan;
    emulation->device = device;
    HOP_TRY_DONE(read_scale(object, &emulation->time_scale, err));
    HOP_TRY_DONE(hop_cost_parse(json_object_get(object, "cost"), "setup message: emulation: cost",
                                &emulation->cost, err));
    HOP_TRY_DONE(hop_price_check(&emulation->cost, plan, err));
    HOP_TRY_DONE(hop_calloc(&emulation->timed, devices, sizeof(bool), err));
    HOP_TRY_DONE(hop_network_create(&emulation->cost, &emulation->network, err));
    memcpy(emulation->timed, timed, devices * sizeof(bool));
    *out = emulation;
    emulation = NULL;
done:
    hop_emulation_free(emulation);
    return status;
}

void hop_emulation_free(struct hop_emulation *emulation)
{
    if (!emulation)
        return;
    hop_cost_free(&emulation->cost);
    free(emulation->timed);
    hop_network_free(&emulation->network);
    free(emulation);
}

bool hop_emulation_is_timed(const struct hop_emulation *emulation, int32_t other)
{
    return emulation->timed[other];
}

void hop_emulation_begin(struct hop_emulation *emulation, double now)
{
    emulation->clock = now;
    hop_network_clear(&emulation->network);
    emulation->lateness = (struct hop_lateness){0};
}

void hop_emulation_arrived(struct hop_emulation *emulation, double time)
{
    emulation->clock = fmax(emulation->clock, time);
}

double hop_emulation_clock(const struct hop_emulation *emulation)
{
    return emulation->clock;
}

/* Of a full micro-batch; a STEP has none. */
static double share_of_rows(const struct hop_emulation *emulation, int32_t micro_batch,
                            int32_t rows)
{
    return micro_batch < 0 ? 1 : rows / emulation->cost.micro_batch_samples;
}

static void note_late(struct hop_emulation *emulation, double seconds, double computation,
                      double duration)
{
    const struct hop_lateness late = {
        .tasks = 1, .seconds = seconds, .ratio = computation / duration};
    hop_lateness_add(&emulation->lateness, &late);
}

static void sleep_until(double time)
{
    for (double now = hop_clock_now(); now < time; now = hop_clock_now())
        hop_clock_sleep(time - now);
}

static void finish(struct hop_emulation *emulation, double duration, double began, double *start,
                   double *end)
{
    const double computed = hop_clock_now();
    const double due = emulation->clock + duration;
    /* What the table prices at nothing takes what it takes. */
    if (duration > 0 && computed - due > tolerance)
        note_late(emulation, computed - due, computed - began, duration);
    *start = emulation->clock;
    *end = emulation->clock = fmax(due, computed);
    sleep_until(due);
}

void hop_emulation_finish(struct hop_emulation *emulation, const struct hop_task *task, bool joint,
                          int32_t rows, double began, double *start, double *end)
{
    const double price = joint ? hop_price_span(&emulation->cost, emulation->plan, task)
                               : hop_price_task(&emulation->cost, emulation->plan, task);
    const double duration =
        emulation->time_scale * share_of_rows(emulation, task->micro_batch, rows) * price;
    finish(emulation, duration, began, start, end);
}

void hop_emulation_reduced(struct hop_emulation *emulation, const struct hop_reduction *reduction,
                           double began, double *start, double *end)
{
    const double duration =
        emulation->time_scale * hop_price_reduction(&emulation->cost, reduction);
    finish(emulation, duration, began, start, end);
}

/* Derivatives and base losses are as many for any number of rows, unless each row has its own. */
static bool is_fixed(const struct hop_emulation *emulation, const struct hop_transfer *transfer)
{
    const bool number = transfer->payload == HOP_DERIVATIVE || transfer->payload == HOP_BASE_LOSS;
    return number && emulation->plan->directions == HOP_SHARED;
}

double hop_emulation_send(struct hop_emulation *emulation, const struct hop_transfer *transfer,
                          int32_t rows)
{
    const struct hop_cost_table *const cost = &emulation->cost;
    const double share =
        is_fixed(emulation, transfer) ? 1 : share_of_rows(emulation, transfer->micro_batch, rows);
    const double bytes = share * hop_price_bytes(cost, emulation->plan, transfer);
    const double seconds = emulation->time_scale *
                           hop_cost_link(cost, transfer->from_device, transfer->to_device, bytes);
    return seconds + hop_network_send(&emulation->network, transfer->from_device,
                                      transfer->to_device, emulation->clock, seconds);
}

const struct hop_lateness *hop_emulation_lateness(const struct hop_emulation *emulation)
{
    return &emulation->lateness;
}
