/* The rules that a plan must keep. */
#include "schedule/plan.h"

#include <math.h>

#include "schedule/estimator.h"

static hop_status check_sizes(const struct hop_plan *plan, struct hop_error *err)
{
    if (plan->blocks < 1 || plan->devices < 1 || plan->part_count < 1)
        return hop_fail(err, HOP_INPUT,
                        "plan: %d blocks, %d devices and %d parts; each must be at least 1",
                        plan->blocks, plan->devices, plan->part_count);
    if (plan->micro_batches < 1 || plan->probes < 0)
        return hop_fail(err, HOP_INPUT,
                        "plan: %d micro-batches and %d probes; at least 1 and 0 are needed",
                        plan->micro_batches, plan->probes);
    if (plan->exit_probes < 0)
        return hop_fail(err, HOP_INPUT, "plan: %d exit probes; 0 or more can be",
                        plan->exit_probes);
    return HOP_OK;
}

static bool is_choice(int value, int count)
{
    return value >= 0 && value < count;
}

static hop_status check_choices(const struct hop_plan *plan, struct hop_error *err)
{
    if (is_choice((int)plan->estimator, HOP_ESTIMATORS) &&
        is_choice((int)plan->directions, HOP_PER_SAMPLE + 1) &&
        is_choice((int)plan->exit_base, HOP_EXIT_FULL_MODEL + 1))
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "plan: estimator %d, directions %d or exit base %d is none that there is",
                    (int)plan->estimator, (int)plan->directions, (int)plan->exit_base);
}

static hop_status check_share(const char *what, double lo, double hi, int32_t p,
                              struct hop_error *err)
{
    if (lo >= 0 && lo < hi && hi <= 1)
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "plan: part %d takes the share [%g, %g) of the %s; it must not be empty and "
                    "lie in [0, 1)",
                    p, lo, hi, what);
}

static bool is_whole(double lo, double hi)
{
    return lo == 0 && hi == 1;
}

static hop_status not_whole(int32_t p, const char *what, double lo, double hi,
                            struct hop_error *err)
{
    return hop_fail(err, HOP_UNSUPPORTED,
                    "plan: part %d takes the share [%g, %g) of the %s; in a plan with zeroth-order "
                    "parts every part takes all of them, [0, 1)",
                    p, lo, hi, what);
}

/* A directional derivative is that of a whole micro-batch, made by one head. */
static hop_status check_line(const struct hop_plan *plan, int32_t p, struct hop_error *err)
{
    const struct hop_part *const part = &plan->parts[p];
    if (!hop_plan_has_zeroth_order(plan))
        return HOP_OK;
    if (part->pipeline != 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "plan: part %d is in pipeline %d; a plan with zeroth-order parts has one "
                        "pipeline, 0",
                        p, part->pipeline);
    if (!is_whole(part->sample_lo, part->sample_hi))
        return not_whole(p, "samples", part->sample_lo, part->sample_hi, err);
    if (!is_whole(part->tensor_lo, part->tensor_hi))
        return not_whole(p, "tensors", part->tensor_lo, part->tensor_hi, err);
    if (!is_whole(part->micro_lo, part->micro_hi))
        return not_whole(p, "micro-batches", part->micro_lo, part->micro_hi, err);
    return HOP_OK;
}

static bool is_time(double seconds)
{
    return isfinite(seconds) && seconds >= 0;
}

static hop_status check_part(const struct hop_plan *plan, int32_t p, struct hop_error *err)
{
    const struct hop_part *const part = &plan->parts[p];
    if (part->device < 0 || part->device >= plan->devices)
        return hop_fail(err, HOP_INPUT, "plan: part %d is on device %d; there are %d devices", p,
                        part->device, plan->devices);
    if (part->pipeline < 0 || part->pipeline >= plan->part_count)
        return hop_fail(err, HOP_INPUT, "plan: part %d is in pipeline %d; pipelines are 0 to %d", p,
                        part->pipeline, plan->part_count - 1);
    if (part->stage < 0 || part->stage >= plan->part_count)
        return hop_fail(err, HOP_INPUT, "plan: part %d has stage %d; stages are 0 to %d", p,
                        part->stage, plan->part_count - 1);
    if (part->lo < 0 || part->lo > part->hi || part->hi > plan->blocks)
        return hop_fail(err, HOP_INPUT,
                        "plan: part %d holds blocks [%d, %d); the model has blocks [0, %d)", p,
                        part->lo, part->hi, plan->blocks);
    if (part->lo == part->hi && part->stage > 0)
        return hop_fail(err, HOP_INPUT,
                        "plan: part %d holds no block; only stage 0 may hold just the embedding",
                        p);
    if ((int)part->gradient < HOP_GRADIENT_NONE || part->gradient > HOP_GRADIENT_ZEROTH_ORDER)
        return hop_fail(err, HOP_INPUT, "plan: part %d has no known gradient mode (%d)", p,
                        (int)part->gradient);
    if (!is_time(part->forward_seconds) || !is_time(part->memory_bytes))
        return hop_fail(err, HOP_INPUT,
                        "plan: part %d has forward_seconds %g and memory_bytes %g; both must be "
                        "finite and not negative",
                        p, part->forward_seconds, part->memory_bytes);
    if (part->in_flight < 0 || part->pending < 0)
        return hop_fail(err, HOP_INPUT,
                        "plan: part %d keeps %d micro-batches and the tangents of %d; 0 or more "
                        "can be",
                        p, part->in_flight, part->pending);
    HOP_TRY(check_share("samples", part->sample_lo, part->sample_hi, p, err));
    HOP_TRY(check_share("tensors", part->tensor_lo, part->tensor_hi, p, err));
    HOP_TRY(check_share("micro-batches", part->micro_lo, part->micro_hi, p, err));
    return check_line(plan, p, err);
}

