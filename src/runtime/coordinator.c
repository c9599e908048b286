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
    if (evaluation->squad.questions)
        hop_console_note("%s: eval loss %.4f, exact match %.1f %%, F1 %.1f %% (%zu held-out rows)",
                         when, evaluation->loss, evaluation->squad.exact_match,
                         evaluation->squad.f1, evaluation->examples);
    else if (evaluation->labelled)
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

/* Evaluates after a step. *better: as no evaluation before. */
static hop_status evaluate_step(struct hop_coordinator *c, bool *better, struct hop_error *err)
{
    char when[64];
    snprintf(when, sizeof when, "after step %lld", (long long)c->step);
    HOP_TRY(evaluate(c, &c->after, c->step == c->steps ? "after training" : when, err));
    *better = hop_coordinator_note_evaluation(c);
    return HOP_OK;
}

/* Sets c->stop where the run is to end before its last step. */
static void decide_to_stop(struct hop_coordinator *c)
{
    const bool asked = asked_to_stop(c);
    if (hop_coordinator_is_exhausted(c)) {
        c->stop = HOP_STOP_EARLY;
        hop_console_note("stopping: no better evaluation since step %lld",
                         (long long)c->progress.best_step);
    } else if (asked && c->step < c->steps) {
        c->stop = HOP_STOP_ASKED;
        hop_console_note("stopping after step %lld as asked; continue with --resume",
                         (long long)c->step);
    }
}

/* What follows a step: evaluation, the decision to go on, a checkpoint that knows of both. */
static hop_status conclude_step(struct hop_coordinator *c, struct hop_error *err)
{
    const bool last = c->step == c->steps;
    bool better = false;
    if (c->eval && (last || every(c->job.train.eval_every, c->step)))
        HOP_TRY(evaluate_step(c, &better, err));
    decide_to_stop(c);
    if (last || c->stop != HOP_STOP_NOT || every(c->job.train.save_every, c->step) ||
        (better && hop_job_keeps_best(&c->job)))
        return hop_coordinator_checkpoint(c, err);
    return HOP_OK;
}

static hop_status train_loop(struct hop_coordinator *c, struct hop_error *err)
{
    if (hop_coordinator_is_exhausted(c))
        c->stop = HOP_STOP_EARLY;
    while (c->step < c->steps && c->stop == HOP_STOP_NOT) {
        const double start = hop_clock_now();
        HOP_TRY(hop_coordinator_step(c, err));
        c->seconds += hop_clock_now() - start;
        c->progress.epoch = (double)c->step / (double)c->loader.steps_per_epoch;
        HOP_TRY(conclude_step(c, err));
    }
    return HOP_OK;
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

/* A resumed run ends with the summary of the whole run: its first evaluation and, where no step is
 * left to do, its last evaluation and loss stand in the history. */
static hop_status recall_history(struct hop_coordinator *c, struct hop_error *err)
{
    int64_t step = -1;
    bool ignored;
    if (!isnan(c->progress.last_loss))
        c->final_loss = c->progress.last_loss;
    if (!c->eval)
        return HOP_OK;
    const bool found = hop_history_last_evaluation(&c->progress, c->step, &step, &c->after);
    if (found && (step == c->step || c->step < c->steps)) {
        hop_history_first_evaluation(&c->progress, &c->before);
        return HOP_OK;
    }
    HOP_TRY(evaluate_step(c, &ignored, err));
    if (!hop_history_first_evaluation(&c->progress, &c->before))
        c->before = c->after;
    return HOP_OK;
}

static hop_status evaluate_before(struct hop_coordinator *c, struct hop_error *err)
{
    if (!c->eval)
        return HOP_OK;
    HOP_TRY(evaluate(c, &c->after, "before training", err));
    c->before = c->after;
    return HOP_OK;
}

static hop_status train(struct hop_coordinator *c, struct hop_error *err)
{
    if (!c->resumed)
        HOP_TRY(hop_run_folder_set_aside(c->directory, err));
    HOP_TRY(hop_coordinator_open_metrics(c, err));
    fill_progress(c);
    HOP_TRY(c->resumed ? recall_history(c, err) : evaluate_before(c, err));
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
    if (!json && c->after.squad.questions)
        printf("exact_match  %.4f\nf1           %.4f\n", c->after.squad.exact_match,
               c->after.squad.f1);
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
    hop_answers_free(&c->free_answers);
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
    hop_parameters_free(&c->state.fixed);
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
