/* Every way to estimate the gradient of BP-free devices: many ranks compute what one process does,
 * the estimators agree where they should, and metrics.jsonl tells how good they are. */
#include "support.h"

#include <math.h>
#include <string.h>

#define PROJECTIONS "lora.targets=[q_proj,v_proj,o_proj,down_proj]"

static const char *job, *untied, *one;

/* 21 rows in mini-batches of 8: the last one has 5, in micro-batches of which the last is smaller.
 */
static int set_up(void **state)
{
    (void)state;
    const char *const rows = write_rows("rows.jsonl", 21, 6, 14, 64);
    job = write_job("job.yaml", write_model("model", (struct model){.blocks = 5}), rows, NULL);
    untied =
        write_job("untied.yaml", write_model("untied", (struct model){.blocks = 5, .untied = true}),
                  rows, NULL);
    one = text("cluster=%s", write_cluster("B", 1, NULL));
    return 0;
}

struct way {
    const char *name, *settings[5];
};

static const struct way ways[] = {
    {"central", {"zo.estimator=central", "zo.probe_batch=2"}},
    {"boundary", {"zo.estimator=boundary", "zo.probe_batch=2"}},
    {"boundary-bf16", {"zo.estimator=boundary", "train.dtype=bf16"}},
    {"feedback", {"zo.estimator=feedback"}},
    {"feedback-all", {"zo.estimator=feedback", "zo.feedback_blocks=0"}},
    {"per-sample", {"zo.directions=per-sample"}},
    {"rademacher", {"zo.distribution=rademacher"}},
    {"boundary-per-sample",
     {"zo.estimator=boundary", "zo.directions=per-sample", "zo.distribution=rademacher"}},
    {"boundary-cores", {"zo.estimator=boundary", "lora.core=3"}},
    {"feedback-cores",
     {"zo.estimator=feedback", "zo.feedback_blocks=2", "lora.core=4", "lora.core_blocks=all"}},
    {"exit", {"zo.early_exit=2"}},
    {"exit-full", {"zo.early_exit=3", "zo.exit_base=full-model", "zo.probe_batch=2"}},
    {"exit-central", {"zo.early_exit=2", "zo.estimator=central", "zo.probe_batch=3"}},
    {"exit-per-sample", {"zo.early_exit=2", "zo.directions=per-sample", "zo.exit_base=full-model"}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static struct process run_way(const struct way *way, const char *whose, const char *run,
                              const char *first, const char *second, const char *third)
{
    const char *settings[10] = {first, second, third, PROJECTIONS};
    int n = 4;
    for (int i = 0; i < 5 && way->settings[i]; i++)
        settings[n++] = way->settings[i];
    struct process done = train(whose, run, settings);
    assert_success(&done);
    return done;
}

static bool has_probes(const struct way *way)
{
    return strncmp(way->name, "feedback", strlen("feedback")) != 0;
}

static void assert_same_run(const struct way *way, const char *many, const char *single)
{
    ASSERT_SAME_LINES(many, single, 0, "loss", "grad_norm", "zo_grad_norm");
    if (has_probes(way))
        ASSERT_SAME_LINES(many, single, 0, "zo_g_mean", "zo_g_std", "zo_g_stderr");
    if (strncmp(way->name, "exit", 4) == 0)
        ASSERT_SAME_LINES(many, single, 0, "zo_exit_g_mean", "zo_exit_g_std", "zo_exit_offset");
    assert_same_adapter(many, single);
}

/* Against one process with the same blocks marked zeroth-order. */
static void test_pipeline_is_single(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *blocks;
        int zeroth;
    } splits[] = {
        {"NB", "{npu0: 2, gpu0: 3}", 2},
        {"NNB", "{npu0: 1, npu1: 2, gpu0: 2}", 3},
        {"NBB", "{npu0: 3, gpu0: 1, gpu1: 1}", 3},
        {"NNBB", "{npu0: 1, npu1: 1, gpu0: 2, gpu1: 1}", 2},
    };
    for (int i = 0; i < WAYS; i++) {
        const char *const whose = i % 2 ? job : untied;
        const char *const single = scratch("single-%s", ways[i].name);
        const char *const many = scratch("many-%s", ways[i].name);
        const char *const cluster =
            write_cluster(splits[i % 4].devices, 1, i % 3 ? NULL : "share_files: false");
        run_way(&ways[i], whose, single, one, "strategy=single",
                text("zo.blocks=[0, %d]", splits[i % 4].zeroth));
        run_way(&ways[i], whose, many, text("cluster=%s", cluster),
                text("plan.blocks=%s", splits[i % 4].blocks), "zo.probes=3");
        print_message("%s over %s\n", ways[i].name, splits[i % 4].devices);
        assert_same_run(&ways[i], many, single);
    }
}

/* The tasks of a step are those of the simulated schedule, in its order. */
static void test_task_order(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++)
        assert_predicted_tasks(scratch("many-%s", ways[i].name), 2, INFINITY);
}

