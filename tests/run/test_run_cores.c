/* Cores in place of plain adapters: trained over devices, resumed, and handed on as plain LoRA. */
#include "support.h"

#include <stdio.h>
#include <string.h>

static const char *model, *rows, *job, *one, *pair;

#define CORES "lora.core=3"

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.blocks = 5});
    rows = write_rows("rows.jsonl", 21, 6, 14, 64);
    job =
        write_text("job.yaml", "%s",
                   text("model: %s\n"
                        "data: {task: jsonl, train: %s, eval: %s, max_length: 64}\n"
                        "lora: {rank: 4, alpha: 8, targets: [q_proj, v_proj, down_proj]}\n"
                        "train: {batch_size: 8, micro_batch: 2, learning_rate: 0.02,\n"
                        "        max_steps: 6, save_every: 3, eval_every: 6, scheduler: constant}\n"
                        "zo: {probes: 3}\n"
                        "output: unset\n",
                        model, rows, write_rows("eval.jsonl", 9, 6, 14, 64)));
    one = text("cluster=%s", write_cluster("B", 1, NULL));
    pair = text("cluster=%s", write_cluster("NB", 1, NULL));
    return 0;
}

/* Over ranks as in one process, with cores in the zeroth-order blocks and in all. */
static void test_pipeline_is_single(void **state)
{
    (void)state;
    static const char *const blocks[] = {"zeroth-order", "all"};
    for (int i = 0; i < 2; i++) {
        const char *const which = text("lora.core_blocks=%s", blocks[i]);
        const char *const many = scratch("many-%d", i), *const single = scratch("single-%d", i);
        const struct process a =
            TRAIN(job, many, CORES, which, pair, "plan.blocks={npu0: 2, gpu0: 3}");
        const struct process b =
            TRAIN(job, single, CORES, which, one, "strategy=single", "zo.blocks=[0, 2]");
        assert_success(&a);
        assert_success(&b);
        assert_int_equal(count_steps(read_metrics(many)), 6);
        ASSERT_SAME_LINES(many, single, 0, "loss", "zo_g_mean", "zo_g_std", "grad_norm",
                          "zo_grad_norm");
        assert_same_adapter(many, single);
        assert_same_file(text("%s/checkpoint-6/cores.safetensors", many),
                         text("%s/checkpoint-6/cores.safetensors", single));
        assert_true(number(step_line(read_metrics(many), 6), "zo_grad_norm") > 0);
    }
}

/* Cores and their moments come back as they were. */
static void test_resume(void **state)
{
    (void)state;
    const char *const whole = scratch("whole"), *const parts = scratch("parts");
    const struct process a = TRAIN(job, whole, CORES, pair, "plan.blocks={npu0: 2, gpu0: 3}");
    const struct process b =
        TRAIN(job, parts, CORES, pair, "plan.blocks={npu0: 2, gpu0: 3}", "train.max_steps=3");
    const struct process c =
        TRAIN(job, parts, "--resume", CORES, pair, "plan.blocks={npu0: 2, gpu0: 3}");
    assert_success(&a);
    assert_success(&b);
    assert_success(&c);
    assert_holds("resume", c.err, "continuing after step 3");
    assert_same_adapter(parts, whole);
    for (int i = 0; i < 3; i++) {
        static const char *const files[] = {"cores", "optimizer", "adapter_model"};
        assert_same_file(text("%s/checkpoint-6/%s.safetensors", parts, files[i]),
                         text("%s/checkpoint-6/%s.safetensors", whole, files[i]));
    }
}

