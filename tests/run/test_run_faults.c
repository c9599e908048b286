/* A device that dies or falls silent ends the run soon, with one line that names it. */
#include "support.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"

/* In the order of their ranks. */
static const char *const devices[] = {"npu0", "npu1", "gpu0", "gpu1"};
enum { RANKS = 4 };

static const char *job, *cluster;

static int set_up(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){0});
    job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 21, 6, 14, 64), "zo: {probes: 2}\n");
    cluster = text("cluster=%s", write_cluster("NNBB", 1, NULL));
    return 0;
}

/* A run without end, past its first steps. */
static struct process start_endless(const char *run, const char *setting)
{
    const char *const metrics = text("%s/metrics.jsonl", run);
    struct process process = START(job, run, cluster, "train.max_steps=1000000", setting);
    while (!file_exists(metrics) || !strstr(read_text(metrics), "\"step\":3,"))
        if (wait_program(&process, 20e-3))
            fail_msg("ended with status %d before step 3\n%s", process.status, process.err);
    return process;
}

static void check_end(struct process *process, double limit, const char *device, const char *fate)
{
    const double start = hop_clock_now();
    if (!wait_program(process, limit)) {
        kill_tree(process);
        fail_msg("%s: still running %.0f s after the fault\n%s", device, limit, process->err);
    }
    print_message("%s: ended %.2f s after the fault\n", device, hop_clock_now() - start);
    ASSERT_REFUSED(process, 1, text("device %s %s", device, fate));
    assert_all_gone(5);
}

static void test_dead_rank(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank += 2) {
        struct process process = start_endless(scratch("dead-%d", rank), "train.trace_steps=0");
        const pid_t pid = find_rank(&process, rank);
        assert_true(pid > 0);
        kill(pid, SIGKILL);
        check_end(&process, 10, devices[rank], text("(rank %d) died", rank));
    }
}

/* Neighbours of a stopped device wait for it, and others for them: the one that is stuck is named.
 */
static void test_silent_rank(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        struct process process = start_endless(scratch("silent-%d", rank), "train.peer_timeout=2s");
        const pid_t pid = find_rank(&process, rank);
        assert_true(pid > 0);
        kill(pid, SIGSTOP);
        check_end(&process, 10, devices[rank], "is silent");
        assert_holds("error", process.err, "train.peer_timeout");
    }
}

/* A long step is no silence when the limit allows it, and a finished run leaves nothing behind. */
static void test_pause_is_forgiven(void **state)
{
    (void)state;
    const char *const run = scratch("pause");
    struct process process = START(job, run, cluster, "train.max_steps=300");
    const pid_t pid = find_rank(&process, 2);
    assert_true(pid > 0);
    hop_clock_sleep(0.7);
    kill(pid, SIGSTOP);
    hop_clock_sleep(1);
    kill(pid, SIGCONT);
    if (!wait_program(&process, 60)) {
        kill_tree(&process);
        fail_msg("did not go on after a pause\n%s", process.err);
    }
    assert_success(&process);
    assert_all_gone(5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_rank),
        cmocka_unit_test(test_silent_rank),
        cmocka_unit_test(test_pause_is_forgiven),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
