/* Adapters and moments on their way between the coordinator and the devices, and into checkpoints.
 * A part's parameters are one run of the whole model's, because both are ordered by block. Every
 * copy of a block gets the same state, and must have the same state when it is collected. */
#include "runtime/coordinator_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "runtime/block_state.h"
#include "runtime/console.h"

/* Of blocks [lo, hi) in the full state. */
static struct hop_block_state state_of(const struct hop_coordinator *c, int32_t lo, int32_t hi)
{
    const size_t at = (size_t)hop_lora_parameters(&c->model, &c->lora, 0, lo);
    return (struct hop_block_state){.values = c->state.parameters.values + at,
                                    .exp_avg = c->state.adamw.exp_avg + at,
                                    .exp_avg_sq = c->state.adamw.exp_avg_sq + at,
                                    .count =
                                        (size_t)hop_lora_parameters(&c->model, &c->lora, lo, hi)};
}

size_t hop_coordinator_state_floats(const struct hop_coordinator *c, int32_t device)
{
    size_t n = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++)
        if (c->plan.parts[p].device == device)
            n += 3 * state_of(c, c->plan.parts[p].lo, c->plan.parts[p].hi).count;
    return n;
}

/* Values and moments of a device's parts into c->transfer. Returns the floats. */
static size_t fill(struct hop_coordinator *c, int32_t device)
{
    size_t at = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        if (part->device != device)
            continue;
        const struct hop_block_state state = state_of(c, part->lo, part->hi);
        at += hop_block_put(&state, c->transfer + at);
    }
    return at;
}

hop_status hop_coordinator_scatter(struct hop_coordinator *c, struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++) {
        const size_t n = fill(c, c->ranks.device_of[r]);
        HOP_TRY(hop_send(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_STATE, c->transfer,
                         n * sizeof(float), err));
    }
    if (!c->session.executor)
        return HOP_OK;
    fill(c, c->session.device);
    return hop_executor_state_set(c->session.executor, c->transfer, err);
}

/* Floats that a device sends when its state is collected. */
static size_t floats_from(const struct hop_coordinator *c, int32_t device)
{
    size_t n = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        for (int32_t block = part->lo; block < part->hi && part->device == device; block++)
            n += hop_block_floats(&c->plan, block, p, state_of(c, block, block + 1).count);
    }
    return n;
}

/* What a part said of its copy of a block. */
struct copy {
    int32_t part, block;
    uint64_t checksum;
};

struct copies {
    struct copy *items;
    size_t count, capacity;
};

static hop_status take_block(struct hop_coordinator *c, int32_t part, int32_t block,
                             const float *from, struct copies *copies, struct hop_error *err)
{
    const struct hop_block_state state = state_of(c, block, block + 1);
    if (hop_block_is_sent_by(&c->plan, block, part)) {
        hop_block_take(&state, from);
        return HOP_OK;
    }
    if (state.count == 0)
        return HOP_OK;
    HOP_TRY(
        hop_grow(&copies->items, &copies->capacity, copies->count + 1, sizeof *copies->items, err));
    struct copy *const copy = &copies->items[copies->count++];
    *copy = (struct copy){.part = part, .block = block};
    memcpy(&copy->checksum, from, sizeof copy->checksum);
    return HOP_OK;
}

/* c->transfer holds what the device sent. */
static hop_status take_device(struct hop_coordinator *c, int32_t device, struct copies *copies,
                              struct hop_error *err)
{
    const float *from = c->transfer;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        for (int32_t block = part->lo; block < part->hi && part->device == device; block++) {
            HOP_TRY(take_block(c, p, block, from, copies, err));
            from += hop_block_floats(&c->plan, block, p, state_of(c, block, block + 1).count);
        }
    }
    return HOP_OK;
}

static hop_status collect(struct hop_coordinator *c, struct copies *copies, struct hop_error *err)
{
    for (int r = 1; r < c->ranks.count; r++) {
        const int32_t device = c->ranks.device_of[r];
        HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_STATE, c->transfer,
                            floats_from(c, device) * sizeof(float), "adapters and moments", err));
        HOP_TRY(take_device(c, device, copies, err));
        HOP_TRY(hop_request_wait(c->transport, &c->sends[r], "a command to be taken", err));
    }
    if (!c->session.executor)
        return HOP_OK;
    hop_executor_state_get(c->session.executor, c->transfer);
    return take_device(c, c->session.device, copies, err);
}

/* A run whose copies have come apart trains several models at once. */
static hop_status compare(const struct hop_coordinator *c, const struct copies *copies,
                          struct hop_error *err)
{
    for (size_t i = 0; i < copies->count; i++) {
        const struct copy *const copy = &copies->items[i];
        const struct hop_block_state state = state_of(c, copy->block, copy->block + 1);
        if (hop_block_checksum(&state) != copy->checksum)
            return hop_fail(err, HOP_INTERNAL,
                            "step %lld: the adapters of block %d on device %s are not those of its "
                            "other copies; do all devices run the same build?",
                            (long long)c->step, copy->block,
                            c->job.cluster.devices[c->plan.parts[copy->part].device].name);
    }
    return HOP_OK;
}

hop_status hop_coordinator_gather(struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_command_message message = {.kind = HOP_COMMAND_GET_STATE};
    struct copies copies = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_coordinator_command(c, &message, err));
    HOP_TRY_DONE(collect(c, &copies, err));
    HOP_TRY_DONE(compare(c, &copies, err));
    c->state.adamw.steps = c->step;
done:
    free(copies.items);
    return status;
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
