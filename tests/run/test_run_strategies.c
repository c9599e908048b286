/* Every exact strategy, by its name: the same losses as one device. */
#include "support.h"

static const char *const exact[] = {"gpipe",  "pipedream-flush", "chimera", "hdp",
                                    "dapple", "asteroid",        "accpar",  "accpar-full"};
enum { EXACT = sizeof exact / sizeof *exact, BUNDLED_BLOCKS = 6, STEPS = 10 };

/* Rows of the bundled model's vocabulary, of different lengths. */
static const char *bundled_rows(void)
{
    return write_rows("bundled.jsonl", 80, 6, 24, 1000);
}

static const char *bundled_model(void)
{
    return HOP_SOURCE_DIR "/models/wordnet-3m";
}

static const char *agreement_job(void)
{
    return write_job("agreement.yaml", bundled_model(), bundled_rows(), NULL);
}

static const char *run_of(const char *strategy, const char *devices, const char *cluster)
{
    const char *const run = scratch("%s-%s", strategy, devices);
    const struct process done =
        TRAIN(agreement_job(), run, text("cluster=%s", cluster), text("strategy=%s", strategy),
              text("train.max_steps=%d", STEPS), "train.batch_size=16", "train.micro_batch=4",
              "train.learning_rate=0.001", "train.dtype=f32", "lora.targets=[q_proj,v_proj]");
    assert_success(&done);
    return run;
}

static void agree(const char *devices)
{
    const char *const single = run_of("single", "B", write_cluster("B", 1, ""));
    const char *const cluster = write_cluster(devices, 1, "");
    for (int s = 0; s < EXACT; s++) {
        const char *const run = run_of(exact[s], devices, cluster);
        const json_t *const a = read_metrics(run), *const b = read_metrics(single);
        assert_int_equal(count_steps(a), STEPS);
        for (int step = 1; step <= STEPS; step++)
            assert_near(text("loss of %s on %s, step %d", exact[s], devices, step),
                        number(step_line(a, step), "loss"), number(step_line(b, step), "loss"),
                        1e-5);
    }
}

static void test_two(void **state)
{
    (void)state;
    agree("BB");
}

/* Boards without backward run it all the same, slowly. */
static void test_four(void **state)
{
    (void)state;
    agree("NBBB");
}

static void test_six(void **state)
{
    (void)state;
    agree("BBBBBB");
}

static const char *memory_cluster(int mebibytes)
{
    const char *lines = "";
    for (int d = 0; d < 4; d++)
        lines = text("%s  - {name: gpu%d, bp: true, backend: %s, threads: 1, backward_ratio: 2, "
                     "memory: %dMiB}\n",
                     lines, d, backend(), mebibytes);
    return write_text("memory.yaml", "devices:\n%s", lines);
}

static const char *run_of_rows(const char *name, const char *strategy, const char *cluster,
                               const char *plan)
{
    const char *const run = scratch("%s", name);
    const struct process done =
        TRAIN(agreement_job(), run, text("cluster=%s", cluster), text("strategy=%s", strategy),
              text("train.max_steps=%d", STEPS), "train.batch_size=16", "train.micro_batch=2",
              "train.learning_rate=0.001", "train.dtype=f32", "lora.targets=[q_proj,v_proj]", plan);
    assert_success(&done);
    return run;
}

/* Boards that hold two pipelines and whose backward takes twice a forward: the planner halves the
 * backwards, and one who follows its plan does, too. */
static void test_halved_backwards(void **state)
{
    (void)state;
    const char *const cluster = memory_cluster(20), *const none = "plan.tokens=0";
    const char *const single = run_of_rows("whole", "single", write_cluster("B", 1, ""), none);
    const char *const run = run_of_rows("halved", "chimera", cluster, none);
    const char *const plan = text("%s/plan.json", run);
    const json_t *const planned = read_json(plan);
    assert_int_equal(number(planned, "micro_batches"), 16);
    assert_int_equal(number(planned, "micro_batch_samples"), 1);
    assert_int_equal(json_array_size(json_object_get(planned, "parts")), 8);
    ASSERT_SAME_LINES(run, single, 1e-5, "loss", "grad_norm");
    ASSERT_SAME_LINES(run, single, 0, "label_tokens");
    assert_predicted_tasks(run, 2, 1e9);
    const char *const again =
        run_of_rows("followed", "chimera", cluster, text("plan.file=%s", plan));
    assert_same_adapter(again, run);
    assert_holds("job", read_text(text("%s/config.yaml", again)), "micro_batch: 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_four),
        cmocka_unit_test(test_six),
        cmocka_unit_test(test_halved_backwards),
    };
    return cmocka_run_group_tests_name("strategies by name", tests, NULL, NULL);
}
