/* Creation of an executor and its optimizer update. */
#include "runtime/executor_internal.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "train/clip.h"

static hop_status open_backend(struct hop_executor *executor, struct hop_error *err)
{
    const struct hop_ops *const ops = hop_backend_find(executor->config.backend);
    if (!ops)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "backend '%s' is not part of this build; see `hybridop devices`",
                        executor->config.backend);
    executor->ops = *ops;
    executor->forward_ops = hop_ops_forward_only(ops);
    return executor->ops.open(executor->config.threads, &executor->backend, err);
}

static hop_status take_schedules(struct hop_executor *executor, struct hop_schedule *schedules,
                                 int32_t count, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&executor->routes, (size_t)count, sizeof *executor->routes, err));
    for (; executor->route_count < count; executor->route_count++) {
        struct hop_route *const route = &executor->routes[executor->route_count];
        HOP_TRY(hop_route_create(executor->plan, &schedules[executor->route_count],
                                 executor->config.device, executor->config.window, route, err));
        const int32_t tags =
            hop_route_reduction_tag(route, executor->reductions.count) + executor->plan->part_count;
        if (tags > hop_transport_tag_limit(executor->transport))
            return hop_fail(err, HOP_UNSUPPORTED,
                            "%d transfers, reductions and parts are more than MPI has tags for; "
                            "use fewer micro-batches",
                            tags);
        if (route->schedule.micro_batches > executor->micro_batches)
            executor->micro_batches = route->schedule.micro_batches;
        if (route->schedule.probes > executor->probes.probes)
            executor->probes.probes = route->schedule.probes;
        if (route->schedule.exit_probes > executor->exits.probes)
            executor->exits.probes = route->schedule.exit_probes;
    }
    return HOP_OK;
}

/* The most of `measure` over all schedules. */
static int32_t over_schedules(const struct hop_executor *executor, int32_t part,
                              int32_t (*measure)(const struct hop_schedule *, int32_t))
{
    int32_t most = 0;
    for (int32_t r = 0; r < executor->route_count; r++) {
        const int32_t value = measure(&executor->routes[r].schedule, part);
        most = value > most ? value : most;
    }
    return most;
}

static size_t stage_bytes(const struct hop_stage_config *config)
{
    const struct hop_stage_bytes bytes = hop_stage_bytes(config);
    return bytes.weights + bytes.parameters + (size_t)config->slots * bytes.kept + bytes.scratch;
}

/* Backward is computed by any backend where the plan wants it: a BP-free device that a baseline
 * trains exactly only takes longer. */
static const struct hop_ops *ops_for(const struct hop_executor *executor,
                                     enum hop_gradient gradient)
{
    return executor->config.bp || gradient == HOP_GRADIENT_BACKPROP ? &executor->ops
                                                                    : &executor->forward_ops;
}

/* Does the part keep activations for the tangents of its probes? */
static bool has_tangents(const struct hop_executor *executor, int32_t index)
{
    return executor->plan->parts[index].gradient == HOP_GRADIENT_ZEROTH_ORDER &&
           hop_plan_frees(executor->plan, index) == HOP_PROBE;
}

/* What of micro-batches is kept beside the stage. */
static hop_status create_kept(struct hop_executor *executor, struct hop_executor_part *part,
                              int32_t slots, struct hop_error *err)
{
    const struct hop_executor_config *const config = &executor->config;
    const int32_t pending = over_schedules(executor, part->index, hop_schedule_pending);
    HOP_TRY(hop_kept_create(slots, executor->micro_batches, &part->slots, err));
    if (!has_tangents(executor, part->index))
        return HOP_OK;
    HOP_TRY(hop_calloc(&part->probed, (size_t)executor->micro_batches, sizeof *part->probed, err));
    if (pending == 0)
        return HOP_OK;
    part->tangent_bytes = hop_align((size_t)executor->probes.probes *
                                    (size_t)config->part_limits[part->index].tokens *
                                    (size_t)config->model.hidden * hop_dtype_size(config->dtype));
    HOP_TRY(hop_kept_create(pending, executor->micro_batches, &part->pending, err));
    HOP_TRY(hop_calloc_aligned(&part->tangents, (size_t)pending, part->tangent_bytes, err));
    executor->held += (size_t)pending * part->tangent_bytes;
    return HOP_OK;
}