/* Two parts of one stage: the same work on other samples, or on other tensors of the same ones. */
static hop_status check_pair(const struct hop_plan *plan, int32_t p, int32_t q,
                             struct hop_error *err)
{
    const struct hop_part *const a = &plan->parts[p], *const b = &plan->parts[q];
    if (a->lo != b->lo || a->hi != b->hi)
        return hop_fail(err, HOP_INPUT,
                        "plan: parts %d and %d of stage %d hold blocks [%d, %d) and [%d, %d); the "
                        "parts of a stage hold the same",
                        p, q, a->stage, a->lo, a->hi, b->lo, b->hi);
    if (a->gradient != b->gradient)
        return hop_fail(err, HOP_INPUT,
                        "plan: parts %d and %d of stage %d are %s and %s; the parts of a stage are "
                        "trained alike",
                        p, q, a->stage, hop_gradient_names[a->gradient],
                        hop_gradient_names[b->gradient]);
    if (a->sample_lo >= b->sample_hi || b->sample_lo >= a->sample_hi)
        return HOP_OK;
    if (a->sample_lo != b->sample_lo || a->sample_hi != b->sample_hi)
        return hop_fail(err, HOP_INPUT,
                        "plan: parts %d and %d of stage %d take the samples [%g, %g) and [%g, %g); "
                        "they must be the same or disjoint",
                        p, q, a->stage, a->sample_lo, a->sample_hi, b->sample_lo, b->sample_hi);
    if (a->tensor_lo < b->tensor_hi && b->tensor_lo < a->tensor_hi)
        return hop_fail(err, HOP_INPUT,
                        "plan: parts %d and %d of stage %d both take the tensors from %g on of the "
                        "same samples; make their tensor shares disjoint",
                        p, q, a->stage, fmax(a->tensor_lo, b->tensor_lo));
    if (a->device == b->device)
        return hop_fail(
            err, HOP_INPUT,
            "plan: shards %d and %d of stage %d run in lock-step but are both on device "
            "%d; put them on different devices",
            p, q, a->stage, a->device);
    return HOP_OK;
}

static hop_status check_pairs(const struct hop_plan *plan, int32_t pipeline, int32_t stage,
                              struct hop_error *err)
{
    for (int32_t p = -1; (p = hop_plan_stage_part(plan, pipeline, stage, p)) >= 0;)
        for (int32_t q = p; (q = hop_plan_stage_part(plan, pipeline, stage, q)) >= 0;)
            HOP_TRY(check_pair(plan, p, q, err));
    return HOP_OK;
}

/* The shards of the gang of part p are disjoint: they tile [0, 1) if each begins where another
 * ends. */
static hop_status check_tensors(const struct hop_plan *plan, int32_t p, struct hop_error *err)
{
    for (double covered = 0; covered < 1;) {
        int32_t q = hop_plan_shard(plan, p, -1);
        while (q >= 0 && plan->parts[q].tensor_lo != covered)
            q = hop_plan_shard(plan, p, q);
        if (q < 0)
            return hop_fail(
                err, HOP_INPUT,
                "plan: beside part %d no part of stage %d takes the tensors from %g on; "
                "tensor shares of the same samples must meet",
                p, plan->parts[p].stage, covered);
        covered = plan->parts[q].tensor_hi;
    }
    return HOP_OK;
}

