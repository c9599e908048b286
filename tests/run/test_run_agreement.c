/* The properties every run has: a pipeline computes what one process computes, whatever the split,
 * the number of probes and of micro-batches; the same seed gives the same bytes. */
#include "support.h"

#include <math.h>
#include <stdio.h>

static const char *job, *one, *pair;

/* 21 rows in mini-batches of 8: the last one has 5, in micro-batches of which the last is smaller.
 */
static int set_up(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){.blocks = 5});
    job = write_job("job.yaml", model, write_rows("rows.jsonl", 21, 6, 14, 64), NULL);
    one = text("cluster=%s", write_cluster("B", 1, NULL));
    pair = text("cluster=%s", write_cluster("NB", 1, NULL));
    return 0;
}

/* HybridOP over ranks against one process with the same blocks marked zeroth-order. */
static void test_pipeline_is_single(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *blocks;
        int zeroth, probes, micro_batch;
    } cases[] = {
        {"NB", "{npu0: 2, gpu0: 3}", 2, 1, 2},
        {"NB", "{npu0: 4, gpu0: 1}", 4, 3, 8},
        {"NNB", "{npu0: 1, npu1: 2, gpu0: 2}", 3, 3, 3},
        {"NBB", "{npu0: 1, gpu0: 1, gpu1: 3}", 1, 2, 1},
        {"NNBB", "{npu0: 1, npu1: 1, gpu0: 2, gpu1: 1}", 2, 3, 2},
        {"NNNB", "{npu0: 1, npu1: 1, npu2: 1, gpu0: 2}", 3, 5, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const many = scratch("pipeline-%zu", i), *const single =
                                                                 scratch("single-%zu", i);
        const char *const probes = text("zo.probes=%d", cases[i].probes);
        const char *const rows = text("train.micro_batch=%d", cases[i].micro_batch);
        const struct process a =
            TRAIN(job, many, probes, rows, text("plan.blocks=%s", cases[i].blocks),
                  text("cluster=%s", write_cluster(cases[i].devices, 1, NULL)));
        const struct process b = TRAIN(job, single, probes, rows, one, "strategy=single",
                                       text("zo.blocks=[0, %d]", cases[i].zeroth));
        assert_success(&a);
        assert_success(&b);
        assert_int_equal(count_steps(read_metrics(many)), 3);
        ASSERT_SAME_LINES(many, single, 0, "loss", "zo_g_mean", "zo_g_std", "grad_norm",
                          "zo_grad_norm", "label_tokens");
        assert_same_adapter(many, single);
    }
}

/* Devices with two threads: the same threads give the same bytes, others the same numbers. */
static void test_threads(void **state)
{
    (void)state;
    const struct process a =
        TRAIN(job, scratch("threads-pipeline"), text("cluster=%s", write_cluster("NB", 2, NULL)),
              "plan.blocks={npu0: 2, gpu0: 3}");
    assert_success(&a);
    for (int threads = 1; threads <= 2; threads++) {
        const struct process b =
            TRAIN(job, scratch("threads-%d", threads), "strategy=single", "zo.blocks=[0, 2]",
                  text("cluster=%s", write_cluster("B", threads, NULL)));
        assert_success(&b);
    }
    assert_same_adapter(scratch("threads-pipeline"), scratch("threads-2"));
    const double distance =
        adapter_distance(scratch("threads-1/adapter"), scratch("threads-2/adapter"));
    print_message("adapters of one and of two threads differ by %.2e\n", distance);
    if (!(distance < 1e-4))
        fail_msg("adapters of one and of two threads differ by %g, allowed 1e-4", distance);
}

/* Without BP-free devices the number of micro-batches is only another order of summation. */
static void test_micro_batches(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *setting;
    } cases[] = {
        {"B", "train.micro_batch=1"},   {"B", "train.micro_batch=3"},
        {"BB", "train.micro_batch=2"},  {"BBB", "train.micro_batch=5"},
        {"BB", "plan.micro_batches=3"}, {"BBBB", "plan.micro_batches=8"},
    };
    const char *const whole = scratch("whole");
    const struct process reference =
        TRAIN(job, whole, one, "strategy=single", "train.micro_batch=8");
    assert_success(&reference);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const run = scratch("micro-batches-%zu", i);
        const struct process done =
            TRAIN(job, run, cases[i].setting,
                  text("cluster=%s", write_cluster(cases[i].devices, 1, NULL)));
        assert_success(&done);
        ASSERT_SAME_LINES(run, whole, 1e-5, "loss", "grad_norm");
        const double distance =
            adapter_distance(text("%s/adapter", run), text("%s/adapter", whole));
        if (!(distance < 1e-4))
            fail_msg("%s %s: the adapter differs by %g, allowed 1e-4", cases[i].devices,
                     cases[i].setting, distance);
    }
}