static hop_status create_part(struct hop_executor *executor, int32_t index,
                              const struct hop_weights *weights, struct hop_error *err)
{
    const struct hop_part *const planned = &executor->plan->parts[index];
    struct hop_executor_part *const part = &executor->parts[executor->part_count];
    executor->part_of[index] = executor->part_count;
    part->executor = executor;
    part->index = index;
    HOP_TRY(hop_executor_gang_create(executor, part, err));
    part->head = hop_plan_next(executor->plan, index) < 0;
    part->exit = hop_plan_part_exits(executor->plan, index);
    const int32_t slots = over_schedules(executor, index, hop_schedule_slots);
    const struct hop_stage_config config = {
        .model = executor->config.model,
        .lora = executor->config.lora,
        .dtype = executor->config.dtype,
        .lo = planned->lo,
        .hi = planned->hi,
        .embed = hop_plan_previous(executor->plan, index) < 0,
        .head = part->head,
        .exit = part->exit,
        .gradient = planned->gradient,
        .limits = executor->config.part_limits[index],
        .slots = slots,
        .probes = hop_plan_passes(executor->plan) *
                  over_schedules(executor, index, hop_schedule_probe_batch),
        .per_sample = executor->plan->directions == HOP_PER_SAMPLE,
        .tangents = has_tangents(executor, index),
        .cache = executor->config.cache,
        .cache_sequences = executor->config.cache_sequences,
        .shard = part->shard,
        .exchange = {.reduce = hop_executor_exchange, .context = part},
    };
    executor->part_count++;
    HOP_TRY(hop_stage_create(ops_for(executor, planned->gradient), executor->backend, weights,
                             &config, &part->stage, err));
    const size_t total = hop_stage_parameters(part->stage)->total;
    HOP_TRY(hop_adamw_create(total, &part->adamw, err));
    executor->held += stage_bytes(&config) + 2 * total * sizeof(float);
    return create_kept(executor, part, slots, err);
}

static hop_status create_parts(struct hop_executor *executor, const struct hop_weights *weights,
                               struct hop_error *err)
{
    const size_t planned = (size_t)executor->plan->part_count;
    HOP_TRY(hop_calloc(&executor->parts, planned, sizeof *executor->parts, err));
    HOP_TRY(hop_calloc(&executor->part_of, planned, sizeof *executor->part_of, err));
    for (int32_t i = 0; i < executor->plan->part_count; i++) {
        executor->part_of[i] = -1;
        if (executor->plan->parts[i].device == executor->config.device)
            HOP_TRY(create_part(executor, i, weights, err));
    }
    return HOP_OK;
}

hop_status hop_executor_create(const struct hop_executor_config *config,
                               const struct hop_plan *plan, struct hop_schedule *schedules,
                               int32_t schedule_count, const struct hop_weights *weights,
                               struct hop_transport *transport, struct hop_executor **out,
                               struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_executor *executor = NULL;
    HOP_TRY_DONE(hop_calloc(&executor, 1, sizeof *executor, err));
    executor->config = *config;
    executor->plan = plan;
    executor->transport = transport;
    HOP_TRY_DONE(open_backend(executor, err));
    HOP_TRY_DONE(hop_executor_reductions_create(executor, err));
    HOP_TRY_DONE(take_schedules(executor, schedules, schedule_count, err));
    HOP_TRY_DONE(create_parts(executor, weights, err));
    HOP_TRY_DONE(hop_executor_reductions_join(executor, err));
    HOP_TRY_DONE(hop_executor_buffers_create(executor, err));
    *out = executor;
    executor = NULL;
done:
    hop_executor_free(executor);
    return status;
}

void hop_executor_free(struct hop_executor *executor)
{
    if (!executor)
        return;
    hop_executor_buffers_free(executor);
    hop_executor_reductions_free(executor);
    for (int32_t p = 0; p < executor->part_count; p++) {
        hop_stage_free(executor->parts[p].stage);
        hop_adamw_free(&executor->parts[p].adamw);
        hop_kept_free(&executor->parts[p].slots);
        hop_kept_free(&executor->parts[p].pending);
        free(executor->parts[p].tangents);
        free(executor->parts[p].probed);
    }
    for (int32_t r = 0; r < executor->route_count; r++)
        hop_route_free(&executor->routes[r]);
    free(executor->routes);
    free(executor->parts);
    free(executor->part_of);
    hop_timeline_free(&executor->timeline);
    if (executor->backend)
        executor->ops.close(executor->backend);
    free(executor);
}

hop_status hop_executor_update(struct hop_executor *executor, const struct hop_update *update,
                               struct hop_error *err)
{
    struct hop_adamw_options options = hop_adamw_default();
    options.weight_decay = (double)executor->config.weight_decay;
    for (int32_t p = 0; p < executor->part_count; p++) {
        struct hop_executor_part *const part = &executor->parts[p];
        const enum hop_gradient kind = executor->plan->parts[part->index].gradient;
        if (kind == HOP_GRADIENT_NONE)
            continue;
        const bool exact = kind == HOP_GRADIENT_BACKPROP;
        struct hop_parameters *const parameters = hop_stage_parameters(part->stage);
        hop_scale(parameters->gradients, parameters->total, exact ? update->clip : update->zo_clip);
        part->adamw.steps = update->step - 1;
        HOP_TRY(hop_adamw_step(&part->adamw, &options,
                               exact ? update->learning_rate : update->zo_learning_rate,
                               parameters->values, parameters->gradients, err));
        hop_parameters_zero_gradients(parameters);
        HOP_TRY(hop_stage_adapters_changed(part->stage, err));
    }
    return HOP_OK;
}

const struct hop_timeline *hop_executor_timeline(const struct hop_executor *executor)
{
    return &executor->timeline;
}
