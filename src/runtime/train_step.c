/* One mini-batch: pack, command, compute, reduce, update, record. */
#include "runtime/coordinator_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/block_state.h"
#include "runtime/console.h"
#include "train/clip.h"
#include "train/learning_rate.h"

/* Packing */

/* Micro-batches of the step into session.batches. Returns how many. */
static int32_t pack(struct hop_coordinator *c, int64_t step, size_t *samples)
{
    const uint32_t *rows;
    const size_t n = hop_loader_rows(&c->loader, step - 1, &rows);
    const size_t per = c->loader.micro_batch_size;
    int32_t batches = 0;
    for (size_t at = 0; at < n; at += per, batches++) {
        const size_t left = n - at;
        struct hop_batch *const batch = &c->session.batches[batches];
        hop_batch_pack(c->train, rows + at, left < per ? left : per, batch);
        batch->micro_batch = batches;
    }
    const int64_t labels = hop_batch_label_count(c->train, rows, n);
    for (int32_t m = 0; m < batches; m++)
        c->session.batches[m].label_total = labels;
    *samples = n;
    return batches;
}

static int32_t schedule_for(const struct hop_coordinator *c, int64_t step, int32_t batches)
{
    const struct hop_schedule_set *const set = &c->schedules;
    const bool full = batches == hop_job_micro_batches(&c->job);
    if (step == 1)
        return full ? set->full_first : set->last_first;
    return full ? set->full : set->last;
}

/* Reduction */

/* Copies of a block report the same: it counts once. Shards report a sum each. */
static void place_block(struct hop_coordinator *c, int32_t part, int32_t block,
                        const double *square)
{
    const size_t first = hop_lora_factors(&c->lora, 0, block);
    const size_t n = hop_lora_factors(&c->lora, block, block + 1);
    if (!hop_block_is_sent_by(&c->plan, block, part))
        return;
    for (size_t i = 0; i < n; i++)
        c->squares[first + i] += square[i];
}

/* A device reports its parameters part after part; the sum over the model is made block after
 * block, so that the norm has the same bits for every split. */
static void place_squares(struct hop_coordinator *c, int32_t device, const struct hop_pass *pass)
{
    int32_t at = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        if (part->device != device || part->gradient == HOP_GRADIENT_NONE)
            continue;
        for (int32_t block = part->lo; block < part->hi; block++) {
            const int32_t n = (int32_t)hop_lora_factors(&c->lora, block, block + 1);
            if (at + n > pass->squares)
                return;
            place_block(c, p, block, pass->square + at);
            at += n;
        }
    }
}

static void take_pass(struct hop_coordinator *c, int32_t device, const struct hop_pass *pass,
                      struct hop_reduced_step *out)
{
    hop_coordinator_take_lateness(c, device, c->step + 1, &pass->late);
    out->busy += pass->busy;
    c->held[device] = pass->held;
    if (pass->losses > 0)
        out->losses = pass->losses;
    if (pass->derivatives > 0)
        out->probes = *pass;
    if (pass->exit_derivatives > 0)
        out->exits = *pass;
    for (int32_t m = 0; m < pass->losses; m++)
        c->losses[m] += pass->loss[m];
    place_squares(c, device, pass);
}

/* Reports have no fixed length: the longest one is received, its header says how long it is. */
static hop_status receive_reports(struct hop_coordinator *c, struct hop_reduced_step *out,
                                  struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++) {
        struct hop_pass pass;
        struct hop_request request = {0};
        HOP_TRY(hop_receive_start(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_REPORT,
                                  c->reports[r], hop_report_limit(&c->session) * sizeof(double),
                                  &request, err));
        HOP_TRY(hop_request_wait(c->transport, &request, "the report of a step", err));
        HOP_TRY(hop_report_decode(c->reports[r], &pass, hop_report_limit(&c->session), err));
        take_pass(c, c->ranks.device_of[r], &pass, out);
        HOP_TRY(hop_request_wait(c->transport, &c->sends[r], "a command to be taken", err));
    }
    return HOP_OK;
}

static enum hop_gradient gradient_of_block(const struct hop_coordinator *c, int32_t block,
                                           int32_t *device)
{
    for (int32_t p = 0; p < c->plan.part_count; p++)
        if (c->plan.parts[p].lo <= block && block < c->plan.parts[p].hi) {
            *device = c->plan.parts[p].device;
            return c->plan.parts[p].gradient;
        }
    return HOP_GRADIENT_NONE;
}

