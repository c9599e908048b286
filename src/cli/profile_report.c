#include "cli/profile_report.h"

#include <math.h>

#include "report/table.h"

/* "-" for what was not measured. */
static hop_status cell(struct hop_table *table, const char *sign, int decimals, double value,
                       struct hop_error *err)
{
    if (!isfinite(value))
        return hop_table_cell(table, err, "-");
    return hop_table_cell(table, err, "%s%.*f", *sign && value >= 0 ? sign : "", decimals, value);
}

static double milliseconds(const struct hop_timing *t)
{
    return t->repetitions > 0 ? 1e3 * t->seconds : NAN;
}

static double percent_off(double estimate, double real)
{
    return real > 0 ? 100 * (estimate / real - 1) : NAN;
}

/* Times */

static hop_status print_point(struct hop_table *table, const struct hop_measurement *m,
                              const struct hop_measured_point *point, struct hop_error *err)
{
    const struct hop_timing *const forward = &point->block.forward;
    const bool timed = forward->repetitions > 0;
    HOP_TRY(hop_table_cell(table, err, "%d", point->rows));
    HOP_TRY(hop_table_cell(table, err, "%d", point->rows * m->request.tokens));
    HOP_TRY(cell(table, "", 3, milliseconds(forward), err));
    HOP_TRY(cell(table, "", 0, timed ? 100 * forward->spread : NAN, err));
    HOP_TRY(cell(table, "", 3, milliseconds(&point->block.backward), err));
    HOP_TRY(cell(table, "", 3, 1e3 * point->block.further_probe, err));
    HOP_TRY(cell(table, "", 3, 1e3 * point->fit, err));
    HOP_TRY(cell(table, "+", 1, timed ? percent_off(point->fit, forward->seconds) : NAN, err));
    HOP_TRY(cell(table, "", 3, milliseconds(&point->embed.forward), err));
    HOP_TRY(cell(table, "", 3, milliseconds(&point->head.forward), err));
    return cell(table, "", 3, milliseconds(&point->head.backward), err);
}

static hop_status print_times(const struct hop_measurement *m, FILE *to, struct hop_error *err)
{
    static const char *const headers[] = {">rows",     ">tokens", ">forward",       ">+-%",
                                          ">backward", ">probe",  ">fit",           ">error %",
                                          ">embed",    ">head",   ">head backward", NULL};
    struct hop_table *table;
    hop_status status = HOP_OK;
    HOP_TRY(hop_table_create(headers, &table, err));
    for (int32_t r = 0; r < m->request.row_count; r++)
        HOP_TRY_DONE(print_point(table, m, &m->points[r], err));
    fprintf(to,
            "Milliseconds of one block; probe: what each probe after the first adds to a call\n");
    hop_table_print(table, to);
done:
    hop_table_free(table);
    return status;
}

/* Times that differ this much were not those of the machine alone. */
#define STEADY 0.2

static void print_rate(const struct hop_measurement *m, FILE *to)
{
    const struct hop_measured_rate *const rate = &m->rate;
    fprintf(to, "\nrate            %.4g TFLOPS (R2 %.4f over %d micro-batch size%s)\n", rate->rate,
            rate->r2, (int)rate->points, rate->points == 1 ? "" : "s");
    fprintf(to, "overhead        %.3f ms a block%s\n", 1e3 * rate->overhead,
            rate->points == 1 ? "; one size does not tell it from the rate" : "");
    if (isfinite(rate->backward_ratio))
        fprintf(to, "backward_ratio  %.3f\n", rate->backward_ratio);
    if (isfinite(rate->probe_ratio))
        fprintf(to, "probe_ratio     %.3f\n", rate->probe_ratio);
    if (m->step.repetitions > 0)
        fprintf(to, "optimizer       %.3f ms a block\n", 1e3 * m->step.seconds);
    fprintf(to, "bandwidth       %.1f GB/s (triad)\n", m->bandwidth / 1e9);
    if (isfinite(m->available))
        fprintf(to, "memory          %.0f MiB to spare\n", m->available / 0x1p20);
    const double spread = hop_measured_chosen(m)->block.forward.spread;
    if (spread > STEADY)
        fprintf(to, "The times of equal calls spread by %.0f %%: let nothing else run meanwhile.\n",
                100 * spread);
}

