/* Ranks that wait leave the core to others. */
#include "support.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"

/* One device is stopped in the middle of a step, the others have nothing to do until it goes on. */
static void test_waiting_ranks_sleep(void **state)
{
    (void)state;
    enum { RANKS = 4, STOPPED = 2 };
    static const double seconds = 2;
    pid_t pids[RANKS];
    double used[RANKS];
    const char *const model = write_model("model", (struct model){0});
    const char *const job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 8, 6, 14, 64), NULL);
    const char *const run = scratch("run"), *const metrics = text("%s/metrics.jsonl", run);
    struct process process = START(job, run, "train.max_steps=1000000",
                                   text("cluster=%s", write_cluster("NNBB", 1, NULL)));
    while (!file_exists(metrics) || !strstr(read_text(metrics), "\"step\":2,"))
        if (wait_program(&process, 20e-3))
            fail_msg("ended with status %d\n%s", process.status, process.err);
    for (int rank = 0; rank < RANKS; rank++)
        pids[rank] = find_rank(&process, rank);
    kill(pids[STOPPED], SIGSTOP);
    hop_clock_sleep(0.3);
    for (int rank = 0; rank < RANKS; rank++)
        used[rank] = cpu_seconds(pids[rank]);
    hop_clock_sleep(seconds);
    for (int rank = 0; rank < RANKS; rank++)
        used[rank] = (cpu_seconds(pids[rank]) - used[rank]) / seconds;
    kill_tree(&process);
    for (int rank = 0; rank < RANKS; rank++) {
        print_message("rank %d used %.1f %% of a core while waiting\n", rank, 100 * used[rank]);
        if (!(used[rank] < 0.1))
            fail_msg("rank %d uses %.1f %% of a core while it waits, allowed 10 %%", rank,
                     100 * used[rank]);
    }
    assert_all_gone(10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waiting_ranks_sleep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
