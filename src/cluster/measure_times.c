/* Times of a block, the embedding, the head and the optimizer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cluster/measure_fit.h"
#include "cluster/measure_internal.h"

/* Share of the time that goes to embedding and head. */
#define TABLES_SHARE 0.2

/* The cells of one set of stages. */
struct cells {
    struct hop__cell *items;
    size_t count;
};

static int32_t smallest(const struct hop_measure_request *request)
{
    int32_t least = 0;
    for (int32_t r = 1; r < request->row_count; r++)
        least = request->rows[r] < request->rows[least] ? r : least;
    return least;
}

/* What a plan cannot do without comes first: the chosen micro-batch and the smallest one in two
 * sizes of stage, then the other micro-batches, then probes, then the third size. */
static int urgency(const struct hop_measure_request *request, int32_t subject, int32_t row,
                   enum hop__kind kind)
{
    const bool chosen = row == request->row_count - 1;
    const int later = subject >= 2 ? 5 : 0;
    if (kind == HOP__STEP)
        return later + 1;
    if (kind == HOP__PASS)
        return later + (chosen || row == smallest(request) ? 1 : 2);
    return later + (chosen ? 3 : 4);
}

static hop_status make_cells(const struct hop_measure_request *request, int32_t subjects,
                             bool steps, struct cells *out, struct hop_error *err)
{
    const size_t kinds = 2 + (size_t)request->probe_count;
    const size_t most = (size_t)subjects * (size_t)request->row_count * kinds;
    struct cells cells = {0};
    HOP_TRY(hop_calloc(&cells.items, most, sizeof *cells.items, err));
    for (int32_t s = 0; s < subjects; s++)
        for (int32_t r = 0; r < request->row_count; r++)
            for (int32_t k = -2; k < request->probe_count; k++) {
                const enum hop__kind kind = k == -2 ? HOP__STEP : k == -1 ? HOP__PASS : HOP__PROBE;
                if (kind == HOP__STEP && (!steps || r > 0))
                    continue;
                struct hop__cell *const cell = &cells.items[cells.count++];
                *cell = (struct hop__cell){.subject = s, .row = r, .kind = kind};
                cell->probe = k > 0 ? k : 0;
                cell->urgency = urgency(request, s, r, kind);
                cell->required = cell->urgency == 1;
            }
    *out = cells;
    return HOP_OK;
}

static const struct hop__cell *find(const struct cells *cells, int32_t subject, int32_t row,
                                    enum hop__kind kind, int32_t probe)
{
    for (size_t i = 0; i < cells->count; i++) {
        const struct hop__cell *const cell = &cells->items[i];
        if (cell->subject == subject && cell->row == row && cell->kind == kind &&
            cell->probe == probe)
            return cell;
    }
    return NULL;
}

/* y = intercept + slope * x with the least squares of the relative residuals; false where the
 * points give no positive slope, which for times against work is chance. */
static bool slope_of(size_t n, const double *x, const double *y, double *slope, double *intercept)
{
    double w = 0, mean_x = 0, mean_y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < n; i++) {
        const double weight = 1 / (y[i] * y[i]);
        w += weight;
        mean_x += weight * x[i];
        mean_y += weight * y[i];
    }
    mean_x /= w;
    mean_y /= w;
    for (size_t i = 0; i < n; i++) {
        const double weight = 1 / (y[i] * y[i]);
        xx += weight * (x[i] - mean_x) * (x[i] - mean_x);
        xy += weight * (x[i] - mean_x) * (y[i] - mean_y);
    }
    if (n < 2 || !(xy > 0))
        return false;
    *slope = xy / xx;
    *intercept = mean_y - *slope * mean_x;
    return true;
}

/* Time of one block: the slope over the number of blocks of the stages that were timed. */
static struct hop_timing per_block(const struct hop_measurement *m, const struct hop_timing *times,
                                   double *constant)
{
    double x[HOP_MEASURE_STAGES], y[HOP_MEASURE_STAGES], rest = 0;
    struct hop_timing out = {0};
    size_t n = 0;
    for (int32_t s = 0; s < m->stage_count; s++) {
        if (times[s].repetitions == 0)
            continue;
        x[n] = m->stage_blocks[s];
        y[n++] = times[s].seconds;
        out.spread = times[s].spread > out.spread ? times[s].spread : out.spread;
        out.repetitions += times[s].repetitions;
    }
    if (n > 0 && !slope_of(n, x, y, &out.seconds, &rest))
        out.seconds = y[n - 1] / x[n - 1];
    if (constant)
        *constant = rest;
    return out;
}

