/* Truncated singular value decomposition by subspace iteration (Halko, Martinsson and Tropp 2011).
 *
 * Every device computes the factors of its own blocks, and a core is only worth something between
 * the factors it was trained with. Where singular values lie close, the last bit of a sum decides
 * how their directions are turned. So everything here is done in double, in an order that depends
 * on the shape only, and this file is compiled without fused multiply-add: the factors are the same
 * bits whatever the number of threads and, since IEEE fixes each single operation, on every
 * machine. */
#include "model/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "base/memory.h"
#include "base/random.h"

enum {
    PANEL = 16,       /* vectors multiplied together: their sums stay in registers */
    LANES = 8,        /* partial sums of an inner product */
    EXTRA = 8,        /* vectors beyond the rank: they make the wanted ones converge */
    SERIAL = 1 << 14, /* elements below which a team of threads costs more than it saves */
    MOST_ITERATIONS = 64,
    MOST_SWEEPS = 60
};

/* Vectors of n elements, one after the other. */
struct vectors {
    double *at;
    size_t n;
};

struct svd {
    const void *w; /* (out, in) */
    enum hop_dtype dtype;
    size_t out, in, rank;
    size_t k;             /* vectors of the subspace */
    struct vectors x, y;  /* (k, in) and (k, out) */
    double *panel;        /* one panel, (max(out, in), PANEL) */
    float *rows;          /* a thread's piece of w, (threads, PANEL * max(out, in)) */
    size_t piece;         /* elements of such a piece */
    double *gram, *basis; /* (k, k) */
    double *values;       /* (k) eigenvalues of the gram matrix */
    size_t *order;        /* (k) their places, largest first */
    double energy;        /* squared norm of w */
};

static double *vector(const struct vectors *vectors, size_t j)
{
    return vectors->at + j * vectors->n;
}

static double inner(const double *a, const double *b, size_t n)
{
    double part[LANES] = {0}, sum = 0;
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            part[l] += a[i + l] * b[i + l];
    for (size_t i = whole; i < n; i++)
        part[i - whole] += a[i] * b[i];
    for (size_t l = 0; l < LANES; l++)
        sum += part[l];
    return sum;
}

/* Products with w */

static size_t panel_width(const struct svd *svd, size_t first)
{
    return svd->k - first < PANEL ? svd->k - first : PANEL;
}

/* Vectors first .. first + PANEL as columns, zeros behind the last. */
static void pack_panel(const struct svd *svd, const struct vectors *from, size_t first)
{
    const size_t width = panel_width(svd, first);
    memset(svd->panel, 0, from->n * PANEL * sizeof *svd->panel);
    for (size_t j = 0; j < width; j++)
        for (size_t i = 0; i < from->n; i++)
            svd->panel[i * PANEL + j] = vector(from, first + j)[i];
}

/* Element `at` of every product of the panel with w: `row` is the row of w, or of its transpose. */
static void multiply_row(const struct svd *svd, const float *row, size_t n, size_t first, size_t at,
                         const struct vectors *to)
{
    double sum[PANEL] = {0};
    const size_t width = panel_width(svd, first);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < PANEL; j++)
            sum[j] += (double)row[i] * svd->panel[i * PANEL + j];
    for (size_t j = 0; j < width; j++)
        vector(to, first + j)[at] = sum[j];
}

static const void *element(const struct svd *svd, size_t row, size_t column)
{
    return (const char *)svd->w + (row * svd->in + column) * hop_dtype_size(svd->dtype);
}

static float *own_piece(const struct svd *svd)
{
    return svd->rows + (size_t)omp_get_thread_num() * svd->piece;
}

/* y = w x for all vectors. */
static void multiply(const struct svd *svd)
{
    for (size_t first = 0; first < svd->k; first += PANEL) {
        pack_panel(svd, &svd->x, first);
#pragma omp parallel for schedule(static) if (svd->out * svd->in > SERIAL)
        for (size_t r = 0; r < svd->out; r++) {
            float *const row = own_piece(svd);
            hop_convert(row, HOP_F32, element(svd, r, 0), svd->dtype, svd->in);
            multiply_row(svd, row, svd->in, first, r, &svd->y);
        }
    }
}

/* PANEL columns of w from `column` on as rows. */
static void transpose_piece(const struct svd *svd, size_t column, size_t width, float *rows)
{
    float values[PANEL];
    for (size_t r = 0; r < svd->out; r++) {
        hop_convert(values, HOP_F32, element(svd, r, column), svd->dtype, width);
        for (size_t c = 0; c < width; c++)
            rows[c * svd->out + r] = values[c];
    }
}

/* x = w^T y for all vectors. */
static void multiply_transposed(const struct svd *svd)
{
    for (size_t first = 0; first < svd->k; first += PANEL) {
        pack_panel(svd, &svd->y, first);
#pragma omp parallel for schedule(static) if (svd->out * svd->in > SERIAL)
        for (size_t column = 0; column < svd->in; column += PANEL) {
            const size_t width = svd->in - column < PANEL ? svd->in - column : PANEL;
            float *const rows = own_piece(svd);
            transpose_piece(svd, column, width, rows);
            for (size_t c = 0; c < width; c++)
                multiply_row(svd, rows + c * svd->out, svd->out, first, column + c, &svd->x);
        }
    }
}

