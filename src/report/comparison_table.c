/* The table that sets strategies side by side. */
#include <math.h>

#include "report/forecast_table.h"
#include "report/quantity.h"
#include "report/table.h"

static const char *device_set(const struct hop_forecast *forecast)
{
    return forecast->bp_only ? "bp-only" : "all";
}

static double largest(const double *values, int32_t count)
{
    double best = 0;
    for (int32_t i = 0; i < count; i++)
        best = fmax(best, values[i]);
    return best;
}

static double sum(const double *values, int32_t count)
{
    double total = 0;
    for (int32_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static hop_status put_feasible(struct hop_table *table, const struct hop_forecast *forecast,
                               double best, struct hop_error *err)
{
    const struct hop_simulation *const seen = &forecast->simulation;
    HOP_TRY(
        hop_table_cell(table, err, "%s", hop_quantity_number(forecast->samples_per_second).text));
    HOP_TRY(hop_table_cell(table, err, "%.2f", forecast->samples_per_second / best));
    HOP_TRY(hop_table_cell(table, err, "%.0f %%", 100 * seen->utilization));
    HOP_TRY(hop_table_cell(table, err, "%.0f %%", 100 * (1 - seen->utilization)));
    HOP_TRY(hop_table_cell(table, err, "%s",
                           hop_quantity_bytes(largest(seen->peak_memory, seen->devices)).text));
    HOP_TRY(hop_table_cell(table, err, "%s",
                           hop_quantity_bytes(sum(seen->bytes_sent, seen->devices)).text));
    if (isfinite(forecast->joules_per_sample))
        HOP_TRY(hop_table_cell(table, err, "%s J",
                               hop_quantity_number(forecast->joules_per_sample).text));
    else
        HOP_TRY(hop_table_cell(table, err, "-"));
    return hop_table_cell(table, err, "yes");
}

static hop_status put_row(struct hop_table *table, const struct hop_forecast *forecast, double best,
                          struct hop_error *err)
{
    enum { NUMBERS = 7 };
    HOP_TRY(hop_table_cell(table, err, "%s", forecast->plan.strategy));
    HOP_TRY(hop_table_cell(table, err, "%s", device_set(forecast)));
    if (forecast->feasible)
        return put_feasible(table, forecast, best, err);
    for (int i = 0; i < NUMBERS; i++)
        HOP_TRY(hop_table_cell(table, err, "-"));
    return hop_table_cell(table, err, "no");
}

static double best_of(const struct hop_forecast *forecasts, size_t count)
{
    double best = 0;
    for (size_t i = 0; i < count; i++)
        if (forecasts[i].feasible)
            best = fmax(best, forecasts[i].samples_per_second);
    return best;
}

static void print_reasons(const struct hop_forecast *forecasts, size_t count, FILE *to)
{
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (forecasts[i].feasible)
            continue;
        fprintf(to, "%s%s on %s devices: %s\n", first ? "\n" : "", forecasts[i].plan.strategy,
                device_set(&forecasts[i]), forecasts[i].refusal.message);
        first = false;
    }
}

static void print_estimators(const struct hop_forecast *forecasts, size_t count, FILE *to)
{
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        char text[256];
        if (!forecasts[i].feasible || !hop_forecast_estimator(&forecasts[i], text, sizeof text))
            continue;
        fprintf(to, "%s%s on %s devices: %s\n", first ? "\n" : "", forecasts[i].plan.strategy,
                device_set(&forecasts[i]), text);
        first = false;
    }
}

hop_status hop_forecast_compare(const struct hop_forecast *forecasts, size_t count, FILE *to,
                                struct hop_error *err)
{
    static const char *const headers[] = {
        "strategy",     "devices",      ">samples/s",       ">of best", ">busy", ">bubble",
        ">peak memory", ">sent a step", ">energy a sample", "feasible", NULL};
    hop_status status = HOP_OK;
    struct hop_table *table = NULL;
    HOP_TRY(hop_table_create(headers, &table, err));
    const double best = best_of(forecasts, count);
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(put_row(table, &forecasts[i], best, err));
    hop_table_print(table, to);
    print_estimators(forecasts, count, to);
    print_reasons(forecasts, count, to);
done:
    hop_table_free(table);
    return status;
}
