/* Four ranks that share this machine's cores against one process with as many threads. */
#include "support.h"

#include <stdio.h>
#include <string.h>

enum { REPEATS = 2, STEPS = 6 };

/* The fastest step is the one that other programs disturbed least. */
static double fastest_step(const char *run, double so_far)
{
    json_t *const metrics = read_metrics(run);
    for (int step = 1; step <= STEPS; step++) {
        const double seconds = number(step_line(metrics, step), "seconds");
        so_far = seconds < so_far ? seconds : so_far;
    }
    return so_far;
}

static void test_pipeline_keeps_pace(void **state)
{
    (void)state;
    if (strcmp(backend(), "cpu") != 0) {
        print_message("skip: the reference backend is not built for speed\n");
        skip();
    }
    const char *const model =
        write_model("model", (struct model){.blocks = 8, .hidden = 256, .vocabulary = 512});
    const char *const job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 64, 32, 32, 512), NULL);
    const char *const one = text("cluster=%s", write_cluster("B", 2, NULL));
    const char *const four = text("cluster=%s", write_cluster("BBBB", 1, NULL));
    const char *const size = text("train.max_steps=%d", STEPS);
    double single = 1e9, pipeline = 1e9;
    /* Two threads in one process share larger micro-batches better: the same rows either way. In
     * turns, so that what else the machine does falls on both. */
    for (int i = 0; i < REPEATS; i++) {
        const struct process a = TRAIN(job, scratch("one-%d", i), one, size, "train.batch_size=64",
                                       "train.micro_batch=16", "strategy=single");
        const struct process b = TRAIN(job, scratch("four-%d", i), four, size,
                                       "train.batch_size=64", "train.micro_batch=4");
        assert_success(&a);
        assert_success(&b);
        single = fastest_step(scratch("one-%d", i), single);
        pipeline = fastest_step(scratch("four-%d", i), pipeline);
    }
    print_message(
        "a step takes %.1f ms in one process, %.1f ms over four ranks: %.2f of the pace\n",
        1e3 * single, 1e3 * pipeline, single / pipeline);
    if (!(single / pipeline > 0.85))
        fail_msg("four ranks reach %.2f of the pace of one process, expected 0.85",
                 single / pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pipeline_keeps_pace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
