/* The life of rank 0. */
#include "runtime/coordinator_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/file.h"
#include "runtime/console.h"
#include "runtime/run_folder.h"

static void show_evaluation(const char *when, const struct hop_evaluation *evaluation)
{
    if (evaluation->labelled)
        hop_console_note("%s: eval loss %.4f, accuracy %.1f %%, macro-F1 %.3f (%zu held-out rows)",
                         when, evaluation->loss, 100 * evaluation->accuracy, evaluation->macro_f1,
                         evaluation->examples);
    else
        hop_console_note("%s: eval loss %.4f (%zu held-out rows)", when, evaluation->loss,
                         evaluation->examples);
}

static hop_status record_evaluation(struct hop_coordinator *c,
                                    const struct hop_evaluation *evaluation, struct hop_error *err)
{
    json_t *const line = hop_evaluation_json(evaluation, "eval_");
    json_object_set_new(line, "step", json_integer(c->step));
    json_object_set_new(line, "epoch",
                        json_real((double)c->step / (double)c->loader.steps_per_epoch));
    json_object_set_new(line, "eval_seconds", json_real(evaluation->seconds));
    const double rows = (double)evaluation->examples;
    const double batches = ceil(rows / (double)hop_job_micro_batch_rows(&c->job));
    json_object_set_new(line, "eval_samples_per_second", json_real(rows / evaluation->seconds));
    json_object_set_new(line, "eval_steps_per_second", json_real(batches / evaluation->seconds));
    return hop_coordinator_record(c, line, err);
}

static hop_status evaluate(struct hop_coordinator *c, struct hop_evaluation *out, const char *when,
                           struct hop_error *err)
{
    HOP_TRY(hop_coordinator_evaluate(c, out, err));
    show_evaluation(when, out);
    return record_evaluation(c, out, err);
}

/* Larger is better for accuracy, smaller for the loss. */
static bool is_better(const struct hop_coordinator *c, double metric)
{
    if (isnan(c->progress.best_metric))
        return true;
    return c->after.labelled ? metric > c->progress.best_metric : metric < c->progress.best_metric;
}

/* Keeps the best metric; true when the run has gone too long without a better one. */
static bool stop_early(struct hop_coordinator *c)
{
    const double metric = c->after.labelled ? c->after.accuracy : c->after.loss;
    if (is_better(c, metric)) {
        c->progress.best_metric = metric;
        c->progress.best_step = c->step;
        c->progress.evaluations_without_gain = 0;
        return false;
    }
    c->progress.evaluations_without_gain++;
    return c->job.train.early_stopping > 0 &&
           c->progress.evaluations_without_gain >= c->job.train.early_stopping;
}

static bool asked_to_stop(const struct hop_coordinator *c)
{
    struct hop_error ignored;
    char *path = NULL;
    if (hop_coordinator_path(c, HOP_STOP_FILE, &path, &ignored) != HOP_OK)
        return false;
    const bool asked = hop_file_exists(path);
    if (asked)
        unlink(path);
    free(path);
    return asked;
}

static bool every(int64_t interval, int64_t step)
{
    return interval > 0 && step % interval == 0;
}

static hop_status evaluate_midway(struct hop_coordinator *c, bool *stop, struct hop_error *err)
{
    char when[64];
    snprintf(when, sizeof when, "after step %lld", (long long)c->step);
    HOP_TRY(evaluate(c, &c->after, when, err));
    *stop = stop_early(c);
    if (*stop)
        hop_console_note("stopping: no better evaluation since step %lld",
                         (long long)c->progress.best_step);
    return HOP_OK;
}

static hop_status train_loop(struct hop_coordinator *c, struct hop_error *err)
{
    bool stop = false;
    int64_t saved = -1, evaluated = -1;
    while (c->step < c->steps && !stop) {
        const double start = hop_clock_now();
        HOP_TRY(hop_coordinator_step(c, err));
        c->seconds += hop_clock_now() - start;
        c->progress.epoch = (double)c->step / (double)c->loader.steps_per_epoch;
        if (c->eval && every(c->job.train.eval_every, c->step)) {
            HOP_TRY(evaluate_midway(c, &stop, err));
            evaluated = c->step;
        }
        if (every(c->job.train.save_every, c->step)) {
            HOP_TRY(hop_coordinator_checkpoint(c, err));
            saved = c->step;
        }
        if (asked_to_stop(c)) {
            c->stopped = stop = true;
            hop_console_note("stopping after step %lld as asked; continue with --resume",
                             (long long)c->step);
        }
    }
    if (c->eval && evaluated != c->step && !c->stopped)
        HOP_TRY(evaluate(c, &c->after, "after training", err));
    return saved == c->step ? HOP_OK : hop_coordinator_checkpoint(c, err);
}

static void fill_progress(struct hop_coordinator *c)
{
    c->progress.max_steps = c->steps;
    c->progress.num_train_epochs =
        (int64_t)ceil((double)c->steps / (double)c->loader.steps_per_epoch);
    c->progress.train_batch_size = hop_job_micro_batch_rows(&c->job);
    c->progress.logging_steps = 1;
    c->progress.eval_steps = c->job.train.eval_every;
    c->progress.save_steps = c->job.train.save_every;
    c->progress.parameters =
        hop_model_parameters(&c->model) - hop_model_embed_parameters(&c->model);
    c->progress.seed = (uint64_t)c->job.train.seed;
}

