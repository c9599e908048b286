/* Answers decoded through the pipeline are those of one process that generates, on any number of
 * ranks, and are scored as the official script scores them. */
#include "support.h"

#include <stdio.h>
#include <string.h>

enum { QUESTIONS = 21, STEPS = 60, TOKENS = 14, MAX_LENGTH = 100 };

static const char *const answers[] = {"no", "yes it is", "red", "a cat", "seven days", "Oslo", "b"};

static const char *model, *job, *questions, *trained;

static const char *title(int i)
{
    return text("t%d", i);
}

static const char *context(int i)
{
    return text("It is %s. %.*s", answers[i % 7], i % 5, "xxxxx");
}

static const char *question(int i)
{
    return text("%c%d?", 'a' + i % 7, i);
}

static const char *write_questions(const char *name)
{
    json_t *const data = json_array();
    for (int i = 0; i < QUESTIONS; i++)
        json_array_append_new(data,
                              json_pack("{s:s, s:[{s:s, s:[{s:o, s:s, s:[{s:s, s:i}]}]}]}", "title",
                                        title(i), "paragraphs", "context", context(i), "qas", "id",
                                        json_sprintf("q%d", i), "question", question(i), "answers",
                                        "text", answers[i % 7], "answer_start", 6));
    return write_text(
        name, "%s", dump_json(keep_json(json_pack("{s:s, s:o}", "version", "1.1", "data", data))));
}

static const char *cluster_of(const char *devices)
{
    return text("cluster=%s", write_cluster(devices, 1, NULL));
}

/* Long enough that the model gives different answers of different lengths. */
static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.vocabulary = 102});
    write_ascii_tokenizer("model");
    questions = write_questions("questions.json");
    job = write_text("job.yaml",
                     "model: %s\n"
                     "data: {task: squad, train: %s, eval: %s, max_length: %d,\n"
                     "       eval_max_tokens: %d}\n"
                     "lora: {rank: 8, alpha: 16, targets: [q_proj, k_proj, v_proj, o_proj,\n"
                     "       gate_proj, up_proj, down_proj]}\n"
                     "train: {batch_size: 16, micro_batch: 3, learning_rate: 0.02, dtype: f32,\n"
                     "        scheduler: constant, max_steps: %d, eval_every: 30, save_every: 30}\n"
                     "plan: {devices: all}\n"
                     "output: unset\n",
                     model, questions, questions, MAX_LENGTH, TOKENS, STEPS);
    trained = scratch("trained");
    const struct process done = TRAIN(job, trained, cluster_of("BB"));
    assert_success(&done);
    return 0;
}

/* Metrics of `hybridop eval`; its answers are in scratch(name). */
static const json_t *evaluate(const char *adapter, const char *name, const char *cluster,
                              const char *setting)
{
    const struct process done =
        RUN("eval", job, "--set", cluster, "--set", setting, "--set", "output=unused", "--adapter",
            adapter, "--predictions", scratch("%s", name), "--json");
    assert_success(&done);
    return keep_json(json_loads(done.out, 0, NULL));
}

static const json_t *evaluation_line(const json_t *metrics, int step)
{
    size_t i;
    json_t *line;
    json_array_foreach(metrics, i, line)
    {
        if (json_object_get(line, "eval_loss") && (int)number(line, "step") == step)
            return line;
    }
    fail_msg("no evaluation of step %d", step);
    return NULL;
}

/* Evaluations of a run are made with the adapters it has at that step. */
static void test_while_training(void **state)
{
    (void)state;
    const json_t *const metrics = read_metrics(trained);
    const double before = number(evaluation_line(metrics, 0), "eval_f1");
    for (int step = 30; step <= STEPS; step += 30) {
        const json_t *const line = evaluation_line(metrics, step);
        const json_t *const later =
            evaluate(text("%s/checkpoint-%d", trained, step), text("step-%d.json", step),
                     cluster_of("BB"), "train.seed=42");
        assert_near("loss", number(later, "loss"), number(line, "eval_loss"), 0);
        assert_near("f1", number(later, "f1"), number(line, "eval_f1"), 0);
        assert_near("exact match", number(later, "exact_match"), number(line, "eval_exact_match"),
                    0);
        if (!(number(line, "eval_f1") > before + 10))
            fail_msg("f1 %g after %d steps, %g before", number(line, "eval_f1"), step, before);
    }
    assert_same_file(text("%s/predictions.json", trained), scratch("step-%d.json", STEPS));
    const json_t *const summary = read_json(text("%s/summary.json", trained));
    const json_t *const last = evaluation_line(metrics, STEPS);
    assert_near("f1 of the summary", number(json_object_get(summary, "eval_after"), "f1"),
                number(last, "eval_f1"), 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(summary, "best"), "metric")), "f1");
    assert_near("f1 before", number(json_object_get(summary, "eval_before"), "f1"), before, 0);
}

