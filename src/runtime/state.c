/* Adapters and moments on their way between the coordinator and the devices, and into checkpoints.
 * A part's parameters are one run of the whole model's, because both are ordered by block. */
#include "runtime/coordinator_internal.h"

#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "runtime/console.h"

/* Where the parameters of block `block` begin. */
static size_t offset_of(const struct hop_coordinator *c, int32_t block)
{
    return (size_t)hop_lora_parameters(&c->model, &c->lora, 0, block);
}

enum direction { INTO_TRANSFER, OUT_OF_TRANSFER };

static void copy(float *full, float *transfer, size_t n, enum direction direction)
{
    if (direction == INTO_TRANSFER)
        memcpy(transfer, full, n * sizeof(float));
    else
        memcpy(full, transfer, n * sizeof(float));
}

/* Moves values and moments of a device's parts between the full state and c->transfer. Returns the
 * floats. */
static size_t move(struct hop_coordinator *c, int32_t device, enum direction direction)
{
    size_t at = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        if (part->device != device)
            continue;
        const size_t from = offset_of(c, part->lo), n = offset_of(c, part->hi) - from;
        copy(c->state.parameters.values + from, c->transfer + at, n, direction);
        copy(c->state.adamw.exp_avg + from, c->transfer + at + n, n, direction);
        copy(c->state.adamw.exp_avg_sq + from, c->transfer + at + 2 * n, n, direction);
        at += 3 * n;
    }
    return at;
}

hop_status hop_coordinator_scatter(struct hop_coordinator *c, struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++) {
        const size_t n = move(c, c->ranks.device_of[r], INTO_TRANSFER);
        HOP_TRY(hop_send(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_STATE, c->transfer,
                         n * sizeof(float), err));
    }
    if (!c->session.executor)
        return HOP_OK;
    move(c, c->session.device, INTO_TRANSFER);
    return hop_executor_state_set(c->session.executor, c->transfer, err);
}

hop_status hop_coordinator_gather(struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_command_message message = {.kind = HOP_COMMAND_GET_STATE};
    HOP_TRY(hop_coordinator_command(c, &message, err));
    for (int r = 1; r < c->ranks.count; r++) {
        /* The sizes are known from the plan: what arrives must match. */
        const size_t n = move(c, c->ranks.device_of[r], INTO_TRANSFER);
        HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_STATE, c->transfer,
                            n * sizeof(float), "adapters and moments", err));
        move(c, c->ranks.device_of[r], OUT_OF_TRANSFER);
        HOP_TRY(hop_request_wait(c->transport, &c->sends[r], "a command to be taken", err));
    }
    if (c->session.executor) {
        hop_executor_state_get(c->session.executor, c->transfer);
        move(c, c->session.device, OUT_OF_TRANSFER);
    }
    c->state.adamw.steps = c->step;
    return HOP_OK;
}

static hop_status resume(struct hop_coordinator *c, bool *found, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *path = NULL;
    HOP_TRY(hop_checkpoint_latest(c->directory, &path, err));
    *found = path != NULL;
    if (!path)
        return HOP_OK;
    hop_trainer_state_free(&c->progress);
    HOP_TRY_DONE(hop_checkpoint_load(path, &c->model, &c->lora, &c->state.parameters,
                                     &c->state.adamw, &c->progress, err));
    c->step = c->resumed = c->progress.global_step;
    hop_console_note("continuing after step %lld from %s", (long long)c->step, path);
done:
    free(path);
    return status;
}

hop_status hop_coordinator_initialise(struct hop_coordinator *c, struct hop_error *err)
{
    bool found = false;
    if (c->job.resume && c->mode == HOP_RUN_TRAIN)
        HOP_TRY(resume(c, &found, err));
    if (found)
        return HOP_OK;
    if (c->job.resume && c->mode == HOP_RUN_TRAIN)
        hop_console_note("no checkpoint in %s: starting at the beginning", c->directory);
    hop_parameters_initialise(&c->state.parameters, (uint64_t)c->job.train.seed);
    if (c->job.lora.init)
        HOP_TRY(hop_adapter_load(c->job.lora.init, &c->model, &c->lora, &c->state.parameters, err));
    return HOP_OK;
}

hop_status hop_coordinator_checkpoint(struct hop_coordinator *c, struct hop_error *err)
{
    HOP_TRY(hop_coordinator_gather(c, err));
    c->progress.global_step = c->step;
    return hop_checkpoint_save(c->directory, &c->progress, &c->lora, &c->state.parameters,
                               &c->state.adamw, c->job.model, err);
}

hop_status hop_coordinator_save_adapter(struct hop_coordinator *c, struct hop_error *err)
{
    char *path = NULL;
    HOP_TRY(hop_coordinator_gather(c, err));
    HOP_TRY(hop_coordinator_take_best(c, err));
    HOP_TRY(hop_coordinator_path(c, "adapter", &path, err));
    const hop_status status =
        hop_adapter_save(path, &c->lora, &c->state.parameters, c->job.model, err);
    free(path);
    return status;
}
