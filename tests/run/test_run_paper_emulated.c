/* The paper's boards with a 3B model, in small: 28 blocks of a tiny model on boards so slow that a
 * block, a message, the head and an exit take half of what they take there (2 rows of 384 tokens,
 * docs/planning.md). What estimators and exits cost is then what the simulator says. */
#include "support.h"

#include <string.h>

enum { CASES = 6 };
static const struct {
    const char *name, *settings[3];
} cases[CASES] = {
    {"frozen", {"strategy=frozen"}},
    {"feedback", {"zo.estimator=feedback"}},
    {"boundary, Q = 1", {"zo.estimator=boundary", "zo.probes=1"}},
    {"difference, Q = 1", {"zo.estimator=difference", "zo.probes=1"}},
    {"difference, Q = 1, Q' = 1", {"zo.estimator=difference", "zo.probes=1", "zo.early_exit=1"}},
    {"difference, Q = 3", {"zo.estimator=difference", "zo.probes=3"}},
};
static double seconds[CASES], utilization[CASES];

static const char *write_boards(void)
{
    static const char *const boards[] = {
        "npu0, bp: false, rate: 9.446e-5, backward_ratio: 8.6",
        "npu1, bp: false, rate: 9.446e-5, backward_ratio: 8.6",
        "gpu0, rate: 1.0391e-4, backward_ratio: 1.03",
        "gpu1, rate: 1.0391e-4, backward_ratio: 1.03",
        "gpu2, rate: 1.5109e-4, backward_ratio: 1.03",
        "gpu3, rate: 1.5109e-4, backward_ratio: 1.03",
    };
    const char *lines = "network: {bandwidth: 3.472Mbps, latency: 0.15ms}\ndevices:\n";
    for (size_t i = 0; i < sizeof boards / sizeof *boards; i++)
        lines = text("%s  - {name: %s, backend: %s, threads: 1, emulate: true}\n", lines, boards[i],
                     backend());
    return write_text("boards.yaml", "%s", lines);
}

static double mean_utilization(const char *run)
{
    json_t *const metrics = read_metrics(run);
    double sum = 0;
    int count = 0;
    for (int step = 3; step <= count_steps(metrics); step++, count++)
        sum += number(step_line(metrics, step), "utilization");
    return sum / count;
}

static void test_times(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){.blocks = 28, .vocabulary = 570});
    const char *const job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 96, 32, 32, 570), NULL);
    const char *const cluster = text("cluster=%s", write_boards());
    for (int i = 0; i < CASES; i++) {
        const char *const run = scratch("run-%d", i);
        const struct process process =
            TRAIN(job, run, cluster, "data.max_length=32", "train.batch_size=16",
                  "train.micro_batch=2", "train.max_steps=5", "train.dtype=f32", "lora.rank=2",
                  "lora.targets=[q_proj,v_proj,o_proj,down_proj]", cases[i].settings[0],
                  cases[i].settings[1], cases[i].settings[2]);
        assert_success(&process);
        seconds[i] = median_seconds(run);
        utilization[i] = mean_utilization(run);
        const double predicted = predicted_seconds(run);
        print_message("%-26s %.2f s a step, simulated %.2f s (%+.2f %%), utilization %.0f %%\n",
                      cases[i].name, seconds[i], predicted, 100 * (seconds[i] / predicted - 1),
                      100 * utilization[i]);
        assert_near("seconds of a step", seconds[i], predicted, 0.05);
    }
}

/* One probe of boundary, or feedback, takes next to nothing; one of difference does; an exit probe
 * fills idle time. */
static void test_costs(void **state)
{
    (void)state;
    assert_true(seconds[1] < 1.04 * seconds[0]);
    assert_true(seconds[2] < 1.04 * seconds[0]);
    assert_true(seconds[3] > 1.15 * seconds[0]);
    assert_true(utilization[2] > utilization[0] + 0.08);
    assert_true(seconds[4] < 1.06 * seconds[3]);
    assert_true(utilization[4] > utilization[3] + 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
