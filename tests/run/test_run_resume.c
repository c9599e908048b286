/* A run that is killed or interrupted, whenever, and resumed writes the adapter of a run that was
 * not, byte for byte. */
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { STEPS = 240 };

static const char *job, *cluster, *whole;

/* `option` is a setting or an option of train. */
static struct process run_to_end(const char *run, const char *option)
{
    struct process done = TRAIN(job, run, cluster, option);
    assert_success(&done);
    return done;
}

static int set_up(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){.blocks = 3});
    job = write_text("job.yaml", "%s",
                     text("model: %s\n"
                          "data: {task: jsonl, train: %s, eval: %s, max_length: 64}\n"
                          "lora: {rank: 4, alpha: 8}\n"
                          "train: {batch_size: 8, micro_batch: 2, learning_rate: 0.002,\n"
                          "        max_steps: %d, save_every: 20, eval_every: 30,\n"
                          "        early_stopping: 0, warmup_steps: 10, scheduler: cosine}\n"
                          "zo: {probes: 2}\n"
                          "plan: {blocks: {npu0: 1, gpu0: 2}}\n"
                          "output: unset\n",
                          model, write_rows("rows.jsonl", 21, 6, 14, 64),
                          write_rows("eval.jsonl", 5, 6, 14, 64), STEPS));
    cluster = text("cluster=%s", write_cluster("NB", 1, NULL));
    whole = scratch("whole");
    run_to_end(whole, "train.seed=42");
    return 0;
}

