/* How many probes a PROBE task runs at once changes the schedule, not the estimates (up to
 * rounding, which zo.epsilon enlarges a thousandfold). */
#include "support.h"

#include "io/json.h"

/* The plan of a run as a file of its own, with so many probes at once. */
static const char *plan_with_batch(const char *run, int probe_batch)
{
    struct hop_error err = {0};
    json_t *const plan = read_json(text("%s/plan.json", run));
    const char *const path = scratch("plan-%d.json", probe_batch);
    json_object_set_new(plan, "probe_batch", json_integer(probe_batch));
    if (hop_json_save(path, plan, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return path;
}

/* PROBE tasks of one device in one step of the trace. */
static int probe_tasks(const char *run, int device, int step)
{
    size_t i;
    const json_t *event;
    int n = 0;
    const json_t *const trace = read_json(text("%s/trace.json", run));
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const json_t *const arguments = json_object_get(event, "args");
        n += json_integer_value(json_object_get(event, "pid")) == device &&
             json_integer_value(json_object_get(arguments, "step")) == step &&
             json_object_get(arguments, "probes") != NULL;
    }
    return n;
}

/* Five probes and in the first step a sixth for the rounding check; fourteen rows, so that every
 * second step has three micro-batches instead of four. */
static void test_same_estimates(void **state)
{
    (void)state;
    static const int batches[] = {1, 2, 4};
    const char *const job = write_job("job.yaml", write_model("model", (struct model){0}),
                                      write_rows("rows.jsonl", 14, 6, 14, 64), NULL);
    const char *const cluster = text("cluster=%s", write_cluster("NNBB", 1, NULL));
    const char *const all = scratch("all");
    const struct process first = TRAIN(job, all, cluster, "zo.probes=5", "zo.probe_batch=5",
                                       "train.max_steps=4", "train.dtype=f32");
    assert_success(&first);
    assert_int_equal(probe_tasks(all, 0, 1), 4 * 2);
    assert_int_equal(probe_tasks(all, 0, 2), 3);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const int batch = batches[i];
        const char *const run = scratch("batch-%d", batch);
        const struct process process =
            TRAIN(job, run, cluster, text("plan.file=%s", plan_with_batch(all, batch)),
                  "zo.probes=5", "train.max_steps=4", "train.dtype=f32");
        assert_success(&process);
        assert_int_equal(probe_tasks(run, 0, 1), 4 * ((6 + batch - 1) / batch));
        assert_int_equal(probe_tasks(run, 3, 2), 3 * ((5 + batch - 1) / batch));
        ASSERT_SAME_LINES(run, all, 1e-3, "loss", "grad_norm", "zo_grad_norm", "zo_g_mean",
                          "zo_g_std");
        assert_true(number(step_line(read_metrics(run), 1), "zo_g_floor") > 0);
        const double distance = adapter_distance(text("%s/adapter", run), text("%s/adapter", all));
        print_message("%d at once: adapters differ by %.2g\n", batch, distance);
        assert_true(distance < 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_estimates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
