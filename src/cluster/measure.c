#include "cluster/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/measure_internal.h"

/* What may be used of the memory that the machine has to spare. */
#define MEMORY_SHARE 0.7

const struct hop_measured_point *hop_measured_chosen(const struct hop_measurement *m)
{
    return &m->points[m->request.row_count - 1];
}

struct hop_workload hop_measured_workload(const struct hop_measurement *m, int32_t rows)
{
    const struct hop_measure_request *const request = &m->request;
    return (struct hop_workload){.model = request->model,
                                 .lora = request->lora,
                                 .dtype = request->dtype,
                                 .samples = rows,
                                 .tokens = request->tokens,
                                 .labels = request->labels,
                                 .limits = hop__limits(request, rows),
                                 .probe_batch = hop__most_probes(request),
                                 .window = 4};
}

/* Bytes that stages of these numbers of blocks take together, all alive at once. */
static double needed(const struct hop_measure_request *request, const int32_t *blocks, int32_t n)
{
    double total = 0;
    for (int32_t s = 0; s < n; s++) {
        const struct hop_stage_config config =
            hop__subject_config(request, blocks[s], false, false);
        const struct hop_stage_bytes bytes = hop_stage_bytes(&config);
        total += 2 * (double)bytes.parameters + config.slots * (double)bytes.kept +
                 (double)bytes.scratch;
        /* They share the weights. */
        if (s == n - 1)
            total += (double)bytes.weights;
    }
    return total;
}

/* 1, 2 and 4 blocks, as far as the model and the memory go. */
static hop_status choose_stages(struct hop_measurement *m, struct hop_error *err)
{
    const double usable = isnan(m->available) ? INFINITY : MEMORY_SHARE * m->available;
    int32_t n = 0;
    for (int32_t blocks = 1; n < HOP_MEASURE_STAGES && blocks <= m->request.model.blocks;
         blocks *= 2)
        m->stage_blocks[n++] = blocks;
    while (n > 1 && needed(&m->request, m->stage_blocks, n) > usable)
        n--;
    m->stage_count = n;
    const double least = needed(&m->request, m->stage_blocks, 1);
    if (n < 1 || least > usable)
        return hop_fail(err, HOP_INFEASIBLE,
                        "one block with a micro-batch of %d samples of %d tokens takes %.0f MiB, "
                        "and %.0f MiB are to spare; use fewer rows, tokens or probes",
                        hop__most_rows(&m->request), m->request.tokens, least / 0x1p20,
                        usable / 0x1p20);
    return HOP_OK;
}

static hop_status measure_all(struct hop_measurement *m, struct hop_error *err)
{
    struct hop__bench bench = {0};
    hop_status status;
    HOP_TRY_DONE(hop__bench_open(&m->request, &bench, err));
    snprintf(m->backend, sizeof m->backend, "%s", m->request.ops->describe(bench.backend));
    const double before = hop__heap_bytes();
    HOP_TRY_DONE(hop__measure_times(&bench, m, err));
    m->memory.backend = hop__heap_bytes() - before;
    HOP_TRY_DONE(hop__measure_memory(&bench, m, err));
done:
    hop__bench_close(&bench);
    return status;
}

hop_status hop_measure(const struct hop_measure_request *request, struct hop_measurement *out,
                       struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_measurement *m;
    const double begin = hop_clock_now();
    HOP_TRY(hop_calloc(&m, 1, sizeof *m, err));
    m->request = *request;
    m->bp = hop_ops_bp_capable(request->ops);
    m->mapped = request->directory != NULL;
    m->available = hop__available_bytes();
    HOP_TRY_DONE(choose_stages(m, err));
    HOP_TRY_DONE(hop__triad(request->threads, m->available, &m->bandwidth, err));
    HOP_TRY_DONE(measure_all(m, err));
    m->request.directory = NULL;
    m->elapsed = hop_clock_now() - begin;
    *out = *m;
done:
    free(m);
    return status;
}
