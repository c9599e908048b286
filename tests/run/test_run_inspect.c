/* hybridop inspect: models with and without weights, tokenizers and templates, adapters, and
 * folders that are wrong. */
#include "support_large.h"

#include <stdio.h>
#include <string.h>

#include "io/json.h"

static json_t *inspect(const char *folder)
{
    json_error_t where;
    const struct process done = RUN("inspect", folder, "--json");
    assert_success(&done);
    json_t *const found = json_loads(done.out, 0, &where);
    if (!found)
        fail_msg("not JSON: %s: %s", where.text, done.out);
    return keep_json(found);
}

static const json_t *at(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    if (!value)
        fail_msg("\"%s\" is missing: %s", key, dump_json(object));
    return value;
}

static void assert_text(const json_t *object, const char *key, const char *expected)
{
    const char *const found = json_string_value(at(object, key));
    if (!found || strcmp(found, expected) != 0)
        fail_msg("\"%s\" is %s, expected \"%s\"", key, found ? found : "no text", expected);
}

static bool lists(const json_t *object, const char *key, const char *entry)
{
    size_t i;
    const json_t *value;
    json_array_foreach(at(object, key), i,
                       value) if (json_is_string(value) &&
                                  strstr(json_string_value(value), entry)) return true;
    return false;
}

/* LLaMA-3.2-1B without its weights: sizes are those of the published model. */
static void test_config_only(void **state)
{
    (void)state;
    write_text(
        "config-only/config.json",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 2048, "
        "\"intermediate_size\": 8192, \"num_hidden_layers\": 16, \"num_attention_heads\": 32, "
        "\"num_key_value_heads\": 8, \"vocab_size\": 128256, \"tie_word_embeddings\": true, "
        "\"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, 128009], "
        "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"dtype\": \"bfloat16\", "
        "\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": "
        "32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192}}");
    const json_t *const found = inspect(scratch("config-only"));
    const json_t *const parameters = at(found, "parameters"), *const rope = at(found, "rope");
    const json_t *const memory = at(found, "memory_per_block");
    assert_text(found, "kind", "model");
    assert_int_equal(number(parameters, "total"), 1235814400);
    assert_int_equal(number(parameters, "embedding"), 262668288);
    assert_int_equal(number(parameters, "block"), 60821504);
    assert_int_equal(number(parameters, "head"), 0);
    assert_true(json_is_true(at(found, "tied")));
    assert_text(rope, "type", "llama3");
    assert_int_equal(number(rope, "theta"), 500000);
    assert_text(memory, "dtype", "bf16");
    /* Two bytes a matrix element, four a gain. */
    assert_int_equal(number(memory, "frozen"), 2 * (60821504 - 2 * 2048) + 4 * 2 * 2048);
    /* q_proj (2048 + 2048) and v_proj (2048 + 512) times rank 8, 16 bytes each. */
    assert_int_equal(number(memory, "adapters"), 8 * (4096 + 2560) * 16);
    /* Three hidden-wide and two query-wide tensors, keys, values, gate, up in bf16; norms,
     * log-sum-exp and the adapters' inner values in f32. */
    assert_int_equal(number(memory, "kept_per_token"),
                     2 * (2 * 2048 + 2 * 2048 + 2 * 512 + 2 * 8192) + 4 * (2 + 32 + 2 * 8));
    assert_true(json_is_null(at(found, "weights")) && json_is_null(at(found, "tokenizer")));
    assert_true(lists(found, "missing", "model.safetensors"));
    assert_true(lists(found, "missing", "tokenizer.json"));
    write_text("config-only/pytorch_model.bin", "x");
    assert_true(lists(inspect(scratch("config-only")), "notes", "pytorch_model.bin"));
    write_text("config-only/tokenizer.model", "x");
    assert_true(lists(inspect(scratch("config-only")), "notes", "tokenizer.model"));
    const struct process text_form = RUN("inspect", scratch("config-only"));
    assert_success(&text_form);
    assert_holds("inspect", text_form.out, "1235814400");
    assert_holds("inspect", text_form.out, "llama3, theta 500000");
    assert_holds("inspect", text_form.out, "missing");
}

static struct hop_model_config small(void)
{
    return (struct hop_model_config){.hidden = 64,
                                     .intermediate = 96,
                                     .blocks = 3,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 16,
                                     .vocabulary = 50,
                                     .max_positions = 128,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 10000,
                                     .rope_factor = 1,
                                     .attention_bias = true,
                                     .bos = 1,
                                     .eos = {2},
                                     .eos_count = 1};
}

static void test_weights(void **state)
{
    (void)state;
    struct hop_model_config config = small();
    const char *const model = write_generated("sharded", &config, HOP_BF16, 30000, 1);
    const json_t *found = inspect(model), *weights = at(found, "weights");
    const int64_t bytes = 2 * hop_model_parameters(&config);
    assert_true(json_array_size(at(weights, "files")) >= 3);
    assert_int_equal(number(weights, "bytes"), bytes);
    assert_int_equal(number(at(weights, "dtypes"), "BF16"), bytes);
    assert_int_equal(number(weights, "tensors"), 3 * (9 + 4) + 3);
    assert_int_equal(json_array_size(at(weights, "unused")), 0);
    assert_int_equal(number(at(found, "parameters"), "head"), 50 * 64);
    assert_text(at(found, "memory_per_block"), "dtype", "bf16");
    /* The same files under a configuration that needs less. */
    config.attention_bias = false;
    config.tied = true;
    json_t *const changed = keep_json(hop_model_config_json(&config));
    write_text("sharded/config.json", "%s", dump_json(changed));
    found = inspect(model);
    weights = at(found, "weights");
    assert_int_equal(json_array_size(at(weights, "unused")), 3 * 4 + 1);
    assert_true(lists(weights, "unused", "lm_head.weight"));
    assert_true(lists(found, "notes", "attention_bias"));
    const struct process text_form = RUN("inspect", model);
    assert_success(&text_form);
    assert_holds("inspect", text_form.out, "model-00001.safetensors");
    assert_holds("inspect", text_form.out, "13 tensors are not part of this model");
}

