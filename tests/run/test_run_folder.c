/* What a run leaves: its folder, the keys of its files, the trace; evaluation and plans. */
#include "support.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "runtime/job.h"
#include "runtime/planning.h"
#include "strategy/strategy.h"

static const char *model, *job, *cluster, *run;

enum { STEPS = 5 };

/* Two epochs of three steps, the first five of them. */
static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.blocks = 5});
    job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 21, 6, 14, 64), "zo: {probes: 3}\n");
    cluster = text("cluster=%s", write_cluster("NNBB", 1, NULL));
    run = scratch("run");
    const struct process done = TRAIN(job, run, cluster, text("train.max_steps=%d", STEPS),
                                      text("data.eval=%s", write_rows("eval.jsonl", 19, 6, 14, 64)),
                                      "train.eval_every=2", "train.save_every=2");
    assert_success(&done);
    return 0;
}

static void assert_keys(const char *what, const json_t *object, const char *const *keys)
{
    for (; *keys; keys++)
        if (!json_object_get(object, *keys))
            fail_msg("%s has no key \"%s\": %s", what, *keys, dump_json(object));
}
#define ASSERT_KEYS(what, object, ...)                                                             \
    assert_keys((what), (object), (const char *const[]){__VA_ARGS__, NULL})

static void test_files(void **state)
{
    (void)state;
    static const char *const names[] = {
        "config.yaml",
        "plan.json",
        "metrics.jsonl",
        "summary.json",
        "trace.json",
        "adapter/adapter_model.safetensors",
        "adapter/adapter_config.json",
        "checkpoint-2/adapter_model.safetensors",
        "checkpoint-2/optimizer.safetensors",
        "checkpoint-4/trainer_state.json",
        "checkpoint-5/adapter_config.json",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!file_exists(text("%s/%s", run, names[i])))
            fail_msg("%s is missing", names[i]);
    assert_same_file(text("%s/checkpoint-5/adapter_model.safetensors", run),
                     text("%s/adapter/adapter_model.safetensors", run));
}

static void test_metrics(void **state)
{
    (void)state;
    json_t *const metrics = read_metrics(run);
    assert_int_equal(count_steps(metrics), STEPS);
    for (int step = 1; step <= STEPS; step++)
        ASSERT_KEYS(text("step %d", step), step_line(metrics, step), "epoch", "loss",
                    "learning_rate", "grad_norm", "zo_grad_norm", "label_tokens",
                    "samples_per_second", "tokens_per_second", "utilization", "seconds",
                    "zo_g_mean", "zo_g_std");
    assert_non_null(json_object_get(step_line(metrics, 1), "zo_g_floor"));
    assert_near("epoch of step 3", number(step_line(metrics, 3), "epoch"), 1, 1e-12);
    size_t i;
    json_t *line;
    int evaluations = 0;
    json_array_foreach(metrics, i, line) evaluations += json_object_get(line, "eval_loss") != NULL;
    assert_int_equal(evaluations, 1 + 2 + 1); /* before, after 2 and 4, at the end */
    const char *const first = read_text(text("%s/metrics.jsonl", run));
    const char *const loss = strstr(first, "\"loss\":");
    assert_true(strspn(loss + 7, "0123456789.") >= 10);
}

static void test_summary(void **state)
{
    (void)state;
    const json_t *const summary = read_json(text("%s/summary.json", run));
    ASSERT_KEYS("summary.json", summary, "steps", "seconds", "samples_per_second", "utilization",
                "final_loss", "eval_before", "eval_after", "adapter");
    assert_int_equal(number(summary, "steps"), STEPS);
    const double utilization = number(summary, "utilization");
    if (!(utilization > 0 && utilization <= 1))
        fail_msg("utilization is %g", utilization);
    assert_near("final loss", number(summary, "final_loss"),
                number(step_line(read_metrics(run), STEPS), "loss"), 0);
}

