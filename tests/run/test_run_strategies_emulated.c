/* Every exact strategy, by its name, on emulated boards: the order and the time that the simulator
 * predicts. */
#include "support.h"

#include <string.h>

static const char *const exact[] = {"gpipe",  "pipedream-flush", "chimera", "hdp",
                                    "dapple", "asteroid",        "accpar",  "accpar-full"};
enum { EXACT = sizeof exact / sizeof *exact };

enum { EMULATED_BLOCKS = 10 };

/* Figures that make tasks of milliseconds out of a small model. */
static const char *write_boards(const char *name, const char *bandwidth)
{
    const char *lines = text("network: {bandwidth: %s, latency: 0.1ms}\ndevices:\n", bandwidth);
    static const char *const names[] = {"npu0", "gpu0", "gpu1", "gpu2"};
    for (int d = 0; d < 4; d++)
        lines = text("%s  - {name: %s, bp: %s, backward_ratio: %s, backend: %s, threads: 1, rate: "
                     "%s, emulate: true, time_scale: 20}\n",
                     lines, names[d], d ? "true" : "false", d ? "1.05" : "2", backend(),
                     d < 2 ? "2e-3" : "1e-3");
    return write_text(name, "%s", lines);
}

static void test_emulated(void **state)
{
    (void)state;
    const char *const model = write_model("small", (struct model){.blocks = EMULATED_BLOCKS});
    const char *const job =
        write_job("emulated.yaml", model, write_rows("even.jsonl", 32, 32, 32, 64), NULL);
    const char *const slow = write_boards("slow.yaml", "20Mbps");
    /* All-reduces inside every block: on a slow network a step would take a minute. */
    const char *const fast = write_boards("fast.yaml", "1Gbps");
    for (int s = 0; s < EXACT; s++) {
        const char *const run = scratch("emulated-%s", exact[s]);
        const struct process done =
            TRAIN(job, run, text("cluster=%s", strncmp(exact[s], "accpar", 6) == 0 ? fast : slow),
                  text("strategy=%s", exact[s]), "train.max_steps=3", "data.max_length=32",
                  "train.batch_size=16", "train.micro_batch=4", "train.learning_rate=0.001");
        assert_success(&done);
        const double predicted = predicted_seconds(run), measured = median_seconds(run);
        print_message("%s: a step takes %.1f ms, simulated %.1f ms: %+.2f %%\n", exact[s],
                      1e3 * measured, 1e3 * predicted, 100 * (measured / predicted - 1));
        assert_near(text("seconds of a step of %s", exact[s]), measured, predicted, 0.05);
        assert_predicted_tasks(run, 3, 0.05);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_emulated)};
    return cmocka_run_group_tests_name("strategies on emulated boards", tests, NULL, NULL);
}
