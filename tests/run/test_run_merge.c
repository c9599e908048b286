/* Adapters whose modules differ, trained over pipelines; merged models against model and adapter.
 */
#include "support.h"

#include <math.h>
#include <string.h>

#include "model/adapter.h"

/* Ranks and alphas of every kind PEFT knows, in a model of four blocks. */
static const char config[] =
    "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"v_proj\", "
    "\"model.layers.1.mlp.down_proj\"], \"exclude_modules\": [\"layers.2.self_attn.v_proj\"], "
    "\"r\": 3, \"lora_alpha\": 6, \"use_rslora\": true, \"rank_pattern\": "
    "{\"layers.3.self_attn.q_proj\": 5, \"v_proj\": 1}, \"alpha_pattern\": {\"layers.0.*\": 2.5}, "
    "\"brand_new_key\": 3}\n";

static const char *model, *rows, *adapter, *job;

/* Takes the configuration as any other tool would have left it. */
static const char *write_adapter(const char *name)
{
    struct hop_error err = {0};
    struct hop_model_config shape;
    struct hop_lora_config lora;
    struct hop_parameters parameters = {0};
    const char *const folder = scratch("%s", name);
    const char *const path = write_text(text("%s/adapter_config.json", name), "%s", config);
    if (hop_model_config_load(model, &shape, &err) != HOP_OK ||
        hop_adapter_config(folder, &shape, &lora, &err) != HOP_OK ||
        hop_parameters_create(&shape, &lora, 0, shape.blocks, &parameters, &err) != HOP_OK)
        fail_msg("%s: %s", path, err.message);
    for (size_t i = 0; i < parameters.total; i++)
        parameters.values[i] = 0.3f * sinf((float)(5 * i));
    if (hop_adapter_save(folder, &lora, &parameters, "base", &err) != HOP_OK)
        fail_msg("%s", err.message);
    hop_parameters_free(&parameters);
    write_text(text("%s/adapter_config.json", name), "%s", config);
    return folder;
}

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){.blocks = 4});
    rows = write_rows("rows.jsonl", 21, 6, 14, 64);
    adapter = write_adapter("adapter");
    job = write_text("job.yaml",
                     "model: %s\n"
                     "data: {task: jsonl, train: %s, eval: %s, max_length: 64}\n"
                     "lora: {init: %s}\n"
                     "train: {batch_size: 8, micro_batch: 2, learning_rate: 0.01, seed: 11,\n"
                     "        scheduler: constant, max_steps: 6, eval_every: 0, save_every: 3}\n"
                     "output: unset\n",
                     model, rows, rows, adapter);
    return 0;
}

static const char *cluster(const char *devices, const char *extra)
{
    return text("cluster=%s", write_cluster(devices, 1, extra));
}

/* One device and three compute the same, wherever blocks with more or fewer parameters go. */
static void test_pipelines_agree(void **state)
{
    (void)state;
    const char *const one = scratch("one"), *const three = scratch("three");
    const char *const streamed = scratch("streamed");
    const struct process a = TRAIN(job, one, cluster("B", NULL), "strategy=single");
    assert_success(&a);
    assert_holds("the warning", a.err, "\"brand_new_key\" is not known here and ignored");
    const struct process b =
        TRAIN(job, three, cluster("BBB", NULL), "plan.blocks={gpu0: 1, gpu1: 1, gpu2: 2}");
    assert_success(&b);
    const struct process c = TRAIN(job, streamed, cluster("BBB", "share_files: false"),
                                   "plan.blocks={gpu0: 1, gpu1: 1, gpu2: 2}");
    assert_success(&c);
    ASSERT_SAME_LINES(three, one, 1e-4, "loss", "grad_norm");
    assert_same_adapter(streamed, three);
    const double distance = adapter_distance(text("%s/adapter", three), text("%s/adapter", one));
    if (!(distance < 1e-3))
        fail_msg("the adapters differ by %g", distance);
    if (!(adapter_distance(text("%s/adapter", one), adapter) > 1e-3))
        fail_msg("training changed nothing");
}

/* What is saved says the same of every module as what it started from. */
static void test_saved_patterns(void **state)
{
    (void)state;
    const char *const run = scratch("saved");
    struct hop_error err = {0};
    struct hop_model_config shape;
    struct hop_lora_config before, after;
    int32_t block;
    enum hop_target target;
    const struct process done = TRAIN(job, run, cluster("BN", NULL), "zo.probes=2");
    assert_success(&done);
    const char *const folders[] = {text("%s/adapter", run), text("%s/checkpoint-3", run)};
    for (size_t i = 0; i < 2; i++) {
        if (hop_model_config_load(model, &shape, &err) != HOP_OK ||
            hop_adapter_config(adapter, &shape, &before, &err) != HOP_OK ||
            hop_adapter_config(folders[i], &shape, &after, &err) != HOP_OK)
            fail_msg("%s", err.message);
        if (hop_lora_difference(&before, &after, shape.blocks, &block, &target))
            fail_msg("%s: %s of block %d is another", folders[i], hop_target_names[target], block);
        adapter_distance(folders[i], adapter);
    }
}