/* What each further probe of a call adds: the slope over the probes of the calls that were timed.
 * Where only single probes were, another call. */
static double further_probe(const struct hop_measure_request *request,
                            const struct hop_timing *probe)
{
    double x[HOP_MEASURE_PROBES], y[HOP_MEASURE_PROBES], slope, rest;
    size_t n = 0;
    for (int32_t p = 0; p < request->probe_count; p++) {
        if (probe[p].repetitions == 0)
            continue;
        x[n] = request->probes[p];
        y[n++] = probe[p].seconds;
    }
    if (n == 0)
        return NAN;
    return slope_of(n, x, y, &slope, &rest) ? slope : y[n - 1] / x[n - 1];
}

/* Blocks */

typedef struct hop_timing (*read_cell)(const struct hop__cell *cell);

static struct hop_timing block_time(const struct hop_measurement *m, const struct cells *cells,
                                    int32_t row, enum hop__kind kind, int32_t probe, read_cell read,
                                    double *constant)
{
    struct hop_timing times[HOP_MEASURE_STAGES] = {0};
    for (int32_t s = 0; s < m->stage_count; s++)
        times[s] = read(find(cells, s, row, kind, probe));
    return per_block(m, times, constant);
}

static void read_blocks(const struct hop__bench *bench, const struct cells *cells,
                        struct hop_measurement *m)
{
    for (int32_t r = 0; r < m->request.row_count; r++) {
        struct hop_measured_point *const point = &m->points[r];
        struct hop_measured_part *const block = &point->block;
        block->forward = block_time(m, cells, r, HOP__PASS, 0, hop__cell_forward, &point->constant);
        if (bench->bp)
            block->backward = block_time(m, cells, r, HOP__PASS, 0, hop__cell_backward, NULL);
        for (int32_t p = 0; p < m->request.probe_count; p++)
            block->probe[p] = block_time(m, cells, r, HOP__PROBE, p, hop__cell_forward, NULL);
        block->further_probe = further_probe(&m->request, block->probe);
    }
    m->step = block_time(m, cells, 0, HOP__STEP, 0, hop__cell_forward, NULL);
}

static hop_status time_blocks(const struct hop__bench *bench, struct hop_measurement *m,
                              double seconds, struct hop_error *err)
{
    struct hop__subject subjects[HOP_MEASURE_STAGES] = {0};
    struct hop_weights *weights = NULL;
    struct cells cells = {0};
    hop_status status;
    HOP_TRY_DONE(
        hop__weights_blocks(&m->request, m->stage_blocks[m->stage_count - 1], &weights, err));
    for (int32_t s = 0; s < m->stage_count; s++) {
        const struct hop_stage_config config =
            hop__subject_config(&m->request, m->stage_blocks[s], false, false);
        HOP_TRY_DONE(hop__subject_open(bench, weights, &config, &subjects[s], err));
    }
    HOP_TRY_DONE(make_cells(&m->request, m->stage_count, true, &cells, err));
    HOP_TRY_DONE(hop__run_cells(bench, subjects, cells.items, cells.count, seconds, err));
    read_blocks(bench, &cells, m);
done:
    free(cells.items);
    for (int32_t s = 0; s < HOP_MEASURE_STAGES; s++)
        hop__subject_close(&subjects[s]);
    hop_weights_free(weights);
    return status;
}

/* Embedding and head */

enum { EMBED, HEAD, TABLES };

static void read_table(const struct hop__bench *bench, const struct cells *cells, int32_t subject,
                       int32_t row, struct hop_measured_part *out)
{
    const struct hop__cell *const pass = find(cells, subject, row, HOP__PASS, 0);
    out->forward = hop__cell_forward(pass);
    /* The embedding is frozen: nothing flows back into it. */
    if (bench->bp && subject == HEAD)
        out->backward = hop__cell_backward(pass);
    for (int32_t p = 0; p < bench->request->probe_count; p++)
        out->probe[p] = hop__cell_forward(find(cells, subject, row, HOP__PROBE, p));
    out->further_probe = further_probe(bench->request, out->probe);
}

