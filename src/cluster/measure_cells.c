/* Repeated timing of many small things in the time there is. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "cluster/measure_fit.h"
#include "cluster/measure_internal.h"

static hop_status run_once(const struct hop__bench *bench, struct hop__subject *subjects,
                           const struct hop__cell *cell, double seconds[2], struct hop_error *err)
{
    struct hop__subject *const subject = &subjects[cell->subject];
    const struct hop_batch *const batch = &bench->batches[cell->row];
    seconds[0] = seconds[1] = 0;
    switch (cell->kind) {
    case HOP__PASS:
        return hop__run_pass(bench, subject, batch, &seconds[0], &seconds[1], err);
    case HOP__PROBE:
        return hop__run_probe(bench, subject, batch, bench->request->probes[cell->probe],
                              &seconds[0], err);
    default:
        return hop__run_step(subject, &seconds[0], err);
    }
}

/* How much work a cell is, in tokens through a block; a backward counts as a forward. */
static double size(const struct hop__bench *bench, const struct hop__subject *subjects,
                   const struct hop__cell *cell)
{
    const double blocks = subjects[cell->subject].blocks > 0 ? subjects[cell->subject].blocks : 1;
    const double tokens = bench->batches[cell->row].tokens;
    switch (cell->kind) {
    case HOP__PASS:
        return blocks * tokens * (bench->bp ? 2 : 1);
    case HOP__PROBE:
        return blocks * tokens * bench->request->probes[cell->probe];
    default:
        return blocks;
    }
}

/* The first call of a cell: caches, kernels and pages are ready afterwards. Where that is quick, a
 * second one, which tells better how long a call takes. */
static hop_status start(const struct hop__bench *bench, struct hop__subject *subjects,
                        struct hop__cell *cell, double quick, struct hop_error *err)
{
    HOP_TRY(run_once(bench, subjects, cell, cell->warm, err));
    cell->started = true;
    if (cell->warm[0] + cell->warm[1] < quick)
        HOP_TRY(run_once(bench, subjects, cell, cell->warm, err));
    cell->expected = cell->warm[0] + cell->warm[1];
    return HOP_OK;
}

/* Starts what there is time for in `seconds`, by the quickest rate seen so far: whatever else the
 * machine did then must not keep cells from being measured. */
static hop_status warm_up(const struct hop__bench *bench, struct hop__subject *subjects,
                          struct hop__cell *cells, size_t count, double seconds,
                          struct hop_error *err)
{
    const double begin = hop_clock_now();
    double rate = 0; /* seconds a size; 0: not known */
    for (size_t i = 0; i < count; i++) {
        struct hop__cell *const cell = &cells[i];
        const double work = size(bench, subjects, cell);
        if (!cell->required && hop_clock_now() - begin + rate * work > seconds)
            continue;
        HOP_TRY(start(bench, subjects, cell, seconds / (4 * (double)count), err));
        const double found = cell->expected / work;
        if (cell->kind != HOP__STEP && (rate == 0 || found < rate))
            rate = found;
    }
    return HOP_OK;
}

static long preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* One more of each cell that fits into the time left; false when none did. */
static hop_status run_round(const struct hop__bench *bench, struct hop__subject *subjects,
                            struct hop__cell *cells, size_t count, double end, bool *ran,
                            struct hop_error *err)
{
    *ran = false;
    for (size_t i = 0; i < count; i++) {
        struct hop__cell *const cell = &cells[i];
        double seconds[2];
        if (!cell->started || cell->count == HOP__REPETITIONS ||
            hop_clock_now() + cell->expected > end)
            continue;
        const long before = preemptions();
        HOP_TRY(run_once(bench, subjects, cell, seconds, err));
        cell->preemptions[cell->count] = preemptions() - before;
        cell->forward[cell->count] = seconds[0];
        cell->backward[cell->count++] = seconds[1];
        if (seconds[0] + seconds[1] < cell->expected)
            cell->expected = seconds[0] + seconds[1];
        *ran = true;
    }
    return HOP_OK;
}

static int by_urgency(const void *a, const void *b)
{
    const struct hop__cell *const x = a, *const y = b;
    if (x->urgency != y->urgency)
        return x->urgency < y->urgency ? -1 : 1;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->subject > y->subject) - (x->subject < y->subject);
}

hop_status hop__run_cells(const struct hop__bench *bench, struct hop__subject *subjects,
                          struct hop__cell *cells, size_t count, double seconds,
                          struct hop_error *err)
{
    const double end = hop_clock_now() + seconds;
    bool ran = true;
    qsort(cells, count, sizeof *cells, by_urgency);
    HOP_TRY(warm_up(bench, subjects, cells, count, seconds / 2, err));
    while (ran)
        HOP_TRY(run_round(bench, subjects, cells, count, end, &ran, err));
    return HOP_OK;
}

static int compare_longs(const void *a, const void *b)
{
    const long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* A quarter of the repetitions was disturbed no more often than this: never, on a machine that does
 * nothing else, and then all of them count. */
static long tolerated(const struct hop__cell *cell)
{
    long sorted[HOP__REPETITIONS];
    const size_t n = (size_t)cell->count;
    memcpy(sorted, cell->preemptions, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_longs);
    return sorted[n / 4];
}

static struct hop_timing timing(const struct hop__cell *cell, const double *seconds, double warm)
{
    double values[HOP__REPETITIONS];
    struct hop_timing out = {.seconds = warm, .repetitions = 1};
    if (!cell->started)
        return (struct hop_timing){0};
    if (cell->count == 0)
        return out;
    const long most = tolerated(cell);
    out.repetitions = 0;
    for (int32_t i = 0; i < cell->count; i++)
        if (cell->preemptions[i] <= most)
            values[out.repetitions++] = seconds[i];
    out.seconds = hop_median((size_t)out.repetitions, values, &out.spread);
    return out;
}

struct hop_timing hop__cell_forward(const struct hop__cell *cell)
{
    return timing(cell, cell->forward, cell->warm[0]);
}

struct hop_timing hop__cell_backward(const struct hop__cell *cell)
{
    return timing(cell, cell->backward, cell->warm[1]);
}
