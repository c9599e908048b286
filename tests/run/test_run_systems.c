/* Replicas, several pipelines and BP-free devices that run backward: whatever the plan, a run
 * computes what one process computes. */
#include "support.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "strategy/strategy.h"

static const char *job, *eval;

/* A part of a plan by hand: rows of a micro-batch and tenths of the micro-batches. */
struct piece {
    const char *device;
    int pipeline, stage, lo, hi;
    int row_lo, row_hi;
    double micro_lo, micro_hi;
};

enum { PIECES = 12 };

struct layout {
    const char *name, *devices, *strategy;
    int micro_batch; /* rows */
    struct piece pieces[PIECES];
};

static const struct layout layouts[] = {
    {"line",
     "BB",
     "gpipe",
     2,
     {{"gpu0", 0, 0, 0, 3, 0, 2, 0, 1}, {"gpu1", 0, 1, 3, 5, 0, 2, 0, 1}}},
    {"line-1f1b",
     "BBB",
     "pipedream-flush",
     2,
     {{"gpu0", 0, 0, 0, 2, 0, 2, 0, 1},
      {"gpu1", 0, 1, 2, 3, 0, 2, 0, 1},
      {"gpu2", 0, 2, 3, 5, 0, 2, 0, 1}}},
    {"copies",
     "BBB",
     "gpipe",
     4,
     {{"gpu0", 0, 0, 0, 5, 0, 1, 0, 1},
      {"gpu1", 0, 0, 0, 5, 1, 3, 0, 1},
      {"gpu2", 0, 0, 0, 5, 3, 4, 0, 1}}},
    {"two-one",
     "BBB",
     "gpipe",
     4,
     {{"gpu0", 0, 0, 0, 2, 0, 2, 0, 1},
      {"gpu1", 0, 0, 0, 2, 2, 4, 0, 1},
      {"gpu2", 0, 1, 2, 5, 0, 4, 0, 1}}},
    {"one-two",
     "BBB",
     "gpipe",
     4,
     {{"gpu0", 0, 0, 0, 2, 0, 4, 0, 1},
      {"gpu1", 0, 1, 2, 5, 0, 2, 0, 1},
      {"gpu2", 0, 1, 2, 5, 2, 4, 0, 1}}},
    {"uneven",
     "BBBB",
     "gpipe",
     4,
     {{"gpu0", 0, 0, 0, 3, 0, 3, 0, 1},
      {"gpu1", 0, 0, 0, 3, 3, 4, 0, 1},
      {"gpu2", 0, 1, 3, 5, 0, 1, 0, 1},
      {"gpu3", 0, 1, 3, 5, 1, 4, 0, 1}}},
    {"uneven-1f1b",
     "BBBB",
     "dapple",
     4,
     {{"gpu0", 0, 0, 0, 3, 0, 3, 0, 1},
      {"gpu1", 0, 0, 0, 3, 3, 4, 0, 1},
      {"gpu2", 0, 1, 3, 5, 0, 1, 0, 1},
      {"gpu3", 0, 1, 3, 5, 1, 4, 0, 1}}},
    {"groups",
     "BBBB",
     "gpipe",
     2,
     {{"gpu0", 0, 0, 0, 2, 0, 2, 0, 0.5},
      {"gpu1", 0, 1, 2, 5, 0, 2, 0, 0.5},
      {"gpu2", 1, 0, 0, 4, 0, 2, 0.5, 1},
      {"gpu3", 1, 1, 4, 5, 0, 2, 0.5, 1}}},
    /* Of two micro-batches and then one, the last pipelines get none. */
    {"few",
     "BBBB",
     "gpipe",
     4,
     {{"gpu0", 0, 0, 0, 5, 0, 4, 0, 0.25},
      {"gpu1", 1, 0, 0, 5, 0, 4, 0.25, 0.5},
      {"gpu2", 2, 0, 0, 5, 0, 4, 0.5, 0.75},
      {"gpu3", 3, 0, 0, 5, 0, 4, 0.75, 1}}},
    {"mixed",
     "BBBBBB",
     "gpipe",
     4,
     {{"gpu0", 0, 0, 0, 2, 0, 1, 0, 0.5},
      {"gpu1", 0, 0, 0, 2, 1, 4, 0, 0.5},
      {"gpu2", 0, 1, 2, 5, 0, 4, 0, 0.5},
      {"gpu3", 1, 0, 0, 3, 0, 4, 0.5, 1},
      {"gpu4", 1, 1, 3, 5, 0, 3, 0.5, 1},
      {"gpu5", 1, 1, 3, 5, 3, 4, 0.5, 1}}},
    {"chimera-2",
     "BB",
     "chimera",
     2,
     {{"gpu0", 0, 0, 0, 3, 0, 2, 0, 0.5},
      {"gpu1", 0, 1, 3, 5, 0, 2, 0, 0.5},
      {"gpu1", 1, 0, 0, 3, 0, 2, 0.5, 1},
      {"gpu0", 1, 1, 3, 5, 0, 2, 0.5, 1}}},
    {"chimera-4",
     "BBBB",
     "chimera",
     1,
     {{"gpu0", 0, 0, 0, 1, 0, 1, 0, 0.5},
      {"gpu1", 0, 1, 1, 3, 0, 1, 0, 0.5},
      {"gpu2", 0, 2, 3, 4, 0, 1, 0, 0.5},
      {"gpu3", 0, 3, 4, 5, 0, 1, 0, 0.5},
      {"gpu3", 1, 0, 0, 1, 0, 1, 0.5, 1},
      {"gpu2", 1, 1, 1, 3, 0, 1, 0.5, 1},
      {"gpu1", 1, 2, 3, 4, 0, 1, 0.5, 1},
      {"gpu0", 1, 3, 4, 5, 0, 1, 0.5, 1}}},
};

enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* 21 rows in mini-batches of 8: the last one has 5. */
static int set_up(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){.blocks = 5});
    job = write_job("job.yaml", model, write_rows("rows.jsonl", 21, 6, 14, 64), NULL);
    eval = text("data.eval=%s", write_rows("eval.jsonl", 11, 5, 12, 64));
    return 0;
}

static const char *write_plan(const struct layout *layout)
{
    const char *parts = "";
    for (const struct piece *p = layout->pieces; p->device; p++)
        parts =
            text("%s%s\n {\"device\": \"%s\", \"pipeline\": %d, \"stage\": %d, \"blocks\": [%d, "
                 "%d], \"samples\": [%d, %d], \"micro_share\": [%.17g, %.17g]}",
                 parts, *parts ? "," : "", p->device, p->pipeline, p->stage, p->lo, p->hi,
                 p->row_lo, p->row_hi, p->micro_lo, p->micro_hi);
    return write_text(text("plan-%s.json", layout->name),
                      "{\"strategy\": \"%s\", \"micro_batches\": %d, \"micro_batch_samples\": %d, "
                      "\"parts\": [%s]}\n",
                      layout->strategy, 8 / layout->micro_batch, layout->micro_batch, parts);
}

static bool is_there(const struct layout *layout)
{
    const struct hop_strategy *strategy;
    struct hop_error err = {0};
    if (hop_strategy_find(layout->strategy, &strategy, &err) == HOP_OK)
        return true;
    print_message("%s is left out: %s\n", layout->name, err.message);
    return false;
}

static const struct layout *find_layout(const char *name)
{
    for (size_t i = 0; i < LAYOUTS; i++)
        if (strcmp(layouts[i].name, name) == 0)
            return &layouts[i];
    fail_msg("there is no layout %s", name);
    return NULL;
}

static const char *cluster_of(const struct layout *layout)
{
    return text("cluster=%s", write_cluster(layout->devices, 1, NULL));
}

static const char *rows_of(const struct layout *layout)
{
    return text("train.micro_batch=%d", layout->micro_batch);
}

static const char *run_layout(const struct layout *layout, const char *name)
{
    const char *const run = scratch("%s", name);
    const struct process done =
        TRAIN(job, run, text("plan.file=%s", write_plan(layout)), cluster_of(layout),
              rows_of(layout), text("strategy=%s", layout->strategy), eval, "train.epochs=2");
    assert_success(&done);
    return run;
}

/* One process with the same micro-batches. */
static const char *run_single(const char *rows)
{
    const char *const run = scratch("single-%s", strchr(rows, '=') + 1);
    if (file_exists(text("%s/summary.json", run)))
        return run;
    const struct process done = TRAIN(job, run, text("cluster=%s", write_cluster("B", 1, NULL)),
                                      rows, "strategy=single", eval, "train.epochs=2");
    assert_success(&done);
    return run;
}

static double evaluated(const char *run, const char *when)
{
    return number(json_object_get(read_json(text("%s/summary.json", run)), when), "loss");
}