static hop_status time_tables(const struct hop__bench *bench, struct hop_measurement *m,
                              double seconds, struct hop_error *err)
{
    struct hop__subject subjects[TABLES] = {0};
    struct hop_weights *weights = NULL;
    struct cells cells = {0};
    hop_status status;
    HOP_TRY_DONE(hop__weights_tables(&m->request, &weights, err));
    for (int32_t s = 0; s < TABLES; s++) {
        const struct hop_stage_config config =
            hop__subject_config(&m->request, 0, s == EMBED, s == HEAD);
        HOP_TRY_DONE(hop__subject_open(bench, weights, &config, &subjects[s], err));
    }
    HOP_TRY_DONE(make_cells(&m->request, TABLES, false, &cells, err));
    HOP_TRY_DONE(hop__run_cells(bench, subjects, cells.items, cells.count, seconds, err));
    for (int32_t r = 0; r < m->request.row_count; r++) {
        read_table(bench, &cells, EMBED, r, &m->points[r].embed);
        read_table(bench, &cells, HEAD, r, &m->points[r].head);
    }
done:
    free(cells.items);
    for (int32_t s = 0; s < TABLES; s++)
        hop__subject_close(&subjects[s]);
    hop_weights_free(weights);
    return status;
}

/* The fitted line */

double hop_measured_fit(const struct hop_measured_rate *rate, double operations)
{
    return rate->overhead + operations / (rate->rate * 1e12);
}

static void fit_line(struct hop_measurement *m)
{
    double operations[HOP_MEASURE_ROWS], seconds[HOP_MEASURE_ROWS];
    size_t n = 0;
    for (int32_t r = 0; r < m->request.row_count; r++) {
        const struct hop_measured_point *const point = &m->points[r];
        if (point->block.forward.repetitions == 0)
            continue;
        operations[n] = point->operations;
        seconds[n++] = point->block.forward.seconds;
    }
    const struct hop_line line = hop_fit_line(n, operations, seconds);
    m->rate.overhead = line.intercept;
    m->rate.rate = 1 / line.slope / 1e12;
    m->rate.r2 = line.r2;
    m->rate.points = (int32_t)n;
}

/* Mean over the micro-batch sizes; NAN where none was measured. */
static double mean_ratio(const struct hop_measurement *m,
                         double (*numerator)(const struct hop_measured_part *))
{
    double sum = 0;
    int32_t n = 0;
    for (int32_t r = 0; r < m->request.row_count; r++) {
        const struct hop_measured_part *const block = &m->points[r].block;
        const double ratio = numerator(block) / block->forward.seconds;
        if (block->forward.repetitions == 0 || isnan(ratio))
            continue;
        sum += ratio;
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

static double backward_seconds(const struct hop_measured_part *block)
{
    return block->backward.repetitions > 0 ? block->backward.seconds : NAN;
}

static double further_probe_seconds(const struct hop_measured_part *block)
{
    return block->further_probe;
}

static void fit_times(struct hop_measurement *m)
{
    fit_line(m);
    m->rate.backward_ratio = mean_ratio(m, backward_seconds);
    m->rate.probe_ratio = mean_ratio(m, further_probe_seconds);
    for (int32_t r = 0; r < m->request.row_count; r++)
        m->points[r].fit = hop_measured_fit(&m->rate, m->points[r].operations);
}

hop_status hop__measure_times(const struct hop__bench *bench, struct hop_measurement *m,
                              struct hop_error *err)
{
    const double tables = TABLES_SHARE * m->request.seconds;
    for (int32_t r = 0; r < m->request.row_count; r++) {
        const struct hop_workload workload = hop_measured_workload(m, m->request.rows[r]);
        m->points[r].rows = m->request.rows[r];
        m->points[r].operations = hop_block_operations(&workload);
    }
    HOP_TRY(time_blocks(bench, m, m->request.seconds - tables, err));
    HOP_TRY(time_tables(bench, m, tables, err));
    fit_times(m);
    return HOP_OK;
}
