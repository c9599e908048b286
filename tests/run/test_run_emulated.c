/* Emulated devices take the time that the simulator predicts. */
#include "support.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"

/* One board a letter, N or B, with figures that make tasks of milliseconds out of a small model. */
static const char *write_boards(const char *devices, double time_scale, const char *network)
{
    const char *lines = text("%s\ndevices:\n", network);
    static int number;
    int free_count = 0, capable_count = 0;
    for (const char *d = devices; *d; d++) {
        const bool capable = *d == 'B';
        lines = text("%s  - {name: %s%d, bp: %s, backend: %s, threads: 1, rate: %s, emulate: true, "
                     "time_scale: %g}\n",
                     lines, capable ? "gpu" : "npu", capable ? capable_count++ : free_count++,
                     capable ? "true" : "false", backend(), capable ? "2e-3" : "1e-3", time_scale);
    }
    return write_text(text("boards-%d.yaml", number++), "%s", lines);
}

static const char *even_rows(void)
{
    return write_rows("rows.jsonl", 32, 32, 32, 64);
}

static double late_tasks(const char *run)
{
    const json_t *const summary = read_json(text("%s/summary.json", run));
    return number(json_object_get(summary, "emulation"), "late_tasks");
}

/* Its steps, and the tasks of the third one. */
static void compare_with_simulation(const char *run)
{
    const double predicted = predicted_seconds(run), measured = median_seconds(run);
    print_message("a step takes %.1f ms, simulated %.1f ms: %+.2f %%; %g tasks were late\n",
                  1e3 * measured, 1e3 * predicted, 100 * (measured / predicted - 1),
                  late_tasks(run));
    assert_near("seconds of a step", measured, predicted, 0.05);
    assert_predicted_tasks(run, 3, 0.03);
}

static const char *job_of(int blocks)
{
    const char *const model =
        write_model(text("model-%d", blocks), (struct model){.blocks = blocks});
    return write_job(text("job-%d.yaml", blocks), model, even_rows(), NULL);
}

/* The links between the halves take longer than any task; whichever the plan uses. */
static void test_slow_link(void **state)
{
    (void)state;
    const char *const run = scratch("slow-link");
    const char *pairs = "";
    for (int i = 0; i < 4; i++)
        pairs = text("%s%s{from: npu%d, to: gpu%d, bandwidth: 5Mbps, latency: 0.4ms}", pairs,
                     i ? ", " : "", i / 2, i % 2);
    const char *const cluster = write_boards(
        "NNBB", 15, text("network: {bandwidth: 1Gbps, latency: 0.1ms, pairs: [%s]}", pairs));
    const struct process process =
        TRAIN(job_of(10), run, text("cluster=%s", cluster), "zo.probes=2", "train.max_steps=5",
              "data.max_length=32", "plan.devices=all");
    assert_success(&process);
    compare_with_simulation(run);
}

/* As many boards as the paper has for its largest model, on the few cores of this machine. */
static void test_many_boards(void **state)
{
    (void)state;
    const char *const run = scratch("many");
    const char *const cluster =
        write_boards("NNNNBBBBBB", 30, "network: {bandwidth: 100Mbps, latency: 0.3ms}");
    const struct process process =
        TRAIN(job_of(20), run, text("cluster=%s", cluster), "zo.probes=1", "train.max_steps=3",
              "data.max_length=32", "plan.devices=all");
    assert_success(&process);
    compare_with_simulation(run);
}

/* All that a board sends takes turns. */
static void test_shared_card(void **state)
{
    (void)state;
    const char *const run = scratch("shared");
    const char *const cluster =
        write_boards("BBB", 30, "network: {bandwidth: 50Mbps, latency: 0.3ms, nic: shared}");
    const struct process process =
        TRAIN(job_of(10), run, text("cluster=%s", cluster), "train.max_steps=4",
              "data.max_length=32", "plan.devices=all");
    assert_success(&process);
    compare_with_simulation(run);
}

/* A smaller last micro-batch takes its share of the time: the fifth row of the odd steps. */
static void test_fewer_rows(void **state)
{
    (void)state;
    const char *const run = scratch("rows");
    const char *const cluster = write_boards("B", 20, "");
    const struct process process =
        TRAIN(job_of(10), run, text("cluster=%s", cluster), "train.max_steps=4",
              "data.max_length=32", "data.limit=12", "train.batch_size=7", "train.micro_batch=4");
    assert_success(&process);
    json_t *const metrics = read_metrics(run);
    /* 7 rows, then 5, again and again. */
    const double more = number(step_line(metrics, 3), "seconds");
    const double fewer = number(step_line(metrics, 4), "seconds");
    print_message("7 rows take %.1f ms, 5 rows %.1f ms\n", 1e3 * more, 1e3 * fewer);
    assert_near("time of 5 rows beside 7", fewer / more, 5.0 / 7, 0.03);
}