/* The same bytes on 1, 2 and 4 ranks, however many sequences are decoded at once. */
static void test_any_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *setting;
    } cases[] = {
        {"B", "train.micro_batch=3"},   {"BB", "train.micro_batch=3"},
        {"NB", "train.micro_batch=3"},  {"NNBB", "train.micro_batch=3"},
        {"B", "train.micro_batch=1"},   {"NNBB", "train.micro_batch=1"},
        {"NB", "train.micro_batch=16"}, {"NB", "train.batch_size=2"},
    };
    const char *const adapter = text("%s/adapter", trained);
    const json_t *const first = evaluate(adapter, "alone.json", cluster_of("B"), "train.seed=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const json_t *const other = evaluate(adapter, text("ranks-%zu.json", i),
                                             cluster_of(cases[i].devices), cases[i].setting);
        assert_near("f1", number(other, "f1"), number(first, "f1"), 0);
        assert_near("exact match", number(other, "exact_match"), number(first, "exact_match"), 0);
        assert_same_file(scratch("ranks-%zu.json", i), scratch("alone.json"));
    }
}

/* Replicas share the sequences of a micro-batch, which keep their places while others end;
 * pipelines share the micro-batches. */
static void test_replicas_and_pipelines(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "{\"device\": \"gpu0\", \"stage\": 0, \"blocks\": [0, 2], \"samples\": [0, 2]},"
        "{\"device\": \"gpu1\", \"stage\": 0, \"blocks\": [0, 2], \"samples\": [2, 3]},"
        "{\"device\": \"gpu2\", \"stage\": 1, \"blocks\": [2, 4], \"samples\": [0, 1]},"
        "{\"device\": \"gpu3\", \"stage\": 1, \"blocks\": [2, 4], \"samples\": [1, 3]}",
        "{\"device\": \"gpu0\", \"pipeline\": 0, \"stage\": 0, \"blocks\": [0, 1], "
        "\"micro_share\": [0, 0.5]},"
        "{\"device\": \"gpu1\", \"pipeline\": 0, \"stage\": 1, \"blocks\": [1, 4], "
        "\"micro_share\": [0, 0.5]},"
        "{\"device\": \"gpu2\", \"pipeline\": 1, \"stage\": 0, \"blocks\": [0, 3], "
        "\"micro_share\": [0.5, 1]},"
        "{\"device\": \"gpu3\", \"pipeline\": 1, \"stage\": 1, \"blocks\": [3, 4], "
        "\"micro_share\": [0.5, 1]}"};
    const char *const adapter = text("%s/adapter", trained);
    const json_t *const one = evaluate(adapter, "line.json", cluster_of("B"), "strategy=single");
    for (int i = 0; i < 2; i++) {
        const char *const plan = write_text(text("shared-plan-%d.json", i),
                                            "{\"strategy\": \"gpipe\", \"micro_batches\": 6, "
                                            "\"micro_batch_samples\": 3, \"parts\": [%s]}\n",
                                            parts[i]);
        const char *const name = text("shared-%d.json", i);
        const json_t *const many =
            evaluate(adapter, name, cluster_of("BBBB"), text("plan.file=%s", plan));
        assert_near("f1", number(many, "f1"), number(one, "f1"), 0);
        assert_near("loss", number(many, "loss"), number(one, "loss"), 1e-5);
        assert_same_file(scratch("%s", name), scratch("line.json"));
    }
}

static const char *generated(const char *adapter, int i)
{
    const struct process done = RUN(
        "generate", "--model", model, "--adapter", adapter, "--backend", backend(), "--max-tokens",
        text("%d", TOKENS), "--temperature", "0", "-p",
        text("Title: %s\nContext: %s\nQuestion: %s\nAnswer:", title(i), context(i), question(i)));
    assert_success(&done);
    return text("%.*s", (int)strcspn(done.out, "\n"), done.out);
}