static int lines_so_far(const char *run)
{
    const char *const path = text("%s/metrics.jsonl", run);
    int n = 0;
    if (!file_exists(path))
        return 0;
    for (const char *at = read_text(path); (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

/* Until the metrics have that many lines. */
static void wait_for_lines(struct process *process, const char *run, int lines)
{
    while (!wait_program(process, 2e-3))
        if (lines_so_far(run) >= lines)
            return;
    fail_msg("ended with status %d before line %d\n%s", process->status, lines, process->err);
}

static void check_resumed(const char *run)
{
    const struct process done = run_to_end(run, "--resume");
    assert_holds("resume", done.err, "continuing after step");
    assert_same_adapter(run, whole);
    ASSERT_SAME_LINES(run, whole, 0, "loss", "learning_rate", "grad_norm", "zo_grad_norm");
    assert_int_equal(count_steps(read_metrics(run)), STEPS);
}

/* Everything dies at once, again and again. */
static void test_killed(void **state)
{
    (void)state;
    static const int lines[] = {33, 75, 140, 215};
    const char *const run = scratch("killed");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct process process = START(job, run, cluster, i == 0 ? "train.seed=42" : "--resume");
        wait_for_lines(&process, run, lines[i]);
        hop_clock_sleep(1e-3 * (double)(7 * i));
        kill_tree(&process);
        assert_int_equal(process.status, 128 + SIGKILL);
        assert_all_gone(10);
    }
    check_resumed(run);
}

/* Only the program the user started dies: its ranks end, too. */
static void test_launcher_killed(void **state)
{
    (void)state;
    const char *const run = scratch("launcher");
    struct process process = START(job, run, cluster);
    wait_for_lines(&process, run, 50);
    kill(process.pid, SIGKILL);
    assert_true(wait_program(&process, 5));
    assert_all_gone(10);
    check_resumed(run);
}

static void test_interrupted(void **state)
{
    (void)state;
    const char *const run = scratch("interrupted");
    struct process process = START(job, run, cluster);
    wait_for_lines(&process, run, 45);
    kill(process.pid, SIGINT);
    if (!wait_program(&process, 20)) {
        kill_tree(&process);
        fail_msg("still running 20 s after an interrupt\n%s", process.err);
    }
    assert_success(&process);
    assert_all_gone(5);
    const json_t *const summary = read_json(text("%s/summary.json", run));
    const int steps = (int)number(summary, "steps");
    if (!(steps >= 40 && steps < STEPS))
        fail_msg("stopped after %d steps, expected soon after 45 and before %d", steps, STEPS);
    assert_true(json_is_true(json_object_get(summary, "stopped_early")));
    assert_true(file_exists(text("%s/checkpoint-%d/trainer_state.json", run, steps)));
    assert_holds("interrupt", process.err, "--resume");
    check_resumed(run);
}

/* An interrupt that comes while the ranks still start is not forgotten, and leaves nothing behind
 * that would stop the next run. */
static void test_interrupted_at_start(void **state)
{
    (void)state;
    const char *const run = scratch("early");
    struct process process = START(job, run, cluster);
    assert_true(find_rank(&process, 0) > 0);
    kill(process.pid, SIGINT);
    if (!wait_program(&process, 20)) {
        kill_tree(&process);
        fail_msg("still running 20 s after an interrupt\n%s", process.err);
    }
    assert_success(&process);
    const int steps = (int)number(read_json(text("%s/summary.json", run)), "steps");
    if (steps > 20)
        fail_msg("stopped after %d steps, expected soon after the first", steps);
    assert_false(file_exists(text("%s/stop", run)));
    check_resumed(run);
}

/* A finished run has nothing left to do, and says the same as before. */
static void test_finished(void **state)
{
    (void)state;
    const char *const before = dump_json(read_json(text("%s/summary.json", whole)));
    const json_t *const old = keep_json(json_loads(before, 0, NULL));
    run_to_end(whole, "--resume");
    const json_t *const summary = read_json(text("%s/summary.json", whole));
    assert_near("final loss", number(summary, "final_loss"), number(old, "final_loss"), 0);
    assert_near("loss before", number(json_object_get(summary, "eval_before"), "loss"),
                number(json_object_get(old, "eval_before"), "loss"), 0);
    assert_near("loss after", number(json_object_get(summary, "eval_after"), "loss"),
                number(json_object_get(old, "eval_after"), "loss"), 0);
    assert_int_equal(count_steps(read_metrics(whole)), STEPS);
}

/* A run can go on over other devices: here in one process. */
static void test_other_devices(void **state)
{
    (void)state;
    const char *const run = scratch("moved");
    struct process process = START(job, run, cluster);
    wait_for_lines(&process, run, 45);
    kill_tree(&process);
    const struct process done =
        TRAIN(job, run, "--resume", "strategy=single", "zo.blocks=[0, 1]",
              text("cluster=%s", write_cluster("B", 1, NULL)), "plan.blocks=");
    assert_success(&done);
    assert_same_adapter(run, whole);
}

/* The second interrupt does not wait for the step. */
static void test_interrupted_twice(void **state)
{
    (void)state;
    const char *const run = scratch("twice");
    struct process process = START(job, run, cluster);
    wait_for_lines(&process, run, 5);
    const pid_t rank = find_rank(&process, 1);
    assert_true(rank > 0);
    kill(rank, SIGSTOP); /* the step cannot end */
    kill(process.pid, SIGINT);
    hop_clock_sleep(0.5);
    kill(process.pid, SIGINT);
    if (!wait_program(&process, 10)) {
        kill_tree(&process);
        fail_msg("still running 10 s after the second interrupt\n%s", process.err);
    }
    ASSERT_REFUSED(&process, 1, "interrupt");
    assert_all_gone(5);
}

/* Without a checkpoint, --resume begins at the beginning. */
static void test_nothing_to_resume(void **state)
{
    (void)state;
    const char *const run = scratch("fresh");
    const struct process done = run_to_end(run, "--resume");
    assert_holds("resume", done.err, "no checkpoint");
    assert_same_adapter(run, whole);
}

/* A start that fails takes nothing from the run before; one that succeeds keeps its checkpoints
 * under another name. */
static void test_started_again(void **state)
{
    (void)state;
    const char *const run = scratch("again");
    run_to_end(run, "train.max_steps=40");
    const struct process failed = TRAIN(job, run, cluster, "data.train=none.jsonl");
    ASSERT_REFUSED(&failed, 2, "none.jsonl");
    assert_true(file_exists(text("%s/checkpoint-40/trainer_state.json", run)));
    run_to_end(run, "train.max_steps=20");
    assert_false(file_exists(text("%s/checkpoint-40", run)));
    assert_true(file_exists(text("%s/checkpoint-40.old-1/trainer_state.json", run)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_launcher_killed),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_interrupted_at_start),
        cmocka_unit_test(test_other_devices),
        cmocka_unit_test(test_interrupted_twice),
        cmocka_unit_test(test_nothing_to_resume),
        cmocka_unit_test(test_started_again),
        cmocka_unit_test(test_finished),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
