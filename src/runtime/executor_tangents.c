/* Zeroth-order parts that get the gradient delta of their output: PROBEs are tangents J z then,
 * kept on the last of these parts until its DELTA makes <delta, J z> of them; or there are none,
 * and DELTA feeds delta back. */
#include <math.h>
#include <string.h>

#include "runtime/executor_internal.h"
#include "schedule/estimator.h"
#include "train/zo.h"

/* Kept tangents of probe q. */
static unsigned char *tangent_at(const struct hop_executor_pass *pass,
                                 const struct hop_executor_part *part, int32_t micro_batch,
                                 int32_t q)
{
    const size_t bytes = (size_t)pass->batches[micro_batch].tokens * hop_pass_token_bytes(pass);
    return part->tangents + (size_t)part->pending.of[micro_batch] * part->tangent_bytes +
           (size_t)q * bytes;
}

static void *place_for(const struct hop_executor_pass *pass, const struct hop_task *task,
                       struct hop_executor_part *part)
{
    if (part->probed[task->micro_batch] == 0)
        hop_kept_take(&part->pending, task->micro_batch);
    return tangent_at(pass, part, task->micro_batch, task->probe_lo);
}

static void release_slot(struct hop_executor_part *part, int32_t micro_batch)
{
    hop_stage_release(part->stage, part->slots.of[micro_batch]);
    hop_kept_release(&part->slots, micro_batch);
}

hop_status hop_pass_tangent(struct hop_executor_pass *pass, const struct hop_task *task,
                            struct hop_executor_part *part, const void *input, void *output,
                            struct hop_error *err)
{
    struct hop_executor *const executor = pass->executor;
    const int32_t m = task->micro_batch, count = task->probe_hi - task->probe_lo;
    for (int32_t q = task->probe_lo; q < task->probe_hi; q++)
        executor->probe_list[q - task->probe_lo] = (struct hop_probe){.direction = (uint16_t)q};
    const struct hop_probe_set set = {.seed = executor->config.seed,
                                      .step = (uint32_t)pass->step,
                                      .count = count,
                                      .probes = executor->probe_list,
                                      .distribution = executor->config.distribution};
    void *const to = part->tangents ? place_for(pass, task, part) : output;
    HOP_TRY(
        hop_stage_tangent(part->stage, &pass->batches[m], part->slots.of[m], &set, input, to, err));
    part->probed[m] += count;
    if (part->probed[m] == pass->route->schedule.probes)
        release_slot(part, m);
    return HOP_OK;
}

/* <delta, t> over the rows that number v stands for. */
static double inner_product(const struct hop_executor_pass *pass, int32_t micro_batch, int32_t v,
                            const unsigned char *delta, const unsigned char *tangent)
{
    const struct hop_executor_config *const config = &pass->executor->config;
    const struct hop_range tokens =
        hop_slice_tokens(&pass->batches[micro_batch], hop_pass_value_rows(pass, micro_batch, v));
    const size_t at = (size_t)tokens.lo * hop_pass_token_bytes(pass);
    return hop_zo_inner(delta + at, tangent + at,
                        (size_t)(tokens.hi - tokens.lo) * (size_t)config->model.hidden,
                        config->dtype);
}

static hop_status derive(struct hop_executor_pass *pass, const struct hop_task *task,
                         struct hop_executor_part *part, const void *delta, struct hop_error *err)
{
    const int32_t m = task->micro_batch, values = hop_pass_values(pass, m);
    for (int32_t q = 0; q < pass->route->schedule.probes; q++) {
        const unsigned char *const tangent = tangent_at(pass, part, m, q);
        for (int32_t v = 0; v < values; v++) {
            const double g = inner_product(pass, m, v, delta, tangent);
            if (!isfinite(g))
                return hop_fail(err, HOP_NUMERIC,
                                "step %lld: a directional derivative of micro-batch %d is not "
                                "finite; lower train.learning_rate or use train.dtype f32",
                                (long long)pass->step, m);
            hop_pass_put_derivative(pass, &pass->executor->probes, m, q, v, g);
        }
    }
    hop_kept_release(&part->pending, m);
    return HOP_OK;
}

/* What stands for the gradient of this part's input is handed on as it is. */
static hop_status feed_back(struct hop_executor_pass *pass, const struct hop_task *task,
                            struct hop_executor_part *part, const void *delta, void *output,
                            struct hop_error *err)
{
    const struct hop_batch *const batch = &pass->batches[task->micro_batch];
    HOP_TRY(hop_stage_feedback(part->stage, batch, part->slots.of[task->micro_batch],
                               hop_plan_feedback_lo(pass->executor->plan), delta, err));
    release_slot(part, task->micro_batch);
    if (output)
        memcpy(output, delta, (size_t)batch->tokens * hop_pass_token_bytes(pass));
    return HOP_OK;
}

hop_status hop_pass_delta(struct hop_executor_pass *pass, const struct hop_task *task,
                          struct hop_executor_part *part, const void *input, void *output,
                          struct hop_error *err)
{
    return pass->executor->plan->estimator == HOP_FEEDBACK
               ? feed_back(pass, task, part, input, output, err)
               : derive(pass, task, part, input, err);
}
