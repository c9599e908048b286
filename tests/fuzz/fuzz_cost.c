/* A cost table: what is accepted is priced without surprises and comes back from its own JSON. */
#include "cluster/cost.h"
#include "fuzz.h"

static void check_prices(const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        HOP_FUZZ_EXPECT(hop_cost_forward(cost, d, 0, cost->blocks) >= 0);
        HOP_FUZZ_EXPECT(hop_cost_backward(cost, d, 0, cost->blocks) >= 0);
        HOP_FUZZ_EXPECT(hop_cost_probe(cost, d, 0, cost->blocks, 3) >= 0);
        HOP_FUZZ_EXPECT(hop_cost_step(cost, d, 0, cost->blocks) >= 0);
        HOP_FUZZ_EXPECT(hop_cost_link(cost, d, 0, 1e6) >= 0);
        hop_cost_memory(cost, d, 0, cost->blocks, 2);
    }
}

static void check_round_trip(const struct hop_cost_table *cost)
{
    struct hop_cost_table back;
    struct hop_error err = {0};
    json_t *const object = hop_cost_json(cost);
    HOP_FUZZ_EXPECT(object);
    hop_fuzz_ok(hop_cost_parse(object, "back", &back, &err), &err);
    json_t *const again = hop_cost_json(&back);
    HOP_FUZZ_EXPECT(json_equal(object, again));
    json_decref(object);
    json_decref(again);
    hop_cost_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_cost_table cost;
    struct hop_error err = {0};
    const char *const path = hop_fuzz_write("cost.json", data, size);
    if (!hop_fuzz_read(hop_cost_load(path, &cost, &err), &err))
        return 0;
    check_prices(&cost);
    check_round_trip(&cost);
    hop_cost_free(&cost);
    return 0;
}