/* Every way is an estimate of its own, and none leaves the BP-free half as it is. */
static void test_ways_differ(void **state)
{
    (void)state;
    double norm[WAYS];
    for (int i = 0; i < WAYS; i++) {
        norm[i] =
            number(step_line(read_metrics(scratch("many-%s", ways[i].name)), 2), "zo_grad_norm");
        assert_true(norm[i] > 0);
        for (int k = 0; k < i; k++)
            if (fabs(norm[i] / norm[k] - 1) < 1e-6)
                fail_msg("%s and %s have one estimate", ways[i].name, ways[k].name);
    }
}

static double first_mean(const char *estimator, const char *epsilon, const char *key)
{
    const char *const run = scratch("agree-%s-%s", estimator, epsilon);
    const struct process done =
        TRAIN(job, run, text("cluster=%s", write_cluster("NB", 1, NULL)),
              text("zo.estimator=%s", estimator), text("zo.epsilon=%s", epsilon),
              "train.max_steps=1", "zo.probes=4", "train.dtype=f32");
    assert_success(&done);
    return number(step_line(read_metrics(run), 1), key);
}

/* One-sided differences are wrong by the order of epsilon, two-sided ones by its square. */
static void test_estimators_agree(void **state)
{
    (void)state;
    static const char *const epsilons[] = {"0.08", "0.04"};
    const double exact = first_mean("boundary", "0.01", "zo_g_mean");
    double difference[2], central[2];
    for (int i = 0; i < 2; i++) {
        difference[i] = fabs(first_mean("difference", epsilons[i], "zo_g_mean") - exact);
        central[i] = fabs(first_mean("central", epsilons[i], "zo_g_mean") - exact);
        print_message("epsilon %s: boundary %.6f, difference off by %.2e, central by %.2e\n",
                      epsilons[i], exact, difference[i], central[i]);
    }
    if (!(difference[1] < 0.6 * difference[0] && difference[1] > 0.4 * difference[0]))
        fail_msg("errors %g and %g of difference; the second should be half the first",
                 difference[0], difference[1]);
    if (!(central[1] < 0.35 * central[0] && central[0] < difference[0]))
        fail_msg("errors %g and %g of central; the second should be a quarter of the first",
                 central[0], central[1]);
}

/* The standard error belongs to the spread of all probes of the step. */
static void test_standard_error(void **state)
{
    (void)state;
    /* 4 micro-batches of 2 rows in step 1 with 3 probes. */
    const json_t *const shared = step_line(read_metrics(scratch("many-boundary")), 1);
    assert_near("standard error", number(shared, "zo_g_stderr"),
                number(shared, "zo_g_std") / sqrt(4 * 3), 1e-12);
    const json_t *const sampled = step_line(read_metrics(scratch("many-per-sample")), 1);
    assert_near("standard error", number(sampled, "zo_g_stderr"),
                number(sampled, "zo_g_std") / sqrt(8 * 3), 1e-12);
}

/* Differences have a rounding floor at the first step; the others have nothing to measure it by. */
static void test_floors(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        json_t *const metrics = read_metrics(scratch("many-%s", ways[i].name));
        const bool difference =
            has_probes(&ways[i]) && strncmp(ways[i].name, "boundary", strlen("boundary")) != 0;
        const json_t *const floor = json_object_get(step_line(metrics, 1), "zo_g_floor");
        assert_int_equal(floor != NULL, difference);
        assert_null(json_object_get(step_line(metrics, 2), "zo_g_floor"));
        if (difference)
            assert_true(json_number_value(floor) > 0 &&
                        json_number_value(floor) < 0.1 * number(step_line(metrics, 1), "zo_g_std"));
    }
}

/* An epsilon that bf16 cannot see. */
static void test_warning(void **state)
{
    (void)state;
    static const char *const estimators[] = {"difference", "central", "boundary"};
    for (int i = 0; i < 3; i++) {
        const struct process done =
            TRAIN(job, scratch("rounded-%d", i), text("cluster=%s", write_cluster("NB", 1, NULL)),
                  "zo.epsilon=1e-5", "train.max_steps=1", "train.dtype=bf16",
                  text("zo.estimator=%s", estimators[i]));
        assert_success(&done);
        if (strcmp(estimators[i], "boundary") == 0) {
            assert_null(strstr(done.err, "rounding"));
            continue;
        }
        assert_holds("warning", done.err, "barely rise above their rounding floor");
        assert_holds("remedy", done.err, "raise zo.epsilon, use train.dtype f32");
        assert_holds("remedy", done.err, "zo.estimator boundary");
    }
}

static const json_t *offset_line(const char *estimator, const char *base, double epsilon)
{
    const char *const run = scratch("offset-%s-%s-%g", estimator, base, epsilon);
    const struct process done =
        TRAIN(job, run, text("cluster=%s", write_cluster("NNB", 1, NULL)), "zo.early_exit=3",
              text("zo.estimator=%s", estimator), text("zo.exit_base=%s", base),
              text("zo.epsilon=%g", epsilon), "train.max_steps=1",
              "plan.blocks={npu0: 1, npu1: 2, gpu0: 2}");
    assert_success(&done);
    const json_t *const line = step_line(read_metrics(run), 1);
    assert_true(number(line, "zo_exit_g_std") > 0);
    return line;
}

