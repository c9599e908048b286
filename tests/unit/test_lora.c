/* Adapters: layout, identities, initial values, directions, PEFT folders. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "support_model.h"

#include "io/file.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/direction.h"

static struct hop_error err;

static void test_layout(void **state)
{
    (void)state;
    const struct hop_model_config config = support_tiny_config();
    struct hop_lora_config lora = {.rank = 2, .alpha = 4};
    lora.targets[HOP_V_PROJ] = lora.targets[HOP_DOWN_PROJ] = true;
    struct hop_parameters p;
    char name[HOP_TENSOR_NAME];
    assert_ok(hop_parameters_create(&config, &lora, 1, 3, &p, &err));
    assert_int_equal(p.count, 8);
    assert_int_equal(p.total, 2 * (size_t)hop_lora_block_parameters(&config, &lora));
    assert_int_equal(p.items[1].rows, 12);
    assert_int_equal(p.items[1].columns, 2);
    assert_int_equal(hop_parameter_id(&p.items[0]), 2 * (7 + HOP_V_PROJ));
    hop_parameter_name(&p.items[7], name, sizeof name);
    assert_string_equal(name, "base_model.model.model.layers.2.mlp.down_proj.lora_B.weight");
    struct hop_parameter parsed;
    assert_true(hop_parameter_parse(name, &parsed));
    assert_int_equal(hop_parameter_id(&parsed), hop_parameter_id(&p.items[7]));
    assert_false(hop_parameter_parse("base_model.model.lm_head.lora_A.weight", &parsed));
    hop_parameters_free(&p);
}

/* Blocks with cores train one small matrix for every projection. */
static void test_cores(void **state)
{
    (void)state;
    const struct hop_model_config config = support_tiny_config();
    struct hop_lora_config lora = {.rank = 2, .alpha = 8, .core = 4, .core_lo = 1, .core_hi = 2};
    struct hop_lora_config plain, read;
    struct hop_parameters p, expanded;
    char name[HOP_TENSOR_NAME];
    int32_t block;
    enum hop_target target;
    lora.targets[HOP_Q_PROJ] = lora.targets[HOP_DOWN_PROJ] = true;
    assert_int_equal(hop_lora_rank(&lora, 1, HOP_Q_PROJ), 4);
    assert_int_equal(hop_lora_rank(&lora, 2, HOP_Q_PROJ), 2);
    assert_int_equal(hop_lora_rank(&lora, 1, HOP_K_PROJ), 0);
    assert_close(hop_lora_scale(&lora, 1, HOP_Q_PROJ), 2, 0);
    assert_close(hop_lora_scale(&lora, 0, HOP_Q_PROJ), 4, 0);
    assert_int_equal(hop_lora_largest_rank(&lora, HOP_Q_PROJ), 4);
    assert_int_equal(hop_lora_factors(&lora, 0, 3), 10);
    assert_int_equal(hop_lora_parameters(&config, &lora, 1, 2), 32);
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &p, &err));
    assert_int_equal(p.count, 10);
    assert_int_equal(p.total, (size_t)hop_lora_parameters(&config, &lora, 0, 3));
    assert_int_equal(p.items[5].factor, HOP_LORA_CORE);
    assert_int_equal(p.items[5].target, HOP_DOWN_PROJ);
    assert_int_equal(p.items[5].count, 16);
    hop_parameter_name(&p.items[5], name, sizeof name);
    assert_string_equal(name, "base_model.model.model.layers.1.mlp.down_proj.lora_core.weight");
    for (size_t i = 0; i < p.count; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(hop_parameter_id(&p.items[i]), hop_parameter_id(&p.items[j]));
    hop_parameters_initialise(&p, 3);
    assert_close(support_norm(p.values + p.items[4].offset, 32), 0, 0);

    assert_ok(hop_lora_plain(&lora, 3, &plain, &err));
    assert_false(hop_lora_has_cores(&plain, 0, 3));
    assert_true(hop_lora_difference(&lora, &plain, 3, &block, &target));
    assert_int_equal(block, 1);
    for (int32_t b = 0; b < 3; b++) {
        assert_int_equal(hop_lora_rank(&lora, b, HOP_Q_PROJ), hop_lora_rank(&plain, b, HOP_Q_PROJ));
        assert_close(hop_lora_scale(&lora, b, HOP_Q_PROJ), hop_lora_scale(&plain, b, HOP_Q_PROJ),
                     0);
    }
    assert_ok(hop_parameters_create(&config, &plain, 0, 3, &expanded, &err));
    assert_int_equal(expanded.count, 12);
    lora.core_lo = 0;
    lora.core_hi = 200;
    assert_ok(hop_lora_plain(&lora, 200, &plain, &err));
    assert_int_equal(plain.blocks, 0);
    assert_int_equal(plain.rank, 4);
    lora.core_hi = 199;
    assert_fails(hop_lora_plain(&lora, 200, &plain, &err), HOP_UNSUPPORTED, "at most 128 blocks");

    json_t *const json = hop_lora_json(&lora);
    assert_ok(hop_lora_parse(json, "here", &read, &err));
    assert_false(hop_lora_difference(&lora, &read, 200, &block, &target));
    assert_int_equal(read.core_hi, 199);
    json_object_set_new(json, "core", json_pack("[i, i, i]", 4, 3, 2));
    assert_fails(hop_lora_parse(json, "here", &read, &err), HOP_INPUT, "here: core");
    json_decref(json);
    hop_parameters_free(&expanded);
    hop_parameters_free(&p);
}

