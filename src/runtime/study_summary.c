#include "runtime/study_summary.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

const char *const hop_study_clock_names[] = {"simulated", "measured", NULL};

/* Steps that a point of the training loss averages. */
enum { WINDOW = 10 };

static void free_line(struct hop_study_line *line)
{
    free(line->step);
    free(line->seconds);
    free(line->mean);
    free(line->low);
    free(line->high);
}

void hop_study_outcome_free(struct hop_study_outcome *outcome)
{
    if (!outcome)
        return;
    free_line(&outcome->loss);
    free_line(&outcome->eval_losses);
    free_line(&outcome->metrics);
    *outcome = (struct hop_study_outcome){0};
}

static struct hop_study_value value_of(const double *values, size_t n)
{
    struct hop_study_value value = {NAN, 0, INFINITY, -INFINITY};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
        value.low = fmin(value.low, values[i]);
        value.high = fmax(value.high, values[i]);
    }
    value.mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - value.mean) * (values[i] - value.mean);
    if (n > 1)
        value.deviation = sqrt(squares / (double)(n - 1));
    return value;
}

/* What is gathered of all seeds. */
struct gathered {
    const struct hop_study_curve *curves;
    size_t seeds;
    enum hop_study_clock clock;
    double *values; /* (seeds) scratch */
};

static double seconds_at(const struct gathered *g, size_t seed, double step)
{
    const struct hop_study_curve *const curve = &g->curves[seed];
    if (g->clock == HOP_STUDY_SIMULATED)
        return step * curve->step_seconds;
    const size_t done = (size_t)step;
    return done == 0 || curve->steps == 0 ? 0
           : done > curve->steps          ? curve->seconds[curve->steps - 1]
                                          : curve->seconds[done - 1];
}

static double mean_seconds(const struct gathered *g, double step)
{
    double sum = 0;
    for (size_t s = 0; s < g->seeds; s++)
        sum += seconds_at(g, s, step);
    return sum / (double)g->seeds;
}

static hop_status create_line(size_t count, struct hop_study_line *line, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&line->step, count, sizeof(double), err));
    HOP_TRY(hop_calloc(&line->seconds, count, sizeof(double), err));
    HOP_TRY(hop_calloc(&line->mean, count, sizeof(double), err));
    HOP_TRY(hop_calloc(&line->low, count, sizeof(double), err));
    HOP_TRY(hop_calloc(&line->high, count, sizeof(double), err));
    line->count = count;
    return HOP_OK;
}

/* Sets point i from g->values. */
static void set_point(const struct gathered *g, struct hop_study_line *line, size_t i, double step)
{
    const struct hop_study_value value = value_of(g->values, g->seeds);
    line->step[i] = step;
    line->seconds[i] = mean_seconds(g, step);
    line->mean[i] = value.mean;
    line->low[i] = value.low;
    line->high[i] = value.high;
}

/* Seeds may have stopped early: as many as all of them have. */
static size_t shortest(const struct gathered *g, bool evaluations)
{
    size_t n = SIZE_MAX;
    for (size_t s = 0; s < g->seeds; s++) {
        const size_t own = evaluations ? g->curves[s].evaluations : g->curves[s].steps;
        n = own < n ? own : n;
    }
    return n;
}

static double windowed(const double *values, size_t i)
{
    const size_t from = i + 1 > WINDOW ? i + 1 - WINDOW : 0;
    double sum = 0;
    for (size_t k = from; k <= i; k++)
        sum += values[k];
    return sum / (double)(i + 1 - from);
}

static hop_status training_line(const struct gathered *g, struct hop_study_line *line,
                                struct hop_error *err)
{
    HOP_TRY(create_line(shortest(g, false), line, err));
    for (size_t i = 0; i < line->count; i++) {
        for (size_t s = 0; s < g->seeds; s++)
            g->values[s] = windowed(g->curves[s].loss, i);
        set_point(g, line, i, (double)(i + 1));
    }
    return HOP_OK;
}

static hop_status evaluation_line(const struct gathered *g, bool metric,
                                  struct hop_study_line *line, struct hop_error *err)
{
    HOP_TRY(create_line(shortest(g, true), line, err));
    for (size_t i = 0; i < line->count; i++) {
        for (size_t s = 0; s < g->seeds; s++)
            g->values[s] = metric ? g->curves[s].eval_metric[i] : g->curves[s].eval_loss[i];
        set_point(g, line, i, g->curves[0].eval_step[i]);
    }
    return HOP_OK;
}

