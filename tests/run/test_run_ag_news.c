/* AG News learned by the public model of 260 K parameters: the accuracy of a PyTorch run, under one
 * reading of how that run began. Takes minutes. */
#include "support.h"

#include <math.h>

#include "model/adapter.h"

enum { SEED = 1, RANK = 8, SECONDS = 3000 };

static struct hop_error err;

/* How the reference began is not known. PEFT's A ~ U(-1/sqrt(in), 1/sqrt(in)), ours too, learns
 * slower than it did; kaiming_uniform(sqrt(5)) of a matrix stored (in, rank), for x A B, is
 * U(-1/sqrt(rank), 1/sqrt(rank)) and comes closest to it of the readings in
 * docs/measurements.md. */
static void widen(struct hop_parameters *parameters)
{
    for (size_t i = 0; i < parameters->count; i++) {
        const struct hop_parameter *const item = &parameters->items[i];
        float *const values = parameters->values + item->offset;
        const double factor = sqrt((double)item->columns / RANK);
        for (size_t k = 0; item->factor == HOP_LORA_A && k < item->count; k++)
            values[k] = (float)(values[k] * factor);
    }
}

static const char *write_adapter(const char *model)
{
    struct hop_model_config config;
    struct hop_lora_config lora = {.rank = RANK, .alpha = 16};
    struct hop_parameters parameters = {0};
    const char *const folder = scratch("wide");
    for (size_t i = 0; i < HOP_TARGETS; i++)
        lora.targets[i] = true;
    if (hop_model_config_load(model, &config, &err) != HOP_OK ||
        hop_parameters_create(&config, &lora, 0, config.blocks, &parameters, &err) != HOP_OK)
        fail_msg("%s", err.message);
    hop_parameters_initialise(&parameters, SEED);
    widen(&parameters);
    if (hop_adapter_save(folder, &lora, &parameters, model, &err) != HOP_OK)
        fail_msg("%s", err.message);
    hop_parameters_free(&parameters);
    return folder;
}

/* 110 tokens of text, BOS, " Topic:", and room for the longest answer. */
static const char *write_news_job(const char *model)
{
    return write_text("news.yaml",
                      "model: %s\n"
                      "data: {task: ag_news, train: %s, eval: %s, max_length: 125, limit: 3984,\n"
                      "       eval_limit: 400}\n"
                      "lora: {init: %s}\n"
                      "train: {batch_size: 16, micro_batch: 16, learning_rate: 1.5e-3,\n"
                      "        scheduler: linear, dtype: f32, seed: %d}\n"
                      "strategy: single\n"
                      "output: unset\n",
                      model, test_data("agnews/train_5000.csv"), test_data("agnews/test.csv"),
                      write_adapter(model), SEED);
}

/* 64.8 % of 400 rows, give or take 5. The seed is fixed: others fall up to 7 short of the 64.8
 * (docs/measurements.md). */
static void test_as_well_as_pytorch(void **state)
{
    (void)state;
    const char *const run = scratch("news");
    const char *const job = write_news_job(test_data("models/stories260K"));
    struct process process = START(job, run, text("cluster=%s", write_cluster("B", 1, NULL)));
    if (!wait_program(&process, SECONDS)) {
        kill_tree(&process);
        fail_msg("still running after %d s", SECONDS);
    }
    assert_success(&process);
    assert_int_equal(count_steps(read_metrics(run)), 249);
    const json_t *const summary = read_json(text("%s/summary.json", run));
    const double before = number(json_object_get(summary, "eval_before"), "accuracy");
    const double after = number(json_object_get(summary, "eval_after"), "accuracy");
    print_message("accuracy %.4f, before %.4f\n", after, before);
    assert_true(before < 0.35);
    assert_true(after >= 0.598 && after <= 0.698);
}

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_well_as_pytorch)};
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
