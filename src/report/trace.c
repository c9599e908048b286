/* Trace Event Format: an object with a list of events; "M" names rows, "X" is a task with its start
 * and duration in microseconds. Written piece by piece, since a long run has many events. */
#include "report/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/string.h"
#include "io/file.h"

struct writer {
    struct hop_file_writer file;
    struct hop_string text; /* reused for every event */
    bool first;
};

static hop_status put_text(struct writer *w, struct hop_error *err)
{
    const hop_status status = hop_file_put(&w->file, w->text.data, w->text.length, err);
    w->text.length = 0;
    return status;
}

/* Every event begins on a line of its own. */
static hop_status begin_event(struct writer *w, struct hop_error *err)
{
    const hop_status status = hop_string_printf(&w->text, err, "%s\n", w->first ? "" : ",");
    w->first = false;
    return status;
}

/* `name` as a JSON string. */
static hop_status put_name(struct writer *w, const char *name, struct hop_error *err)
{
    json_t *const value = json_string(name);
    char *const quoted = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    json_decref(value);
    const hop_status status = hop_string_printf(&w->text, err, "%s", quoted ? quoted : "\"?\"");
    free(quoted);
    return status;
}

static hop_status put_device(struct writer *w, int32_t device, const char *name,
                             struct hop_error *err)
{
    HOP_TRY(begin_event(w, err));
    HOP_TRY(hop_string_printf(&w->text, err,
                              "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": %d, "
                              "\"args\": {\"sort_index\": %d}}",
                              device, device));
    HOP_TRY(begin_event(w, err));
    HOP_TRY(hop_string_printf(&w->text, err,
                              "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, "
                              "\"args\": {\"name\": ",
                              device));
    HOP_TRY(put_name(w, name, err));
    HOP_TRY(hop_string_printf(&w->text, err, "}}"));
    return put_text(w, err);
}

static hop_status put_part(struct writer *w, const struct hop_plan *plan, int32_t p,
                           struct hop_error *err)
{
    const struct hop_part *const part = &plan->parts[p];
    HOP_TRY(begin_event(w, err));
    HOP_TRY(hop_string_printf(
        &w->text, err,
        "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
        "\"args\": {\"name\": \"stage %d, blocks [%d, %d), %s\"}}",
        part->device, p, part->stage, part->lo, part->hi, hop_gradient_names[part->gradient]));
    return put_text(w, err);
}

static hop_status put_arguments(struct writer *w, const struct hop_event *event,
                                struct hop_error *err)
{
    const struct hop_task *const task = &event->task;
    HOP_TRY(hop_string_printf(&w->text, err, "\"args\": {\"step\": %d, \"part\": %d", event->step,
                              task->part));
    if (task->micro_batch >= 0)
        HOP_TRY(hop_string_printf(&w->text, err, ", \"micro_batch\": %d", task->micro_batch));
    if (task->probe_hi > task->probe_lo)
        HOP_TRY(hop_string_printf(&w->text, err, ", \"probes\": [%d, %d]", task->probe_lo,
                                  task->probe_hi));
    return hop_string_printf(&w->text, err, "}}");
}

static hop_status put_event(struct writer *w, const struct hop_event *event, struct hop_error *err)
{
    const struct hop_task *const task = &event->task;
    const char *const kind = hop_task_kind_names[task->kind];
    HOP_TRY(begin_event(w, err));
    HOP_TRY(hop_string_printf(&w->text, err, "{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s",
                              kind, kind));
    if (task->micro_batch >= 0)
        HOP_TRY(hop_string_printf(&w->text, err, " %d", task->micro_batch));
    HOP_TRY(hop_string_printf(
        &w->text, err, "\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, ", event->device,
        task->part, 1e6 * event->start, 1e6 * (event->end - event->start)));
    HOP_TRY(put_arguments(w, event, err));
    return put_text(w, err);
}

struct trace {
    const struct hop_plan *plan;
    const char *const *device_names;
    const struct hop_timeline *timeline;
    const struct hop_flight *flights; /* (flight_count) */
    int32_t flight_count;
    struct hop_transfers transfers; /* that flights point at */
};

/* Thread number of the messages to a device: behind those of the parts. */
static int32_t message_row(const struct hop_plan *plan, int32_t to_device)
{
    return plan->part_count + to_device;
}

