#include "cli/study_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"
#include "io/json.h"
#include "report/chart.h"
#include "report/table.h"

/* Table */

static bool by_loss(const struct hop_study_view *view)
{
    return strcmp(view->study->metric, "loss") == 0;
}

static const struct hop_study_value *metric_of(const struct hop_study_view *view, size_t i)
{
    const struct hop_study_outcome *const outcome = &view->outcomes[i];
    return by_loss(view) ? &outcome->eval_loss : &outcome->metric;
}

/* Of the way from the low to the high outcome's metric; NAN: not asked for. */
static double share_of(const struct hop_study_view *view, size_t i)
{
    const double low = metric_of(view, view->low)->mean, high = metric_of(view, view->high)->mean;
    return view->low == view->high ? NAN : (metric_of(view, i)->mean - low) / (high - low);
}

static hop_status chosen_text(const struct hop_study_variant *variant, struct hop_string *out,
                              struct hop_error *err)
{
    for (size_t i = 0; i < variant->chosen.count; i++)
        HOP_TRY(hop_string_printf(out, err, "%s%s", i ? " " : "", variant->chosen.items[i]));
    return HOP_OK;
}

static hop_status add_optional(struct hop_table *table, const char *format, double value,
                               struct hop_error *err)
{
    if (isnan(value))
        return hop_table_cell(table, err, "-");
    if (isinf(value))
        return hop_table_cell(table, err, "not reached");
    return hop_table_cell(table, err, format, value);
}

static hop_status add_row(const struct hop_study_view *view, size_t i, struct hop_table *table,
                          struct hop_error *err)
{
    const struct hop_study_outcome *const outcome = &view->outcomes[i];
    const struct hop_study_value *const metric = metric_of(view, i);
    struct hop_string chosen = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(chosen_text(outcome->variant, &chosen, err));
    HOP_TRY_DONE(hop_table_cell(table, err, "%s", outcome->variant->name));
    HOP_TRY_DONE(hop_table_cell(table, err, "%s", hop_string_text(&chosen)));
    HOP_TRY_DONE(add_optional(table, "%.4f", metric->mean, err));
    HOP_TRY_DONE(add_optional(table, "%.4f", metric->deviation, err));
    if (view->low != view->high)
        HOP_TRY_DONE(add_optional(table, "%.2f", share_of(view, i), err));
    HOP_TRY_DONE(add_optional(table, "%.4f", outcome->eval_loss.mean, err));
    HOP_TRY_DONE(add_optional(table, "%.4f", outcome->train_loss.mean, err));
    HOP_TRY_DONE(add_optional(table, "%.4g", outcome->step_seconds, err));
    if (!isnan(view->target))
        HOP_TRY_DONE(add_optional(table, "%.4g", outcome->target_seconds.mean, err));
done:
    hop_string_free(&chosen);
    return status;
}

static hop_status create_table(const struct hop_study_view *view, struct hop_table **out,
                               struct hop_error *err)
{
    const char *headers[16];
    char metric[64];
    size_t n = 0;
    snprintf(metric, sizeof metric, ">%s", view->study->metric);
    headers[n++] = "variant";
    headers[n++] = "chosen";
    headers[n++] = metric;
    headers[n++] = ">+-";
    if (view->low != view->high)
        headers[n++] = ">share";
    headers[n++] = ">eval loss";
    headers[n++] = ">train loss";
    headers[n++] = ">s/step";
    if (!isnan(view->target))
        headers[n++] = ">s to target";
    headers[n] = NULL;
    return hop_table_create(headers, out, err);
}

hop_status hop_study_print(const struct hop_study_view *view, FILE *to, struct hop_error *err)
{
    struct hop_table *table = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(create_table(view, &table, err));
    for (size_t i = 0; i < view->count; i++)
        HOP_TRY_DONE(add_row(view, i, table, err));
    hop_table_print(table, to);
done:
    hop_table_free(table);
    return status;
}

/* JSON */

static json_t *value_json(const struct hop_study_value *value)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "mean", hop_json_real(value->mean), "deviation",
                     hop_json_real(value->deviation), "low", hop_json_real(value->low), "high",
                     hop_json_real(value->high));
}

