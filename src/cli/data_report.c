#include "cli/data_report.h"

#include <string.h>

#include "base/string.h"
#include "report/table.h"

/* The largest id of the tokenizer and one more; 0 without a tokenizer. */
static int32_t tokenizer_size(const struct hop_data_report *r)
{
    return r->source->tokenizer ? hop_tokenizer_vocabulary(r->source->tokenizer) : 0;
}

/* ---- for people ---- */

enum { BAR = 40 };

static void print_bar(size_t rows, size_t most, char *out)
{
    const size_t n = (rows * BAR + most - 1) / most;
    memset(out, '#', n);
    out[n] = '\0';
}

static hop_status add_bins(const struct hop_survey *s, struct hop_table *table,
                           struct hop_error *err)
{
    char bar[BAR + 1];
    size_t most = 1;
    for (size_t b = 0; b < s->bin_count; b++)
        most = s->bins[b].rows > most ? s->bins[b].rows : most;
    for (size_t b = 0; b < s->bin_count; b++) {
        print_bar(s->bins[b].rows, most, bar);
        HOP_TRY(hop_table_cell(table, err, "    %d-%d", s->bins[b].lo, s->bins[b].hi));
        HOP_TRY(hop_table_cell(table, err, "%zu", s->bins[b].rows));
        HOP_TRY(hop_table_cell(table, err, "%s", bar));
    }
    return HOP_OK;
}

static hop_status print_histogram(const struct hop_survey *s, FILE *to, struct hop_error *err)
{
    static const char *const headers[] = {">    tokens", ">rows", "", NULL};
    struct hop_table *table;
    HOP_TRY(hop_table_create(headers, &table, err));
    const hop_status status = add_bins(s, table, err);
    if (status == HOP_OK)
        hop_table_print(table, to);
    hop_table_free(table);
    return status;
}

static hop_status add_labels(const struct hop_data_report *r, struct hop_table *table,
                             struct hop_error *err)
{
    const struct hop_dataset *const d = r->dataset;
    for (size_t i = 0; i < d->label_count; i++) {
        const size_t rows = r->survey.label_rows[i];
        HOP_TRY(hop_table_cell(table, err, "    %s", d->label_names[i]));
        HOP_TRY(hop_table_cell(table, err, "%zu", rows));
        HOP_TRY(hop_table_cell(table, err, "%.1f%%", 100 * (double)rows / (double)d->count));
        HOP_TRY(hop_table_cell(table, err, "%zu", d->label_ids[i].count));
    }
    return HOP_OK;
}

static hop_status print_labels(const struct hop_data_report *r, FILE *to, struct hop_error *err)
{
    static const char *const headers[] = {"    label", ">rows", ">share", ">tokens", NULL};
    struct hop_table *table;
    if (r->dataset->label_count == 0)
        return HOP_OK;
    HOP_TRY(hop_table_create(headers, &table, err));
    const hop_status status = add_labels(r, table, err);
    if (status == HOP_OK)
        hop_table_print(table, to);
    hop_table_free(table);
    return status;
}

static void print_rows(const struct hop_data_report *r, FILE *to)
{
    const struct hop_dataset *const d = r->dataset;
    fprintf(to, "  rows      %zu read, %zu kept, %zu left out (no label token), %zu cut\n", d->rows,
            d->count, d->unlabeled, d->truncated);
    fprintf(to, "  tokens    %lld, trained on %lld of them (%.1f%%)\n", (long long)d->tokens,
            (long long)d->label_tokens, 100 * (double)d->label_tokens / (double)d->tokens);
}

static void print_lengths(const struct hop_data_report *r, FILE *to)
{
    const struct hop_survey *const s = &r->survey;
    fprintf(to,
            "  length    %d to %d tokens before cutting, mean %.1f, median %d, 95%% up to %d\n"
            "            data.max_length %lld, the model's max_position_embeddings %d\n",
            s->shortest, s->longest, s->mean, s->median, s->p95, (long long)r->job->data.max_length,
            r->model->max_positions);
}

static void print_tokens(const struct hop_data_report *r, FILE *to)
{
    const struct hop_survey *const s = &r->survey;
    const size_t rows = r->dataset->count;
    fprintf(to, "  ids       %d to %d; the model has %d", s->least_id, s->largest_id,
            r->model->vocabulary);
    if (r->source->tokenizer)
        fprintf(to, ", its tokenizer %d", tokenizer_size(r));
    fputc('\n', to);
    if (r->tokens.bos >= 0)
        fprintf(to, "  BOS       id %d begins %zu of %zu rows, twice %zu; it stands inside %zu\n",
                r->tokens.bos, s->begin_with_bos, rows, s->begin_with_two, s->inner_bos);
    fprintf(to, "  EOS       ");
    for (size_t i = 0; i < r->tokens.end_count; i++)
        fprintf(to, "%s %d", i ? "," : "id", r->tokens.ends[i]);
    fprintf(to, "%s is the last trained token of %zu of %zu rows\n",
            r->tokens.end_count ? "" : "none known;", s->trained_end, rows);
}

