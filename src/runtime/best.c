/* Which evaluation is the best of a run, when a run has gone too long without a better one, and the
 * adapter of the best as its result. */
#include "runtime/coordinator_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/string.h"
#include "io/file.h"
#include "runtime/console.h"

struct hop_metric hop_evaluation_metric(const struct hop_evaluation *evaluation)
{
    if (evaluation->squad.questions)
        return (struct hop_metric){"f1", evaluation->squad.f1, true};
    if (evaluation->multirc.questions)
        return (struct hop_metric){"f1a", evaluation->multirc.f1a, true};
    if (evaluation->labelled)
        return (struct hop_metric){"accuracy", evaluation->accuracy, true};
    return (struct hop_metric){"loss", evaluation->loss, false};
}

bool hop_coordinator_note_evaluation(struct hop_coordinator *c)
{
    const struct hop_metric metric = hop_evaluation_metric(&c->after);
    struct hop_trainer_state *const progress = &c->progress;
    const double best = progress->best_metric;
    const bool better =
        isnan(best) || (metric.larger_is_better ? metric.value > best : metric.value < best);
    progress->evaluations_without_gain++;
    if (!better)
        return false;
    progress->best_metric = metric.value;
    progress->best_step = c->step;
    progress->evaluations_without_gain = 0;
    return true;
}

bool hop_coordinator_is_exhausted(const struct hop_coordinator *c)
{
    return c->job.train.early_stopping > 0 && c->step < c->steps &&
           c->progress.evaluations_without_gain >= c->job.train.early_stopping;
}

static hop_status load_best(struct hop_coordinator *c, const char *path, struct hop_error *err)
{
    int64_t step;
    if (!hop_file_exists(path)) {
        hop_console_note("%s, of the best evaluation, is not there: adapter/ is that of step %lld",
                         path, (long long)c->step);
        return HOP_OK;
    }
    HOP_TRY(hop_checkpoint_load_adapter(path, &c->model, &c->lora, &c->state.parameters, err));
    hop_history_last_evaluation(&c->progress, c->progress.best_step, &step, &c->after);
    hop_console_note("adapter/ is that of step %lld, the best evaluation",
                     (long long)c->progress.best_step);
    return HOP_OK;
}

hop_status hop_coordinator_take_best(struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_string path = {0};
    if (!hop_job_keeps_best(&c->job) || c->progress.best_step <= 0 ||
        c->progress.best_step == c->step)
        return HOP_OK;
    HOP_TRY(hop_string_printf(&path, err, "%s/checkpoint-%lld", c->directory,
                              (long long)c->progress.best_step));
    const hop_status status = load_best(c, hop_string_text(&path), err);
    hop_string_free(&path);
    return status;
}

json_t *hop_coordinator_best_json(const struct hop_coordinator *c)
{
    const struct hop_metric metric = hop_evaluation_metric(&c->after);
    return json_pack("{s:I, s:s, s:f}", "step", (json_int_t)c->progress.best_step, "metric",
                     metric.name, "value", c->progress.best_metric);
}
