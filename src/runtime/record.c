/* The run folder: metrics.jsonl, trace.json, summary.json. */
#include "runtime/coordinator_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/file.h"
#include "io/json.h"
#include "report/trace.h"
#include "runtime/console.h"
#include "runtime/planning.h"
#include "train/results.h"

/* metrics.jsonl */

/* After a resume, lines of steps that will be run again are dropped. */
static hop_status keep_lines_until(const char *path, int64_t step, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_map map = {0};
    struct hop_string kept = {0};
    if (!hop_file_exists(path))
        return HOP_OK;
    HOP_TRY(hop_map_open(path, &map, err));
    const char *at = (const char *)map.data, *const end = at + map.size;
    while (at < end) {
        const char *const newline = memchr(at, '\n', (size_t)(end - at));
        const size_t n = newline ? (size_t)(newline - at) + 1 : (size_t)(end - at);
        json_t *const line = newline ? json_loadb(at, n, 0, NULL) : NULL;
        if (line && json_integer_value(json_object_get(line, "step")) <= step)
            status = hop_string_append(&kept, at, n, err);
        json_decref(line);
        if (status != HOP_OK)
            goto done;
        at += n;
    }
    HOP_TRY_DONE(hop_file_write(path, hop_string_text(&kept), kept.length, err));
done:
    hop_map_close(&map);
    hop_string_free(&kept);
    return status;
}

hop_status hop_coordinator_open_metrics(struct hop_coordinator *c, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *path = NULL;
    HOP_TRY(hop_coordinator_path(c, "metrics.jsonl", &path, err));
    if (c->resumed)
        HOP_TRY_DONE(keep_lines_until(path, c->resumed, err));
    c->metrics = fopen(path, c->resumed ? "a" : "w");
    if (!c->metrics)
        status = hop_fail(err, HOP_IO, "%s: %s", path, strerror(errno));
done:
    free(path);
    return status;
}

/* Takes the reference. A line is flushed at once: it is what is left when a run is killed. */
hop_status hop_coordinator_record(struct hop_coordinator *c, json_t *line, struct hop_error *err)
{
    hop_status status = hop_trainer_state_log(&c->progress, line, err);
    char *const text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(line);
    if (status == HOP_OK && (!text || fprintf(c->metrics, "%s\n", text) < 0 || fflush(c->metrics)))
        status = hop_fail(err, HOP_IO, "metrics.jsonl in %s: %s", c->directory, strerror(errno));
    free(text);
    return status;
}

static void set_prefixed(json_t *object, const char *prefix, const char *key, json_t *value)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, key);
    json_object_set_new(object, name, value);
}

json_t *hop_evaluation_json(const struct hop_evaluation *evaluation, const char *prefix)
{
    json_t *const object = json_object();
    set_prefixed(object, prefix, "loss", json_real(evaluation->loss));
    if (evaluation->labelled) {
        set_prefixed(object, prefix, "accuracy", json_real(evaluation->accuracy));
        set_prefixed(object, prefix, "macro_f1", json_real(evaluation->macro_f1));
    }
    if (evaluation->multirc.questions) {
        set_prefixed(object, prefix, "em0", json_real(evaluation->multirc.em0));
        set_prefixed(object, prefix, "em1", json_real(evaluation->multirc.em1));
        set_prefixed(object, prefix, "f1m", json_real(evaluation->multirc.f1m));
        set_prefixed(object, prefix, "f1a", json_real(evaluation->multirc.f1a));
    }
    if (evaluation->squad.questions) {
        set_prefixed(object, prefix, "exact_match", json_real(evaluation->squad.exact_match));
        set_prefixed(object, prefix, "f1", json_real(evaluation->squad.f1));
    }
    return object;
}

/* trace.json */

static hop_status add_events(struct hop_coordinator *c, int rank, const struct hop_event *events,
                             size_t n, struct hop_timeline *timeline, struct hop_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct hop_event event = events[i];
        const double shift = c->clock_offset[rank] + c->started;
        event.start -= shift;
        event.end -= shift;
        if (event.device < 0 || event.device >= c->plan.devices ||
            event.task.kind >= HOP_TASK_KINDS || event.task.part < 0 ||
            event.task.part >= c->plan.part_count)
            return hop_fail(err, HOP_PEER, "an event of rank %d makes no sense", rank);
        HOP_TRY(hop_timeline_add(timeline, &event, err));
    }
    return HOP_OK;
}

static hop_status gather_timeline(struct hop_coordinator *c, struct hop_timeline *timeline,
                                  struct hop_error *err)
{
    enum { LIMIT = 1 << 30 };
    for (int r = 1; r < c->ranks.count; r++) {
        void *bytes = NULL;
        size_t n = 0;
        HOP_TRY(hop_receive_unknown(c->transport, HOP_CHANNEL_CONTROL, r, HOP_TAG_TIMELINE, LIMIT,
                                    "its timeline", &bytes, &n, err));
        const hop_status status =
            add_events(c, r, bytes, n / sizeof(struct hop_event), timeline, err);
        free(bytes);
        HOP_TRY(status);
        HOP_TRY(hop_request_wait(c->transport, &c->sends[r], "a command to be taken", err));
    }
    if (!c->session.executor)
        return HOP_OK;
    const struct hop_timeline *const own = hop_executor_timeline(c->session.executor);
    return add_events(c, 0, own->events, own->count, timeline, err);
}

