/* Tensor shards: a gang computes what one process computes, however it is cut. The model has 5
 * blocks of 4 query heads on 2 key/value heads and 72 feed-forward columns. */
#include "support.h"

#include <signal.h>
#include <string.h>

static const char *job, *eval;

/* A part of a plan by hand: rows of a micro-batch and a share of tensors. */
struct piece {
    const char *device;
    int stage, lo, hi;
    int row_lo, row_hi;
    double tensor_lo, tensor_hi;
};

enum { PIECES = 8 };

struct layout {
    const char *name, *devices;
    struct piece pieces[PIECES];
};

static const struct layout layouts[] = {
    {"pair", "BB", {{"gpu0", 0, 0, 5, 0, 4, 0, 0.5}, {"gpu1", 0, 0, 5, 0, 4, 0.5, 1}}},
    {"uneven", "BB", {{"gpu0", 0, 0, 5, 0, 4, 0.7, 1}, {"gpu1", 0, 0, 5, 0, 4, 0, 0.7}}},
    /* Two key/value heads for three shards: groups are cut. */
    {"three",
     "BBB",
     {{"gpu0", 0, 0, 5, 0, 4, 0, 1 / 3.0},
      {"gpu1", 0, 0, 5, 0, 4, 1 / 3.0, 2 / 3.0},
      {"gpu2", 0, 0, 5, 0, 4, 2 / 3.0, 1}}},
    {"three-uneven",
     "BBB",
     {{"gpu0", 0, 0, 5, 0, 4, 0, 0.25},
      {"gpu1", 0, 0, 5, 0, 4, 0.25, 0.8},
      {"gpu2", 0, 0, 5, 0, 4, 0.8, 1}}},
    /* Shards take hidden states from, and hand them to, parts with other shares. */
    {"behind",
     "BBB",
     {{"gpu0", 0, 0, 2, 0, 4, 0, 1},
      {"gpu1", 1, 2, 5, 0, 4, 0, 0.5},
      {"gpu2", 1, 2, 5, 0, 4, 0.5, 1}}},
    {"two-three",
     "BBBBB",
     {{"gpu0", 0, 0, 2, 0, 4, 0, 0.6},
      {"gpu1", 0, 0, 2, 0, 4, 0.6, 1},
      {"gpu2", 1, 2, 5, 0, 4, 0, 0.25},
      {"gpu3", 1, 2, 5, 0, 4, 0.25, 0.5},
      {"gpu4", 1, 2, 5, 0, 4, 0.5, 1}}},
    /* Copies of a block, whole or cut in other places, add up what they have in common. */
    {"beside-whole",
     "BBB",
     {{"gpu0", 0, 0, 5, 0, 1, 0, 1},
      {"gpu1", 0, 0, 5, 1, 4, 0, 0.5},
      {"gpu2", 0, 0, 5, 1, 4, 0.5, 1}}},
    {"around-whole",
     "BBB",
     {{"gpu0", 0, 0, 5, 1, 4, 0.5, 1},
      {"gpu1", 0, 0, 5, 0, 1, 0, 1},
      {"gpu2", 0, 0, 5, 1, 4, 0, 0.5}}},
    {"beside-gang",
     "BBBB",
     {{"gpu0", 0, 0, 5, 0, 2, 0, 0.5},
      {"gpu1", 0, 0, 5, 0, 2, 0.5, 1},
      {"gpu2", 0, 0, 5, 2, 4, 0, 0.2},
      {"gpu3", 0, 0, 5, 2, 4, 0.2, 1}}},
};

enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static const char some[] = "lora.targets=[q_proj, v_proj]";
static const char all[] = "lora.targets=[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
                          "down_proj]";

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
        parts = text("%s%s\n {\"device\": \"%s\", \"stage\": %d, \"blocks\": [%d, %d], "
                     "\"samples\": [%d, %d], \"tensor\": [%.17g, %.17g]}",
                     parts, *parts ? "," : "", p->device, p->stage, p->lo, p->hi, p->row_lo,
                     p->row_hi, p->tensor_lo, p->tensor_hi);
    return write_text(text("plan-%s.json", layout->name),
                      "{\"strategy\": \"gpipe\", \"micro_batches\": 2, \"micro_batch_samples\": 4, "
                      "\"parts\": [%s]}\n",
                      parts);
}