static void recall_evaluation(const json_t *entry, struct hop_evaluation *out)
{
    out->loss = json_number_value(json_object_get(entry, "eval_loss"));
    out->labelled = json_object_get(entry, "eval_accuracy") != NULL;
    out->accuracy = json_number_value(json_object_get(entry, "eval_accuracy"));
    out->macro_f1 = json_number_value(json_object_get(entry, "eval_macro_f1"));
    out->multirc.questions = json_object_get(entry, "eval_em0") != NULL;
    out->multirc.em0 = json_number_value(json_object_get(entry, "eval_em0"));
    out->multirc.em1 = json_number_value(json_object_get(entry, "eval_em1"));
    out->multirc.f1m = json_number_value(json_object_get(entry, "eval_f1m"));
    out->multirc.f1a = json_number_value(json_object_get(entry, "eval_f1a"));
}

/* A resumed run ends with the summary of the whole run: its first evaluation and, where no step is
 * left to do, its last loss stand in the history. */
static void recall_history(struct hop_coordinator *c)
{
    size_t i;
    json_t *entry;
    bool evaluated = false;
    if (!isnan(c->progress.last_loss))
        c->final_loss = c->progress.last_loss;
    json_array_foreach(c->progress.log_history, i, entry)
    {
        if (!evaluated && json_object_get(entry, "eval_loss")) {
            recall_evaluation(entry, &c->before);
            evaluated = true;
        }
    }
}

static hop_status train(struct hop_coordinator *c, struct hop_error *err)
{
    if (!c->resumed)
        HOP_TRY(hop_run_folder_set_aside(c->directory, err));
    HOP_TRY(hop_coordinator_open_metrics(c, err));
    fill_progress(c);
    if (c->eval) {
        HOP_TRY(evaluate(c, &c->after, c->resumed ? "at resume" : "before training", err));
        c->before = c->after;
    }
    if (c->resumed)
        recall_history(c);
    HOP_TRY(train_loop(c, err));
    HOP_TRY(hop_coordinator_save_adapter(c, err));
    return hop_coordinator_finish(c, err);
}

static hop_status print_evaluation(const struct hop_coordinator *c, bool json,
                                   struct hop_error *err)
{
    json_t *const object = hop_evaluation_json(&c->after, "");
    json_object_set_new(object, "task", json_string(hop_task_names[c->job.data.task]));
    json_object_set_new(object, "examples", json_integer((json_int_t)c->after.examples));
    json_object_set_new(object, "seconds", json_real(c->after.seconds));
    char *const text = json_dumps(object, JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text)
        return hop_fail(err, HOP_MEMORY, "out of memory while printing the result");
    if (json)
        printf("%s\n", text);
    else if (c->after.labelled)
        printf("examples  %zu\nloss      %.6f\naccuracy  %.4f\nmacro_f1  %.4f\n", c->after.examples,
               c->after.loss, c->after.accuracy, c->after.macro_f1);
    else
        printf("examples  %zu\nloss      %.6f\n", c->after.examples, c->after.loss);
    if (!json && c->after.multirc.questions)
        printf("em0       %.4f\nem1       %.4f\nf1m       %.4f\nf1a       %.4f\n",
               c->after.multirc.em0, c->after.multirc.em1, c->after.multirc.f1m,
               c->after.multirc.f1a);
    fflush(stdout);
    free(text);
    return HOP_OK;
}

static hop_status evaluate_only(struct hop_coordinator *c, bool json, struct hop_error *err)
{
    HOP_TRY(hop_coordinator_evaluate(c, &c->after, err));
    HOP_TRY(hop_coordinator_finish(c, err));
    return print_evaluation(c, json, err);
}

static void free_buffers(struct hop_coordinator *c)
{
    for (int32_t r = 0; c->reports && r < c->ranks.count; r++)
        free(c->reports[r]);
    free(c->reports);
    free(c->words);
    free(c->sends);
    free(c->transfer);
    free(c->scores);
    free(c->losses);
    free(c->squares);
    free(c->predicted);
    free(c->answers);
    free(c->clock_offset);
    free(c->late);
    free(c->held);
}

static void free_coordinator(struct hop_coordinator *c)
{
    free_buffers(c);
    if (c->metrics)
        fclose(c->metrics);
    hop_parameters_free(&c->state.parameters);
    hop_adamw_free(&c->state.adamw);
    hop_trainer_state_free(&c->progress);
    hop_session_free(&c->session);
    for (int32_t i = 0; i < c->schedules.count; i++)
        hop_schedule_free(&c->schedules.items[i]);
    hop_ranks_free(&c->ranks);
    hop_plan_free(&c->plan);
    hop_cost_free(&c->cost);
    hop_loader_free(&c->loader);
    hop_dataset_free(c->train);
    hop_dataset_free(c->eval);
    hop_row_source_close(&c->source);
    hop_job_free(&c->job);
}

hop_status hop_coordinator_run(struct hop_transport *transport, const char *directory,
                               enum hop_run_mode mode, bool json, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_coordinator c = {.transport = transport,
                                .directory = directory,
                                .mode = mode,
                                .progress = hop_trainer_state_default()};
    HOP_TRY_DONE(hop_coordinator_prepare(&c, err));
    HOP_TRY_DONE(hop_coordinator_distribute(&c, err));
    HOP_TRY_DONE(hop_coordinator_initialise(&c, err));
    HOP_TRY_DONE(hop_coordinator_scatter(&c, err));
    c.started = hop_clock_now();
    if (mode == HOP_RUN_TRAIN)
        HOP_TRY_DONE(train(&c, err));
    else
        HOP_TRY_DONE(evaluate_only(&c, json, err));
done:
    free_coordinator(&c);
    return status;
}