/* Orthonormal vectors */

static void draw_vector(double *to, size_t n, size_t j, size_t attempt)
{
    const struct hop_random_key key = {
        .domain = HOP_RANDOM_INIT, .step = (uint32_t)attempt, .parameter = (uint32_t)j};
    float signs[PANEL];
    for (size_t i = 0; i < n; i += PANEL) {
        const size_t count = n - i < PANEL ? n - i : PANEL;
        hop_random_sign(&key, i, count, signs);
        for (size_t c = 0; c < count; c++)
            to[i + c] = (double)signs[c];
    }
}

/* Takes the parts along vectors 0 .. j - 1 off vector j. */
static void project_out(const struct vectors *vectors, size_t j)
{
    double *const v = vector(vectors, j);
    for (size_t i = 0; i < j; i++) {
        const double *const u = vector(vectors, i);
        const double part = inner(u, v, vectors->n);
        for (size_t e = 0; e < vectors->n; e++)
            v[e] -= part * u[e];
    }
}

/* False when nothing of vector j is left but rounding. */
static bool normalise(const struct vectors *vectors, size_t j)
{
    double *const v = vector(vectors, j);
    const double before = sqrt(inner(v, v, vectors->n));
    project_out(vectors, j);
    project_out(vectors, j);
    const double after = sqrt(inner(v, v, vectors->n));
    if (!(after > 1e-12 * before))
        return false;
    for (size_t e = 0; e < vectors->n; e++)
        v[e] /= after;
    return true;
}

/* Gram-Schmidt, twice for the sake of rounding; a vector that depends on those before it is drawn
 * anew, which happens where w has a lower rank. */
static void orthonormalise(const struct vectors *vectors, size_t k)
{
    for (size_t j = 0; j < k; j++)
        for (size_t attempt = 1; !normalise(vectors, j); attempt++)
            draw_vector(vector(vectors, j), vectors->n, j, attempt);
}

/* Iteration */

static double energy_of(const struct vectors *vectors, size_t k)
{
    return inner(vectors->at, vectors->at, k * vectors->n);
}

/* Turns x until y = w x holds as much of w as k vectors can: what is missing then is too little to
 * matter beside what no subspace of this size holds. */
static void iterate(struct svd *svd)
{
    double held = 0;
    for (size_t j = 0; j < svd->k; j++)
        draw_vector(vector(&svd->x, j), svd->in, j, 0);
    orthonormalise(&svd->x, svd->k);
    for (int i = 0; i < MOST_ITERATIONS; i++) {
        multiply(svd);
        const double now = energy_of(&svd->y, svd->k), left = fmax(svd->energy - now, 0);
        if (i > 0 && !(now - held > 1e-5 * left + 1e-13 * svd->energy))
            return;
        held = now;
        orthonormalise(&svd->y, svd->k);
        multiply_transposed(svd);
        orthonormalise(&svd->x, svd->k);
    }
    multiply(svd);
}

/* Jacobi's method for the k x k problem */

/* The rotation that makes element (p, q) of the gram matrix zero. */
static void rotate(struct svd *svd, size_t p, size_t q)
{
    const size_t k = svd->k;
    double *const g = svd->gram, *const v = svd->basis;
    const double theta = (g[q * k + q] - g[p * k + p]) / (2 * g[p * k + q]);
    const double t = copysign(1, theta) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    for (size_t i = 0; i < k; i++) {
        const double a = g[i * k + p], b = g[i * k + q];
        g[i * k + p] = c * a - s * b;
        g[i * k + q] = s * a + c * b;
    }
    for (size_t i = 0; i < k; i++) {
        const double a = g[p * k + i], b = g[q * k + i];
        g[p * k + i] = c * a - s * b;
        g[q * k + i] = s * a + c * b;
    }
    for (size_t i = 0; i < k; i++) {
        const double a = v[p * k + i], b = v[q * k + i];
        v[p * k + i] = c * a - s * b;
        v[q * k + i] = s * a + c * b;
    }
}

/* Whether anything was left to rotate. */
static bool sweep(struct svd *svd)
{
    const size_t k = svd->k;
    bool rotated = false;
    for (size_t p = 0; p < k; p++) {
        for (size_t q = p + 1; q < k; q++) {
            const double limit = 1e-16 * sqrt(fabs(svd->gram[p * k + p] * svd->gram[q * k + q]));
            if (!(fabs(svd->gram[p * k + q]) > limit))
                continue;
            rotate(svd, p, q);
            rotated = true;
        }
    }
    return rotated;
}

static void order_values(struct svd *svd)
{
    for (size_t j = 0; j < svd->k; j++) {
        size_t place = j;
        svd->values[j] = svd->gram[j * svd->k + j];
        for (; place > 0 && svd->values[svd->order[place - 1]] < svd->values[j]; place--)
            svd->order[place] = svd->order[place - 1];
        svd->order[place] = j;
    }
}