/* Values and directions do not depend on how blocks are split, nor on the number of threads. */
static void test_split_independent(void **state)
{
    (void)state;
    const struct hop_model_config config = support_tiny_config();
    const struct hop_lora_config lora = support_all_targets(4, 8);
    const uint16_t directions[] = {0, 3};
    const float coefficients[] = {0.5f, -2};
    struct hop_parameters whole, part;
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &whole, &err));
    assert_ok(hop_parameters_create(&config, &lora, 1, 3, &part, &err));
    hop_parameters_initialise(&whole, 42);
    hop_parameters_initialise(&part, 42);
    hop_parameters_add_directions(&whole, 5, 6, 7, directions, coefficients, 2);
    omp_set_num_threads(1);
    hop_parameters_add_directions(&part, 5, 6, 7, directions, coefficients, 2);
    const size_t skip = whole.total - part.total;
    assert_memory_equal(whole.values + skip, part.values, part.total * sizeof(float));
    assert_memory_equal(whole.gradients + skip, part.gradients, part.total * sizeof(float));
    const float bound = 1 / sqrtf(24);
    for (size_t i = 0; i < whole.items[0].count; i++)
        assert_true(fabsf(whole.values[i]) <= bound);
    assert_close(support_norm(whole.values + whole.items[1].offset, whole.items[1].count), 0, 0);
    hop_parameters_free(&whole);
    hop_parameters_free(&part);
}

static void test_round_trip(void **state)
{
    (void)state;
    const struct hop_model_config config = support_tiny_config();
    struct hop_lora_config lora = {.rank = 3, .alpha = 7.5}, read;
    struct hop_parameters saved, loaded, part;
    char folder[64];
    lora.targets[HOP_Q_PROJ] = lora.targets[HOP_UP_PROJ] = true;
    support_folder(folder, sizeof folder);
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &saved, &err));
    for (size_t i = 0; i < saved.total; i++)
        saved.values[i] = (float)i * 0.25f - 3;
    assert_ok(hop_adapter_save(folder, &lora, &saved, "some/base", &err));
    assert_ok(hop_adapter_config(folder, &config, &read, &err));
    assert_int_equal(read.rank, 3);
    assert_close(read.alpha, 7.5, 0);
    assert_memory_equal(read.targets, lora.targets, sizeof lora.targets);
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &loaded, &err));
    assert_ok(hop_adapter_load(folder, &config, &lora, &loaded, &err));
    assert_memory_equal(loaded.values, saved.values, saved.total * sizeof(float));
    assert_ok(hop_parameters_create(&config, &lora, 2, 3, &part, &err));
    assert_ok(hop_adapter_load(folder, &config, &lora, &part, &err));
    assert_memory_equal(part.values, saved.values + saved.total - part.total,
                        part.total * sizeof(float));
    hop_parameters_free(&saved);
    hop_parameters_free(&loaded);
    hop_parameters_free(&part);
    support_folder_remove(folder);
}

static void test_load_mismatch(void **state)
{
    (void)state;
    struct hop_model_config config = support_tiny_config();
    struct hop_lora_config lora = {.rank = 3, .alpha = 6};
    struct hop_parameters saved, other;
    char folder[64];
    lora.targets[HOP_Q_PROJ] = true;
    support_folder(folder, sizeof folder);
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &saved, &err));
    assert_ok(hop_adapter_save(folder, &lora, &saved, NULL, &err));
    lora.rank = 4;
    assert_ok(hop_parameters_create(&config, &lora, 0, 3, &other, &err));
    assert_fails(hop_adapter_load(folder, &config, &lora, &other, &err), HOP_INPUT,
                 "layers.0.self_attn.q_proj.lora_A");
    hop_parameters_free(&other);
    config.blocks = 2;
    assert_fails(hop_adapter_load(folder, &config, &lora, &saved, &err), HOP_INPUT, "layers.2.");
    config.blocks = 4;
    lora.rank = 3;
    assert_ok(hop_parameters_create(&config, &lora, 0, 4, &other, &err));
    assert_fails(hop_adapter_load(folder, &config, &lora, &other, &err), HOP_INPUT, "layers.3.");
    hop_parameters_free(&other);
    hop_parameters_free(&saved);
    support_folder_remove(folder);
}