static void compare(const char *run, const char *single)
{
    ASSERT_SAME_LINES(run, single, 1e-5, "loss", "grad_norm");
    ASSERT_SAME_LINES(run, single, 0, "label_tokens", "learning_rate");
    assert_near("loss before", evaluated(run, "eval_before"), evaluated(single, "eval_before"),
                1e-5);
    assert_near("loss after", evaluated(run, "eval_after"), evaluated(single, "eval_after"), 1e-5);
    const double distance = adapter_distance(text("%s/adapter", run), text("%s/adapter", single));
    print_message("%s: the adapter differs by %.2e\n", run, distance);
    if (!(distance < 1e-4))
        fail_msg("%s: the adapter differs by %g, allowed 1e-4", run, distance);
}

/* Two epochs: the smaller last mini-batch too. The tasks of a full step run as scheduled; when they
 * start depends on this machine. */
static void test_any_plan_is_single(void **state)
{
    (void)state;
    static const double any_time = 1e9;
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (!is_there(&layouts[i]))
            continue;
        const char *const run = run_layout(&layouts[i], layouts[i].name);
        assert_int_equal(count_steps(read_metrics(run)), 6);
        compare(run, run_single(rows_of(&layouts[i])));
        assert_predicted_tasks(run, 2, any_time);
    }
}

/* Checkpoints hold the copy of the part that the plan lists first. The order of the parts is all
 * that differs here, and the sum of two numbers has no order: either copy must have the same bytes.
 */
static void test_copies_are_equal(void **state)
{
    (void)state;
    static const struct layout pair = {"pair",
                                       "BBB",
                                       "gpipe",
                                       4,
                                       {{"gpu0", 0, 0, 0, 2, 0, 3, 0, 1},
                                        {"gpu1", 0, 0, 0, 2, 3, 4, 0, 1},
                                        {"gpu2", 0, 1, 2, 5, 0, 4, 0, 1}}};
    struct layout swapped = pair;
    swapped.name = "swapped";
    swapped.pieces[0] = pair.pieces[1];
    swapped.pieces[1] = pair.pieces[0];
    assert_same_adapter(run_layout(&pair, "pair"), run_layout(&swapped, "swapped"));
}

/* Sums of gradients and losses have an order: the same plan gives the same bytes. */
static void test_same_bytes(void **state)
{
    (void)state;
    const char *const first = run_layout(find_layout("copies"), "copies-1");
    const char *const second = run_layout(find_layout("copies"), "copies-2");
    assert_same_adapter(first, second);
    ASSERT_SAME_LINES(first, second, 0, "loss", "grad_norm");
}

static void test_kill_and_resume(void **state)
{
    (void)state;
    const struct layout *const layout = find_layout("mixed");
    const char *const whole = scratch("whole"), *const parts = scratch("parts");
    const char *const metrics = text("%s/metrics.jsonl", parts);
    const char *const settings[] = {text("plan.file=%s", write_plan(layout)),
                                    cluster_of(layout),
                                    rows_of(layout),
                                    "strategy=gpipe",
                                    "train.save_every=20",
                                    "train.max_steps=60",
                                    NULL};
    const struct process all = train(job, whole, settings);
    assert_success(&all);
    struct process process = start_train(job, parts, settings);
    while (!file_exists(metrics) || !strstr(read_text(metrics), "\"step\":27,"))
        if (wait_program(&process, 2e-3))
            fail_msg("ended with status %d\n%s", process.status, process.err);
    kill_tree(&process);
    const char *const again[] = {settings[0], settings[1], settings[2], settings[3],
                                 settings[4], settings[5], "--resume",  NULL};
    const struct process rest = train(job, parts, again);
    assert_success(&rest);
    assert_holds("resume", rest.err, "continuing after step");
    assert_same_adapter(parts, whole);
    ASSERT_SAME_LINES(parts, whole, 0, "loss", "learning_rate", "grad_norm");
}

/* BP-free devices of a system that trains all of them by backprop. */
static void test_backward_on_bp_free_devices(void **state)
{
    (void)state;
    const char *const run = scratch("first-order");
    const struct process done =
        TRAIN(job, run, text("cluster=%s", write_cluster("NBN", 1, NULL)), "strategy=gpipe", eval,
              "train.micro_batch=2", "train.epochs=2");
    assert_success(&done);
    const json_t *const parts = json_object_get(read_json(text("%s/plan.json", run)), "parts");
    assert_int_equal(json_array_size(parts), 3);
    compare(run, run_single("train.micro_batch=2"));
}

