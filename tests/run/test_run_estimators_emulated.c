/* Emulated devices take the time that the simulator predicts, whatever estimates the gradient of
 * the BP-free ones. */
#include "support.h"

#include <math.h>

static const char *write_boards(void)
{
    return write_text("boards.yaml",
                      "network: {bandwidth: 20Mbps, latency: 0.3ms}\n"
                      "devices:\n"
                      "  - {name: npu0, bp: false, backend: %s, threads: 1, rate: 1e-3,\n"
                      "     emulate: true, time_scale: 20}\n"
                      "  - {name: npu1, bp: false, backend: %s, threads: 1, rate: 1e-3,\n"
                      "     emulate: true, time_scale: 20}\n"
                      "  - {name: gpu0, bp: true, backend: %s, threads: 1, rate: 2e-3,\n"
                      "     emulate: true, time_scale: 20}\n"
                      "  - {name: gpu1, bp: true, backend: %s, threads: 1, rate: 2e-3,\n"
                      "     emulate: true, time_scale: 20}\n",
                      backend(), backend(), backend(), backend());
}

static void check(const char *name, double tolerance, const char *first, const char *second)
{
    const char *const run = scratch("%s", name);
    const char *const job =
        write_job("job.yaml", write_model("model", (struct model){.blocks = 10}),
                  write_rows("rows.jsonl", 32, 32, 32, 64), NULL);
    const struct process process =
        TRAIN(job, run, text("cluster=%s", write_boards()), "zo.probes=2", "train.max_steps=5",
              "data.max_length=32", "lora.targets=[q_proj,o_proj,down_proj]", first, second);
    assert_success(&process);
    const double predicted = predicted_seconds(run), measured = median_seconds(run);
    print_message("%s: a step takes %.1f ms, simulated %.1f ms: %+.2f %%\n", name, 1e3 * measured,
                  1e3 * predicted, 100 * (measured / predicted - 1));
    assert_near("seconds of a step", measured, predicted, 0.05);
    assert_predicted_tasks(run, 3, tolerance);
}

static void test_boundary(void **state)
{
    (void)state;
    check("boundary", 0.03, "zo.estimator=boundary", NULL);
}

static void test_feedback(void **state)
{
    (void)state;
    check("feedback", 0.03, "zo.estimator=feedback", NULL);
}

static void test_central(void **state)
{
    (void)state;
    check("central", 0.03, "zo.estimator=central", NULL);
}

static void test_early_exit(void **state)
{
    (void)state;
    /* Exit probes work ahead of the device behind them, until the message buffers are full: then
     * they start later than without a limit, and nobody waits for them. */
    check("early-exit", INFINITY, "zo.early_exit=2", "zo.directions=per-sample");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boundary),
        cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_central),
        cmocka_unit_test(test_early_exit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