static void test_as_generate(void **state)
{
    (void)state;
    const char *const adapter = text("%s/adapter", trained);
    evaluate(adapter, "generate.json", cluster_of("NB"), "train.seed=1");
    const json_t *const texts = read_json(scratch("generate.json"));
    const char *const first = json_string_value(json_object_get(texts, "q0"));
    size_t lengths = 0;
    assert_int_equal((int)json_object_size(texts), QUESTIONS);
    for (int i = 0; i < QUESTIONS; i++) {
        const char *const answer = json_string_value(json_object_get(texts, text("q%d", i)));
        assert_non_null(answer);
        assert_string_equal(answer, generated(adapter, i));
        lengths += strlen(answer) != strlen(first);
    }
    if (lengths < 3)
        fail_msg("only %zu answers are of another length than the first", lengths);
}

/* Another implementation of the same script reads files only. */
static void test_as_score(void **state)
{
    (void)state;
    const json_t *const ours =
        evaluate(text("%s/adapter", trained), "score.json", cluster_of("NB"), "train.seed=1");
    const struct process done = RUN("score", "--task", "squad", "--data", questions,
                                    "--predictions", scratch("score.json"), "--json");
    assert_success(&done);
    const json_t *const scores = keep_json(json_loads(done.out, 0, NULL));
    assert_near("exact match", number(ours, "exact_match"), number(scores, "exact_match"), 0);
    assert_near("f1", number(ours, "f1"), number(scores, "f1"), 0);
    assert_int_equal((int)number(scores, "missing"), 0);
}

/* An answer that is cut is the beginning of the whole one. */
static void test_limit(void **state)
{
    (void)state;
    const char *const adapter = text("%s/adapter", trained);
    evaluate(adapter, "long.json", cluster_of("NB"), "train.seed=1");
    evaluate(adapter, "short.json", cluster_of("NB"), "data.eval_max_tokens=3");
    const json_t *const whole = read_json(scratch("long.json"));
    const json_t *const cut = read_json(scratch("short.json"));
    for (int i = 0; i < QUESTIONS; i++) {
        const char *const key = text("q%d", i);
        const char *const long_text = json_string_value(json_object_get(whole, key));
        assert_string_equal(json_string_value(json_object_get(cut, key)), text("%.3s", long_text));
    }
    const struct process none = RUN("eval", job, "--set", "data.eval_max_tokens=0", "--set",
                                    "output=unused", "--set", cluster_of("NB"), "--json");
    assert_success(&none);
    assert_null(strstr(none.out, "f1"));
    const struct process refused =
        RUN("eval", job, "--set", "data.eval_max_tokens=0", "--set", "output=unused", "--set",
            cluster_of("NB"), "--predictions", scratch("none.json"));
    ASSERT_REFUSED(&refused, 2, "none.json", "eval_max_tokens");
}

static double planned_bytes(const char *wide, int tokens)
{
    const struct process done = RUN("plan", job, "--set", text("data.eval_max_tokens=%d", tokens),
                                    "--set", text("model=%s", wide), "--set", "train.micro_batch=1",
                                    "--set", "output=unused", "--set", cluster_of("BB"), "--json");
    assert_success(&done);
    const json_t *const plan = keep_json(json_loads(done.out, 0, NULL));
    double bytes = 0;
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(plan, "parts"), i, part) bytes +=
        number(part, "memory_bytes");
    return bytes;
}

/* The plan reserves the caches: keys and values of 4 blocks, for two sequences a device, 64 floats
 * a position. The model is wide, so that no block is smaller than the buffers of its messages. */
static void test_priced(void **state)
{
    (void)state;
    const char *const wide = write_model("wide", (struct model){.hidden = 128, .vocabulary = 102});
    const double caches = 2.0 * 4 * (MAX_LENGTH + TOKENS) * 4 * 64 * sizeof(float);
    const double more = planned_bytes(wide, TOKENS) - planned_bytes(wide, 0);
    assert_near("memory of the caches", more, caches, 0.03);
    const json_t *const memory =
        json_object_get(read_json(text("%s/summary.json", trained)), "memory");
    for (int d = 0; d < 2; d++) {
        const json_t *const device = json_object_get(memory, text("gpu%d", d));
        if (!(number(device, "held") <= number(device, "planned")))
            fail_msg("gpu%d holds %g bytes, %g were planned", d, number(device, "held"),
                     number(device, "planned"));
    }
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
        cmocka_unit_test(test_while_training),
        cmocka_unit_test(test_any_ranks),
        cmocka_unit_test(test_replicas_and_pipelines),
        cmocka_unit_test(test_as_generate),
        cmocka_unit_test(test_as_score),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_priced),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
