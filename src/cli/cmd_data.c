/* hybridop data check: a job's rows as training would see them, before anything is trained. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/data_report.h"
#include "cli/data_view.h"
#include "cli/job_options.h"

enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };
static const char *const color_names[] = {"auto", "always", "never"};

enum { MOST_EXAMPLES = 1000, ENDS = HOP_MAX_EOS + 1 };

struct options {
    struct hop_job_options job;
    size_t examples;
    bool json;
    enum color color;
};

/* What the reports share. */
struct check {
    const struct options *options;
    struct hop_job job;
    struct hop_model_config model;
    struct hop_row_source source;
    int32_t ends[ENDS];
    struct hop_survey_tokens tokens;
    struct hop_data_report reports[2];
    size_t count;
    json_t *warnings;
};

/* ---- options ---- */

static void parse_examples(struct options *options, const char *value, struct argp_state *state)
{
    char *end;
    const long n = strtol(value, &end, 10);
    if (end == value || *end || n < 0 || n > MOST_EXAMPLES)
        argp_error(state, "--examples %s: expected a number from 0 to %d", value, MOST_EXAMPLES);
    options->examples = (size_t)n;
}

static void parse_color(struct options *options, const char *value, struct argp_state *state)
{
    for (int c = COLOR_AUTO; c <= COLOR_NEVER; c++)
        if (strcmp(value, color_names[c]) == 0) {
            options->color = (enum color)c;
            return;
        }
    argp_error(state, "--color %s: expected auto, always or never", value);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->job;
        return 0;
    case 'n':
        parse_examples(options, value, state);
        return 0;
    case 'c':
        parse_color(options, value, state);
        return 0;
    case 'j':
        options->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- reading ---- */

/* What the tokenizer puts in front of a text, else what config.json says. */
static hop_status find_bos(struct check *c, struct hop_error *err)
{
    struct hop_ids around = {0};
    c->tokens.bos = c->model.bos;
    if (!c->source.tokenizer)
        return HOP_OK;
    const hop_status status = hop_tokenizer_encode(c->source.tokenizer, "", 0, true, &around, err);
    if (around.count)
        c->tokens.bos = around.data[0];
    hop_ids_free(&around);
    return status;
}

static void add_end(struct check *c, int32_t id)
{
    for (size_t i = 0; i < c->tokens.end_count; i++)
        if (c->ends[i] == id)
            return;
    c->ends[c->tokens.end_count++] = id;
}

static void find_ends(struct check *c)
{
    c->tokens.ends = c->ends;
    for (int32_t i = 0; i < c->model.eos_count; i++)
        add_end(c, c->model.eos[i]);
    if (c->source.chat && hop_chat_end(c->source.chat) >= 0)
        add_end(c, hop_chat_end(c->source.chat));
}

static hop_status read_rows(struct check *c, const char *use, const char *path, int64_t limit,
                            struct hop_error *err)
{
    struct hop_data_report *const report = &c->reports[c->count++];
    *report = (struct hop_data_report){.use = use,
                                       .path = path,
                                       .job = &c->job,
                                       .model = &c->model,
                                       .source = &c->source,
                                       .tokens = c->tokens};
    HOP_TRY(
        hop_row_source_read(&c->source, &c->job, &c->model, path, limit, &report->dataset, err));
    return hop_survey_take(report->dataset, c->tokens, &report->survey, err);
}

static hop_status read_all(struct check *c, struct hop_error *err)
{
    HOP_TRY(hop_model_config_load(c->job.model, &c->model, err));
    HOP_TRY(hop_row_source_open(&c->job, &c->source, err));
    HOP_TRY(find_bos(c, err));
    find_ends(c);
    HOP_TRY(read_rows(c, "train", c->job.data.train, c->job.data.limit, err));
    if (!c->job.data.eval)
        return HOP_OK;
    return read_rows(c, "eval", c->job.data.eval, c->job.data.eval_limit, err);
}

/* ---- warnings ---- */

static hop_status add_warning(struct check *c, struct hop_string *text, struct hop_error *err)
{
    const int failed = json_array_append_new(c->warnings, json_string(hop_string_text(text)));
    hop_string_free(text);
    return failed ? hop_fail(err, HOP_MEMORY, "out of memory for a warning") : HOP_OK;
}

/* A padding token added to a tokenizer often gets the first id that the model has no row for. */
static hop_status warn_of_vocabulary(struct check *c, struct hop_error *err)
{
    struct hop_string text = {0};
    if (!c->source.tokenizer)
        return HOP_OK;
    const int32_t size = hop_tokenizer_vocabulary(c->source.tokenizer);
    if (size <= c->model.vocabulary)
        return HOP_OK;
    HOP_TRY(hop_string_printf(&text, err,
                              "%s: the tokenizer has ids up to %d, the model embeds %d: rows with "
                              "an id from %d on would be refused",
                              c->job.model, size - 1, c->model.vocabulary, c->model.vocabulary));
    return add_warning(c, &text, err);
}

static hop_status warn_of_overlap(struct check *c, struct hop_error *err)
{
    size_t rows = 0, first = 0;
    struct hop_string text = {0};
    if (c->count < 2)
        return HOP_OK;
    HOP_TRY(hop_survey_overlap(c->reports[0].dataset, c->reports[1].dataset, &rows, &first, err));
    if (rows == 0)
        return HOP_OK;
    HOP_TRY(hop_string_printf(
        &text, err,
        "%s: %zu of %zu rows have the tokens of a row of %s, the first of them row "
        "%zu of those kept: the evaluation would measure what was learnt by "
        "heart",
        c->reports[1].path, rows, c->reports[1].dataset->count, c->reports[0].path, first + 1));
    return add_warning(c, &text, err);
}

static hop_status collect_warnings(struct check *c, struct hop_error *err)
{
    c->warnings = json_array();
    HOP_TRY(warn_of_vocabulary(c, err));
    for (size_t i = 0; i < c->count; i++)
        HOP_TRY(hop_data_report_warn(&c->reports[i], c->warnings, err));
    return warn_of_overlap(c, err);
}

/* ---- printing ---- */

static size_t shown(const struct check *c)
{
    const size_t rows = c->reports[0].dataset->count;
    return c->options->examples < rows ? c->options->examples : rows;
}

static hop_status print_examples(const struct check *c, struct hop_error *err)
{
    const struct hop_dataset *const train = c->reports[0].dataset;
    const bool color = c->options->color == COLOR_ALWAYS ||
                       (c->options->color == COLOR_AUTO && isatty(STDOUT_FILENO));
    for (size_t i = 0; i < shown(c); i++) {
        const struct hop_example *const row = &train->examples[i];
        printf("\nexample %zu: %d tokens%s; trained on what is %s\n", i + 1, row->length,
               row->whole > row->length ? ", cut" : "", color ? "green" : "between ⟦ and ⟧");
        HOP_TRY(hop_data_view_print(row, c->source.tokenizer, color, stdout, err));
    }
    return HOP_OK;
}

static const char *template_name(const struct check *c)
{
    if (!c->source.chat || hop_chat_family(c->source.chat) == HOP_CHAT_AUTO)
        return "none";
    return hop_chat_names[hop_chat_family(c->source.chat)];
}

static hop_status print_text(const struct check *c, struct hop_error *err)
{
    size_t i;
    const json_t *warning;
    printf("model  %s, task %s, chat template %s\n", c->job.model, hop_task_names[c->job.data.task],
           template_name(c));
    for (i = 0; i < c->count; i++) {
        fputc('\n', stdout);
        HOP_TRY(hop_data_report_print(&c->reports[i], stdout, err));
    }
    HOP_TRY(print_examples(c, err));
    fflush(stdout);
    json_array_foreach(c->warnings, i, warning) hop_warn("%s", json_string_value(warning));
    return HOP_OK;
}

static hop_status examples_json(const struct check *c, json_t *list, struct hop_error *err)
{
    for (size_t i = 0; i < shown(c); i++) {
        json_t *row;
        HOP_TRY(hop_data_view_json(&c->reports[0].dataset->examples[i], c->source.tokenizer, &row,
                                   err));
        json_array_append_new(list, row);
    }
    return HOP_OK;
}

static hop_status print_json(const struct check *c, struct hop_error *err)
{
    json_t *const object = json_pack(
        "{s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:o, s:o, s:O, s:[]}", "model", c->job.model, "task",
        hop_task_names[c->job.data.task], "chat_template", template_name(c), "max_length",
        (json_int_t)c->job.data.max_length, "max_position_embeddings", (int)c->model.max_positions,
        "vocabulary", (int)c->model.vocabulary, "tokenizer_vocabulary",
        c->source.tokenizer ? (int)hop_tokenizer_vocabulary(c->source.tokenizer) : 0, "train",
        hop_data_report_json(&c->reports[0]), "eval",
        c->count > 1 ? hop_data_report_json(&c->reports[1]) : json_null(), "warnings", c->warnings,
        "examples");
    hop_status status = HOP_OK;
    if (!object)
        return hop_fail(err, HOP_MEMORY, "out of memory for the report");
    HOP_TRY_DONE(examples_json(c, json_object_get(object, "examples"), err));
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    putchar('\n');
    fflush(stdout);
done:
    json_decref(object);
    return status;
}

/* ---- the command ---- */

static void close_check(struct check *c)
{
    for (size_t i = 0; i < c->count; i++) {
        hop_survey_free(&c->reports[i].survey);
        hop_dataset_free(c->reports[i].dataset);
    }
    hop_row_source_close(&c->source);
    json_decref(c->warnings);
    hop_job_free(&c->job);
}

static hop_status run(void *input, struct hop_error *err)
{
    struct options *const options = input;
    struct check check = {.options = options};
    hop_status status;
    HOP_TRY_DONE(hop_job_options_load(&options->job, &check.job, err));
    HOP_TRY_DONE(read_all(&check, err));
    HOP_TRY_DONE(collect_warnings(&check, err));
    HOP_TRY_DONE(options->json ? print_json(&check, err) : print_text(&check, err));
done:
    close_check(&check);
    return status;
}

static int check_command(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"examples", 'n', "N", 0, "Show the first N training rows (default 3)", 0},
        {"json", 'j', NULL, 0, "Print one JSON object", 0},
        {"color", 'c', "WHEN", 0,
         "auto (default): in colour on a terminal; always; never: in brackets", 0},
        {0}};
    static const struct argp_child children[] = {{&hop_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = known,
        .parser = parse,
        .args_doc = "JOB",
        .doc = "Reads the job's rows as training would and says what they are: how many are left "
               "out or cut, how long they are, what is trained on.",
        .children = children};
    struct options options = {.examples = 3};
    const int status = hop_command(&argp, argc, argv, &options, run);
    hop_job_options_free(&options.job);
    return status;
}

int hop_cmd_data(int argc, char **argv)
{
    static char title[] = "hybridop data check";
    static const char usage[] = "Usage: hybridop data check [OPTION...] JOB\n";
    if (argc > 1 && strcmp(argv[1], "check") == 0) {
        argv[1] = title;
        return check_command(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        printf("%s\n`hybridop data check --help` explains the options.\n", usage);
        return 0;
    }
    fprintf(stderr, "hybridop: error: data: %s%s; see `hybridop data --help`\n",
            argc > 1 ? "the only thing to do is check, not " : "check is missing",
            argc > 1 ? argv[1] : "");
    return HOP_EXIT_USAGE;
}