static const struct layout *find_layout(const char *name)
{
    for (size_t i = 0; i < LAYOUTS; i++)
        if (strcmp(layouts[i].name, name) == 0)
            return &layouts[i];
    fail_msg("there is no layout %s", name);
    return NULL;
}

/* `extra` are further lines of the cluster file. */
static const char *run_layout(const struct layout *layout, const char *name, const char *targets,
                              const char *setting, const char *extra)
{
    const char *const run = scratch("%s", name);
    const struct process done = TRAIN(
        job, run, text("plan.file=%s", write_plan(layout)),
        text("cluster=%s", write_cluster(layout->devices, 1, extra)), "train.micro_batch=4",
        "strategy=gpipe", "train.log_grad_norms=true", "train.epochs=2", eval, targets, setting);
    assert_success(&done);
    return run;
}

/* One process with the same micro-batches. */
static const char *run_single(const char *name, const char *targets, const char *setting)
{
    const char *const run = scratch("single-%s", name);
    if (file_exists(text("%s/summary.json", run)))
        return run;
    const struct process done = TRAIN(
        job, run, text("cluster=%s", write_cluster("B", 1, NULL)), "train.micro_batch=4",
        "strategy=single", "train.log_grad_norms=true", "train.epochs=2", eval, targets, setting);
    assert_success(&done);
    return run;
}

static double evaluated(const char *run, const char *when)
{
    return number(json_object_get(read_json(text("%s/summary.json", run)), when), "loss");
}

/* Gradient norms of every tensor of a step. Some of them begin at 0. */
static void compare_norms(const char *run, const char *single, int step, double bound)
{
    const json_t *const norms = json_object_get(step_line(read_metrics(run), step), "grad_norms");
    json_t *const expected = json_object_get(step_line(read_metrics(single), step), "grad_norms");
    const char *name;
    json_t *value;
    assert_true(json_object_size(expected) > 0);
    json_object_foreach(expected, name, value)
    {
        const double norm = number(norms, name), wanted = json_number_value(value);
        if (!(norm >= wanted * (1 - bound) - 1e-9 && norm <= wanted * (1 + bound) + 1e-9))
            fail_msg("%s, step %d: gradient norm of %s is %g, expected %g", run, step, name, norm,
                     wanted);
    }
}

static void compare(const char *run, const char *single)
{
    assert_int_equal(count_steps(read_metrics(run)), 6);
    ASSERT_SAME_LINES(run, single, 1e-5, "loss", "grad_norm");
    ASSERT_SAME_LINES(run, single, 0, "label_tokens", "learning_rate");
    compare_norms(run, single, 1, 1e-5);
    compare_norms(run, single, 4, 1e-4);
    assert_near("loss before", evaluated(run, "eval_before"), evaluated(single, "eval_before"),
                1e-5);
    assert_near("loss after", evaluated(run, "eval_after"), evaluated(single, "eval_after"), 1e-5);
    const double distance = adapter_distance(text("%s/adapter", run), text("%s/adapter", single));
    print_message("%s: the adapter differs by %.2e\n", run, distance);
    if (!(distance < 1e-4))
        fail_msg("%s: the adapter differs by %g, allowed 1e-4", run, distance);
}

/* Two epochs: the smaller last mini-batch too. */
static void test_any_gang_is_single(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        compare(run_layout(&layouts[i], layouts[i].name, all, "train.dtype=f32", NULL),
                run_single("all", all, "train.dtype=f32"));
}