/* Resumed runs end as whole ones do. */
static void test_resume(void **state)
{
    (void)state;
    const char *const whole = scratch("whole"), *const resumed = scratch("resumed");
    const char *const devices = cluster("BN", NULL);
    const struct process a = TRAIN(job, whole, devices, "zo.probes=2");
    assert_success(&a);
    const struct process b = TRAIN(job, resumed, devices, "zo.probes=2", "train.max_steps=3");
    assert_success(&b);
    const struct process c = TRAIN(job, resumed, devices, "zo.probes=2", "--resume");
    assert_success(&c);
    assert_same_adapter(resumed, whole);
}

static double eval_loss(const char *folder, const char *with)
{
    const char *const setting = text("model=%s", folder);
    const struct process done =
        with ? RUN("eval", job, "--json", "--set", setting, "--set", cluster("B", NULL),
                   "--adapter", with)
             : RUN("eval",
                   write_text("bare.yaml",
                              "model: %s\n"
                              "data: {task: jsonl, train: %s, eval: %s, max_length: 64}\n"
                              "train: {batch_size: 8, micro_batch: 2}\n"
                              "output: unset\n",
                              folder, rows, rows),
                   "--json", "--set", cluster("B", NULL));
    assert_success(&done);
    json_t *const result = json_loads(done.out, 0, NULL);
    if (!result)
        fail_msg("eval printed %s", done.out);
    return number(keep_json(result), "loss");
}

/* The merged model needs no adapter. */
static void test_merged_loss(void **state)
{
    (void)state;
    const char *const merged = scratch("merged");
    const struct process done = RUN("merge", "--model", model, "--adapter", adapter, "-o", merged);
    assert_success(&done);
    assert_holds("merge", done.out, "8 of 38 tensors merged, 1 file");
    assert_holds("the warning", done.err, "brand_new_key");
    const double with = eval_loss(model, adapter), bare = eval_loss(model, NULL);
    assert_near("loss of the merged model", eval_loss(merged, NULL), with, 1e-5);
    if (!(fabs(with - bare) > 1e-3))
        fail_msg("the adapter changes nothing: %g", with);
}

static void test_merged_text(void **state)
{
    (void)state;
    const char *const base = test_data("models/stories260K"), *const lora = test_data("lora/final");
    const char *const merged = scratch("stories"), *const sharded = scratch("shards");
    const struct process first = RUN("merge", "-m", base, "-a", lora, "-o", merged);
    assert_success(&first);
    const struct process second =
        RUN("merge", "-m", base, "-a", lora, "-o", sharded, "--shard-size", "300KB");
    assert_success(&second);
    assert_holds("merge", second.out, "files");
    const struct process with = RUN("generate", "--backend", backend(), "-m", base, "-a", lora,
                                    "-p", "One day", "--max-tokens", "60");
    const struct process without = RUN("generate", "--backend", backend(), "-m", merged, "-p",
                                       "One day", "--max-tokens", "60");
    const struct process shards = RUN("generate", "--backend", backend(), "-m", sharded, "-p",
                                      "One day", "--max-tokens", "60");
    assert_success(&with);
    assert_string_equal(without.out, with.out);
    assert_string_equal(shards.out, with.out);
}

static void test_refused(void **state)
{
    (void)state;
    const char *const out = scratch("refused");
    struct process done = RUN("merge", "-m", model, "-a", adapter, "-o", model);
    ASSERT_REFUSED(&done, 2, model, "not empty");
    done = RUN("merge", "-m", model, "-a", scratch("nowhere"), "-o", out);
    ASSERT_REFUSED(&done, 2, "nowhere/adapter_config.json");
    done = RUN("merge", "-m", scratch("nowhere"), "-a", adapter, "-o", out);
    ASSERT_REFUSED(&done, 2, "nowhere/config.json");
    done = RUN("merge", "-m", model, "-o", out);
    assert_int_equal(done.status, 2);
    assert_holds("usage", done.err, "--adapter is missing");
    done = RUN("merge", "-m", model, "-a", adapter, "-o", out, "--shard-size", "many");
    assert_int_equal(done.status, 2);
    assert_holds("usage", done.err, "--shard-size many");
    done = RUN("merge", "-m", model, "-a", adapter, "-o", out, "--dtype", "int8");
    assert_int_equal(done.status, 2);
    assert_holds("usage", done.err, "--dtype int8");
    if (file_exists(out) || file_exists(text("%s.tmp", out)))
        fail_msg("a refused merge left something behind");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelines_agree), cmocka_unit_test(test_saved_patterns),
        cmocka_unit_test(test_resume),          cmocka_unit_test(test_merged_loss),
        cmocka_unit_test(test_merged_text),     cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