/* Tasks of many milliseconds that the cost table gives next to nothing. */
static void test_overload_is_told(void **state)
{
    (void)state;
    const char *const run = scratch("overload");
    const char *const cluster = write_boards("NB", 1e-6, "");
    const char *const model =
        write_model("model-large", (struct model){.blocks = 8, .hidden = 256});
    const char *const job = write_job("job-large.yaml", model, even_rows(), NULL);
    const struct process process =
        TRAIN(job, run, text("cluster=%s", cluster), "train.max_steps=3", "data.max_length=32",
              "train.batch_size=16", "train.micro_batch=8", "plan.devices=all");
    assert_success(&process);
    assert_true(late_tasks(run) > 0);
    assert_holds("warning", process.err, "tasks computed longer here than the cost table gives");
    assert_holds("device", process.err, "gpu0 ");
    assert_holds("remedy", process.err, "raise time_scale");
}

/* Emulation changes times only. */
static void test_same_results(void **state)
{
    (void)state;
    const char *const emulated = scratch("emulated"), *const plain = scratch("plain");
    const char *const boards =
        write_boards("NNBB", 1, "network: {bandwidth: 1Gbps, latency: 0.1ms}");
    const struct process a =
        TRAIN(job_of(10), emulated, text("cluster=%s", boards), "train.max_steps=4",
              "plan.blocks={npu0: 2, npu1: 3, gpu0: 2, gpu1: 3}");
    const struct process b =
        TRAIN(job_of(10), plain, text("cluster=%s", write_cluster("NNBB", 1, NULL)),
              "train.max_steps=4", "plan.blocks={npu0: 2, npu1: 3, gpu0: 2, gpu1: 3}");
    assert_success(&a);
    assert_success(&b);
    assert_same_adapter(emulated, plain);
}

/* The interrupt falls into a wait. */
static void test_interrupt_and_resume(void **state)
{
    (void)state;
    const char *const whole = scratch("whole"), *const parts = scratch("parts");
    const char *const boards = write_boards("NB", 10, "network: {bandwidth: 1Gbps}");
    const char *const cluster = text("cluster=%s", boards);
    const char *const job = job_of(10), *const metrics = text("%s/metrics.jsonl", parts);
    struct process process = START(job, parts, cluster, "train.max_steps=4");
    while (!file_exists(metrics) || !strstr(read_text(metrics), "\"step\":1,"))
        if (wait_program(&process, 20e-3))
            fail_msg("ended with status %d\n%s", process.status, process.err);
    hop_clock_sleep(0.3);
    kill(process.pid, SIGINT);
    assert_true(wait_program(&process, 20));
    assert_success(&process);
    assert_holds("note", process.err, "stopping after step 2");
    const struct process rest = TRAIN(job, parts, cluster, "train.max_steps=4", "--resume");
    const struct process all = TRAIN(job, whole, cluster, "train.max_steps=4");
    assert_success(&rest);
    assert_success(&all);
    assert_same_adapter(parts, whole);
}

/* A board that is killed while it waits ends the run, and no process stays. */
static void test_killed_board(void **state)
{
    (void)state;
    const char *const run = scratch("killed"), *const metrics = text("%s/metrics.jsonl", run);
    const char *const boards = write_boards("NNBB", 20, "network: {bandwidth: 1Gbps}");
    struct process process =
        START(job_of(10), run, text("cluster=%s", boards), "train.max_steps=100");
    while (!file_exists(metrics) || !strstr(read_text(metrics), "\"step\":1,"))
        if (wait_program(&process, 20e-3))
            fail_msg("ended with status %d\n%s", process.status, process.err);
    kill(find_rank(&process, 2), SIGKILL);
    assert_true(wait_program(&process, 20));
    ASSERT_REFUSED(&process, 1, "device gpu0", "died");
    assert_all_gone(10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slow_link),
                                       cmocka_unit_test(test_many_boards),
                                       cmocka_unit_test(test_shared_card),
                                       cmocka_unit_test(test_fewer_rows),
                                       cmocka_unit_test(test_overload_is_told),
                                       cmocka_unit_test(test_same_results),
                                       cmocka_unit_test(test_interrupt_and_resume),
                                       cmocka_unit_test(test_killed_board)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
