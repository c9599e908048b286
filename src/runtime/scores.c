/* Label log-probabilities of an evaluation, or tokens of answers, put together from all heads. */
#include <string.h>

#include "runtime/coordinator_internal.h"
#include "runtime/slice.h"

static bool is_head(const struct hop_plan *plan, int32_t part)
{
    return hop_plan_next(plan, part) < 0;
}

static bool has_head(const struct hop_coordinator *c, int rank)
{
    for (int32_t p = 0; p < c->plan.part_count; p++)
        if (is_head(&c->plan, p) && c->ranks.rank_of[c->plan.parts[p].device] == rank)
            return true;
    return false;
}

/* Those of the rows that a part with the head handles. */
static void take_part(struct hop_coordinator *c, const struct hop_part *part, int32_t batches,
                      const float *scores)
{
    const struct hop_range range = hop_part_micro_batches(part, batches);
    for (int32_t m = range.lo; m < range.hi; m++) {
        const struct hop_batch *const batch = &c->session.batches[m];
        const struct hop_range labels =
            hop_slice_labels(batch, hop_part_rows(part, batch->sequences));
        const size_t at = (size_t)m * (size_t)c->session.config.limits.labels + (size_t)labels.lo;
        memcpy(c->scores + at, scores + at, (size_t)(labels.hi - labels.lo) * sizeof *scores);
    }
}

static void take_rank(struct hop_coordinator *c, int rank, int32_t batches, const float *scores)
{
    for (int32_t p = 0; p < c->plan.part_count; p++)
        if (is_head(&c->plan, p) && c->ranks.rank_of[c->plan.parts[p].device] == rank)
            take_part(c, &c->plan.parts[p], batches, scores);
}

hop_status hop_coordinator_gather_scores(struct hop_coordinator *c, int32_t batches,
                                         const float *own, const float **scores,
                                         struct hop_error *err)
{
    const size_t n = (size_t)batches * (size_t)c->session.config.limits.labels;
    for (int r = 0; r < c->ranks.count; r++) {
        if (!has_head(c, r))
            continue;
        if (r > 0)
            HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_SCORES, c->transfer,
                                n * sizeof(float), "the scores of an evaluation", err));
        take_rank(c, r, batches, r > 0 ? c->transfer : own);
    }
    *scores = c->scores;
    return HOP_OK;
}

static void take_picks(struct hop_coordinator *c, const struct hop_part *part, int32_t batches,
                       const int32_t *picked)
{
    const struct hop_range range = hop_part_micro_batches(part, batches);
    for (int32_t m = range.lo; m < range.hi; m++) {
        const struct hop_range rows = hop_part_rows(part, c->session.batches[m].sequences);
        const size_t at = (size_t)m * (size_t)c->session.config.limits.sequences + (size_t)rows.lo;
        memcpy(c->free_answers.picked + at, picked + at,
               (size_t)(rows.hi - rows.lo) * sizeof *picked);
    }
}

hop_status hop_coordinator_gather_picks(struct hop_coordinator *c, int32_t batches,
                                        const int32_t *own, struct hop_error *err)
{
    const size_t n = (size_t)batches * (size_t)c->session.config.limits.sequences;
    for (int r = 0; r < c->ranks.count; r++) {
        if (!has_head(c, r))
            continue;
        if (r > 0)
            HOP_TRY(hop_receive(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_PICKED,
                                c->free_answers.received, n * sizeof(int32_t),
                                "the tokens of answers", err));
        for (int32_t p = 0; p < c->plan.part_count; p++)
            if (is_head(&c->plan, p) && c->ranks.rank_of[c->plan.parts[p].device] == r)
                take_picks(c, &c->plan.parts[p], batches, r > 0 ? c->free_answers.received : own);
    }
    return HOP_OK;
}
