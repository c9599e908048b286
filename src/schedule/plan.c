#include "schedule/plan.h"

#include <math.h>
#include <stdlib.h>

void hop_plan_free(struct hop_plan *plan)
{
    if (!plan)
        return;
    free(plan->parts);
    plan->parts = NULL;
    plan->part_count = 0;
}

static int32_t find_stage(const struct hop_plan *plan, int32_t pipeline, int32_t stage)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].pipeline == pipeline && plan->parts[p].stage == stage)
            return p;
    return -1;
}

int32_t hop_plan_previous(const struct hop_plan *plan, int32_t part)
{
    return find_stage(plan, plan->parts[part].pipeline, plan->parts[part].stage - 1);
}

int32_t hop_plan_next(const struct hop_plan *plan, int32_t part)
{
    return find_stage(plan, plan->parts[part].pipeline, plan->parts[part].stage + 1);
}

int32_t hop_plan_head(const struct hop_plan *plan, int32_t part)
{
    int32_t head = part;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].pipeline == plan->parts[part].pipeline &&
            plan->parts[p].stage > plan->parts[head].stage)
            head = p;
    return head;
}

bool hop_part_handles(const struct hop_part *part, int32_t micro_batches, int32_t m)
{
    return lround(part->micro_lo * micro_batches) <= m &&
           m < lround(part->micro_hi * micro_batches);
}

bool hop_plan_has_zeroth_order(const struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient == HOP_GRADIENT_ZEROTH_ORDER)
            return true;
    return false;
}

bool hop_plan_sends_gradient(const struct hop_plan *plan, int32_t part)
{
    const int32_t previous = hop_plan_previous(plan, part);
    return previous >= 0 && plan->parts[part].gradient == HOP_GRADIENT_BACKPROP &&
           plan->parts[previous].gradient == HOP_GRADIENT_BACKPROP;
}

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
    return HOP_OK;
}

static bool is_whole(double lo, double hi)
{
    return lo == 0 && hi == 1;
}

/* What later schemes (several pipelines, sample ranges, tensor shares) need: reduced gradients. */
static hop_status check_shares(const struct hop_part *part, int32_t p, struct hop_error *err)
{
    if (part->pipeline != 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "plan: part %d is in pipeline %d; only one pipeline (0) is supported yet",
                        p, part->pipeline);
    if (!is_whole(part->sample_lo, part->sample_hi))
        return hop_fail(err, HOP_UNSUPPORTED,
                        "plan: part %d takes the share [%g, %g) of the samples; only all of them, "
                        "[0, 1), is supported yet",
                        p, part->sample_lo, part->sample_hi);
    if (!is_whole(part->micro_lo, part->micro_hi))
        return hop_fail(err, HOP_UNSUPPORTED,
                        "plan: part %d handles the share [%g, %g) of the micro-batches; only all "
                        "of them, [0, 1), is supported yet",
                        p, part->micro_lo, part->micro_hi);
    if (!is_whole(part->tensor_lo, part->tensor_hi))
        return hop_fail(
            err, HOP_UNSUPPORTED,
            "plan: part %d takes the tensor share [%g, %g); only whole tensors, [0, 1), "
            "are supported yet",
            p, part->tensor_lo, part->tensor_hi);
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
    if (part->in_flight < 0)
        return hop_fail(err, HOP_INPUT, "plan: part %d keeps %d micro-batches; 0 or more can be", p,
                        part->in_flight);
    return check_shares(part, p, err);
}

/* Walks the stages in order: there are as many as parts, so a doubled one shows as a missing one.
 */
static hop_status check_stages(const struct hop_plan *plan, struct hop_error *err)
{
    int32_t covered = 0, behind_backprop = -1;
    for (int32_t stage = 0; stage < plan->part_count; stage++) {
        const int32_t p = find_stage(plan, 0, stage);
        if (p < 0)
            return hop_fail(
                err, HOP_INPUT,
                "plan: no part has stage %d; number the %d parts' stages 0 to %d, each once", stage,
                plan->part_count, plan->part_count - 1);
        const struct hop_part *const part = &plan->parts[p];
        if (part->lo != covered)
            return hop_fail(
                err, HOP_INPUT,
                "plan: part %d (stage %d) begins at block %d; the stage before ends at %d", p,
                stage, part->lo, covered);
        covered = part->hi;
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

hop_status hop_plan_check(const struct hop_plan *plan, struct hop_error *err)
{
    HOP_TRY(check_sizes(plan, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY(check_part(plan, p, err));
    return check_stages(plan, err);
}