/* Against the full model every derivative has the offset C / epsilon of its micro-batch, and all
 * say what C is. */
static void test_exit_offset(void **state)
{
    (void)state;
    const double epsilon = 0.02;
    const json_t *const own = offset_line("difference", "own", epsilon);
    const json_t *const full = offset_line("difference", "full-model", epsilon);
    const double offset = number(own, "zo_exit_offset"), mean = number(own, "zo_exit_g_mean");
    assert_true(fabs(offset) > 1e-3);
    /* Sums over the four micro-batches. */
    assert_near("offset of the mean", (number(full, "zo_exit_g_mean") - mean) * epsilon * 4, offset,
                1e-3);
    assert_near("offset by exit probes", number(full, "zo_exit_offset"),
                offset + mean * epsilon * 4, 1e-3);
    /* The mean of both sides is off by the curvature, which goes with the square of epsilon. */
    double error[2];
    for (int i = 0; i < 2; i++) {
        const json_t *const pairs = offset_line("central", "own", i ? epsilon / 2 : epsilon);
        error[i] = fabs(number(pairs, "zo_exit_offset") - offset);
    }
    print_message("offset %.6f, by pairs off by %.2e and %.2e\n", offset, error[0], error[1]);
    assert_near("error of half the epsilon", error[1], error[0] / 4, 0.1);
}

/* Half a run and the rest of it leave the bytes of a whole one. */
static void test_resume(void **state)
{
    (void)state;
    static const struct way resumed[] = {
        {"boundary", {"zo.estimator=boundary", "zo.directions=per-sample"}},
        {"exit", {"zo.early_exit=2", "zo.exit_base=full-model"}},
        {"feedback", {"zo.estimator=feedback"}},
    };
    const char *const cluster = text("cluster=%s", write_cluster("NNBB", 1, NULL));
    for (size_t i = 0; i < sizeof resumed / sizeof *resumed; i++) {
        const char *const whole = scratch("whole-%s", resumed[i].name);
        const char *const parts = scratch("parts-%s", resumed[i].name);
        run_way(&resumed[i], job, whole, cluster, "train.max_steps=5", "train.save_every=2");
        run_way(&resumed[i], job, parts, cluster, "train.max_steps=3", "train.save_every=2");
        const struct process rest =
            run_way(&resumed[i], job, parts, cluster, "train.max_steps=5", "--resume");
        assert_holds("resume", rest.err, "continuing after step 3");
        assert_same_adapter(parts, whole);
        assert_same_file(text("%s/checkpoint-5/optimizer.safetensors", parts),
                         text("%s/checkpoint-5/optimizer.safetensors", whole));
    }
}

/* Without zo.learning_rate: a tenth for estimates from probes, the same for feedback. */
static void test_rates(void **state)
{
    (void)state;
    const json_t *const probed = step_line(read_metrics(scratch("many-boundary")), 2);
    const json_t *const fed = step_line(read_metrics(scratch("many-feedback")), 2);
    assert_true(number(fed, "learning_rate") > 0);
    assert_near("rate of probes", number(probed, "zo_learning_rate"),
                number(probed, "learning_rate") / 10, 1e-12);
    assert_near("rate of feedback", number(fed, "zo_learning_rate"), number(fed, "learning_rate"),
                1e-12);
}

static const char *chosen_estimator(const char *devices, const char *targets, const char *more)
{
    const struct process plan = RUN("plan", job, "--json", "--set", targets, "--set", more, "--set",
                                    text("cluster=%s", write_cluster(devices, 1, NULL)));
    assert_success(&plan);
    json_t *const object = json_loads(plan.out, 0, NULL);
    const char *const name = text("%s", json_string_value(json_object_get(object, "estimator")));
    json_decref(object);
    return name;
}

/* Feedback, unless the job asks for probes, has no adapter for it, or no board gives a gradient. */
static void test_choice(void **state)
{
    (void)state;
    static const char plain[] = "lora.targets=[q_proj,v_proj]", nothing[] = "train.seed=1";
    assert_string_equal(chosen_estimator("NB", PROJECTIONS, nothing), "feedback");
    assert_string_equal(chosen_estimator("NB", "lora.targets=[o_proj]", nothing), "feedback");
    assert_string_equal(chosen_estimator("NB", plain, nothing), "difference");
    assert_string_equal(chosen_estimator("NB", PROJECTIONS, "zo.probes=3"), "difference");
    assert_string_equal(chosen_estimator("NB", PROJECTIONS, "zo.epsilon=1e-3"), "difference");
    assert_string_equal(chosen_estimator("NB", PROJECTIONS, "zo.estimator=central"), "central");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_is_single),
        cmocka_unit_test(test_task_order),
        cmocka_unit_test(test_ways_differ),
        cmocka_unit_test(test_estimators_agree),
        cmocka_unit_test(test_standard_error),
        cmocka_unit_test(test_floors),
        cmocka_unit_test(test_warning),
        cmocka_unit_test(test_exit_offset),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