static void test_adapter_config(void **state)
{
    (void)state;
    const json_t *const config = read_json(text("%s/adapter/adapter_config.json", run));
    ASSERT_KEYS("adapter_config.json", config, "peft_type", "task_type", "r", "lora_alpha",
                "target_modules", "base_model_name_or_path", "bias", "lora_dropout",
                "fan_in_fan_out", "inference_mode");
    assert_string_equal(json_string_value(json_object_get(config, "peft_type")), "LORA");
    assert_string_equal(json_string_value(json_object_get(config, "task_type")), "CAUSAL_LM");
    assert_int_equal(number(config, "r"), 4);
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 2);
}

static void test_plan(void **state)
{
    (void)state;
    const json_t *const plan = read_json(text("%s/plan.json", run));
    const json_t *const parts = json_object_get(plan, "parts");
    int64_t next = 0;
    size_t i;
    json_t *part;
    ASSERT_KEYS("plan.json", plan, "strategy", "micro_batches", "probes", "parts");
    assert_int_equal(json_array_size(parts), 4);
    json_array_foreach(parts, i, part)
    {
        const json_t *const blocks = json_object_get(part, "blocks");
        const char *const gradient = json_string_value(json_object_get(part, "gradient"));
        ASSERT_KEYS("part", part, "device", "pipeline", "stage", "blocks", "gradient");
        assert_string_equal(gradient, i < 2 ? "zeroth-order" : "backprop");
        assert_int_equal(json_integer_value(json_array_get(blocks, 0)), next);
        next = json_integer_value(json_array_get(blocks, 1));
    }
    assert_int_equal(next, 5);
}

/* trace.json: complete events ("ph": "X") with times in microseconds. */

static bool is_task(const json_t *event)
{
    const char *const phase = json_string_value(json_object_get(event, "ph"));
    return phase && strcmp(phase, "X") == 0;
}

static const json_t *read_events(void)
{
    return json_object_get(read_json(text("%s/trace.json", run)), "traceEvents");
}

/* The next task of the device in this step, behind event *at. */
static const json_t *next_task(const json_t *events, int32_t device, int step, size_t *at)
{
    for (; *at < json_array_size(events); ++*at) {
        const json_t *const event = json_array_get(events, *at);
        if (is_task(event) && (int)number(event, "pid") == device &&
            (int)number(json_object_get(event, "args"), "step") == step) {
            ++*at;
            return event;
        }
    }
    return NULL;
}

static const char *task_text(const struct hop_task *task)
{
    return task->micro_batch < 0
               ? hop_task_kind_names[task->kind]
               : text("%s %d", hop_task_kind_names[task->kind], task->micro_batch);
}

static void check_list(const json_t *events, int32_t device, int step,
                       const struct hop_task_list *list)
{
    size_t at = 0;
    double end = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const json_t *const event = next_task(events, device, step, &at);
        const char *const wanted = task_text(&list->tasks[i]);
        if (!event)
            fail_msg("step %d, device %d: task %d (%s) is not in the trace", step, device, i,
                     wanted);
        assert_string_equal(json_string_value(json_object_get(event, "name")), wanted);
        assert_int_equal(number(event, "tid"), list->tasks[i].part);
        if (!(number(event, "dur") >= 0 && number(event, "ts") >= end - 0.01))
            fail_msg("step %d, device %d: %s begins at %.3f us, the task before ended at %.3f us",
                     step, device, wanted, number(event, "ts"), end);
        end = number(event, "ts") + number(event, "dur");
    }
    const json_t *const more = next_task(events, device, step, &at);
    if (more)
        fail_msg("step %d, device %d: %s is one task too many", step, device,
                 json_string_value(json_object_get(more, "name")));
}

/* The table that the run's schedules were made with. */
static void price_run(struct hop_cost_table *cost)
{
    struct hop_error err = {0};
    struct hop_job resolved;
    struct hop_model_config config;
    if (hop_job_load(text("%s/config.yaml", run), NULL, 0, &resolved, &err) ||
        hop_model_config_load(resolved.model, &config, &err) ||
        hop_job_cost(&resolved, &config, NULL, cost, &err))
        fail_msg("%s", err.message);
    hop_job_free(&resolved);
}

/* The trace of every step holds the tasks of the plan's schedule, device by device in its order:
 * also the rounding probe of the first step, and the smaller mini-batch of the third. */
