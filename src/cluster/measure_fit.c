#include "cluster/measure_fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Columns that are this close to a combination of the others say nothing of their own. */
#define RANK_TOLERANCE 1e-9

/* residual = sum (y - fit)^2. */
static double r_squared(size_t n, const double *y, double residual)
{
    double mean = 0, total = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        mean += y[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        total += (y[i] - mean) * (y[i] - mean);
        square += y[i] * y[i];
    }
    if (residual <= 1e-24 * square)
        return 1;
    return total > 0 ? 1 - residual / total : 0;
}

/* Sums of the normal equations, every point divided by its y. */
struct sums {
    double w, x, xx, y, xy;
};

static struct sums add_up(size_t n, const double *x, const double *y)
{
    struct sums s = {0};
    for (size_t i = 0; i < n; i++) {
        const double w = 1 / (y[i] * y[i]);
        s.w += w;
        s.x += w * x[i];
        s.xx += w * x[i] * x[i];
        s.y += w * y[i];
        s.xy += w * x[i] * y[i];
    }
    return s;
}

struct hop_line hop_fit_line(size_t n, const double *x, const double *y)
{
    const struct sums s = add_up(n, x, y);
    const double determinant = s.w * s.xx - s.x * s.x;
    struct hop_line line = {0};
    if (determinant > RANK_TOLERANCE * s.w * s.xx)
        line.intercept = (s.xx * s.y - s.x * s.xy) / determinant;
    line.slope = (s.xy - line.intercept * s.x) / s.xx;
    if (line.intercept < 0 || line.slope <= 0)
        line = (struct hop_line){.slope = s.xy / s.xx};
    double residual = 0;
    for (size_t i = 0; i < n; i++) {
        const double error = y[i] - line.intercept - line.slope * x[i];
        residual += error * error;
    }
    line.r2 = r_squared(n, y, residual);
    return line;
}

/* A system in column-major order; column `columns` is the right-hand side. */
struct system {
    size_t rows, columns;
    double *a;     /* (columns + 1, rows) */
    double *scale; /* (columns) length of the columns as they came */
};

static double *column(const struct system *s, size_t c)
{
    return s->a + c * s->rows;
}

static double length(size_t n, const double *v)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return sqrt(sum);
}

static void load(struct system *s, const double *x, const double *y)
{
    for (size_t c = 0; c < s->columns; c++) {
        double *const to = column(s, c);
        for (size_t r = 0; r < s->rows; r++)
            to[r] = x[r * s->columns + c];
        s->scale[c] = length(s->rows, to);
        for (size_t r = 0; s->scale[c] > 0 && r < s->rows; r++)
            to[r] /= s->scale[c];
    }
    memcpy(column(s, s->columns), y, s->rows * sizeof *y);
}

/* Reflects columns k.. so that column k is zero below its diagonal. False: nothing is left of it.
 */
static bool reflect(struct system *s, size_t k)
{
    double *const v = column(s, k) + k;
    const size_t n = s->rows - k;
    const double norm = length(n, v);
    if (norm <= RANK_TOLERANCE)
        return false;
    const double alpha = v[0] > 0 ? -norm : norm;
    const double first = v[0] - alpha;
    double square = first * first;
    for (size_t i = 1; i < n; i++)
        square += v[i] * v[i];
    for (size_t c = k + 1; c <= s->columns; c++) {
        double *const to = column(s, c) + k;
        double dot = first * to[0];
        for (size_t i = 1; i < n; i++)
            dot += v[i] * to[i];
        to[0] -= 2 * dot / square * first;
        for (size_t i = 1; i < n; i++)
            to[i] -= 2 * dot / square * v[i];
    }
    v[0] = alpha;
    return true;
}

static void substitute(const struct system *s, double *out)
{
    const double *const y = column(s, s->columns);
    for (size_t k = s->columns; k-- > 0;) {
        double value = y[k];
        for (size_t c = k + 1; c < s->columns; c++)
            value -= column(s, c)[k] * out[c];
        out[k] = value / column(s, k)[k];
    }
    for (size_t c = 0; c < s->columns; c++)
        out[c] /= s->scale[c];
}

static hop_status solve(struct system *s, double *out, struct hop_error *err)
{
    for (size_t k = 0; k < s->columns; k++)
        if (k >= s->rows || !reflect(s, k))
            return hop_fail(err, HOP_NUMERIC,
                            "%zu measurements do not determine %zu coefficients; measure more "
                            "different sizes",
                            s->rows, s->columns);
    substitute(s, out);
    return HOP_OK;
}

static double squared_residual(size_t rows, size_t columns, const double *x, const double *y,
                               const double *c)
{
    double sum = 0;
    for (size_t r = 0; r < rows; r++) {
        double error = y[r];
        for (size_t k = 0; k < columns; k++)
            error -= x[r * columns + k] * c[k];
        sum += error * error;
    }
    return sum;
}

hop_status hop_fit_linear(size_t rows, size_t columns, const double *x, const double *y,
                          double *coefficients, double *r2, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct system s = {.rows = rows, .columns = columns};
    double *solution = NULL;
    HOP_TRY_DONE(hop_calloc(&s.a, (columns + 1) * rows, sizeof(double), err));
    HOP_TRY_DONE(hop_calloc(&s.scale, columns, sizeof(double), err));
    HOP_TRY_DONE(hop_calloc(&solution, columns, sizeof(double), err));
    load(&s, x, y);
    HOP_TRY_DONE(solve(&s, solution, err));
    memcpy(coefficients, solution, columns * sizeof *solution);
    if (r2)
        *r2 = r_squared(rows, y, squared_residual(rows, columns, x, y, solution));
done:
    free(s.a);
    free(s.scale);
    free(solution);
    return status;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two nearest values. */
static double quantile(size_t n, const double *sorted, double share)
{
    const double at = share * (double)(n - 1);
    const size_t i = (size_t)at;
    const double weight = at - (double)i;
    return i + 1 < n ? sorted[i] * (1 - weight) + sorted[i + 1] * weight : sorted[i];
}

double hop_median(size_t n, double *values, double *spread)
{
    qsort(values, n, sizeof *values, compare_doubles);
    const double median = quantile(n, values, 0.5);
    if (spread)
        *spread = median > 0 ? (quantile(n, values, 0.75) - quantile(n, values, 0.25)) / median : 0;
    return median;
}
