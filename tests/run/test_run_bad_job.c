/* Mistakes in jobs, clusters and command lines: exit status 2, one line that names the place and
 * the remedy, nothing left running. */
#include "support.h"

#include <stdio.h>
#include <string.h>

static const char *model, *rows, *job, *cluster;

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){0});
    rows = write_rows("rows.jsonl", 8, 6, 10, 64);
    job = write_job("job.yaml", model, rows, NULL);
    cluster = text("cluster=%s", write_cluster("NB", 1, NULL));
    return 0;
}

static void test_settings(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        int status;
        const char *parts[3];
    } cases[] = {
        {"train.sed=1", 2, {"train.sed", "train.seed"}},
        {"modle=x", 2, {"modle", "model"}},
        {"trian.seed=1", 2, {"trian", "train"}},
        {"train.seed", 2, {"train.seed", "key=value"}},
        {"=3", 2, {"key=value"}},
        {"train.batch_size=many", 2, {"train.batch_size", "many"}},
        {"train.batch_size=0", 2, {"train.batch_size", "0"}},
        {"train.learning_rate=-1", 2, {"train.learning_rate", "-1"}},
        {"train.scheduler=linaer", 2, {"train.scheduler", "linear"}},
        {"train={batch_size: [1]}", 2, {"train.batch_size"}},
        {"train=5", 2, {"train"}},
        {"train.dtype=f8", 2, {"train.dtype", "bf16"}},
        {"lora.targets=[q_prj]", 2, {"q_prj", "q_proj"}},
        {"lora.dropout=0.1", 2, {"lora.dropout"}},
        {"zo.early_exit=-1", 2, {"zo.early_exit", "auto"}},
        {"zo={estimator: boundary, early_exit: 2}", 2, {"zo.early_exit", "boundary"}},
        {"zo.estimator=bondary", 2, {"zo.estimator", "boundary"}},
        {"zo.directions=persample", 2, {"zo.directions", "per-sample"}},
        {"zo.distribution=normal", 2, {"zo.distribution", "gaussian"}},
        {"zo.blocks=[3]", 2, {"zo.blocks"}},
        {"strategy=hybridpo", 2, {"hybridpo", "hybridop"}},
        {"plan.blocks={nobody: 4}", 2, {"plan.blocks", "nobody"}},
        {"plan.blocks={npu0: 1, gpu0: 2}", 2, {"plan.blocks", "3", "4"}},
        {"plan.blocks={npu0: 4, gpu0: 0}", 1, {"BP-capable"}},
        {"plan.blocks=4", 2, {"plan.blocks"}},
        {"plan.micro_batches=9", 2, {"plan.micro_batches", "9"}},
        {"plan.file=none.json", 2, {"none.json"}},
        {"cluster=none.yaml", 2, {"none.yaml"}},
        {"cluster={devices: []}", 2, {"devices"}},
        {"cluster={devices: [{name: a, bakcend: cpu}]}", 2, {"devices[0]", "backend"}},
        {"cluster={devices: [{name: a}, {name: a}]}", 2, {"devices[1]", "'a'"}},
        {"lora.init=nowhere", 2, {"nowhere", "adapter_config.json"}},
        {"output=", 2, {"output"}},
        {"data.train=none.jsonl", 2, {"none.jsonl"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct process done = TRAIN(job, scratch("run"), cluster, cases[i].setting);
        const char *const parts[] = {cases[i].parts[0], cases[i].parts[1], cases[i].parts[2], NULL};
        check_refused(&done, cases[i].status, parts);
    }
}

static void test_devices(void **state)
{
    (void)state;
    const char *const unknown =
        text("cluster=%s",
             write_text("unknown.yaml", "devices: [{name: a, backend: abacus, threads: 1}]\n"));
    struct process done = TRAIN(job, scratch("run"), unknown);
    ASSERT_REFUSED(&done, 2, "abacus", "hybridop devices");
    done = TRAIN(job, scratch("run"), text("cluster=%s", write_cluster("BBBBB", 1, NULL)));
    ASSERT_REFUSED(&done, 1, "5 devices", "4 blocks");
}

static void test_job_files(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part;
    } cases[] = {
        {"model: a\ndata: {train: b}\n", "output"},
        {"model: a\noutput: c\n", "data.train"},
        {"data: {train: b}\noutput: c\n", "model"},
        {"model: a\nmodel: b\n", "model"},
        {"model: [\n", ":"},
        {"- model\n", "model"},
        {"", "model"},
        {"model: a\n\tdata: b\n", ":2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const path = write_text(text("bad-%zu.yaml", i), "%s", cases[i].content);
        const struct process done = RUN("train", path);
        ASSERT_REFUSED(&done, 2, path, cases[i].part);
    }
    const struct process done = RUN("train", scratch("none.yaml"));
    ASSERT_REFUSED(&done, 2, scratch("none.yaml"));
}

/* An adapter of another model or shape. */
static void test_adapters(void **state)
{
    (void)state;
    const char *const run = scratch("trained"), *const init = scratch("trained/adapter");
    const struct process trained = TRAIN(job, run, cluster);
    assert_success(&trained);
    const char *const wide = write_model("wide", (struct model){.hidden = 64});
    const char *const low = write_model("low", (struct model){.blocks = 3});
    struct process done =
        TRAIN(job, scratch("run"), cluster, text("lora.init=%s", init), text("model=%s", wide));
    ASSERT_REFUSED(&done, 2, init, "lora_A");
    done = TRAIN(job, scratch("run"), cluster, text("lora.init=%s", init), text("model=%s", low));
    ASSERT_REFUSED(&done, 2, init, "layers.3.");
    const char *const tall = write_model("tall", (struct model){.blocks = 6});
    done = TRAIN(job, scratch("run"), cluster, text("lora.init=%s", init), text("model=%s", tall));
    ASSERT_REFUSED(&done, 2, init, "layers.4.");
}

/* The option parser speaks for itself: the mistake, then where help is. */
static void check_usage(const struct process *done, const char *part)
{
    if (done->status != 2)
        fail_msg("exit status %d, expected 2: %s\n%s", done->status, done->command, done->err);
    assert_holds(done->command, done->err, part);
    assert_holds(done->command, done->err, "--help");
    assert_string_equal(done->out, "");
}

static void test_command_lines(void **state)
{
    (void)state;
    struct process done = RUN("trian", job);
    ASSERT_REFUSED(&done, 2, "trian", "train", "--help");
    done = RUN("train", "--bogus", job);
    check_usage(&done, "--bogus");
    done = RUN("train");
    check_usage(&done, "job file");
    done = RUN("train", job, job);
    check_usage(&done, "one job file");
    done = RUN("train", job, "--set");
    check_usage(&done, "--set");
    done = RUN("generate");
    check_usage(&done, "--model");
    done = RUN("generate", "--model", model, "--max-tokens", "x");
    check_usage(&done, "--max-tokens x");
    done = RUN("generate", "--model", model, "--temperature", "-1");
    check_usage(&done, "--temperature -1");
    done = run_program(60, (const char *const[]){NULL});
    if (done.status != 2)
        fail_msg("exit status %d without a command, expected 2", done.status);
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
        cmocka_unit_test(test_settings),      cmocka_unit_test(test_devices),
        cmocka_unit_test(test_job_files),     cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_command_lines),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
