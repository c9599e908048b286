/* The step loop: one pass of a schedule over a mini-batch. */
#include <string.h>

#include "base/clock.h"
#include "runtime/executor_internal.h"
#include "train/clip.h"

static hop_status record(struct hop_executor_pass *pass, int32_t index, double start, double end,
                         struct hop_error *err)
{
    if (pass->step < 1 || pass->step > pass->executor->config.trace_steps)
        return HOP_OK;
    const struct hop_event event = {.device = pass->route->device,
                                    .step = (int32_t)pass->step,
                                    .task = pass->tasks[index],
                                    .start = start,
                                    .end = end};
    return hop_timeline_add(&pass->executor->timeline, &event, err);
}

static int32_t rows_of(const struct hop_executor_pass *pass, int32_t micro_batch)
{
    return micro_batch < 0 ? 0 : pass->batches[micro_batch].sequences;
}

/* When the task started and ended; an emulated one ends when its device would be done. */
static void finish_task(struct hop_executor_pass *pass, const struct hop_task *task, double *start,
                        double *end)
{
    if (pass->emulation)
        hop_emulation_finish(pass->emulation, task, rows_of(pass, task->micro_batch), *start, start,
                             end);
    else
        *end = hop_clock_now();
    pass->busy += *end - *start;
}

static hop_status compute(struct hop_executor_pass *pass, const struct hop_task *task,
                          const void *input, void *output, double *start, double *end,
                          struct hop_error *err)
{
    struct hop_background *const background = pass->executor->transport->background;
    *start = hop_clock_now();
    hop_background_set_active(background, true);
    const hop_status status = hop_pass_compute(pass, task, input, output, err);
    if (status == HOP_OK)
        finish_task(pass, task, start, end);
    hop_background_set_active(background, false);
    return status;
}

static hop_status run_task(struct hop_executor_pass *pass, int32_t index, struct hop_error *err)
{
    const struct hop_task *const task = &pass->tasks[index];
    const void *input;
    void *output;
    double start, end;
    HOP_TRY(hop_pass_await_input(pass, index, &input, err));
    HOP_TRY(hop_pass_await_output(pass, index, &output, err));
    if (task->kind == HOP_STEP)
        HOP_TRY(hop_pass_await_derivatives(pass, index, err));
    if (task->kind == HOP_REDUCE)
        HOP_TRY(hop_pass_reduce(pass, task, &start, &end, err));
    else
        HOP_TRY(compute(pass, task, input, output, &start, &end, err));
    HOP_TRY(record(pass, index, start, end, err));
    HOP_TRY(hop_pass_send_output(pass, index, output, err));
    if (task->kind == HOP_PROBE)
        HOP_TRY(hop_pass_send_derivatives(pass, index, err));
    return hop_pass_release_input(pass, index, err);
}

/* Results */

static int32_t sum_squares(struct hop_executor *executor)
{
    int32_t n = 0;
    for (int32_t p = 0; p < executor->part_count; p++) {
        if (executor->plan->parts[executor->parts[p].index].gradient == HOP_GRADIENT_NONE)
            continue;
        const struct hop_parameters *const parameters =
            hop_stage_parameters(executor->parts[p].stage);
        for (size_t i = 0; i < parameters->count; i++)
            executor->square[n++] = hop_sum_of_squares(
                parameters->gradients + parameters->items[i].offset, parameters->items[i].count);
    }
    return n;
}

static bool has_head(const struct hop_executor *executor)
{
    for (int32_t p = 0; p < executor->part_count; p++)
        if (executor->parts[p].head)
            return true;
    return false;
}

/* `probe_loss` is stored with the stride of the largest schedule; callers get it packed. */
static void pack_probe_losses(struct hop_executor *executor, const struct hop_schedule *schedule)
{
    for (int32_t m = 1; m < schedule->micro_batches; m++)
        memmove(executor->probe_loss + (size_t)m * (size_t)schedule->probes,
                executor->probe_loss + (size_t)m * (size_t)executor->probes,
                (size_t)schedule->probes * sizeof(double));
}

static void collect(struct hop_executor_pass *pass, struct hop_pass *out)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_schedule *const schedule = &pass->route->schedule;
    *out = (struct hop_pass){.busy = pass->busy,
                             .loss = executor->loss,
                             .probe_loss = executor->probe_loss,
                             .square = executor->square,
                             .held = (double)executor->held,
                             .scores = executor->scores,
                             .picked = executor->picked};
    if (has_head(executor)) {
        out->losses = schedule->micro_batches;
        out->derivatives = schedule->micro_batches * schedule->probes;
        pack_probe_losses(executor, schedule);
    }
    if (schedule->training)
        out->squares = sum_squares(executor);
    if (pass->emulation)
        out->late = *hop_emulation_lateness(pass->emulation);
}

static hop_status run_pass(struct hop_executor *executor, int32_t index, int64_t step,
                           const struct hop_batch *batches, const struct hop_places *places,
                           struct hop_pass *out, struct hop_error *err)
{
    const struct hop_route *const route = &executor->routes[index];
    const struct hop_task_list *const list = &route->schedule.lists[route->device];
    struct hop_executor_pass pass = {
        .executor = executor,
        .route = route,
        .tasks = list->tasks,
        .batches = batches,
        .places = places,
        .step = step,
        .emulation = route->schedule.training ? executor->config.emulation : NULL};
    if (pass.emulation)
        hop_emulation_begin(pass.emulation, hop_clock_now());
    memset(executor->loss, 0, (size_t)executor->micro_batches * sizeof *executor->loss);
    HOP_TRY(hop_pass_post_receives(&pass, err));
    for (int32_t i = 0; i < list->count; i++)
        HOP_TRY(run_task(&pass, i, err));
    HOP_TRY(hop_pass_await_sends(&pass, err));
    collect(&pass, out);
    return HOP_OK;
}

hop_status hop_executor_run(struct hop_executor *executor, int32_t index, int64_t step,
                            const struct hop_batch *batches, struct hop_pass *out,
                            struct hop_error *err)
{
    return run_pass(executor, index, step, batches, NULL, out, err);
}

hop_status hop_executor_decode(struct hop_executor *executor, int32_t index,
                               const struct hop_batch *batches, const struct hop_places *places,
                               struct hop_pass *out, struct hop_error *err)
{
    return run_pass(executor, index, 0, batches, places, out, err);
}