static json_t *numbers(const double *values, size_t n)
{
    json_t *const array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, hop_json_real(values[i]));
    return array;
}

static json_t *line_json(const struct hop_study_line *line)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "step", numbers(line->step, line->count),
                     "seconds", numbers(line->seconds, line->count), "mean",
                     numbers(line->mean, line->count), "low", numbers(line->low, line->count),
                     "high", numbers(line->high, line->count));
}

static json_t *list_json(const struct hop_string_list *list)
{
    json_t *const array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(array, json_string(list->items[i]));
    return array;
}

static json_t *outcome_json(const struct hop_study_view *view, size_t i)
{
    const struct hop_study_outcome *const outcome = &view->outcomes[i];
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "variant",
        outcome->variant->name, "settings", list_json(&outcome->variant->settings), "chosen",
        list_json(&outcome->variant->chosen), "metric", value_json(&outcome->metric), "share",
        hop_json_real(share_of(view, i)), "eval_loss", value_json(&outcome->eval_loss),
        "train_loss", value_json(&outcome->train_loss), "utilization",
        value_json(&outcome->utilization), "step_seconds", hop_json_real(outcome->step_seconds),
        "target_seconds", value_json(&outcome->target_seconds), "training",
        line_json(&outcome->loss), "eval_losses", line_json(&outcome->eval_losses), "metrics",
        line_json(&outcome->metrics));
}

json_t *hop_study_json(const struct hop_study_view *view)
{
    json_t *const outcomes = json_array(), *const seeds = json_array();
    for (size_t i = 0; i < view->count; i++)
        json_array_append_new(outcomes, outcome_json(view, i));
    for (size_t s = 0; s < view->study->seed_count; s++)
        json_array_append_new(seeds, json_integer(view->study->seeds[s]));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "job", view->study->job, "metric",
                     view->study->metric, "clock", hop_study_clock_names[view->clock], "target",
                     hop_json_real(view->target), "seeds", seeds, "outcomes", outcomes);
}

/* Charts */

enum curve { TRAINING, EVAL_LOSS, METRIC };

static const struct hop_study_line *line_of(const struct hop_study_outcome *outcome,
                                            enum curve curve)
{
    return curve == TRAINING    ? &outcome->loss
           : curve == EVAL_LOSS ? &outcome->eval_losses
                                : &outcome->metrics;
}

/* Steps as samples; the caller frees it. */
static hop_status samples_of(const struct hop_study_line *line, int64_t samples, double **out,
                             struct hop_error *err)
{
    HOP_TRY(hop_calloc(out, line->count, sizeof **out, err));
    for (size_t i = 0; i < line->count; i++)
        (*out)[i] = line->step[i] * (double)samples;
    return HOP_OK;
}

/* The value before training would press all others against the edge. */
static size_t first_shown(const struct hop_study_line *line, enum curve curve)
{
    return curve != TRAINING && line->count > 2 && line->step[0] == 0;
}

struct plot {
    const char *file, *title, *y_label;
    enum curve curve;
    bool time; /* x is seconds; else samples */
};

static hop_status draw(const struct hop_study_view *view, const struct plot *plot,
                       struct hop_string *out, struct hop_error *err)
{
    struct hop_chart_line *lines = NULL;
    double **samples = NULL;
    char x_label[64];
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&lines, view->count, sizeof *lines, err));
    HOP_TRY_DONE(hop_calloc(&samples, view->count, sizeof *samples, err));
    for (size_t i = 0; i < view->count; i++) {
        const struct hop_study_line *const line = line_of(&view->outcomes[i], plot->curve);
        const size_t first = first_shown(line, plot->curve);
        HOP_TRY_DONE(samples_of(line, view->samples, &samples[i], err));
        lines[i] = (struct hop_chart_line){.name = view->outcomes[i].variant->name,
                                           .x = (plot->time ? line->seconds : samples[i]) + first,
                                           .y = line->mean + first,
                                           .low = line->low + first,
                                           .high = line->high + first,
                                           .count = line->count - first};
    }
    snprintf(x_label, sizeof x_label, plot->time ? "seconds (%s)" : "training samples",
             hop_study_clock_names[view->clock]);
    const struct hop_chart chart = {.title = plot->title,
                                    .x_label = x_label,
                                    .y_label = plot->y_label,
                                    .lines = lines,
                                    .line_count = view->count,
                                    .log_y = plot->curve == TRAINING};
    status = hop_chart_svg(&chart, out, err);
