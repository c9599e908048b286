/* An adapter folder: adapter_config.json, a NUL byte, adapter_model.safetensors; for a model of two
 * small blocks. */
#include "fuzz.h"
#include "model/adapter.h"

static const struct hop_model_config model = {.hidden = 8,
                                              .intermediate = 12,
                                              .blocks = 2,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .head_dim = 4,
                                              .vocabulary = 16,
                                              .max_positions = 32,
                                              .norm_eps = 1e-5f,
                                              .rope_theta = 10000,
                                              .bos = -1};

static void load(const struct hop_lora_config *lora)
{
    struct hop_parameters parameters = {0};
    struct hop_error err = {0};
    hop_fuzz_ok(hop_parameters_create(&model, lora, 0, model.blocks, &parameters, &err), &err);
    hop_fuzz_read(hop_adapter_load(hop_fuzz_folder(), &model, lora, &parameters, &err), &err);
    hop_parameters_free(&parameters);
}

static void check_lora(const struct hop_lora_config *lora)
{
    for (int32_t b = 0; b < model.blocks; b++)
        for (int t = 0; t < HOP_TARGETS; t++) {
            const int32_t rank = hop_lora_rank(lora, b, (enum hop_target)t);
            HOP_FUZZ_EXPECT(rank >= 0 && rank <= HOP_MAX_RANK);
        }
    HOP_FUZZ_EXPECT(hop_lora_adapted(lora) > 0);
}

static void check_round_trip(const struct hop_lora_config *lora)
{
    struct hop_lora_config back;
    struct hop_error err = {0};
    int32_t block;
    enum hop_target target;
    json_t *const object = hop_lora_json(lora);
    HOP_FUZZ_EXPECT(object);
    hop_fuzz_ok(hop_lora_parse(object, "back", &back, &err), &err);
    HOP_FUZZ_EXPECT(!hop_lora_difference(lora, &back, model.blocks, &block, &target));
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_fuzz_part rest = {data, size};
    struct hop_lora_config lora;
    struct hop_error err = {0};
    const struct hop_fuzz_part json = hop_fuzz_next(&rest);
    hop_fuzz_write("adapter_config.json", json.data, json.size);
    hop_fuzz_write("adapter_model.safetensors", rest.data, rest.size);
    hop_fuzz_read(hop_adapter_warn(hop_fuzz_folder(), &err), &err);
    if (!hop_fuzz_read(hop_adapter_config(hop_fuzz_folder(), &model, &lora, &err), &err))
        return 0;
    check_lora(&lora);
    check_round_trip(&lora);
    load(&lora);
    return 0;
}
