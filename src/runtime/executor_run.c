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

/* A real network's exchanges between emulated shards hold up the clock. */
static void emulate(struct hop_executor_pass *pass, const struct hop_task *task, double *start,
                    double *end)
{
    const bool joint = hop_pass_is_joint(pass, task);
    const double clock = hop_emulation_clock(pass->emulation);
    if (!joint && pass->executor->exchanging > 0)
        hop_emulation_arrived(pass->emulation, clock + pass->executor->exchanging);
    hop_emulation_finish(pass->emulation, task, joint, rows_of(pass, task->micro_batch), *start,
                         start, end);
}

/* When the task started and ended; an emulated one ends when its device would be done. */
static void finish_task(struct hop_executor_pass *pass, const struct hop_task *task, double *start,
                        double *end)
{
    if (pass->emulation)
        emulate(pass, task, start, end);
    else
        *end = hop_clock_now();
    pass->busy += *end - *start;
}

static hop_status compute(struct hop_executor_pass *pass, const struct hop_task *task,
                          const void *input, void *output, double *start, double *end,
                          struct hop_error *err)
{
    struct hop_background *const background = pass->executor->transport->background;
    HOP_TRY(hop_pass_meet_gang(pass, task, err));
    pass->executor->exchanging = 0;
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
    if (task->kind != HOP_STEP)
        HOP_TRY(hop_pass_send_derivatives(pass, index, err));
    return hop_pass_release_input(pass, index, err);
}

/* Results */

/* Of the rows that the part speaks for: those of a gang are every number once. */
static double square_of(const struct hop_executor_part *part, const struct hop_parameter *item)
{
    const int32_t rank = (int32_t)(item->factor == HOP_LORA_A ? item->rows : item->columns);
    const struct hop_range rows = hop_shard_own_rows(&part->executor->config.model, &part->shard,
                                                     item->target, item->factor, rank);
    const size_t columns = (size_t)item->columns;
    return hop_sum_of_squares(hop_stage_parameters(part->stage)->gradients + item->offset +
                                  (size_t)rows.lo * columns,
                              (size_t)(rows.hi - rows.lo) * columns);
}

static int32_t sum_squares(struct hop_executor *executor)
{
    int32_t n = 0;
    for (int32_t p = 0; p < executor->part_count; p++) {
        const struct hop_executor_part *const part = &executor->parts[p];
        const struct hop_parameters *const parameters = hop_stage_parameters(part->stage);
        if (executor->plan->parts[part->index].gradient == HOP_GRADIENT_NONE)
            continue;
        for (size_t i = 0; i < parameters->count; i++)
            executor->square[n++] = square_of(part, &parameters->items[i]);
    }
    return n;
}

static void collect(struct hop_executor_pass *pass, struct hop_pass *out)
{
    struct hop_executor *const executor = pass->executor;
    const struct hop_schedule *const schedule = &pass->route->schedule;
    *out = (struct hop_pass){.busy = pass->busy,
                             .loss = executor->loss,
                             .square = executor->square,
                             .held = (double)executor->held,
                             .scores = executor->scores,
                             .picked = executor->picked};
    if (hop_executor_has_head(executor))
        out->losses = schedule->micro_batches;
    hop_pass_collect_derivatives(pass, out);
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
    executor->pass = &pass;
    memset(executor->loss, 0, (size_t)executor->micro_batches * sizeof *executor->loss);
    memset(executor->exit_loss, 0, (size_t)executor->micro_batches * sizeof *executor->exit_loss);
    HOP_TRY(hop_pass_post_receives(&pass, err));
    for (int32_t i = 0; i < list->count; i++)
        HOP_TRY(run_task(&pass, i, err));
    HOP_TRY(hop_pass_await_sends(&pass, err));
    executor->pass = NULL;
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
