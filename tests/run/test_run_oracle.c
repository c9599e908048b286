/* Training through the program against PyTorch, in one process and over pipelines; greedy text
 * against a reference text. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

static const char *write_oracle_job(const json_t *oracle)
{
    size_t i;
    json_t *row;
    const char *rows = "";
    json_array_foreach(json_object_get(oracle, "batch"), i, row)
    {
        char *const line = json_dumps(row, JSON_COMPACT);
        rows = text("%s%s\n", rows, line);
        free(line);
    }
    return write_text("oracle.yaml",
                      "model: %s\n"
                      "data: {task: jsonl, train: %s, shuffle: false}\n"
                      "lora: {init: %s}\n"
                      "train: {batch_size: 3, micro_batch: 1, epochs: 5, learning_rate: 0.01,\n"
                      "        scheduler: constant, weight_decay: 0.01, dtype: f32,\n"
                      "        max_grad_norm: 1.0, log_grad_norms: true}\n"
                      "output: unset\n",
                      test_data("models/stories260K"), write_text("oracle.jsonl", "%s", rows),
                      test_data("lora/init"));
}

static void check_run(const char *run, const json_t *oracle)
{
    const char *name;
    json_t *expected;
    json_t *const metrics = read_metrics(run);
    const json_t *const steps = json_object_get(oracle, "steps");
    assert_int_equal(count_steps(metrics), STEPS);
    for (int step = 1; step <= STEPS; step++) {
        const json_t *const line = step_line(metrics, step);
        const json_t *const wanted = json_array_get(steps, (size_t)step - 1);
        assert_near(text("%s: loss of step %d", run, step), number(line, "loss"),
                    number(wanted, "loss"), 1e-4);
        assert_near(text("%s: gradient norm of step %d", run, step), number(line, "grad_norm"),
                    number(wanted, "grad_norm"), 1e-3);
        assert_int_equal(number(line, "label_tokens"), number(wanted, "label_tokens"));
    }
    const json_t *const norms = json_object_get(step_line(metrics, 1), "grad_norms");
    const json_t *const all = json_object_get(oracle, "grad_norms_step1");
    assert_int_equal(json_object_size(norms), json_object_size(all));
    json_object_foreach((json_t *)(uintptr_t)all, name, expected)
        assert_near(text("%s: gradient norm of %s", run, name), number(norms, name),
                    json_number_value(expected), 1e-3);
    const double distance = adapter_distance(text("%s/adapter", run), test_data("lora/final"));
    print_message("%s: adapter differs from PyTorch's by %.2e\n", run, distance);
    if (!(distance < 1e-3))
        fail_msg("%s: the adapter differs from PyTorch's by %g, allowed 1e-3", run, distance);
}

static void test_pytorch(void **state)
{
    (void)state;
    static const struct {
        const char *strategy, *devices, *blocks;
        int micro_batch;
    } cases[] = {
        {"single", "B", NULL, 3},
        {"single", "B", NULL, 1},
        {"hybridop", "B", NULL, 2},
        {"hybridop", "BB", "{gpu0: 2, gpu1: 3}", 1},
        {"hybridop", "BB", "{gpu0: 4, gpu1: 1}", 3},
        {"hybridop", "BBB", "{gpu0: 1, gpu1: 1, gpu2: 3}", 2},
        {"hybridop", "BBBB", "{gpu0: 2, gpu1: 1, gpu2: 1, gpu3: 1}", 1},
    };
    const json_t *const oracle = read_json(test_data("lora/oracle.json"));
    const char *const job = write_oracle_job(oracle);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const run = scratch("pytorch-%zu", i);
        const struct process done =
            TRAIN(job, run, text("strategy=%s", cases[i].strategy),
                  text("cluster=%s", write_cluster(cases[i].devices, 1, NULL)),
                  text("train.micro_batch=%d", cases[i].micro_batch),
                  cases[i].blocks ? text("plan.blocks=%s", cases[i].blocks) : "train.seed=1");
        assert_success(&done);
        check_run(run, oracle);
    }
}

static void test_greedy_text(void **state)
{
    (void)state;
    const char *const model = test_data("models/stories260K");
    const char *const expected = read_text(test_data("models/stories260K/expected_greedy_200.txt"));
    const struct process done = RUN("generate", "--backend", backend(), "--model", model, "-p", "",
                                    "--max-tokens", "200", "--temperature", "0");
    assert_success(&done);
    if (strcmp(done.out, expected) != 0)
        fail_msg("the greedy text is\n%s\nexpected\n%s", done.out, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_greedy_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
