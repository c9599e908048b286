/* Early stopping: a run ends when its evaluations have not become better for so long, and leaves
 * the adapter of the best one; also when it was killed in between. */
#include "support.h"

#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 200, EVERY = 2, PATIENCE = 3 };

static const char *model, *job, *whole;

/* Rows of random tokens teach nothing about other rows: the loss of these falls as long as common
 * things are learned, then it rises. */
static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.blocks = 3});
    job = write_text("job.yaml",
                     "model: %s\n"
                     "data: {task: jsonl, train: %s, eval: %s, max_length: 64}\n"
                     "lora: {rank: 4, alpha: 8}\n"
                     "train: {batch_size: 8, micro_batch: 2, learning_rate: 0.01, seed: 5,\n"
                     "        scheduler: constant, max_steps: %d, eval_every: %d,\n"
                     "        early_stopping: %d}\n"
                     "zo: {probes: 2}\n"
                     "plan: {devices: all}\n"
                     "cluster: %s\n"
                     "output: unset\n",
                     model, write_rows("rows.jsonl", 24, 6, 14, 64),
                     write_rows("eval.jsonl", 9, 10, 18, 64), MOST_STEPS, EVERY, PATIENCE,
                     write_cluster("NB", 1, NULL));
    whole = scratch("whole");
    const struct process done = TRAIN(job, whole, "train.seed=5");
    assert_success(&done);
    return 0;
}

/* The rule, replayed over the evaluations of metrics.jsonl. */
struct replay {
    int best, last; /* steps */
    double value;
    int without_gain;
};

static struct replay replay(const char *run, const char *key, double sign)
{
    struct replay r = {.best = 0};
    size_t i;
    json_t *line;
    json_array_foreach(read_metrics(run), i, line)
    {
        if (!json_object_get(line, "eval_loss") || number(line, "step") == 0)
            continue;
        const double value = number(line, key);
        r.last = (int)number(line, "step");
        r.without_gain++;
        if (r.best == 0 || sign * value > sign * r.value) {
            r.best = r.last;
            r.value = value;
            r.without_gain = 0;
        }
    }
    return r;
}

static void check_best(const char *run, const struct replay *r, const char *metric)
{
    const json_t *const summary = read_json(text("%s/summary.json", run));
    const json_t *const best = json_object_get(summary, "best");
    const json_t *const state = read_json(text("%s/trainer_state.json", run));
    assert_int_equal((int)number(best, "step"), r->best);
    assert_string_equal(json_string_value(json_object_get(best, "metric")), metric);
    assert_near("best of the summary", number(best, "value"), r->value, 0);
    assert_int_equal((int)number(state, "best_global_step"), r->best);
    assert_near("best_metric", number(state, "best_metric"), r->value, 0);
    assert_string_equal(json_string_value(json_object_get(state, "best_model_checkpoint")),
                        text("%s/checkpoint-%d", run, r->best));
}

static void assert_adapter_of(const char *run, int step)
{
    static const char *const files[] = {"adapter_model.safetensors", "adapter_config.json"};
    for (size_t i = 0; i < 2; i++)
        assert_same_file(text("%s/adapter/%s", run, files[i]),
                         text("%s/checkpoint-%d/%s", run, step, files[i]));
}

static void assert_stopped_early(const char *run, const struct replay *r)
{
    const json_t *const summary = read_json(text("%s/summary.json", run));
    assert_true(json_is_true(json_object_get(summary, "stopped_early")));
    assert_string_equal(json_string_value(json_object_get(summary, "stop_reason")),
                        "early stopping");
    assert_int_equal((int)number(summary, "steps"), r->last);
    assert_int_equal(count_steps(read_metrics(run)), r->last);
}

static void test_loss(void **state)
{
    (void)state;
    const struct replay r = replay(whole, "eval_loss", -1);
    assert_int_equal(r.without_gain, PATIENCE);
    assert_int_equal(r.last, r.best + PATIENCE * EVERY);
    if (!(r.best > EVERY && r.last < MOST_STEPS))
        fail_msg("the best step %d is the first evaluation, or step %d the last", r.best, r.last);
    assert_stopped_early(whole, &r);
    check_best(whole, &r, "loss");
    assert_adapter_of(whole, r.best);
    assert_true(adapter_distance(text("%s/adapter", whole),
                                 text("%s/checkpoint-%d", whole, r.last)) > 1e-6);
    const json_t *const after =
        json_object_get(read_json(text("%s/summary.json", whole)), "eval_after");
    assert_near("loss of the result", number(after, "loss"), r.value, 0);
    const struct process done = RUN("eval", job, "--set", "output=unused", "--adapter",
                                    text("%s/adapter", whole), "--json");
    assert_success(&done);
    assert_near("loss measured again", number(keep_json(json_loads(done.out, 0, NULL)), "loss"),
                r.value, 1e-6);
}

