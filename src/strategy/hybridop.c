/* HybridOP: BP-free devices in front train their blocks by zeroth-order probes, BP-capable devices
 * behind run backward. Here the blocks follow the devices' rates or the user's counts. */
#include <stdlib.h>

#include "base/memory.h"
#include "strategy/parts.h"
#include "strategy/systems.h"

/* The devices that take part, in pipeline order, and their blocks. */
struct line_up {
    int32_t *devices, *counts;
    double *ideal;
    int32_t count, bp_free;
};

static void free_line_up(struct line_up *line)
{
    free(line->devices);
    free(line->counts);
    free(line->ideal);
}

static void add_devices(const struct hop_plan_request *request, bool bp, struct line_up *line)
{
    for (int32_t d = 0; d < request->cost->device_count; d++) {
        const bool idle = request->fixed_blocks && request->fixed_blocks[d] == 0;
        if (request->cost->devices[d].bp != bp || idle)
            continue;
        line->devices[line->count++] = d;
        line->bp_free += !bp;
    }
}

static hop_status create_line_up(const struct hop_plan_request *request, struct line_up *line,
                                 struct hop_error *err)
{
    const size_t devices = (size_t)request->cost->device_count;
    HOP_TRY(hop_calloc(&line->devices, devices, sizeof *line->devices, err));
    HOP_TRY(hop_calloc(&line->counts, devices, sizeof *line->counts, err));
    HOP_TRY(hop_calloc(&line->ideal, devices, sizeof *line->ideal, err));
    add_devices(request, false, line);
    add_devices(request, true, line);
    return HOP_OK;
}

static hop_status check_fixed(const struct hop_plan_request *request, struct hop_error *err)
{
    int64_t total = 0;
    for (size_t d = 0; request->fixed_blocks && d < (size_t)request->cost->device_count; d++) {
        if (request->fixed_blocks[d] < 0)
            return hop_fail(err, HOP_INPUT, "plan.blocks: %s has %d blocks; 0 or more are possible",
                            request->cost->devices[d].name, request->fixed_blocks[d]);
        total += request->fixed_blocks[d];
    }
    if (request->fixed_blocks && total != request->cost->blocks)
        return hop_fail(err, HOP_INPUT,
                        "plan.blocks: the counts add up to %lld; the model has %d blocks",
                        (long long)total, request->cost->blocks);
    return HOP_OK;
}

static hop_status check_line_up(const struct hop_plan_request *request, const struct line_up *line,
                                struct hop_error *err)
{
    if (line->count == line->bp_free)
        return hop_fail(
            err, HOP_INFEASIBLE,
            "plan: no BP-capable device holds a block; hybridop needs one at the end of "
            "the pipeline (set bp: true for a device whose backend can run backward)");
    if (line->bp_free && request->probes == 0)
        return hop_fail(
            err, HOP_INPUT,
            "zo.probes: 0 leaves the adapters of the BP-free device %s untrained; set it "
            "to 1 or more",
            request->cost->devices[line->devices[0]].name);
    if (line->count > request->cost->blocks)
        return hop_fail(
            err, HOP_INFEASIBLE,
            "plan: %d devices share %d blocks and each needs one; leave some devices out "
            "of the cluster or set plan.blocks",
            line->count, request->cost->blocks);
    return HOP_OK;
}

static void split(const struct hop_plan_request *request, struct line_up *line)
{
    double total = 0;
    for (int32_t i = 0; i < line->count; i++)
        total += (1 / request->cost->devices[line->devices[i]].forward[0]);
    for (int32_t i = 0; i < line->count; i++)
        line->ideal[i] = request->cost->blocks *
                         ((1 / request->cost->devices[line->devices[i]].forward[0]) / total);
    if (!request->fixed_blocks) {
        hop_split_blocks(request->cost->blocks, line->ideal, line->count, line->counts);
        return;
    }
    for (int32_t i = 0; i < line->count; i++)
        line->counts[i] = request->fixed_blocks[line->devices[i]];
}

static hop_status build(const struct hop_plan_request *request, const struct line_up *line,
                        struct hop_plan *out, struct hop_error *err)
{
    HOP_TRY(hop_plan_begin(request, hop_strategy_hybridop.name, line->count, out, err));
    if (!line->bp_free)
        out->probes = 0;
    int32_t lo = 0;
    for (int32_t i = 0; i < line->count; i++) {
        hop_plan_add_stage(out, line->devices[i], lo, lo + line->counts[i],
                           i < line->bp_free ? HOP_GRADIENT_ZEROTH_ORDER : HOP_GRADIENT_BACKPROP);
        lo += line->counts[i];
    }
    return hop_plan_price(out, request->cost, 1, err);
}

static hop_status plan_hybridop(const struct hop_plan_request *request, struct hop_plan *out,
                                struct hop_error *err)
{
    HOP_TRY(hop_plan_request_check(request, err));
    HOP_TRY(check_fixed(request, err));
    struct line_up line = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(create_line_up(request, &line, err));
    HOP_TRY_DONE(check_line_up(request, &line, err));
    split(request, &line);
    HOP_TRY_DONE(build(request, &line, out, err));
done:
    free_line_up(&line);
    return status;
}

const struct hop_strategy hop_strategy_hybridop = {
    .name = "hybridop",
    .summary = "BP-free devices in front estimate gradients, BP-capable ones behind run backward",
    .uses_fixed_blocks = true,
    .plan = plan_hybridop,
    .schedule = hop_schedule_greedy,
};
