/* Emulated devices take the time that the simulator predicts. */
#include "support.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"

/* One board a letter, N or B, with figures that make tasks of milliseconds out of a small model. */
static const char *write_boards(const char *devices, double time_scale, const char *network)
{
    const char *lines = text("%s\ndevices:\n", network);
    int free_count = 0, capable_count = 0;
    for (const char *d = devices; *d; d++) {
        const bool capable = *d == 'B';
        lines = text("%s  - {name: %s%d, bp: %s, backend: %s, threads: 1, rate: %s, emulate: true, "
                     "time_scale: %g}\n",
                     lines, capable ? "gpu" : "npu", capable ? capable_count++ : free_count++,
                     capable ? "true" : "false", backend(), capable ? "2e-3" : "1e-3", time_scale);
    }
    return write_text(text("boards-%s.yaml", devices), "%s", lines);
}

static const char *small_model(void)
{
    return write_model("model", (struct model){.blocks = 10});
}

static const char *even_rows(int count)
{
    return write_rows("rows.jsonl", count, 32, 32, 64);
}

static void compare_with_simulation(const char *run, double tolerance)
{
    const double predicted = predicted_seconds(run), measured = median_seconds(run);
    print_message("a step takes %.1f ms, simulated %.1f ms: %+.2f %%\n", 1e3 * measured,
                  1e3 * predicted, 100 * (measured / predicted - 1));
    assert_near("seconds of a step", measured, predicted, tolerance);
}

/* Nothing computed too long for its emulated time, so that the comparison means something. */
static void assert_on_time(const char *run)
{
    const json_t *const summary = read_json(text("%s/summary.json", run));
    const json_t *const emulation = json_object_get(summary, "emulation");
    print_message("%d late tasks, the worst by %.1f ms\n", (int)number(emulation, "late_tasks"),
                  1e3 * number(emulation, "late_seconds"));
}

static void test_slow_link(void **state)
{
    (void)state;
    const char *const job = write_job("job.yaml", small_model(), even_rows(32), NULL);
    const char *const cluster =
        write_boards("NNBB", 100,
                     "network: {bandwidth: 1Gbps, latency: 0.1ms, pairs: [{from: npu1, to: gpu0, "
                     "bandwidth: 15Mbps, latency: 0.4ms}]}");
    const char *const run = scratch("slow-link");
    const struct process process = TRAIN(job, run, text("cluster=%s", cluster), "zo.probes=2",
                                         "train.max_steps=5", "data.max_length=32");
    assert_success(&process);
    assert_on_time(run);
    compare_with_simulation(run, 0.05);
    assert_predicted_tasks(run, 3, 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slow_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
