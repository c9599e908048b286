/* Models of every shape train over ranks as in one process: biases, heads of another width, own
 * heads, stretched and scaled rotary embedding, shards; mapped and streamed. */
#include "support_large.h"

#include <stdio.h>
#include <string.h>

static const char *rows;

static int set_up(void **state)
{
    (void)state;
    rows = write_rows("rows.jsonl", 16, 6, 14, 64);
    return 0;
}

static struct hop_model_config base(void)
{
    return (struct hop_model_config){.hidden = 40,
                                     .intermediate = 72,
                                     .blocks = 4,
                                     .heads = 6,
                                     .kv_heads = 2,
                                     .head_dim = 12,
                                     .vocabulary = 64,
                                     .max_positions = 256,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 10000,
                                     .rope_factor = 1,
                                     .bos = 1,
                                     .eos = {2},
                                     .eos_count = 1};
}

static void train_both_ways(const char *name, const struct hop_model_config *config,
                            int64_t shard_bytes, bool share)
{
    const char *const model = write_generated(name, config, HOP_F32, shard_bytes, 5);
    const char *const job = write_job(text("%s.yaml", name), model, rows, NULL);
    const char *const one = scratch("%s-one", name), *const many = scratch("%s-many", name);
    const struct process a = TRAIN(job, one, "strategy=single", "zo.blocks=[0, 2]",
                                   text("cluster=%s", write_cluster("B", 1, NULL)));
    const struct process b =
        TRAIN(job, many, "plan.blocks={npu0: 2, gpu0: 2}",
              text("cluster=%s", write_cluster("NB", 1, share ? NULL : "share_files: false")));
    assert_success(&a);
    assert_success(&b);
    ASSERT_SAME_LINES(many, one, 0, "loss", "grad_norm", "zo_grad_norm", "zo_g_mean");
    assert_same_adapter(many, one);
    assert_true(number(step_line(read_metrics(one), 1), "loss") > 0);
}

static void test_biases(void **state)
{
    (void)state;
    struct hop_model_config config = base();
    config.attention_bias = config.mlp_bias = true;
    train_both_ways("mapped", &config, 0, true);
    train_both_ways("streamed", &config, 20000, false);
    assert_same_adapter(scratch("mapped-one"), scratch("streamed-many"));
    config.mlp_bias = false;
    train_both_ways("attention", &config, 0, false);
}

static void test_rope(void **state)
{
    (void)state;
    struct hop_model_config config = base();
    config.rope_scaling = HOP_ROPE_DYNAMIC;
    config.rope_factor = 2;
    config.max_positions = 10; /* rows have 6 to 14 tokens */
    config.tied = true;
    train_both_ways("dynamic", &config, 0, false);
    config = base();
    config.rope_scaling = HOP_ROPE_YARN;
    config.rope_factor = 8;
    config.rope_attention = 1.2;
    config.rope_low = 1;
    config.rope_high = 32;
    config.rope_original = 32;
    train_both_ways("yarn", &config, 0, false);
    config.rope_scaling = HOP_ROPE_PLAIN;
    train_both_ways("plain", &config, 0, false);
    /* The scalings reach the computation: the adapters end up elsewhere. */
    const double apart =
        adapter_distance(scratch("yarn-one/adapter"), scratch("plain-one/adapter"));
    if (!(apart > 1e-3))
        fail_msg("with and without YaRN the adapters differ by %g only", apart);
}

/* A folder with a tensor nobody needs trains the same, and says so once. */
static void test_unused(void **state)
{
    (void)state;
    struct hop_model_config config = base();
    const char *const model = write_generated("tied", &config, HOP_F32, 0, 5);
    json_t *const written = read_json(text("%s/config.json", model));
    json_object_set_new(written, "tie_word_embeddings", json_true());
    write_text("tied/config.json", "%s", dump_json(written));
    const struct process done =
        TRAIN(write_job("tied.yaml", model, rows, NULL), scratch("tied-run"), "strategy=single",
              text("cluster=%s", write_cluster("B", 1, NULL)));
    assert_success(&done);
    assert_holds("stderr", done.err,
                 "1 tensor is not part of this model and unused: lm_head.weight");
    const char *const first = strstr(done.err, "lm_head.weight");
    assert_null(strstr(first + 1, "lm_head.weight"));
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
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_unused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
