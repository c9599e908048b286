/* config.json, a NUL byte, generation_config.json. What is accepted has sizes that can be computed
 * with, and comes back from its own JSON. */
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "model/config.h"

enum { POSITIONS = 3 };

static void check_rope(const struct hop_model_config *c)
{
    const int32_t lengths[] = {0, 1, c->max_positions};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        hop_model_rope_stretches(c, lengths[i]);
        HOP_FUZZ_EXPECT(isfinite(hop_model_rope_frequency(c, lengths[i], 0)));
        HOP_FUZZ_EXPECT(isfinite(hop_model_rope_frequency(c, lengths[i], c->head_dim / 2 - 1)));
    }
}

static void check_round_trip(const struct hop_model_config *c)
{
    struct hop_model_config back;
    struct hop_error err = {0};
    json_t *const object = hop_model_config_json(c);
    HOP_FUZZ_EXPECT(object);
    hop_fuzz_ok(hop_model_config_parse(object, "back", &back, &err), &err);
    json_t *const again = hop_model_config_json(&back);
    HOP_FUZZ_EXPECT(json_equal(object, again));
    json_decref(object);
    json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_fuzz_part rest = {data, size};
    struct hop_model_config config;
    struct hop_error err = {0};
    const struct hop_fuzz_part json = hop_fuzz_next(&rest);
    hop_fuzz_write("config.json", json.data, json.size);
    hop_fuzz_write("generation_config.json", rest.data, rest.size);
    if (!hop_fuzz_read(hop_model_config_load(hop_fuzz_folder(), &config, &err), &err))
        return 0;
    HOP_FUZZ_EXPECT(config.eos_count >= 0 && config.eos_count <= HOP_MAX_EOS);
    HOP_FUZZ_EXPECT(hop_model_parameters(&config) > 0);
    for (int t = 0; t < HOP_TARGETS; t++)
        HOP_FUZZ_EXPECT(hop_target_in(&config, (enum hop_target)t) > 0 &&
                        hop_target_out(&config, (enum hop_target)t) > 0);
    check_rope(&config);
    check_round_trip(&config);
    return 0;
}
