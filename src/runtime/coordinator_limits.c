/* The largest micro-batch, and the largest share of one, that each part can meet: what ranks
 * allocate for. */
#include "runtime/coordinator_internal.h"

#include "data/scoring.h"

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static struct hop_batch_limits both(struct hop_batch_limits a, struct hop_batch_limits b)
{
    return (struct hop_batch_limits){larger(a.sequences, b.sequences), larger(a.tokens, b.tokens),
                                     larger(a.labels, b.labels)};
}

struct hop_batch_limits hop_coordinator_limits(const struct hop_coordinator *c)
{
    struct hop_batch_limits limits = {1, 1, 1};
    if (c->train)
        limits = hop_loader_limits(&c->loader);
    if (c->eval)
        limits =
            both(limits, hop_scoring_limits(c->eval, (size_t)hop_job_micro_batch_rows(&c->job)));
    return limits;
}

/* The most rows that the part gets of a micro-batch of at most `rows`. */
static int32_t most_rows(const struct hop_part *part, int32_t rows)
{
    int32_t most = 1;
    for (int32_t n = 1; n <= rows; n++) {
        const struct hop_range range = hop_part_rows(part, n);
        most = larger(most, range.hi - range.lo);
    }
    return most;
}

static hop_status training_limits(const struct hop_coordinator *c, const struct hop_part *part,
                                  struct hop_batch_limits *out, struct hop_error *err)
{
    struct hop_loader loader;
    const int32_t rows = most_rows(part, hop_loader_limits(&c->loader).sequences);
    HOP_TRY(hop_loader_create(c->train, c->loader.batch_size, (size_t)rows, c->loader.seed,
                              c->loader.shuffle, &loader, err));
    *out = hop_loader_limits(&loader);
    hop_loader_free(&loader);
    return HOP_OK;
}

/* An example may have several sequences, all of one micro-batch: so many sequences in a row belong
 * to at most so many examples. */
static struct hop_batch_limits evaluation_limits(const struct hop_coordinator *c,
                                                 const struct hop_part *part)
{
    const int32_t all = (int32_t)hop_job_micro_batch_rows(&c->job);
    const int32_t each = hop_scoring_limits(c->eval, 1).sequences;
    const int32_t sequences = most_rows(part, each * all);
    const int32_t examples = (sequences + each - 2) / each + 1;
    struct hop_batch_limits limits =
        hop_scoring_limits(c->eval, (size_t)(examples < all ? examples : all));
    limits.sequences = sequences;
    return limits;
}

hop_status hop_coordinator_part_limits(const struct hop_coordinator *c, int32_t part,
                                       struct hop_batch_limits *out, struct hop_error *err)
{
    const struct hop_part *const planned = &c->plan.parts[part];
    struct hop_batch_limits limits = {1, 1, 1};
    if (planned->sample_lo == 0 && planned->sample_hi == 1) {
        *out = hop_coordinator_limits(c);
        return HOP_OK;
    }
    if (c->train)
        HOP_TRY(training_limits(c, planned, &limits, err));
    if (c->eval)
        limits = both(limits, evaluation_limits(c, planned));
    *out = limits;
    return HOP_OK;
}