static void test_few_targets(void **state)
{
    (void)state;
    static const char *const names[] = {"uneven", "three", "beside-gang"};
    for (size_t i = 0; i < 3; i++) {
        const struct layout *const layout = find_layout(names[i]);
        compare(run_layout(layout, text("some-%s", names[i]), some, "train.dtype=f32", NULL),
                run_single("some", some, "train.dtype=f32"));
    }
}

/* Partial sums are rounded to bf16 on their way: the loss is near. */
static void test_bf16(void **state)
{
    (void)state;
    const char *const single = run_single("bf16", all, "train.dtype=bf16");
    const char *const run = run_layout(find_layout("three"), "bf16", all, "train.dtype=bf16", NULL);
    ASSERT_SAME_LINES(run, single, 5e-3, "loss");
}

/* The order of sums is fixed: the same plan gives the same bytes. */
static void test_same_bytes(void **state)
{
    (void)state;
    const struct layout *const layout = find_layout("three-uneven");
    const char *const first = run_layout(layout, "bytes-1", all, "train.dtype=f32", NULL);
    const char *const second = run_layout(layout, "bytes-2", all, "train.dtype=f32", NULL);
    assert_same_adapter(first, second);
    ASSERT_SAME_LINES(first, second, 0, "loss", "grad_norm");
}

/* Ranks that find no model files are sent what they hold. */
static void test_sent_weights(void **state)
{
    (void)state;
    compare(
        run_layout(find_layout("two-three"), "sent", all, "train.dtype=f32", "share_files: false"),
        run_single("all", all, "train.dtype=f32"));
}

static void kill_and_resume(const char *name)
{
    const struct layout *const layout = find_layout(name);
    const char *const whole = scratch("whole-%s", name), *const parts = scratch("parts-%s", name);
    const char *const metrics = text("%s/metrics.jsonl", parts);
    const char *const settings[] = {text("plan.file=%s", write_plan(layout)),
                                    text("cluster=%s", write_cluster(layout->devices, 1, NULL)),
                                    "train.micro_batch=4",
                                    "strategy=gpipe",
                                    "train.save_every=20",
                                    "train.max_steps=60",
                                    all,
                                    NULL};
    const struct process all_steps = train(job, whole, settings);
    assert_success(&all_steps);
    struct process process = start_train(job, parts, settings);
    while (!file_exists(metrics) || !strstr(read_text(metrics), "\"step\":27,"))
        if (wait_program(&process, 2e-3))
            fail_msg("ended with status %d\n%s", process.status, process.err);
    kill_tree(&process);
    const char *const again[] = {settings[0], settings[1], settings[2], settings[3], settings[4],
                                 settings[5], settings[6], "--resume",  NULL};
    const struct process rest = train(job, parts, again);
    assert_success(&rest);
    assert_holds("resume", rest.err, "continuing after step");
    assert_same_adapter(parts, whole);
    ASSERT_SAME_LINES(parts, whole, 0, "loss", "learning_rate", "grad_norm");
}

static void test_kill_and_resume(void **state)
{
    (void)state;
    kill_and_resume("uneven");
    kill_and_resume("three");
    kill_and_resume("beside-whole");
}

static void test_too_small_a_share(void **state)
{
    (void)state;
    static const struct layout thin = {
        "thin", "BB", {{"gpu0", 0, 0, 5, 0, 4, 0, 0.95}, {"gpu1", 0, 0, 5, 0, 4, 0.95, 1}}};
    const struct process refused =
        TRAIN(job, scratch("thin"), text("plan.file=%s", write_plan(&thin)),
              text("cluster=%s", write_cluster(thin.devices, 1, NULL)), "train.micro_batch=4",
              "strategy=gpipe");
    ASSERT_REFUSED(&refused, 2, "plan: part 1", "[0.95, 1)", "0 of 4 query heads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_gang_is_single),
        cmocka_unit_test(test_few_targets),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_sent_weights),
        cmocka_unit_test(test_kill_and_resume),
        cmocka_unit_test(test_too_small_a_share),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