/* The plan follows plan.micro_batches, and the trace shows as many. */
static void test_micro_batch_override(void **state)
{
    (void)state;
    const char *const run = scratch("override");
    const struct process done = TRAIN(job, run, pair, "plan.micro_batches=3");
    assert_success(&done);
    const json_t *const plan = read_json(text("%s/plan.json", run));
    assert_int_equal(number(plan, "micro_batches"), 3);
}

/* The forward difference has an error of first order: halving epsilon halves it. */
static void test_epsilon(void **state)
{
    (void)state;
    static const char *const epsilons[] = {"0.02", "0.01", "0.005"};
    double g[3];
    for (int i = 0; i < 3; i++) {
        const char *const run = scratch("epsilon-%d", i);
        const struct process done = TRAIN(job, run, pair, text("zo.epsilon=%s", epsilons[i]),
                                          "train.max_steps=1", "zo.probes=4");
        assert_success(&done);
        g[i] = number(step_line(read_metrics(run), 1), "zo_g_mean");
    }
    const double first = fabs(g[0] - g[1]), second = fabs(g[1] - g[2]);
    print_message("g at epsilon 0.02, 0.01, 0.005: %.6f %.6f %.6f\n", g[0], g[1], g[2]);
    if (!(second < 0.65 * first && second > 0.35 * first))
        fail_msg("differences %g and %g of zo_g_mean; the second should be half the first", first,
                 second);
}

/* The first step measures how much of g is rounding: little in f32, much more in bf16. */
static void test_rounding_floor(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "bf16"};
    double floor[2], spread[2];
    for (int i = 0; i < 2; i++) {
        const char *const run = scratch("floor-%s", types[i]);
        const struct process done = TRAIN(job, run, pair, text("train.dtype=%s", types[i]),
                                          "train.max_steps=2", "zo.epsilon=1e-2", "zo.probes=4");
        assert_success(&done);
        const json_t *const first = step_line(read_metrics(run), 1);
        floor[i] = number(first, "zo_g_floor");
        spread[i] = number(first, "zo_g_std");
        assert_null(json_object_get(step_line(read_metrics(run), 2), "zo_g_floor"));
        print_message("%s: zo_g_floor %.3g, zo_g_std %.3g\n", types[i], floor[i], spread[i]);
    }
    if (!(floor[0] > 0 && floor[0] < 0.05 * spread[0]))
        fail_msg("f32: floor %g, std %g; expected above 0 and far below the std", floor[0],
                 spread[0]);
    if (!(floor[1] > 20 * floor[0]))
        fail_msg("floor %g in bf16, %g in f32; expected much more in bf16", floor[1], floor[0]);
}

static void test_seeds(void **state)
{
    (void)state;
    static const char *const seeds[] = {"train.seed=5", "train.seed=5", "train.seed=6"};
    for (int i = 0; i < 3; i++) {
        const struct process done = TRAIN(job, scratch("seed-%d", i), pair, seeds[i]);
        assert_success(&done);
    }
    assert_same_adapter(scratch("seed-0"), scratch("seed-1"));
    ASSERT_SAME_LINES(scratch("seed-0"), scratch("seed-1"), 0, "loss", "grad_norm", "zo_grad_norm",
                      "zo_g_mean", "zo_g_std");
    const double distance = adapter_distance(scratch("seed-2/adapter"), scratch("seed-0/adapter"));
    if (!(distance > 0.1))
        fail_msg("adapters of two seeds differ by %g only", distance);
}

/* Sampled rows, too, come in the order of the seed: with another seed the first loss differs. */
static void test_order(void **state)
{
    (void)state;
    const double five = number(step_line(read_metrics(scratch("seed-0")), 1), "loss");
    const double six = number(step_line(read_metrics(scratch("seed-2")), 1), "loss");
    if (five == six)
        fail_msg("the first loss is %.17g with either seed", five);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_is_single),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_micro_batch_override),
        cmocka_unit_test(test_epsilon),
        cmocka_unit_test(test_rounding_floor),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
