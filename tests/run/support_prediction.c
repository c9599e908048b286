/* What the simulator says of the plan of a run, beside what the run measured. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/planning.h"
#include "sim/simulate.h"
#include "strategy/strategy.h"

/* A run folder's job, plan and cost table, and a full mini-batch played by the simulator. */
struct prediction {
    struct hop_job job;
    struct hop_model_config model;
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    double time_scale;
};

static double time_scale(const struct hop_cluster *cluster)
{
    for (size_t d = 0; d < cluster->count; d++)
        if (cluster->devices[d].emulate)
            return cluster->devices[d].time_scale;
    return 1;
}

static hop_status play(const char *run, struct prediction *p, struct hop_error *err)
{
    const struct hop_strategy *strategy;
    HOP_TRY(hop_job_load(text("%s/config.yaml", run), NULL, 0, &p->job, err));
    HOP_TRY(hop_model_config_load(p->job.model, &p->model, err));
    HOP_TRY(hop_job_cost(&p->job, &p->model, NULL, &p->cost, err));
    HOP_TRY(hop_plan_load(text("%s/plan.json", run), &p->job, &p->plan, err));
    HOP_TRY(hop_strategy_find(p->plan.strategy, &strategy, err));
    HOP_TRY(strategy->schedule(&p->plan, &p->cost, p->plan.micro_batches, p->plan.probes,
                               &p->schedule, err));
    const struct hop_simulation_options options = {.record = true};
    HOP_TRY(hop_simulate(&p->plan, &p->schedule, &p->cost, &options, &p->simulation, err));
    p->time_scale = time_scale(&p->job.cluster);
    return HOP_OK;
}

static struct prediction predict(const char *run)
{
    struct prediction prediction = {0};
    struct hop_error err = {0};
    if (play(run, &prediction, &err) != HOP_OK)
        fail_msg("%s: %s", run, err.message);
    return prediction;
}

static void free_prediction(struct prediction *p)
{
    hop_simulation_free(&p->simulation);
    hop_schedule_free(&p->schedule);
    hop_plan_free(&p->plan);
    hop_cost_free(&p->cost);
    hop_job_free(&p->job);
}

double predicted_seconds(const char *run)
{
    struct prediction prediction = predict(run);
    const double seconds = prediction.simulation.makespan * prediction.time_scale;
    free_prediction(&prediction);
    return seconds;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_seconds(const char *run)
{
    enum { LIMIT = 1000 };
    double seconds[LIMIT];
    json_t *const metrics = read_metrics(run);
    const int steps = count_steps(metrics);
    if (steps < 2 || steps > LIMIT)
        fail_msg("%s: %d steps, expected 2 to %d", run, steps, LIMIT);
    for (int step = 2; step <= steps; step++)
        seconds[step - 2] = number(step_line(metrics, step), "seconds");
    qsort(seconds, (size_t)steps - 1, sizeof *seconds, ascending);
    return (seconds[(steps - 1) / 2] + seconds[(steps - 2) / 2]) / 2;
}

/* Order */

enum { EVENT_LIMIT = 4096 };

/* The tasks of one step on one device, as the trace lists them. */
static int measured_events(const json_t *trace, int device, int step, const json_t **out)
{
    size_t i;
    const json_t *event;
    int n = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const json_t *const arguments = json_object_get(event, "args");
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0 &&
            json_integer_value(json_object_get(event, "pid")) == device &&
            json_integer_value(json_object_get(arguments, "step")) == step && n < EVENT_LIMIT)
            out[n++] = event;
    }
    return n;
}

static int simulated_events(const struct prediction *p, int device, const struct hop_event **out)
{
    const struct hop_timeline *const timeline = &p->simulation.timeline;
    int n = 0;
    for (size_t i = 0; i < timeline->count && n < EVENT_LIMIT; i++)
        if (timeline->events[i].device == device)
            out[n++] = &timeline->events[i];
    return n;
}

static const char *measured_text(const json_t *event)
{
    const json_t *const arguments = json_object_get(event, "args");
    const json_t *const m = json_object_get(arguments, "micro_batch");
    const json_t *const probes = json_object_get(arguments, "probes");
    return text("%s of part %d, micro-batch %d, probes %s",
                json_string_value(json_object_get(event, "cat")),
                (int)json_integer_value(json_object_get(arguments, "part")),
                m ? (int)json_integer_value(m) : -1, probes ? dump_json(probes) : "none");
}

static const char *simulated_text(const struct hop_task *task)
{
    const char *probes = "none";
    if (task->probe_hi > task->probe_lo)
        probes = dump_json(keep_json(json_pack("[i,i]", task->probe_lo, task->probe_hi)));
    return text("%s of part %d, micro-batch %d, probes %s", hop_task_kind_names[task->kind],
                task->part, task->micro_batch, probes);
}

static double started(const json_t *event)
{
    return 1e-6 * json_number_value(json_object_get(event, "ts"));
}

/* Of all devices: where the clock of the simulation begins. */
static double first_start(const json_t *trace, int devices, int step)
{
    const json_t *events[EVENT_LIMIT];
    double first = 1e300;
    for (int device = 0; device < devices; device++)
        if (measured_events(trace, device, step, events) > 0 && started(events[0]) < first)
            first = started(events[0]);
    return first;
}

static void compare_device(const struct prediction *p, const json_t *trace, int device, int step,
                           double tolerance)
{
    const json_t *measured[EVENT_LIMIT];
    const struct hop_event *simulated[EVENT_LIMIT];
    const double begin = first_start(trace, p->plan.devices, step);
    const int n = measured_events(trace, device, step, measured);
    assert_int_equal(n, simulated_events(p, device, simulated));
    for (int i = 0; i < n; i++) {
        assert_string_equal(measured_text(measured[i]), simulated_text(&simulated[i]->task));
        const double after = started(measured[i]) - begin;
        const double expected = simulated[i]->start * p->time_scale;
        if (!(after >= expected - tolerance && after <= expected + tolerance))
            fail_msg("device %d: %s started %.1f ms into step %d, simulated %.1f ms", device,
                     measured_text(measured[i]), 1e3 * after, step, 1e3 * expected);
    }
}

void assert_predicted_tasks(const char *run, int step, double tolerance)
{
    struct prediction prediction = predict(run);
    const json_t *const trace = read_json(text("%s/trace.json", run));
    const double seconds = prediction.simulation.makespan * prediction.time_scale;
    for (int device = 0; device < prediction.plan.devices; device++)
        compare_device(&prediction, trace, device, step, tolerance * seconds);
    free_prediction(&prediction);
}