static const char *write_labelled(const char *name)
{
    const char *rows = "";
    for (int i = 0; i < 20; i++)
        rows = text("%s{\"prompt\": \"%c%c%d\", \"completion\": \" %s\"}\n", rows, 'a' + i, 'z' - i,
                    i * 7, i % 3 ? "no" : "yes");
    return write_text(name, "%s", rows);
}

/* Steps too small to change a prediction: the first evaluation stays the best. */
static void test_accuracy(void **state)
{
    (void)state;
    const char *const run = scratch("accuracy");
    const char *const rows = write_labelled("labelled.jsonl");
    const char *const spelled = write_model("spelled", (struct model){.vocabulary = 102});
    write_ascii_tokenizer("spelled");
    const struct process done = TRAIN(
        job, run, text("model=%s", spelled), text("data.train=%s", rows),
        text("data.eval=%s", rows), "data.labels=[\" yes\", \" no\"]", "train.learning_rate=1e-12");
    assert_success(&done);
    const struct replay r = replay(run, "eval_accuracy", 1);
    assert_int_equal(r.best, EVERY);
    assert_int_equal(r.last, (1 + PATIENCE) * EVERY);
    assert_stopped_early(run, &r);
    check_best(run, &r, "accuracy");
    assert_adapter_of(run, r.best);
}

/* Questions with a right and a wrong answer each. */
static const char *write_passages(const char *name)
{
    const char *lines = "";
    for (int i = 0; i < 8; i++)
        lines = text("%s{\"idx\": %d, \"passage\": {\"text\": \"%c is %d.\", \"questions\": [{"
                     "\"idx\": %d, \"question\": \"%c?\", \"answers\": ["
                     "{\"text\": \"%d\", \"label\": 1}, {\"text\": \"no\", \"label\": 0}]}]}}\n",
                     lines, i, 'a' + i, i, i, 'a' + i, i);
    return write_text(name, "%s", lines);
}

static void test_multirc(void **state)
{
    (void)state;
    const char *const run = scratch("multirc");
    const char *const rows = write_passages("passages.jsonl");
    const char *const spelled = write_model("reader", (struct model){.vocabulary = 102});
    write_ascii_tokenizer("reader");
    const struct process done =
        TRAIN(job, run, text("model=%s", spelled), "data.task=multirc", "data.max_length=120",
              text("data.train=%s", rows), text("data.eval=%s", rows), "train.learning_rate=0.003");
    assert_success(&done);
    const struct replay r = replay(run, "eval_f1a", 1);
    assert_int_equal(r.without_gain, PATIENCE);
    assert_stopped_early(run, &r);
    check_best(run, &r, "f1a");
    assert_adapter_of(run, r.best);
}