static hop_status put_link(struct writer *w, const struct trace *trace, int32_t from, int32_t to,
                           struct hop_error *err)
{
    char name[256];
    snprintf(name, sizeof name, "to %s", trace->device_names[to]);
    HOP_TRY(begin_event(w, err));
    HOP_TRY(hop_string_printf(&w->text, err,
                              "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, "
                              "\"tid\": %d, \"args\": {\"name\": ",
                              from, message_row(trace->plan, to)));
    HOP_TRY(put_name(w, name, err));
    HOP_TRY(hop_string_printf(&w->text, err, "}}"));
    return put_text(w, err);
}

static bool is_used(const struct trace *trace, int32_t from, int32_t to)
{
    for (int32_t f = 0; f < trace->flight_count; f++) {
        const struct hop_transfer *const t = &trace->transfers.items[trace->flights[f].transfer];
        if (t->from_device == from && t->to_device == to)
            return true;
    }
    return false;
}

static hop_status put_links(struct writer *w, const struct trace *trace, struct hop_error *err)
{
    for (int32_t from = 0; from < trace->plan->devices; from++)
        for (int32_t to = 0; to < trace->plan->devices; to++)
            if (is_used(trace, from, to))
                HOP_TRY(put_link(w, trace, from, to, err));
    return HOP_OK;
}

static hop_status put_flight(struct writer *w, const struct trace *trace,
                             const struct hop_flight *flight, struct hop_error *err)
{
    const struct hop_transfer *const t = &trace->transfers.items[flight->transfer];
    const char *const payload = hop_payload_names[t->payload];
    HOP_TRY(begin_event(w, err));
    HOP_TRY(hop_string_printf(&w->text, err,
                              "{\"ph\": \"X\", \"cat\": \"message\", \"name\": \"%s %d\", "
                              "\"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, ",
                              payload, t->micro_batch, t->from_device,
                              message_row(trace->plan, t->to_device), 1e6 * flight->start,
                              1e6 * (flight->end - flight->start)));
    HOP_TRY(hop_string_printf(&w->text, err,
                              "\"args\": {\"from_part\": %d, \"to_part\": %d, "
                              "\"micro_batch\": %d",
                              t->from_part, t->to_part, t->micro_batch));
    if (t->probe_hi > t->probe_lo)
        HOP_TRY(
            hop_string_printf(&w->text, err, ", \"probes\": [%d, %d]", t->probe_lo, t->probe_hi));
    HOP_TRY(hop_string_printf(&w->text, err, "}}"));
    return put_text(w, err);
}

static hop_status put_all(struct writer *w, const struct trace *trace, struct hop_error *err)
{
    HOP_TRY(hop_string_printf(&w->text, err, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": ["));
    for (int32_t d = 0; d < trace->plan->devices; d++)
        HOP_TRY(put_device(w, d, trace->device_names[d], err));
    for (int32_t p = 0; p < trace->plan->part_count; p++)
        HOP_TRY(put_part(w, trace->plan, p, err));
    HOP_TRY(put_links(w, trace, err));
    for (size_t i = 0; i < trace->timeline->count; i++)
        HOP_TRY(put_event(w, &trace->timeline->events[i], err));
    for (int32_t f = 0; f < trace->flight_count; f++)
        HOP_TRY(put_flight(w, trace, &trace->flights[f], err));
    HOP_TRY(hop_string_printf(&w->text, err, "\n]}\n"));
    return put_text(w, err);
}

static hop_status save(const char *path, const struct trace *trace, struct hop_error *err)
{
    struct writer w = {.first = true};
    hop_status status = hop_file_begin(path, &w.file, err);
    if (status == HOP_OK)
        status = put_all(&w, trace, err);
    if (status == HOP_OK)
        status = hop_file_commit(&w.file, err);
    hop_file_discard(&w.file);
    hop_string_free(&w.text);
    return status;
}

hop_status hop_trace_save(const char *path, const struct hop_timeline *timeline,
                          const struct hop_plan *plan, const char *const *device_names,
                          struct hop_error *err)
{
    const struct trace trace = {.plan = plan, .device_names = device_names, .timeline = timeline};
    return save(path, &trace, err);
}

hop_status hop_trace_save_simulation(const char *path, const struct hop_simulation *simulation,
                                     const struct hop_plan *plan,
                                     const struct hop_schedule *schedule,
                                     const char *const *device_names, struct hop_error *err)
{
    struct trace trace = {.plan = plan,
                          .device_names = device_names,
                          .timeline = &simulation->timeline,
                          .flights = simulation->flights,
                          .flight_count = simulation->flight_count};
    HOP_TRY(hop_transfers_derive(plan, schedule, &trace.transfers, err));
    const hop_status status = save(path, &trace, err);
    hop_transfers_free(&trace.transfers);
    return status;
}
