/* config.json: real files, defaults, both RoPE spellings, and what must be refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support_model.h"

#include "io/file.h"
#include "io/json.h"

static struct hop_error err;

static hop_status parse(const char *text, struct hop_model_config *out)
{
    json_t *object = NULL;
    err = (struct hop_error){0};
    assert_ok(hop_json_parse(text, strlen(text), "config.json", &object, &err));
    const hop_status status = hop_model_config_parse(object, "config.json", out, &err);
    json_decref(object);
    return status;
}

static void load_real(const char *name, struct hop_model_config *out)
{
    json_t *const object = support_json(support_data(name));
    assert_ok(hop_model_config_parse(object, name, out, &err));
    json_decref(object);
}

static void test_real_files(void **state)
{
    (void)state;
    struct hop_model_config c;
    load_real("formats/configs/Llama-3.2-1B.config.json", &c);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.kv_heads, 8);
    assert_true(c.tied);
    assert_int_equal(c.rope_scaling, HOP_ROPE_LLAMA3);
    assert_int_equal(c.rope_original, 8192);
    assert_int_equal(hop_model_parameters(&c), 1235814400);
    load_real("formats/configs/Llama-3.2-3B.config.json", &c);
    assert_int_equal(hop_model_parameters(&c), 3212749824);
    load_real("formats/configs/Llama-3.1-8B.config.json", &c);
    assert_int_equal(hop_model_parameters(&c), 8030261248);
    assert_int_equal(c.head_dim, 128);
    assert_false(c.tied);
}

static void check_frequencies(const char *name, const json_t *all)
{
    struct hop_model_config c;
    char path[128];
    snprintf(path, sizeof path, "formats/configs/%s.config.json", name);
    load_real(path, &c);
    const json_t *list = json_object_get(all, name);
    if (json_is_object(list))
        list = json_object_get(list, "inv_freq");
    assert_int_equal(json_array_size(list), (size_t)c.head_dim / 2);
    for (int32_t j = 0; j < c.head_dim / 2; j++) {
        const double expected = json_number_value(json_array_get(list, (size_t)j));
        assert_close(hop_model_rope_frequency(&c, j) / expected, 1, 1e-12);
    }
}

static void test_llama3_rope(void **state)
{
    (void)state;
    json_t *const all = support_json(support_data("formats/configs/llama3_rope_inv_freq.json"));
    check_frequencies("Llama-3.2-1B", all);
    check_frequencies("Llama-3.2-3B", all);
    check_frequencies("Llama-3.1-8B", all);
    json_decref(all);
}

static void test_defaults(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{}", &c));
    assert_int_equal(c.hidden, 4096);
    assert_int_equal(c.intermediate, 11008);
    assert_int_equal(c.blocks, 32);
    assert_int_equal(c.kv_heads, 32);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.vocabulary, 32000);
    assert_int_equal(c.max_positions, 2048);
    assert_close(c.norm_eps, 1e-6, 1e-12);
    assert_close(c.rope_theta, 10000, 0);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.eos_count, 1);
    assert_int_equal(c.eos[0], 2);
    assert_false(c.tied);
}

static void test_rope_spellings(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, "
                    "\"rope_theta\": 5e5}}",
                    &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_LINEAR);
    assert_close(c.rope_theta, 5e5, 0);
    assert_close(hop_model_rope_frequency(&c, 0), 0.25, 1e-15);
    assert_ok(parse("{\"rope_theta\": 7, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
                    "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                    "\"original_max_position_embeddings\": 8192}}",
                    &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_LLAMA3);
    assert_close(c.rope_theta, 7, 0);
    assert_ok(parse("{\"rope_scaling\": {\"rope_type\": \"default\"}}", &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_PLAIN);
    assert_fails(parse("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}", &c),
                 HOP_UNSUPPORTED, "yarn");
    assert_fails(parse("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", &c),
                 HOP_INPUT, "low_freq_factor");
}

static void test_tokens(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{\"eos_token_id\": [5, 6, 7], \"bos_token_id\": null}", &c));
    assert_int_equal(c.eos_count, 3);
    assert_int_equal(c.eos[2], 7);
    assert_int_equal(c.bos, -1);
    assert_ok(parse("{\"eos_token_id\": null}", &c));
    assert_int_equal(c.eos_count, 0);
    assert_fails(parse("{\"eos_token_id\": 32000}", &c), HOP_INPUT, "eos_token_id");
}

static void test_refused(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_fails(parse("{\"attention_bias\": true}", &c), HOP_UNSUPPORTED, "attention_bias");
    assert_fails(parse("{\"mlp_bias\": true}", &c), HOP_UNSUPPORTED, "mlp_bias");
    assert_fails(parse("{\"hidden_act\": \"gelu\"}", &c), HOP_UNSUPPORTED, "gelu");
    assert_fails(parse("{\"model_type\": \"mistral\"}", &c), HOP_UNSUPPORTED, "mistral");
    assert_fails(parse("{\"quantization_config\": {}}", &c), HOP_UNSUPPORTED, "quantization");
    assert_fails(parse("{\"hidden_size\": 0}", &c), HOP_INPUT, "hidden_size");
    assert_fails(parse("{\"hidden_size\": 99999999}", &c), HOP_INPUT, "hidden_size");
    assert_fails(parse("{\"hidden_size\": 100, \"num_attention_heads\": 3}", &c), HOP_INPUT,
                 "head_dim");
    assert_fails(parse("{\"num_key_value_heads\": 5}", &c), HOP_INPUT, "num_key_value_heads");
    assert_fails(parse("{\"head_dim\": 7}", &c), HOP_INPUT, "head_dim");
    assert_fails(parse("{\"vocab_size\": \"x\"}", &c), HOP_INPUT, "vocab_size");
    assert_fails(parse("[]", &c), HOP_INPUT, "config.json");
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}, \"bos_token_id\": null}",
        "{\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1, "
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
        "\"rope_theta\": 500000}, \"eos_token_id\": [3, 4], \"tie_word_embeddings\": true}"};
    for (size_t i = 0; i < 3; i++) {
        struct hop_model_config first, second;
        memset(&first, 0, sizeof first);
        memset(&second, 0, sizeof second);
        assert_ok(parse(texts[i], &first));
        json_t *const object = hop_model_config_json(&first);
        assert_non_null(object);
        assert_ok(hop_model_config_parse(object, "copy", &second, &err));
        assert_int_equal(first.eos_count, second.eos_count);
        assert_memory_equal(first.eos, second.eos, sizeof first.eos);
        assert_int_equal(first.bos, second.bos);
        assert_int_equal(first.tied, second.tied);
        assert_close(first.norm_eps, second.norm_eps, 0);
        for (int32_t j = 0; j < first.head_dim / 2; j++)
            assert_close(hop_model_rope_frequency(&first, j), hop_model_rope_frequency(&second, j),
                         0);
        json_decref(object);
    }
}

static void test_generation_eos(void **state)
{
    (void)state;
    char folder[64], path[128];
    struct hop_model_config c;
    support_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(hop_file_write(path, "{}", 2, &err));
    assert_ok(hop_model_config_load(folder, &c, &err));
    assert_int_equal(c.eos[0], 2);
    static const char generation[] = "{\"eos_token_id\": [9, 8]}";
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    assert_ok(hop_file_write(path, generation, strlen(generation), &err));
    assert_ok(hop_model_config_load(folder, &c, &err));
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos[0], 9);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_files), cmocka_unit_test(test_llama3_rope),
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_rope_spellings),
        cmocka_unit_test(test_tokens),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_generation_eos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