/* Between two evaluations the loss is taken to fall evenly. */
static double reach(const struct gathered *g, size_t seed, double target)
{
    const struct hop_study_curve *const curve = &g->curves[seed];
    for (size_t i = 0; i < curve->evaluations; i++) {
        if (!(curve->eval_loss[i] <= target))
            continue;
        if (i == 0)
            return 0;
        const double fall = curve->eval_loss[i - 1] - curve->eval_loss[i];
        const double share = fall > 0 ? (curve->eval_loss[i - 1] - target) / fall : 1;
        const double before = seconds_at(g, seed, curve->eval_step[i - 1]);
        return before + share * (seconds_at(g, seed, curve->eval_step[i]) - before);
    }
    return INFINITY;
}

static double last_evaluation(const struct hop_study_curve *curve, const double *values)
{
    return curve->evaluations > 0 ? values[curve->evaluations - 1] : NAN;
}

static void fill_values(const struct gathered *g, double target, struct hop_study_outcome *out)
{
    const struct hop_study_curve *const curves = g->curves;
    double *const values = g->values;
    for (size_t s = 0; s < g->seeds; s++)
        values[s] = curves[s].final_loss;
    out->train_loss = value_of(values, g->seeds);
    for (size_t s = 0; s < g->seeds; s++)
        values[s] = last_evaluation(&curves[s], curves[s].eval_loss);
    out->eval_loss = value_of(values, g->seeds);
    for (size_t s = 0; s < g->seeds; s++)
        values[s] = last_evaluation(&curves[s], curves[s].eval_metric);
    out->metric = value_of(values, g->seeds);
    for (size_t s = 0; s < g->seeds; s++)
        values[s] = curves[s].utilization;
    out->utilization = value_of(values, g->seeds);
    for (size_t s = 0; s < g->seeds; s++)
        values[s] = isnan(target) ? NAN : reach(g, s, target);
    out->target_seconds = value_of(values, g->seeds);
}

static hop_status summarise(const struct gathered *g, double target, struct hop_study_outcome *out,
                            struct hop_error *err)
{
    const size_t steps = shortest(g, false);
    out->step_seconds = steps ? mean_seconds(g, (double)steps) / (double)steps : NAN;
    fill_values(g, target, out);
    HOP_TRY(training_line(g, &out->loss, err));
    HOP_TRY(evaluation_line(g, false, &out->eval_losses, err));
    return evaluation_line(g, true, &out->metrics, err);
}

static hop_status read_curve(const struct hop_study *study, const struct hop_study_variant *variant,
                             size_t seed, enum hop_study_clock clock, struct hop_study_curve *curve,
                             struct hop_error *err)
{
    char *folder;
    HOP_TRY(hop_study_folder(study, variant, study->seeds[seed], &folder, err));
    hop_status status = hop_study_curve_read(folder, study->metric, curve, err);
    if (status == HOP_OK && clock == HOP_STUDY_SIMULATED && !isfinite(curve->step_seconds))
        status = hop_fail(err, HOP_INPUT,
                          "%s/plan.json has no simulated_seconds; use the measured clock", folder);
    free(folder);
    return status;
}

hop_status hop_study_summarise(const struct hop_study *study,
                               const struct hop_study_variant *variant, enum hop_study_clock clock,
                               double target, struct hop_study_outcome *out, struct hop_error *err)
{
    struct hop_study_outcome outcome = {.variant = variant};
    struct hop_study_curve *curves = NULL;
    double *values = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&curves, study->seed_count, sizeof *curves, err));
    HOP_TRY_DONE(hop_calloc(&values, study->seed_count, sizeof *values, err));
    for (size_t s = 0; s < study->seed_count; s++)
        HOP_TRY_DONE(read_curve(study, variant, s, clock, &curves[s], err));
    const struct gathered gathered = {curves, study->seed_count, clock, values};
    HOP_TRY_DONE(summarise(&gathered, target, &outcome, err));
    *out = outcome;
    outcome = (struct hop_study_outcome){0};
done:
    hop_study_outcome_free(&outcome);
    for (size_t s = 0; curves && s < study->seed_count; s++)
        hop_study_curve_free(&curves[s]);
    free(curves);
    free(values);
    return status;
}