hop_status hop_data_report_print(const struct hop_data_report *r, FILE *to, struct hop_error *err)
{
    fprintf(to, "%s  %s\n", r->use, r->path);
    print_rows(r, to);
    print_lengths(r, to);
    print_tokens(r, to);
    HOP_TRY(print_histogram(&r->survey, to, err));
    return print_labels(r, to, err);
}

/* ---- for programs ---- */

static json_t *bins_json(const struct hop_survey *s)
{
    json_t *const list = json_array();
    for (size_t b = 0; b < s->bin_count; b++)
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:I}", "from", (int)s->bins[b].lo, "to",
                                        (int)s->bins[b].hi, "rows", (json_int_t)s->bins[b].rows));
    return list;
}

static json_t *labels_json(const struct hop_data_report *r)
{
    const struct hop_dataset *const d = r->dataset;
    json_t *const object = json_object();
    for (size_t i = 0; i < d->label_count; i++)
        json_object_set_new(object, d->label_names[i],
                            json_integer((json_int_t)r->survey.label_rows[i]));
    return object;
}

static json_t *ends_json(const struct hop_data_report *r)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < r->tokens.end_count; i++)
        json_array_append_new(list, json_integer(r->tokens.ends[i]));
    return list;
}

json_t *hop_data_report_json(const struct hop_data_report *r)
{
    const struct hop_dataset *const d = r->dataset;
    const struct hop_survey *const s = &r->survey;
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:i, s:i, s:f, s:i, s:i}, s:o, s:[i,i],"
        " s:{s:i, s:I, s:I, s:I}, s:{s:o, s:I}, s:o}",
        "path", r->path, "rows", (json_int_t)d->rows, "kept", (json_int_t)d->count, "left_out",
        (json_int_t)d->unlabeled, "truncated", (json_int_t)d->truncated, "tokens",
        (json_int_t)d->tokens, "label_tokens", (json_int_t)d->label_tokens, //
        "length", "shortest", (int)s->shortest, "longest", (int)s->longest, "mean", s->mean,
        "median", (int)s->median, "p95", (int)s->p95,                           //
        "histogram", bins_json(s), "ids", (int)s->least_id, (int)s->largest_id, //
        "bos", "id", (int)r->tokens.bos, "begin", (json_int_t)s->begin_with_bos, "twice",
        (json_int_t)s->begin_with_two, "inside", (json_int_t)s->inner_bos, //
        "eos", "ids", ends_json(r), "trained", (json_int_t)s->trained_end, //
        "labels", labels_json(r));
}

/* ---- warnings ---- */

static hop_status add(json_t *warnings, struct hop_string *text, struct hop_error *err)
{
    const int failed = json_array_append_new(warnings, json_string(hop_string_text(text)));
    hop_string_free(text);
    return failed ? hop_fail(err, HOP_MEMORY, "out of memory for a warning") : HOP_OK;
}

#define WARN(...)                                                                                  \
    do {                                                                                           \
        struct hop_string warning = {0};                                                           \
        HOP_TRY(hop_string_printf(&warning, err, __VA_ARGS__));                                    \
        HOP_TRY(add(warnings, &warning, err));                                                     \
    } while (0)

static hop_status warn_of_ends(const struct hop_data_report *r, json_t *warnings,
                               struct hop_error *err)
{
    const struct hop_survey *const s = &r->survey;
    const size_t rows = r->dataset->count;
    if (r->tokens.bos >= 0 && s->begin_with_bos > 0 && s->begin_with_bos < rows)
        WARN("%s: %zu of %zu rows do not begin with BOS (id %d) while others do", r->path,
             rows - s->begin_with_bos, rows, r->tokens.bos);
    if (s->begin_with_two)
        WARN("%s: %zu rows begin with BOS twice", r->path, s->begin_with_two);
    if (s->trained_end == 0)
        WARN("%s: no row ends with a trained end token: a model tuned on this does not learn to "
             "stop",
             r->path);
    return HOP_OK;
}

static hop_status warn_of_labels(const struct hop_data_report *r, json_t *warnings,
                                 struct hop_error *err)
{
    const struct hop_dataset *const d = r->dataset;
    for (size_t i = 0; i < d->label_count; i++)
        if (r->survey.label_rows[i] == 0)
            WARN("%s: no row has the label \"%s\"", r->path, d->label_names[i]);
    return HOP_OK;
}

static hop_status warn_of_lengths(const struct hop_data_report *r, json_t *warnings,
                                  struct hop_error *err)
{
    const struct hop_dataset *const d = r->dataset;
    if (d->longest > r->model->max_positions)
        WARN("%s: the longest row has %d tokens after cutting, more than the model's "
             "max_position_embeddings %d; set data.max_length to %d or less",
             r->path, d->longest, r->model->max_positions, r->model->max_positions);
    if (10 * d->unlabeled > d->rows)
        WARN("%s: %zu of %zu rows are left out, for no label token remains in them", r->path,
             d->unlabeled, d->rows);
    return HOP_OK;
}

hop_status hop_data_report_warn(const struct hop_data_report *r, json_t *warnings,
                                struct hop_error *err)
{
    HOP_TRY(warn_of_lengths(r, warnings, err));
    HOP_TRY(warn_of_ends(r, warnings, err));
    return warn_of_labels(r, warnings, err);
}
