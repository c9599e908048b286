/* Adapters and moments on their way between the coordinator and the devices, and into checkpoints.
 * Parts hold whole blocks or, as shards, slices of them. Every copy of a block gets the same state,
 * and must have the same state when it is collected. */
#include "runtime/coordinator_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "model/core.h"
#include "runtime/block_state.h"
#include "runtime/console.h"
#include "schedule/plan_shard.h"

/* Parameters that a part has of blocks [lo, hi). */
static size_t count_of(const struct hop_coordinator *c, int32_t part, int32_t lo, int32_t hi)
{
    const struct hop_shard shard = hop_plan_shard_of(&c->plan, &c->model, part);
    const struct hop_model_config model = hop_shard_model(&c->model, &shard);
    return (size_t)hop_lora_parameters(&model, &c->lora, lo, hi);
}

size_t hop_coordinator_state_floats(const struct hop_coordinator *c, int32_t device)
{
    size_t n = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++)
        if (c->plan.parts[p].device == device)
            n += 3 * count_of(c, p, c->plan.parts[p].lo, c->plan.parts[p].hi);
    return n;
}

/* Values, then first and second moments of what a part has of blocks [lo, hi), out of the full
 * state. Returns the floats. */
static size_t take_slices(const struct hop_coordinator *c, int32_t part, int32_t lo, int32_t hi,
                          float *to)
{
    const struct hop_shard shard = hop_plan_shard_of(&c->plan, &c->model, part);
    const struct hop_parameters *const whole = &c->state.parameters;
    const struct hop_adamw *const adamw = &c->state.adamw;
    size_t n = hop_shard_take(&c->model, &shard, whole, lo, hi, whole->values, to);
    n += hop_shard_take(&c->model, &shard, whole, lo, hi, adamw->exp_avg, to + n);
    return n + hop_shard_take(&c->model, &shard, whole, lo, hi, adamw->exp_avg_sq, to + n);
}

/* The same into it. */
static void put_slices(struct hop_coordinator *c, int32_t part, int32_t block, const float *from)
{
    const struct hop_shard shard = hop_plan_shard_of(&c->plan, &c->model, part);
    const struct hop_parameters *const whole = &c->state.parameters;
    const struct hop_adamw *const adamw = &c->state.adamw;
    const int32_t end = block + 1;
    size_t n = hop_shard_put(&c->model, &shard, whole, block, end, from, whole->values);
    n += hop_shard_put(&c->model, &shard, whole, block, end, from + n, adamw->exp_avg);
    hop_shard_put(&c->model, &shard, whole, block, end, from + n, adamw->exp_avg_sq);
}

/* Values and moments of a device's parts into c->transfer. Returns the floats. */
static size_t fill(struct hop_coordinator *c, int32_t device)
{
    size_t at = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        if (part->device == device)
            at += take_slices(c, p, part->lo, part->hi, c->transfer + at);
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

/* Floats that a part sends of a block when its state is collected. */
static size_t floats_of(const struct hop_coordinator *c, int32_t part, int32_t block)
{
    return hop_block_floats(&c->plan, block, part, count_of(c, part, block, block + 1));
}

/* Floats that a device sends when its state is collected. */
static size_t floats_from(const struct hop_coordinator *c, int32_t device)
{
    size_t n = 0;
    for (int32_t p = 0; p < c->plan.part_count; p++) {
        const struct hop_part *const part = &c->plan.parts[p];
        for (int32_t block = part->lo; block < part->hi && part->device == device; block++)
            n += floats_of(c, p, block);
    }
    return n;
}

/* What a part said of its copy of a block, or of its slices. */
struct copy {
    int32_t part, block;
    uint64_t checksum;
};

struct copies {
    struct copy *items;
    size_t count, capacity;
};

/* Of values and moments, one after the other. */
static uint64_t checksum_of(const float *floats, size_t count)
{
    const struct hop_block_state state = {.values = (float *)floats,
                                          .exp_avg = (float *)floats + count,
                                          .exp_avg_sq = (float *)floats + 2 * count,
                                          .count = count};
    return hop_block_checksum(&state);
}

/* Shards share factors: what one sends must not change what another has sent. */
static hop_status take_block(struct hop_coordinator *c, int32_t part, int32_t block,
                             const float *from, struct copies *copies, struct hop_error *err)
{
    const size_t count = count_of(c, part, block, block + 1);
    struct copy copy = {.part = part, .block = block};
    if (count == 0)
        return HOP_OK;
    if (hop_block_is_sent_by(&c->plan, block, part)) {
        put_slices(c, part, block, from);
        copy.checksum = checksum_of(from, count);
    } else {
        memcpy(&copy.checksum, from, sizeof copy.checksum);
    }
    HOP_TRY(
        hop_grow(&copies->items, &copies->capacity, copies->count + 1, sizeof *copies->items, err));
    copies->items[copies->count++] = copy;
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
            from += floats_of(c, p, block);
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
        const size_t count = count_of(c, copy->part, copy->block, copy->block + 1);
        take_slices(c, copy->part, copy->block, copy->block + 1, c->transfer);
        if (checksum_of(c->transfer, count) != copy->checksum)
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

/* What is trained as plain LoRA. Release it with release_plain(). */
static hop_status make_plain(struct hop_coordinator *c, struct hop_plain_adapter *plain,
                             struct hop_error *err)
{
    const int32_t blocks = c->model.blocks;
    if (!hop_lora_has_cores(&c->lora, 0, blocks)) {
        *plain = (struct hop_plain_adapter){.lora = c->lora, .parameters = c->state.parameters};
        return HOP_OK;
    }
    if (!c->state.fixed.items)
        HOP_TRY(hop_core_fixed(c->session.weights, &c->model, &c->lora, 0, blocks, &c->state.fixed,
                               err));
    return hop_core_expand(&c->model, &c->lora, &c->state.fixed, &c->state.parameters, 0, blocks,
                           &plain->lora, &plain->parameters, err);
}

static void release_plain(const struct hop_coordinator *c, struct hop_plain_adapter *plain)
{
    if (plain->parameters.items != c->state.parameters.items)
        hop_parameters_free(&plain->parameters);
}

hop_status hop_coordinator_checkpoint(struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_plain_adapter plain = {0};
    HOP_TRY(hop_coordinator_gather(c, err));
    c->progress.global_step = c->step;
    HOP_TRY(make_plain(c, &plain, err));
    const hop_status status =
        hop_checkpoint_save(c->directory, &c->progress, &plain, &c->state.parameters,
                            &c->state.adamw, c->job.model, err);
    release_plain(c, &plain);
    return status;
}

hop_status hop_coordinator_save_adapter(struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_plain_adapter plain = {0};
    hop_status status;
    char *path = NULL;
    HOP_TRY_DONE(hop_coordinator_gather(c, err));
    HOP_TRY_DONE(hop_coordinator_take_best(c, err));
    HOP_TRY_DONE(make_plain(c, &plain, err));
    HOP_TRY_DONE(hop_coordinator_path(c, "adapter", &path, err));
    HOP_TRY_DONE(hop_adapter_save(path, &plain.lora, &plain.parameters, c->job.model, err));
done:
    release_plain(c, &plain);
    free(path);
    return status;
}