static hop_status read_config(const char *text, struct hop_lora_config *out)
{
    char folder[64], path[128];
    support_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    assert_ok(hop_file_write(path, text, strlen(text), &err));
    const struct hop_model_config model = support_tiny_config();
    const hop_status status = hop_adapter_config(folder, &model, out, &err);
    support_folder_remove(folder);
    return status;
}

static void test_config_texts(void **state)
{
    (void)state;
    struct hop_lora_config c;
    assert_ok(read_config("{\"target_modules\": [\"self_attn.q_proj\", \"v_proj\"]}", &c));
    assert_int_equal(c.rank, 8);
    assert_close(c.alpha, 8, 0);
    assert_int_equal(hop_lora_adapted(&c), 2);
#define REFUSED(extra, word)                                                                       \
    assert_fails(read_config("{\"target_modules\": [\"q_proj\"], " extra "}", &c),                 \
                 HOP_UNSUPPORTED, word)
    REFUSED("\"use_dora\": true", "use_dora");
    REFUSED("\"modules_to_save\": [\"lm_head\"]", "modules_to_save");
    REFUSED("\"bias\": \"all\"", "bias");
    REFUSED("\"peft_type\": \"IA3\"", "IA3");
    REFUSED("\"init_lora_weights\": \"pissa\"", "pissa");
#undef REFUSED
    assert_fails(read_config("{\"target_modules\": [\"c_attn\"]}", &c), HOP_UNSUPPORTED, "c_attn");
    assert_fails(read_config("{\"target_modules\": [\"q_proj\"], \"r\": 0}", &c), HOP_INPUT,
                 "\"r\"");
    assert_fails(read_config("{\"target_modules\": []}", &c), HOP_INPUT, "target_modules");
}

static void test_real_configs(void **state)
{
    (void)state;
    const struct hop_model_config model = support_tiny_config();
    struct hop_lora_config c;
    char folder[512];
    strcpy(folder, support_data("formats/hf_checkpoint_llama8b"));
    assert_ok(hop_adapter_config(folder, &model, &c, &err));
    assert_int_equal(c.rank, 16);
    assert_int_equal(hop_lora_adapted(&c), 7);
    strcpy(folder, support_data("formats/hf_checkpoint_tinyllama"));
    assert_ok(hop_adapter_config(folder, &model, &c, &err));
    assert_int_equal(c.rank, 8);
    assert_close(c.alpha, 32, 0);
    assert_true(c.targets[HOP_Q_PROJ] && c.targets[HOP_V_PROJ]);
    strcpy(folder, support_data("formats/peft_0.18.1"));
    assert_fails(hop_adapter_config(folder, &model, &c, &err), HOP_UNSUPPORTED, "fan_in_fan_out");
}

/* Loading PyTorch's file and writing it again gives the same file, byte for byte. */
static void test_real_adapter(void **state)
{
    (void)state;
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_parameters p;
    struct hop_map ours, theirs;
    char directory[512], folder[64], path[600];
    strcpy(directory, support_data("models/stories260K"));
    assert_ok(hop_model_config_load(directory, &model, &err));
    strcpy(directory, support_data("lora/init"));
    assert_ok(hop_adapter_config(directory, &model, &lora, &err));
    assert_ok(hop_parameters_create(&model, &lora, 0, model.blocks, &p, &err));
    assert_ok(hop_adapter_load(directory, &model, &lora, &p, &err));
    support_folder(folder, sizeof folder);
    assert_ok(hop_adapter_save(folder, &lora, &p, "stories260K", &err));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_ok(hop_map_open(path, &ours, &err));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", directory);
    assert_ok(hop_map_open(path, &theirs, &err));
    assert_int_equal(ours.size, theirs.size);
    assert_memory_equal(ours.data, theirs.data, ours.size);
    hop_map_close(&ours);
    hop_map_close(&theirs);
    hop_parameters_free(&p);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_split_independent),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_load_mismatch),
        cmocka_unit_test(test_config_texts),
        cmocka_unit_test(test_real_configs),
        cmocka_unit_test(test_real_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