static hop_status check_tiling(const struct hop_plan *plan, int32_t pipeline, int32_t stage,
                               struct hop_error *err)
{
    for (double covered = 0; covered < 1;) {
        int32_t p = hop_plan_stage_part(plan, pipeline, stage, -1);
        while (p >= 0 && plan->parts[p].sample_lo != covered)
            p = hop_plan_stage_part(plan, pipeline, stage, p);
        if (p < 0)
            return hop_fail(
                err, HOP_INPUT,
                "plan: no part of stage %d in pipeline %d takes the samples from %g on; "
                "sample shares of a stage must meet",
                stage, pipeline, covered);
        HOP_TRY(check_tensors(plan, p, err));
        covered = plan->parts[p].sample_hi;
    }
    return HOP_OK;
}

static hop_status check_stage_numbers(const struct hop_plan *plan, int32_t pipeline,
                                      struct hop_error *err)
{
    const int32_t stages = hop_plan_stages(plan, pipeline);
    if (!stages)
        return hop_fail(err, HOP_INPUT,
                        "plan: no part is in pipeline %d; number the pipelines from 0 on",
                        pipeline);
    for (int32_t stage = 0; stage < stages; stage++)
        if (hop_plan_stage_part(plan, pipeline, stage, -1) < 0)
            return hop_fail(
                err, HOP_INPUT,
                "plan: no part has stage %d in pipeline %d; number its stages from 0 on", stage,
                pipeline);
    return HOP_OK;
}

static hop_status check_stages(const struct hop_plan *plan, int32_t pipeline, struct hop_error *err)
{
    int32_t covered = 0, behind_backprop = -1;
    HOP_TRY(check_stage_numbers(plan, pipeline, err));
    for (int32_t stage = 0; stage < hop_plan_stages(plan, pipeline); stage++) {
        const int32_t p = hop_plan_stage_part(plan, pipeline, stage, -1);
        const struct hop_part *const part = &plan->parts[p];
        if (part->lo != covered)
            return hop_fail(
                err, HOP_INPUT,
                "plan: part %d (stage %d) begins at block %d; the stage before ends at %d", p,
                stage, part->lo, covered);
        covered = part->hi;
        HOP_TRY(check_pairs(plan, pipeline, stage, err));
        HOP_TRY(check_tiling(plan, pipeline, stage, err));
        if (part->gradient == HOP_GRADIENT_BACKPROP)
            behind_backprop = p;
        else if (behind_backprop >= 0)
            return hop_fail(err, HOP_INPUT,
                            "plan: part %d (stage %d) is %s behind part %d, which waits for its "
                            "gradient; put parts without backward first",
                            p, stage, hop_gradient_names[part->gradient], behind_backprop);
    }
    if (covered != plan->blocks)
        return hop_fail(err, HOP_INPUT,
                        "plan: the last stage ends at block %d; the model has %d blocks", covered,
                        plan->blocks);
    return HOP_OK;
}

static hop_status check_micro_shares(const struct hop_plan *plan, struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const int32_t q = hop_plan_stage_part(plan, part->pipeline, 0, -1);
        const struct hop_part *const first = &plan->parts[q];
        if (part->micro_lo != first->micro_lo || part->micro_hi != first->micro_hi)
            return hop_fail(
                err, HOP_INPUT,
                "plan: parts %d and %d of pipeline %d handle the micro-batches [%g, %g) "
                "and [%g, %g); the parts of a pipeline handle the same",
                q, p, part->pipeline, first->micro_lo, first->micro_hi, part->micro_lo,
                part->micro_hi);
    }
    return HOP_OK;
}

/* As many pipelines as begin where another ends cover [0, 1); one more would be there twice. */
static hop_status check_pipelines(const struct hop_plan *plan, struct hop_error *err)
{
    const int32_t pipelines = hop_plan_pipelines(plan);
    int32_t used = 0;
    HOP_TRY(check_micro_shares(plan, err));
    for (double covered = 0; covered < 1; used++) {
        int32_t r = 0;
        while (r < pipelines &&
               plan->parts[hop_plan_stage_part(plan, r, 0, -1)].micro_lo != covered)
            r++;
        if (r == pipelines)
            return hop_fail(err, HOP_INPUT,
                            "plan: no pipeline handles the micro-batches from %g on; the shares of "
                            "the pipelines must meet",
                            covered);
        covered = plan->parts[hop_plan_stage_part(plan, r, 0, -1)].micro_hi;
    }
    if (used != pipelines)
        return hop_fail(err, HOP_INPUT,
                        "plan: %d of %d pipelines handle all micro-batches; make the shares of the "
                        "pipelines disjoint",
                        used, pipelines);
    return HOP_OK;
}