static void assert_same_end(const char *run)
{
    const json_t *const a = read_json(text("%s/trainer_state.json", run));
    const json_t *const b = read_json(text("%s/trainer_state.json", whole));
    static const char *const keys[] = {"best_global_step", "best_metric", "global_step"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_near(keys[i], number(a, keys[i]), number(b, keys[i]), 0);
    assert_near("counter", number(json_object_get(a, "hybridop"), "evaluations_without_gain"),
                number(json_object_get(b, "hybridop"), "evaluations_without_gain"), 0);
    assert_same_adapter(run, whole);
    ASSERT_SAME_LINES(run, whole, 0, "loss", "learning_rate", "grad_norm", "zo_grad_norm");
    const json_t *const ours = read_json(text("%s/summary.json", run));
    const json_t *const theirs = read_json(text("%s/summary.json", whole));
    assert_true(
        json_equal(json_object_get(ours, "eval_after"), json_object_get(theirs, "eval_after")));
    assert_true(
        json_equal(json_object_get(ours, "eval_before"), json_object_get(theirs, "eval_before")));
    assert_true(json_equal(json_object_get(ours, "best"), json_object_get(theirs, "best")));
}

/* As a run that was killed behind a step, where evaluations no longer become better: later
 * checkpoints are not there yet. The counter goes on where it stood. */
static void test_resumed(void **state)
{
    (void)state;
    const char *const run = scratch("resumed");
    const struct replay r = replay(whole, "eval_loss", -1);
    const struct process first = TRAIN(job, run, "train.save_every=1");
    assert_success(&first);
    for (int step = r.best + EVERY + 2; step <= r.last; step++) {
        const char *const path = text("%s/checkpoint-%d", run, step);
        assert_int_equal(rename(path, text("%s.later", path)), 0);
    }
    const struct process done = TRAIN(job, run, "train.save_every=1", "--resume");
    assert_success(&done);
    assert_holds("resume", done.err, text("continuing after step %d", r.best + EVERY + 1));
    assert_stopped_early(run, &r);
    assert_adapter_of(run, r.best);
    assert_same_end(run);
}

/* A run that has stopped stays so. */
static void test_resumed_at_end(void **state)
{
    (void)state;
    const struct replay before = replay(whole, "eval_loss", -1);
    const struct process done = TRAIN(job, whole, "--resume");
    assert_success(&done);
    const struct replay after = replay(whole, "eval_loss", -1);
    assert_int_equal(after.last, before.last);
    assert_stopped_early(whole, &after);
    check_best(whole, &after, "loss");
    assert_adapter_of(whole, after.best);
}

/* train.result chooses whose adapter is left, whether the run stops early or not. */
static void test_result(void **state)
{
    (void)state;
    const struct replay r = replay(whole, "eval_loss", -1);
    const char *const last = scratch("last"), *const best = scratch("best"),
                      *const plain = scratch("plain");
    const struct process a = TRAIN(job, last, "train.result=last");
    assert_success(&a);
    assert_adapter_of(last, r.last);
    const char *const steps = text("train.max_steps=%d", r.last);
    const struct process b = TRAIN(job, best, "train.result=best", "train.early_stopping=0", steps);
    assert_success(&b);
    assert_adapter_of(best, r.best);
    assert_same_adapter(best, whole);
    const struct process c = TRAIN(job, plain, "train.early_stopping=0", steps);
    assert_success(&c);
    assert_adapter_of(plain, r.last);
    assert_same_adapter(plain, last);
    assert_true(
        json_is_false(json_object_get(read_json(text("%s/summary.json", plain)), "stopped_early")));
}

static void test_refused(void **state)
{
    (void)state;
    const struct process a = TRAIN(job, scratch("refused"), "train.eval_every=0");
    ASSERT_REFUSED(&a, 2, "train.early_stopping", "train.eval_every");
    const struct process b =
        TRAIN(job, scratch("refused"), "data.eval=", "train.result=best", "train.early_stopping=0");
    ASSERT_REFUSED(&b, 2, "train.result", "data.eval");
}

/* 8 / sqrt(4) = 16 / 4: only the configuration differs. */
static void test_rslora(void **state)
{
    (void)state;
    const char *const stable = scratch("rslora"), *const usual = scratch("lora");
    const struct process a =
        TRAIN(job, stable, "lora.rslora=true", "lora.alpha=8", "train.max_steps=4");
    const struct process b = TRAIN(job, usual, "lora.alpha=16", "train.max_steps=4");
    assert_success(&a);
    assert_success(&b);
    assert_same_file(text("%s/adapter/adapter_model.safetensors", stable),
                     text("%s/adapter/adapter_model.safetensors", usual));
    const json_t *const config = read_json(text("%s/adapter/adapter_config.json", stable));
    assert_true(json_is_true(json_object_get(config, "use_rslora")));
    const struct process c = TRAIN(job, scratch("rslora-2"), text("lora.init=%s/adapter", stable),
                                   "train.max_steps=2", "train.early_stopping=0");
    assert_success(&c);
    assert_true(json_is_true(json_object_get(
        read_json(text("%s/adapter/adapter_config.json", scratch("rslora-2"))), "use_rslora")));
    const struct process d = TRAIN(job, scratch("rslora-2"), text("lora.init=%s/adapter", stable),
                                   "train.max_steps=4", "train.early_stopping=0", "--resume");
    assert_success(&d);
}

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss),    cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_multirc), cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_result),  cmocka_unit_test(test_resumed_at_end),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_rslora),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