static hop_status reduce_norms(struct hop_coordinator *c, int64_t step,
                               struct hop_reduced_step *out, struct hop_error *err)
{
    double exact = 0, estimated = 0;
    for (size_t i = 0; i < c->state.parameters.count; i++) {
        const struct hop_parameter *const parameter = &c->state.parameters.items[i];
        int32_t device = 0;
        const enum hop_gradient kind = gradient_of_block(c, parameter->block, &device);
        if (kind == HOP_GRADIENT_NONE)
            continue;
        if (!isfinite(c->squares[i]))
            return hop_fail(err, HOP_NUMERIC,
                            "step %lld: a gradient of block %d on device %s is not finite; lower "
                            "train.learning_rate or use train.dtype f32",
                            (long long)step, parameter->block, c->job.cluster.devices[device].name);
        *(kind == HOP_GRADIENT_BACKPROP ? &exact : &estimated) += c->squares[i];
        *(kind == HOP_GRADIENT_BACKPROP ? &out->exact : &out->estimated) = true;
    }
    out->grad_norm = sqrt(exact);
    out->zo_grad_norm = sqrt(estimated);
    return HOP_OK;
}

static hop_status reduce(struct hop_coordinator *c, int64_t step, struct hop_reduced_step *out,
                         struct hop_error *err)
{
    for (int32_t m = 0; m < out->losses; m++)
        out->loss += c->losses[m];
    return reduce_norms(c, step, out, err);
}

/* Update */

static double rate_at(const struct hop_coordinator *c, double peak, int64_t step)
{
    const struct hop_learning_rate schedule = {.scheduler =
                                                   (enum hop_scheduler)c->job.train.scheduler,
                                               .peak = peak,
                                               .warmup_steps = c->job.train.warmup_steps,
                                               .total_steps = c->steps};
    return hop_learning_rate_at(&schedule, step - 1);
}

/* Estimates from probes point nearly anywhere: at the rate of exact gradients they do harm.
 * Feedback does not (docs/experiments.md). */
static double zo_peak_of(const struct hop_job *job)
{
    const double rate = job->train.learning_rate;
    if (job->zo.learning_rate > 0)
        return job->zo.learning_rate;
    return job->zo.estimator == HOP_FEEDBACK ? rate : rate * HOP_JOB_ZO_RATE;
}

static struct hop_update make_update(const struct hop_coordinator *c, int64_t step,
                                     const struct hop_reduced_step *reduced)
{
    const double peak = c->job.train.learning_rate;
    const double limit = c->job.train.max_grad_norm;
    return (struct hop_update){.step = step,
                               .learning_rate = rate_at(c, peak, step),
                               .zo_learning_rate = rate_at(c, zo_peak_of(&c->job), step),
                               .clip = hop_clip_coefficient(reduced->grad_norm, limit),
                               .zo_clip = hop_clip_coefficient(reduced->zo_grad_norm, limit)};
}

static hop_status apply_update(struct hop_coordinator *c, const struct hop_update *update,
                               struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++)
        HOP_TRY(hop_send_start(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_UPDATE, update,
                               sizeof *update, &c->sends[r], err));
    if (c->session.executor)
        HOP_TRY(hop_executor_update(c->session.executor, update, err));
    for (int r = 1; r < c->ranks.count; r++)
        HOP_TRY(hop_request_wait(c->transport, &c->sends[r], "an update to be taken", err));
    return HOP_OK;
}

/* Recording */

static void add_tensor_norms(const struct hop_coordinator *c, json_t *line)
{
    json_t *const norms = json_object();
    for (size_t i = 0; i < c->state.parameters.count; i++) {
        char name[HOP_TENSOR_NAME];
        hop_parameter_name(&c->state.parameters.items[i], name, sizeof name);
        json_object_set_new(norms, name, json_real(sqrt(c->squares[i])));
    }
    json_object_set_new(line, "grad_norms", norms);
}

struct measured {
    double seconds;
    size_t samples;
    int64_t tokens, labels;
};

static int32_t busy_devices(const struct hop_coordinator *c)
{
    int32_t n = 0;
    for (int32_t r = 0; r < c->ranks.count; r++)
        n += c->ranks.device_of[r] >= 0;
    return n;
}