/* Copies of a block learn the same and are reduced, which a device does with one of them. */
static hop_status check_copies(const struct hop_plan *plan, struct hop_error *err)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        for (int32_t q = p + 1; q < plan->part_count; q++) {
            const struct hop_part *const a = &plan->parts[p], *const b = &plan->parts[q];
            const int32_t block = a->lo > b->lo ? a->lo : b->lo;
            if (block >= a->hi || block >= b->hi)
                continue;
            if (a->gradient != b->gradient)
                return hop_fail(err, HOP_INPUT,
                                "plan: block %d is %s in part %d and %s in part %d; train its "
                                "copies alike",
                                block, hop_gradient_names[a->gradient], p,
                                hop_gradient_names[b->gradient], q);
            if (a->gradient == HOP_GRADIENT_BACKPROP && a->device == b->device)
                return hop_fail(err, HOP_INPUT,
                                "plan: parts %d and %d both train block %d on device %d; put them "
                                "on different devices",
                                p, q, block, a->device);
        }
    }
    return HOP_OK;
}

/* From stage `first` to the last zeroth-order one, all are zeroth-order: what they send each other
 * would pass through the others. */
static hop_status check_unbroken(const struct hop_plan *plan, int32_t first, const char *what,
                                 struct hop_error *err)
{
    const int32_t last = plan->parts[hop_plan_last_zeroth_order(plan)].stage;
    for (int32_t stage = first; stage < last; stage++) {
        const int32_t p = hop_plan_stage_part(plan, 0, stage, -1);
        if (plan->parts[p].gradient != HOP_GRADIENT_ZEROTH_ORDER)
            return hop_fail(err, HOP_INPUT,
                            "plan: part %d (stage %d) is %s in front of a zeroth-order one; %s "
                            "cannot pass it",
                            p, stage, hop_gradient_names[plan->parts[p].gradient], what);
    }
    return HOP_OK;
}

static int32_t first_zeroth_order_stage(const struct hop_plan *plan)
{
    int32_t stage = 0;
    while (plan->parts[hop_plan_stage_part(plan, 0, stage, -1)].gradient !=
           HOP_GRADIENT_ZEROTH_ORDER)
        stage++;
    return stage;
}

static hop_status check_delta(const struct hop_plan *plan, struct hop_error *err)
{
    const char *const name = hop_estimator_names[plan->estimator];
    const int32_t last = hop_plan_last_zeroth_order(plan);
    const int32_t next = hop_plan_next(plan, last);
    if (next < 0 || plan->parts[next].gradient != HOP_GRADIENT_BACKPROP)
        return hop_fail(err, HOP_INPUT,
                        "plan: %s needs the gradient of the output of part %d, but no backprop "
                        "part is next; put one behind it, or choose estimator difference",
                        name, last);
    return check_unbroken(plan, first_zeroth_order_stage(plan),
                          plan->estimator == HOP_FEEDBACK ? "the gradient of feedback"
                                                          : "the tangents of boundary",
                          err);
}

static hop_status check_exit_probes(const struct hop_plan *plan, struct hop_error *err)
{
    if (!hop_plan_has_zeroth_order(plan))
        return hop_fail(err, HOP_INPUT,
                        "plan: %d exit probes, but no zeroth-order part to run them; use 0",
                        plan->exit_probes);
    if (!hop_estimator_has_exit(plan->estimator))
        return hop_fail(err, HOP_INPUT,
                        "plan: %d exit probes, which estimator %s does not know; use 0",
                        plan->exit_probes, hop_estimator_names[plan->estimator]);
    return check_unbroken(plan, 0, "exit probes", err);
}

static hop_status check_estimator(const struct hop_plan *plan, struct hop_error *err)
{
    if (plan->feedback_blocks < 0)
        return hop_fail(err, HOP_INPUT, "plan: %d feedback blocks; use 0 for all, or more",
                        plan->feedback_blocks);
    if (plan->exit_probes > 0)
        HOP_TRY(check_exit_probes(plan, err));
    if (!hop_plan_has_zeroth_order(plan) || hop_estimator_has_exit(plan->estimator))
        return HOP_OK;
    if (plan->estimator == HOP_FEEDBACK && plan->probes > 0)
        return hop_fail(err, HOP_INPUT, "plan: %d probes, but estimator feedback has none; use 0",
                        plan->probes);
    return check_delta(plan, err);
}

hop_status hop_plan_check(const struct hop_plan *plan, struct hop_error *err)
{
    HOP_TRY(check_sizes(plan, err));
    HOP_TRY(check_choices(plan, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY(check_part(plan, p, err));
    for (int32_t r = 0; r < hop_plan_pipelines(plan); r++)
        HOP_TRY(check_stages(plan, r, err));
    HOP_TRY(check_pipelines(plan, err));
    HOP_TRY(check_copies(plan, err));
    return check_estimator(plan, err);
}
