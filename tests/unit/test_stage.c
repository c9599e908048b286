/* Stages against the reference implementation's numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "model/config.h"

static const struct hop_ops *backends[4];
static int backend_count;

static struct hop_stage_config whole_model(const struct hop_model_config *model,
                                           const struct support_batch *b)
{
    return (struct hop_stage_config){.model = *model,
                                     .dtype = HOP_F32,
                                     .hi = model->blocks,
                                     .embed = true,
                                     .head = true,
                                     .limits = support_limits(b)};
}

static int32_t read_ids(const json_t *list, int32_t *ids)
{
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (int32_t)n;
}

static void stories_greedy_loss(const struct hop_ops *ops, const struct hop_weights *weights,
                                const struct hop_model_config *model, const json_t *oracle)
{
    struct hop_error err = {0};
    static struct support_batch b;
    struct support_stage s;
    int32_t ids[SUPPORT_TOKENS];
    float logprob[SUPPORT_TOKENS];
    support_batch_begin(&b);
    const int32_t n = read_ids(json_object_get(oracle, "greedy_ids"), ids);
    support_batch_add(&b, ids, NULL, n);
    const struct hop_stage_config config = whole_model(model, &b);
    support_stage_open(&s, ops, weights, &config);
    assert_ok(hop_stage_forward(s.stage, &b.batch, -1, NULL, NULL, logprob, &err));
    const double loss = support_loss(logprob, (size_t)b.batch.labels, b.batch.labels);
    const double expected = json_number_value(json_object_get(oracle, "mean_nll_of_greedy_ids"));
    print_message("%s: mean NLL %.9f, expected %.9f\n", ops->name, loss, expected);
    assert_close(loss, expected, 1e-5);
    support_stage_close(&s);
}

static void stories_logits(const struct hop_ops *ops, const struct hop_weights *weights,
                           const struct hop_model_config *model, const json_t *oracle)
{
    struct hop_error err = {0};
    static struct support_batch b;
    struct support_stage s;
    int32_t ids[SUPPORT_TOKENS];
    float logits[512];
    support_batch_begin(&b);
    const int32_t n = read_ids(json_object_get(oracle, "prompt_ids"), ids);
    support_batch_add(&b, ids, NULL, n);
    struct hop_stage_config config = whole_model(model, &b);
    config.cache = 64;
    support_stage_open(&s, ops, weights, &config);
    assert_ok(hop_stage_decode(s.stage, ids, n, 0, logits, &err));
    const json_t *const expected = json_object_get(oracle, "prompt_last_logits");
    double worst = 0;
    for (size_t i = 0; i < 512; i++)
        worst =
            fmax(worst, fabs((double)logits[i] - json_number_value(json_array_get(expected, i))));
    print_message("%s: largest logit error %.3g\n", ops->name, worst);
    assert_true(worst < 1e-4);
    support_stage_close(&s);
}

static void test_stories_forward(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_model_config model;
    struct hop_weights *weights;
    char directory[512];
    strcpy(directory, support_data("models/stories260K"));
    json_t *const oracle = support_json(support_data("models/stories260K/forward_oracle.json"));
    assert_ok(hop_model_config_load(directory, &model, &err));
    assert_ok(hop_weights_open(directory, &model, &weights, &err));
    for (int i = 0; i < backend_count; i++) {
        stories_greedy_loss(backends[i], weights, &model, oracle);
        stories_logits(backends[i], weights, &model, oracle);
    }
    hop_weights_free(weights);
    json_decref(oracle);
}

int main(void)
{
    for (int i = 0; hop_backends[i]; i++)
        backends[backend_count++] = hop_backends[i];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