/* Eigenvectors of y^T y into the rows of the basis. */
static void diagonalise(struct svd *svd)
{
    const size_t k = svd->k;
    for (size_t p = 0; p < k; p++) {
        for (size_t q = 0; q < k; q++) {
            const size_t low = p < q ? p : q, high = p < q ? q : p;
            svd->basis[p * k + q] = p == q;
            svd->gram[p * k + q] = inner(vector(&svd->y, low), vector(&svd->y, high), svd->y.n);
        }
    }
    for (int i = 0; i < MOST_SWEEPS && sweep(svd); i++) {
    }
    order_values(svd);
}

/* Results */

/* Element i of the combination of all vectors by row `place` of the basis. */
static double combine(const struct svd *svd, const struct vectors *vectors, size_t place, size_t i)
{
    double sum = 0;
    for (size_t j = 0; j < svd->k; j++)
        sum += svd->basis[place * svd->k + j] * vector(vectors, j)[i];
    return sum;
}

static void write_factors(const struct svd *svd, float *a, float *b)
{
    for (size_t r = 0; r < svd->rank; r++) {
        const size_t place = svd->order[r];
        double largest = 0;
        for (size_t i = 0; i < svd->in; i++) {
            const double value = combine(svd, &svd->x, place, i);
            largest = fabs(value) > fabs(largest) ? value : largest;
            a[r * svd->in + i] = (float)value;
        }
        const double sign = largest < 0 ? -1 : 1;
        for (size_t i = 0; i < svd->in; i++)
            a[r * svd->in + i] *= (float)sign;
        for (size_t i = 0; i < svd->out; i++)
            b[i * svd->rank + r] = (float)(sign * combine(svd, &svd->y, place, i));
    }
}

/* Squared norm of w, in the order of its rows. */
static double measure(const struct svd *svd)
{
    double energy = 0;
    for (size_t r = 0; r < svd->out; r++) {
        hop_convert(svd->rows, HOP_F32, element(svd, r, 0), svd->dtype, svd->in);
        for (size_t i = 0; i < svd->in; i++)
            energy += (double)svd->rows[i] * (double)svd->rows[i];
    }
    return energy;
}

static hop_status allocate(struct svd *svd, struct hop_error *err)
{
    const size_t longest = svd->out > svd->in ? svd->out : svd->in;
    svd->piece = PANEL * longest;
    svd->x.n = svd->in;
    svd->y.n = svd->out;
    HOP_TRY(hop_calloc_aligned(&svd->x.at, svd->k * svd->in, sizeof *svd->x.at, err));
    HOP_TRY(hop_calloc_aligned(&svd->y.at, svd->k * svd->out, sizeof *svd->y.at, err));
    HOP_TRY(hop_calloc_aligned(&svd->panel, PANEL * longest, sizeof *svd->panel, err));
    HOP_TRY(hop_calloc_aligned(&svd->rows, (size_t)omp_get_max_threads() * svd->piece,
                               sizeof *svd->rows, err));
    HOP_TRY(hop_calloc(&svd->gram, svd->k * svd->k, sizeof *svd->gram, err));
    HOP_TRY(hop_calloc(&svd->basis, svd->k * svd->k, sizeof *svd->basis, err));
    HOP_TRY(hop_calloc(&svd->values, svd->k, sizeof *svd->values, err));
    return hop_calloc(&svd->order, svd->k, sizeof *svd->order, err);
}

static void release(struct svd *svd)
{
    free(svd->x.at);
    free(svd->y.at);
    free(svd->panel);
    free(svd->rows);
    free(svd->gram);
    free(svd->basis);
    free(svd->values);
    free(svd->order);
}

hop_status hop_core_factors(const void *w, enum hop_dtype dtype, int64_t out, int64_t in,
                            int32_t rank, float *a, float *b, struct hop_error *err)
{
    const int64_t most = out < in ? out : in;
    hop_status status;
    if (rank < 1 || rank > most)
        return hop_fail(err, HOP_INPUT,
                        "a core of rank %d does not fit a projection of shape [%lld, %lld]; its "
                        "rank may be 1 to %lld",
                        rank, (long long)out, (long long)in, (long long)most);
    struct svd svd = {.w = w,
                      .dtype = dtype,
                      .out = (size_t)out,
                      .in = (size_t)in,
                      .rank = (size_t)rank,
                      .k = (size_t)(rank + EXTRA < most ? rank + EXTRA : most)};
    HOP_TRY_DONE(allocate(&svd, err));
    svd.energy = measure(&svd);
    if (!isfinite(svd.energy)) {
        status = hop_fail(err, HOP_INPUT,
                          "a projection of shape [%lld, %lld] has a weight that is "
                          "no number or infinite, so a core has no factors there",
                          (long long)out, (long long)in);
        goto done;
    }
    iterate(&svd);
    diagonalise(&svd);
    write_factors(&svd, a, b);
done:
    release(&svd);
    return status;
}
