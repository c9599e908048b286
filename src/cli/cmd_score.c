/* hybridop score: a task's official metrics of predictions that some system made, without a model.
 */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/log.h"
#include "base/string.h"
#include "cli/commands.h"
#include "data/predictions.h"
#include "report/table.h"

enum { OPTION_TASK = 't', OPTION_DATA = 'd', OPTION_PREDICTIONS = 'p', OPTION_JSON = 0x100 };
enum { METRICS_MAX = 5 };

struct options;

/* What either task comes to. */
struct result {
    struct hop_prediction_counts counts;
    struct metric {
        const char *name;
        double value;
    } metrics[METRICS_MAX]; /* up to the first without a name */
};

struct task {
    const char *name;
    const char *missing; /* what becomes of a question without a prediction */
    hop_status (*score)(const struct options *options, struct result *out, struct hop_error *err);
};

struct options {
    const struct task *task;
    const char *data, *predictions;
    bool json;
};

/* ---- the tasks ---- */

static hop_status score_squad(const struct options *options, struct result *out,
                              struct hop_error *err)
{
    struct hop_squad_scores scores;
    struct hop_prediction_counts counts;
    HOP_TRY(hop_squad_score_files(options->data, options->predictions, &scores, &counts, err));
    *out = (struct result){counts, {{"exact_match", scores.exact_match}, {"f1", scores.f1}}};
    return HOP_OK;
}

static hop_status score_multirc(const struct options *options, struct result *out,
                                struct hop_error *err)
{
    struct hop_multirc_scores scores;
    struct hop_prediction_counts counts;
    HOP_TRY(hop_multirc_score_files(options->data, options->predictions, &scores, &counts, err));
    *out = (struct result){counts,
                           {{"em0", scores.em0},
                            {"em1", scores.em1},
                            {"f1m", scores.f1m},
                            {"f1a", scores.f1a},
                            {"accuracy", scores.accuracy}}};
    return HOP_OK;
}

static const struct task tasks[] = {
    {"squad", "score 0", score_squad},
    {"multirc", "are left out", score_multirc},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

/* ---- the command line ---- */

static const struct task *find_task(const char *name, const struct argp_state *state)
{
    const char *names[TASKS];
    for (int i = 0; i < TASKS; i++) {
        names[i] = tasks[i].name;
        if (strcmp(name, names[i]) == 0)
            return &tasks[i];
    }
    const char *const nearest = hop_nearest_name(name, names, TASKS);
    argp_error(state, "the task \"%s\" is not known; it is squad or multirc%s%s%s", name,
               nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
    return NULL;
}

static void check_complete(const struct options *options, const struct argp_state *state)
{
    if (!options->task)
        argp_error(state, "--task is missing: squad or multirc");
    if (!options->data)
        argp_error(state, "--data FILE is missing: the questions with their right answers");
    if (!options->predictions)
        argp_error(state, "--predictions FILE is missing: what is to be scored");
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case OPTION_TASK:
        options->task = find_task(value, state);
        return 0;
    case OPTION_DATA:
        options->data = value;
        return 0;
    case OPTION_PREDICTIONS:
        options->predictions = value;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\" is not expected; files are given by --data and --predictions",
                   value);
        return EINVAL;
    case ARGP_KEY_END:
        check_complete(options, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_table[] = {
    {"task", OPTION_TASK, "TASK", 0, "squad (v1.1) or multirc", 0},
    {"data", OPTION_DATA, "FILE", 0, "The questions with their right answers", 0},
    {"predictions", OPTION_PREDICTIONS, "FILE", 0,
     "squad: {\"id\": \"answer\", ...}; multirc: [{\"pid\", \"qid\", \"scores\"}, ...]", 0},
    {"json", OPTION_JSON, NULL, 0, "Print JSON", 0},
    {0}};

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .doc =
        "Scores predictions by the official metrics of a task. No model is needed.\v"
        "squad: exact_match and f1, in percent. multirc: em0, em1, f1m, f1a and the accuracy over "
        "answers, from 0 to 1.",
};

/* ---- the result ---- */

static void report_counts(const struct options *options, const struct hop_prediction_counts *counts)
{
    if (counts->missing)
        hop_warn("%s: %zu of %zu questions have no prediction; they %s", options->predictions,
                 counts->missing, counts->questions, options->task->missing);
    if (counts->unknown)
        hop_warn("%s: %zu predictions are for questions that %s does not have; they are ignored",
                 options->predictions, counts->unknown, options->data);
}

static hop_status print_json(const struct options *options, const struct result *result,
                             struct hop_error *err)
{
    json_t *const object = json_object();
    json_object_set_new(object, "task", json_string(options->task->name));
    json_object_set_new(object, "questions", json_integer((json_int_t)result->counts.questions));
    json_object_set_new(object, "missing", json_integer((json_int_t)result->counts.missing));
    json_object_set_new(object, "unknown", json_integer((json_int_t)result->counts.unknown));
    for (int i = 0; i < METRICS_MAX && result->metrics[i].name; i++)
        json_object_set_new(object, result->metrics[i].name, json_real(result->metrics[i].value));
    char *const text = json_dumps(object, JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text)
        return hop_fail(err, HOP_MEMORY, "out of memory while printing the result");
    puts(text);
    free(text);
    return HOP_OK;
}

static hop_status print_table(const struct result *result, struct hop_error *err)
{
    static const char *const headers[] = {"metric", ">value", NULL};
    struct hop_table *table = NULL;
    hop_status status;
    HOP_TRY(hop_table_create(headers, &table, err));
    for (int i = 0; i < METRICS_MAX && result->metrics[i].name; i++) {
        HOP_TRY_DONE(hop_table_cell(table, err, "%s", result->metrics[i].name));
        HOP_TRY_DONE(hop_table_cell(table, err, "%.4f", result->metrics[i].value));
    }
    HOP_TRY_DONE(hop_table_cell(table, err, "questions"));
    HOP_TRY_DONE(hop_table_cell(table, err, "%zu", result->counts.questions));
    hop_table_print(table, stdout);
done:
    hop_table_free(table);
    return status;
}

static hop_status run(void *context, struct hop_error *err)
{
    const struct options *const options = context;
    struct result result;
    HOP_TRY(options->task->score(options, &result, err));
    report_counts(options, &result.counts);
    if (options->json)
        HOP_TRY(print_json(options, &result, err));
    else
        HOP_TRY(print_table(&result, err));
    if (fflush(stdout))
        return hop_fail(err, HOP_IO, "standard output: writing failed: %s", strerror(errno));
    return HOP_OK;
}

int hop_cmd_score(int argc, char **argv)
{
    struct options options = {0};
    return hop_command(&parser, argc, argv, &options, run);
}
