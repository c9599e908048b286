/* A run over several hosts and a real slow network takes as long as the simulator predicts: the
 * devices' computation is emulated, the network is not. */
#include "run/support.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/transport.h"

enum { HOSTS = 4, CANNOT = 77 };

/* hosts.sh starts the program under test, so it is what the helpers start. */
static void enter_hosts(const char *rate)
{
    const char *const script = HOP_SOURCE_DIR "/tests/cluster/hosts.sh";
    setenv("PROGRAM", getenv("HYBRIDOP"), 1);
    setenv("HOSTS", text("%d", HOSTS), 1);
    setenv("RATE", rate, 1);
    setenv("HYBRIDOP", script, 1);
    const struct process process = RUN("--version");
    if (process.status == CANNOT) {
        print_message("%s", process.err);
        skip();
    }
    assert_success(&process);
}

static const char *write_hosts(const char *network)
{
    static const char *const names[HOSTS] = {"npu0", "npu1", "gpu0", "gpu1"};
    const char *lines = text("%s\ndevices:\n", network);
    for (int i = 0; i < HOSTS; i++)
        lines =
            text("%s  - {name: %s, host: 10.77.0.%d, bp: %s, rate: 0.0025, threads: 1, backend: "
                 "%s, emulate: true}\n",
                 lines, names[i], i + 1, names[i][0] == 'g' ? "true" : "false", backend());
    return write_text("hosts.yaml", "%s", lines);
}

/* Messages of 2 MB take about as long as the tasks that make them. Of 100 Mbit/s, frames and
 * headers leave a message 94. */
static void test_slow_network(void **state)
{
    (void)state;
    if (!hop_transport_is_open_mpi()) {
        print_message("skip: hosts.sh speaks to Open MPI only\n");
        skip();
    }
    enter_hosts("100mbit");
    const char *const model = write_model("model", (struct model){.hidden = 32});
    const char *const job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 1024, 128, 128, 64), NULL);
    const char *const cluster = write_hosts("network: {bandwidth: 94Mbps, latency: 0.2ms}");
    const char *const run = scratch("run");
    const struct process process =
        TRAIN(job, run, text("cluster=%s", cluster), "train.max_steps=6", "data.max_length=128",
              "zo.probes=1", "train.batch_size=512", "train.micro_batch=128", "train.dtype=f32");
    assert_success(&process);
    if (strstr(process.err, "step times are longer than those of the emulated devices")) {
        print_message("skip: this machine computes more slowly than the boards it shall be\n");
        skip();
    }
    const double predicted = predicted_seconds(run), measured = median_seconds(run);
    print_message("a step takes %.1f ms, simulated %.1f ms: %+.2f %%\n", 1e3 * measured,
                  1e3 * predicted, 100 * (measured / predicted - 1));
    assert_near("seconds of a step", measured, predicted, 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slow_network)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