static void test_trace(void **state)
{
    (void)state;
    static const char *const names[] = {"npu0", "npu1", "gpu0", "gpu1"};
    static const struct {
        int32_t micro_batches, probes;
    } steps[STEPS] = {{4, 4}, {4, 3}, {3, 3}, {4, 3}, {4, 3}};
    const json_t *const events = read_events();
    struct hop_error err = {0};
    struct hop_plan plan;
    const struct hop_strategy *strategy;
    struct hop_cost_table cost;
    price_run(&cost);
    if (hop_plan_parse(read_json(text("%s/plan.json", run)), "plan.json", names, 4, &plan, &err) ||
        hop_strategy_find("hybridop", &strategy, &err))
        fail_msg("%s", err.message);
    for (int step = 1; step <= STEPS; step++) {
        struct hop_schedule schedule;
        if (strategy->schedule(&plan, &cost, steps[step - 1].micro_batches, steps[step - 1].probes,
                               &schedule, &err))
            fail_msg("%s", err.message);
        for (int32_t device = 0; device < 4; device++)
            check_list(events, device, step, &schedule.lists[device]);
        hop_schedule_free(&schedule);
    }
    hop_plan_free(&plan);
    hop_cost_free(&cost);
}

/* Folders that `eval` works in for a moment. */
static size_t count_scratch(void)
{
    glob_t found;
    glob("/tmp/hybridop-eval-*", 0, NULL, &found);
    const size_t n = found.gl_pathc;
    globfree(&found);
    return n;
}

static void test_eval(void **state)
{
    (void)state;
    const size_t before = count_scratch();
    const char *const rows = text("data.eval=%s", scratch("eval.jsonl"));
    const struct process done = RUN("eval", "--json", job, "--set", cluster, "--adapter",
                                    text("%s/adapter", run), "--set", rows);
    assert_success(&done);
    const json_t *const printed = read_json(write_text("eval.json", "%s", done.out));
    ASSERT_KEYS("eval --json", printed, "task", "examples", "loss");
    assert_int_equal(number(printed, "examples"), 19);
    const json_t *const summary = read_json(text("%s/summary.json", run));
    assert_near("eval loss with the adapter", number(printed, "loss"),
                number(json_object_get(summary, "eval_after"), "loss"), 0);
    const struct process bare = RUN("eval", job, "--json", "--set", rows, "--set", cluster);
    assert_success(&bare);
    assert_near("eval loss without",
                number(read_json(write_text("bare.json", "%s", bare.out)), "loss"),
                number(json_object_get(summary, "eval_before"), "loss"), 0);
    const struct process table = RUN("eval", job, "--set", rows, "--set", cluster);
    assert_success(&table);
    assert_holds("eval", table.out, "loss");
    const struct process bad = RUN("eval", job, "--set", "data.eval=none.jsonl", "--set", cluster);
    ASSERT_REFUSED(&bad, 2, "none.jsonl");
    assert_string_equal(bad.out, "");
    assert_int_equal(count_scratch(), before);
}

/* A plan is printed, nothing is written and nothing started. */
static void test_dry_run(void **state)
{
    (void)state;
    const struct process first = TRAIN(job, scratch("dry"), cluster, "--dry-run",
                                       "plan.blocks={npu0: 2, npu1: 1, gpu0: 1, gpu1: 1}");
    assert_success(&first);
    assert_holds("dry run", first.out, "npu0");
    assert_holds("dry run", first.out, "gpu1");
    assert_holds("dry run", first.out, "0-1");
    assert_false(file_exists(scratch("dry")));
    const struct process second =
        RUN("train", "--dry-run", "--set", cluster, job, "--strategy", "single");
    assert_success(&second);
    assert_holds("dry run", second.out, "gpu0");
}

/* The resolved job is a job: running it again gives the same adapter. */
static void test_resolved_job(void **state)
{
    (void)state;
    const char *const again = scratch("again");
    const struct process done = TRAIN(text("%s/config.yaml", run), again, "train.save_every=0");
    assert_success(&done);
    assert_same_adapter(again, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_summary),      cmocka_unit_test(test_adapter_config),
        cmocka_unit_test(test_plan),         cmocka_unit_test(test_trace),
        cmocka_unit_test(test_eval),         cmocka_unit_test(test_dry_run),
        cmocka_unit_test(test_resolved_job),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