static hop_status save_trace(struct hop_coordinator *c, const struct hop_timeline *timeline,
                             struct hop_error *err)
{
    hop_status status = HOP_OK;
    const char **names = NULL;
    char *path = NULL;
    HOP_TRY_DONE(hop_cluster_names(&c->job.cluster, &names, err));
    HOP_TRY_DONE(hop_coordinator_path(c, "trace.json", &path, err));
    HOP_TRY_DONE(hop_trace_save(path, timeline, &c->plan, names, err));
done:
    free(names);
    free(path);
    return status;
}

/* summary.json */

static const char *const stop_reasons[] = {"last step", "asked", "early stopping"};

/* What every device's parts were planned to take, and what they hold. */
static json_t *memory_json(const struct hop_coordinator *c)
{
    json_t *const memory = json_object();
    for (int32_t d = 0; memory && d < c->plan.devices; d++) {
        double planned = 0;
        for (int32_t p = 0; p < c->plan.part_count; p++)
            if (c->plan.parts[p].device == d)
                planned += c->plan.parts[p].memory_bytes;
        if (c->held[d] > 0)
            json_object_set_new(memory, c->job.cluster.devices[d].name,
                                json_pack("{s:f, s:f}", "planned", planned, "held", c->held[d]));
    }
    return memory;
}

static hop_status save_summary(struct hop_coordinator *c, struct hop_error *err)
{
    const double seconds = hop_clock_now() - c->started;
    double devices = 0;
    for (int32_t r = 0; r < c->ranks.count; r++)
        devices += c->ranks.device_of[r] >= 0;
    hop_status status = HOP_OK;
    char *path = NULL, *adapter = NULL;
    json_t *summary = NULL;
    HOP_TRY_DONE(hop_coordinator_path(c, "summary.json", &path, err));
    HOP_TRY_DONE(hop_coordinator_path(c, "adapter", &adapter, err));
    summary =
        json_pack("{s:I, s:f, s:f, s:f, s:f, s:s, s:s}", "steps", (json_int_t)c->step, "seconds",
                  c->seconds, "samples_per_second", c->seconds > 0 ? c->samples / c->seconds : 0.0,
                  "utilization", c->seconds > 0 ? c->busy / (c->seconds * devices) : 0.0,
                  "final_loss", c->final_loss, "adapter", adapter, "strategy", c->plan.strategy);
    json_object_set_new(summary, "total_seconds", json_real(seconds));
    json_object_set_new(summary, "stopped_early", json_boolean(c->stop != HOP_STOP_NOT));
    json_object_set_new(summary, "stop_reason", json_string(stop_reasons[c->stop]));
    if (c->progress.best_step > 0)
        json_object_set_new(summary, "best", hop_coordinator_best_json(c));
    json_object_set_new(summary, "memory", memory_json(c));
    if (c->eval) {
        json_object_set_new(summary, "eval_before", hop_evaluation_json(&c->before, ""));
        json_object_set_new(summary, "eval_after", hop_evaluation_json(&c->after, ""));
    }
    if (hop_coordinator_time_scale(c) > 0)
        json_object_set_new(summary, "emulation", hop_coordinator_emulation_json(c));
    HOP_TRY_DONE(hop_json_save(path, summary, err));
done:
    json_decref(summary);
    free(path);
    free(adapter);
    return status;
}

/* trainer_state.json and the result files, as the Trainer leaves them in its output folder. */
static hop_status save_results(struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_train_totals totals = {
        .seconds = c->seconds, .samples = c->samples, .steps = c->step - c->resumed};
    c->progress.global_step = c->step;
    HOP_TRY(hop_trainer_state_finish(&c->progress, &totals, err));
    HOP_TRY(hop_trainer_state_save(c->directory, c->directory, &c->progress, c->state.adamw.steps,
                                   err));
    return hop_results_save(c->directory, &c->progress, err);
}

hop_status hop_coordinator_finish(struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_command_message end = {.kind = HOP_COMMAND_END};
    struct hop_timeline timeline = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_coordinator_command(c, &end, err));
    HOP_TRY_DONE(gather_timeline(c, &timeline, err));
    if (c->mode == HOP_RUN_TRAIN) {
        HOP_TRY_DONE(save_trace(c, &timeline, err));
        HOP_TRY_DONE(save_summary(c, err));
        HOP_TRY_DONE(save_results(c, err));
        HOP_TRY_DONE(hop_coordinator_warn_of_lateness(c, err));
    }
done:
    hop_timeline_free(&timeline);
    return status;
}