/* What is there is shown, and what is wrong makes the exit status. */
static void test_unusable_weights(void **state)
{
    (void)state;
    const struct hop_model_config config = small();
    const char *const model = write_generated("broken", &config, HOP_F32, 30000, 1);
    remove(scratch("broken/model-00002.safetensors"));
    const struct process done = RUN("inspect", model);
    ASSERT_REFUSED(&done, 2, "model-00002.safetensors");
    assert_holds("inspect", done.out, "hidden 64");
    assert_holds("inspect", done.out, "cannot be used");
}

static void test_real_folders(void **state)
{
    (void)state;
    const json_t *found = inspect(test_data("models/stories260K"));
    assert_int_equal(number(at(found, "parameters"), "total"), 260032);
    assert_text(at(found, "tokenizer"), "kind", "SentencePiece BPE");
    assert_int_equal(number(at(found, "tokenizer"), "vocabulary"), 512);
    found = inspect(test_data("lora/final"));
    assert_text(found, "kind", "adapter");
    assert_int_equal(number(found, "rank"), 4);
    assert_int_equal(json_array_size(at(found, "targets")), 7);
    assert_int_equal(number(found, "parameters"), 23120);
    assert_text(found, "peft_type", "LORA");
    found = inspect(test_data("formats/peft_0.18.1"));
    assert_int_equal(number(found, "rank"), 16);
    assert_int_equal(number(found, "alpha"), 32);
    assert_true(lists(found, "targets", "c_attn"));
}

static void test_bundled_model(void **state)
{
    (void)state;
    const json_t *const found = inspect(HOP_SOURCE_DIR "/models/wordnet-3m");
    assert_text(at(found, "tokenizer"), "kind", "byte-level BPE");
    assert_int_equal(number(at(found, "parameters"), "total"), 3148224);
    assert_text(at(found, "memory_per_block"), "dtype", "bf16");
}

static const char *family_of(const char *folder)
{
    const json_t *const template = at(inspect(folder), "chat_template");
    return json_is_null(template) ? "none" : json_string_value(at(template, "family"));
}

/* In tokenizer_config.json as a text or a list, or in a file of its own; beside a model_max_length
 * beyond 64 bits. */
static void test_chat_templates(void **state)
{
    (void)state;
    static const struct {
        const char *value, *family;
    } cases[] = {
        {"\"{{ '<|start_header_id|>' + role + '<|end_header_id|>' }}\"", "Llama-3"},
        {"\"{{ bos_token + '[INST] ' + content + ' [/INST]' }}\"", "Llama-2"},
        {"\"<|im_start|>user\"", "ChatML"},
        {"\"{{ content }}\"", "other"},
        {"[{\"name\": \"tool\", \"template\": \"[INST]\"}, {\"name\": \"default\", \"template\": "
         "\"<|im_start|>\"}]",
         "ChatML"},
        {"null", "none"},
        {"\"\"", "other"},
    };
    write_text("chat/config.json", "{}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("chat/tokenizer_config.json",
                   "{\"model_max_length\": 1000000000000000019884624838656, \"chat_template\": %s}",
                   cases[i].value);
        assert_string_equal(family_of(scratch("chat")), cases[i].family);
    }
    write_text("chat/chat_template.jinja", "<|start_header_id|>");
    assert_string_equal(family_of(scratch("chat")), "Llama-3");
    write_text("chat/chat_template.jinja", "%s", "");
    assert_string_equal(family_of(scratch("chat")), "other");
}

static void test_refused(void **state)
{
    (void)state;
    struct process done = RUN("inspect", scratch("nowhere"));
    ASSERT_REFUSED(&done, 2, "nowhere", "config.json");
    write_text("other/config.json", "{\"model_type\": \"gpt2\"}");
    done = RUN("inspect", scratch("other"));
    ASSERT_REFUSED(&done, 2, "gpt2");
    write_text("cut/adapter_config.json", "{\"r\": ");
    done = RUN("inspect", scratch("cut"));
    ASSERT_REFUSED(&done, 2, "adapter_config.json");
    done = RUN("inspect");
    assert_int_equal(done.status, 2);
    done = RUN("inspect", "a", "b");
    assert_int_equal(done.status, 2);
    /* An adapter whose tensors are not there yet. */
    write_text("bare/adapter_config.json",
               "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"target_modules\": "
               "\"all-linear\", \"base_model_name_or_path\": null}");
    const json_t *const found = inspect(scratch("bare"));
    assert_true(lists(found, "missing", "adapter_model.safetensors"));
    assert_text(found, "targets", "all-linear");
    /* A tokenizer that cannot be read is shown as such. */
    write_text("words/config.json", "{}");
    write_text("words/tokenizer.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}");
    const json_t *const words = inspect(scratch("words"));
    assert_text(at(words, "tokenizer"), "kind", "WordPiece");
    assert_non_null(json_object_get(at(words, "tokenizer"), "problem"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_only),      cmocka_unit_test(test_weights),
        cmocka_unit_test(test_unusable_weights), cmocka_unit_test(test_real_folders),
        cmocka_unit_test(test_bundled_model),    cmocka_unit_test(test_chat_templates),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