static hop_status record(struct hop_coordinator *c, int64_t step, const struct hop_update *update,
                         const struct hop_reduced_step *reduced, const struct measured *measured,
                         struct hop_error *err)
{
    const double utilization = reduced->busy / (measured->seconds * busy_devices(c));
    json_t *const line = json_object();
    json_object_set_new(line, "step", json_integer(step));
    json_object_set_new(line, "epoch", json_real((double)step / (double)c->loader.steps_per_epoch));
    json_object_set_new(line, "loss", json_real(reduced->loss));
    json_object_set_new(line, "learning_rate", json_real(update->learning_rate));
    if (reduced->exact)
        json_object_set_new(line, "grad_norm", json_real(reduced->grad_norm));
    if (reduced->estimated) {
        json_object_set_new(line, "zo_learning_rate", json_real(update->zo_learning_rate));
        json_object_set_new(line, "zo_grad_norm", json_real(reduced->zo_grad_norm));
    }
    json_object_set_new(line, "label_tokens", json_integer(measured->labels));
    json_object_set_new(line, "samples_per_second",
                        json_real((double)measured->samples / measured->seconds));
    json_object_set_new(line, "tokens_per_second",
                        json_real((double)measured->tokens / measured->seconds));
    json_object_set_new(line, "utilization", json_real(utilization));
    json_object_set_new(line, "seconds", json_real(measured->seconds));
    const hop_status status = hop_coordinator_add_derivatives(c, line, reduced, err);
    if (status != HOP_OK) {
        json_decref(line);
        return status;
    }
    if (c->job.train.log_grad_norms)
        add_tensor_norms(c, line);
    const double done = (double)(step - c->resumed), elapsed = hop_clock_now() - c->started;
    const struct hop_progress_line progress = {
        .step = step,
        .steps = c->steps,
        .loss = reduced->loss,
        .learning_rate = update->learning_rate,
        .grad_norm = reduced->exact ? reduced->grad_norm : NAN,
        .zo_grad_norm = reduced->estimated ? reduced->zo_grad_norm : NAN,
        .samples_per_second = (double)measured->samples / measured->seconds,
        .tokens_per_second = (double)measured->tokens / measured->seconds,
        .utilization = utilization,
        .eta = elapsed / done * (double)(c->steps - step)};
    hop_console_progress(&progress);
    return hop_coordinator_record(c, line, err);
}

/* What a device computed is prefixed with its name; of a peer the message speaks already. */
hop_status hop_coordinator_own_pass(struct hop_coordinator *c,
                                    const struct hop_command_message *message,
                                    struct hop_pass *pass, struct hop_error *err)
{
    const struct hop_session *const session = &c->session;
    const struct hop_places places = {.past = session->past, .place = session->place};
    const hop_status status = message->kind == HOP_COMMAND_DECODE
                                  ? hop_executor_decode(session->executor, message->schedule,
                                                        session->batches, &places, pass, err)
                                  : hop_executor_run(session->executor, message->schedule,
                                                     message->step, session->batches, pass, err);
    if (status == HOP_OK || status == HOP_PEER)
        return status;
    return hop_wrap(err, "device %s", hop_session_device_name(&c->session));
}

hop_status hop_coordinator_step(struct hop_coordinator *c, struct hop_error *err)
{
    const int64_t step = c->step + 1;
    const double start = hop_clock_now();
    struct measured measured = {0};
    struct hop_reduced_step reduced = {0};
    struct hop_pass pass;
    const int32_t batches = pack(c, step, &measured.samples);
    const struct hop_command_message message = {.kind = HOP_COMMAND_TRAIN,
                                                .schedule = schedule_for(c, step, batches),
                                                .step = step,
                                                .batches = batches};
    memset(c->losses, 0, (size_t)batches * sizeof *c->losses);
    memset(c->squares, 0, c->state.parameters.count * sizeof *c->squares);
    HOP_TRY(hop_coordinator_command(c, &message, err));
    if (c->session.executor) {
        HOP_TRY(hop_coordinator_own_pass(c, &message, &pass, err));
        take_pass(c, c->session.device, &pass, &reduced);
    }
    HOP_TRY(receive_reports(c, &reduced, err));
    HOP_TRY(reduce(c, step, &reduced, err));
    const struct hop_update update = make_update(c, step, &reduced);
    HOP_TRY(apply_update(c, &update, err));
    for (int32_t m = 0; m < batches; m++)
        measured.tokens += c->session.batches[m].tokens;
    measured.labels = c->session.batches[0].label_total;
    measured.seconds = hop_clock_now() - start;
    c->step = step;
    c->final_loss = reduced.loss;
    c->busy += reduced.busy;
    c->samples += (double)measured.samples;
    c->progress.input_tokens += measured.tokens;
    return record(c, step, &update, &reduced, &measured, err);
}