/* A checkpoint with other cores than the job's. */
static void test_resume_refused(void **state)
{
    (void)state;
    static const struct {
        const char *trained, *resumed, *why, *what;
    } cases[] = {
        {"lora.core=3", "lora.core=2", "has rank 3", "checkpoint-3"},
        {"lora.core=3", "lora.core=0", "has rank 3", "checkpoint-3"},
        {"lora.core=4", "lora.core=0", "holds 6 cores, the job asks for 0", "cores.safetensors"},
        {"lora.core=4", "lora.core_blocks=all", "holds 6 cores", "asks for 15"},
        {"lora.core=0", "lora.core=4", "missing", "cores.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const run = scratch("refused-%zu", i);
        struct process done = TRAIN(job, run, cases[i].trained, pair, "train.max_steps=3",
                                    "plan.blocks={npu0: 2, gpu0: 3}");
        assert_success(&done);
        done = TRAIN(job, run, "--resume", cases[i].trained, cases[i].resumed, pair,
                     "plan.blocks={npu0: 2, gpu0: 3}");
        ASSERT_REFUSED(&done, 2, cases[i].why, cases[i].what);
    }
}

static double eval_loss(const char *base, const char *adapter)
{
    const char *const setting = text("model=%s", base);
    const struct process done =
        adapter ? RUN("eval", job, "--json", "--set", setting, "--set", CORES, "--set", one,
                      "--adapter", adapter, "--set", "strategy=single")
                : RUN("eval", job, "--json", "--set", setting, "--set", CORES, "--set", one,
                      "--set", "strategy=single");
    assert_success(&done);
    json_t *const result = keep_json(json_loads(done.out, 0, NULL));
    assert_non_null(result);
    return number(result, "loss");
}

/* The adapter that a run leaves is plain LoRA: it evaluates, merges and generates as any. */
static void test_adapter_is_plain(void **state)
{
    (void)state;
    const char *const run = scratch("plain"), *const merged = scratch("merged");
    const char *const adapter = text("%s/adapter", run);
    struct process done = TRAIN(job, run, CORES, pair, "plan.blocks={npu0: 2, gpu0: 3}");
    assert_success(&done);
    const json_t *const summary = read_json(text("%s/summary.json", run));
    const double trained = number(json_object_get(summary, "eval_after"), "loss");
    const double before = number(json_object_get(summary, "eval_before"), "loss");
    assert_near("loss of the bare model", eval_loss(model, NULL), before, 1e-7);
    assert_true(trained < before);
    assert_near("loss with the adapter", eval_loss(model, adapter), trained, 1e-6);
    const json_t *const config = read_json(text("%s/adapter_config.json", adapter));
    assert_int_equal(number(config, "r"), 4);
    const json_t *const ranks = json_object_get(config, "rank_pattern");
    assert_int_equal(json_object_size(ranks), 6);
    assert_int_equal(number(ranks, "model.layers.1.mlp.down_proj"), 3);
    done = RUN("merge", "--model", model, "--adapter", adapter, "-o", merged);
    assert_success(&done);
    assert_near("loss of the merged model", eval_loss(merged, NULL), trained, 1e-5);
    done = TRAIN(job, scratch("continued"), one, "strategy=single", text("lora.init=%s", adapter),
                 "train.max_steps=1");
    assert_success(&done);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *const run = scratch("plain");
    struct process done = TRAIN(job, scratch("bad"), one, "strategy=single", CORES,
                                text("lora.init=%s/adapter", run));
    ASSERT_REFUSED(&done, 2, "lora.core", "lora.init");
    done = TRAIN(job, scratch("large"), pair, "plan.blocks={npu0: 2, gpu0: 3}", "lora.core=40");
    ASSERT_REFUSED(&done, 2, "model.layers.0.self_attn", "rank 40");
}

/* Without zeroth-order blocks there is nothing to train cores in, unless all are asked for. */
static void test_no_zeroth_order(void **state)
{
    (void)state;
    const char *const cores = scratch("none-cores"), *const plain = scratch("none-plain");
    const struct process a = TRAIN(job, cores, CORES, one, "strategy=single");
    const struct process b = TRAIN(job, plain, one, "strategy=single");
    assert_success(&a);
    assert_success(&b);
    assert_same_adapter(cores, plain);
    assert_false(file_exists(text("%s/checkpoint-6/cores.safetensors", cores)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_is_single), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_refused),     cmocka_unit_test(test_adapter_is_plain),
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_no_zeroth_order),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