/* Memory */

static hop_status print_bytes(struct hop_table *table, double held, double estimate,
                              struct hop_error *err)
{
    HOP_TRY(cell(table, "", 3, estimate / 0x1p20, err));
    HOP_TRY(cell(table, "", 3, held / 0x1p20, err));
    return cell(table, "+", 2, percent_off(estimate, held), err);
}

static hop_status print_stages(const struct hop_measurement *m, FILE *to, struct hop_error *err)
{
    static const char *const headers[] = {">blocks",   ">slots",   ">rank", ">estimate MiB",
                                          ">held MiB", ">error %", NULL};
    struct hop_table *table;
    hop_status status = HOP_OK;
    HOP_TRY(hop_table_create(headers, &table, err));
    for (int32_t s = 0; s < m->memory.count; s++) {
        const struct hop_measured_stage *const stage = &m->memory.stages[s];
        HOP_TRY_DONE(hop_table_cell(table, err, "%d", stage->blocks));
        HOP_TRY_DONE(hop_table_cell(table, err, "%d", stage->slots));
        HOP_TRY_DONE(hop_table_cell(table, err, "%d", stage->rank));
        HOP_TRY_DONE(print_bytes(table, stage->held, stage->estimate, err));
    }
    fprintf(to,
            "\nMemory of a stage with micro-batches of %d samples; slots: micro-batches in "
            "flight\n",
            hop_measured_chosen(m)->rows);
    hop_table_print(table, to);
done:
    hop_table_free(table);
    return status;
}

static hop_status print_terms(const struct hop_measured_memory *memory, FILE *to,
                              struct hop_error *err)
{
    static const char *const headers[] = {"of the last one", ">estimate MiB", ">held MiB",
                                          ">error %", NULL};
    struct hop_table *table;
    hop_status status = HOP_OK;
    HOP_TRY(hop_table_create(headers, &table, err));
    for (int t = 0; t < HOP_MEMORY_TERMS; t++) {
        HOP_TRY_DONE(hop_table_cell(table, err, "%s", hop_memory_term_names[t]));
        HOP_TRY_DONE(print_bytes(table, memory->term[t].held, memory->term[t].estimate, err));
    }
    fprintf(to, "\n");
    hop_table_print(table, to);
    fprintf(to, "\nlambda_1        %.4f bytes a frozen parameter\n", memory->lambda_1);
    fprintf(to, "lambda_2+3      %.4f bytes a trainable parameter\n", memory->lambda_23);
    fprintf(to, "lambda_4        %.4f bytes a frozen parameter and micro-batch in flight\n",
            memory->lambda_4);
    fprintf(to, "R2              %.6f\n", memory->r2);
done:
    hop_table_free(table);
    return status;
}

static void print_title(const struct hop_measurement *m, const char *model, const char *name,
                        FILE *to)
{
    fprintf(to, "%s, %s\n%s, weights %s, %s, %s\n", name, m->backend, model,
            m->mapped ? "mapped" : "random", hop_dtype_name(m->request.dtype),
            m->bp ? "BP-capable" : "BP-free");
    fprintf(to, "Stages of");
    for (int32_t s = 0; s < m->stage_count; s++)
        fprintf(to, "%s %d", s > 0 ? "," : "", m->stage_blocks[s]);
    const bool single = m->stage_blocks[m->stage_count - 1] == 1;
    fprintf(to, " block%s; %d tokens a sample, %d of them labels; %.1f s\n\n", single ? "" : "s",
            m->request.tokens, m->request.labels, m->elapsed);
}

hop_status hop_profile_report(const struct hop_measurement *m, const char *model, const char *name,
                              FILE *to, struct hop_error *err)
{
    print_title(m, model, name, to);
    HOP_TRY(print_times(m, to, err));
    print_rate(m, to);
    HOP_TRY(print_stages(m, to, err));
    if (isfinite(m->memory.lambda_1))
        HOP_TRY(print_terms(&m->memory, to, err));
    fprintf(to, "backend         %.1f MiB of working memory beside the stages\n",
            m->memory.backend / 0x1p20);
    return HOP_OK;
}