/* Messages to a part with no rows of the last micro-batch are there, with nothing in them; ranks
 * that find no model files get all they hold. */
static void test_copies_of_sent_weights(void **state)
{
    (void)state;
    const struct layout *const layout = find_layout("one-two");
    const char *const run = scratch("sent");
    const struct process done =
        TRAIN(job, run, text("plan.file=%s", write_plan(layout)), rows_of(layout), "strategy=gpipe",
              text("cluster=%s", write_cluster(layout->devices, 1, "share_files: false")), eval,
              "train.epochs=2");
    assert_success(&done);
    compare(run, run_single(rows_of(layout)));
}

/* Every row is evaluated as a sequence of its own and one for each candidate: the heads share the
 * sequences of a micro-batch, wherever that cuts. */
static const char *rows_with_candidates(void)
{
    static const char *const animals[] = {"small cat", "small dog", "small old bird"};
    const char *rows = "";
    for (int i = 0; i < 22; i++)
        rows = text("%s{\"prompt\": \"It %s the %s \", \"completion\": \"%s\"}\n", rows,
                    i % 2 ? "is" : "was not", i % 3 ? "animal" : "very old animal of the house",
                    animals[i % 3]);
    return write_text("candidates.jsonl", "%s", rows);
}

static const json_t *evaluate(const char *with, const char *labels, const char *held_out,
                              const char *init, const char *cluster, const char *strategy,
                              const char *plan)
{
    const struct process done =
        RUN("eval", with, "--json", "--set", labels, "--set", held_out, "--set", init, "--set",
            cluster, "--set", strategy, "--set", plan, "--set", "train.micro_batch=4", "--set",
            "train.dtype=f32");
    assert_success(&done);
    return read_json(write_text("evaluation.json", "%s", done.out));
}

static void test_candidates(void **state)
{
    (void)state;
    static const char *const plan =
        "{\"strategy\": \"gpipe\", \"micro_batches\": 2, \"micro_batch_samples\": 4, \"parts\": ["
        "{\"device\": \"gpu0\", \"stage\": 0, \"blocks\": [0, 2], \"samples\": [0, 4]},"
        "{\"device\": \"gpu1\", \"stage\": 1, \"blocks\": [2, 6], \"samples\": [0, 1]},"
        "{\"device\": \"gpu2\", \"stage\": 1, \"blocks\": [2, 6], \"samples\": [1, 4]}]}";
    const char *const model = HOP_SOURCE_DIR "/models/wordnet-3m";
    if (!file_exists(text("%s/tokenizer.json", model))) {
        print_message("skip: %s is not there\n", model);
        skip();
    }
    const char *const rows = rows_with_candidates();
    const char *const with = write_job("candidates.yaml", model, rows, NULL);
    const char *const labels = "data.labels=[small cat, small dog, small old bird]";
    const char *const held_out = text("data.eval=%s", rows);
    const char *const learnt = scratch("learnt");
    const char *const one = text("cluster=%s", write_cluster("B", 1, NULL));
    const struct process done = TRAIN(with, learnt, labels, "train.micro_batch=4", one,
                                      "train.epochs=10", "train.dtype=f32", "strategy=single");
    assert_success(&done);
    const json_t *const whole =
        evaluate(with, labels, held_out, text("lora.init=%s/adapter", learnt), one,
                 "strategy=single", "plan.devices=all");
    const json_t *const shared =
        evaluate(with, labels, held_out, text("lora.init=%s/adapter", learnt),
                 text("cluster=%s", write_cluster("BBB", 1, NULL)), "strategy=gpipe",
                 text("plan.file=%s", write_text("heads.json", "%s", plan)));
    print_message("loss %g, accuracy %g\n", number(whole, "loss"), number(whole, "accuracy"));
    /* Not one answer for all: scores in wrong places would show. */
    assert_true(number(whole, "accuracy") > 0.5);
    assert_near("loss", number(shared, "loss"), number(whole, "loss"), 1e-5);
    assert_near("accuracy", number(shared, "accuracy"), number(whole, "accuracy"), 0);
    assert_near("macro-F1", number(shared, "macro_f1"), number(whole, "macro_f1"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_plan_is_single),
        cmocka_unit_test(test_copies_are_equal),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_kill_and_resume),
        cmocka_unit_test(test_backward_on_bp_free_devices),
        cmocka_unit_test(test_copies_of_sent_weights),
        cmocka_unit_test(test_candidates),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