done:
    for (size_t i = 0; samples && i < view->count; i++)
        free(samples[i]);
    free(samples);
    free(lines);
    return status;
}

/* Page */

static hop_status save_text(const struct hop_study_view *view, const char *name,
                            const struct hop_string *text, struct hop_error *err)
{
    char *path;
    HOP_TRY(hop_path_join(view->study->directory, name, &path, err));
    const hop_status status = hop_file_write(path, text->data, text->length, err);
    free(path);
    return status;
}

static hop_status put_table(const struct hop_study_view *view, struct hop_string *page,
                            struct hop_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *const memory = open_memstream(&text, &size);
    if (!memory)
        return hop_fail(err, HOP_MEMORY, "out of memory");
    hop_status status = hop_study_print(view, memory, err);
    if (fclose(memory) != 0 && status == HOP_OK)
        status = hop_fail(err, HOP_MEMORY, "out of memory");
    if (status == HOP_OK)
        status = hop_string_printf(page, err, "<pre>");
    if (status == HOP_OK)
        status = hop_xml_text(text, page, err);
    if (status == HOP_OK)
        status = hop_string_printf(page, err, "</pre>\n");
    free(text);
    return status;
}

static hop_status begin_page(const struct hop_study_view *view, struct hop_string *page,
                             struct hop_error *err)
{
    HOP_TRY(hop_string_printf(
        page, err,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Study</title>\n"
        "<style>body{font-family:sans-serif;max-width:62em;margin:2em auto;padding:0 1em}"
        "pre{overflow-x:auto}svg{max-width:100%%;height:auto}</style></head><body>\n<h1>Study "
        "of "));
    HOP_TRY(hop_xml_text(view->study->job, page, err));
    HOP_TRY(hop_string_printf(page, err,
                              "</h1>\n<p>%zu seeds a variant; lines are means, bands reach from "
                              "the lowest to the highest seed. Time is %s.</p>\n",
                              view->study->seed_count, hop_study_clock_names[view->clock]));
    return put_table(view, page, err);
}

static hop_status put_plot(const struct hop_study_view *view, const struct plot *plot,
                           struct hop_string *page, struct hop_error *err)
{
    struct hop_string svg = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(draw(view, plot, &svg, err));
    HOP_TRY_DONE(save_text(view, plot->file, &svg, err));
    HOP_TRY_DONE(hop_string_append(page, svg.data, svg.length, err));
done:
    hop_string_free(&svg);
    return status;
}

static hop_status save_page(const struct hop_study_view *view, struct hop_error *err)
{
    const char *const metric = view->study->metric;
    const struct plot plots[] = {
        {"train-loss-time.svg", "Training loss against time", "training loss", TRAINING, true},
        {"train-loss-samples.svg", "Training loss against samples", "training loss", TRAINING,
         false},
        {"eval-loss-time.svg", "Evaluation loss against time", "evaluation loss", EVAL_LOSS, true},
        {"eval-loss-samples.svg", "Evaluation loss against samples", "evaluation loss", EVAL_LOSS,
         false},
        {"metric-time.svg", "Metric against time", metric, METRIC, true},
        {"metric-samples.svg", "Metric against samples", metric, METRIC, false},
    };
    const size_t count = by_loss(view) ? 4 : 6;
    struct hop_string page = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(begin_page(view, &page, err));
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(put_plot(view, &plots[i], &page, err));
    HOP_TRY_DONE(hop_string_printf(&page, err, "</body></html>\n"));
    status = save_text(view, "study.html", &page, err);
done:
    hop_string_free(&page);
    return status;
}

hop_status hop_study_save(const struct hop_study_view *view, struct hop_error *err)
{
    char *path = NULL;
    json_t *const object = hop_study_json(view);
    hop_status status = HOP_OK;
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory");
    HOP_TRY_DONE(hop_path_join(view->study->directory, "study.json", &path, err));
    HOP_TRY_DONE(hop_json_save(path, object, err));
    status = save_page(view, err);
done:
    free(path);
    json_decref(object);
    return status;
}
